// Options in, answers out: the part of every subcommand that is the same.
//
// Options come from tables, so help, parsing and what is suggested for a mistyped option cannot
// drift apart. What the options mean is the business of the commands.
#include "cli.h"
#include "cli_format.h"

#include "reef_gone.h"
#include "reef_moment.h"
#include "reef_system.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_MAX 1024

// ---- parsing ------------------------------------------------------------------------------------

static reef_status unknown_option(const reef_cli_call *cli,
                                  const reef_cli_options *list,
                                  const char *argument,
                                  reef_error *err) {
    // Without dashes and value, so that only the name is compared.
    char *name = reef_cli_format("%s", argument + strspn(argument, "-"));
    name[strcspn(name, "=")] = '\0';
    if (reef_gone_report(cli->command->name, name, err)) {
        free(name);
        return REEF_ERR_INVALID;
    }
    const char *guess = NULL;
    for (size_t i = 0; i < list->count; i++) reef_guess(name, list->options[i].name, &guess);
    reef_status status =
        guess != NULL
            ? reef_fail(err, REEF_ERR_INVALID, "unknown option '%.64s'; did you mean --%s?",
                        argument, guess)
            : reef_fail(err, REEF_ERR_INVALID, "unknown option '%.64s'; see --help", argument);
    free(name);
    return status;
}

// Which element of argv getopt complains about: a long option is the last one it looked at, a
// letter may stand anywhere in a cluster such as -xy.
static reef_status bad_option(const reef_cli_call *cli,
                              const reef_cli_options *list,
                              char **argv,
                              reef_error *err) {
    if (optopt && optopt < 256) {
        char letter[3] = {'-', (char)optopt, '\0'};
        return unknown_option(cli, list, letter, err);
    }
    return unknown_option(cli, list, argv[optind - 1], err);
}

// Only letters of the list are found, so there is one.
static const char *name_of_letter(const reef_cli_options *list, char letter) {
    size_t i = 0;
    while (reef_cli_letter(list->options[i].name) != letter) i++;
    return list->options[i].name;
}

