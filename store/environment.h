// One LMDB environment per pool and process, shared by every open store. Private to the store.
#ifndef REEF_ENVIRONMENT_H
#define REEF_ENVIRONMENT_H

#include "reef_store.h"

#include <lmdb.h>

typedef struct reef_environment reef_environment;

/** A store's wishes, with defaults filled in. */
typedef struct reef_environment_options {
    bool create, write, damaged, no_sync;
    uint64_t map_bytes;
} reef_environment_options;

/**
 * Open the pool's environment, or share the one this process already has. Errors:
 * reef_store_open's.
 */
REEF_MUST_CHECK reef_status reef_environment_open(reef_environment **out,
                                                  const char *path,
                                                  const reef_environment_options *options,
                                                  reef_error *err);
/** Release; `write` as at open. The last one out closes. */
void reef_environment_close(reef_environment *environment, bool write);

const char *reef_environment_path(const reef_environment *environment);
MDB_env *reef_environment_lmdb(const reef_environment *environment);
/** The handle of a database. */
MDB_dbi reef_environment_dbi(const reef_environment *environment, reef_db db);

/**
 * Begin an LMDB transaction. First reopens the environment after a failed commit, and before a
 * write grows the map when less than a quarter of it is free.
 *
 * Errors: BUSY a write transaction of this process is running, no reader slot is free, or other
 * transactions of this process stand in the way of a reopening; IO.
 */
REEF_MUST_CHECK reef_status reef_environment_begin(reef_environment *environment,
                                                   bool write,
                                                   MDB_txn **out,
                                                   reef_error *err);
/** A transaction of this environment has ended. */
void reef_environment_end(reef_environment *environment, bool write);
/** A read transaction of so many nanoseconds has ended. */
void reef_environment_note_read(reef_environment *environment, uint64_t ns);
void reef_environment_read_stat(reef_environment *environment, reef_read_stat *out);
/** A commit failed: LMDB may refuse everything until the environment is reopened. */
void reef_environment_break(reef_environment *environment);
/** The map was full in a transaction: the next write transaction gets a larger one. */
void reef_environment_map_full(reef_environment *environment);

/** reef_lmdb_fail with the pool's path. */
reef_status reef_environment_fail(const reef_environment *environment,
                                  int code,
                                  uint64_t bytes_needed,
                                  const char *doing,
                                  reef_error *err);

#endif
