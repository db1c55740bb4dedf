// Writing another format version into a pool, behind the store's back.
//
// Needs LMDB and the store's private headers.
#ifndef POOL_VERSION_H
#define POOL_VERSION_H

#include "record.h"
#include "reef_byte_order.h"
#include "reef_store.h"
#include "test.h"

#include <lmdb.h>

static inline MDB_env *raw_open(const char *path) {
    MDB_env *env = NULL;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 32), 0);
    assert_int_equal(mdb_env_open(env, path, 0, 0600), 0);
    return env;
}

static inline void raw_put(
    MDB_env *env, const char *db, void *key, size_t key_bytes, void *data, size_t bytes) {
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    MDB_val k = {.mv_size = key_bytes, .mv_data = key};
    MDB_val v = {.mv_size = bytes, .mv_data = data};
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, db, MDB_CREATE, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
}

/** Make the pool say that its format has this version. */
static inline void put_format(const char *path, uint32_t version, bool with_checksum) {
    const reef_key key = {.db = REEF_DB_META, .name = REEF_FORMAT_NAME};
    reef_key_bytes encoded;
    reef_error err;
    uint8_t record[REEF_RECORD_HEADER_BYTES + 4];
    uint8_t content[REEF_HASH_BYTES];
    assert_int_equal(reef_key_encode(&key, &encoded, &err), REEF_OK);
    reef_put_le32(record + REEF_RECORD_HEADER_BYTES, version);
    reef_record_content_hash(key.db, &encoded, REEF_U32, record + REEF_RECORD_HEADER_BYTES, 4,
                             content);
    reef_record_header_write(record, &key, &encoded, REEF_U32, 0, 4, content);
    if (!with_checksum) record[40] ^= 1;
    MDB_env *env = raw_open(path);
    raw_put(env, "meta", encoded.data, encoded.bytes, record, sizeof(record));
    mdb_env_close(env);
}

#endif
