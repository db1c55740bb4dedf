// Read positions of live sources at a snapshot, the state of the scheduler, and the ids of pushed
// batches: records of the journal.
//
//   NAME,  sequence 0          where the next byte of a source lies, as of the last commit
//   NAME,  sequence C          the same, as of the snapshot whose copy of the open generation has
//          the number C
//   turns, sequence 0          the state of the scheduler at the last commit
//   turns, sequence 1, 2, ...  decisions after it; no state has them
//   turns, sequence 2^63 + C   the same, as of the snapshot
//   ids:X, sequence C          ids of batches of push:X (journal_dedup.c)
//
// Without them a restored state would have the cursors of its time and the read positions of a
// later one, and would not make the stream that followed again. The records of sources that are
// pushed into are others (journal.c), and left alone here: going back moves them
// (reef_journal_move).
#include "journal.h"

#include <stdlib.h>
#include <string.h>

#define STRIDE_NAME "turns"
#define STRIDE_KEPT (UINT64_C(1) << 63) // no pool lives for so many decisions

static reef_key offset_key(const char *source, uint64_t sequence) {
    return (reef_key){.db = REEF_DB_JOURNAL, .name = source, .sequence = sequence};
}

static bool is_stride_record(const char *name) {
    return strcmp(name, STRIDE_NAME) == 0;
}

static bool begins_with(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_pushed(const char *name) {
    return begins_with(name, REEF_PUSH_PREFIX);
}

// What a snapshot keeps and the pool itself has not.
static bool is_ids(const char *name) {
    return begins_with(name, REEF_JOURNAL_IDS_PREFIX);
}

static uint64_t kept_at(const char *name, uint32_t copy) {
    return is_stride_record(name) ? STRIDE_KEPT + copy : copy;
}

bool reef_snapshot_offsets_has(const reef_key *key) {
    return key->db == REEF_DB_JOURNAL && key->name != NULL && !is_pushed(key->name);
}

// Damaged or not: it is in the way of nothing.
static reef_status remove_offset(reef_txn *txn, const char *source, uint64_t at, reef_error *err) {
    const reef_key key = offset_key(source, at);
    return reef_record_remove(txn, &key, err);
}

static reef_status copy_offset(
    reef_txn *txn, const char *source, uint64_t from, uint64_t to, reef_error *err) {
    reef_key key = offset_key(source, from);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    // A source that was not read yet has no position to copy.
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    void *payload = malloc(view.bytes + 1); // writing moves what lies in the map
    if (payload == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source's read position");
    memcpy(payload, view.data, view.bytes);
    key.sequence = to;
    status = reef_record_store(txn, &key, view.dtype, payload, view.bytes, err);
    free(payload);
    return status;
}

typedef reef_status (*offset_step)(reef_txn *txn,
                                   const char *source,
                                   uint32_t copy,
                                   reef_error *err);

static reef_status of_all(reef_txn *txn, uint32_t copy, offset_step step, reef_error *err) {
    reef_walk walk = {.db = REEF_DB_JOURNAL, .done = copy == 0};
    reef_status status = REEF_OK;
    while (status == REEF_OK && !walk.done) {
        status = reef_walk_next(&walk, txn, err);
        if (status != REEF_OK || walk.done) break;
        // A source may have thousands of records; one seek passes them all.
        const reef_key last = offset_key(walk.name, UINT64_MAX);
        status = reef_walk_pass(&walk, &last, err);
        if (status == REEF_OK) status = step(txn, walk.name, copy, err);
    }
    return status;
}

static reef_status keep_offsets(reef_txn *txn, const char *name, uint32_t copy, reef_error *err) {
    if (is_ids(name)) return REEF_OK; // of another snapshot
    if (is_pushed(name)) return reef_journal_ids_keep(txn, name, copy, err);
    return copy_offset(txn, name, 0, kept_at(name, copy), err);
}

static reef_status drop_offsets(reef_txn *txn, const char *name, uint32_t copy, reef_error *err) {
    return is_pushed(name) ? REEF_OK : remove_offset(txn, name, kept_at(name, copy), err);
}

// Of the run whose state is discarded.
static reef_status forget_decisions(reef_txn *txn, reef_error *err) {
    reef_walk walk = {.db = REEF_DB_JOURNAL};
    const reef_key before = offset_key(STRIDE_NAME, 0);
    reef_status status = reef_walk_pass(&walk, &before, err);
    while (status == REEF_OK) {
        status = reef_walk_next(&walk, txn, err);
        // Those kept for snapshots have high sequences and stay.
        if (status != REEF_OK || walk.done || !is_stride_record(walk.name) ||
            walk.key.sequence >= STRIDE_KEPT)
            break;
        status = reef_record_remove(txn, &walk.key, err);
    }
    return status;
}

// What the snapshot does not have did not exist then: a source that was never read, or the
// scheduler's state before there were several queues.
static reef_status go_back(reef_txn *txn, const char *name, uint32_t copy, reef_error *err) {
    if (is_pushed(name) || is_ids(name)) return REEF_OK;
    reef_status status = remove_offset(txn, name, 0, err);
    if (status == REEF_OK && is_stride_record(name)) status = forget_decisions(txn, err);
    return status == REEF_OK ? copy_offset(txn, name, kept_at(name, copy), 0, err) : status;
}

uint32_t reef_snapshot_offsets_copy(const reef_key *key) {
    if (!reef_snapshot_offsets_has(key)) return 0;
    uint64_t kept = is_stride_record(key->name) ? STRIDE_KEPT : 0;
    return key->sequence >= kept ? (uint32_t)(key->sequence - kept) : 0;
}

reef_status reef_offsets_keep(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, keep_offsets, err);
}

reef_status reef_offsets_drop(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, drop_offsets, err);
}

reef_status reef_offsets_restore(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, go_back, err);
}
