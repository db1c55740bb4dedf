// The pool's directory and files: read without mapping them, made as a whole or not at all, and the
// format that `meta` says they have. Private to the store.
#ifndef REEF_POOL_FILE_H
#define REEF_POOL_FILE_H

#include "reef_store.h"

#include <lmdb.h>
#include <sys/types.h>

/** `path` and a file name in it, on the heap; NULL when out of memory. */
char *reef_pool_file_path(const char *path, const char *file);

/**
 * Make the directory for a new pool, or accept an existing one that is empty or has only what a
 * process left that died while it made a pool there.
 *
 * made  written: whether the directory was made here
 * Errors: INVALID when anything else is there, or the directory above is a pool; FULL, IO.
 */
REEF_MUST_CHECK reef_status reef_pool_directory_make(const char *path, bool *made, reef_error *err);

/** INVALID when the directory has come to hold a pool in the meantime. */
REEF_MUST_CHECK reef_status reef_pool_file_absent(const char *path, reef_error *err);

/**
 * A subdirectory to make the pool's files in; its path on the heap. Called with the writer lock
 * held.
 */
REEF_MUST_CHECK reef_status reef_pool_staging_make(const char *path,
                                                   char **staging,
                                                   reef_error *err);
/** Move the data file into place, remove the subdirectory, and make all of it durable. */
REEF_MUST_CHECK reef_status reef_pool_staging_leave(const char *path,
                                                    const char *staging,
                                                    reef_error *err);

/**
 * Remove that subdirectory and its files, where a process died and left them. With the writer lock
 * held.
 */
void reef_pool_staging_sweep(const char *path);

/** Undo a creation that failed half-way: remove the files, and the directory if `made`. */
void reef_pool_directory_unmake(const char *path, bool made);

/** Device and inode of the data file. Errors: NOT_FOUND no such path; INVALID no pool; IO. */
REEF_MUST_CHECK reef_status reef_pool_file_identify(const char *path,
                                                    dev_t *device,
                                                    ino_t *inode,
                                                    reef_error *err);

/**
 * Is the data file safe to map? LMDB trusts what it reads: a file that is shorter than its tree is
 * SIGBUS later, a broken root page anything at all. Both are found here with pread.
 *
 * Errors: INVALID no LMDB file, or none with our databases; VERSION another LMDB format; CORRUPT
 * truncated, or a damaged page near the roots; IO.
 */
REEF_MUST_CHECK reef_status reef_pool_file_check(const char *path, reef_error *err);

/**
 * Give LMDB's lock file all its blocks. LMDB writes to it through a shared map, which on a full
 * disk would be SIGBUS. Only while this process has the environment closed: closing any descriptor
 * of the file drops the process's POSIX locks on it. *read_only is set when the file cannot be
 * written.
 */
REEF_MUST_CHECK reef_status reef_pool_lock_reserve(const char *path,
                                                   bool *read_only,
                                                   reef_error *err);

/**
 * Take the pool's writer lock; close *fd to release it. BUSY names the pool and the holder's pid.
 */
REEF_MUST_CHECK reef_status reef_writer_lock(const char *path, int *fd, reef_error *err);
void reef_writer_unlock(int fd); // accepts -1
/**
 * BUSY when a process has the pool open for writing right now. For readers that LMDB cannot
 * register, since the pool's file system is read-only for them: the writer would use pages again
 * that they read.
 */
REEF_MUST_CHECK reef_status reef_writer_absent(const char *path, reef_error *err);
/**
 * Does a process of this machine live that has said it writes to the pool? For who waits for it.
 */
bool reef_writer_is_here(const char *path);
/** "pool ... is open for writing by process ..." */
REEF_MUST_CHECK reef_status reef_writer_busy(const char *path, long pid, reef_error *err);

/** "no right to open ... of pool ...: it is owned by ...". Returns IO. */
REEF_MUST_CHECK reef_status reef_pool_access_fail(const char *path,
                                                  const char *doing,
                                                  reef_error *err);

/** Sync the directory that holds `path`. */
REEF_MUST_CHECK reef_status reef_parent_sync(const char *path, reef_error *err);

/** Bytes of the pages that an environment uses, or used; 0 if unknown. */
uint64_t reef_lmdb_used_bytes(MDB_env *lmdb);
/** Free bytes of the file system that holds `path`, as this user sees it; UINT64_MAX if unknown. */
uint64_t reef_disk_free_bytes(const char *path);

// ---- making a pool ------------------------------------------------------------------------------

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
 * The data file of an empty pool in directory `path`, in one LMDB transaction; a reef_pool_fill.
 */
REEF_MUST_CHECK reef_status reef_pool_fill_empty(void *context, const char *path, reef_error *err);

// ---- its format, and LMDB's codes ---------------------------------------------------------------

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

/**
 * Write a record of meta, of at most 56 bytes, and its sum into databases that are open in no
 * store.
 * Returns LMDB's code.
 */
int reef_meta_put(MDB_txn *txn,
                  const MDB_dbi dbis[REEF_DB_COUNT],
                  const reef_key *key,
                  reef_dtype dtype,
                  uint64_t commit,
                  const void *payload,
                  size_t bytes);
/** The format record, into a new pool. */
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
