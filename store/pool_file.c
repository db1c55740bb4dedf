// The pool's directory and files, read without mapping them.
//
// A pool is a directory:
//
//   data.mdb     LMDB's data file; two meta pages, then the pages of its trees
//   lock.mdb     LMDB's reader table
//   writer.lock  flock()ed for the life of the one writer; holds its pid in text
//
// Before each open the meta pages, the list of databases, their root pages and the whole of `meta`
// are read with pread and checked (page_reader.c); deeper pages are left to reef_store_verify,
// which walks them in a child process.
#define _DEFAULT_SOURCE // for realpath

#include "pool_file.h"
#include "reef_system.h"

#include "page_reader.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_fail_point.h"
#include "reef_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_FILE "lock.mdb"
#define WRITER_FILE "writer.lock"
#define STAGING "unfinished" // where a pool is made, until it is whole

static reef_status no_memory(const char *path, reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while opening pool %s", path);
}

static reef_status fail_errno(reef_error *err, const char *doing, const char *path) {
    int code = errno;
    reef_status status = code == ENOSPC || code == EDQUOT    ? REEF_ERR_FULL
                         : code == ENOENT || code == ENOTDIR ? REEF_ERR_NOT_FOUND
                         : code == ENOMEM                    ? REEF_ERR_NO_MEMORY
                                                             : REEF_ERR_IO;
    return reef_fail(err, status, "cannot %s %s: %s", doing, path, strerror(code));
}

uint64_t reef_disk_free_bytes(const char *path) {
    struct statvfs disk;
    if (statvfs(path, &disk) != 0) return UINT64_MAX;
    // The superuser may also use the blocks that are kept back for it.
    uint64_t blocks = geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
    return blocks * disk.f_frsize;
}

uint64_t reef_lmdb_used_bytes(MDB_env *lmdb) {
    MDB_envinfo info;
    MDB_stat stat;
    if (mdb_env_info(lmdb, &info) != 0 || mdb_env_stat(lmdb, &stat) != 0) return 0;
    return ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

// ---- creating -----------------------------------------------------------------------------------

// What lies in a directory.
typedef struct listing {
    bool staging, writer; // STAGING, WRITER_FILE
    bool pool;            // any other name of a pool's file
    bool foreign;         // any other name at all
} listing;

static void note_name(listing *all, const char *name) {
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return;
    // Leftovers of a creator that died do not make a directory foreign.
    if (strcmp(name, STAGING) == 0)
        all->staging = true;
    else if (strcmp(name, WRITER_FILE) == 0)
        all->writer = true;
    else if (strcmp(name, DATA_FILE) == 0 || strcmp(name, LOCK_FILE) == 0)
        all->pool = true;
    else
        all->foreign = true;
}

// False with errno where it cannot be read, or `flags` do not let it be opened.
static bool directory_list(const char *path, int flags, listing *all) {
    *all = (listing){0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        if (fd >= 0) close(fd);
        return false;
    }
    // readdir returns NULL at the end and on errors; errno alone tells the two apart.
    errno = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) note_name(all, entry->d_name);
    int code = errno;
    closedir(directory);
    errno = code;
    return code == 0;
}

// A process that dies while it makes a pool leaves its lock, and maybe the staging directory. One
// without the lock is a user's directory, maybe a pool, that happens to have the name.
static bool is_left_over(const listing *all) {
    return !all->pool && !all->foreign && (all->writer || !all->staging);
}

static reef_status directory_is_free(const char *path, reef_error *err) {
    listing all;
    if (!directory_list(path, 0, &all))
        return errno == ENOTDIR
                   ? reef_fail(err, REEF_ERR_INVALID,
                               "cannot create pool %s: a file of that name exists", path)
                   : fail_errno(err, "open directory", path);
    // Nothing but our own leftovers may be taken over.
    return is_left_over(&all)
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID,
                           "cannot create pool %s: the directory exists and is not empty", path);
}

