// An incident as JSON, for programs, the timeline and people's tools alike. docs/PROTOCOL.md has
// the members.
#include "reef_json_build.h"
#include "reef_watch_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_TOLD 16 // of an incident

// Lines and names are any bytes, and JSON has UTF-8: where they are none, other bytes become \xNN.
// On the heap; NULL: they stay as they are, or there is no memory.
static char *escaped(const char *bytes, size_t count, size_t *out_count) {
    static const char DIGITS[] = "0123456789abcdef";
    char *text = malloc(4 * count + 1), *to = text;
    for (size_t i = 0; text != NULL && i < count; i++) {
        const uint8_t byte = (uint8_t)bytes[i];
        if (byte < 0x80) {
            *to++ = bytes[i];
            continue;
        }
        *to++ = '\\';
        *to++ = 'x';
        *to++ = DIGITS[byte >> 4];
        *to++ = DIGITS[byte & 15];
    }
    *out_count = text == NULL ? 0 : (size_t)(to - text);
    return text;
}

static json_t *bytes_json(const char *bytes, size_t count) {
    json_t *json = json_stringn(bytes, count);
    if (json != NULL) return json;
    char *text = escaped(bytes, count, &count);
    json = text == NULL ? NULL : json_stringn(text, count);
    free(text);
    return json;
}

static json_t *text_json(const char *text) {
    return bytes_json(text, strlen(text));
}

// In the text that the line has in JSON.
static json_t *new_json(const reef_event *e) {
    size_t at = e->new_at, bytes = e->new_bytes;
    json_t *plain = json_stringn(e->line, e->line_bytes);
    if (plain == NULL) {
        free(escaped(e->line, e->new_at, &at));
        free(escaped(e->line + e->new_at, e->new_bytes, &bytes));
    }
    json_decref(plain);
    return json_pack("[I, I]", (json_int_t)at, (json_int_t)bytes);
}

static double seconds(int64_t ms) {
    return (double)ms / 1000.0;
}

static json_t *event_json(const reef_event *e, reef_line_place_of *place_of, const void *context) {
    char type[17];
    reef_line_place place = {.offset = e->offset, .file = e->file};
    place_of(context, e->source, &place);
    snprintf(type, sizeof(type), "%016" PRIx64, e->type);
    json_t *json = json_pack("{s:s, s:s, s:s, s:o, s:I, s:f, s:f, s:I, s:f, s:o}", "sort",
                             reef_news_name(e->news), "type", type, "severity",
                             reef_severity_name(e->severity), "source", text_json(place.source),
                             "offset", (json_int_t)place.offset, "first_time", seconds(e->first_ms),
                             "last_time", seconds(e->last_ms), "count", (json_int_t)e->count,
                             "bits", e->bits, "first_line", bytes_json(e->line, e->line_bytes));
    if (place.file != NULL) reef_json_set(&json, "file", text_json(place.file));
    if (e->new_bytes > 0) reef_json_set(&json, "new", new_json(e));
    if (e->nearest != NULL)
        reef_json_set(&json, "nearest", bytes_json(e->nearest, e->nearest_bytes));
    return json;
}

json_t *reef_incident_json(const reef_incident *i,
                           reef_line_place_of *place_of,
                           const void *context) {
    json_t *events = json_array();
    size_t told = 0;
    if (i->event_count > 0) {
        reef_json_append(&events, event_json(&i->events[i->rarest], place_of, context));
        told = 1;
    }
    for (size_t e = 0; e < i->event_count && told < EVENTS_TOLD; e++) {
        if (e == i->rarest) continue;
        reef_json_append(&events, event_json(&i->events[e], place_of, context));
        told++;
    }
    json_t *title = i->event_count > 0
                        ? bytes_json(i->events[i->rarest].line, i->events[i->rarest].line_bytes)
                        : json_string("");
    return json_pack("{s:I, s:s, s:b, s:f, s:f, s:f, s:o, s:I, s:o}", "incident",
                     (json_int_t)i->number, "state", i->is_open ? "open" : "ended", "rings",
                     (int)i->rings, "first_time", seconds(i->first_ms), "last_time",
                     seconds(i->last_ms), "bits", i->bits, "title", title, "more_events",
                     (json_int_t)(i->event_count - told + i->more), "events", events);
}

json_t *reef_watch_options_json(const reef_watch_options *options) {
    return json_pack("{s:f, s:I, s:I, s:I}", "budget", options->budget, "gap_s",
                     (json_int_t)options->gap_s, "quiet_s", (json_int_t)options->quiet_s,
                     "forget_days", (json_int_t)options->forget_days);
}
