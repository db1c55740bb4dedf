// What a commit holds besides generations: where the stream stands, and the history for people.
//
// "state" is a JSON record of the open generation and "carry" the bytes accepted but not trained;
// both are part of the root hash, and so is "watch", what is known of lines (watching.h). Events
// ("timeline") are not, nor are points of the loss
// (loss_history.c).
//
// {"step", "generation_step", "stream_bytes", "skipped_bytes",
//  "full": true                    there was no room for another generation
//  "memory": [bytes, next, chain]  of the open generation's context memory, once it has learned
//  "kinds": [[kind, bytes, next, chain]] of those that came back, and "visited_bytes" in all
//  "kind_names": [[kind, name]] of those that have one
//  "current_kind", "levels": [[kind, pieces, mean, ...]]          where contexts decide, see
//  recognition.h
//  "line": [source + 1, matched, other, line_bytes]                        with boundary_mark only,
//  see marker_line.c
//  "sources": [{"name", "cursor"}]}
#include "as_of.h"
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "loss_history.h"
#include "recognition.h"
#include "reef_json_build.h"
#include "watching.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- writing ------------------------------------------------------------------------------------

static json_t *sources_json(const reef_trainer *trainer) {
    json_t *list = json_array();
    for (size_t i = 0; i < trainer->stream.source_count; i++)
        reef_json_append(&list, json_pack("{s:s, s:I}", "name", trainer->stream.sources[i].name,
                                          "cursor", (json_int_t)trainer->stream.sources[i].cursor));
    return list;
}

// Members of features that the pool uses.
static void set_policy(json_t **state, const reef_trainer *trainer) {
    const reef_marker_line *marker = &trainer->stream.marker;
    if (trainer->full) reef_json_set(state, "full", json_true());
    const reef_generation_memory *memory = &reef_open_generation(trainer)->memory;
    if (memory->memory != NULL) {
        // Its tables are written when commits find time for it; what they were made from is hashed.
        char chain[2 * REEF_HASH_BYTES + 1];
        reef_hash_format(memory->chain, chain);
        reef_json_set(state, "memory",
                      json_pack("[I, I, s]", (json_int_t)reef_memory_learned_bytes(memory->memory),
                                (json_int_t)memory->next, chain));
    }
    reef_kinds_set_state(trainer, state);
    reef_kind_names_set_state(&trainer->kinds.names, state);
    reef_recognition_set_state(trainer, state);
    if (trainer->network.config.boundary_mark[0] != '\0')
        reef_json_set(state, "line",
                      json_pack("[I, I, b, I]", (json_int_t)marker->source,
                                (json_int_t)marker->matched, marker->other,
                                (json_int_t)marker->line_bytes));
}

