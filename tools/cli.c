// Options in, answers out: the part of every subcommand that is the same.
//
// Options come from tables, so help, parsing and what is suggested for a mistyped option cannot drift
// apart. What the options mean is the business of the commands.
#include "cli.h"

#include "reef_words.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define THREADS_MAX 1024
#define EXIT_NO_MEMORY 71
#define HELP_COLUMN 26 // where the explanation of an option begins

// ---- memory --------------------------------------------------------------------------------------

static void out_of_memory(void) {
    fputs("reef: out of memory\n", stderr);
    exit(EXIT_NO_MEMORY);
}

void *cli_alloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!memory) out_of_memory();
    return memory;
}

char *cli_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    char *text = cli_alloc((size_t)length + 1, 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

// ---- the options of a command --------------------------------------------------------------------

// The options of a command in the order of its help: its own, the configuration's, the common ones.
typedef struct option_list {
    cli_option *options;
    size_t count;
    char *names; // of configuration fields, with dashes
} option_list;

static const cli_option POOL_OPTIONS[] = {
    {"pool", "POOL", "directory of the pool; also the first argument, or REEF_POOL"},
    {0},
};
static const cli_option COMPUTE_OPTIONS[] = {
    {"threads", "N", "threads to compute with (default: one per core)"},
    {"memory", "SIZE", "what to hold in memory, such as 2G (default: all there is)"},
    {0},
};
static const cli_option CHANGE_OPTIONS[] = {
    {"dry-run", NULL, "say what would happen and change nothing"},
    {0},
};
static const cli_option DAEMON_OPTIONS[] = {
    {"socket", "PATH", "the daemon's socket (default: reefd.sock in the pool)"},
    {"verbose", NULL, "say whether the daemon or this program does the work"},
    {0},
};
static const cli_option COMMON_OPTIONS[] = {
    {"json", NULL, "answer with one JSON document"},
    {"help", NULL, "print this help"},
    {0},
};

static void list_add(option_list *list, const cli_option *options) {
    for (; options && options->name; options++) list->options[list->count++] = *options;
}

static size_t options_count(const cli_option *options) {
    size_t count = 0;
    while (options && options[count].name) count++;
    return count;
}

// d_model is --d-model.
static void list_add_config(option_list *list) {
    size_t field_count, bytes = 0;
    const reef_config_field *fields = reef_config_fields(&field_count);
    for (size_t i = 0; i < field_count; i++) bytes += strlen(fields[i].name) + 1;
    list->names = cli_alloc(bytes, 1);
    char *name = list->names;
    for (size_t i = 0; i < field_count; i++) {
        memcpy(name, fields[i].name, strlen(fields[i].name) + 1);
        for (char *c = name; *c; c++)
            if (*c == '_') *c = '-';
        list->options[list->count++] =
            (cli_option){.name = name, .value = "VALUE", .help = fields[i].help};
        name += strlen(name) + 1;
    }
}

static void list_init(option_list *list, const cli_command *command) {
    size_t field_count;
    reef_config_fields(&field_count);
    size_t most = options_count(command->manual->options) + field_count +
                  options_count(POOL_OPTIONS) + options_count(COMPUTE_OPTIONS) +
                  options_count(CHANGE_OPTIONS) + options_count(DAEMON_OPTIONS) +
                  options_count(COMMON_OPTIONS);
    *list = (option_list){.options = cli_alloc(most, sizeof(*list->options))};
    list_add(list, command->manual->options);
    if (command->traits & CLI_CONFIG) list_add_config(list);
    if (command->traits & CLI_POOL) list_add(list, POOL_OPTIONS);
    if (command->traits & CLI_COMPUTES) list_add(list, COMPUTE_OPTIONS);
    if (command->traits & CLI_CHANGES) list_add(list, CHANGE_OPTIONS);
    if (command->traits & CLI_DAEMON) list_add(list, DAEMON_OPTIONS);
    list_add(list, COMMON_OPTIONS);
}

static void list_release(option_list *list) {
    free(list->options);
    free(list->names);
    *list = (option_list){0};
}

// ---- parsing -------------------------------------------------------------------------------------

static reef_status unknown_option(const option_list *list, const char *argument, reef_error *err) {
    char *name = cli_format("%s", argument + strspn(argument, "-"));
    name[strcspn(name, "=")] = '\0';
    const char *guess = NULL;
    size_t nearest = strlen(name) / 2 + 1; // what shares less than half of the letters is no help
    for (size_t i = 0; i < list->count; i++) {
        size_t distance = reef_word_distance(name, list->options[i].name);
        if (distance >= nearest) continue;
        nearest = distance;
        guess = list->options[i].name;
    }
    reef_status status =
        guess ? reef_fail(err, REEF_INVALID, "unknown option '%.64s'; did you mean --%s?", argument,
                          guess)
              : reef_fail(err, REEF_INVALID, "unknown option '%.64s'; see --help", argument);
    free(name);
    return status;
}

// Which element of argv getopt complains about: a long option is the last one it looked at, a letter
// may stand anywhere in a cluster such as -xy.
static reef_status bad_option(const option_list *list, char **argv, reef_error *err) {
    if (optopt && optopt < 256) {
        char letter[3] = {'-', (char)optopt, '\0'};
        return unknown_option(list, letter, err);
    }
    return unknown_option(list, argv[optind - 1], err);
}

static reef_status parse_options(
    cli_call *cli, const option_list *list, int argc, char **argv, bool *help, reef_error *err) {
    struct option *table = cli_alloc(list->count + 1, sizeof(*table));
    for (size_t i = 0; i < list->count; i++)
        table[i] =
            (struct option){.name = list->options[i].name,
                            .has_arg = list->options[i].value ? required_argument : no_argument,
                            .val = 256 + (int)i};
    cli->given = cli_alloc((size_t)argc, sizeof(*cli->given));

    reef_status status = REEF_OK;
    opterr = 0;
    optind = 1;
    int found;
    while (status == REEF_OK && (found = getopt_long(argc, argv, ":h", table, NULL)) != -1) {
        if (found == 'h') {
            *help = true;
        } else if (found == ':') {
            status = reef_fail(err, REEF_INVALID, "option '%.64s' needs a value", argv[optind - 1]);
        } else if (found == '?') {
            // A flag with a value (--json=1) comes here too, with the option's own number.
            status = optopt >= 256 ? reef_fail(err, REEF_INVALID, "option '--%s' takes no value",
                                               list->options[optopt - 256].name)
                                   : bad_option(list, argv, err);
        } else {
            const char *name = list->options[found - 256].name;
            if (strcmp(name, "help") == 0) *help = true;
            cli->given[cli->given_count++] =
                (cli_given){.name = name, .value = optarg ? optarg : ""};
        }
    }
    free(table);
    return status;
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// --pool, or the first argument, or REEF_POOL. With REEF_POOL set, the first argument is the pool only
// where it cannot be anything else: there is one argument too many, or it is a directory and the
// command leaves open how many arguments it takes.
static reef_status find_pool(cli_call *cli, reef_error *err) {
    const char *environment = getenv("REEF_POOL");
    bool first = !environment || environment[0] == '\0';
    int most = cli->command->operand_max;
    if (!first && most >= 0) first = cli->operand_count > (size_t)most;
    if (!first && cli->command->operand_min != most)
        first = cli->operand_count > 0 && is_directory(cli->operands[0]);

    cli->pool = cli_text(cli, "pool");
    if (cli->pool) return REEF_OK;
    if (!first) {
        cli->pool = environment;
        return REEF_OK;
    }
    if (cli->operand_count == 0)
        return reef_fail(
            err, REEF_INVALID,
            "no pool given: name its directory first, or with --pool, or in REEF_POOL");
    cli->pool = cli->operands[0];
    cli->operands++;
    cli->operand_count--;
    return REEF_OK;
}

static reef_status check_operands(const cli_call *cli, reef_error *err) {
    const cli_command *command = cli->command;
    if (cli->operand_count < (size_t)command->operand_min)
        return reef_fail(err, REEF_INVALID, "missing argument: %s expects %s", command->name,
                         command->operands);
    if (command->operand_max >= 0 && cli->operand_count > (size_t)command->operand_max)
        return reef_fail(err, REEF_INVALID, "unexpected argument '%.64s'",
                         cli->operands[command->operand_max]);
    return REEF_OK;
}

reef_status cli_parse(
    cli_call *cli, const cli_command *command, int argc, char **argv, bool *help, reef_error *err) {
    cli->command = command;
    *help = false;
    option_list list;
    list_init(&list, command);
    reef_status status = parse_options(cli, &list, argc, argv, help, err);
    // The names given are those of the tables, but a configuration's names die with the list.
    for (size_t i = 0; i < cli->given_count; i++)
        cli->given[i].name = cli_format("%s", cli->given[i].name);
    list_release(&list);
    cli->json = cli_text(cli, "json") != NULL;
    if (status != REEF_OK || *help) return status;

    cli->dry_run = cli_text(cli, "dry-run") != NULL;
    cli->verbose = cli_text(cli, "verbose") != NULL;
    cli->operands = argv + optind;
    cli->operand_count = (size_t)(argc - optind);
    uint64_t threads = 0;
    status = cli_integer(cli, "threads", 1, THREADS_MAX, &threads, err);
    cli->threads = (size_t)threads;
    const char *memory = cli_text(cli, "memory");
    if (status == REEF_OK && memory != NULL)
        status = reef_memory_parse(memory, &cli->memory_bytes, err);
    if (status == REEF_OK && command->traits & CLI_POOL) status = find_pool(cli, err);
    return status == REEF_OK ? check_operands(cli, err) : status;
}

void cli_release(cli_call *cli) {
    for (size_t i = 0; i < cli->given_count; i++) free((char *)cli->given[i].name);
    free(cli->given);
    *cli = (cli_call){0};
}

// ---- values --------------------------------------------------------------------------------------

const char *cli_text(const cli_call *cli, const char *name) {
    for (size_t i = cli->given_count; i > 0; i--)
        if (strcmp(cli->given[i - 1].name, name) == 0) return cli->given[i - 1].value;
    return NULL;
}

const char *cli_next(const cli_call *cli, const char *name, size_t *cursor) {
    while (*cursor < cli->given_count) {
        const cli_given *given = &cli->given[(*cursor)++];
        if (strcmp(given->name, name) == 0) return given->value;
    }
    return NULL;
}

reef_status cli_integer(const cli_call *cli,
                        const char *name,
                        uint64_t low,
                        uint64_t high,
                        uint64_t *out,
                        reef_error *err) {
    const char *text = cli_text(cli, name);
    if (!text) return REEF_OK;
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    uint64_t value = strtoull(text, NULL, 10);
    bool number = digits > 0 && text[digits] == '\0' && errno == 0;
    if (!number || value < low || value > high)
        return reef_fail(err, REEF_INVALID,
                         "--%s is '%.64s', but must be an integer, %" PRIu64 " to %" PRIu64, name,
                         text, low, high);
    *out = value;
    return REEF_OK;
}

reef_status cli_number(
    const cli_call *cli, const char *name, double low, double high, double *out, reef_error *err) {
    const char *text = cli_text(cli, name);
    if (!text) return REEF_OK;
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        return reef_fail(err, REEF_INVALID, "--%s is '%.64s', but must be a number, %g to %g", name,
                         text, low, high);
    *out = value;
    return REEF_OK;
}

// The field that an option sets, or NULL: --d-model sets d_model.
static const reef_config_field *config_field(const char *option) {
    size_t field_count;
    const reef_config_field *fields = reef_config_fields(&field_count);
    for (size_t f = 0; f < field_count; f++) {
        const char *a = option, *b = fields[f].name;
        while (*a && (*a == *b || (*a == '-' && *b == '_'))) {
            a++;
            b++;
        }
        if (*a == '\0' && *b == '\0') return &fields[f];
    }
    return NULL;
}

reef_status cli_config(const cli_call *cli, reef_config *config, reef_error *err) {
    reef_config_default(config);
    for (size_t i = 0; i < cli->given_count; i++) {
        const reef_config_field *field = config_field(cli->given[i].name);
        if (!field) continue;
        reef_status status = reef_config_set(config, field->name, cli->given[i].value, err);
        if (status != REEF_OK) return status;
    }
    return reef_config_check(config, err);
}

// ---- help ----------------------------------------------------------------------------------------

static void print_option(const cli_option *option) {
    char *left = option->value ? cli_format("  --%s %s", option->name, option->value)
                               : cli_format("  --%s", option->name);
    // What does not fit before the column gets a line of its own.
    if (strlen(left) + 2 > HELP_COLUMN)
        printf("%s\n%*s%s\n", left, HELP_COLUMN, "", option->help);
    else
        printf("%-*s%s\n", HELP_COLUMN, left, option->help);
    free(left);
}

static void print_synopsis(const cli_command *command) {
    printf("usage: reef %s", command->name);
    if (command->traits & CLI_POOL) printf(" [POOL]");
    printf(" [OPTIONS]");
    if (command->operands[0]) printf(" %s", command->operands);
    printf("\n");
}

static void print_options(const cli_command *command, const option_list *list) {
    printf("\noptions:\n");
    for (size_t i = 0; i < list->count; i++) {
        cli_option option = list->options[i];
        const reef_config_field *field =
            command->traits & CLI_CONFIG ? config_field(option.name) : NULL;
        char *help = field ? cli_format("%s [%s]", option.help, field->standard) : NULL;
        if (help) option.help = help;
        print_option(&option);
        free(help);
    }
    if (command->traits & CLI_CONFIG) printf("\nDefaults stand in brackets.\n");
}

static void print_help(const cli_command *command, const option_list *list) {
    printf("reef %s: %s\n\n", command->name, command->summary);
    print_synopsis(command);
    printf("\n%s\n", command->manual->about);
    print_options(command, list);
    printf("\nexample:\n");
    const char *line = command->manual->example;
    while (*line) {
        int length = (int)strcspn(line, "\n");
        printf("  $ %.*s\n", length, line);
        line += length;
        line += *line == '\n';
    }
}

static json_t *command_json(const cli_command *command, const option_list *list) {
    json_t *options = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const cli_option *option = &list->options[i];
        json_array_append_new(options, json_pack("{s:s, s:s?, s:s}", "name", option->name, "value",
                                                 option->value, "help", option->help));
    }
    return json_pack("{s:s, s:s, s:b, s:s, s:s, s:o, s:s}", "name", command->name, "operands",
                     command->operands, "pool", (command->traits & CLI_POOL) != 0, "summary",
                     command->summary, "about", command->manual->about, "options", options,
                     "example", command->manual->example);
}

reef_status cli_help(cli_call *cli, const cli_command *command, reef_error *err) {
    option_list list;
    list_init(&list, command);
    reef_status status = REEF_OK;
    if (cli->json)
        status = cli_answer(cli, command_json(command, &list), err);
    else
        print_help(command, &list);
    list_release(&list);
    return status;
}

static json_t *commands_json(void) {
    size_t count;
    const cli_command *commands = cli_commands(&count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:s, s:s}", "name", commands[i].name, "operands",
                                        commands[i].operands, "summary", commands[i].summary));
    return json_pack("{s:o}", "commands", array);
}

