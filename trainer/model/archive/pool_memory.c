// See pool_memory.h.
//
// The identity of a pool tells people which one an archive belongs to. It is XXH3-128 over the
// payloads of the configuration and of the first event of the timeline, which has the time at which
// the pool was made. Copies and restored pools have the same.
#include "pool_memory.h"
#include "as_of.h"
#include "checkpoint.h"
#include "reef_config.h"
#include "reef_snapshot.h"

#include <jansson.h>
#include <xxhash.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the pool -----------------------------------------------------------------------------------

static uint64_t made_ms(const reef_view *event) {
    json_t *value = json_loadb(event->data, event->bytes, JSON_ALLOW_NUL, NULL);
    json_int_t ms = json_integer_value(json_object_get(value, "unix_ms"));
    json_decref(value);
    return ms > 0 ? (uint64_t)ms : 0;
}

static reef_status read_identity(reef_txn *txn, reef_archive_header *out, reef_error *err) {
    reef_view config, event;
    reef_key key = {.db = REEF_DB_META, .name = "config"};
    reef_status status = reef_record_view(txn, &key, &config, err);
    if (status != REEF_OK) return status;
    key = (reef_key){.db = REEF_DB_TIMELINE, .sequence = 1};
    status = reef_record_view(txn, &key, &event, err);
    if (status == REEF_ERR_NOT_FOUND) event = (reef_view){.data = "", .bytes = 0};
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) return status;
    uint8_t parts[2 * REEF_HASH_BYTES];
    reef_archive_hash(config.data, config.bytes, parts);
    reef_archive_hash(event.data, event.bytes, parts + REEF_HASH_BYTES);
    reef_archive_hash(parts, sizeof(parts), out->pool);
    out->pool_made_ms = made_ms(&event);
    return REEF_OK;
}

static reef_status read_pool(reef_txn *txn, reef_archive_header *out, reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(txn, &config, err);
    if (status != REEF_OK) return status;
    if (reef_config_is_layer(&config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool is of a layer by itself: only pools of bytes have context "
                         "memories");
    if (config.memory == 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "the pool has no context memories, which code archives; a new one of bytes has them "
            "unless it is made with --memory 0");
    out->memory_bytes_max = config.memory;
    return read_identity(txn, out, err);
}

// ---- one memory ---------------------------------------------------------------------------------

// An open generation's chain is in the trainer's state, since tables and tail only give it
// together. NOT_FOUND: it has learned nothing.
static reef_status chain_of_open(reef_txn *txn,
                                 uint32_t records,
                                 uint8_t chain[REEF_HASH_BYTES],
                                 reef_error *err) {
    json_t *state;
    reef_status status = reef_state_read(&state, txn, records, err);
    if (status != REEF_OK) return status;
    const char *text = json_string_value(json_array_get(json_object_get(state, "memory"), 2));
    if (text == NULL)
        status =
            reef_fail(err, REEF_ERR_NOT_FOUND, "generation %" PRIu32 " has no memory", records);
    else if (!reef_hash_parse(text, chain))
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "the state of generation %" PRIu32 " has a malformed chain", records);
    json_decref(state);
    return status;
}

// Which memory lies there. NOT_FOUND: none.
static reef_status read_source(reef_txn *txn,
                               uint32_t generation,
                               uint32_t records,
                               bool sealed,
                               reef_memory_source *out,
                               reef_error *err) {
    reef_generation_record info;
    *out = (reef_memory_source){.id = {.generation = generation, .sealed = sealed},
                                .records = records};
    reef_status status = sealed ? reef_checkpoint_read_chain(txn, records, out->id.chain, err)
                                : chain_of_open(txn, records, out->id.chain, err);
    if (status != REEF_OK || !sealed) return status;
    status = reef_generation_read(txn, records, &info, err);
    memcpy(out->id.root, info.root, REEF_HASH_BYTES);
    return status;
}

