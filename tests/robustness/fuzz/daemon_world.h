// The loop's side of reefd without its process: HTTP on both doors, routes and the serving thread
// on a golden pool, driven by one client at a time. Its trainer's thread has ended: commands that
// want it are refused as busy, so that no input changes what the next one meets.
#ifndef DAEMON_WORLD_H
#define DAEMON_WORLD_H

#include "fuzz.h"

#include <stdbool.h>

#define DAEMON_WORLD_TOKEN "fuzz-token-0123456789"

void daemon_world_start(void);

/**
 * Send `bytes` to the port or to the control socket, close that direction, and read until the
 * daemon closes the other. Lends the answer, which ends with a zero. Aborts when the daemon does
 * not close in time.
 */
const char *daemon_world_ask(bool by_port, const uint8_t *bytes, size_t count, size_t *answered);

#endif
