// Through the daemon, or straight into the pool.
#ifndef REEF_CLI_TRANSPORT_H
#define REEF_CLI_TRANSPORT_H

#include "cli.h"
#include "reef_error.h"
#include "reef_trainer.h"

#include <jansson.h>

/** The command's pool, opened by this process, and a trainer on it. */
typedef struct reef_cli_trainer {
    reef_store *store;
    reef_trainer *trainer;
} reef_cli_trainer;

/** For reading only, unless `write`. Close also after an error. */
REEF_MUST_CHECK reef_status reef_cli_trainer_open(reef_cli_trainer *out,
                                                  const reef_cli_call *cli,
                                                  bool write,
                                                  reef_error *err);
void reef_cli_trainer_close(reef_cli_trainer *trainer);

/**
 * Carry out a change: ask the daemon when one runs on the pool, otherwise do the same here. Both
 * leave the same object in *result (the caller's, decref).
 *
 * request  {"command": ..., arguments}; taken over
 */
REEF_MUST_CHECK reef_status reef_cli_change(const reef_cli_call *cli,
                                            json_t *request,
                                            json_t **result,
                                            reef_error *err);
/**
 * Log, with --verbose, whether the command goes through the socket of a daemon or to the pool
 * itself.
 */
void reef_cli_route_log(const reef_cli_call *cli);
/** The daemon's reply to {"command": ...}, the caller's; NOT_FOUND when none runs. */
REEF_MUST_CHECK reef_status reef_cli_daemon_request(const reef_cli_call *cli,
                                                    const char *command,
                                                    json_t **result,
                                                    reef_error *err);

#endif
