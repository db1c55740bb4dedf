// Who is at the other end of a Unix socket.
#ifndef REEF_PEER_CRED_H
#define REEF_PEER_CRED_H

#include <stdbool.h>

/** Whether the process at the other end runs as our user or as root. */
bool reef_peer_is_trusted(int fd);

#endif
