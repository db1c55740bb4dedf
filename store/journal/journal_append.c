// Appending to the journal: many batches, one transaction. Layout and terms: journal.c.
#include "journal.h"

#include "reef_fail_point.h"

#include <xxhash.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** An id that is known: where it stands, and a hash to find it by. */
typedef struct known_id {
    uint64_t hash, sequence;
} known_id;

/** The end of one source's journal while batches are appended to it. */
typedef struct tail {
    const char *source; // NULL: not read yet
    reef_journal_span all;
    uint64_t begin; // of the first entry that is whole
    uint64_t end;   // of the last one
    known_id *ids;  // (room) on the heap
    size_t id_count, room;
    bool full; // a batch was refused: a smaller one does not overtake it
} tail;

static uint64_t id_hash(const char *id, size_t bytes) {
    return XXH3_64bits(id, bytes);
}

static void note_id(tail *t, const char *id, size_t bytes, uint64_t sequence) {
    assert(t->id_count < t->room);
    if (bytes > 0)
        t->ids[t->id_count++] = (known_id){.hash = id_hash(id, bytes), .sequence = sequence};
}

static reef_status gather_ids(reef_txn *txn, tail *t, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint64_t s = reef_journal_known(&t->all); status == REEF_OK && s <= t->all.last; s++) {
        reef_journal_entry entry;
        status = reef_journal_peek(txn, t->source, s, &entry, err);
        if (status == REEF_OK) note_id(t, entry.id, entry.id_bytes, s);
    }
    return status;
}

