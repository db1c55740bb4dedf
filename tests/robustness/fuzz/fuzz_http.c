// Bytes of an HTTP connection to the real routes, handlers and jobs of reefd, over the loopback and
// over the control socket, which may do everything. Input: the bytes.
#include "daemon_world.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    daemon_world_start();
    return 0;
}

// Of the first answer: what calls itself JSON is one document.
static void check_body(const char *answer, size_t bytes) {
    const char *end = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "\r\nContent-Length: ");
    const char *json = strstr(answer, "\r\nContent-Type: application/json");
    if (end == NULL || length == NULL || json == NULL || length > end || json > end) return;
    size_t count = strtoull(length + 18, NULL, 10), left = bytes - (size_t)(end + 4 - answer);
    if (!count || left < count) return; // cut off, by its client's fault
    json_t *document = json_loadb(end + 4, count, JSON_REJECT_DUPLICATES, NULL);
    assert(document != NULL);
    json_decref(document);
}

// A stream of events ends when its listener does, and this one waits for the end.
static bool listens(const uint8_t *data, size_t size) {
    static const char PATH[] = "/v1/events";
    for (size_t i = 0; i + sizeof(PATH) - 1 <= size; i++)
        if (memcmp(data + i, PATH, sizeof(PATH) - 1) == 0) return true;
    return false;
}

static void check(bool by_port, const uint8_t *data, size_t size) {
    size_t bytes;
    const char *answer = daemon_world_ask(by_port, data, size, &bytes);
    if (!bytes) return;
    int code = 0;
    int read = sscanf(answer, "HTTP/1.%*1[01] %3d", &code);
    assert(read == 1 && code >= 200 && code < 600);
    assert(code != 500 ||
           strstr(answer, "out of memory")); // nothing that a client sends is our failure
    size_t begin = 0; // of the first request: empty lines before it are ignored
    while (begin < size && (data[begin] == '\r' || data[begin] == '\n')) begin++;
    if (size - begin > 4 && memcmp(data + begin, "HEAD", 4) != 0) check_body(answer, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (listens(data, size)) return 0;
    check(true, data, size);
    check(false, data, size);
    return 0;
}
