// Which batches a snapshot knows, and going back to it.
//
// What was pushed under an id is known by it, so that it is trained once when it is sent again: an
// id is known when the state has the batch, or when the batch waits. Entries of the journal tell
// that of the last state only. So a snapshot keeps the ids of its time, of each source push:NAME in
// a record of its own:
//
//   ids:NAME, sequence C   C: number of the snapshot's copy of the open generation
//
//      0  u64  the shift (journal.c)
//      8       entries with an id among the last REEF_JOURNAL_IDS_MAX, oldest first, each as a
//              trimmed one is drawn in journal.c; the state has those that end at its cursor or
//              before
//
// A restore puts these where the trimmed entries were. Behind them come the entries whose bytes the
// journal still has and the state has not been trained on. The id of a batch that the state has in
// part, and the journal no longer has, is forgotten: the batch can be pushed again, as a whole.
#include "journal.h"

#include "reef_byte_order.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHIFT_BYTES 8

/** The ids of some state. */
typedef struct known {
    uint8_t *payload; // as in the record; on the heap
    size_t bytes;
    uint64_t shift;
} known;

static reef_key ids_key(const char *source, uint32_t copy, char name[REEF_NAME_BYTES_MAX + 1]) {
    snprintf(name, REEF_NAME_BYTES_MAX + 1, REEF_JOURNAL_IDS_PREFIX "%s",
             source + strlen(REEF_PUSH_PREFIX));
    return (reef_key){.db = REEF_DB_JOURNAL, .name = name, .sequence = copy};
}

// The next entry of a list, from *at on, which is moved behind it.
static bool next_id(const uint8_t *payload, size_t bytes, size_t *at, reef_journal_entry *entry) {
    if (bytes - *at < REEF_JOURNAL_HEAD_BYTES) return false;
    uint32_t id_bytes = reef_get_le32(payload + *at + REEF_JOURNAL_HEAD_BYTES - 4);
    if (id_bytes == 0 || id_bytes > bytes - *at - REEF_JOURNAL_HEAD_BYTES) return false;
    size_t taken = REEF_JOURNAL_HEAD_BYTES + id_bytes;
    if (!reef_journal_entry_parse(entry, 0, payload + *at, taken)) return false;
    *at += taken;
    return true;
}

bool reef_journal_ids_are_sound(const void *payload, size_t bytes) {
    reef_journal_entry entry;
    uint64_t end = 0;
    size_t at = SHIFT_BYTES, count = 0;
    if (bytes < SHIFT_BYTES) return false;
    for (; at < bytes; count++) {
        // Ascending, since they are looked up by where the restored cursor lies.
        if (!next_id(payload, bytes, &at, &entry) || entry.begin < end) return false;
        end = reef_journal_end(&entry);
    }
    return count <= REEF_JOURNAL_IDS_MAX;
}

// ---- keeping ------------------------------------------------------------------------------------

// A damaged entry is skipped: reef verify reports it, and the source may no longer be used. Where
// its bytes still wait only its head is read here.
static reef_status gather_known_ids(
    reef_txn *txn, const char *source, const reef_journal_span *all, known *out, reef_error *err) {
    // As many as the journal itself recognises duplicates by.
    uint64_t first = reef_journal_known(all);
    size_t count = (size_t)(all->last + 1 - first);
    out->payload =
        malloc(SHIFT_BYTES + count * (REEF_JOURNAL_HEAD_BYTES + REEF_JOURNAL_ID_BYTES_MAX));
    if (out->payload == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for ids");
    reef_put_le64(out->payload, all->shift);
    out->bytes = SHIFT_BYTES;
    out->shift = all->shift;
    for (uint64_t s = first; s <= all->last; s++) {
        reef_journal_entry entry;
        reef_status status = s < all->whole ? reef_journal_entry_view(txn, source, s, &entry, err)
                                            : reef_journal_peek(txn, source, s, &entry, err);
        if (status != REEF_OK && status != REEF_ERR_CORRUPT) return status;
        if (status == REEF_ERR_CORRUPT || entry.id_bytes == 0) continue;
        reef_journal_head_put(out->payload + out->bytes, &entry);
        memcpy(out->payload + out->bytes + REEF_JOURNAL_HEAD_BYTES, entry.id, entry.id_bytes);
        out->bytes += REEF_JOURNAL_HEAD_BYTES + entry.id_bytes;
    }
    return REEF_OK;
}

reef_status reef_journal_ids_keep(reef_txn *txn,
                                  const char *source,
                                  uint32_t copy,
                                  reef_error *err) {
    reef_journal_span all;
    known ids = {0};
    char name[REEF_NAME_BYTES_MAX + 1];
    const reef_key key = ids_key(source, copy, name);
    reef_status status = reef_journal_find(txn, source, &all, err);
    if (status == REEF_ERR_CORRUPT) return REEF_OK; // the snapshot does without
    if (status != REEF_OK || reef_journal_is_empty(&all)) return status;
    // Ids of later batches are not in it, so after a restore these can be pushed again.
    status = gather_known_ids(txn, source, &all, &ids, err);
    if (status == REEF_OK)
        status = reef_record_store(txn, &key, REEF_BYTES, ids.payload, ids.bytes, err);
    free(ids.payload);
    return status;
}

// ---- going back ---------------------------------------------------------------------------------

static reef_status load_snapshot_ids(
    reef_txn *txn, const char *source, const reef_snapshot *snapshot, known *out, reef_error *err) {
    reef_view view;
    char name[REEF_NAME_BYTES_MAX + 1], text[REEF_KEY_TEXT_BYTES];
    const reef_key key = ids_key(source, snapshot->copy, name);
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) { // nothing had been pushed yet
        out->payload = calloc(SHIFT_BYTES, 1);
        out->bytes = SHIFT_BYTES;
        return out->payload != NULL ? REEF_OK
                                    : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for ids");
    }
    if (status != REEF_OK) return status;
    reef_key_format(&key, text);
    if (!reef_journal_ids_are_sound(view.data, view.bytes))
        return reef_fail(err, REEF_ERR_CORRUPT, "%s is not a list of ids; see reef verify", text);
    out->payload = malloc(view.bytes); // writing moves what lies in the map
    if (out->payload == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for ids");
    memcpy(out->payload, view.data, view.bytes);
    out->bytes = view.bytes;
    out->shift = reef_get_le64(out->payload);
    return REEF_OK;
}

static reef_status unfit(const char *source, uint64_t to, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the snapshot has read %s up to byte %" PRIu64
                     ", but its journal was never read so far: see reef verify, or restore "
                     "another snapshot",
                     source, to);
}

