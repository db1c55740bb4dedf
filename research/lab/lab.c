// `reef-lab`: finds the command, runs it, and reports a failure in one line with an exit code of
// sysexits(3). Options and answers are read and written as by `reef`.
#include "lab.h"

#include "cli_format.h"
#include "reef_kernels.h"
#include "reef_process.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_command COMMANDS[] = {
    {"peer", "", 0, 0, CLI_THREADS, "passes of one PEER layer, beside another implementation",
     &reef_lab_peer_manual, reef_lab_peer},
    {"scale", "", 0, 0, CLI_THREADS, "the time of a token as the number of experts grows",
     &reef_lab_scale_manual, reef_lab_scale},
    {"step", "", 0, 0, CLI_THREADS, "a training step of a model, beside another implementation",
     &reef_lab_step_manual, reef_lab_step},
    {"usage", "TEXT", 1, 1, CLI_POOL | CLI_COMPUTES, "which experts of a pool a text uses",
     &reef_lab_usage_manual, reef_lab_usage},
    {"report", "", 0, 0, CLI_POOL | CLI_COMPUTES,
     "what a pool learned, kept and forgot, domain by domain", &reef_lab_report_manual,
     reef_lab_report},
    {"flops", "", 0, 0, 0, "what a step of training costs, and parameters", &reef_lab_flops_manual,
     reef_lab_flops},
    {"context", "TRAIN HELD [TRAIN HELD ...]", 2, -1, 0,
     "a context memory on texts: losses, speed and space", &reef_lab_context_manual,
     reef_lab_context},
    {"stream", "STREAM HELD", 2, 2, CLI_CONFIG | CLI_THREADS,
     "what a pool learns of a large stream, beside compressors", &reef_lab_stream_manual,
     reef_lab_stream},
};

#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

// ---- what commands share ------------------------------------------------------------------------

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double reef_lab_median(const double *values, size_t count, size_t stride) {
    double *sorted = reef_cli_alloc(count, sizeof(*sorted));
    for (size_t i = 0; i < count; i++) sorted[i] = values[i * stride];
    qsort(sorted, count, sizeof(*sorted), by_size);
    double middle = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return middle;
}

reef_status reef_lab_shape_read(const reef_cli_call *cli,
                                reef_router_shape *shape,
                                size_t *tokens,
                                uint64_t *repeat,
                                reef_error *err) {
    const struct {
        const char *name;
        uint64_t high;
        size_t *value;
    } numbers[] = {
        {"d-model", REEF_WIDTH_MAX, &shape->d_model},
        {"heads", REEF_HEAD_COUNT_MAX, &shape->head_count},
        {"topk", 1024, &shape->topk},
        {"d-key", REEF_WIDTH_MAX, &shape->d_key},
        {"tokens", 1 << 20, tokens},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uint64_t value = *numbers[i].value;
        reef_status status =
            reef_cli_integer(cli, numbers[i].name, 1, numbers[i].high, &value, err);
        if (status != REEF_OK) return status;
        *numbers[i].value = (size_t)value;
    }
    return reef_cli_integer(cli, "repeat", 1, LAB_REPEAT_MAX, repeat, err);
}

// NAME=VALUE,... over the configuration.
static reef_status read_model(const char *words, reef_config *config, reef_error *err) {
    char *text = reef_cli_format("%s", words != NULL ? words : ""), *rest = NULL;
    reef_status status = REEF_OK;
    for (char *word = strtok_r(text, ",", &rest); word != NULL && status == REEF_OK;
         word = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            status = reef_fail(err, REEF_ERR_INVALID, "--model has '%.80s', which is no NAME=VALUE",
                               word);
            break;
        }
        *equals = '\0';
        status = reef_config_set(config, word, equals + 1, err);
    }
    free(text);
    return status;
}

reef_status reef_lab_model_read(const reef_cli_call *cli, reef_config *config, reef_error *err) {
    reef_config_default(config);
    reef_status status = reef_config_set(config, "memory", "0", err);
    if (status == REEF_OK) status = reef_config_set(config, "net_share", "1", err);
    if (status == REEF_OK) status = reef_config_set(config, "boundaries", "given", err);
    if (status == REEF_OK) status = read_model(reef_cli_text(cli, "model"), config, err);
    return status == REEF_OK ? reef_config_check(config, err) : status;
}

