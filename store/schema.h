// Making a pool, and recognising one: the format version. Private to the store.
#ifndef REEF_POOL_FORMAT_H
#define REEF_POOL_FORMAT_H

#include "reef_store.h"

#include <lmdb.h>

/**
 * Make an empty pool at `path`, as a whole or not at all, and take its writer lock.
 *
 * writer_fd  written: the lock, or -1
 * Errors: INVALID when anything but an empty directory is there; BUSY; FULL; IO.
 */
REEF_MUST_CHECK reef_status reef_pool_create(const char *path, int *writer_fd, reef_error *err);

/** The data file of an empty pool in directory `path`, in one LMDB transaction; a reef_pool_fill. */
REEF_MUST_CHECK reef_status reef_pool_fill_empty(void *context, const char *path, reef_error *err);

/**
 * Does meta hold our format version, and a sound record of the last commit (not looked at with `damaged`)?
 * VERSION has both numbers; INVALID when there is none; CORRUPT.
 */
REEF_MUST_CHECK reef_status
reef_format_check(const char *path, MDB_env *lmdb, MDB_dbi meta, bool damaged, reef_error *err);

/**
 * The one place where LMDB's codes become ours.
 *
 * bytes_needed  what was being written: EIO on a disk with less than that is a full disk
 * doing         such as "write experts (generation 0, ...)"
 */
reef_status reef_lmdb_fail(
    const char *path, int code, uint64_t bytes_needed, const char *doing, reef_error *err);

#endif
