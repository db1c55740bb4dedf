// What is lost with a damaged record, and where the same content is kept. Nothing is written.
//
// That bytes elsewhere are the same is proved, not guessed: the entry in `sums` has the content
// hash of what was lost, and the candidate's payload, hashed under the lost record's key, gives it
// or does not. Candidates lie in snapshots' copies of generations, under other numbers and, of
// usage and reservoir, among `moments` (generation_copy.c draws where).
//
// A snapshot can be restored when nothing of its state is damaged: the sealed generations that it
// shares with the pool, its copies, their records, and where live sources stood.
#include "check.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_PREFIX "snapshot.usage."
#define RESERVOIR_NAME "snapshot.reservoir"

typedef struct plan {
    reef_check *check;
    reef_snapshot *snapshots; // those whose own record is sound
    size_t count, capacity;
    uint32_t *numbers; // of all generations and copies that have a record
    size_t number_count, number_capacity;
} plan;

// ---- what there is ------------------------------------------------------------------------------

static bool room_for(void **array, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) return true;
    size_t larger = 2 * *capacity + 16;
    void *grown = realloc(*array, larger * bytes);
    if (grown == NULL) return false;
    *array = grown;
    *capacity = larger;
    return true;
}

static void find_snapshot(plan *p, const reef_key *key) {
    reef_snapshot snapshot;
    if (reef_snapshot_read(p->check->txn, key->name, &snapshot, NULL) != REEF_OK) return;
    if (room_for((void **)&p->snapshots, p->count, &p->capacity, sizeof(*p->snapshots)))
        p->snapshots[p->count++] = snapshot;
}

static void find_number(plan *p, const reef_key *key) {
    if (room_for((void **)&p->numbers, p->number_count, &p->number_capacity, sizeof(*p->numbers)))
        p->numbers[p->number_count++] = key->generation;
}

static void find_all(plan *p, reef_db db, void (*found)(plan *p, const reef_key *key)) {
    reef_cursor cursor;
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_status status = reef_cursor_open(&cursor, p->check->txn, db, NULL, 0, NULL);
    while (status == REEF_OK && !cursor.done) {
        // Damaged records have been reported, so here they are skipped.
        if (reef_key_decode(db, cursor.key.mv_data, cursor.key.mv_size, &key, name, NULL) ==
            REEF_OK)
            found(p, &key);
        status = reef_cursor_next(&cursor, p->check->txn, NULL);
    }
    reef_cursor_close(&cursor);
}

// The snapshot whose copies lie under this number, and the generation that was copied; NULL for
// none.
static const reef_snapshot *owner_of(const plan *p, uint32_t number, uint32_t *generation) {
    for (size_t i = 0; i < p->count; i++)
        for (uint32_t g = p->snapshots[i].shared_count; g <= p->snapshots[i].sealed_count; g++) {
            // Numbers below are generations of the pool itself, which belong to no snapshot.
            if (number < REEF_SNAPSHOT_GENERATION ||
                reef_snapshot_records(&p->snapshots[i], g) != number)
                continue;
            *generation = g;
            return &p->snapshots[i];
        }
    return NULL;
}

// ---- what is sound ------------------------------------------------------------------------------

// The number of the generation or copy that a record goes with; 0 also for those that go with none.
static uint32_t number_of(const reef_key *key) {
    return reef_snapshot_offsets_has(key) ? reef_snapshot_offsets_copy(key) : key->generation;
}

static bool is_damaged(const plan *p, uint32_t number) {
    for (size_t i = 0; i < p->check->damaged_count; i++) {
        const reef_key *key = &p->check->damaged[i].key;
        bool goes = reef_db_by_generation(key->db) || reef_snapshot_offsets_copy(key) > 0;
        if (goes && number_of(key) == number) return true;
    }
    return false;
}

// All of meta is needed to read a pool, but for when it was last scrubbed, what it was trained
// with, which shard it is, and whom it joins.
static bool meta_is_damaged(const plan *p) {
    for (size_t i = 0; i < p->check->damaged_count; i++) {
        const reef_key *key = &p->check->damaged[i].key;
        if (key->db == REEF_DB_META && strcmp(key->name, "scrub") != 0 &&
            strcmp(key->name, "kernels") != 0 && strcmp(key->name, "shard") != 0 &&
            strncmp(key->name, "join", 4) != 0)
            return true;
    }
    return false;
}

// Of more findings than are kept the rest is unknown, so nothing can be reported as whole.
static bool all_is_known(const plan *p) {
    return p->check->damaged_count < REEF_DAMAGED_MAX;
}

