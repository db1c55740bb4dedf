// Making a pool's directory as a whole or not at all. Private to the store.
#ifndef REEF_POOL_CREATE_H
#define REEF_POOL_CREATE_H

#include "reef_store.h"

/** Put a whole data.mdb, synced, into the directory `staging`. */
typedef reef_status (*reef_pool_fill)(void *context, const char *staging, reef_error *err);

/**
 * Make a pool at `path` of what `fill` makes. What a process left that died while it made a pool
 * here is removed first.
 *
 * writer_fd  written: the writer lock, or -1 after an error; NULL releases it
 * Errors: INVALID when anything else but an empty directory is there; BUSY; FULL; IO; those of
 * `fill`. After an error nothing is left, and the directory is removed if it was made here.
 */
REEF_MUST_CHECK reef_status reef_pool_make(
    const char *path, reef_pool_fill fill, void *context, int *writer_fd, reef_error *err);

/** Open the pool at `path` for writing, change it, close it. */
REEF_MUST_CHECK reef_status reef_pool_change(const char *path,
                                             reef_store_change change,
                                             void *context,
                                             reef_error *err);

/**
 * Make an empty pool at `path`, as a whole or not at all, and take its writer lock.
 *
 * writer_fd  written: the lock, or -1
 * Errors: INVALID when anything but an empty directory is there; BUSY; FULL; IO.
 */
REEF_MUST_CHECK reef_status reef_pool_create(const char *path, int *writer_fd, reef_error *err);

/**
 * The data file of an empty pool in directory `path`, in one LMDB transaction; a reef_pool_fill.
 */
REEF_MUST_CHECK reef_status reef_pool_fill_empty(void *context, const char *path, reef_error *err);

#endif
