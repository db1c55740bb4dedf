// The daemon's protocol, as its clients see it.
//
// reefd listens on a Unix socket inside the pool's directory (mode 0600). A request is one line of
// JSON, {"command": "...", ...arguments}; the reply is one line, {"ok": true, "result": {...}} or
// {"ok": false, "error": {"status": "invalid", "message": "..."}}. docs/PROTOCOL.md has every
// command.
#ifndef REEF_CLIENT_H
#define REEF_CLIENT_H

#include "reef_error.h"

#define REEF_SOCKET_NAME "reefd.sock" // inside the pool's directory, unless --socket says otherwise
#define REEF_REQUEST_BYTES_MAX (1u << 20) // longest line that either side accepts

/**
 * Send one request to the daemon of the pool in directory `pool`, or where that holds those of
 * several ranks to rank 0, and wait for its reply.
 *
 * socket_path  NULL for the socket inside the pool
 * request      one JSON object as text
 * result       written: the reply's "result" as JSON text, on the heap; the caller frees it
 *
 * Errors: NOT_FOUND when no daemon listens there (no socket, or nobody behind it); INVALID when the
 * path is too long for a socket; IO; otherwise status and message of the daemon's own error.
 */
REEF_API REEF_MUST_CHECK reef_status reef_daemon_call(
    const char *pool, const char *socket_path, const char *request, char **result, reef_error *err);
/**
 * The same. retry_ms  written: after how long to try again, where the daemon's error says so;
 * otherwise 0
 */
REEF_API REEF_MUST_CHECK reef_status reef_daemon_call_hinted(const char *pool,
                                                             const char *socket_path,
                                                             const char *request,
                                                             char **result,
                                                             unsigned *retry_ms,
                                                             reef_error *err);

#endif