static char *state_text(const reef_trainer *trainer) {
    // Counters are stored as 64-bit integers. JSON_REAL_PRECISION(17) below prints doubles so that
    // they come back bit for bit: levels continue as if there had been no restart.
    json_t *state =
        json_pack("{s:I, s:I, s:I, s:I, s:o}", "step", (json_int_t)trainer->step, "generation_step",
                  (json_int_t)trainer->generation_step, "stream_bytes",
                  (json_int_t)trainer->stream_bytes, "skipped_bytes",
                  (json_int_t)trainer->stream.not_learned_bytes, "sources", sources_json(trainer));
    set_policy(&state, trainer);
    char *text = state == NULL ? NULL : json_dumps(state, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(state);
    return text;
}

reef_status reef_state_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    char *text = state_text(trainer);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the trainer's state");
    reef_key key = reef_state_key(generation, "state");
    reef_status status = reef_record_put(txn, &key, REEF_JSON, text, strlen(text), err);
    free(text);
    if (status != REEF_OK) return status;
    key = reef_state_key(generation, "carry");
    status = reef_record_put(txn, &key, REEF_BYTES, trainer->stream.pending,
                             trainer->stream.pending_bytes, err);
    return status == REEF_OK ? reef_watching_put(trainer, txn, err) : status;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status load_sources(reef_trainer *trainer, const json_t *list, reef_error *err) {
    size_t i;
    json_t *item;
    // One more than needed: calloc(0) may return NULL, which would read as no memory.
    trainer->stream.sources = calloc(json_array_size(list) + 1, sizeof(*trainer->stream.sources));
    if (trainer->stream.sources == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the sources");
    json_array_foreach(list, i, item) {
        // The position in this list is the source's number in spans and marker lines, so the order
        // on disk is kept.
        reef_source *source = &trainer->stream.sources[trainer->stream.source_count++];
        const char *name = json_string_value(json_object_get(item, "name"));
        snprintf(source->name, sizeof(source->name), "%s", name == NULL ? "" : name);
        source->cursor = (uint64_t)json_integer_value(json_object_get(item, "cursor"));
    }
    return REEF_OK;
}

static void load_policy(reef_trainer *trainer, const json_t *state) {
    const json_t *line = json_object_get(state, "line");
    trainer->full = json_is_true(json_object_get(state, "full"));
    trainer->stream.marker = (reef_marker_line){
        .source = (size_t)json_integer_value(json_array_get(line, 0)),
        .matched = (size_t)json_integer_value(json_array_get(line, 1)),
        .other = json_is_true(json_array_get(line, 2)),
        .line_bytes = (size_t)json_integer_value(json_array_get(line, 3)),
    };
}

// The open generation's memory: its tail is learned, and what it has learned in all is what the
// commit says.
static reef_status load_memory(reef_trainer *trainer, const json_t *state, reef_error *err) {
    reef_generation_memory *memory = &reef_open_generation(trainer)->memory;
    const json_t *expected = json_object_get(state, "memory");
    char chain[2 * REEF_HASH_BYTES + 1];
    if (trainer->options.recovers_kinds) return REEF_OK; // it is not read yet
    reef_status status = reef_generation_memory_catch_up(memory, trainer->network.config.memory,
                                                         trainer->workers, err);
    if (status != REEF_OK) return status;
    reef_hash_format(memory->chain, chain);
    uint64_t learned = memory->memory == NULL ? 0 : reef_memory_learned_bytes(memory->memory);
    const char *text = json_string_value(json_array_get(expected, 2));
    if (learned == (uint64_t)json_integer_value(json_array_get(expected, 0)) &&
        memory->next == (uint64_t)json_integer_value(json_array_get(expected, 1)) &&
        (expected == NULL || (text != NULL && strcmp(text, chain) == 0)))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the context memory of generation %u has learned %" PRIu64
                     " bytes, which are not those of the last commit",
                     reef_open_generation(trainer)->info.generation, learned);
}

static reef_status load_pending(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    // "carry" is the name on disk of the pending bytes: accepted from a source, not trained yet.
    // They are part of the state, because a cursor says that they were taken.
    reef_key key = reef_state_key(reef_open_generation(trainer)->info.generation, "carry");
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    trainer->stream.pending = malloc(view.bytes + 1);
    // Never empty: realloc to zero bytes may free and return NULL.
    if (trainer->stream.pending == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of the stream",
                         view.bytes);
    memcpy(trainer->stream.pending, view.data, view.bytes);
    trainer->stream.pending_bytes = view.bytes;
    trainer->stream.pending_capacity = view.bytes + 1;
    return REEF_OK;
}

reef_status reef_state_load(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    json_t *state;
    reef_status status = reef_state_read(&state, txn, generation, err);
    if (status != REEF_OK) return status;
    json_int_t step = 0, generation_step = 0, stream_bytes = 0, not_learned_bytes = 0;
    json_t *sources;
    if (json_unpack(state, "{s:I, s:I, s:I, s:I, s:o}", "step", &step, "generation_step",
                    &generation_step, "stream_bytes", &stream_bytes, "skipped_bytes",
                    &not_learned_bytes, "sources", &sources) != 0) {
        json_decref(state);
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the trainer's state of generation %u lacks a member", generation);
    }
    trainer->step = (uint64_t)step;
    trainer->generation_step = (uint64_t)generation_step;
    trainer->stream_bytes = (uint64_t)stream_bytes;
    trainer->stream.not_learned_bytes = (uint64_t)not_learned_bytes;
    // The record lacks what has its default, such as members of features that are off.
    load_policy(trainer, state);
    status = load_sources(trainer, sources, err);
    if (status == REEF_OK) status = load_memory(trainer, state, err);
    if (status == REEF_OK) status = reef_kinds_load_state(trainer, txn, state, err);
    if (status == REEF_OK) status = reef_kind_names_load(&trainer->kinds.names, state, err);
    if (status == REEF_OK) status = reef_recognition_load(trainer, state, err);
    json_decref(state);
    if (status == REEF_OK) status = load_pending(trainer, txn, err);
    return status == REEF_OK ? reef_watching_load(trainer, txn, err) : status;
}

reef_status reef_passed_read(reef_txn *txn, reef_passed *out, reef_error *err) {
    uint32_t count;
    json_t *state;
    *out = (reef_passed){0};
    reef_status status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK || count == 0) return status;
    // The state lies under the number of the open generation, which is always the last.
    status = reef_state_read(&state, txn, count - 1, err);
    if (status != REEF_OK) return status;
    const json_t *not_learned = json_object_get(state, "skipped_bytes");
    const json_t *visited = json_object_get(state, "visited_bytes");
    *out = (reef_passed){.not_learned_bytes = (uint64_t)json_integer_value(not_learned),
                         .visited_bytes = (uint64_t)json_integer_value(visited)};
    json_decref(state);
    return REEF_OK;
}

