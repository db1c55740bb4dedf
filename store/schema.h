// The format version of a pool: written, and recognised. Private to the store.
#ifndef REEF_SCHEMA_H
#define REEF_SCHEMA_H

#include "reef_store.h"

#include <lmdb.h>

/**
 * Does meta say that the pool has our format? VERSION has its number, and of a development
 * version's pool the commit that reads it; CORRUPT: the record is lost or damaged.
 */
REEF_MUST_CHECK reef_status reef_format_check(const char *path,
                                              MDB_txn *txn,
                                              MDB_dbi meta,
                                              reef_error *err);
/** Is the record of the last commit sound, or is there none yet? CORRUPT if it is damaged. */
REEF_MUST_CHECK reef_status reef_last_commit_check(const char *path,
                                                   MDB_env *lmdb,
                                                   MDB_dbi meta,
                                                   reef_error *err);

/** Write the format record and its sum into a new pool's databases. Returns LMDB's code. */
int reef_format_write(MDB_txn *txn, const MDB_dbi dbis[REEF_DB_COUNT]);

/**
 * The only translation of LMDB's codes into ours.
 *
 * bytes_needed  what was being written: EIO on a disk with less than that is a full disk
 * doing         such as "write experts (generation 0, ...)"
 */
reef_status reef_lmdb_fail(
    const char *path, int code, uint64_t bytes_needed, const char *doing, reef_error *err);

#endif