reef_status reef_memory_source_load(reef_generation_memory *out,
                                    reef_store *store,
                                    reef_memory_source *source,
                                    uint64_t memory_bytes_max,
                                    reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_generation_memory){0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_checkpoint_read_memory(txn, source->records, out, err);
    reef_txn_abort(txn);
    if (status == REEF_OK)
        status = reef_generation_memory_catch_up(out, memory_bytes_max, NULL, err);
    if (status != REEF_OK) return status;
    uint64_t learned = out->memory == NULL ? 0 : reef_memory_learned_bytes(out->memory);
    bool same = out->memory != NULL && memcmp(out->chain, source->id.chain, REEF_HASH_BYTES) == 0 &&
                (source->id.learned_bytes == 0 || source->id.learned_bytes == learned);
    source->id.learned_bytes = learned;
    return same ? REEF_OK
                : reef_fail(err, REEF_ERR_BUSY,
                            "the memory of generation %" PRIu32
                            " was changed by another program meanwhile; try again",
                            source->id.generation);
}

// ---- a state to write with ----------------------------------------------------------------------

static reef_status fail_not_kept(uint32_t generation, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "generation %" PRIu32
                     " is open: the next commit changes it, and no archive of "
                     "it could be expanded then; keep it with reef snapshot create, and name the "
                     "snapshot with --as-of",
                     generation);
}

// The last sealed generation up to `from`; false: there is none.
static reef_status last_sealed(
    reef_txn *txn, uint32_t from, reef_generation_record *out, bool *found, reef_error *err) {
    reef_status status = REEF_OK;
    *found = false;
    for (uint32_t g = from + 1; status == REEF_OK && !*found && g-- > 0;) {
        status = reef_generation_read(txn, g, out, err);
        *found = status == REEF_OK && out->sealed;
    }
    return status;
}

typedef struct newest {
    uint64_t stream_bytes; // where the pool stands: what lies beyond was given up by a restore
    bool found;
    reef_snapshot snapshot;
} newest;

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    newest *n = context;
    (void)err;
    if (snapshot->damaged || snapshot->stream_bytes > n->stream_bytes) return REEF_OK;
    bool later = !n->found || snapshot->stream_bytes > n->snapshot.stream_bytes ||
                 (snapshot->stream_bytes == n->snapshot.stream_bytes &&
                  snapshot->commit > n->snapshot.commit);
    if (later) n->snapshot = *snapshot;
    n->found = true;
    return REEF_OK;
}

// Of all states that stay as they are the one that has seen most.
static reef_status find_newest(reef_txn *txn, reef_as_of *out, reef_error *err) {
    uint32_t count;
    bool found = false;
    reef_commit commit = {0};
    reef_generation_record sealed;
    newest n = {0};
    reef_status status = reef_generation_count(txn, &count, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    n.stream_bytes = commit.stream_bytes;
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, &n, err);
    if (status == REEF_OK) status = last_sealed(txn, count - 1, &sealed, &found, err);
    if (status != REEF_OK) return status;
    if (!found && !n.found)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "the pool keeps no state for ever yet, and what is open changes with every "
            "commit: keep it with reef snapshot create, or seal it with reef seal");
    if (n.found && (!found || n.snapshot.stream_bytes > sealed.sealed_at))
        *out = reef_as_of_snapshot(&n.snapshot);
    else
        *out = (reef_as_of){.last = sealed.generation, .own = sealed.generation};
    return REEF_OK;
}

// "now", or a number that is open, is kept where that generation has learned nothing: then it is
// the state before it.
static reef_status make_kept(reef_txn *txn, reef_as_of *as_of, reef_error *err) {
    bool found;
    reef_memory_source source;
    reef_generation_record info;
    if (as_of->of_snapshot) return REEF_OK;
    reef_status status = reef_generation_read(txn, as_of->last, &info, err);
    if (status != REEF_OK || info.sealed) return status;
    status = read_source(txn, as_of->last, as_of->last, false, &source, err);
    if (status == REEF_OK) return fail_not_kept(as_of->last, err);
    if (status != REEF_ERR_NOT_FOUND) return status;
    status = last_sealed(txn, as_of->last, &info, &found, err);
    if (status == REEF_OK && !found) return fail_not_kept(as_of->last, err);
    as_of->last = as_of->own = info.generation;
    return status;
}

