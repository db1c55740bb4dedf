// What happened to the pool, as JSON lines that the next commit writes to the timeline.
#include "events.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reef_state_drop_events(reef_trainer *trainer, size_t count) {
    while (trainer->unstored.event_count > count)
        free(trainer->unstored.events[--trainer->unstored.event_count]);
}

reef_status reef_state_event(
    reef_trainer *trainer, reef_error *err, const char *event, const char *fields, ...) {
    char members[512], text[1024];
    va_list arguments;
    // `fields` are members without braces, already JSON. All callers are in this module, and names
    // that come from outside were checked before (no quotes or control characters).
    va_start(arguments, fields);
    vsnprintf(members, sizeof(members), fields, arguments);
    va_end(arguments);
    snprintf(text, sizeof(text),
             "{\"event\": \"%s\", \"unix_ms\": %" PRIu64 ", \"step\": %" PRIu64
             ", \"stream_bytes\": %" PRIu64 ", \"generation\": %u%s%s}",
             event, reef_unix_ms(), trainer->step, trainer->stream_bytes,
             reef_open_generation(trainer)->info.generation, members[0] == '\0' ? "" : ", ",
             members);
    // Growth by doubling: events are rare, but a long time without a commit must not cost quadratic
    // copies.
    if (trainer->unstored.event_count == trainer->unstored.event_capacity) {
        size_t capacity = trainer->unstored.event_capacity * 2 + 8;
        char **events = realloc(trainer->unstored.events, capacity * sizeof(*events));
        if (events == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu events", capacity);
        trainer->unstored.events = events;
        trainer->unstored.event_capacity = capacity;
    }
    char *copy = malloc(strlen(text) + 1);
    if (copy == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an event");
    trainer->unstored.events[trainer->unstored.event_count++] = strcpy(copy, text);
    // The callback sees the event before the next commit makes it durable.
    if (trainer->options.on_event != NULL)
        trainer->options.on_event(trainer->options.context, copy);
    return REEF_OK;
}