static bool is_whole(const plan *p, const reef_snapshot *snapshot) {
    if (!all_is_known(p)) return false;
    if (snapshot->copy == 0 || meta_is_damaged(p)) return false; // nothing that could learn on
    for (uint32_t g = 0; g <= snapshot->sealed_count; g++)
        if (is_damaged(p, reef_snapshot_records(snapshot, g))) return false;
    return true;
}

// Would the record be missing, or written again, in a pool that is restored from a snapshot?
static bool restore_mends(const reef_snapshot *snapshot, const reef_key *key) {
    switch (key->db) {
    case REEF_DB_TENSORS:
    case REEF_DB_EXPERTS:
    case REEF_DB_MOMENTS:
    case REEF_DB_FLAGS:
    case REEF_DB_GENERATIONS:
    case REEF_DB_MEMORY:
    case REEF_DB_VISITS:
        // Generations that the snapshot does not share are removed and copied back.
        return key->generation < REEF_SNAPSHOT_GENERATION &&
               key->generation >= snapshot->shared_count;
    case REEF_DB_USAGE:
        return key->generation >= snapshot->shared_count;
    case REEF_DB_RESERVOIR:
        return true;
    case REEF_DB_JOURNAL:
        return reef_snapshot_offsets_has(key) && reef_snapshot_offsets_copy(key) == 0;
    default:
        return false;
    }
}

static void choose_snapshot(const plan *p, reef_repair *r) {
    const reef_snapshot *best = NULL;
    for (size_t i = 0; i < p->count; i++) {
        const reef_snapshot *s = &p->snapshots[i];
        if (restore_mends(s, &r->key) && is_whole(p, s) &&
            (best == NULL || s->commit > best->commit))
            best = s;
    }
    // The newest one loses the least training.
    if (best == NULL) return;
    memcpy(r->restore, best->name, sizeof(r->restore));
    r->restore_commit = best->commit;
    r->restore_stream_bytes = best->stream_bytes;
}

// ---- the same bytes elsewhere -------------------------------------------------------------------

static bool has_content(const plan *p,
                        const reef_key *lost,
                        const reef_key *candidate,
                        const uint8_t want[REEF_HASH_BYTES]) {
    reef_view view;
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    if (reef_record_view(p->check->txn, candidate, &view, NULL) != REEF_OK) return false;
    if (reef_key_encode(lost, &encoded, NULL) != REEF_OK) return false;
    reef_record_content_hash(lost->db, &encoded, view.dtype, view.data, view.bytes, content);
    return memcmp(content, want, REEF_HASH_BYTES) == 0;
}

// Key of the record's counterpart under another number; false if none can exist.
static bool candidate_key(
    const plan *p, const reef_key *lost, uint32_t number, char *name, reef_key *out) {
    bool copy = number >= REEF_SNAPSHOT_GENERATION;
    uint32_t generation = 0, layer = 0;
    // A copy of a snapshot keeps usage and reservoir as moments under names, so both ways are
    // tried.
    *out = (reef_key){.db = REEF_DB_MOMENTS, .generation = number, .block = lost->block};
    if (lost->db == REEF_DB_USAGE) {
        snprintf(name, REEF_NAME_BYTES_MAX + 1, USAGE_PREFIX "%u", (unsigned)lost->layer);
        out->name = name;
        return copy && lost->level == 0 && owner_of(p, number, &generation) != NULL &&
               generation == lost->generation;
    }
    if (lost->db == REEF_DB_RESERVOIR) {
        out->name = RESERVOIR_NAME;
        return copy;
    }
    // The other direction: what the copy lost may be in the pool itself.
    bool kept = lost->db == REEF_DB_MOMENTS && lost->name != NULL && !copy;
    if (kept && sscanf(lost->name, USAGE_PREFIX "%u", &layer) == 1) {
        (void)owner_of(p, lost->generation, &generation);
        *out = (reef_key){
            .db = REEF_DB_USAGE, .generation = generation, .layer = layer, .block = lost->block};
        return number == generation;
    }
    if (kept && strcmp(lost->name, RESERVOIR_NAME) == 0) {
        *out = (reef_key){.db = REEF_DB_RESERVOIR, .block = lost->block};
        return true;
    }
    // All other records keep their key but for the generation.
    *out = *lost;
    out->generation = number;
    // Only databases whose key has a generation can have a second copy.
    return reef_db_by_generation(lost->db) && lost->db != REEF_DB_GENERATIONS &&
           number != lost->generation;
}

