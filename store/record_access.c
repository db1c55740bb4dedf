// Records of a transaction: read, write, remove, and walk in the order of their keys.
//
// A record and its entry in `sums` change together, and a read compares both: the record's own
// checksum finds damage, the commit number and content hash in `sums` find a record that is intact
// but old. A write transaction stamps what it writes with the number of the commit it will become.
// After a write that LMDB refused, the transaction can only be aborted: reef_txn_commit reports
// why.
#include "shard_view.h"

#include "reef_byte_order.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- sums ---------------------------------------------------------------------------------------

typedef struct sum {
    uint64_t commit;
    uint8_t content[REEF_HASH_BYTES];
} sum;

static MDB_val value_of(void *data, size_t bytes) {
    return (MDB_val){.mv_size = bytes, .mv_data = data};
}

static size_t sum_key(reef_db db, const reef_key_bytes *key, uint8_t out[REEF_SUM_KEY_BYTES_MAX]) {
    out[0] = (uint8_t)db;
    memcpy(out + 1, key->data, key->bytes);
    return 1 + key->bytes;
}

// Where a record and its entry in `sums` lie: in the pool, or in one of the shards that are read as
// one.
typedef struct place {
    MDB_txn *lmdb;
    reef_environment *environment;
} place;

static place place_of(const reef_txn *txn, const reef_key *key) {
    if (txn->parts == NULL) return (place){txn->lmdb, txn->environment};
    uint32_t part = reef_view_part_of(txn, key);
    return (place){txn->parts[part], txn->store->parts[part].environment};
}

// MDB_NOTFOUND if the record is missing, MDB_CORRUPTED if it has a wrong length.
static int sum_get(reef_txn *txn, const reef_key *key, const reef_key_bytes *encoded, sum *out) {
    uint8_t bytes[REEF_SUM_KEY_BYTES_MAX];
    place at = place_of(txn, key);
    MDB_val lookup = value_of(bytes, sum_key(key->db, encoded, bytes));
    MDB_val value;
    int code =
        mdb_get(at.lmdb, reef_environment_dbi(at.environment, REEF_DB_SUMS), &lookup, &value);
    if (code != 0) return code;
    // Sums have no checksum of their own; the record's check covers their content.
    if (value.mv_size != REEF_SUM_BYTES) return MDB_CORRUPTED;
    const uint8_t *data = value.mv_data;
    out->commit = reef_get_le64(data);
    memcpy(out->content, data + 8, REEF_HASH_BYTES);
    return 0;
}

static int sum_put(reef_txn *txn, reef_db db, const reef_key_bytes *key, const sum *in) {
    uint8_t bytes[REEF_SUM_KEY_BYTES_MAX];
    uint8_t data[REEF_SUM_BYTES];
    reef_put_le64(data, in->commit);
    memcpy(data + 8, in->content, REEF_HASH_BYTES);
    MDB_val lookup = value_of(bytes, sum_key(db, key, bytes));
    MDB_val value = value_of(data, sizeof(data));
    return mdb_put(txn->lmdb, reef_environment_dbi(txn->environment, REEF_DB_SUMS), &lookup, &value,
                   0);
}

static int sum_delete(reef_txn *txn, reef_db db, const reef_key_bytes *key) {
    uint8_t bytes[REEF_SUM_KEY_BYTES_MAX];
    MDB_val lookup = value_of(bytes, sum_key(db, key, bytes));
    return mdb_del(txn->lmdb, reef_environment_dbi(txn->environment, REEF_DB_SUMS), &lookup, NULL);
}

static reef_status sum_check(reef_txn *txn,
                             const reef_key *key,
                             const reef_key_bytes *encoded,
                             const reef_view *view,
                             const uint8_t content[REEF_HASH_BYTES],
                             reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    sum expected;
    if (!reef_db_summed(key->db)) return REEF_OK;
    int code = sum_get(txn, key, encoded, &expected);
    if (code == 0 && expected.commit == view->commit &&
        memcmp(expected.content, content, REEF_HASH_BYTES) == 0)
        return REEF_OK;
    reef_key_format(key, text);
    if (code == MDB_NOTFOUND)
        return reef_fail(err, REEF_ERR_CORRUPT, "%s: the record has no entry in sums", text);
    if (code != 0) return reef_environment_fail(txn->environment, code, 0, "read sums", err);
    // Reported apart from damage: intact bytes of an older commit mean that a write was lost, that
    // of the record or that of its entry.
    if (expected.commit < view->commit)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%s: its entry in sums is stale: it was written by commit %" PRIu64
                         ", the record by commit %" PRIu64,
                         text, expected.commit, view->commit);
    if (expected.commit > view->commit)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%s: the record is stale: it was written by commit %" PRIu64
                         ", the last change of it by commit %" PRIu64,
                         text, view->commit, expected.commit);
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%s: the record's content differs from its entry in sums", text);
}