static reef_status parse_options(reef_cli_call *cli,
                                 const reef_cli_options *list,
                                 int argc,
                                 char **argv,
                                 bool *help,
                                 reef_error *err) {
    struct option *table = reef_cli_alloc(list->count + 1, sizeof(*table));
    char *letters = reef_cli_alloc(2 * list->count + 2, 1), *end = letters;
    // The colon makes a missing value distinguishable.
    *end++ = ':';
    for (size_t i = 0; i < list->count; i++) {
        const char *value = list->options[i].value;
        bool valued = value != NULL;
        char letter = reef_cli_letter(list->options[i].name);
        table[i] = (struct option){.name = list->options[i].name,
                                   .has_arg = !valued           ? no_argument
                                              : value[0] == '[' ? optional_argument
                                                                : required_argument,
                                   // Above all characters, so that `val` tells both kinds apart.
                                   .val = 256 + (int)i};
        if (letter == '\0') continue;
        *end++ = letter;
        if (valued) *end++ = ':';
    }
    cli->given = reef_cli_alloc((size_t)argc, sizeof(*cli->given));

    reef_status status = REEF_OK;
    // Messages are ours: they name the option as it was typed.
    opterr = 0;
    optind = 1;
    int found;
    while (status == REEF_OK && (found = getopt_long(argc, argv, letters, table, NULL)) != -1) {
        if (found == ':') {
            status =
                reef_fail(err, REEF_ERR_INVALID, "option '%.64s' needs a value", argv[optind - 1]);
        } else if (found == '?') {
            // A flag with a value (--json=1) comes here too, with the number of the option.
            status = optopt >= 256
                         ? reef_fail(err, REEF_ERR_INVALID, "option '--%s' takes no value",
                                     list->options[optopt - 256].name)
                         : bad_option(cli, list, argv, err);
        } else {
            const char *name =
                found < 256 ? name_of_letter(list, (char)found) : list->options[found - 256].name;
            if (strncmp(name, "help", 4) == 0) *help = true; // --help-all as well
            // An option without a value has an empty one, so that NULL means "not given".
            cli->given[cli->given_count++] =
                (reef_cli_given){.name = name, .value = optarg != NULL ? optarg : ""};
        }
    }
    free(letters);
    free(table);
    return status;
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Finds the pool: --pool, the first argument, or REEF_POOL. With REEF_POOL set, the first argument
// is the pool only if it cannot be anything else: there is one argument too many, or it is a
// directory and the command takes any number of them.
static reef_status find_pool(reef_cli_call *cli, reef_error *err) {
    const char *environment = getenv("REEF_POOL");
    bool first = environment == NULL || environment[0] == '\0';
    int most = cli->command->operand_max;
    if (!first && most >= 0) first = cli->operand_count > (size_t)most;
    if (!first && cli->command->operand_min != most)
        first = cli->operand_count > 0 && is_directory(cli->operands[0]);

    cli->pool = reef_cli_text(cli, "pool");
    if (cli->pool != NULL) return REEF_OK;
    if (!first) {
        cli->pool = environment;
        return REEF_OK;
    }
    if (cli->operand_count == 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "no pool given: name its directory first, or with --pool, or in REEF_POOL");
    cli->pool = cli->operands[0];
    cli->operands++;
    cli->operand_count--;
    return REEF_OK;
}

static reef_status check_operands(const reef_cli_call *cli, reef_error *err) {
    const reef_cli_command *command = cli->command;
    if (cli->operand_count < (size_t)command->operand_min)
        return reef_fail(err, REEF_ERR_INVALID, "missing argument: %s expects %s", command->name,
                         command->operands);
    if (command->operand_max >= 0 && cli->operand_count > (size_t)command->operand_max)
        return reef_fail(err, REEF_ERR_INVALID, "unexpected argument '%.64s'",
                         cli->operands[command->operand_max]);
    return REEF_OK;
}

reef_status reef_cli_parse(reef_cli_call *cli,
                           const reef_cli_command *command,
                           int argc,
                           char **argv,
                           bool *help,
                           reef_error *err) {
    cli->command = command;
    cli->lost_kinds = json_array();
    *help = false;
    reef_cli_options list;
    reef_cli_options_init(&list, command);
    reef_status status = parse_options(cli, &list, argc, argv, help, err);
    // Names are copied, because those of configuration fields end with the list.
    for (size_t i = 0; i < cli->given_count; i++)
        cli->given[i].name = reef_cli_format("%s", cli->given[i].name);
    reef_cli_options_release(&list);
    // Set before any error, so that a failure is reported as JSON too.
    cli->json = reef_cli_text(cli, "json") != NULL;
    if (status != REEF_OK || *help) return status;

    cli->dry_run = reef_cli_text(cli, "dry-run") != NULL;
    cli->verbose = reef_cli_text(cli, "verbose") != NULL;
    cli->operands = argv + optind;
    cli->operand_count = (size_t)(argc - optind);
    uint64_t threads = 0;
    status = reef_cli_integer(cli, "threads", 1, THREADS_MAX, &threads, err);
    cli->threads = (size_t)threads;
    const char *memory = reef_cli_text(cli, "rows-memory");
    if (status == REEF_OK && memory != NULL)
        status = reef_memory_parse(memory, &cli->memory_bytes, err);
    if (status == REEF_OK && command->traits & CLI_POOL) status = find_pool(cli, err);
    return status == REEF_OK ? check_operands(cli, err) : status;
}

void reef_cli_release(reef_cli_call *cli) {
    for (size_t i = 0; i < cli->given_count; i++) free((char *)cli->given[i].name);
    free(cli->given);
    json_decref(cli->lost_kinds);
    *cli = (reef_cli_call){0};
}

// ---- values -------------------------------------------------------------------------------------

const char *reef_cli_text(const reef_cli_call *cli, const char *name) {
    for (size_t i = cli->given_count; i > 0; i--)
        if (strcmp(cli->given[i - 1].name, name) == 0) return cli->given[i - 1].value;
    return NULL;
}

const char *reef_cli_next(const reef_cli_call *cli, const char *name, size_t *cursor) {
    while (*cursor < cli->given_count) {
        const reef_cli_given *given = &cli->given[(*cursor)++];
        if (strcmp(given->name, name) == 0) return given->value;
    }
    return NULL;
}

reef_status reef_cli_integer(const reef_cli_call *cli,
                             const char *name,
                             uint64_t low,
                             uint64_t high,
                             uint64_t *out,
                             reef_error *err) {
    const char *text = reef_cli_text(cli, name);
    if (text == NULL) return REEF_OK;
    // Checked by hand: strtoull takes signs and leading blanks.
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    uint64_t value = strtoull(text, NULL, 10);
    bool number = digits > 0 && text[digits] == '\0' && errno == 0;
    // The message has the range, so that no second attempt fails.
    if (!number || value < low || value > high)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--%s is '%.64s', but must be an integer, %" PRIu64 " to %" PRIu64, name,
                         text, low, high);
    *out = value;
    return REEF_OK;
}