// Does the directory in which `path` is, or would be, hold a pool? There a pool's own name may be
// that of a file of it, which it removes.
static bool is_inside_pool(const char *path) {
    char *whole = realpath(path, NULL), *copy = strdup(path);
    char *parent = whole != NULL ? dirname(whole) : copy != NULL ? dirname(copy) : NULL;
    char *file = parent == NULL ? NULL : reef_pool_file_path(parent, DATA_FILE);
    bool inside = file != NULL && access(file, F_OK) == 0;
    free(file);
    free(copy);
    free(whole);
    return inside;
}

reef_status reef_store_check_output(const char *path, reef_error *err) {
    return is_inside_pool(path)
               ? reef_fail(
                     err, REEF_ERR_INVALID,
                     "cannot write %s: its directory is a pool, whose files stay as they are; "
                     "choose a path in another directory",
                     path)
               : REEF_OK;
}

static reef_status path_check(const char *path, reef_error *err) {
    return is_inside_pool(path)
               ? reef_fail(err, REEF_ERR_INVALID,
                           "cannot create pool %s: "
                           "the directory above it is a pool; choose a path beside it",
                           path)
               : REEF_OK;
}

// Could a directory be made there?
static reef_status parent_check(const char *path, reef_error *err) {
    char *copy = strdup(path); // dirname may cut it
    if (copy == NULL) return no_memory(path, err);
    const char *parent = dirname(copy);
    struct stat info;
    bool found = stat(parent, &info) == 0;
    if (found && !S_ISDIR(info.st_mode)) errno = ENOTDIR;
    reef_status status = found && S_ISDIR(info.st_mode) && access(parent, W_OK | X_OK) == 0
                             ? REEF_OK
                             : fail_errno(err, "create pool", path);
    free(copy);
    return status;
}

reef_status reef_pool_directory_make(const char *path, bool *made, reef_error *err) {
    *made = false;
    reef_status status = path_check(path, err);
    if (status != REEF_OK) return status;
    *made = mkdir(path, 0700) == 0;
    if (*made) return REEF_OK;
    if (errno == EEXIST) return directory_is_free(path, err);
    return fail_errno(err, "create pool", path);
}

reef_status reef_store_check_new(const char *path, reef_error *err) {
    struct stat info;
    reef_status status = path_check(path, err);
    if (status != REEF_OK) return status;
    if (lstat(path, &info) == 0) return directory_is_free(path, err);
    return errno == ENOENT ? parent_check(path, err) : fail_errno(err, "create pool", path);
}

reef_status reef_pool_file_absent(const char *path, reef_error *err) {
    char *file = reef_pool_file_path(path, DATA_FILE);
    if (file == NULL) return no_memory(path, err);
    bool exists = access(file, F_OK) == 0;
    free(file);
    return exists
               ? reef_fail(err, REEF_ERR_INVALID, "cannot create pool %s: it exists already", path)
               : REEF_OK;
}

static reef_status directory_sync(const char *path, reef_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, "open directory", path);
    reef_status status = REEF_OK;
    // Some file systems refuse to sync a directory (EINVAL): then there is nothing to be done.
    if (fsync(fd) != 0 && errno != EINVAL) status = fail_errno(err, "sync directory", path);
    close(fd);
    return status;
}

reef_status reef_parent_sync(const char *path, reef_error *err) {
    char *copy = strdup(path); // dirname may cut it
    if (copy == NULL) return no_memory(path, err);
    reef_status status = directory_sync(dirname(copy), err);
    free(copy);
    return status;
}

static void remove_file(const char *path, const char *name) {
    char *file = reef_pool_file_path(path, name);
    if (file != NULL) unlink(file);
    free(file);
}

