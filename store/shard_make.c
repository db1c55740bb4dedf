// A shard, or a whole pool, made of pools that are one: of a whole pool, or of all shards of
// another number of ranks.
//
//   divided records   from their owner among the sources, those that the new shard owns
//   their sums        of all of them
//   all else          from the first source, rank 0's, whose commits count
//
// Records are copied with the number of the commit that wrote them. Ranks may differ a little in
// how they count commits (rank 0 also commits what is pushed), so the new pool's last commit has
// the largest of their numbers: no record is from its future.
#include "pool_file.h"
#include "reef_shard.h"
#include "shard_view.h"

#include "reef_byte_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES ((uint64_t)64 << 20)   // of one transaction: LMDB holds its pages in memory
#define MAP_SPARE_BYTES ((size_t)1 << 30) // of address space, beside twice what the sources take
#define SHARD_NAME "shard"

// ---- are they one pool? -------------------------------------------------------------------------

static reef_status read_of(reef_store *store, reef_shard_card *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_shard_card){0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_shard_card_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_shards_check(reef_store *const *sources, size_t source_count, reef_error *err) {
    reef_shard_card first, one;
    bool another_epoch;
    reef_status status = read_of(sources[0], &first, err);
    if (status != REEF_OK) return status;
    if (source_count == 1 && first.shard.count == 0) return REEF_OK; // a whole pool
    for (size_t i = 0; status == REEF_OK && i < source_count; i++) {
        status = read_of(sources[i], &one, err);
        if (status == REEF_OK)
            status = reef_shard_card_compare(&first, &one, i, source_count,
                                             reef_store_path(sources[i]), &another_epoch, err);
    }
    return status;
}

// ---- copying ------------------------------------------------------------------------------------

typedef struct making {
    reef_store *const *sources;
    size_t source_count;
    reef_txn **reads; // (source_count)
    const reef_shard *as;
    reef_shard_making *out;
    MDB_env *lmdb; // of what is made; NULL in a plan
    MDB_txn *txn;
    MDB_dbi dbis[REEF_DB_COUNT];
    uint64_t step_bytes; // in `txn`
    reef_commit commit;  // of the first source, with the largest number of all
    const char *to;
} making;

static reef_status target_failed(const making *m, int code, const char *doing, reef_error *err) {
    return reef_lmdb_fail(m->to, code, m->step_bytes, doing, err);
}

static reef_status begin_step(making *m, reef_error *err) {
    if (m->lmdb == NULL) return REEF_OK;
    m->step_bytes = 0;
    int code = mdb_txn_begin(m->lmdb, NULL, 0, &m->txn);
    return code == 0 ? REEF_OK : target_failed(m, code, "begin a transaction", err);
}

static reef_status end_step(making *m, reef_error *err) {
    if (m->txn == NULL) return REEF_OK;
    int code = mdb_txn_commit(m->txn);
    m->txn = NULL;
    return code == 0 ? REEF_OK : target_failed(m, code, "commit", err);
}

static reef_status put(making *m, reef_db db, MDB_val key, MDB_val value, reef_error *err) {
    if (m->lmdb == NULL) return REEF_OK;
    if (m->step_bytes > STEP_BYTES) {
        reef_status status = end_step(m, err);
        if (status == REEF_OK) status = begin_step(m, err);
        if (status != REEF_OK) return status;
    }
    int code = mdb_put(m->txn, m->dbis[db], &key, &value, 0);
    m->step_bytes += value.mv_size;
    return code == 0 ? REEF_OK : target_failed(m, code, "write a record", err);
}

// Which source has a record, and does what is made have it? Only of divided records it matters.
static size_t source_of(const making *m, const reef_key *key) {
    if (m->source_count == 1 || !reef_shard_divides(key)) return 0;
    return reef_shard_owner(key->layer, key->block, (uint32_t)m->source_count);
}

static bool is_wanted(const making *m, const reef_key *key) {
    if (m->as == NULL || !reef_shard_divides(key)) return true;
    return reef_shard_owner(key->layer, key->block, m->as->count) == m->as->rank;
}

// The record as it lies in its source, checked.
static reef_status copy_record(making *m, const reef_key *key, MDB_val encoded, reef_error *err) {
    size_t source = source_of(m, key);
    reef_view view;
    reef_status status = reef_record_view(m->reads[source], key, &view, err);
    if (status != REEF_OK) return status;
    MDB_val value = {.mv_size = REEF_RECORD_HEADER_BYTES + view.bytes,
                     .mv_data = (uint8_t *)(uintptr_t)view.data - REEF_RECORD_HEADER_BYTES};
    m->out->records++;
    m->out->bytes += value.mv_size;
    bool stays = m->source_count > 1 && source == (m->as == NULL ? 0 : m->as->rank);
    if (reef_shard_divides(key) && !stays) m->out->moved_bytes += value.mv_size;
    return put(m, key->db, encoded, value, err);
}

static reef_status on_sum(making *m, const reef_cursor *cursor, reef_error *err) {
    const uint8_t *data = cursor->key.mv_data;
    MDB_val encoded = {.mv_size = cursor->key.mv_size - 1,
                       .mv_data = (uint8_t *)cursor->key.mv_data + 1};
    char name[REEF_NAME_BYTES_MAX + 1];
    uint8_t sum[REEF_SUM_BYTES];
    reef_key key;
    reef_status status =
        reef_key_decode((reef_db)data[0], encoded.mv_data, encoded.mv_size, &key, name, err);
    if (status != REEF_OK) return status;
    // Which shard the source was is not what is made.
    if (key.db == REEF_DB_META && strcmp(name, SHARD_NAME) == 0) return REEF_OK;
    uint64_t commit = 0;
    status = reef_sum_read(m->reads[source_of(m, &key)], &key, &commit, sum + 8, err);
    if (status != REEF_OK) return status;
    // All shards agree about what is in the pool, wherever it lies.
    if (memcmp(sum + 8, (const uint8_t *)cursor->value.mv_data + 8, REEF_HASH_BYTES) != 0)
        return reef_fail(
            err, REEF_ERR_CORRUPT, "%.120s and %.60s do not agree about rows of the pool",
            reef_store_path(m->sources[0]), reef_store_path(m->sources[source_of(m, &key)]));
    reef_put_le64(sum, commit);
    if (is_wanted(m, &key)) status = copy_record(m, &key, encoded, err);
    if (status != REEF_OK) return status;
    return put(m, REEF_DB_SUMS, cursor->key, (MDB_val){.mv_size = sizeof(sum), .mv_data = sum},
               err);
}

static reef_status on_unsummed(making *m, reef_db db, const reef_cursor *cursor, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_key key;
    reef_status status =
        reef_key_decode(db, cursor->key.mv_data, cursor->key.mv_size, &key, name, err);
    return status == REEF_OK ? copy_record(m, &key, cursor->key, err) : status;
}

static reef_status walk(making *m, reef_db db, reef_error *err) {
    reef_cursor cursor;
    reef_status status = reef_cursor_open(&cursor, m->reads[0], db, NULL, 0, err);
    while (status == REEF_OK && !cursor.done) {
        bool sane = db != REEF_DB_SUMS ||
                    (cursor.key.mv_size > 1 && cursor.value.mv_size == REEF_SUM_BYTES &&
                     *(const uint8_t *)cursor.key.mv_data < REEF_DB_COUNT);
        if (!sane)
            status = reef_fail(err, REEF_ERR_CORRUPT, "an entry of sums of pool %s is malformed",
                               reef_store_path(m->sources[0]));
        else
            status =
                db == REEF_DB_SUMS ? on_sum(m, &cursor, err) : on_unsummed(m, db, &cursor, err);
        if (status == REEF_OK) status = reef_cursor_next(&cursor, m->reads[0], err);
    }
    reef_cursor_close(&cursor);
    return status;
}

// The record of the last commit, with a number that no record is behind.
static reef_status put_commit(making *m, reef_error *err) {
    uint8_t payload[REEF_COMMIT_BYTES];
    reef_commit_encode(&m->commit, payload);
    int code = reef_meta_put(m->txn, m->dbis, &reef_commit_key, REEF_BYTES, m->commit.number,
                             payload, sizeof(payload));
    return code == 0 ? REEF_OK : target_failed(m, code, "write a record", err);
}

static reef_status copy_all(making *m, reef_error *err) {
    reef_status status = begin_step(m, err);
    // Sums name every other record, in the order in which they lie.
    if (status == REEF_OK) status = walk(m, REEF_DB_SUMS, err);
    if (status == REEF_OK) status = walk(m, REEF_DB_JOURNAL, err);
    if (status == REEF_OK) status = walk(m, REEF_DB_SERIES, err);
    if (status == REEF_OK && m->lmdb != NULL) status = put_commit(m, err);
    if (status == REEF_OK) status = end_step(m, err);
    mdb_txn_abort(m->txn); // accepts NULL
    m->txn = NULL;
    return status;
}

// ---- what is made -------------------------------------------------------------------------------

static size_t map_bytes(const making *m) {
    size_t bytes = MAP_SPARE_BYTES;
    for (size_t i = 0; i < m->source_count; i++)
        bytes += 2 * reef_lmdb_used_bytes(reef_environment_lmdb(m->sources[i]->environment));
    return bytes;
}

static reef_status open_target(making *m, const char *staging, reef_error *err) {
    MDB_txn *txn = NULL;
    int code = mdb_env_create(&m->lmdb);
    if (code == 0) code = mdb_env_set_maxdbs(m->lmdb, REEF_DB_COUNT);
    if (code == 0) code = mdb_env_set_mapsize(m->lmdb, map_bytes(m));
    if (code == 0) code = mdb_env_open(m->lmdb, staging, 0, 0600);
    if (code == 0) code = mdb_txn_begin(m->lmdb, NULL, 0, &txn);
    for (reef_db db = 0; code == 0 && db < REEF_DB_COUNT; db++)
        code = mdb_dbi_open(txn, reef_db_name(db), 0, &m->dbis[db]);
    if (code == 0)
        code = mdb_txn_commit(txn);
    else
        mdb_txn_abort(txn);
    return code == 0 ? REEF_OK : target_failed(m, code, "open", err);
}

// Which shard it is; and its root, which follows from `sums` alone, is that of the sources.
static reef_status finish(void *context, reef_store *store, reef_error *err) {
    const making *m = context;
    reef_txn *txn = NULL;
    reef_commit commit = m->commit;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    if (m->as == NULL)
        status = reef_root_hash(txn, commit.step, commit.stream_bytes, commit.root, err);
    else
        status = reef_shard_put(txn, m->as, err);
    if (status == REEF_OK && m->as != NULL)
        status = reef_txn_commit(txn, &commit, err);
    else
        reef_txn_abort(txn);
    if (status != REEF_OK || memcmp(commit.root, m->commit.root, sizeof(commit.root)) == 0)
        return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "what was made of %.120s has another root than its last commit: check it with "
                     "reef verify",
                     reef_store_path(m->sources[0]));
}