reef_status reef_cli_number(const reef_cli_call *cli,
                            const char *name,
                            double low,
                            double high,
                            double *out,
                            reef_error *err) {
    const char *text = reef_cli_text(cli, name);
    if (text == NULL) return REEF_OK;
    char *end;
    double value = strtod(text, &end);
    // Written so that not a number fails too.
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        return reef_fail(err, REEF_ERR_INVALID, "--%s is '%.64s', but must be a number, %g to %g",
                         name, text, low, high);
    *out = value;
    return REEF_OK;
}

// ---- replies ------------------------------------------------------------------------------------

reef_status reef_cli_reply(reef_cli_call *cli, json_t *document, reef_error *err) {
    assert(!cli->answered);
    if (json_array_size(cli->lost_kinds) > 0)
        json_object_set(document, "lost_kinds", cli->lost_kinds);
    char *text =
        document != NULL ? json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(document);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "the JSON reply could not be built");
    puts(text);
    free(text);
    cli->answered = true;
    return REEF_OK;
}

json_t *reef_cli_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

uint64_t reef_cli_count_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    // Sizes may be reals.
    return json_is_integer(value) ? (uint64_t)json_integer_value(value)
                                  : (uint64_t)json_real_value(value);
}

double reef_cli_real_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

const char *reef_cli_text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

json_t *reef_cli_known(bool known, uint64_t value) {
    return known ? json_integer((json_int_t)value) : json_null();
}

json_t *reef_cli_name(const char *name) {
    return name[0] != '\0' ? json_string(name) : json_null();
}

json_t *reef_cli_path(const char *path) {
    char *text = reef_cli_printable((const uint8_t *)path, strlen(path), false);
    json_t *value = json_string(text);
    free(text);
    return value;
}

reef_status reef_cli_confirm(const reef_cli_call *cli, const char *what, reef_error *err) {
    char line[16] = "";
    if (cli->json || reef_cli_text(cli, "yes") != NULL) return REEF_OK;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return REEF_OK;
    fprintf(stderr, "%s. Type yes to continue: ", what);
    if (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "yes\n") == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "not confirmed; nothing was changed");
}

reef_status reef_cli_time_read(
    const reef_cli_call *cli, const char *name, uint64_t now_ms, uint64_t *out, reef_error *err) {
    const char *text = reef_cli_text(cli, name);
    reef_moment moment;
    if (text == NULL) return REEF_OK;
    if (reef_moment_parse(text, now_ms, &moment)) {
        *out = moment.first; // of a day or a minute its beginning
        return REEF_OK;
    }
    return reef_fail(
        err, REEF_ERR_INVALID,
        "--%s is '%.40s', which is not a time: write a day such as 2024-05-01, a moment "
        "such as 2024-05-01T12:00, or how long ago such as 30m, 3h or 2d",
        name, text);
}

reef_status reef_cli_time_range(const reef_cli_call *cli,
                                bool *ranged,
                                uint64_t *since_ms,
                                uint64_t *until_ms,
                                reef_error *err) {
    uint64_t now = reef_unix_ms();
    *until_ms = UINT64_MAX;
    *ranged = reef_cli_text(cli, "since") != NULL || reef_cli_text(cli, "until") != NULL;
    reef_status status = reef_cli_time_read(cli, "since", now, since_ms, err);
    if (status == REEF_OK) status = reef_cli_time_read(cli, "until", now, until_ms, err);
    // An empty range is more likely a mistake than a wish.
    if (status != REEF_OK || *since_ms < *until_ms) return status;
    return reef_fail(err, REEF_ERR_INVALID, "--since '%.40s' is not before --until '%.40s'",
                     reef_cli_text(cli, "since") != NULL ? reef_cli_text(cli, "since")
                                                         : "the beginning",
                     reef_cli_text(cli, "until"));
}
