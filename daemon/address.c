// The control socket's address; see address.h. A socket path has to fit into sun_path (107 bytes on
// Linux): bind() and libuv would cut a longer one silently and listen somewhere else.
#include "address.h"

#include "reef_daemon.h"

#include <stdio.h>
#include <string.h>

reef_status reef_address_init(struct sockaddr_un *address,
                              const char *pool,
                              const char *socket_path,
                              reef_error *err) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (!socket_path && !pool)
        return reef_fail(err, REEF_INVALID, "neither a pool nor a socket was named");
    int length = pool ? (int)strlen(pool) : 0;
    while (length > 1 && pool[length - 1] == '/') length--;
    int bytes = socket_path
                    ? snprintf(address->sun_path, sizeof(address->sun_path), "%s", socket_path)
                    : snprintf(address->sun_path, sizeof(address->sun_path), "%.*s/%s", length,
                               pool, REEF_SOCKET_NAME);
    if (bytes <= 0) return reef_fail(err, REEF_INVALID, "the socket path is empty");
    if ((size_t)bytes >= sizeof(address->sun_path))
        return reef_fail(
            err, REEF_INVALID,
            "the socket path has %d bytes, a socket takes at most %zu: give a shorter one with "
            "--socket (%.60s...)",
            bytes, sizeof(address->sun_path) - 1, address->sun_path);
    return REEF_OK;
}