reef_status reef_sum_read(reef_txn *txn,
                          const reef_key *key,
                          uint64_t *commit,
                          uint8_t content[REEF_HASH_BYTES],
                          reef_error *err) {
    reef_key_bytes encoded;
    sum entry;
    reef_status status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    int code = sum_get(txn, key, &encoded, &entry);
    if (code != 0) return reef_environment_fail(txn->environment, code, 0, "read sums", err);
    *commit = entry.commit;
    memcpy(content, entry.content, REEF_HASH_BYTES);
    return REEF_OK;
}

reef_status reef_sum_write(reef_txn *txn,
                           const uint8_t *sum_key,
                           size_t sum_key_bytes,
                           const uint8_t *content,
                           reef_error *err) {
    uint8_t key[REEF_SUM_KEY_BYTES_MAX], data[REEF_SUM_BYTES];
    memcpy(key, sum_key, sum_key_bytes);
    MDB_val lookup = value_of(key, sum_key_bytes), value = value_of(data, sizeof(data));
    MDB_dbi sums = reef_environment_dbi(txn->environment, REEF_DB_SUMS);
    int code;
    if (content == NULL) {
        code = mdb_del(txn->lmdb, sums, &lookup, NULL);
    } else {
        reef_put_le64(data, txn->commit);
        memcpy(data + 8, content, REEF_HASH_BYTES);
        code = mdb_put(txn->lmdb, sums, &lookup, &value, 0);
    }
    txn->hashed_changed = true;
    if (code == 0 || (code == MDB_NOTFOUND && content == NULL)) return REEF_OK;
    reef_error reason = {0};
    if (code == MDB_MAP_FULL) reef_environment_map_full(txn->environment);
    reef_status status = reef_environment_fail(txn->environment, code, 0,
                                               "write the sum of another rank's rows", &reason);
    return reef_txn_failed(txn, status, &reason, err);
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status get_failed(
    reef_txn *txn, int code, const reef_key *key, const reef_key_bytes *encoded, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    char doing[REEF_KEY_TEXT_BYTES + 32];
    sum expected;
    reef_key_format(key, text);
    if (code == MDB_NOTFOUND && reef_shard_is_elsewhere(txn, key))
        return reef_shard_fail_elsewhere(txn, key, err);
    // An entry in sums proves that the record once existed, so it is lost and not absent.
    if (code == MDB_NOTFOUND && reef_db_summed(key->db) &&
        sum_get(txn, key, encoded, &expected) == 0)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%s: sums has an entry for it, but the record is lost", text);
    if (code == MDB_NOTFOUND)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "%s is not in pool %s", text, txn->store->path);
    snprintf(doing, sizeof(doing), "read %s", text);
    return reef_environment_fail(txn->environment, code, 0, doing, err);
}

static int record_get(reef_txn *txn, const reef_key *key, reef_key_bytes *encoded, MDB_val *out) {
    MDB_val lookup = value_of(encoded->data, encoded->bytes);
    place at = place_of(txn, key);
    return mdb_get(at.lmdb, reef_environment_dbi(at.environment, key->db), &lookup, out);
}

reef_status reef_record_view(reef_txn *txn, const reef_key *key, reef_view *out, reef_error *err) {
    reef_key_bytes encoded;
    MDB_val value;
    uint8_t content[REEF_HASH_BYTES];
    *out = (reef_view){0};
    reef_status status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    int code = record_get(txn, key, &encoded, &value);
    if (code != 0) return get_failed(txn, code, key, &encoded, err);
    reef_view view;
    status = reef_record_parse(key, &encoded, value.mv_data, value.mv_size, &view, content, err);
    if (status == REEF_OK) status = sum_check(txn, key, &encoded, &view, content, err);
    // Set last, so that bytes which failed a check never reach the caller.
    if (status == REEF_OK) *out = view;
    return status;
}

