// The check of a client's credentials. SO_PEERCRED is Linux's own and outside POSIX, so it has a
// file of its own with the feature macro that it takes.
#define _GNU_SOURCE
#include "peer_cred.h"

#include <sys/socket.h>
#include <unistd.h>

bool reef_peer_is_trusted(int fd) {
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
    return peer.uid == 0 || peer.uid == geteuid();
}
