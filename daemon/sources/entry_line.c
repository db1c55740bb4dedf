// See entry_line.h.
#include "entry_line.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define INDENT "    "

static size_t add_word(char *out, const char *word) {
    size_t count = 0;
    // It stays one line.
    for (; word[count] != '\0' && count < REEF_ENTRY_NAME_BYTES_MAX - 1; count++) {
        out[count] = word[count];
        if ((unsigned char)word[count] < ' ') out[count] = ' ';
    }
    return count;
}

size_t reef_entry_head(char out[REEF_ENTRY_HEAD_BYTES_MAX],
                       int64_t time_us,
                       const char *name,
                       const char *pid) {
    size_t count = 0;
    if (time_us >= 0) {
        const time_t seconds = (time_t)(time_us / 1000000);
        struct tm at = {0};
        (void)gmtime_r(&seconds, &at);
        count = strftime(out, REEF_ENTRY_HEAD_BYTES_MAX, "%Y-%m-%dT%H:%M:%S", &at);
        count += (size_t)snprintf(out + count, REEF_ENTRY_HEAD_BYTES_MAX - count, ".%03uZ ",
                                  (unsigned)(time_us / 1000 % 1000));
    }
    if (name[0] == '\0') return count;
    count += add_word(out + count, name);
    if (pid[0] != '\0') {
        out[count++] = '[';
        count += add_word(out + count, pid);
        out[count++] = ']';
    }
    out[count++] = ':';
    out[count++] = ' ';
    return count;
}

size_t reef_entry_message(uint8_t *out, const char *message, size_t bytes) {
    size_t count = 0;
    while (bytes > 0 && (message[bytes - 1] == '\n' || message[bytes - 1] == '\0')) bytes--;
    if (out != NULL && bytes > 0 && memchr(message, '\n', bytes) == NULL &&
        memchr(message, '\0', bytes) == NULL) {
        memcpy(out, message, bytes); // as nearly all are
        count = bytes;
        bytes = 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (out != NULL) out[count] = message[i] == '\0' ? ' ' : (uint8_t)message[i];
        count++;
        if (message[i] != '\n') continue;
        if (out != NULL) memcpy(out + count, INDENT, strlen(INDENT));
        count += strlen(INDENT);
    }
    if (out != NULL) out[count] = '\n';
    return count + 1;
}
