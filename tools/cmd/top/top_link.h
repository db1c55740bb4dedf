// Asking a daemon for its status without ever waiting for it, so that a terminal stays alive while
// a daemon does not.
#ifndef REEF_TOP_LINK_H
#define REEF_TOP_LINK_H

#include "reef_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

typedef struct reef_top_link {
    struct sockaddr_un address;
    int fd;     // -1: not connected
    bool asked; // and has not answered
    char *line; // what has come of the reply
    size_t used, room;
} reef_top_link;

/** INVALID the socket's path is too long. */
REEF_MUST_CHECK reef_status reef_top_link_init(reef_top_link *link,
                                               const char *pool,
                                               const char *socket_path,
                                               reef_error *err);
/**
 * Send a request unless a reply is due; connect first if not connected. False: no daemon listens.
 */
bool reef_top_link_request(reef_top_link *link);
/**
 * Read what has come. *status is the caller's once a reply is whole, otherwise NULL. False: the
 * daemon went away.
 */
bool reef_top_link_read(reef_top_link *link, json_t **status);
void reef_top_link_close(reef_top_link *link);

#endif
