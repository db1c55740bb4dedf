// See http_client.h.
#include "http_client.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SECONDS_MAX 120

int http_connect(const char *address) {
    const char *colon = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)},
                             .sin_port = htons((uint16_t)atoi(colon + 1))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0)
        fail_msg("cannot connect to %s: %s", address, strerror(errno));
    return fd;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// What came in, cut into head and body.
static void cut(http_answer *answer, char *text, size_t bytes) {
    char *end = strstr(text, "\r\n\r\n");
    if (end == NULL) {
        free(text);
        return;
    }
    answer->head = keep(strndup(text, (size_t)(end - text) + 2));
    answer->body_bytes = bytes - (size_t)(end + 4 - text);
    answer->body = keep(calloc(answer->body_bytes + 1, 1));
    memcpy(answer->body, end + 4, answer->body_bytes);
    if (sscanf(text, "HTTP/1.%*c %d", &answer->code) != 1) answer->code = 0;
    free(text);
}

int http_read_all(int fd, unsigned seconds, http_answer *answer) {
    size_t used = 0, room = 1 << 16;
    char *text = calloc(room, 1);
    double end = now_s() + seconds;
    int closed = 0;
    *answer = (http_answer){0};
    while (!closed && now_s() < end) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 100) <= 0) continue;
        if (used + 1 == room) {
            room *= 2;
            text = realloc(text, room);
            assert_non_null(text);
        }
        ssize_t count = recv(fd, text + used, room - used - 1, 0);
        if (count <= 0)
            closed = 1;
        else
            used += (size_t)count;
        text[used] = 0;
    }
    cut(answer, text, used);
    return closed;
}

int http_raw(const char *address, const void *bytes, size_t count) {
    int fd = http_connect(address);
    // A refusal may come before all is sent.
    for (size_t sent = 0; sent < count;) {
        ssize_t more = send(fd, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += (size_t)more;
    }
    return fd;
}

int http_begin(const char *address,
               const char *method,
               const char *target,
               const char *headers,
               const void *body,
               size_t body_bytes,
               size_t missing) {
    size_t room = 4096 + body_bytes;
    char *all = malloc(room);
    assert_non_null(all);
    int bytes = snprintf(all, room,
                         "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Length: %zu\r\n%s\r\n",
                         method, target, body_bytes, headers);
    assert_in_range(bytes, 1, 4095);
    if (body_bytes > 0) memcpy(all + bytes, body, body_bytes);
    int fd = http_raw(address, all, (size_t)bytes + body_bytes - missing);
    free(all);
    return fd;
}

http_answer http_end(int fd) {
    http_answer answer;
    if (!http_read_all(fd, ANSWER_SECONDS_MAX, &answer))
        fail_msg("no answer within %d s", ANSWER_SECONDS_MAX);
    close(fd);
    return answer;
}

http_answer http_ask(const char *address,
                     const char *method,
                     const char *target,
                     const char *headers,
                     const void *body,
                     size_t body_bytes) {
    return http_end(http_begin(address, method, target, headers, body, body_bytes, 0));
}