// Is the directory open for writing as a pool? A process that died holds no lock.
static bool is_written(int directory) {
    int fd = openat(directory, WRITER_FILE, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

// Fails, and changes nothing, if the path holds foreign files, links to them, or is in use.
static int staging_remove(const char *staging) {
    listing all;
    if (!directory_list(staging, O_NOFOLLOW, &all)) return -1;
    if (all.foreign || all.staging) {
        errno = ENOTEMPTY;
        return -1;
    }
    int fd = open(staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    // A creator that still runs holds a lock on it.
    bool written = is_written(fd);
    if (!written) {
        unlinkat(fd, DATA_FILE, 0);
        unlinkat(fd, LOCK_FILE, 0);
        unlinkat(fd, WRITER_FILE, 0);
    }
    close(fd);
    errno = EBUSY;
    return written ? -1 : rmdir(staging);
}

reef_status reef_pool_staging_make(const char *path, char **staging, reef_error *err) {
    *staging = reef_pool_file_path(path, STAGING);
    if (*staging == NULL) return no_memory(path, err);
    if (mkdir(*staging, 0700) == 0) return REEF_OK;
    if (errno != EEXIST) return fail_errno(err, "create", *staging);
    // We hold the writer lock, so whoever made it is dead.
    if (staging_remove(*staging) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot create pool %.100s: its " STAGING
                         " holds files that are not a pool's (%s); choose another directory",
                         path, strerror(errno));
    return mkdir(*staging, 0700) == 0 ? REEF_OK : fail_errno(err, "create", *staging);
}

void reef_pool_staging_sweep(const char *path) {
    char *staging = reef_pool_file_path(path, STAGING);
    if (staging != NULL && access(staging, F_OK) == 0) (void)staging_remove(staging);
    free(staging);
}

static reef_status data_file_move(const char *path, const char *staging, reef_error *err) {
    reef_status status = REEF_OK;
    char *from = reef_pool_file_path(staging, DATA_FILE);
    char *to = reef_pool_file_path(path, DATA_FILE);
    if (from == NULL || to == NULL) status = no_memory(path, err);
    // Within one file system, so the file appears whole or not at all.
    else if (rename(from, to) != 0)
        status = fail_errno(err, "create", to);
    free(from);
    free(to);
    return status;
}

reef_status reef_pool_staging_leave(const char *path, const char *staging, reef_error *err) {
    reef_status status = data_file_move(path, staging, err);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(MAKE_MOVED);
    (void)staging_remove(staging);
    REEF_FAIL_POINT(MAKE_CLEANED);
    status = directory_sync(path, err);
    return status == REEF_OK ? reef_parent_sync(path, err) : status;
}

void reef_pool_directory_unmake(const char *path, bool made) {
    reef_pool_staging_sweep(path);
    remove_file(path, DATA_FILE);
    remove_file(path, WRITER_FILE);
    if (made) (void)rmdir(path);
}

reef_status reef_pool_file_identify(const char *path,
                                    dev_t *device,
                                    ino_t *inode,
                                    reef_error *err) {
    struct stat info;
    // Errors in the order in which a user makes them: wrong path, not a directory, not a pool.
    if (stat(path, &info) != 0) {
        if (errno == ENOENT)
            return reef_fail(err, REEF_ERR_NOT_FOUND,
                             "there is no pool at %s: check the path, or make one with reef init",
                             path);
        return fail_errno(err, "stat pool", path);
    }
    if (!S_ISDIR(info.st_mode))
        return reef_fail(err, REEF_ERR_INVALID, "%s is not a pool: it is not a directory", path);
    char *file = reef_pool_file_path(path, DATA_FILE);
    if (file == NULL) return no_memory(path, err);
    reef_status status = REEF_OK;
    if (stat(file, &info) != 0)
        status = errno == ENOENT ? reef_fail(err, REEF_ERR_INVALID,
                                             "%s is not a pool: it has no " DATA_FILE, path)
                                 : fail_errno(err, "stat", file);
    else if (!S_ISREG(info.st_mode))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%s is not a pool: its " DATA_FILE " is not a regular file", path);
    free(file);
    // Device and inode identify the file, whatever path leads to it.
    *device = info.st_dev;
    *inode = info.st_ino;
    return status;
}

// Open a file that the pool writes to, or make it. Never what a link of that name leads to, which
// may be anybody's. *fd is -1 where it may not be written.
static reef_status own_file_open(const char *file, int *fd, reef_error *err) {
    struct stat info;
    reef_std_fds_reserve(); // LMDB's own files, which come after these, do not get them either
    // Without O_NONBLOCK a FIFO of that name would block the open.
    *fd = open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (*fd < 0 && errno == ELOOP)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s is a link: a pool's file has to be a regular one", file);
    if (*fd < 0) return errno == EROFS || errno == EACCES ? REEF_OK : fail_errno(err, "open", file);
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) return REEF_OK;
    close(*fd);
    *fd = -1;
    return reef_fail(err, REEF_ERR_INVALID, "%s is not a regular file, as a pool's has to be",
                     file);
}

reef_status reef_pool_lock_reserve(const char *path, bool *read_only, reef_error *err) {
    // Header of LMDB's lock file and 1,024 slots of one cache line each; LMDB enlarges it if need
    // be.
    const off_t lock_bytes = (REEF_READERS_MAX - 1) * 64 + 192;
    *read_only = false;
    char *file = reef_pool_file_path(path, LOCK_FILE);
    if (file == NULL) return no_memory(path, err);
    int fd = -1;
    reef_status status = own_file_open(file, &fd, err);
    if (status != REEF_OK || fd < 0) {
        *read_only = status == REEF_OK;
        free(file);
        return status;
    }
    int code = posix_fallocate(fd, 0, lock_bytes);
    close(fd);
    errno = code;
    // A file system that cannot reserve (EOPNOTSUPP, EINVAL) is left to LMDB.
    status = code == 0 || code == EOPNOTSUPP || code == EINVAL ? REEF_OK
                                                               : fail_errno(err, "reserve", file);
    free(file);
    return status;
}

// ---- the writer lock ----------------------------------------------------------------------------

reef_status reef_writer_busy(const char *path, long pid, reef_error *err) {
    if (pid <= 0)
        return reef_fail(err, REEF_ERR_BUSY,
                         "pool %s is already open for writing by another process", path);
    return reef_fail(err, REEF_ERR_BUSY, "pool %s is already open for writing by process %ld", path,
                     pid);
}

static long holder_pid(int fd) {
    char text[32] = {0};
    if (pread(fd, text, sizeof(text) - 1, 0) <= 0) return 0;
    return strtol(text, NULL, 10);
}

// flock belongs to the open file, not to the process: unlike fcntl locks it also excludes a second
// open in this process, and no stray close() of the file releases it.
reef_status reef_writer_lock(const char *path, int *out, reef_error *err) {
    *out = -1;
    char *file = reef_pool_file_path(path, WRITER_FILE);
    if (file == NULL) return no_memory(path, err);
    int fd = -1;
    reef_status status = own_file_open(file, &fd, err);
    if (fd < 0) {
        if (status == REEF_OK) status = fail_errno(err, "open", file);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? reef_writer_busy(path, holder_pid(fd), err)
                                      : fail_errno(err, "lock", file);
        close(fd);
    } else {
        char text[32];
        int length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
        // The pid is for people only: on a full disk the lock holds without it.
        if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)length, 0) != length)
            (void)!ftruncate(fd, 0);
        *out = fd;
    }
    free(file);
    return status;
}

