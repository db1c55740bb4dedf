// Events of followed files: problems to report, queued on the worker thread and
// reported by tail_source.c on the loop.
#include "tail.h"

#include "tail_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