// A reef_pool_fill.
static reef_status fill(void *context, const char *staging, reef_error *err) {
    making *m = context;
    reef_status status = reef_pool_fill_empty(NULL, staging, err);
    if (status == REEF_OK) status = open_target(m, staging, err);
    if (status == REEF_OK) status = copy_all(m, err);
    mdb_env_close(m->lmdb); // accepts NULL
    m->lmdb = NULL;
    return status == REEF_OK ? reef_pool_change(staging, finish, m, err) : status;
}

static reef_status begin_reads(making *m, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < m->source_count; i++) {
        reef_commit commit;
        status = reef_txn_begin(&m->reads[i], m->sources[i], REEF_TXN_READ, err);
        if (status == REEF_OK) status = reef_commit_read(m->reads[i], &commit, err);
        if (status == REEF_OK && i == 0) m->commit = commit;
        if (status == REEF_OK && commit.number > m->commit.number) m->commit.number = commit.number;
    }
    return status;
}

reef_status reef_shard_make(reef_store *const *sources,
                            size_t source_count,
                            const reef_shard *as,
                            const char *to,
                            reef_shard_making *out,
                            reef_error *err) {
    *out = (reef_shard_making){0};
    making m = {.sources = sources, .source_count = source_count, .as = as, .out = out, .to = to};
    m.reads = calloc(source_count, sizeof(*m.reads));
    if (m.reads == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for shards");
    reef_status status = begin_reads(&m, err);
    if (status == REEF_OK)
        status = to == NULL ? copy_all(&m, err) : reef_pool_make(to, fill, &m, NULL, err);
    for (size_t i = 0; i < source_count; i++) reef_txn_abort(m.reads[i]);
    free(m.reads);
    return status;
}
