// An incident as JSON, for programs, the timeline and people's tools alike. docs/PROTOCOL.md has
// the members.
#include "reef_json_build.h"
#include "reef_watch_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EVENTS_TOLD 16 // of an incident

// Lines are any bytes, and JSON has UTF-8: in a line that is none, other bytes become \xNN.
static json_t *line_json(const char *line) {
    static const char DIGITS[] = "0123456789abcdef";
    char text[4 * REEF_WATCH_SHOWN_BYTES_MAX], *to = text;
    json_t *json = json_string(line);
    if (json != NULL) return json;
    for (size_t i = 0; line[i] != '\0' && i < REEF_WATCH_SHOWN_BYTES_MAX; i++) {
        const uint8_t byte = (uint8_t)line[i];
        if (byte < 0x80) {
            *to++ = line[i];
            continue;
        }
        *to++ = '\\';
        *to++ = 'x';
        *to++ = DIGITS[byte >> 4];
        *to++ = DIGITS[byte & 15];
    }
    return json_stringn(text, (size_t)(to - text));
}

// How many bytes the first ones of a line take in it as it is told.
static size_t told_bytes(const char *line, size_t count, const json_t *told) {
    size_t bytes = count;
    if (json_string_length(told) == strlen(line)) return count; // as it is
    for (size_t i = 0; i < count; i++) bytes += (uint8_t)line[i] < 0x80 ? 0 : 3;
    return bytes;
}

static double seconds(int64_t ms) {
    return (double)ms / 1000.0;
}

static json_t *event_json(const reef_event *e, reef_source_name *name_of, const void *context) {
    char type[17];
    json_t *line = line_json(e->line);
    const size_t new_at = told_bytes(e->line, e->new_at, line),
                 new_end = told_bytes(e->line, e->new_at + e->new_bytes, line);
    snprintf(type, sizeof(type), "%016" PRIx64, e->type);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:I, s:f, s:o}", "sort",
                             reef_news_name(e->news), "type", type, "severity",
                             reef_severity_name(e->severity), "source", name_of(context, e->source),
                             "offset", (json_int_t)e->offset, "first_time", seconds(e->first_ms),
                             "last_time", seconds(e->last_ms), "count", (json_int_t)e->count,
                             "bits", e->bits, "first_line", line);
    if (e->new_bytes > 0)
        reef_json_set(&json, "new",
                      json_pack("[I, I]", (json_int_t)new_at, (json_int_t)(new_end - new_at)));
    if (e->nearest != NULL) reef_json_set(&json, "nearest", line_json(e->nearest));
    return json;
}

json_t *reef_incident_json(const reef_incident *i, reef_source_name *name_of, const void *context) {
    json_t *events = json_array();
    size_t told = 0;
    if (i->event_count > 0) {
        reef_json_append(&events, event_json(&i->events[i->rarest], name_of, context));
        told = 1;
    }
    for (size_t e = 0; e < i->event_count && told < EVENTS_TOLD; e++) {
        if (e == i->rarest) continue;
        reef_json_append(&events, event_json(&i->events[e], name_of, context));
        told++;
    }
    const char *title = i->event_count > 0 ? i->events[i->rarest].line : "";
    return json_pack("{s:I, s:s, s:b, s:f, s:f, s:f, s:o, s:I, s:o}", "incident",
                     (json_int_t)i->number, "state", i->is_open ? "open" : "ended", "rings",
                     (int)i->rings, "first_time", seconds(i->first_ms), "last_time",
                     seconds(i->last_ms), "bits", i->bits, "title", line_json(title), "more_events",
                     (json_int_t)(i->event_count - told + i->more), "events", events);
}