static reef_status check_size(const reef_key *key, size_t stored, size_t bytes, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    if (stored == bytes) return REEF_OK;
    reef_key_format(key, text);
    return reef_fail(err, REEF_ERR_CORRUPT, "%s has %zu bytes instead of %zu", text, stored, bytes);
}

reef_status reef_record_locate(
    reef_txn *txn, const reef_key *key, size_t bytes, const void **out, reef_error *err) {
    reef_key_bytes encoded;
    MDB_val value;
    *out = NULL;
    reef_status status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    int code = record_get(txn, key, &encoded, &value);
    if (code != 0) return get_failed(txn, code, key, &encoded, err);
    size_t header = REEF_RECORD_HEADER_BYTES;
    status = check_size(key, value.mv_size < header ? 0 : value.mv_size - header, bytes, err);
    if (status == REEF_OK) *out = (const uint8_t *)value.mv_data + header;
    return status;
}

reef_status reef_record_lend(
    reef_txn *txn, const reef_key *key, size_t bytes, reef_lent *out, reef_error *err) {
    reef_view view;
    *out = (reef_lent){0};
    reef_status status = reef_record_view(txn, key, &view, err);
    if (status == REEF_OK) status = check_size(key, view.bytes, bytes, err);
    if (status != REEF_OK) return status;
    out->data = view.data;
    // What this transaction wrote is not in the file yet.
    if (view.commit == txn->commit) return REEF_OK;
    const uint8_t *stays = reef_environment_lend(place_of(txn, key).environment, view.data, bytes);
    if (stays != NULL) *out = (reef_lent){stays, true};
    return REEF_OK;
}