// The bytes, if it has any, stay.
static reef_status forget(reef_txn *txn, const char *source, uint64_t sequence, reef_error *err) {
    reef_journal_entry entry;
    reef_status status = reef_journal_peek(txn, source, sequence, &entry, err);
    if (status != REEF_OK) return status;
    entry.id_bytes = 0;
    return reef_journal_store(txn, source, &entry, err);
}

// All trimmed entries are removed but the last, whose id is dropped: numbers and positions continue
// after it.
static reef_status remove_trimmed(reef_txn *txn,
                                  const char *source,
                                  const reef_journal_span *all,
                                  reef_error *err) {
    reef_status status = REEF_OK;
    if (all->first == all->whole) return REEF_OK;
    for (uint64_t s = all->first; status == REEF_OK && s + 1 < all->whole; s++) {
        const reef_key key = {.db = REEF_DB_JOURNAL, .name = source, .sequence = s};
        status = reef_record_remove(txn, &key, err);
    }
    return status == REEF_OK ? forget(txn, source, all->whole - 1, err) : status;
}

// Those that end at `reached` or before become the trimmed entries, up to `begin`, where the whole
// ones begin.
static reef_status replace_trimmed(reef_txn *txn,
                                   const char *source,
                                   const reef_journal_span *all,
                                   const known *ids,
                                   uint64_t reached,
                                   uint64_t begin,
                                   reef_error *err) {
    reef_journal_entry entry;
    uint64_t count = 0, length = 0;
    uint64_t last = reached < begin ? reached : begin; // whole ones have their ids themselves
    for (size_t at = SHIFT_BYTES;
         next_id(ids->payload, ids->bytes, &at, &entry) && reef_journal_end(&entry) <= last;
         count++)
        length += entry.length;
    // Each was an entry of this journal before the first one that is whole.
    if (count >= all->whole || length > begin) return unfit(source, reached, err);
    reef_status status = remove_trimmed(txn, source, all, err);
    size_t at = SHIFT_BYTES;
    for (uint64_t i = 0, next = begin - length; status == REEF_OK && i < count; i++) {
        (void)next_id(ids->payload, ids->bytes, &at, &entry);
        // Counted back from the first whole entry, so that sequences have no gap.
        entry.sequence = all->whole - count + i;
        entry.begin = next;
        next = reef_journal_end(&entry);
        status = reef_journal_store(txn, source, &entry, err);
    }
    return status;
}

static reef_status put_shift(reef_txn *txn, const char *source, uint64_t shift, reef_error *err) {
    uint8_t bytes[SHIFT_BYTES];
    const reef_key key = {
        .db = REEF_DB_JOURNAL, .name = source, .sequence = REEF_JOURNAL_SHIFT_SEQUENCE};
    reef_put_le64(bytes, shift);
    return reef_record_store(txn, &key, REEF_U64, bytes, sizeof(bytes), err);
}

static reef_status go_back(reef_txn *txn,
                           const char *source,
                           const reef_journal_span *all,
                           const known *ids,
                           uint64_t to,
                           reef_error *err) {
    uint64_t begin;
    reef_journal_entry last;
    reef_status status = reef_journal_ends(txn, source, all, &last, &begin, err);
    if (status != REEF_OK) return status;
    uint64_t reached = to + ids->shift;
    uint64_t at = reached > begin ? reached : begin;
    if (reached > reef_journal_end(&last) || at < to) return unfit(source, to, err);
    status = replace_trimmed(txn, source, all, ids, reached, begin, err);
    return status == REEF_OK ? put_shift(txn, source, at - to, err) : status;
}

reef_status reef_journal_move(reef_txn *txn,
                              const char *source,
                              const reef_snapshot *snapshot,
                              uint64_t to,
                              reef_error *err) {
    reef_journal_span all;
    known ids = {0};
    reef_status status = reef_journal_find(txn, source, &all, err);
    if (status != REEF_OK || reef_journal_is_empty(&all)) return status;
    status = load_snapshot_ids(txn, source, snapshot, &ids, err);
    if (status == REEF_OK) status = go_back(txn, source, &all, &ids, to, err);
    free(ids.payload);
    return status;
}