static reef_status read_state(reef_txn *txn,
                              const reef_as_of *as_of,
                              reef_archive_state *out,
                              reef_error *err) {
    reef_generation_record info;
    reef_archive_header *header = &out->header;
    header->of_snapshot = as_of->of_snapshot;
    if (as_of->of_snapshot) {
        memcpy(header->state, as_of->snapshot.name, sizeof(header->state));
        header->stream_bytes = as_of->snapshot.stream_bytes;
        memcpy(header->root, as_of->snapshot.root, REEF_HASH_BYTES);
    } else {
        reef_status status = reef_generation_read(txn, as_of->last, &info, err);
        if (status != REEF_OK) return status;
        snprintf(header->state, sizeof(header->state), "%" PRIu32, as_of->last);
        header->stream_bytes = info.sealed_at;
        memcpy(header->root, info.root, REEF_HASH_BYTES);
    }
    out->sources = calloc((size_t)as_of->last + 1, sizeof(*out->sources));
    if (out->sources == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " generations",
                         as_of->last);
    // A snapshot may hold one generation that was open then; in any other state all are sealed.
    for (uint32_t g = 0; g <= as_of->last; g++) {
        bool sealed = !as_of->of_snapshot || g < as_of->snapshot.sealed_count;
        reef_status status = read_source(txn, g, reef_as_of_records(as_of, g), sealed,
                                         &out->sources[out->count], err);
        if (status == REEF_OK)
            out->count++;
        else if (status != REEF_ERR_NOT_FOUND)
            return status;
    }
    if (out->count > 0) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_INVALID,
        "no generation of the state '%s' has a context memory: nothing was learned yet",
        header->state);
}

reef_status reef_archive_state_find(reef_archive_state *out,
                                    reef_store *store,
                                    const char *as_of,
                                    reef_error *err) {
    reef_txn *txn = NULL;
    reef_as_of found = {0};
    *out = (reef_archive_state){0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = read_pool(txn, &out->header, err);
    if (status == REEF_OK)
        status = as_of == NULL ? find_newest(txn, &found, err)
                               : reef_as_of_find(&found, txn, as_of, err);
    if (status == REEF_OK) status = make_kept(txn, &found, err);
    if (status == REEF_OK) status = read_state(txn, &found, out, err);
    reef_txn_abort(txn);
    return status;
}

void reef_archive_state_release(reef_archive_state *state) {
    reef_archive_header_release(&state->header);
    free(state->sources);
    *state = (reef_archive_state){0};
}

// ---- a memory to read with ----------------------------------------------------------------------

typedef struct search {
    reef_txn *txn;
    const reef_archive_memory *wanted;
    reef_memory_source *out;
    bool found;
    reef_error first; // of what could not be read; OK: nothing
} search;

static void match_memory(search *s, uint32_t generation, uint32_t records, bool sealed) {
    reef_error err;
    reef_memory_source source;
    if (s->found) return;
    reef_status status = read_source(s->txn, generation, records, sealed, &source, &err);
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND && s->first.status == REEF_OK)
        s->first = err;
    if (status != REEF_OK || memcmp(source.id.chain, s->wanted->chain, REEF_HASH_BYTES) != 0)
        return;
    *s->out = source;
    s->out->id.learned_bytes = s->wanted->learned_bytes;
    s->found = true;
}

