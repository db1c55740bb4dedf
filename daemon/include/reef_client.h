// The daemon's protocol, as its clients see it: HTTP on a Unix socket inside the pool's directory
// (mode 0600). docs/PROTOCOL.md has every route and command.
#ifndef REEF_CLIENT_H
#define REEF_CLIENT_H

#include "reef_error.h"
#include "reef_trainer.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REEF_SOCKET_NAME "reefd.sock" // inside the pool's directory, unless --socket says otherwise
#define REEF_REQUEST_BYTES_MAX (1u << 20) // largest body that either side accepts

/**
 * Send one command to the daemon of the pool in directory `pool`, or where that holds those of
 * several ranks to rank 0, and wait for its reply.
 *
 * socket_path  NULL for the socket inside the pool
 * command      one JSON object as text: {"command": NAME, ...}
 * result       written: the reply, JSON text on the heap; the caller frees it
 *
 * Errors: NOT_FOUND when no daemon listens there (no socket, or nobody behind it); INVALID when the
 * path is too long for a socket; IO; otherwise status and message of the daemon's own error.
 */
REEF_API REEF_MUST_CHECK reef_status reef_daemon_call(
    const char *pool, const char *socket_path, const char *command, char **result, reef_error *err);

/**
 * What a daemon would do on a command, done to a trainer of this process: where no daemon runs.
 *
 * command  as above, used up; of those that change a pool: INVALID for others
 * result   written: the reply, the caller's (decref); NULL after an error
 */
REEF_MUST_CHECK reef_status reef_command_run(reef_trainer *trainer,
                                             json_t *command,
                                             json_t **result,
                                             reef_error *err);

/** A batch for a source that is pushed into. */
typedef struct reef_daemon_batch {
    const char *source; // NAME of push:NAME; NULL: the only one there is
    const char *id;     // NULL: none
    const char *type;   // its Content-Type: text/plain, application/jsonl
    const uint8_t *bytes;
    size_t count;
} reef_daemon_batch;

/**
 * Push one batch, and wait until the daemon has it in its journal. As reef_daemon_call.
 *
 * retry_ms  written: after how long to try again, where the daemon's error says so; otherwise 0
 */
REEF_API REEF_MUST_CHECK reef_status reef_daemon_push(const char *pool,
                                                      const char *socket_path,
                                                      const reef_daemon_batch *batch,
                                                      char **result,
                                                      unsigned *retry_ms,
                                                      reef_error *err);

// ---- addresses ----------------------------------------------------------------------------------
//
// Where a pool's daemon listens: the control socket, on whose path both ends agree here, and HTTP.

/**
 * Fill `address` with `socket_path`, or with the socket inside `pool` when that is NULL; where
 * `pool` holds those of several ranks, inside rank 0's. INVALID when the path does not fit, with
 * its length.
 */
REEF_MUST_CHECK reef_status reef_address_init(struct sockaddr_un *address,
                                              const char *pool,
                                              const char *socket_path,
                                              reef_error *err);
/**
 * From PORT, which is of 127.0.0.1, ADDRESS:PORT or [ADDRESS]:PORT; no name is looked up. INVALID
 * what is none.
 */
REEF_MUST_CHECK reef_status reef_address_parse(struct sockaddr_storage *out,
                                               const char *listen,
                                               reef_error *err);

#endif
