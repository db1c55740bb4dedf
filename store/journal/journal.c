// The journal: bytes that clients pushed, from their acknowledgement until training has taken them.
//
// The records of a source lie together, under its name:
//
//   sequence 1, 2, ...   entries, without a gap:   trimmed ... trimmed | whole ... whole
//                                                                      '-- holds the cursor
//   sequence 2^64 - 1    the shift, u64; only after a snapshot was restored
//
//   an entry   0  u64  begin: position of its first byte in the journal
//              8  u64  length of its bytes
//             16  u64  when it was accepted, unix ms
//             24  u64  XXH3-64 of its bytes
//             32  u32  bytes of the id
//             36       id, then its bytes; a trimmed one has none
//
// Entries only come at the end and are only trimmed from the beginning, so what a position belongs
// to is found by bisection, and nothing about the journal has to be remembered in memory. Trimmed
// entries stay until REEF_JOURNAL_IDS_MAX others came after them: they hold the ids by which a
// batch that is sent again is known.
//
// A position of what has its bytes stays what it is. The trainer's cursor goes back when a snapshot
// is restored; from then on the shift lies between the two (journal_dedup.c).
#include "journal.h"

#include "reef_byte_order.h"

#include <xxhash.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- one entry ----------------------------------------------------------------------------------

bool reef_journal_entry_parse(reef_journal_entry *entry,
                              uint64_t sequence,
                              const void *payload,
                              size_t bytes) {
    const uint8_t *at = payload;
    if (bytes < REEF_JOURNAL_HEAD_BYTES) return false;
    *entry = (reef_journal_entry){.sequence = sequence,
                                  .begin = reef_get_le64(at),
                                  .length = reef_get_le64(at + 8),
                                  .unix_ms = reef_get_le64(at + 16),
                                  .content = reef_get_le64(at + 24),
                                  .id = (const char *)at + REEF_JOURNAL_HEAD_BYTES,
                                  .id_bytes = reef_get_le32(at + 32)};
    size_t left = bytes - REEF_JOURNAL_HEAD_BYTES;
    if (entry->id_bytes > REEF_JOURNAL_ID_BYTES_MAX || entry->id_bytes > left) return false;
    if (entry->length < 1 || entry->length > REEF_JOURNAL_BATCH_BYTES_MAX) return false;
    // The end is begin + length everywhere, and must not wrap.
    if (entry->begin > UINT64_MAX - entry->length) return false;
    left -= entry->id_bytes;
    // A trained entry keeps its header and id only, so its bytes are all there or none.
    if (left == entry->length)
        entry->bytes = at + REEF_JOURNAL_HEAD_BYTES + entry->id_bytes;
    else if (left != 0)
        return false;
    return true;
}

void reef_journal_head_put(uint8_t out[REEF_JOURNAL_HEAD_BYTES], const reef_journal_entry *entry) {
    reef_put_le64(out, entry->begin);
    reef_put_le64(out + 8, entry->length);
    reef_put_le64(out + 16, entry->unix_ms);
    reef_put_le64(out + 24, entry->content);
    reef_put_le32(out + 32, entry->id_bytes);
}

uint64_t reef_journal_content(const uint8_t *bytes, size_t count) {
    return XXH3_64bits(bytes, count);
}

static reef_key entry_key(const char *source, uint64_t sequence) {
    return (reef_key){.db = REEF_DB_JOURNAL, .name = source, .sequence = sequence};
}

static reef_status no_entry(const char *source, uint64_t sequence, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    const reef_key key = entry_key(source, sequence);
    reef_key_format(&key, text);
    return reef_fail(err, REEF_ERR_CORRUPT, "%s is not an entry of a journal; see reef verify",
                     text);
}

