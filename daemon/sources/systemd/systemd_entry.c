// An entry of the journal as a line of entry_line.h; see systemd_internal.h.
//
// The time is that which the program gave, or when the entry was written. The line depends on the
// entry alone.
#include "systemd_internal.h"

#include "entry_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (out[i] == '\0') out[i] = ' ';
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

static size_t write_head(char out[REEF_ENTRY_HEAD_BYTES_MAX],
                         sd_journal *journal,
                         uint64_t realtime_us) {
    char name[REEF_ENTRY_NAME_BYTES_MAX], pid[REEF_ENTRY_NAME_BYTES_MAX];
    const uint64_t time_us = time_of(journal, realtime_us);
    if (!copy_text(journal, "SYSLOG_IDENTIFIER", name, sizeof(name)) &&
        !copy_text(journal, "_COMM", name, sizeof(name)))
        snprintf(name, sizeof(name), "unknown");
    if (!copy_text(journal, "_PID", pid, sizeof(pid)) &&
        !copy_text(journal, "SYSLOG_PID", pid, sizeof(pid)))
        pid[0] = '\0';
    return reef_entry_head(out, (int64_t)time_us, name, pid);
}

static bool reserve(reef_systemd_line *line, size_t bytes) {
    if (bytes <= line->capacity) return true;
    uint8_t *grown = realloc(line->bytes, bytes);
    if (grown == NULL) return false;
    line->bytes = grown;
    line->capacity = bytes;
    return true;
}

bool reef_systemd_entry_write(reef_systemd_line *out, sd_journal *journal, uint64_t realtime_us) {
    char head[REEF_ENTRY_HEAD_BYTES_MAX];
    const char *message = NULL;
    size_t bytes = 0;
    out->count = 0;
    if (!find(journal, "MESSAGE", &message, &bytes)) return true;
    const size_t head_bytes = write_head(head, journal, realtime_us);
    if (!find(journal, "MESSAGE", &message, &bytes)) return true; // the other fields took its place
    if (bytes > REEF_SYSTEMD_MESSAGE_BYTES_MAX) bytes = REEF_SYSTEMD_MESSAGE_BYTES_MAX;
    if (!reserve(out, head_bytes + reef_entry_message(NULL, message, bytes))) return false;
    memcpy(out->bytes, head, head_bytes);
    out->count = head_bytes + reef_entry_message(out->bytes + head_bytes, message, bytes);
    return true;
}
