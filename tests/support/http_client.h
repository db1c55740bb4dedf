// A plain HTTP client for tests: one request, one connection. It can also send what no client
// should.
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include <stddef.h>

typedef struct http_answer {
    int code;   // 0: the connection was closed without an answer
    char *head; // status line and headers; both stay
    char *body; // ended by a zero
    size_t body_bytes;
} http_answer;

/** Connect to "127.0.0.1:PORT"; fails the test when it cannot. */
int http_connect(const char *address);
/** Read until the server closes, at most `seconds`; returns whether it closed in time. */
int http_read_all(int fd, unsigned seconds, http_answer *answer);
/** Connect and send just this. */
int http_raw(const char *address, const void *bytes, size_t count);
/** Send a request but for the last `missing` bytes of its body, whose answer is taken later. */
int http_begin(const char *address,
               const char *method,
               const char *target,
               const char *headers,
               const void *body,
               size_t body_bytes,
               size_t missing);
/** Its answer, and the end of the connection. Fails the test when none comes in two minutes. */
http_answer http_end(int fd);
/** One request with Connection: close. headers: lines ended by \r\n, or "". */
http_answer http_ask(const char *address,
                     const char *method,
                     const char *target,
                     const char *headers,
                     const void *body,
                     size_t body_bytes);

#endif
