// Bytes of a source, accepted into the stream, and how far each source was read.
#include "reef_json_build.h"
#include "stream.h"
#include "watching.h"

#include <stdlib.h>
#include <string.h>

static reef_source *find_source(const reef_trainer *trainer, const char *name) {
    for (size_t i = 0; i < trainer->stream.source_count; i++)
        if (strcmp(trainer->stream.sources[i].name, name) == 0) return &trainer->stream.sources[i];
    return NULL;
}

// Names are kept as JSON, which has nothing but UTF-8.
static reef_status check_text(const char *name, reef_error *err) {
    json_error_t fault;
    json_t *text = json_pack_ex(&fault, 0, "s", name);
    json_decref(text);
    if (text != NULL) return REEF_OK;
    if (reef_json_no_memory(&fault))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for source %s", name);
    return reef_fail(err, REEF_ERR_INVALID, "a source's name of %zu bytes is no UTF-8",
                     strlen(name));
}

static reef_status add_source(reef_trainer *trainer,
                              const char *name,
                              reef_source **out,
                              reef_error *err) {
    // The name is stored with a fixed size in the struct; the limits are the same on disk.
    if (name[0] == '\0' || strlen(name) >= sizeof(trainer->stream.sources->name))
        return reef_fail(err, REEF_ERR_INVALID, "a source's name has %zu bytes; it needs 1 to %zu",
                         strlen(name), sizeof(trainer->stream.sources->name) - 1);
    // A bound, because every commit writes the whole list.
    if (trainer->stream.source_count >= REEF_SOURCE_COUNT_MAX)
        return reef_fail(err, REEF_ERR_FULL,
                         "the pool has read from %d sources, the most there can be",
                         REEF_SOURCE_COUNT_MAX);
    // Names are people's text: they are printed, and written as JSON.
    reef_status status = check_text(name, err);
    if (status != REEF_OK) return status;
    reef_source *sources =
        realloc(trainer->stream.sources, (trainer->stream.source_count + 1) * sizeof(*sources));
    if (sources == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for source %s", name);
    trainer->stream.sources = sources;
    *out = &sources[trainer->stream.source_count++];
    **out = (reef_source){0};
    memcpy((*out)->name, name, strlen(name));
    return REEF_OK;
}

uint64_t reef_trainer_cursor(const reef_trainer *trainer, const char *source) {
    const reef_source *found = find_source(trainer, source);
    return found == NULL ? 0 : found->cursor;
}

size_t reef_trainer_source_index(const reef_trainer *trainer, const char *source) {
    const reef_source *found = find_source(trainer, source);
    return found == NULL ? SIZE_MAX : (size_t)(found - trainer->stream.sources);
}

reef_status reef_trainer_sources_fit(const reef_trainer *trainer,
                                     const char *const *sources,
                                     size_t count,
                                     reef_error *err) {
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++) fresh += find_source(trainer, sources[i]) == NULL;
    if (fresh == 0 || fresh <= REEF_SOURCE_COUNT_MAX - trainer->stream.source_count) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%zu of the sources are new to the pool, which has read from %zu and can from "
                     "%d in all: give a folder as one source (dir:PATH), or make a new pool",
                     fresh, trainer->stream.source_count, REEF_SOURCE_COUNT_MAX);
}

// Lines that end here. What is accepted and not judged would never be.
static reef_status judge(reef_trainer *trainer,
                         const reef_source *source,
                         const char *file,
                         uint64_t offset,
                         const uint8_t *bytes,
                         size_t count,
                         reef_error *err) {
    const size_t number = (size_t)(source - trainer->stream.sources);
    reef_status status = reef_watching_read(trainer, number, file, offset, bytes, count, err);
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    return status;
}

reef_status reef_trainer_feed(reef_trainer *trainer,
                              const char *source,
                              const uint8_t *bytes,
                              size_t count,
                              size_t *taken,
                              size_t *steps,
                              reef_error *err) {
    return reef_trainer_feed_file(trainer, source, NULL, 0, bytes, count, taken, steps, err);
}

reef_status reef_trainer_feed_file(reef_trainer *trainer,
                                   const char *source,
                                   const char *file,
                                   uint64_t offset,
                                   const uint8_t *bytes,
                                   size_t count,
                                   size_t *taken,
                                   size_t *steps,
                                   reef_error *err) {
    size_t accepted = 0, done = 0;
    reef_status status = reef_kind_allows(trainer->ops->no_stream, err);
    if (status == REEF_OK) status = reef_trainer_check_whole(trainer, err);
    if (status == REEF_OK) status = reef_trainer_pin(trainer, err);
    reef_source *from = find_source(trainer, source);
    // A source exists from its first call on, even without bytes, so that its cursor can be asked
    // for.
    if (status == REEF_OK && from == NULL) status = add_source(trainer, source, &from, err);
    // A change of source ends a marker line: half a marker in one file and half in the next is no
    // marker.
    if (status == REEF_OK && count > 0)
        reef_marker_line_source(&trainer->stream.marker, trainer->network.config.boundary_mark,
                                (size_t)(from - trainer->stream.sources));
    // Losses are counted by source, so the span must be known before a byte is accepted.
    if (status == REEF_OK && count > 0)
        status = reef_prequential_source(trainer, (size_t)(from - trainer->stream.sources), err);
    // Each iteration accepts bytes or trains what one decision lets it. Callers that ask for
    // `steps` get control back after that, to answer requests in between.
    while (status == REEF_OK) {
        size_t took, ran;
        status = reef_stream_push(trainer, bytes + accepted, count - accepted, &took, &ran, err);
        // Also what was accepted before it failed.
        if (took > 0) {
            reef_status judged =
                judge(trainer, from, file, file != NULL ? offset + accepted : from->cursor,
                      bytes + accepted, took, status == REEF_OK ? err : NULL);
            if (status == REEF_OK) status = judged;
        }
        accepted += took;
        from->cursor += took;
        done += ran;
        if (steps != NULL && ran > 0) break;
        if (accepted == count && ran == 0) break; // the rest waits for more bytes
    }
    if (taken != NULL) *taken = accepted;
    if (steps != NULL) *steps = done;
    return status;
}
