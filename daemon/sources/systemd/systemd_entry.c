// An entry of the journal as a line; see systemd_internal.h.
//
//   2026-01-31T23:59:59.123Z IDENTIFIER[PID]: MESSAGE
//       what follows a newline in MESSAGE
//
// The time is that which the program gave, or when the entry was written. Newlines and NULs that
// end a MESSAGE are left out, and other NULs are spaces, since nothing else in a log has any. All
// other bytes stay as they are. The line depends on the entry alone.
#include "systemd_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INDENT "    "
#define HEAD_BYTES_MAX 512
#define NAME_BYTES_MAX 200
#define YEAR_10000_US UINT64_C(253402300800000000)

// The value of a field, good until the next call, or false.
static bool find(sd_journal *journal, const char *field, const char **value, size_t *bytes) {
    const void *data = NULL;
    size_t count = 0;
    const size_t prefix = strlen(field) + 1;
    if (sd_journal_get_data(journal, field, &data, &count) < 0 || count < prefix) return false;
    *value = (const char *)data + prefix;
    *bytes = count - prefix;
    return true;
}

static bool copy_text(sd_journal *journal, const char *field, char *out, size_t room) {
    const char *value = NULL;
    size_t bytes = 0;
    if (!find(journal, field, &value, &bytes) || bytes == 0) return false;
    if (bytes >= room) bytes = room - 1;
    memcpy(out, value, bytes);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)out[i] < ' ') out[i] = ' '; // it stays one line
    out[bytes] = '\0';
    return true;
}

static uint64_t time_of(sd_journal *journal, uint64_t realtime_us) {
    char text[24], *end = text;
    if (copy_text(journal, "_SOURCE_REALTIME_TIMESTAMP", text, sizeof(text))) {
        const uint64_t given = strtoull(text, &end, 10);
        if (end > text && !*end && given > 0 && given < YEAR_10000_US) return given;
    }
    return realtime_us < YEAR_10000_US ? realtime_us : YEAR_10000_US - 1;
}

static size_t write_head(char out[HEAD_BYTES_MAX], sd_journal *journal, uint64_t realtime_us) {
    char name[NAME_BYTES_MAX], pid[NAME_BYTES_MAX];
    const uint64_t time_us = time_of(journal, realtime_us);
    const time_t seconds = (time_t)(time_us / 1000000);
    struct tm at = {0};
    (void)gmtime_r(&seconds, &at);
    size_t count = strftime(out, HEAD_BYTES_MAX, "%Y-%m-%dT%H:%M:%S", &at);
    if (!copy_text(journal, "SYSLOG_IDENTIFIER", name, sizeof(name)) &&
        !copy_text(journal, "_COMM", name, sizeof(name)))
        snprintf(name, sizeof(name), "unknown");
    const bool has_pid = copy_text(journal, "_PID", pid, sizeof(pid)) ||
                         copy_text(journal, "SYSLOG_PID", pid, sizeof(pid));
    count += (size_t)snprintf(out + count, HEAD_BYTES_MAX - count,
                              ".%03uZ %s%s%s%s: ", (unsigned)(time_us / 1000 % 1000), name,
                              has_pid ? "[" : "", has_pid ? pid : "", has_pid ? "]" : "");
    return count;
}

static bool reserve(reef_systemd_line *line, size_t bytes) {
    if (bytes <= line->capacity) return true;
    uint8_t *grown = realloc(line->bytes, bytes);
    if (grown == NULL) return false;
    line->bytes = grown;
    line->capacity = bytes;
    return true;
}

static void add(reef_systemd_line *line, const char *bytes, size_t count) {
    memcpy(line->bytes + line->count, bytes, count);
    line->count += count;
}

bool reef_systemd_entry_write(reef_systemd_line *out, sd_journal *journal, uint64_t realtime_us) {
    char head[HEAD_BYTES_MAX];
    const char *message = NULL;
    size_t bytes = 0, newlines = 0;
    out->count = 0;
    if (!find(journal, "MESSAGE", &message, &bytes)) return true;
    const size_t head_bytes = write_head(head, journal, realtime_us);
    if (!find(journal, "MESSAGE", &message, &bytes)) return true; // the other fields took its place
    if (bytes > REEF_SYSTEMD_MESSAGE_BYTES_MAX) bytes = REEF_SYSTEMD_MESSAGE_BYTES_MAX;
    while (bytes > 0 && (message[bytes - 1] == '\n' || message[bytes - 1] == '\0')) bytes--;
    for (size_t i = 0; i < bytes; i++) newlines += message[i] == '\n';
    if (!reserve(out, head_bytes + bytes + newlines * strlen(INDENT) + 1)) return false;
    add(out, head, head_bytes);
    for (size_t i = 0; i < bytes; i++) {
        add(out, message[i] == '\0' ? " " : message + i, 1);
        if (message[i] == '\n') add(out, INDENT, strlen(INDENT));
    }
    add(out, "\n", 1);
    return true;
}
