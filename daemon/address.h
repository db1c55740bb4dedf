// Where a pool's daemon listens; both ends of the socket agree here.
#ifndef REEF_ADDRESS_H
#define REEF_ADDRESS_H

#include "reef_error.h"

#include <sys/socket.h>
#include <sys/un.h>

/** Fill `address` with `socket_path`, or with the socket inside `pool` when that is NULL. INVALID
 *  when the path does not fit, with its length. */
REEF_MUST_CHECK reef_status reef_address_init(struct sockaddr_un *address,
                                              const char *pool,
                                              const char *socket_path,
                                              reef_error *err);

#endif