static void match_in_state(search *s, const reef_as_of *as_of) {
    uint32_t g = s->wanted->generation;
    if (g > as_of->last) return;
    if (as_of->of_snapshot)
        match_memory(s, g, reef_as_of_records(as_of, g), g < as_of->snapshot.sealed_count);
}

static reef_status match_in_snapshot(void *context,
                                     const reef_snapshot *snapshot,
                                     reef_error *err) {
    reef_as_of as_of;
    (void)err;
    if (snapshot->damaged) return REEF_OK;
    as_of = reef_as_of_snapshot(snapshot);
    match_in_state(context, &as_of);
    return REEF_OK;
}

// The pool's own generations, that of the same number first: an import gives another one.
static reef_status match_in_pool(search *s, reef_error *err) {
    uint32_t count;
    reef_generation_record info;
    reef_status status = reef_generation_count(s->txn, &count, err);
    for (uint32_t i = 0; status == REEF_OK && !s->found && i <= count; i++) {
        uint32_t g = i == 0 ? s->wanted->generation : i - 1;
        if (g >= count) continue;
        status = reef_generation_read(s->txn, g, &info, err);
        if (status == REEF_OK) match_memory(s, g, g, info.sealed);
    }
    return status;
}

static void format_pool(const reef_archive_header *header, char out[40]) {
    char day[16] = "?";
    time_t seconds = (time_t)(header->pool_made_ms / 1000);
    struct tm parts;
    if (header->pool_made_ms > 0 && gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(day, sizeof(day), "%Y-%m-%d", &parts);
    snprintf(out, 40, "%02x%02x%02x%02x made on %s", header->pool[0], header->pool[1],
             header->pool[2], header->pool[3], day);
}

static reef_status fail_gone(const reef_archive_header *header,
                             const reef_archive_memory *wanted,
                             reef_error *err) {
    if (!wanted->sealed)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "the archive needs generation %" PRIu32 " as snapshot '%.64s' had it, at "
                         "byte %" PRIu64 " of the stream; the snapshot is gone from the pool, and "
                         "no other state has the same",
                         wanted->generation, header->state, header->stream_bytes);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(wanted->root, root);
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "the archive needs generation %" PRIu32 " with root %s, which no state of the "
                     "pool has any more",
                     wanted->generation, root);
}

static reef_status not_found(const reef_archive_header *header,
                             const reef_archive_header *pool,
                             const search *s,
                             reef_error *err) {
    char theirs[40], ours[40];
    if (s->first.status != REEF_OK) {
        if (err != NULL) *err = s->first;
        return s->first.status;
    }
    if (memcmp(header->pool, pool->pool, REEF_HASH_BYTES) == 0)
        return fail_gone(header, s->wanted, err);
    format_pool(header, theirs);
    format_pool(pool, ours);
    return reef_fail(err, REEF_ERR_INVALID,
                     "the archive is of another pool: of %s, as of %.64s; this is %s", theirs,
                     header->state, ours);
}

reef_status reef_memory_source_find(reef_memory_source *out,
                                    reef_store *store,
                                    const reef_archive_header *header,
                                    const reef_archive_memory *wanted,
                                    reef_error *err) {
    reef_as_of as_of;
    reef_archive_header pool = {0};
    search s = {.wanted = wanted, .out = out};
    reef_status status = reef_txn_begin(&s.txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = read_pool(s.txn, &pool, err);
    // Memories of another bound forget other contexts.
    bool can = status == REEF_OK && pool.memory_bytes_max == header->memory_bytes_max;
    if (can && header->of_snapshot &&
        reef_as_of_find(&as_of, s.txn, header->state, NULL) == REEF_OK)
        match_in_state(&s, &as_of);
    if (can) status = match_in_pool(&s, err);
    if (can && status == REEF_OK && !s.found)
        status = reef_snapshot_scan(s.txn, match_in_snapshot, &s, err);
    if (status == REEF_OK && !s.found) status = not_found(header, &pool, &s, err);
    reef_txn_abort(s.txn);
    return status;
}
