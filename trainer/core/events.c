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

// Text on the heap: what printf would write; NULL: no memory.
static char *formatted(const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int count = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = count < 0 ? NULL : malloc((size_t)count + 1);
    if (text != NULL) vsnprintf(text, (size_t)count + 1, format, arguments);
    return text;
}

static char *joined(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *joined(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = formatted(format, arguments);
    va_end(arguments);
    return text;
}

reef_status reef_state_event(
    reef_trainer *trainer, reef_error *err, const char *event, const char *fields, ...) {
    // `fields` are members without braces, already JSON. Names that come from outside were checked
    // before (no quotes or control characters).
    char *text = NULL;
    va_list arguments;
    va_start(arguments, fields);
    char *members = formatted(fields, arguments);
    va_end(arguments);
    if (members != NULL)
        text = joined("{\"event\": \"%s\", \"unix_ms\": %" PRIu64 ", \"step\": %" PRIu64
                      ", \"stream_bytes\": %" PRIu64 ", \"generation\": %u%s%s}",
                      event, reef_unix_ms(), trainer->step, trainer->stream_bytes,
                      reef_open_generation(trainer)->info.generation,
                      members[0] == '\0' ? "" : ", ", members);
    free(members);
    if (text == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an event");
    // Growth by doubling: events are rare, but a long time without a commit must not cost quadratic
    // copies.
    if (trainer->unstored.event_count == trainer->unstored.event_capacity) {
        size_t capacity = trainer->unstored.event_capacity * 2 + 8;
        char **events = realloc(trainer->unstored.events, capacity * sizeof(*events));
        if (events == NULL) {
            free(text);
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu events", capacity);
        }
        trainer->unstored.events = events;
        trainer->unstored.event_capacity = capacity;
    }
    trainer->unstored.events[trainer->unstored.event_count++] = text;
    // The callback sees the event before the next commit makes it durable.
    if (trainer->options.on_event != NULL)
        trainer->options.on_event(trainer->options.context, text);
    return REEF_OK;
}