static void find_twin(const plan *p, const uint8_t want[REEF_HASH_BYTES], reef_repair *r) {
    char name[REEF_NAME_BYTES_MAX + 1];
    for (size_t i = 0; i < p->number_count && !r->identical; i++) {
        reef_key candidate;
        uint32_t number = p->numbers[i], generation = number;
        if (!candidate_key(p, &r->key, number, name, &candidate) ||
            !has_content(p, &r->key, &candidate, want))
            continue;
        // The user knows snapshots by name, not by the numbers of their copies.
        const reef_snapshot *owner = owner_of(p, number, &generation);
        r->identical = true;
        r->identical_generation = generation;
        if (owner != NULL) memcpy(r->twin, owner->name, sizeof(r->twin));
    }
}

// ---- one record ---------------------------------------------------------------------------------

// What its bytes are by themselves: as they were written, or of an earlier commit?
static void check_bytes(const plan *p,
                        const uint8_t want[REEF_HASH_BYTES],
                        bool wanted,
                        reef_repair *r) {
    reef_txn *txn = p->check->txn;
    reef_key_bytes encoded;
    reef_view view;
    uint8_t content[REEF_HASH_BYTES];
    if (reef_key_encode(&r->key, &encoded, NULL) != REEF_OK) return;
    MDB_val key = {.mv_size = encoded.bytes, .mv_data = encoded.data}, value;
    MDB_dbi dbi = reef_environment_dbi(txn->environment, r->key.db);
    if (mdb_get(txn->lmdb, dbi, &key, &value) != 0) return;
    if (reef_record_parse(&r->key, &encoded, value.mv_data, value.mv_size, &view, content, NULL) !=
        REEF_OK)
        return;
    r->commit = view.commit;
    // The bytes are sound, but sums knows of a later commit: that write was lost.
    r->stale =
        wanted && r->commit_lost > view.commit && memcmp(content, want, REEF_HASH_BYTES) != 0;
    r->intact = !r->stale;
}

static void plan_record(const plan *p, const reef_damaged *damaged) {
    reef_repair r;
    uint8_t want[REEF_HASH_BYTES];
    memset(&r, 0, sizeof(r));
    memcpy(r.what, damaged->what, sizeof(r.what));
    memcpy(r.name, damaged->name, sizeof(r.name));
    r.key = damaged->key;
    if (r.key.name != NULL) r.key.name = r.name;
    r.generation = r.key.generation;
    const reef_snapshot *owner = owner_of(p, number_of(&r.key), &r.generation);
    if (owner != NULL) memcpy(r.snapshot, owner->name, sizeof(r.snapshot));
    r.sealed = owner != NULL ||
               (reef_db_by_generation(r.key.db) && r.key.generation < p->check->txn->sealed_count);
    bool wanted = reef_db_summed(r.key.db) &&
                  reef_sum_read(p->check->txn, &r.key, &r.commit_lost, want, NULL) == REEF_OK;
    check_bytes(p, want, wanted, &r);
    // Without the wanted hash no other record can be recognised as its twin.
    if (wanted && !r.intact) find_twin(p, want, &r);
    choose_snapshot(p, &r);
    p->check->options->on_repair(p->check->options->context, &r);
}

// Of a sealed generation itself: what older kinds learned while it was open is not in its file.
static bool file_is_damaged(const plan *p, uint32_t generation) {
    for (size_t i = 0; i < p->check->damaged_count; i++) {
        const reef_key *key = &p->check->damaged[i].key;
        if (reef_db_by_generation(key->db) && key->db != REEF_DB_VISITS &&
            key->generation == generation)
            return true;
    }
    return false;
}

// Sealed generations that can be written to a file of their own, as they are.
static void report_whole(const plan *p) {
    const reef_check *c = p->check;
    if (c->options->on_whole == NULL || c->report->damaged == 0 || !all_is_known(p)) return;
    for (uint32_t g = 0; g < c->txn->sealed_count; g++) {
        reef_generation_record generation;
        // An export needs the record, all data and the configuration in meta.
        if (file_is_damaged(p, g) || meta_is_damaged(p) ||
            reef_generation_read(c->txn, g, &generation, NULL) != REEF_OK)
            continue;
        c->options->on_whole(c->options->context, g);
    }
}

void reef_check_plan(reef_check *c) {
    plan p = {.check = c};
    if (c->damaged_count > 0) {
        find_all(&p, REEF_DB_SNAPSHOTS, find_snapshot);
        find_all(&p, REEF_DB_GENERATIONS, find_number);
    }
    for (size_t i = 0; i < c->damaged_count; i++) plan_record(&p, &c->damaged[i]);
    report_whole(&p);
    free(p.snapshots);
    free(p.numbers);
}