reef_status reef_journal_peek(reef_txn *txn,
                              const char *source,
                              uint64_t sequence,
                              reef_journal_entry *entry,
                              reef_error *err) {
    reef_key_bytes encoded;
    const reef_key key = entry_key(source, sequence);
    reef_status status = reef_key_encode(&key, &encoded, err);
    if (status != REEF_OK) return status;
    MDB_val value, lookup = {.mv_size = encoded.bytes, .mv_data = encoded.data};
    int code = mdb_get(txn->lmdb, reef_environment_dbi(txn->environment, REEF_DB_JOURNAL), &lookup,
                       &value);
    if (code != 0 && code != MDB_NOTFOUND)
        return reef_environment_fail(txn->environment, code, 0, "read the journal", err);
    // Its checksum is not compared: bisection would then read whole batches.
    if (code != 0 || value.mv_size < REEF_RECORD_HEADER_BYTES ||
        !reef_journal_entry_parse(entry, sequence,
                                  (const uint8_t *)value.mv_data + REEF_RECORD_HEADER_BYTES,
                                  value.mv_size - REEF_RECORD_HEADER_BYTES))
        return no_entry(source, sequence, err);
    return REEF_OK;
}

reef_status reef_journal_store(reef_txn *txn,
                               const char *source,
                               const reef_journal_entry *entry,
                               reef_error *err) {
    size_t kept = entry->bytes == NULL ? 0 : (size_t)entry->length;
    size_t bytes = REEF_JOURNAL_HEAD_BYTES + entry->id_bytes + kept;
    uint8_t *payload = malloc(bytes);
    if (payload == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the journal");
    reef_journal_head_put(payload, entry);
    if (entry->id_bytes > 0) memcpy(payload + REEF_JOURNAL_HEAD_BYTES, entry->id, entry->id_bytes);
    // Without bytes it is a trained entry, which is kept for its id.
    if (kept > 0) memcpy(payload + REEF_JOURNAL_HEAD_BYTES + entry->id_bytes, entry->bytes, kept);
    const reef_key key = entry_key(source, entry->sequence);
    reef_status status = reef_record_store(txn, &key, REEF_BYTES, payload, bytes, err);
    free(payload);
    return status;
}

// ---- all entries of a source --------------------------------------------------------------------

static reef_status read_shift(reef_txn *txn, const char *source, uint64_t *out, reef_error *err) {
    reef_view view;
    const reef_key key = entry_key(source, REEF_JOURNAL_SHIFT_SEQUENCE);
    *out = 0;
    reef_status status = reef_record_view(txn, &key, &view, err);
    // Only a restored pool has one: else positions of pool and journal agree.
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    if (view.bytes != 8) return no_entry(source, REEF_JOURNAL_SHIFT_SEQUENCE, err);
    *out = reef_get_le64(view.data);
    return REEF_OK;
}

// The sequence under the cursor; false if the record is not an entry of the source.
static bool stands_on(const reef_cursor *cursor, const char *source, uint64_t *sequence) {
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    if (cursor->done || reef_key_decode(REEF_DB_JOURNAL, cursor->key.mv_data, cursor->key.mv_size,
                                        &key, name, NULL) != REEF_OK)
        return false;
    *sequence = key.sequence;
    return strcmp(name, source) == 0 && key.sequence > 0 &&
           key.sequence < REEF_JOURNAL_SHIFT_SEQUENCE;
}

// The first entry at or after a sequence, or the last one before it.
static reef_status seek(reef_txn *txn,
                        const char *source,
                        uint64_t sequence,
                        bool before,
                        uint64_t *out,
                        bool *found,
                        reef_error *err) {
    reef_cursor cursor;
    reef_key_bytes encoded;
    const reef_key key = entry_key(source, sequence);
    reef_status status = reef_key_encode(&key, &encoded, err);
    if (status != REEF_OK) return status;
    status = reef_cursor_open(&cursor, txn, REEF_DB_JOURNAL, encoded.data, encoded.bytes, err);
    if (status == REEF_OK && before) {
        // Past the last record the cursor stands nowhere; the one before it is then the last of
        // all.
        int code = mdb_cursor_get(cursor.lmdb, &cursor.key, &cursor.value,
                                  cursor.done ? MDB_LAST : MDB_PREV);
        cursor.done = code != 0;
        if (code != 0 && code != MDB_NOTFOUND)
            status = reef_environment_fail(txn->environment, code, 0, "read the journal", err);
    }
    *found = status == REEF_OK && stands_on(&cursor, source, out);
    reef_cursor_close(&cursor);
    return status;
}

typedef bool (*condition)(const reef_journal_entry *entry, uint64_t limit);

static bool is_whole(const reef_journal_entry *entry, uint64_t limit) {
    (void)limit;
    return entry->bytes != NULL;
}

static bool ends_after(const reef_journal_entry *entry, uint64_t limit) {
    return reef_journal_end(entry) > limit;
}

// The first entry of `low` .. `high` - 1 that meets a condition that all after it meet, too; else
// `high`.
static reef_status bisect(reef_txn *txn,
                          const char *source,
                          uint64_t low,
                          uint64_t high,
                          condition meets,
                          uint64_t limit,
                          uint64_t *out,
                          reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && low < high) {
        reef_journal_entry entry;
        uint64_t middle = low + (high - low) / 2;
        // Sequences have no gaps, so the middle always exists.
        status = reef_journal_peek(txn, source, middle, &entry, err);
        if (status != REEF_OK) break;
        if (meets(&entry, limit))
            high = middle;
        else
            low = middle + 1;
    }
    *out = low;
    return status;
}