reef_status reef_lab_memory_check(const reef_router_shape *shape, reef_error *err) {
#ifdef _SC_PHYS_PAGES
    // Rows, two moments, and the table of rows on small pages.
    double wanted = 8 * (double)shape->side * (double)shape->side * (double)shape->d_model *
                    (double)sizeof(float);
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char need[CLI_WORD_BYTES], there[CLI_WORD_BYTES];
    if (have > 0 && wanted > have)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu x %zu experts of width %zu take %s, and this machine has %s",
                         shape->side, shape->side, shape->d_model,
                         reef_cli_bytes((uint64_t)wanted, need),
                         reef_cli_bytes((uint64_t)have, there));
#else
    (void)shape;
    (void)err;
#endif
    return REEF_OK;
}

void reef_lab_machine_print(size_t threads) {
    printf("machine   %s kernels, OpenBLAS for %s, %zu %s\n", reef_kernels_name(), reef_gemm_name(),
           threads, threads == 1 ? "thread" : "threads");
}

void reef_lab_machine_json(json_t *document, size_t threads) {
    json_object_set_new(document, "kernels", json_string(reef_kernels_name()));
    json_object_set_new(document, "blas", json_string(reef_gemm_name()));
    json_object_set_new(document, "threads", json_integer((json_int_t)threads));
}

// ---- help ---------------------------------------------------------------------------------------

static void print_examples(const char *line) {
    for (; *line; line += *line == '\n') {
        int length = (int)strcspn(line, "\n");
        printf("  $ %.*s\n", length, line);
        line += length;
    }
}

static void print_commands(void) {
    printf("reef-lab: measurements of Reef's parts\n\nusage: reef-lab COMMAND [OPTIONS] [FILES]\n\n"
           "commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-10s%s\n", COMMANDS[i].name, COMMANDS[i].summary);
    printf(
        "\n`reef-lab COMMAND --help` explains a command. REEF_ISA (scalar, avx2, avx512) chooses\n"
        "the kernels.\n\nexamples:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) print_examples(COMMANDS[i].manual->example);
}

static void print_help(const reef_cli_command *command, bool all) {
    reef_cli_options list;
    printf("reef-lab %s: %s\n\nusage: reef-lab %s %s[OPTIONS] %s\n\n%s\n\noptions:\n",
           command->name, command->summary, command->name,
           command->traits & CLI_POOL ? "POOL " : "", command->operands, command->manual->about);
    reef_cli_options_init(&list, command);
    for (size_t i = 0; i < list.count; i++) {
        const reef_cli_option *option = &list.options[i];
        bool of_init =
            (command->traits & CLI_CONFIG) && reef_cli_config_field(option->name) != NULL;
        if (of_init && !all) continue;
        char *left = reef_cli_format("--%s %s", option->name, option->value ? option->value : "");
        printf("  %-19s %s\n", left, option->help);
        free(left);
    }
    reef_cli_options_release(&list);
    printf("\nexamples:\n");
    print_examples(command->manual->example);
}

// ---- the program --------------------------------------------------------------------------------

static reef_status run(reef_cli_call *cli, int argc, char **argv, reef_error *err) {
    const reef_cli_command *command = reef_cli_command_find(argv[1]);
    bool help;
    if (command == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "unknown command '%.64s'; see reef-lab --help",
                         argv[1]);
    reef_status status = reef_cli_parse(cli, command, argc - 1, argv + 1, &help, err);
    if (status != REEF_OK) return status;
    if (help) {
        print_help(command, reef_cli_text(cli, "help-all") != NULL);
        return REEF_OK;
    }
    status = reef_program_choose_kernels(err);
    return status == REEF_OK ? command->run(cli, err) : status;
}

int main(int argc, char **argv) {
    reef_cli_call cli = {0};
    reef_error err = {0};
    reef_program_begin("reef-lab");
    reef_cli_commands_install(COMMANDS, COMMAND_COUNT, NULL, 0);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands();
        return 0;
    }
    reef_status status = run(&cli, argc, argv, &err);
    if (status == REEF_OK && fflush(stdout) != 0)
        status = reef_fail(&err, REEF_ERR_IO, "cannot write standard output");
    if (status != REEF_OK) fprintf(stderr, "reef-lab: %s\n", err.message);
    reef_cli_release(&cli);
    return reef_status_exit_code(status);
}
