// reef run: the daemon in the foreground. Finds reefd and becomes it. Options are the daemon's, and
// it reports its own mistakes; those of the command line are reported before it is started.
#include "cli_daemon.h"
#include "cli_format.h"
#include "commands.h"
#include "reef_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MORE 6 // than were given: the name, --pool POOL, --json-log, --check, the end

// And those of reefd.
static const reef_cli_option OPTIONS[] = {
    {"verbose", NULL, "first print which program is run, and its arguments"},
    {"dry-run", NULL, "print every setting and where it comes from, and end"},
    {"json", NULL, "log as lines of JSON on standard output"},
    {0},
};

const reef_cli_manual reef_run_manual = {
    .about =
        "Trains the pool on sources until the last one has ended, or ^C: then what was read is\n"
        "trained and committed. Killed at any moment, "
        "it continues from the last commit. This is reefd,\n"
        "which is looked for beside this program and then in PATH; "
        "all its options may be given, and\n"
        "its exit code is that of the command. Without a pool, that of --config is taken.\n"
        "\n"
        "Files (PATH, glob:PATTERN) are read to their end; "
        "follow:PATH, dir:PATH, redis:// and push:NAME\n"
        "have none; - is standard input. Vectors: idx:, npy:, csv:, jsonl:. See reefd(8).",
    .options = OPTIONS,
    .example = "reef run reef.pool --source corpus.txt\n"
               "reef run reef.pool --source corpus.txt --http 0 --quiet\n"
               "cat corpus.txt | reef run reef.pool --source -",
};

// ---- its arguments ------------------------------------------------------------------------------

static bool is_own(const char *name) {
    static const char *const OWN[] = {"pool", "verbose", "dry-run", "json"};
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++)
        if (strcmp(name, OWN[i]) == 0) return true;
    return false;
}

static bool takes_value(const char *name) {
    size_t count;
    const reef_option_text *texts = reef_option_texts(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, texts[i].name) == 0) return texts[i].value != NULL;
    return false; // the opposite of a switch
}

// A value stands in the same argument as its name ("--name=value"), so that it may begin with a
// dash.
static char **arguments_new(const reef_cli_call *cli, size_t *count) {
    char **argv = reef_cli_alloc(cli->given_count + ARGUMENTS_MORE, sizeof(*argv));
    size_t used = 0;
    argv[used++] = reef_cli_format(CLI_DAEMON_NAME);
    // The pool may be named in the configuration file instead.
    if (cli->pool != NULL) argv[used++] = reef_cli_format("--pool=%s", cli->pool);
    for (size_t i = 0; i < cli->given_count; i++) {
        const reef_cli_given *given = &cli->given[i];
        // Options of `reef run` itself are not the daemon's.
        if (is_own(given->name)) continue;
        argv[used++] = takes_value(given->name)
                           ? reef_cli_format("--%s=%s", given->name, given->value)
                           : reef_cli_format("--%s", given->name);
    }
    // The general options of reef have their own names in reefd.
    if (cli->json) argv[used++] = reef_cli_format("--json-log");
    // A dry run lets the daemon check its settings and end.
    if (cli->dry_run) argv[used++] = reef_cli_format("--check");
    *count = used;
    return argv;
}

static void arguments_free(char **argv, size_t count) {
    for (size_t i = 0; i < count; i++) free(argv[i]);
    free(argv);
}

// By the daemon's own code, on a copy: getopt moves arguments about.
static reef_status check_arguments(char **argv, size_t count, reef_error *err) {
    reef_options options;
    char **copy = reef_cli_alloc(count + 1, sizeof(*copy));
    memcpy(copy, argv, count * sizeof(*copy));
    reef_status status = reef_options_parse(&options, (int)count, copy, err);
    reef_options_release(&options);
    free(copy);
    return status;
}

static void print_command(const reef_cli_call *cli, const char *program, char **argv) {
    if (!cli->verbose) return;
    fprintf(stderr, "reef: running %s", program);
    for (char **word = argv + 1; *word != NULL; word++) {
        char *text = reef_cli_printable((const uint8_t *)*word, strlen(*word), false);
        fprintf(stderr, " %s", text);
        free(text);
    }
    fputc('\n', stderr);
}

// ---- becoming it --------------------------------------------------------------------------------

// Returns only where that failed. The daemon logs to standard error; programs read standard output.
static reef_status exec_daemon(const reef_cli_call *cli,
                               const char *program,
                               char **argv,
                               reef_error *err) {
    if (cli->json && dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        return reef_fail(err, REEF_ERR_IO, "cannot write to standard output what %.160s logs: %s",
                         program, strerror(errno));
    (void)execv(program, argv);
    return reef_fail(err, REEF_ERR_IO, "cannot run %.160s: %s", program, strerror(errno));
}

reef_status reef_cmd_run(reef_cli_call *cli, reef_error *err) {
    size_t count;
    char **argv = arguments_new(cli, &count);
    // Checked here by the daemon's own parser: a mistake is reported by reef, with its exit code.
    reef_status status = check_arguments(argv, count, err);
    char *program = status == REEF_OK ? reef_cli_daemon_path() : NULL;
    if (status == REEF_OK && program == NULL)
        // The packages hold both programs, so this is a broken installation.
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "there is no program " CLI_DAEMON_NAME
                           ", neither beside this one nor in PATH; the package reef has both");
    if (status == REEF_OK) {
        // The command line is printed, so that it can be copied into a unit file.
        print_command(cli, program, argv);
        // Replaces this process: signals and the exit code are then the daemon's own.
        status = exec_daemon(cli, program, argv, err);
    }
    // Only reached if the daemon could not be started.
    free(program);
    arguments_free(argv, count);
    return status;
}