reef_status reef_state_sources(reef_txn *txn, json_t **out, reef_error *err) {
    uint32_t count;
    json_t *state;
    *out = NULL;
    reef_status status = reef_generation_count(txn, &count, err);
    // An empty pool has no generation; then generation 0 gives the error that names the missing
    // record.
    if (status == REEF_OK) status = reef_state_read(&state, txn, count == 0 ? 0 : count - 1, err);
    if (status != REEF_OK) return status;
    // Borrowed from `state`, which ends with this call: the caller gets a reference of its own.
    *out = json_incref(json_object_get(state, "sources"));
    json_decref(state);
    return REEF_OK;
}

// ---- history ------------------------------------------------------------------------------------

// What a damaged record held is lost to those who read the history; learning does not end by it.
// Looked for once, when a trainer commits for the first time.
static reef_status drop_damaged_history(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    size_t lost = 0;
    reef_status status = reef_record_drop_damaged(txn, REEF_DB_SERIES, &lost, err);
    if (status != REEF_OK || lost == 0) return status;
    return reef_state_event(trainer, err, "history_damaged", "\"records_lost\": %zu", lost);
}

reef_status reef_state_put_history(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = REEF_OK;
    if (trainer->unstored.series_points == 0) status = drop_damaged_history(trainer, txn, err);
    for (size_t i = 0; status == REEF_OK && i < trainer->unstored.event_count; i++)
        status = reef_timeline_append(txn, trainer->unstored.events[i], err);
    if (status == REEF_OK) status = reef_visit_log_put(&trainer->unstored.visit_log, txn, err);
    return status == REEF_OK ? reef_series_put(trainer, txn, err) : status;
}

void reef_state_forget_history(reef_trainer *trainer) {
    for (size_t i = 0; i < trainer->unstored.event_count; i++) free(trainer->unstored.events[i]);
    trainer->unstored.event_count = 0;
    reef_series_settle(trainer);
    reef_visit_log_settle(&trainer->unstored.visit_log);
}

// ---- kernels used -------------------------------------------------------------------------------
//
// Which arithmetic a pool was trained with last, of our kernels and of the matrix products: bits
// depend on it. Not part of the root hash.

#define KERNELS_BYTES 64

static const reef_key kernels_key = {.db = REEF_DB_META, .name = "kernels"};

static void kernels_text(char out[KERNELS_BYTES]) {
    snprintf(out, KERNELS_BYTES, "%s %s", reef_kernels_name(), reef_gemm_name());
}

reef_status reef_kernels_put(reef_txn *txn, reef_error *err) {
    char text[KERNELS_BYTES];
    kernels_text(text);
    return reef_record_put(txn, &kernels_key, REEF_BYTES, text, strlen(text), err);
}

reef_status reef_kernels_compare(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    char now[KERNELS_BYTES];
    reef_view before;
    reef_status status = reef_record_view(txn, &kernels_key, &before, err);
    // Damaged it counts as missing: every commit writes it again, and reef verify reports it.
    if (status == REEF_ERR_NOT_FOUND || status == REEF_ERR_CORRUPT) return REEF_OK;
    if (status != REEF_OK) return status;
    kernels_text(now);
    if (before.bytes == strlen(now) && memcmp(before.data, now, before.bytes) == 0) return REEF_OK;
    return reef_state_event(trainer, err, "kernels", "\"before\": \"%.*s\", \"now\": \"%s\"",
                            (int)before.bytes, (const char *)before.data, now);
}
