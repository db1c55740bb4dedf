// `reef`: one tool for everything that is not streaming. Finds the command, runs it, and reports a
// failure in one line with an exit code of sysexits(3).
#include "cli.h"
#include "cli_format.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Commands of two words come first: "snapshot list" is a command, and so could "snapshot" be.
static const reef_cli_command *find_command(int argc, char **argv, int *words) {
    const reef_cli_command *command = NULL;
    if (argc > 2) {
        char *name = reef_cli_format("%s %s", argv[1], argv[2]);
        command = reef_cli_command_find(name);
        free(name);
    }
    *words = 2;
    if (command != NULL) return command;
    *words = 1;
    return reef_cli_command_find(argv[1]);
}

static reef_status unknown_command(int argc, char **argv, reef_error *err) {
    if (argv[1][0] == '-')
        return reef_fail(err, REEF_ERR_INVALID,
                         "unknown option '%.64s': options come after the command, as in reef "
                         "status --json; see reef help",
                         argv[1]);
    return reef_cli_command_unknown(argv[1], argc > 2 && argv[2][0] != '-' ? argv[2] : NULL, err);
}

static void guard_program(const reef_cli_call *cli) {
    char *name = reef_cli_format("reef %s", cli->command->name);
    reef_program_guard(name, cli->pool);
    free(name);
}

static reef_status run(reef_cli_call *cli, int argc, char **argv, reef_error *err) {
    int words;
    const reef_cli_command *command = find_command(argc, argv, &words);
    if (command == NULL) return unknown_command(argc, argv, err);
    bool help;
    reef_status status = reef_cli_parse(cli, command, argc - words, argv + words, &help, err);
    if (status != REEF_OK) return status;
    if (help) return reef_cli_help(cli, command, err);
    if (cli->pool != NULL) guard_program(cli);
    if (cli->pool != NULL) reef_cli_route_log(cli);
    status = reef_program_choose_kernels(err);
    return status == REEF_OK ? command->run(cli, err) : status;
}

// `reef`, `reef --help` and `reef --version` are spellings of commands.
static char *spelling(const char *argument) {
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) return "help";
    if (strcmp(argument, "--version") == 0 || strcmp(argument, "-V") == 0) return "version";
    return NULL;
}

static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

// One line for people; and, for programs, the document they were promised, in one line too, as some
// read documents line by line. What a message quotes may hold anything, so neither sees it raw.
static void report_failure(const reef_cli_call *cli, const reef_error *err, bool json) {
    char *message = reef_cli_printable((const uint8_t *)err->message, strlen(err->message), false);
    fprintf(stderr, "reef%s%s: %s\n", cli->command != NULL ? " " : "",
            cli->command != NULL ? cli->command->name : "", message);
    if (json && !cli->answered) {
        json_t *document = json_pack("{s:{s:s, s:s}}", "error", "status",
                                     reef_status_text(err->status), "message", message);
        char *text = document != NULL ? json_dumps(document, 0) : NULL;
        if (text != NULL) puts(text);
        free(text);
        json_decref(document);
    }
    free(message);
}

int main(int argc, char **argv) {
    reef_cli_call cli = {0};
    reef_error err = {0};
    char *list[] = {argv[0], "help", NULL};
    reef_program_begin("reef");
    reef_cmd_install();
    if (argc < 2) {
        argc = 2;
        argv = list;
    } else if (spelling(argv[1]) != NULL) {
        argv[1] = spelling(argv[1]);
    }

    reef_status status = run(&cli, argc, argv, &err);
    if (status != REEF_OK) report_failure(&cli, &err, wants_json(argc, argv));
    // What failed to be written earlier is an error too, even where nothing is left to write.
    bool failed_before = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || failed_before) && status == REEF_OK) {
        const char *why = failed_before ? "not all of it was taken" : strerror(errno);
        status = reef_fail(&err, REEF_ERR_IO, "cannot write standard output: %s", why);
        cli.answered = true; // there is no use in writing more
        report_failure(&cli, &err, false);
    }
    reef_cli_release(&cli);
    return reef_status_exit_code(status);
}
