// reef commit, pause, resume, drain, reload, stop: what only a running daemon can be asked for.
#include "cli_format.h"
#include "cli_transport.h"
#include "commands.h"

#include <inttypes.h>

const reef_cli_manual reef_commit_manual = {
    .about = "Answers when everything that was trained by then is on disk. The daemon commits by\n"
             "itself as well.",
    .options = NULL,
    .example = "reef commit reef.pool && reef eval reef.pool today.txt",
};

const reef_cli_manual reef_pause_manual = {
    .about =
        "The step under way is finished and what was trained is committed. From then on nothing\n"
        "is trained until `reef resume`, or until the daemon ends; other commands work as before.\n"
        "What clients push is still written to the pool, so its files are not to be copied\n"
        "meanwhile: `reef export pool` makes a copy, and needs no pause.",
    .options = NULL,
    .example = "reef pause reef.pool && reef eval reef.pool today.txt && reef resume reef.pool",
};

const reef_cli_manual reef_resume_manual = {
    .about = "Nothing of the stream was lost while training was paused.",
    .options = NULL,
    .example = "reef resume reef.pool",
};

const reef_cli_manual reef_drain_manual = {
    .about =
        "Waits for what the daemon has read when it is asked, not for what comes in after that.\n"
        "What fills no batch yet is committed, and trained as the beginning of the next batch.",
    .options = NULL,
    .example = "reef drain reef.pool && reef eval reef.pool today.txt",
};

const reef_cli_manual reef_reload_manual = {
    .about =
        "As SIGHUP does: the daemon reads its configuration file and its token again.\n"
        "commit-steps, commit-seconds, pool-max, json-log, quiet and the token change between two\n"
        "steps; what needs a restart is named. With a mistake in the file nothing changes.",
    .options = NULL,
    .example = "reef reload reef.pool",
};

const reef_cli_manual reef_stop_manual = {
    .about =
        "As SIGTERM does: what came in over standard input is trained, files are left where they\n"
        "are, the last step is committed. Answers at once; the daemon's end follows.",
    .options = NULL,
    .example = "reef stop reef.pool",
};

// Reports for a dry run that a daemon runs, and its state.
static reef_status report_dry_run(reef_cli_call *cli, const char *command, reef_error *err) {
    json_t *running = NULL;
    // Asks for the status: a daemon that does not reply is an error of the dry run too.
    reef_status status = reef_cli_daemon_request(cli, "status", &running, err);
    if (status != REEF_OK) return status;
    json_int_t pid = json_integer_value(json_object_get(running, "pid"));
    json_t *state = json_incref(json_object_get(running, "state"));
    json_decref(running);
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:s, s:I, s:o}", "done", 0, "command", command,
                                        "pid", pid, "state", state),
                              err);
    // Names the process, so that a wrong --pool or --socket shows before anything is sent.
    printf("would ask reefd %" JSON_INTEGER_FORMAT " (%s): %s\n", pid, json_string_value(state),
           command);
    json_decref(state);
    return REEF_OK;
}

// Ask for it, unless for a dry run. *result (the caller's) is what is left to print for people;
// NULL where all was said.
static reef_status request_daemon(reef_cli_call *cli,
                                  const char *command,
                                  json_t **result,
                                  reef_error *err) {
    *result = NULL;
    if (cli->dry_run) return report_dry_run(cli, command, err);
    reef_status status = reef_cli_daemon_request(cli, command, result, err);
    if (status != REEF_OK || !cli->json) return status;
    status = reef_cli_reply(cli, *result, err);
    *result = NULL;
    return status;
}

static reef_status request_commit(reef_cli_call *cli,
                                  const char *command,
                                  const char *done,
                                  reef_error *err) {
    json_t *result;
    reef_status status = request_daemon(cli, command, &result, err);
    // Step and commit are what a script waits for or compares.
    if (result != NULL)
        printf("%s at step %s, commit %" PRIu64 "\n", done,
               CLI_COUNT(reef_cli_count_of(result, "step")), reef_cli_count_of(result, "number"));
    json_decref(result);
    return status;
}

reef_status reef_cmd_commit(reef_cli_call *cli, reef_error *err) {
    return request_commit(cli, "commit", "committed", err);
}

reef_status reef_cmd_pause(reef_cli_call *cli, reef_error *err) {
    return request_commit(cli, "pause", "paused", err);
}

reef_status reef_cmd_resume(reef_cli_call *cli, reef_error *err) {
    return request_commit(cli, "resume", "training continues; last committed", err);
}

reef_status reef_cmd_drain(reef_cli_call *cli, reef_error *err) {
    return request_commit(cli, "drain", "trained and committed", err);
}

static void print_names(const char *what, const json_t *names) {
    size_t i;
    json_t *name;
    printf("%s", what);
    json_array_foreach(names, i, name) printf("%s%s", i ? ", " : "", json_string_value(name));
    printf("%s\n", json_array_size(names) ? "" : "nothing");
}

reef_status reef_cmd_reload(reef_cli_call *cli, reef_error *err) {
    json_t *result;
    reef_status status = request_daemon(cli, "reload", &result, err);
    if (result == NULL) return status;
    print_names("changed        ", json_object_get(result, "changed"));
    print_names("needs restart  ", json_object_get(result, "restart"));
    json_decref(result);
    return REEF_OK;
}

reef_status reef_cmd_stop(reef_cli_call *cli, reef_error *err) {
    json_t *result;
    reef_status status = request_daemon(cli, "stop", &result, err);
    if (result != NULL) printf("the daemon finishes what it has to, commits and ends\n");
    json_decref(result);
    return status;
}
