// What stands at the head of a line: its time and, in syslog, the host.
#ifndef REEF_LINE_HEAD_H
#define REEF_LINE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Parts of a line, (bytes) from `at` on. No bytes: it has none. */
typedef struct reef_line_head {
    size_t time_at, time_bytes;
    size_t host_at, host_bytes;
    int64_t time_ms;
} reef_line_head;

void reef_line_head_read(const uint8_t *line, size_t count, int64_t near_ms, reef_line_head *out);

/** A month or a day of the week, in English, as logs write them. */
bool reef_is_calendar_word(const uint8_t *word, size_t count);

#endif
