// Where a pool's daemon listens: the control socket, on whose path both ends agree here, and HTTP.
#ifndef REEF_ADDRESS_H
#define REEF_ADDRESS_H

#include "reef_error.h"

#include <sys/socket.h>
#include <sys/un.h>

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
