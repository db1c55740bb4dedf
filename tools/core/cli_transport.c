// A change of a pool: through the daemon that holds it, or by this program if none runs.
#include "cli_transport.h"
#include "cli.h"
#include "cli_format.h"

#include "reef_client.h"

#include <stdlib.h>
#include <string.h>

static reef_status call_daemon(const reef_cli_call *cli,
                               const json_t *request,
                               json_t **result,
                               reef_error *err) {
    char *reply = NULL;
    char *text = json_dumps(request, JSON_COMPACT);
    if (text == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "the request could not be built");
    reef_status status =
        reef_daemon_call(cli->pool, reef_cli_text(cli, "socket"), text, &reply, err);
    free(text);
    if (status != REEF_OK) return status;
    *result = json_loads(reply, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    free(reply);
    // How long the request waited behind a commit, for those who measure.
    const json_t *waited = json_object_get(*result, "waited_ms");
    if (cli->verbose && waited != NULL)
        fprintf(stderr,
                "reef: the daemon began with it after %.1f ms, when the step under way was done\n",
                json_number_value(waited));
    return *result != NULL ? REEF_OK
                           : reef_fail(err, REEF_ERR_IO, "the daemon's reply is not JSON");
}

reef_status reef_cli_daemon_request(const reef_cli_call *cli,
                                    const char *command,
                                    json_t **result,
                                    reef_error *err) {
    *result = NULL;
    json_t *request = json_pack("{s:s}", "command", command);
    reef_status status = call_daemon(cli, request, result, err);
    json_decref(request);
    return status;
}

void reef_cli_route_log(const reef_cli_call *cli) {
    if (!cli->verbose) return;
    json_t *running = NULL;
    bool asks = (cli->command->traits & CLI_DAEMON) != 0;
    bool daemon =
        asks && reef_cli_daemon_request(cli, "status", &running, NULL) != REEF_ERR_NOT_FOUND;
    json_decref(running);
    // A path may hold anything, and a terminal would obey it.
    char *pool = reef_cli_printable((const uint8_t *)cli->pool, strlen(cli->pool), false);
    if (daemon)
        fprintf(stderr, "reef: using the socket of the daemon that runs on %s\n", pool);
    else
        fprintf(stderr, "reef: using the pool %s itself; %s\n", pool,
                asks ? "no daemon runs on it" : "this command asks no daemon");
    free(pool);
}

reef_status reef_cli_trainer_open(reef_cli_trainer *out,
                                  const reef_cli_call *cli,
                                  bool write,
                                  reef_error *err) {
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    *out = (reef_cli_trainer){0};
    reef_status status =
        reef_store_open(&out->store, cli->pool, &(reef_store_options){.write = write}, err);
    return status == REEF_OK ? reef_trainer_open(&out->trainer, out->store, &options, err) : status;
}

void reef_cli_trainer_close(reef_cli_trainer *trainer) {
    reef_trainer_close(trainer->trainer);
    reef_store_close(trainer->store);
}

reef_status reef_cli_change(const reef_cli_call *cli,
                            json_t *request,
                            json_t **result,
                            reef_error *err) {
    *result = NULL;
    json_t *running = NULL;
    reef_cli_trainer own;
    if (request == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "the request could not be built: names are UTF-8");
    // The status is asked first: NOT_FOUND from the change itself could also mean that its object
    // does not exist.
    reef_status status = reef_cli_daemon_request(cli, "status", &running, NULL);
    json_decref(running);
    if (status == REEF_ERR_NOT_FOUND) {
        // Writing takes the lock: a second process gets BUSY.
        status = reef_cli_trainer_open(&own, cli, true, err);
        if (status == REEF_OK) status = reef_command_run(own.trainer, request, result, err);
        reef_cli_trainer_close(&own);
    } else {
        // A daemon that does not reply has the lock, so trying the pool would fail anyway.
        status = call_daemon(cli, request, result, err);
    }
    json_decref(request);
    return status;
}