reef_status reef_record_read(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    reef_view view;
    reef_status status = reef_record_view(txn, key, &view, err);
    if (status == REEF_OK) status = check_size(key, view.bytes, bytes, err);
    if (status != REEF_OK) return status;
    if (bytes > 0) memcpy(out, view.data, bytes);
    return REEF_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status put_failed(
    reef_txn *txn, int code, const reef_key *key, size_t bytes, const char *verb, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    char doing[REEF_KEY_TEXT_BYTES + 32];
    reef_error reason = {0};
    if (code == MDB_MAP_FULL) reef_environment_map_full(txn->environment);
    reef_key_format(key, text);
    snprintf(doing, sizeof(doing), "%s %s", verb, text);
    reef_status status = reef_environment_fail(txn->environment, code, bytes, doing, &reason);
    return reef_txn_failed(txn, status, &reason, err);
}

// Is exactly this stored already, intact? A damaged copy is written again.
static bool unchanged(reef_txn *txn,
                      const reef_key *key,
                      reef_key_bytes *encoded,
                      const uint8_t content[REEF_HASH_BYTES]) {
    MDB_val value;
    sum expected = {0};
    reef_view view;
    uint8_t stored[REEF_HASH_BYTES];
    if (reef_db_summed(key->db)) {
        // The small lookup spares the large read whenever the content is new.
        if (sum_get(txn, key, encoded, &expected) != 0) return false;
        if (memcmp(expected.content, content, REEF_HASH_BYTES) != 0) return false;
    }
    if (record_get(txn, key, encoded, &value) != 0) return false;
    if (reef_record_parse(key, encoded, value.mv_data, value.mv_size, &view, stored, NULL) !=
        REEF_OK)
        return false;
    return memcmp(stored, content, REEF_HASH_BYTES) == 0 &&
           (!reef_db_summed(key->db) || view.commit == expected.commit);
}

// Windows of usage depend on the clock and are in no root hash.
static bool in_root_hash(const reef_key *key) {
    if (key->db == REEF_DB_USAGE) return key->level == 0 && key->window == 0;
    return reef_db_hashed(key->db);
}

reef_status reef_record_store(reef_txn *txn,
                              const reef_key *key,
                              reef_dtype dtype,
                              const void *payload,
                              size_t bytes,
                              reef_error *err) {
    reef_key_bytes encoded;
    sum entry = {.commit = txn->commit};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    assert(bytes <= REEF_PAYLOAD_BYTES_MAX);
    if (reef_shard_is_elsewhere(txn, key)) return reef_shard_fail_elsewhere(txn, key, err);
    // Compared before anything is written: unchanged content costs no write and keeps its commit.
    reef_record_content_hash(key->db, &encoded, dtype, payload, bytes, entry.content);
    if (unchanged(txn, key, &encoded, entry.content)) return REEF_OK;

    MDB_val lookup = value_of(encoded.data, encoded.bytes);
    MDB_val value = value_of(NULL, REEF_RECORD_HEADER_BYTES + bytes);
    MDB_dbi dbi = reef_environment_dbi(txn->environment, key->db);
    int code = mdb_put(txn->lmdb, dbi, &lookup, &value, MDB_RESERVE); // filled in place below
    if (code != 0) return put_failed(txn, code, key, bytes, "write", err);
    reef_record_header_write(value.mv_data, key, &encoded, dtype, txn->commit, bytes,
                             entry.content);
    if (bytes > 0) memcpy((uint8_t *)value.mv_data + REEF_RECORD_HEADER_BYTES, payload, bytes);

    if (reef_db_summed(key->db)) {
        code = sum_put(txn, key->db, &encoded, &entry);
        if (code != 0) return put_failed(txn, code, key, bytes, "write the sum of", err);
    }
    txn->bytes_written += bytes;
    // A snapshot in this transaction is then of the coming commit, not of the last one.
    if (in_root_hash(key)) txn->hashed_changed = true;
    return reef_shard_note(txn, key, &encoded, err);
}

reef_status reef_record_remove(reef_txn *txn, const reef_key *key, reef_error *err) {
    reef_key_bytes encoded;
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    MDB_val lookup = value_of(encoded.data, encoded.bytes);
    int code = mdb_del(txn->lmdb, reef_environment_dbi(txn->environment, key->db), &lookup, NULL);
    // Removing what was not there leaves the root as it was.
    if (code == 0 && in_root_hash(key)) txn->hashed_changed = true;
    // A sum without its record goes as well: deleting mends.
    if ((code == 0 || code == MDB_NOTFOUND) && reef_db_summed(key->db))
        code = sum_delete(txn, key->db, &encoded);
    if (code == 0) return reef_shard_note(txn, key, &encoded, err);
    if (code == MDB_NOTFOUND) return REEF_OK;
    return put_failed(txn, code, key, 0, "delete", err);
}

// Who may write what through the public calls. Generations and snapshots have calls of their own.
static reef_status change_check(const reef_txn *txn, const reef_key *key, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    bool ours =
        key->db == REEF_DB_GENERATIONS || key->db == REEF_DB_SNAPSHOTS ||
        (key->db == REEF_DB_META && key->name != NULL &&
         (strcmp(key->name, REEF_COMMIT_NAME) == 0 || strcmp(key->name, REEF_FORMAT_NAME) == 0));
    // They tie other records together, so only calls that keep them consistent may write them.
    if (ours) {
        reef_key_format(key, text);
        return reef_fail(err, REEF_ERR_INVALID, "%s is kept by the store itself", text);
    }
    if (!reef_db_by_generation(key->db)) return REEF_OK;
    reef_key_format(key, text);
    if (key->generation >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot change %s: a pool has at most %u generations", text,
                         REEF_GENERATION_COUNT_MAX);
    if (key->generation < txn->sealed_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot change %s: generation %" PRIu32 " is sealed", text,
                         key->generation);
    return REEF_OK;
}

static reef_status db_check(const reef_key *key, reef_error *err) {
    if (reef_db_has_records(key->db)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "database %d holds no records", (int)key->db);
}

reef_status reef_record_put(reef_txn *txn,
                            const reef_key *key,
                            reef_dtype dtype,
                            const void *payload,
                            size_t bytes,
                            reef_error *err) {
    reef_status status = db_check(key, err);
    if (status == REEF_OK) status = change_check(txn, key, err);
    if (status != REEF_OK) return status;
    if (bytes > REEF_PAYLOAD_BYTES_MAX || (unsigned)dtype > REEF_I8) {
        char text[REEF_KEY_TEXT_BYTES];
        reef_key_format(key, text);
        return reef_fail(err, REEF_ERR_INVALID, "cannot write %s: %zu bytes of dtype %d", text,
                         bytes, (int)dtype);
    }
    return reef_record_store(txn, key, dtype, payload, bytes, err);
}

reef_status reef_record_delete(reef_txn *txn, const reef_key *key, reef_error *err) {
    reef_status status = db_check(key, err);
    if (status == REEF_OK) status = change_check(txn, key, err);
    return status == REEF_OK ? reef_record_remove(txn, key, err) : status;
}

// ---- walking ------------------------------------------------------------------------------------

static reef_status cursor_moved(reef_cursor *cursor, reef_txn *txn, int code, reef_error *err) {
    cursor->done = code != 0;
    if (code == 0 || code == MDB_NOTFOUND) return REEF_OK;
    return reef_environment_fail(txn->environment, code, 0, "walk a database", err);
}

reef_status reef_cursor_open(reef_cursor *cursor,
                             reef_txn *txn,
                             reef_db db,
                             const void *from,
                             size_t from_bytes,
                             reef_error *err) {
    *cursor = (reef_cursor){.done = true};
    bool divided = db == REEF_DB_EXPERTS || db == REEF_DB_MOMENTS;
    if (txn->parts != NULL && divided)
        return reef_view_cursor_open(cursor, txn, db, from, from_bytes, err);
    int code =
        mdb_cursor_open(txn->lmdb, reef_environment_dbi(txn->environment, db), &cursor->lmdb);
    if (code != 0) return reef_environment_fail(txn->environment, code, 0, "walk a database", err);
    uint8_t start[REEF_SUM_KEY_BYTES_MAX];
    assert(from_bytes <= sizeof(start));
    if (from_bytes > 0) memcpy(start, from, from_bytes);
    cursor->key = value_of(start, from_bytes);
    code = mdb_cursor_get(cursor->lmdb, &cursor->key, &cursor->value,
                          from_bytes > 0 ? MDB_SET_RANGE : MDB_FIRST);
    return cursor_moved(cursor, txn, code, err);
}

reef_status reef_cursor_next(reef_cursor *cursor, reef_txn *txn, reef_error *err) {
    if (cursor->view != NULL) return reef_view_cursor_next(cursor, txn, err);
    return cursor_moved(cursor, txn,
                        mdb_cursor_get(cursor->lmdb, &cursor->key, &cursor->value, MDB_NEXT), err);
}

void reef_cursor_close(reef_cursor *cursor) {
    if (cursor->view != NULL) reef_view_cursor_close(cursor);
    if (cursor->lmdb != NULL) mdb_cursor_close(cursor->lmdb);
    cursor->lmdb = NULL;
}

reef_status reef_walk_pass(reef_walk *walk, const reef_key *key, reef_error *err) {
    reef_key_bytes encoded;
    reef_status status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    memcpy(walk->from, encoded.data, encoded.bytes);
    walk->from[encoded.bytes] = 0; // the least key that is greater
    walk->from_bytes = encoded.bytes + 1;
    return REEF_OK;
}

reef_status reef_walk_next(reef_walk *walk, reef_txn *txn, reef_error *err) {
    reef_cursor cursor;
    reef_status status =
        reef_cursor_open(&cursor, txn, walk->db, walk->from, walk->from_bytes, err);
    walk->done = status != REEF_OK || cursor.done;
    if (!walk->done) {
        status = reef_key_decode(walk->db, cursor.key.mv_data, cursor.key.mv_size, &walk->key,
                                 walk->name, err);
        walk->bytes = cursor.value.mv_size;
    }
    reef_cursor_close(&cursor);
    return walk->done || status != REEF_OK ? status : reef_walk_pass(walk, &walk->key, err);
}

reef_status reef_db_last_u32(
    reef_txn *txn, reef_db db, uint32_t limit, uint32_t *out, reef_error *err) {
    uint8_t from[4];
    reef_cursor cursor;
    reef_put_be32(from, limit);
    reef_status status = reef_cursor_open(&cursor, txn, db, from, sizeof(from), err);
    if (status == REEF_OK) {
        // The cursor stands on the first key at or above the limit, so the one before it is wanted.
        int code = mdb_cursor_get(cursor.lmdb, &cursor.key, &cursor.value,
                                  cursor.done ? MDB_LAST : MDB_PREV);
        if (code == MDB_NOTFOUND)
            status = REEF_ERR_NOT_FOUND;
        else if (code != 0)
            status = reef_environment_fail(txn->environment, code, 0, "find the last record", err);
        else if (cursor.key.mv_size < 4)
            status = reef_fail(err, REEF_ERR_CORRUPT, "a key of %s is malformed", reef_db_name(db));
        else
            *out = reef_get_be32(cursor.key.mv_data);
    }
    reef_cursor_close(&cursor);
    return status;
}

reef_status reef_record_verify(reef_txn *txn,
                               reef_db db,
                               const reef_cursor *cursor,
                               reef_key *key,
                               char name[REEF_NAME_BYTES_MAX + 1],
                               reef_view *view,
                               reef_error *err) {
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    reef_status status =
        reef_key_decode(db, cursor->key.mv_data, cursor->key.mv_size, key, name, err);
    if (status == REEF_OK) status = reef_key_encode(key, &encoded, err);
    if (status == REEF_OK)
        status = reef_record_parse(key, &encoded, cursor->value.mv_data, cursor->value.mv_size,
                                   view, content, err);
    if (status == REEF_OK) status = sum_check(txn, key, &encoded, view, content, err);
    return status;
}

// The content hash is the one in sums, and the header's checksum covers it.
reef_status reef_record_verify_header(reef_txn *txn,
                                      const reef_cursor *cursor,
                                      const reef_key *key,
                                      reef_view *view,
                                      reef_error *err) {
    reef_key_bytes encoded;
    sum expected = {0};
    reef_status status = reef_key_encode(key, &encoded, err);
    if (status != REEF_OK) return status;
    int code = sum_get(txn, key, &encoded, &expected);
    if (code != 0) return sum_check(txn, key, &encoded, view, expected.content, err);
    status = reef_record_parse_header(key, &encoded, cursor->value.mv_data, cursor->value.mv_size,
                                      expected.content, view, err);
    return status == REEF_OK ? sum_check(txn, key, &encoded, view, expected.content, err) : status;
}

reef_status reef_record_scan(reef_txn *txn,
                             reef_db db,
                             uint32_t generation,
                             reef_record_visit visit,
                             void *context,
                             reef_error *err) {
    reef_cursor cursor;
    uint8_t from[4];
    bool all = generation == UINT32_MAX;
    reef_status status = db_check(&(reef_key){.db = db}, err);
    if (status != REEF_OK) return status;
    if (!all && !reef_db_by_generation(db) && db != REEF_DB_USAGE)
        return reef_fail(err, REEF_ERR_INVALID, "records of %s belong to no generation",
                         reef_db_name(db));
    bool seek =
        !all && reef_db_by_generation(db); // usage is in order of windows: every key must be read
    reef_put_be32(from, generation);
    status = reef_cursor_open(&cursor, txn, db, from, seek ? sizeof(from) : 0, err);
    while (status == REEF_OK && !cursor.done) {
        reef_key key;
        reef_view view;
        char name[REEF_NAME_BYTES_MAX + 1];
        status = reef_key_decode(db, cursor.key.mv_data, cursor.key.mv_size, &key, name, err);
        // Keys are in order of generations here, so the first of another one ends the walk.
        if (status != REEF_OK || (seek && key.generation != generation)) break;
        if (all || key.generation == generation) {
            status = reef_record_verify(txn, db, &cursor, &key, name, &view, err);
            if (status == REEF_OK) status = visit(context, &key, &view, err);
        }
        if (status == REEF_OK) status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

// The first damaged record at or after `from`, whose bytes become its own.
static reef_status find_damaged(
    reef_txn *txn, reef_db db, reef_key_bytes *from, reef_key *key, char *name, reef_error *err) {
    reef_cursor cursor;
    reef_view view;
    reef_error damage;
    reef_status status = reef_cursor_open(&cursor, txn, db, from->data, from->bytes, err);
    while (status == REEF_OK && !cursor.done) {
        status = reef_key_decode(db, cursor.key.mv_data, cursor.key.mv_size, key, name, err);
        if (status != REEF_OK) break;
        status = reef_record_verify(txn, db, &cursor, key, name, &view, &damage);
        if (status == REEF_ERR_CORRUPT) {
            reef_cursor_close(&cursor);
            return reef_key_encode(key, from, err);
        }
        if (status != REEF_OK) *err = damage;
        if (status == REEF_OK) status = reef_cursor_next(&cursor, txn, err);
    }
    bool done = status == REEF_OK;
    reef_cursor_close(&cursor);
    return done ? REEF_ERR_NOT_FOUND : status;
}

reef_status reef_record_drop_damaged(reef_txn *txn, reef_db db, size_t *dropped, reef_error *err) {
    reef_key_bytes from = {.bytes = 0};
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    *dropped = 0;
    for (;;) {
        reef_status status = find_damaged(txn, db, &from, &key, name, err);
        if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
        if (status == REEF_OK) status = reef_record_delete(txn, &key, err);
        if (status != REEF_OK) return status;
        ++*dropped;
    }
}