reef_status reef_writer_absent(const char *path, reef_error *err) {
    char *file = reef_pool_file_path(path, WRITER_FILE);
    if (file == NULL) return no_memory(path, err);
    int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    // A shared lock is tried only to see whether a writer has the exclusive one.
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    long pid = held ? holder_pid(fd) : 0;
    if (fd >= 0) close(fd);
    free(file);
    if (!held) return REEF_OK;
    return reef_fail(err, REEF_ERR_BUSY,
                     "pool %.160s is open for writing by process %ld, and cannot be read through a "
                     "read-only mount meanwhile: a reader is registered in " LOCK_FILE
                     ", which has to be writable",
                     path, pid);
}

// Its lock is not tried: a writer that comes at that moment would find it taken.
bool reef_writer_is_here(const char *path) {
    char *file = reef_pool_file_path(path, WRITER_FILE);
    int fd = file == NULL ? -1 : open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    long pid = fd < 0 ? 0 : holder_pid(fd);
    if (fd >= 0) close(fd);
    free(file);
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

void reef_writer_unlock(int fd) {
    if (fd < 0) return;
    (void)!ftruncate(fd, 0);
    // A child that was forked meanwhile has a copy of the descriptor, and the lock would live as
    // long as that.
    (void)flock(fd, LOCK_UN);
    close(fd);
}

// ---- is the file safe to map? -------------------------------------------------------------------

static reef_status on_meta_record(void *context,
                                  reef_pages *file,
                                  const reef_page_node *node,
                                  reef_error *err) {
    uint64_t first;
    size_t count;
    (void)context;
    return node->flags & NODE_BIG ? reef_pages_overflow(file, node, &first, &count, err) : REEF_OK;
}

static reef_status subtree_check(reef_pages *file,
                                 const reef_page_node *node,
                                 bool whole,
                                 reef_error *err) {
    uint64_t root = reef_get_le64(node->value + 40);
    if (root == TREE_EMPTY) return REEF_OK;
    // The records of meta decide whether the pool is opened, so these are all parsed.
    if (whole) return reef_pages_walk(file, root, NULL, 0, on_meta_record, NULL, err);
    uint8_t *page = malloc(file->page_bytes);
    if (page == NULL) return no_memory(file->path, err);
    reef_status status = reef_pages_read(file, root, 1, page, err);
    if (status == REEF_OK && !reef_page_is_sound(page, file->page_bytes, root))
        status = reef_page_damaged(file, root, err);
    free(page);
    return status;
}

static reef_status on_database(void *context,
                               reef_pages *file,
                               const reef_page_node *node,
                               reef_error *err) {
    uint32_t *found = context;
    reef_db db = reef_db_named(node->key, node->key_bytes);
    if (db == REEF_DB_COUNT) return REEF_OK; // not ours; nobody will read it
    if (node->flags != NODE_SUBTREE || node->value_bytes != TREE_BYTES)
        return reef_fail(err, REEF_ERR_CORRUPT, "pool %s: database %s is not a tree", file->path,
                         reef_db_name(db));
    // Noted before its tree is checked: it exists, even damaged.
    *found |= UINT32_C(1) << db;
    reef_page_tree tree;
    reef_page_tree_parse(node->value, &tree);
    if (tree.flags != 0)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s: what the list of databases says of %s is damaged", file->path,
                         reef_db_name(db));
    return subtree_check(file, node, db == REEF_DB_META, err);
}

