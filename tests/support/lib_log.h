// A log of five hours for tests of libreef: requests, and two faults that ring.
#ifndef LIB_LOG_H
#define LIB_LOG_H

#include "test.h"

enum { LOG_LINES = 1800, LOG_LINE_BYTES = 128, LOG_SECONDS = 10 };

typedef struct lib_log {
    char *bytes; // (count)
    size_t count;
} lib_log;

/** `headed`: the lines have their time. `seconds` of a line's message. */
static inline void lib_log_add(lib_log *log, bool headed, uint32_t second, const char *message) {
    char *to = log->bytes + log->count;
    if (headed)
        to +=
            sprintf(to, "2026-11-01T%02u:%02u:%02u ", second / 3600, second / 60 % 60, second % 60);
    to += sprintf(to, "web app[%u]: %s\n", 100 + second % 7, message);
    log->count = (size_t)(to - log->bytes);
}

/** One line more for each number: the last is the whole log. `told` hears the second of each. */
static inline lib_log lib_log_make(bool headed,
                                   void (*told)(void *, const char *, size_t, uint32_t),
                                   void *context) {
    lib_log log = {room((size_t)2 * LOG_LINES * LOG_LINE_BYTES), 0};
    for (uint32_t i = 0; i < LOG_LINES; i++) {
        char messages[3][64] = {"", "", ""};
        if (i == 700) strcpy(messages[0], "disk sda1 is full, error 28");
        if (i == 1500) strcpy(messages[0], "replica is in doubt");
        if (i % 4 == 3) strcpy(messages[1], "replica is in sync");
        snprintf(messages[2], sizeof(messages[2]), "request %u of user%u took %u ms", i, i * 7 % 13,
                 i * 31 % 97);
        for (uint32_t k = 0; k < 3; k++) {
            const uint32_t second = LOG_SECONDS * i + (k + 1) % 3;
            const size_t from = log.count;
            if (messages[k][0] == '\0') continue;
            lib_log_add(&log, headed, second, messages[k]);
            if (told != NULL) told(context, log.bytes + from, log.count - from, second);
        }
    }
    return log;
}

#endif