reef_status reef_journal_find(reef_txn *txn,
                              const char *source,
                              reef_journal_span *out,
                              reef_error *err) {
    bool some = false;
    *out = (reef_journal_span){.first = 1, .whole = 1};
    reef_status status = read_shift(txn, source, &out->shift, err);
    if (status == REEF_OK) status = seek(txn, source, 1, false, &out->first, &some, err);
    if (status != REEF_OK || !some) {
        out->first = 1;
        return status;
    }
    // The shift has the highest sequence of a source, so the last entry is before it.
    status = seek(txn, source, REEF_JOURNAL_SHIFT_SEQUENCE, true, &out->last, &some, err);
    if (status == REEF_OK && !some) return no_entry(source, out->first, err);
    if (status == REEF_OK)
        status = bisect(txn, source, out->first, out->last + 1, is_whole, 0, &out->whole, err);
    return status;
}

reef_status reef_journal_ends(reef_txn *txn,
                              const char *source,
                              const reef_journal_span *all,
                              reef_journal_entry *last,
                              uint64_t *begin,
                              reef_error *err) {
    reef_journal_entry whole;
    reef_status status = reef_journal_peek(txn, source, all->last, last, err);
    if (status != REEF_OK) return status;
    *begin = reef_journal_end(last);
    if (all->whole > all->last) return REEF_OK;
    status = reef_journal_peek(txn, source, all->whole, &whole, err);
    *begin = whole.begin;
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

reef_status reef_journal_entry_view(reef_txn *txn,
                                    const char *source,
                                    uint64_t sequence,
                                    reef_journal_entry *entry,
                                    reef_error *err) {
    reef_view view;
    const reef_key key = entry_key(source, sequence);
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return no_entry(source, sequence, err);
    if (status != REEF_OK) return status;
    return reef_journal_entry_parse(entry, sequence, view.data, view.bytes)
               ? REEF_OK
               : no_entry(source, sequence, err);
}

// The journal does not reach from the trainer's cursor on: something was lost.
static reef_status torn(const char *source, uint64_t position, const char *why, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the pool has read %s up to byte %" PRIu64
                     ", but its journal %s: see reef verify, or restore a snapshot",
                     source, position, why);
}