static reef_status on_name(void *context,
                           reef_pages *file,
                           const reef_page_node *node,
                           reef_error *err) {
    bool *ours = context;
    (void)file, (void)err;
    *ours = *ours || reef_db_named(node->key, node->key_bytes) != REEF_DB_COUNT;
    return REEF_OK;
}

// None of ours is listed: is that another program's file, or damage? No commit has reused the pages
// of the one before it, so its list still tells.
static reef_status none_listed(reef_pages *file, reef_error *err) {
    bool was_ours = false;
    (void)!reef_pages_walk(file, file->main_root_before, NULL, 0, on_name, &was_ours, NULL);
    return was_ours
               ? reef_fail(err, REEF_ERR_CORRUPT,
                           "pool %s: the list of databases, or what the newest meta page says of "
                           "it, is damaged",
                           file->path)
               : reef_fail(err, REEF_ERR_INVALID,
                           "%s is not a pool: its " DATA_FILE " has no database meta", file->path);
}

static reef_status databases_check(reef_pages *file, reef_error *err) {
    uint32_t found = 0;
    uint64_t root = reef_get_le64(file->main_tree + 40);
    if (root != TREE_EMPTY) {
        reef_status status = reef_pages_walk(file, root, NULL, 0, on_database, &found, err);
        if (status != REEF_OK) return status;
    }
    if (found == 0) return none_listed(file, err);
    // With others of ours, `meta` was damaged. Whether those are complete is looked at when the
    // format has been read (environment.c).
    return found & UINT32_C(1) << REEF_DB_META
               ? REEF_OK
               : reef_fail(err, REEF_ERR_CORRUPT, "pool %s: database meta is missing", file->path);
}

