// Bytes of a connection to the control socket of reefd. Input: the bytes.
#include "daemon_world.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    daemon_world_start();
    return 0;
}

static bool is_blank(const uint8_t *line, const uint8_t *end) {
    while (line < end && strchr(" \t\r", *line) != NULL && *line) line++;
    return line == end;
}

static size_t count_requests(const uint8_t *at, const uint8_t *end) {
    size_t count = 0;
    for (const uint8_t *stop; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        count += !is_blank(at, stop);
    }
    return count;
}

// Each line is answered by a line, which is a JSON object that says whether it worked.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t bytes, answers = 0;
    const char *answer = daemon_world_ask(0, data, size, &bytes), *end = answer + bytes;
    for (const char *line = answer; line < end; answers++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        assert(stop != NULL);
        json_t *object = json_loadb(line, (size_t)(stop - line), JSON_REJECT_DUPLICATES, NULL);
        assert(json_is_boolean(json_object_get(object, "ok")));
        json_decref(object);
        line = stop + 1;
    }
    assert(answers == count_requests(data, data + size));
    return 0;
}
