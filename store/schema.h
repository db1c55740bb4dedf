// The format version of a pool: written, and recognised. Private to the store.
#ifndef REEF_SCHEMA_H
#define REEF_SCHEMA_H

#include "reef_store.h"

#include <lmdb.h>

/**
 * Does meta hold one of our format versions, and a sound record of the last commit (not read with
 * `damaged`)? VERSION has its number and ours; INVALID if there is neither; CORRUPT.
 *
 * version  written: that of the pool
 */
REEF_MUST_CHECK reef_status reef_format_check(const char *path,
                                              MDB_env *lmdb,
                                              MDB_dbi meta,
                                              bool damaged,
                                              uint32_t *version,
                                              reef_error *err);

/** Write the format record and its sum into a new pool's databases. Returns LMDB's code. */
int reef_format_write(MDB_txn *txn, const MDB_dbi dbis[REEF_DB_COUNT], uint32_t version);

/**
 * The only translation of LMDB's codes into ours.
 *
 * bytes_needed  what was being written: EIO on a disk with less than that is a full disk
 * doing         such as "write experts (generation 0, ...)"
 */
reef_status reef_lmdb_fail(
    const char *path, int code, uint64_t bytes_needed, const char *doing, reef_error *err);

#endif