// How LMDB compares keys: with one more bit set, it would search in the wrong order.
static reef_status order_check(const reef_pages *file, reef_error *err) {
    reef_page_tree databases, free_list;
    reef_page_tree_parse(file->main_tree, &databases);
    reef_page_tree_parse(file->free_tree, &free_list);
    if (databases.flags == 0 && free_list.flags == TREE_INTEGER_KEYS) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "pool %s: the newest meta page is damaged", file->path);
}

// A value of the free tree: a count and that many page numbers.
static reef_status on_free_list(void *context,
                                reef_pages *file,
                                const reef_page_node *node,
                                reef_error *err) {
    uint64_t *beyond = context;
    const uint8_t *value;
    uint8_t *buffer;
    reef_status status = reef_pages_value(file, node, &value, &buffer, err);
    for (size_t i = 1; status == REEF_OK && i < node->value_bytes / 8; i++) {
        if (i > reef_get_le64(value)) break;
        uint64_t page = reef_get_le64(value + 8 * i);
        // Free pages beyond the end were never written; only they may be missing.
        if (page >= file->file_pages && page <= file->last_page) (*beyond)++;
    }
    free(buffer);
    return status;
}

// Pages that a transaction took and gave back before it ended are never written, so the file of a
// sound pool may end before its last page. Such pages are in the free tree, and nothing reads them.
static reef_status length_check(reef_pages *file, reef_error *err) {
    if (file->file_pages > file->last_page) return REEF_OK;
    uint64_t beyond = 0;
    uint64_t root = reef_get_le64(file->free_tree + 40);
    if (root != TREE_EMPTY) {
        reef_status status = reef_pages_walk(file, root, NULL, 0, on_free_list, &beyond, err);
        if (status != REEF_OK) return status;
    }
    // Every missing page must be a free one, or the file was cut.
    if (beyond == file->last_page + 1 - file->file_pages) return REEF_OK;
    return reef_pages_truncated(file, file->last_page + 1, err);
}

static reef_status data_file_check(reef_pages *file, reef_error *err) {
    reef_status status = reef_pages_meta(file, err);
    if (status == REEF_OK) status = length_check(file, err);
    if (status == REEF_OK) status = databases_check(file, err);
    if (status == REEF_OK) status = order_check(file, err);
    return status;
}

// A writer in another process may commit meanwhile, and reuse a page that is about to be read.
// While a commit is the newest its pages do not change: a failure of the same commit twice is
// damage. (Twice, because a meta page may be caught half-written.)
static reef_status steady_check(reef_pages *file, reef_error *err) {
    enum { ATTEMPTS_MAX = 100 };
    reef_status status = data_file_check(file, err);
    for (int i = 0; i < ATTEMPTS_MAX && status != REEF_OK; i++) {
        uint64_t before = file->transaction;
        status = data_file_check(file, err);
        if (file->transaction == before) break;
    }
    return status;
}

reef_status reef_pool_file_check(const char *path, reef_error *err) {
    reef_pages file;
    reef_status status = reef_pages_open(&file, path, err);
    if (status == REEF_OK) status = steady_check(&file, err);
    reef_pages_close(&file);
    return status;
}