static reef_status tail_check(
    reef_txn *txn, tail *t, const reef_journal_batch *batch, size_t batch_count, reef_error *err) {
    reef_journal_entry last;
    free(t->ids);
    *t = (tail){.source = batch->source, .room = REEF_JOURNAL_IDS_MAX + batch_count};
    t->ids = calloc(t->room, sizeof(*t->ids));
    if (t->ids == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for ids of the journal");
    reef_status status = reef_journal_find(txn, t->source, &t->all, err);
    if (status != REEF_OK) return status;
    // An empty journal begins where the cursor of the pool stands.
    t->begin = t->end = batch->cursor + t->all.shift;
    if (reef_journal_is_empty(&t->all)) return REEF_OK;
    status = reef_journal_ends(txn, t->source, &t->all, &last, &t->begin, err);
    if (status != REEF_OK) return status;
    t->end = reef_journal_end(&last);
    return gather_ids(txn, t, err);
}

static uint64_t waiting_bytes(const tail *t) {
    uint64_t entries = t->all.last + 1 - t->all.whole;
    return t->end - t->begin + entries * REEF_JOURNAL_ENTRY_BYTES;
}

static reef_status check_batch(const reef_journal_batch *batch, reef_error *err) {
    size_t prefix = strlen(REEF_PUSH_PREFIX), name = strlen(batch->source);
    if (strncmp(batch->source, REEF_PUSH_PREFIX, prefix) != 0 || name == prefix ||
        name > REEF_NAME_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.80s' is not a name of a source that is pushed into", batch->source);
    if (batch->count == 0)
        return reef_fail(err, REEF_ERR_INVALID, "the batch for %s is empty", batch->source);
    if (batch->count > REEF_JOURNAL_BATCH_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the batch for %s has %zu bytes, at most %u go into one: send several",
                         batch->source, batch->count, REEF_JOURNAL_BATCH_BYTES_MAX);
    if (batch->id != NULL && strlen(batch->id) > REEF_JOURNAL_ID_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the id of a batch has %zu bytes, at most %u may be", strlen(batch->id),
                         REEF_JOURNAL_ID_BYTES_MAX);
    // Refused for good: as busy, the sender would repeat it for ever.
    if (batch->count + REEF_JOURNAL_ENTRY_BYTES > batch->bytes_max)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the batch for %s has %zu bytes, more than its journal may hold (%" PRIu64
                         ")",
                         batch->source, batch->count, batch->bytes_max);
    return REEF_OK;
}

// Was it journalled before? Its id is known then; the same id for other bytes is a mistake that
// would lose them.
static reef_status find_duplicate(
    reef_txn *txn, const tail *t, reef_journal_batch *batch, uint64_t content, reef_error *err) {
    size_t bytes = batch->id == NULL ? 0 : strlen(batch->id);
    if (bytes == 0) return REEF_OK;
    uint64_t hash = id_hash(batch->id, bytes);
    for (size_t i = 0; i < t->id_count; i++) {
        reef_journal_entry entry;
        if (t->ids[i].hash != hash || t->ids[i].sequence + REEF_JOURNAL_IDS_MAX <= t->all.last)
            continue;
        reef_status status = reef_journal_peek(txn, t->source, t->ids[i].sequence, &entry, err);
        if (status != REEF_OK) return status;
        // Hashes may collide, so the id itself decides.
        if (entry.id_bytes != bytes || memcmp(entry.id, batch->id, bytes) != 0) continue;
        batch->duplicate = entry.length == batch->count && entry.content == content;
        batch->position = reef_journal_in_source(&t->all, reef_journal_end(&entry));
        if (!batch->duplicate)
            batch->error.status = reef_fail(&batch->error, REEF_ERR_INVALID,
                                            "the id '%.60s' was that of a batch of %" PRIu64
                                            " other bytes: give new bytes a new id",
                                            batch->id, entry.length);
        return REEF_OK;
    }
    return REEF_OK;
}

// What the batch is refused for goes into it; the status is of the transaction.
static reef_status append_one(reef_txn *txn,
                              tail *t,
                              reef_journal_batch *batch,
                              size_t batch_count,
                              bool *written,
                              reef_error *err) {
    reef_status status = REEF_OK;
    // A batch that is wrong is refused alone: its neighbours are still written.
    batch->error.status = check_batch(batch, &batch->error);
    if (batch->error.status != REEF_OK) return REEF_OK;
    // Batches of one source follow one another, so the end of its journal is looked up once.
    if (t->source == NULL || strcmp(t->source, batch->source) != 0)
        status = tail_check(txn, t, batch, batch_count, err);
    // The content decides whether an id that was seen is the same batch or a mistake.
    uint64_t content = reef_journal_content(batch->bytes, batch->count);
    if (status == REEF_OK) status = find_duplicate(txn, t, batch, content, err);
    if (status != REEF_OK || batch->duplicate || batch->error.status != REEF_OK) return status;
    // The bound keeps a fast sender from filling the disk before training catches up.
    t->full =
        t->full || waiting_bytes(t) + batch->count + REEF_JOURNAL_ENTRY_BYTES > batch->bytes_max;
    if (t->full) {
        batch->error.status =
            reef_fail(&batch->error, REEF_ERR_BUSY,
                      "%" PRIu64 " bytes of %s wait for training, and its journal may hold %" PRIu64
                      ": try again later",
                      t->end - t->begin, batch->source, batch->bytes_max);
        // True if all that waits was trained and not committed yet: a commit would make room.
        batch->trained = batch->cursor + t->all.shift == t->end;
        return REEF_OK;
    }
    const reef_journal_entry entry = {.sequence = t->all.last + 1,
                                      .begin = t->end,
                                      .length = batch->count,
                                      .unix_ms = batch->unix_ms,
                                      .content = content,
                                      .id = batch->id,
                                      .id_bytes =
                                          batch->id == NULL ? 0 : (uint32_t)strlen(batch->id),
                                      .bytes = batch->bytes};
    status = reef_journal_store(txn, t->source, &entry, err);
    if (status != REEF_OK) return status;
    // Only after the record is written: a failure leaves the tail as it was.
    t->all.last++;
    t->end = reef_journal_end(&entry);
    note_id(t, entry.id, entry.id_bytes, entry.sequence);
    batch->position = reef_journal_in_source(&t->all, t->end);
    *written = true;
    return REEF_OK;
}

reef_status reef_journal_append(reef_store *store,
                                reef_journal_batch *batches,
                                size_t batch_count,
                                reef_commit *commit,
                                reef_error *err) {
    reef_txn *txn = NULL;
    tail t = {0};
    bool written = false;
    reef_commit made = {0}; // step, position and time stay those of what was committed last
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    status = reef_commit_read(txn, &made, err);
    if (status == REEF_ERR_NOT_FOUND) status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < batch_count; i++) {
        batches[i].error = (reef_error){.status = REEF_OK};
        batches[i].duplicate = batches[i].trained = false;
        batches[i].position = 0;
        status = append_one(txn, &t, &batches[i], batch_count, &written, err);
    }
    free(t.ids);
    // Duplicates and refusals change nothing, so they cost no commit.
    if (status != REEF_OK || !written) {
        reef_txn_abort(txn);
        return status;
    }
    REEF_FAIL_POINT(JOURNAL_WRITTEN);
    status = reef_txn_commit(txn, &made, err);
    if (status == REEF_OK && commit != NULL) *commit = made;
    return status;
}
