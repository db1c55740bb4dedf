// Bytes of a source, cut into lines: how they are cut into calls does not matter.
#include "watch_internal.h"

#include <string.h>

static reef_status add_sources(reef_watch *w, uint32_t number, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && w->source_count <= number) {
        uint32_t added;
        status = reef_watch_add_source(w, &added, err);
    }
    return status;
}

static void keep_bytes(reef_watch_source *s, const uint8_t *bytes, size_t count) {
    size_t left = REEF_WATCH_LINE_BYTES_MAX - s->line_bytes;
    if (count > left) count = left;
    memcpy(s->line + s->line_bytes, bytes, count);
    s->line_bytes += (uint32_t)count;
}

static reef_status end_line(reef_watch *w, uint32_t number, reef_error *err) {
    reef_watch_source *s = &w->sources[number];
    size_t count = s->line_bytes;
    s->line_bytes = 0;
    if (count > 0 && s->line[count - 1] == '\r') count--;
    if (count == 0) return REEF_OK;
    int64_t time_ms = w->now_ms;
    (void)reef_line_time(s->line, count, time_ms != 0 ? time_ms : w->options.near_ms, &time_ms);
    return reef_watch_line(w, number, s->line, count, s->line_at, time_ms, err);
}

reef_status reef_watch_bytes(reef_watch *w,
                             uint32_t source,
                             const char *file,
                             uint64_t offset,
                             const uint8_t *bytes,
                             size_t count,
                             reef_error *err) {
    reef_status status = add_sources(w, source, err);
    for (size_t at = 0; status == REEF_OK && at < count;) {
        reef_watch_source *s = &w->sources[source];
        const uint8_t *end = memchr(bytes + at, '\n', count - at);
        const size_t some = end != NULL ? (size_t)(end - bytes) - at : count - at;
        if (s->line_bytes == 0) {
            s->line_at = offset + at;
            if (!reef_file_copy(&s->file, file))
                return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the name of a file");
        }
        keep_bytes(s, bytes + at, some);
        at += some + (end != NULL);
        if (end != NULL) status = end_line(w, source, err);
    }
    return status;
}
