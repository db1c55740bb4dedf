// The table of followed files, oldest first, and the events that wait to be reported on the loop.
#include "tail.h"

#include "tail_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool reef_tail_insert(reef_tail *tail, size_t at, const reef_tail_file *entry) {
    if (tail->count == tail->capacity) {
        // Doubling; files come and go with every rotation.
        size_t capacity = tail->capacity ? 2 * tail->capacity : 8;
        reef_tail_file *larger = realloc(tail->files, capacity * sizeof(*larger));
        if (larger == NULL) return false;
        tail->files = larger;
        tail->capacity = capacity;
    }
    memmove(&tail->files[at + 1], &tail->files[at], (tail->count - at) * sizeof(*entry));
    tail->files[at] = *entry;
    tail->count++;
    return true;
}

void reef_tail_remove(reef_tail *tail, size_t at) {
    reef_tail_file_close(&tail->files[at]);
    tail->count--;
    memmove(&tail->files[at], &tail->files[at + 1], (tail->count - at) * sizeof(*tail->files));
}

void reef_tail_extend_prefix(reef_tail_file *entry, uint64_t size) {
    uint64_t bytes = size < REEF_PREFIX_BYTES_MAX ? size : REEF_PREFIX_BYTES_MAX;
    if (bytes > entry->prefix_bytes && entry->fd >= 0)
        (void)reef_tail_file_extend_prefix(entry, (uint32_t)bytes);
}

void reef_tail_limit_open(reef_tail_file *entry, size_t *open) {
    if (entry->fd < 0) return;
    if (*open < REEF_TAIL_OPEN_MAX || !entry->listed)
        ++*open;
    else
        reef_tail_file_close(entry);
}

// ctime also changes on a rename. A clock set back leaves ctime in the future; so also use our
// monotonic time.
bool reef_tail_settled(const reef_tail *tail,
                       uint64_t unchanged_since_ms,
                       const reef_file_id *file_id) {
    return tail->wall_ns - file_id->ctime_ns >= (int64_t)REEF_SETTLE_MS * 1000000 ||
           tail->now_ms - unchanged_since_ms >= REEF_SETTLE_MS;
}

bool reef_tail_is_read(const reef_tail_file *entry) {
    return entry->offset >= entry->size && !entry->add_newline;
}

uint64_t reef_tail_unread_of(const reef_tail_file *entry) {
    // A rescan that may not open the file sets `size` to `offset`; the plan keeps its range.
    uint64_t end = entry->size > entry->pass_end ? entry->size : entry->pass_end;
    return end > entry->offset ? end - entry->offset : 0;
}

void reef_tail_drop_read_pass(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        tail->files[i].pass_end = tail->files[i].offset;
        tail->files[i].add_newline = false;
    }
}

// ---- events -------------------------------------------------------------------------------------

void reef_tail_report(reef_tail *tail, const char *event, const char *format, ...) {
    // Further events are only counted, so that one scan cannot flood the log.
    if (tail->event_count == REEF_TAIL_EVENTS_MAX) {
        tail->events_dropped++;
        return;
    }
    size_t at = (tail->event_first + tail->event_count++) % REEF_TAIL_EVENTS_MAX;
    reef_tail_event *queued = &tail->events[at];
    va_list arguments;
    snprintf(queued->event, sizeof(queued->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(queued->text, sizeof(queued->text), format, arguments);
    va_end(arguments);
}

bool reef_tail_event_take(reef_tail *tail, reef_tail_event *out) {
    // The queue is empty now, so there is room to report how many were dropped.
    if (tail->event_count == 0 && tail->events_dropped > 0) {
        size_t dropped = tail->events_dropped;
        tail->events_dropped = 0;
        reef_tail_report(tail, "source_events", "%zu more events of '%.200s' are not shown",
                         dropped, tail->folder);
    }
    if (tail->event_count == 0) return false;
    *out = tail->events[tail->event_first];
    tail->event_first = (tail->event_first + 1) % REEF_TAIL_EVENTS_MAX;
    tail->event_count--;
    return true;
}

void reef_tail_report_denied(reef_tail *tail, const char *name, int code) {
    if (!tail->reported_denied)
        reef_tail_report(tail, "source_denied", "cannot read '%.120s/%.120s': %s; retrying",
                         tail->folder, name, strerror(code));
    tail->reported_denied = tail->denied_now = true;
}

void reef_tail_report_failed(reef_tail *tail, const reef_tail_file *entry, int code) {
    if (!code || code == EINTR) return; // there was less to read
    reef_tail_report_denied(tail, entry->file_id.name, code);
    tail->failed = true;
}
