// Pools of older formats, as programs made them that knew no other. Format 1 has thirteen
// databases, no `memory` and no `visits`; format 2 lacks `visits`.
//
// Include after <cmocka.h>; needs LMDB and the store's private headers.
#ifndef FIRST_FORMAT_H
#define FIRST_FORMAT_H

#include "reef_store.h"
#include "schema.h"

#include "record.h"

#include <lmdb.h>

#include <sys/stat.h>

/** Make an empty pool of a format that has the databases before `end`. */
static inline void older_format_make(const char *path, uint32_t version, reef_db end) {
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbis[REEF_DB_COUNT] = {0};
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, end), 0);
    assert_int_equal(mdb_env_open(env, path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    for (reef_db db = 0; db < end; db++)
        assert_int_equal(mdb_dbi_open(txn, reef_db_name(db), MDB_CREATE, &dbis[db]), 0);
    assert_int_equal(reef_format_write(txn, dbis, version), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static inline void first_format_make(const char *path) {
    older_format_make(path, 1, REEF_DB_MEMORY);
}

/** How many databases the pool has, whatever their names; no process has it open. */
static inline size_t databases_of(const char *path) {
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    MDB_stat stat;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, REEF_DB_COUNT), 0);
    assert_int_equal(mdb_env_open(env, path, MDB_RDONLY, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_stat(txn, dbi, &stat), 0);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return stat.ms_entries;
}

#endif