static reef_status copy_out(reef_txn *txn,
                            const char *source,
                            const reef_journal_span *all,
                            uint64_t position,
                            uint8_t *bytes,
                            size_t room,
                            size_t *count,
                            reef_error *err) {
    uint64_t at = position + all->shift, sequence;
    reef_status status =
        bisect(txn, source, all->first, all->last + 1, ends_after, at, &sequence, err);
    for (; status == REEF_OK && *count < room && sequence <= all->last; sequence++) {
        reef_journal_entry entry;
        status = reef_journal_entry_view(txn, source, sequence, &entry, err);
        if (status != REEF_OK) break;
        // The position lies before the first whole entry: its bytes were trimmed as trained.
        if (entry.bytes == NULL) return torn(source, position, "holds later bytes only", err);
        // Checked at every entry: bytes after a gap would silently be another stream.
        if (entry.begin > at || reef_journal_end(&entry) <= at)
            return torn(source, position, "has a gap", err);
        size_t skip = (size_t)(at - entry.begin), take = (size_t)entry.length - skip;
        if (take > room - *count) take = room - *count;
        memcpy(bytes + *count, entry.bytes + skip, take);
        *count += take;
        at += take;
    }
    return status;
}

reef_status reef_journal_read(reef_store *store,
                              const char *source,
                              uint64_t position,
                              uint8_t *bytes,
                              size_t room,
                              size_t *count,
                              reef_error *err) {
    reef_txn *txn = NULL;
    reef_journal_entry last;
    reef_journal_span all;
    *count = 0;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_journal_find(txn, source, &all, err);
    if (status == REEF_OK && !reef_journal_is_empty(&all)) {
        status = reef_journal_peek(txn, source, all.last, &last, err);
        if (status == REEF_OK && position + all.shift > reef_journal_end(&last))
            status = torn(source, position, "ends before", err);
        if (status == REEF_OK)
            status = copy_out(txn, source, &all, position, bytes, room, count, err);
    }
    reef_txn_abort(txn);
    // All or nothing: after a failure no part of a read may be trained.
    if (status != REEF_OK) *count = 0;
    return status;
}

reef_status reef_journal_survey(reef_txn *txn,
                                const char *source,
                                reef_journal_stat *out,
                                reef_error *err) {
    reef_journal_span all;
    reef_journal_entry last;
    uint64_t begin;
    *out = (reef_journal_stat){0};
    reef_status status = reef_journal_find(txn, source, &all, err);
    if (status != REEF_OK || reef_journal_is_empty(&all)) return status;
    status = reef_journal_ends(txn, source, &all, &last, &begin, err);
    if (status != REEF_OK) return status;
    // Where all is trained nothing waits, and the beginning is the end.
    *out = (reef_journal_stat){.entries = all.last + 1 - all.whole,
                               .begin = reef_journal_in_source(&all, begin),
                               .end = reef_journal_in_source(&all, reef_journal_end(&last)),
                               .entries_known = all.last + 1 - all.first,
                               .last_ms = last.unix_ms};
    return REEF_OK;
}

// ---- trimming -----------------------------------------------------------------------------------

// Write an entry without its bytes.
static reef_status shorten(reef_txn *txn, const char *source, uint64_t sequence, reef_error *err) {
    reef_journal_entry entry;
    reef_status status = reef_journal_peek(txn, source, sequence, &entry, err);
    if (status != REEF_OK) return status;
    entry.bytes = NULL;
    return reef_journal_store(txn, source, &entry, err);
}

reef_status reef_journal_trim(reef_txn *txn, const char *source, uint64_t cursor, reef_error *err) {
    reef_journal_span all;
    uint64_t trained; // the first entry that ends after the cursor
    reef_status status = reef_journal_find(txn, source, &all, err);
    if (status != REEF_OK || reef_journal_is_empty(&all)) return status;
    status =
        bisect(txn, source, all.whole, all.last + 1, ends_after, cursor + all.shift, &trained, err);
    // The last entries keep their ids, by which a batch that is sent again is recognised.
    uint64_t known = reef_journal_known(&all);
    for (uint64_t s = all.first; status == REEF_OK && s < trained && s < known; s++) {
        const reef_key key = entry_key(source, s);
        status = reef_record_remove(txn, &key, err);
    }
    // Trained entries among these lose their bytes and keep header and id.
    for (uint64_t s = all.whole > known ? all.whole : known; status == REEF_OK && s < trained; s++)
        status = shorten(txn, source, s, err);
    return status;
}
