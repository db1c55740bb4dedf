// Through the daemon, or straight into the pool.
#ifndef REEF_CLI_TRANSPORT_H
#define REEF_CLI_TRANSPORT_H

#include "cli.h"
#include "reef_error.h"
#include "reef_trainer.h"

#include <jansson.h>

/** What a command does with a trainer of its own; *result is the caller's (decref). */
typedef reef_status (*reef_cli_local)(reef_trainer *trainer,
                                      json_t *arguments,
                                      json_t **result,
                                      reef_error *err);

/**
 * Carry out a change: ask the daemon when one runs on the pool, otherwise open the pool for writing
 * and call `local`. Both leave the same object in *result (the caller's, decref).
 *
 * request  {"command": ..., arguments}; taken over
 */
REEF_MUST_CHECK reef_status reef_cli_change(const reef_cli_call *cli,
                                            json_t *request,
                                            reef_cli_local local,
                                            json_t **result,
                                            reef_error *err);
/**
 * What a dry run asks: may `request` (taken over) be done to the pool as its last commit left it?
 * Opens it for reading only. What `check` leaves in *result is the caller's (decref).
 */
REEF_MUST_CHECK reef_status reef_cli_check(const reef_cli_call *cli,
                                           json_t *request,
                                           reef_cli_local check,
                                           json_t **result,
                                           reef_error *err);
/**
 * Log, with --verbose, whether the command goes through the socket of a daemon or to the pool
 * itself.
 */
void reef_cli_route_log(const reef_cli_call *cli);
/** The daemon's reply to {"command": ...}, or to that of status; NOT_FOUND when none runs. */
REEF_MUST_CHECK reef_status reef_cli_daemon_request(const reef_cli_call *cli,
                                                    const char *command,
                                                    json_t **result,
                                                    reef_error *err);
REEF_MUST_CHECK reef_status reef_cli_daemon_status(const reef_cli_call *cli,
                                                   json_t **result,
                                                   reef_error *err);

#endif