reef_status cli_help_all(cli_call *cli, reef_error *err) {
    if (cli->json) return cli_answer(cli, commands_json(), err);
    size_t count;
    const cli_command *commands = cli_commands(&count);
    printf("reef: a lifelong-learning expert store\n\n"
           "usage: reef COMMAND [POOL] [OPTIONS] [ARGUMENTS]\n\ncommands:\n");
    for (size_t i = 0; i < count; i++) printf("  %-18s%s\n", commands[i].name, commands[i].summary);
    printf(
        "\nA pool is a directory: the first argument, or --pool, or REEF_POOL. REEF_ISA (scalar,\n"
        "avx2, avx512) chooses the kernels. `reef COMMAND --help` explains a command; reefd is\n"
        "the daemon that trains a pool.\n");
    return REEF_OK;
}

// ---- answers -------------------------------------------------------------------------------------

reef_status cli_answer(cli_call *cli, json_t *document, reef_error *err) {
    assert(!cli->answered);
    char *text = document ? json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(document);
    if (!text) return reef_fail(err, REEF_NO_MEMORY, "the JSON answer could not be built");
    puts(text);
    free(text);
    cli->answered = true;
    return REEF_OK;
}

json_t *cli_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_path(const char *path) {
    char *text = cli_printable((const uint8_t *)path, strlen(path), false);
    json_t *value = json_string(text);
    free(text);
    return value;
}
