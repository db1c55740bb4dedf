// The pool's directory and files, read without mapping them. Private to the store.
#ifndef REEF_POOL_FILE_H
#define REEF_POOL_FILE_H

#include "reef_error.h"

#include <stdbool.h>
#include <stdint.h>
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

/** Free bytes of the file system that holds `path`, as this user sees it; UINT64_MAX if unknown. */
uint64_t reef_disk_free_bytes(const char *path);

#endif
