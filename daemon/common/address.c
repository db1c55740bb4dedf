// Addresses to listen on; see reef_address.h. A socket path has to fit into sun_path (107 bytes on
// Linux): bind() and libuv would cut a longer one silently and listen somewhere else.
#include "reef_address.h"

#include "reef_client.h"

#include <limits.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOST_BYTES_MAX 80 // an IPv6 address, with a zone

// Several ranks train the pools in one directory, and rank 0 answers for all.
static bool is_held_by_rank_0(const char *pool) {
    char path[PATH_MAX];
    struct stat info;
    int bytes = snprintf(path, sizeof(path), "%s/data.mdb", pool);
    if (bytes >= (int)sizeof(path) || stat(path, &info) == 0) return false;
    bytes = snprintf(path, sizeof(path), "%s/rank-0/data.mdb", pool);
    return bytes < (int)sizeof(path) && stat(path, &info) == 0;
}

reef_status reef_address_init(struct sockaddr_un *address,
                              const char *pool,
                              const char *socket_path,
                              reef_error *err) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    // A command without a pool may still name a socket; without both there is nowhere to go.
    if (socket_path == NULL && pool == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "neither a pool nor a socket was named");
    // "pool/" and "pool" are the same directory, and must give the same socket path.
    int length = pool != NULL ? (int)strlen(pool) : 0;
    while (length > 1 && pool[length - 1] == '/') length--;
    bool held = socket_path == NULL && is_held_by_rank_0(pool);
    int bytes = socket_path != NULL
                    ? snprintf(address->sun_path, sizeof(address->sun_path), "%s", socket_path)
                    : snprintf(address->sun_path, sizeof(address->sun_path), "%.*s/%s%s", length,
                               pool, held ? "rank-0/" : "", REEF_SOCKET_NAME);
    if (bytes <= 0) return reef_fail(err, REEF_ERR_INVALID, "the socket path is empty");
    // sun_path holds 107 characters. A longer path would be cut silently and reach another socket.
    if ((size_t)bytes >= sizeof(address->sun_path))
        return reef_fail(err, REEF_ERR_INVALID,
                         "the socket path has %d bytes, a socket takes at most %zu: "
                         "give a shorter one with --socket (%.60s...)",
                         bytes, sizeof(address->sun_path) - 1, address->sun_path);
    return REEF_OK;
}

static reef_status listen_failure(const char *listen, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' is not an address: PORT, ADDRESS:PORT or [ADDRESS]:PORT", listen);
}

reef_status reef_address_parse(struct sockaddr_storage *out, const char *listen, reef_error *err) {
    // A port alone listens on loopback: opening a pool to the network takes an explicit address.
    char host[HOST_BYTES_MAX] = "127.0.0.1";
    const char *colon = strrchr(listen, ':'), *port = colon != NULL ? colon + 1 : listen;
    if (colon != NULL) {
        // An IPv6 address contains colons, so it is written in brackets; the port follows the last
        // colon.
        bool brackets = listen[0] == '[' && colon > listen + 1 && colon[-1] == ']';
        const char *begin = listen + brackets, *end = colon - brackets;
        if (end <= begin || (size_t)(end - begin) >= sizeof(host))
            return listen_failure(listen, err);
        snprintf(host, sizeof(host), "%.*s", (int)(end - begin), begin);
    }
    char *end = NULL;
    unsigned long number = strtoul(port, &end, 10);
    // strtoul takes signs and blanks; a port starts with a digit.
    if (port[0] < '0' || port[0] > '9' || *end || number > 65535)
        return listen_failure(listen, err);
    // Numeric only: a name would be looked up over the network at start, and could resolve to
    // something unexpected.
    struct addrinfo *found = NULL, hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                            .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &found) != 0) return listen_failure(listen, err);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return REEF_OK;
}
