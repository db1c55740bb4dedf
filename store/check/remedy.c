// What helps a damaged pool, all findings together. Nothing is written.
//
// A snapshot helps when nothing of its state is damaged (the sealed generations that it shares with
// the pool, its copies, their records, and where live sources stood) and when what is damaged of
// the present state is not in a pool that is restored from it.
#include "check.h"

#include "reef_push_journal.h"
#include "reef_snapshot.h"
#include "reef_usage.h"

#include <stdio.h>
#include <string.h>

// ---- one record ---------------------------------------------------------------------------------

// The number of the generation or copy that a record goes with; 0 also for those that go with none.
static uint32_t number_of(const reef_key *key) {
    return reef_snapshot_offsets_has(key) ? reef_snapshot_offsets_copy(key) : key->generation;
}

static bool is_of_snapshot(const reef_key *key) {
    return key->db == REEF_DB_SNAPSHOTS || number_of(key) >= REEF_SNAPSHOT_GENERATION;
}

// Of one kind, which other kinds do not need.
static bool is_of_kind(const reef_key *key) {
    return key->db == REEF_DB_MEMORY || key->db == REEF_DB_VISITS || key->db == REEF_DB_TEXT ||
           key->db == REEF_DB_BLOCKS;
}

// Nothing computes with it, or the next commit writes it again.
static bool is_history(const reef_key *key) {
    return key->db == REEF_DB_TIMELINE || key->db == REEF_DB_SERIES ||
           (key->db == REEF_DB_USAGE && key->level != REEF_USAGE_TOTALS) ||
           (key->db == REEF_DB_META &&
            (strcmp(key->name, "scrub") == 0 || strcmp(key->name, "kernels") == 0));
}

static bool is_pushed(const reef_key *key) {
    return key->db == REEF_DB_JOURNAL &&
           strncmp(key->name, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) == 0 && key->sequence > 0;
}

// ---- snapshots ----------------------------------------------------------------------------------

static bool is_damaged(const reef_check *c, uint32_t number) {
    for (size_t i = 0; i < c->damaged_count; i++) {
        const reef_key *key = &c->damaged[i].key;
        bool goes = reef_db_by_generation(key->db) || reef_snapshot_offsets_copy(key) > 0;
        if (goes && number_of(key) == number) return true;
    }
    return false;
}

// All of meta is needed to read a pool, but for its history, which shard it is, and whom it joins.
static bool meta_is_damaged(const reef_check *c) {
    for (size_t i = 0; i < c->damaged_count; i++) {
        const reef_key *key = &c->damaged[i].key;
        if (key->db == REEF_DB_META && !is_history(key) && strcmp(key->name, "shard") != 0 &&
            strncmp(key->name, "join", 4) != 0)
            return true;
    }
    return false;
}

static bool is_whole(const reef_check *c, const reef_snapshot *snapshot) {
    if (snapshot->damaged || snapshot->copy == 0) return false; // nothing that could learn on
    for (uint32_t g = 0; g <= snapshot->sealed_count; g++)
        if (is_damaged(c, reef_snapshot_records(snapshot, g))) return false;
    return true;
}

// Would the record be missing, or written again, in a pool that is restored from the snapshot?
static bool restore_mends(const reef_snapshot *snapshot, const reef_key *key) {
    if (key->db == REEF_DB_JOURNAL)
        return reef_snapshot_offsets_has(key) && reef_snapshot_offsets_copy(key) == 0;
    // Generations that the snapshot does not share are removed and copied back.
    return (reef_db_by_generation(key->db) || key->db == REEF_DB_USAGE) &&
           key->generation >= snapshot->shared_count;
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    const reef_check *c = context;
    reef_remedy *remedy = &c->report->remedy;
    (void)err;
    bool mends = is_whole(c, snapshot);
    for (size_t i = 0; mends && i < c->damaged_count; i++) {
        const reef_key *key = &c->damaged[i].key;
        mends = is_of_snapshot(key) || is_history(key) || restore_mends(snapshot, key);
    }
    // The newest one loses the least training.
    if (!mends || (remedy->kind == REEF_REMEDY_RESTORE && snapshot->commit <= remedy->commit))
        return REEF_OK;
    *remedy = (reef_remedy){.kind = REEF_REMEDY_RESTORE,
                            .commit = snapshot->commit,
                            .stream_bytes = snapshot->stream_bytes};
    memcpy(remedy->name, snapshot->name, sizeof(remedy->name));
    return REEF_OK;
}

typedef struct owner {
    uint32_t copy;
    reef_remedy *remedy;
} owner;

static reef_status on_owner(void *context, const reef_snapshot *snapshot, reef_error *err) {
    const owner *o = context;
    (void)err;
    for (uint32_t g = snapshot->shared_count; g <= snapshot->sealed_count; g++)
        if (!snapshot->damaged && reef_snapshot_records(snapshot, g) == o->copy)
            memcpy(o->remedy->name, snapshot->name, sizeof(o->remedy->name));
    return REEF_OK;
}

static void name_snapshot(const reef_check *c, const reef_key *key) {
    reef_remedy *remedy = &c->report->remedy;
    owner o = {.copy = number_of(key), .remedy = remedy};
    if (key->db == REEF_DB_SNAPSHOTS)
        snprintf(remedy->name, sizeof(remedy->name), "%s", key->name);
    else
        (void)!reef_snapshot_scan(c->txn, on_owner, &o, NULL);
}

// ---- all of it ----------------------------------------------------------------------------------

void reef_check_remedy(reef_check *c) {
    reef_remedy *remedy = &c->report->remedy;
    const reef_key *copy = NULL, *pushed = NULL;
    bool kind = false, other = false;
    if (c->report->damaged == 0) return;
    *remedy = (reef_remedy){.kind = REEF_REMEDY_COPY};
    // Damage of pages, and what is beyond the findings that are kept, may lie anywhere.
    if (c->report->damaged > c->damaged_count || c->stopped.status != REEF_OK) return;
    for (size_t i = 0; i < c->damaged_count; i++) {
        const reef_key *key = &c->damaged[i].key;
        if (is_of_snapshot(key))
            copy = key;
        else if (is_of_kind(key))
            kind = true;
        else if (is_pushed(key))
            pushed = key;
        else if (!is_history(key))
            other = true;
    }
    if (other) {
        if (!meta_is_damaged(c)) (void)!reef_snapshot_scan(c->txn, on_snapshot, c, NULL);
    } else if (kind) { // what other kinds learned since a snapshot is worth more
        remedy->kind = REEF_REMEDY_RECOVER;
    } else if (pushed != NULL) {
        remedy->kind = REEF_REMEDY_PUSH;
        snprintf(remedy->name, sizeof(remedy->name), "%s", pushed->name);
    } else if (copy != NULL) {
        name_snapshot(c, copy);
        if (remedy->name[0] != '\0') remedy->kind = REEF_REMEDY_REMOVE;
    } else {
        remedy->kind = REEF_REMEDY_NOTHING;
    }
}
