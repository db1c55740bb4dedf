// See top_link.h. One connection stays open as long as the daemon does.
#include "top_link.h"

#include "cli.h"
#include "reef_address.h"
#include "reef_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES ((size_t)65536)

static const char REQUEST[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";

reef_status reef_top_link_init(reef_top_link *link,
                               const char *pool,
                               const char *socket_path,
                               reef_error *err) {
    *link = (reef_top_link){.fd = -1};
    return reef_address_init(&link->address, pool, socket_path, err);
}

void reef_top_link_close(reef_top_link *link) {
    if (link->fd >= 0) close(link->fd);
    free(link->line);
    link->line = NULL;
    link->used = link->room = 0;
    link->fd = -1;
    link->asked = false;
}

static bool connect_now(reef_top_link *link) {
    link->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (link->fd < 0) return false;
    int flags = fcntl(link->fd, F_GETFL);
    bool good =
        fcntl(link->fd, F_SETFD, FD_CLOEXEC) == 0 &&
        fcntl(link->fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
        connect(link->fd, (const struct sockaddr *)&link->address, sizeof(link->address)) == 0;
    if (!good) reef_top_link_close(link);
    return good;
}

bool reef_top_link_request(reef_top_link *link) {
    if (link->asked) return true;
    if (link->fd < 0 && !connect_now(link)) return false;
    // The request is so short that it is sent as a whole, or not at all.
    ssize_t sent = send(link->fd, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL);
    if (sent == (ssize_t)sizeof(REQUEST) - 1) {
        link->asked = true;
        return true;
    }
    reef_top_link_close(link);
    return false;
}

static void make_room(reef_top_link *link) {
    if (link->room - link->used > READ_BYTES) return;
    size_t room = link->used + 2 * READ_BYTES;
    char *grown = reef_cli_alloc(room, 1);
    if (link->used > 0) memcpy(grown, link->line, link->used);
    free(link->line);
    link->line = grown;
    link->room = room;
}

// The status in a whole reply, or NULL.
static json_t *parse_reply(const char *line, size_t bytes) {
    json_t *status = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(status)) return status;
    json_decref(status);
    return NULL;
}

// What follows the header of a reply; NULL before all of that is there.
static const char *behind_header(const reef_top_link *link) {
    for (size_t i = 4; i <= link->used; i++)
        if (memcmp(link->line + i - 4, "\r\n\r\n", 4) == 0) return link->line + i;
    return NULL;
}

bool reef_top_link_read(reef_top_link *link, json_t **status) {
    *status = NULL;
    if (link->fd < 0) return false;
    make_room(link);
    // Never blocks: the view must react to keys.
    ssize_t count = recv(link->fd, link->line + link->used, READ_BYTES, 0);
    // Nothing there yet is not a lost connection.
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (count > 0) link->used += (size_t)count;
    // Behind its header a reply is one line.
    const char *head = behind_header(link), *end = NULL;
    if (count > 0 && head != NULL)
        end = memchr(head, '\n', link->used - (size_t)(head - link->line));
    if (end != NULL) {
        *status = parse_reply(head, (size_t)(end - head));
        // One request at a time, so nothing follows the line.
        link->used = 0;
        link->asked = false;
    }
    // Too long or not JSON: this is not a reefd, or not of this version.
    bool gone =
        count <= 0 || link->used > REEF_REQUEST_BYTES_MAX || (end != NULL && *status == NULL);
    if (gone) reef_top_link_close(link);
    return !gone;
}
