// The pool's directory and files, looked at without mapping them.
//
// A pool is a directory:
//
//   data.mdb     LMDB's data file; two meta pages, then the pages of its trees
//   lock.mdb     LMDB's reader table
//   writer.lock  flock()ed for the life of the one writer; holds its pid in text
//
// LMDB believes what it maps. A file shorter than its tree raises SIGBUS on first touch, and a wrong
// offset in a page sends it anywhere. So before each open the meta pages, the list of databases, their
// root pages and the whole of `meta` are read with pread and checked; deeper pages are left to
// reef_store_verify, which walks them in a child process. What is used of LMDB's layout (64-bit,
// little-endian):
//
//   page   0 pgno u64   8 pad u16   10 flags u16   12 lower u16   14 upper u16   16 offsets u16[]
//          (overflow pages: 12 count of pages u32)
//   meta   16 magic u32   20 version u32   40 page size u32   40 free tree   88 main tree
//          136 last page u64   144 transaction u64
//   tree   0 page size u32   4 flags u16   6 depth u16   8 .. 32 counts   32 entries u64   40 root u64
//   node   0 size low u16   2 size high u16   4 flags u16   6 key bytes u16   8 key, then the value
//          (in a branch: the three first fields are the child's page number)
#include "pool_file.h"

#include "record.h"
#include "reef_store.h"
#include "store_bytes.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DATA_FILE "data.mdb"
#define LOCK_FILE "lock.mdb"
#define WRITER_FILE "writer.lock"
#define NURSERY "new" // where a pool is made, until it is whole

char *reef_pool_file_path(const char *path, const char *file) {
    size_t bytes = strlen(path) + 1 + strlen(file) + 1;
    char *joined = malloc(bytes);
    if (joined != NULL) snprintf(joined, bytes, "%s/%s", path, file);
    return joined;
}

static reef_status no_memory(const char *path, reef_error *err) {
    return reef_fail(err, REEF_NO_MEMORY, "out of memory while opening pool %s", path);
}

static reef_status fail_errno(reef_error *err, const char *doing, const char *path) {
    int code = errno;
    reef_status status = code == ENOSPC || code == EDQUOT    ? REEF_FULL
                         : code == ENOENT || code == ENOTDIR ? REEF_NOT_FOUND
                         : code == ENOMEM                    ? REEF_NO_MEMORY
                                                             : REEF_IO;
    return reef_fail(err, status, "cannot %s %s: %s", doing, path, strerror(code));
}

uint64_t reef_disk_free_bytes(const char *path) {
    struct statvfs disk;
    if (statvfs(path, &disk) != 0) return UINT64_MAX;
    // The superuser may also use the blocks that are kept back for it.
    uint64_t blocks = geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
    return blocks * disk.f_frsize;
}

// ---- creating ------------------------------------------------------------------------------------

static reef_status directory_is_empty(const char *path, reef_error *err) {
    DIR *directory = opendir(path);
    if (directory == NULL && errno == ENOTDIR)
        return reef_fail(err, REEF_INVALID, "cannot create pool %s: a file of that name exists",
                         path);
    if (directory == NULL) return fail_errno(err, "open directory", path);
    reef_status status = REEF_OK;
    for (struct dirent *entry; status == REEF_OK && (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status =
                reef_fail(err, REEF_INVALID,
                          "cannot create pool %s: the directory exists and is not empty", path);
    }
    closedir(directory);
    return status;
}

reef_status reef_pool_directory_make(const char *path, bool *made, reef_error *err) {
    *made = mkdir(path, 0700) == 0;
    if (*made) return REEF_OK;
    if (errno == EEXIST) return directory_is_empty(path, err);
    return fail_errno(err, "create pool", path);
}

reef_status reef_pool_file_absent(const char *path, reef_error *err) {
    char *file = reef_pool_file_path(path, DATA_FILE);
    if (file == NULL) return no_memory(path, err);
    bool exists = access(file, F_OK) == 0;
    free(file);
    return exists ? reef_fail(err, REEF_INVALID, "cannot create pool %s: it exists already", path)
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

static reef_status parent_sync(const char *path, reef_error *err) {
    char *copy = strdup(path); // dirname may cut it
    if (copy == NULL) return no_memory(path, err);
    reef_status status = directory_sync(dirname(copy), err);
    free(copy);
    return status;
}

reef_status reef_pool_nursery_make(const char *path, char **nursery, reef_error *err) {
    *nursery = reef_pool_file_path(path, NURSERY);
    if (*nursery == NULL) return no_memory(path, err);
    return mkdir(*nursery, 0700) == 0 ? REEF_OK : fail_errno(err, "create", *nursery);
}

static void remove_file(const char *path, const char *name) {
    char *file = reef_pool_file_path(path, name);
    if (file != NULL) unlink(file);
    free(file);
}

static reef_status data_file_move(const char *path, const char *nursery, reef_error *err) {
    reef_status status = REEF_OK;
    char *from = reef_pool_file_path(nursery, DATA_FILE);
    char *to = reef_pool_file_path(path, DATA_FILE);
    if (from == NULL || to == NULL)
        status = no_memory(path, err);
    else if (rename(from, to) != 0)
        status = fail_errno(err, "create", to);
    free(from);
    free(to);
    return status;
}

reef_status reef_pool_nursery_leave(const char *path, const char *nursery, reef_error *err) {
    reef_status status = data_file_move(path, nursery, err);
    if (status != REEF_OK) return status;
    remove_file(nursery, LOCK_FILE);
    remove_file(nursery, WRITER_FILE);
    (void)rmdir(nursery);
    status = directory_sync(path, err);
    return status == REEF_OK ? parent_sync(path, err) : status;
}

void reef_pool_directory_unmake(const char *path, bool made) {
    char *nursery = reef_pool_file_path(path, NURSERY);
    if (nursery != NULL) {
        remove_file(nursery, DATA_FILE);
        remove_file(nursery, LOCK_FILE);
        remove_file(nursery, WRITER_FILE);
        (void)rmdir(nursery);
    }
    free(nursery);
    remove_file(path, DATA_FILE);
    remove_file(path, WRITER_FILE);
    if (made) (void)rmdir(path);
}

reef_status reef_pool_file_identify(const char *path,
                                    dev_t *device,
                                    ino_t *inode,
                                    reef_error *err) {
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno == ENOENT)
            return reef_fail(err, REEF_NOT_FOUND,
                             "there is no pool at %s: check the path, or make one with reef init",
                             path);
        return fail_errno(err, "look at pool", path);
    }
    if (!S_ISDIR(info.st_mode))
        return reef_fail(err, REEF_INVALID, "%s is no pool: it is not a directory", path);
    char *file = reef_pool_file_path(path, DATA_FILE);
    if (file == NULL) return no_memory(path, err);
    reef_status status = REEF_OK;
    if (stat(file, &info) != 0)
        status = errno == ENOENT
                     ? reef_fail(err, REEF_INVALID, "%s is no pool: it has no " DATA_FILE, path)
                     : fail_errno(err, "look at", file);
    else if (!S_ISREG(info.st_mode))
        status = reef_fail(err, REEF_INVALID, "%s is no pool: its " DATA_FILE " is no regular file",
                           path);
    free(file);
    *device = info.st_dev;
    *inode = info.st_ino;
    return status;
}

reef_status reef_pool_lock_reserve(const char *path, bool *read_only, reef_error *err) {
    // Header of LMDB's lock file and 1,024 slots of one cache line each; LMDB enlarges it if need be.
    const off_t lock_bytes = (REEF_READERS_MAX - 1) * 64 + 192;
    *read_only = false;
    char *file = reef_pool_file_path(path, LOCK_FILE);
    if (file == NULL) return no_memory(path, err);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EROFS || errno == EACCES)) {
        *read_only = true;
        free(file);
        return REEF_OK;
    }
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, lock_bytes);
    if (fd >= 0) close(fd);
    errno = code;
    // A file system that cannot reserve (EOPNOTSUPP, EINVAL) is left to LMDB.
    reef_status status = code == 0 || code == EOPNOTSUPP || code == EINVAL
                             ? REEF_OK
                             : fail_errno(err, "reserve", file);
    free(file);
    return status;
}

// ---- the writer lock -----------------------------------------------------------------------------

reef_status reef_writer_busy(const char *path, long pid, reef_error *err) {
    if (pid <= 0)
        return reef_fail(err, REEF_BUSY, "pool %s is already open for writing by another process",
                         path);
    return reef_fail(err, REEF_BUSY, "pool %s is already open for writing by process %ld", path,
                     pid);
}

static long holder_pid(int fd) {
    char text[32] = {0};
    if (pread(fd, text, sizeof(text) - 1, 0) <= 0) return 0;
    return strtol(text, NULL, 10);
}

// flock belongs to the open file, not to the process: unlike fcntl locks it also excludes a second
// open in this process, and no stray close() of the file lets it go.
reef_status reef_writer_lock(const char *path, int *out, reef_error *err) {
    *out = -1;
    char *file = reef_pool_file_path(path, WRITER_FILE);
    if (file == NULL) return no_memory(path, err);
    reef_status status = REEF_OK;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        status = fail_errno(err, "open", file);
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

void reef_writer_unlock(int fd) {
    if (fd < 0) return;
    (void)!ftruncate(fd, 0);
    close(fd);
}

// ---- looking at LMDB's pages ---------------------------------------------------------------------

#define META_MAGIC 0xBEEFC0DEu
#define META_VERSION 1u
#define META_BYTES 152 // of a meta page, as far as it is read
#define TREE_BYTES 48
#define TREE_DEPTH_MAX 32
#define TREE_EMPTY UINT64_MAX
#define PAGE_BYTES_MIN 512u
#define PAGE_BYTES_MAX 65536u
#define PAGE_HEADER_BYTES 16u
#define NODE_HEADER_BYTES 8u
#define PAGE_BRANCH 0x01u
#define PAGE_LEAF 0x02u
#define PAGE_OVERFLOW 0x04u
#define NODE_BIG 0x01u     // the value is the number of its first overflow page
#define NODE_SUBTREE 0x02u // the value is a tree

typedef struct data_file {
    const char *path; // of the pool
    int fd;
    uint32_t page_bytes;
    uint64_t file_pages;  // whole pages in the file
    uint64_t transaction; // of the newest commit
    uint64_t last_page;   // of the newest commit
    uint8_t free_tree[TREE_BYTES], main_tree[TREE_BYTES];
} data_file;

typedef struct page_node {
    const uint8_t *key, *value;
    size_t key_bytes, value_bytes;
    uint16_t flags;
    uint64_t child; // in branch pages
} page_node;

typedef reef_status (*node_visit)(void *context,
                                  data_file *file,
                                  const page_node *node,
                                  reef_error *err);

static uint16_t get_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static reef_status damaged_page(const data_file *file, uint64_t page, reef_error *err) {
    return reef_fail(err, REEF_CORRUPT, "pool %s: page %" PRIu64 " of " DATA_FILE " is damaged",
                     file->path, page);
}

static reef_status truncated(const data_file *file, uint64_t pages, reef_error *err) {
    return reef_fail(err, REEF_CORRUPT,
                     "pool %s is truncated: " DATA_FILE " has %" PRIu64 " whole pages of %" PRIu32
                     " bytes, its last commit needs %" PRIu64,
                     file->path, file->file_pages, file->page_bytes, pages);
}

static reef_status page_read(
    data_file *file, uint64_t first, size_t count, uint8_t *out, reef_error *err) {
    if (first > file->last_page || count > file->last_page - first + 1)
        return damaged_page(file, first, err);
    size_t bytes = count * file->page_bytes;
    ssize_t got = pread(file->fd, out, bytes, (off_t)(first * file->page_bytes));
    if (got < 0) return fail_errno(err, "read " DATA_FILE " of pool", file->path);
    return (size_t)got == bytes ? REEF_OK : truncated(file, first + count, err);
}

static bool node_parse(
    const uint8_t *page, size_t page_bytes, size_t i, bool branch, page_node *out) {
    size_t upper = get_le16(page + 14);
    size_t offset = get_le16(page + PAGE_HEADER_BYTES + 2 * i);
    if (offset < upper || offset + NODE_HEADER_BYTES > page_bytes) return false;
    const uint8_t *node = page + offset;
    size_t room = page_bytes - offset - NODE_HEADER_BYTES;
    *out = (page_node){.key = node + NODE_HEADER_BYTES, .key_bytes = get_le16(node + 6)};
    if (out->key_bytes > room) return false;
    if (branch) {
        out->child = reef_get_le32(node) | (uint64_t)get_le16(node + 4) << 32;
        return true;
    }
    out->flags = get_le16(node + 4);
    out->value = out->key + out->key_bytes;
    out->value_bytes = reef_get_le32(node);
    size_t stored = out->flags & NODE_BIG ? 8 : out->value_bytes;
    return stored <= room - out->key_bytes;
}

// Is this a branch or leaf page whose every node lies inside it?
static bool page_is_sound(const uint8_t *page, size_t page_bytes, uint64_t number) {
    unsigned flags = get_le16(page + 10);
    size_t lower = get_le16(page + 12);
    size_t upper = get_le16(page + 14);
    if (reef_get_le64(page) != number || (flags != PAGE_BRANCH && flags != PAGE_LEAF)) return false;
    if (lower < PAGE_HEADER_BYTES || lower % 2 != 0 || lower > upper || upper > page_bytes)
        return false;
    for (size_t i = 0; i < (lower - PAGE_HEADER_BYTES) / 2; i++) {
        page_node node;
        if (!node_parse(page, page_bytes, i, flags == PAGE_BRANCH, &node)) return false;
    }
    return true;
}

// Visit every leaf node below a page.
static reef_status tree_walk(data_file *file,
                             uint64_t number,
                             unsigned depth,
                             node_visit visit,
                             void *context,
                             reef_error *err) {
    if (depth == 0) return damaged_page(file, number, err);
    uint8_t *page = malloc(file->page_bytes);
    if (page == NULL) return no_memory(file->path, err);
    reef_status status = page_read(file, number, 1, page, err);
    if (status == REEF_OK && !page_is_sound(page, file->page_bytes, number))
        status = damaged_page(file, number, err);
    if (status == REEF_OK) {
        bool branch = get_le16(page + 10) == PAGE_BRANCH;
        size_t count = (get_le16(page + 12) - PAGE_HEADER_BYTES) / 2;
        if (branch && count < 2) status = damaged_page(file, number, err); // LMDB asserts this
        for (size_t i = 0; status == REEF_OK && i < count; i++) {
            page_node node;
            bool sound = node_parse(page, file->page_bytes, i, branch, &node);
            assert(sound);
            status = branch ? tree_walk(file, node.child, depth - 1, visit, context, err)
                            : visit(context, file, &node, err);
        }
    }
    free(page);
    return status;
}

static reef_status overflow_check(data_file *file, const page_node *node, reef_error *err) {
    uint64_t first = reef_get_le64(node->value);
    size_t pages =
        (PAGE_HEADER_BYTES + node->value_bytes + file->page_bytes - 1) / file->page_bytes;
    if (first > file->last_page || pages > file->last_page - first + 1)
        return damaged_page(file, first, err);
    uint8_t *page = malloc(file->page_bytes);
    if (page == NULL) return no_memory(file->path, err);
    reef_status status = page_read(file, first, 1, page, err);
    if (status == REEF_OK &&
        (reef_get_le64(page) != first || get_le16(page + 10) != PAGE_OVERFLOW ||
         reef_get_le32(page + 12) < pages))
        status = damaged_page(file, first, err);
    free(page);
    return status;
}

static reef_status on_meta_record(void *context,
                                  data_file *file,
                                  const page_node *node,
                                  reef_error *err) {
    (void)context;
    return node->flags & NODE_BIG ? overflow_check(file, node, err) : REEF_OK;
}

static reef_status subtree_check(data_file *file,
                                 const page_node *node,
                                 bool whole,
                                 reef_error *err) {
    uint64_t root = reef_get_le64(node->value + 40);
    if (root == TREE_EMPTY) return REEF_OK;
    if (whole) return tree_walk(file, root, TREE_DEPTH_MAX, on_meta_record, NULL, err);
    uint8_t *page = malloc(file->page_bytes);
    if (page == NULL) return no_memory(file->path, err);
    reef_status status = page_read(file, root, 1, page, err);
    if (status == REEF_OK && !page_is_sound(page, file->page_bytes, root))
        status = damaged_page(file, root, err);
    free(page);
    return status;
}

static reef_status on_database(void *context,
                               data_file *file,
                               const page_node *node,
                               reef_error *err) {
    uint32_t *found = context;
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        const char *name = reef_db_name(db);
        if (strlen(name) != node->key_bytes || memcmp(name, node->key, node->key_bytes) != 0)
            continue;
        if (node->flags != NODE_SUBTREE || node->value_bytes != TREE_BYTES)
            return reef_fail(err, REEF_CORRUPT, "pool %s: database %s is no tree", file->path,
                             name);
        *found |= UINT32_C(1) << db;
        return subtree_check(file, node, db == REEF_DB_META, err);
    }
    return REEF_OK; // not ours; nobody will read it
}

static reef_status databases_check(data_file *file, reef_error *err) {
    uint32_t found = 0;
    uint64_t root = reef_get_le64(file->main_tree + 40);
    if (root != TREE_EMPTY) {
        reef_status status = tree_walk(file, root, TREE_DEPTH_MAX, on_database, &found, err);
        if (status != REEF_OK) return status;
    }
    if (!(found & UINT32_C(1) << REEF_DB_META))
        return reef_fail(err, REEF_INVALID, "%s is no pool: its " DATA_FILE " has no database meta",
                         file->path);
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        if (!(found & UINT32_C(1) << db))
            return reef_fail(err, REEF_CORRUPT, "pool %s: database %s is missing", file->path,
                             reef_db_name(db));
    }
    return REEF_OK;
}

// A value of the free tree: a count and that many page numbers.
static reef_status on_free_list(void *context,
                                data_file *file,
                                const page_node *node,
                                reef_error *err) {
    uint64_t *beyond = context;
    const uint8_t *value = node->value;
    uint8_t *pages = NULL;
    reef_status status = REEF_OK;
    if (node->flags & NODE_BIG) {
        size_t count =
            (PAGE_HEADER_BYTES + node->value_bytes + file->page_bytes - 1) / file->page_bytes;
        if (count > file->last_page) return damaged_page(file, reef_get_le64(node->value), err);
        pages = malloc(count * file->page_bytes);
        if (pages == NULL) return no_memory(file->path, err);
        status = page_read(file, reef_get_le64(node->value), count, pages, err);
        value = pages + PAGE_HEADER_BYTES;
    }
    for (size_t i = 1; status == REEF_OK && i < node->value_bytes / 8; i++) {
        if (i > reef_get_le64(value)) break;
        uint64_t page = reef_get_le64(value + 8 * i);
        if (page >= file->file_pages && page <= file->last_page) (*beyond)++;
    }
    free(pages);
    return status;
}

// Pages that a transaction took and gave back before it ended are never written, so the file of a
// sound pool may end before its last page. Such pages are in the free tree, and nothing reads them.
static reef_status length_check(data_file *file, reef_error *err) {
    if (file->file_pages > file->last_page) return REEF_OK;
    uint64_t beyond = 0;
    uint64_t root = reef_get_le64(file->free_tree + 40);
    if (root != TREE_EMPTY) {
        reef_status status = tree_walk(file, root, TREE_DEPTH_MAX, on_free_list, &beyond, err);
        if (status != REEF_OK) return status;
    }
    if (beyond == file->last_page + 1 - file->file_pages) return REEF_OK;
    return truncated(file, file->last_page + 1, err);
}

// One of the two meta pages; `offset` is where it should be.
static reef_status meta_read(data_file *file,
                             off_t offset,
                             uint8_t meta[META_BYTES],
                             reef_error *err) {
    ssize_t got = pread(file->fd, meta, META_BYTES, offset);
    if (got < 0) return fail_errno(err, "read " DATA_FILE " of pool", file->path);
    if (got < META_BYTES || reef_get_le32(meta + 16) != META_MAGIC)
        return reef_fail(err, offset == 0 ? REEF_INVALID : REEF_CORRUPT,
                         offset == 0 ? "%s is no pool: its " DATA_FILE " is no LMDB file"
                                     : "pool %s: the second meta page of " DATA_FILE " is damaged",
                         file->path);
    if (reef_get_le32(meta + 20) != META_VERSION)
        return reef_fail(err, REEF_VERSION,
                         "pool %s: " DATA_FILE " has LMDB format %" PRIu32
                         ", this program reads %u",
                         file->path, reef_get_le32(meta + 20), META_VERSION);
    return REEF_OK;
}

static reef_status metas_read(data_file *file, reef_error *err) {
    uint8_t metas[2][META_BYTES];
    reef_status status = meta_read(file, 0, metas[0], err);
    if (status != REEF_OK) return status;
    uint32_t page_bytes = reef_get_le32(metas[0] + 40);
    if (page_bytes < PAGE_BYTES_MIN || page_bytes > PAGE_BYTES_MAX ||
        (page_bytes & (page_bytes - 1)))
        return reef_fail(err, REEF_CORRUPT, "pool %s: " DATA_FILE " has pages of %" PRIu32 " bytes",
                         file->path, page_bytes);
    file->page_bytes = page_bytes;
    status = meta_read(file, page_bytes, metas[1], err);
    if (status != REEF_OK) return status;

    const uint8_t *newest = metas[reef_get_le64(metas[1] + 144) > reef_get_le64(metas[0] + 144)];
    file->transaction = reef_get_le64(newest + 144);
    file->last_page = reef_get_le64(newest + 136);
    memcpy(file->free_tree, newest + 40, TREE_BYTES);
    memcpy(file->main_tree, newest + 88, TREE_BYTES);

    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return fail_errno(err, "look at " DATA_FILE " of pool", file->path);
    file->file_pages = (uint64_t)info.st_size / page_bytes;
    if (file->last_page < 1 || file->last_page > (uint64_t)INT64_MAX / page_bytes - 1)
        return reef_fail(err, REEF_CORRUPT, "pool %s: the meta page of " DATA_FILE " is damaged",
                         file->path);
    return REEF_OK;
}

static reef_status data_file_check(data_file *file, reef_error *err) {
    reef_status status = metas_read(file, err);
    if (status == REEF_OK) status = length_check(file, err);
    if (status == REEF_OK) status = databases_check(file, err);
    return status;
}

// A writer in another process may commit while we look, and use again a page that we are about to read.
// While a commit is the newest its pages do not change: a failure of the same commit twice is damage.
// (Twice, because a meta page may be caught half-written.)
static reef_status steady_check(data_file *file, reef_error *err) {
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
    char *name = reef_pool_file_path(path, DATA_FILE);
    if (name == NULL) return no_memory(path, err);
    data_file file = {.path = path, .fd = open(name, O_RDONLY | O_CLOEXEC)};
    reef_status status = file.fd < 0 ? fail_errno(err, "open", name) : steady_check(&file, err);
    if (file.fd >= 0) close(file.fd);
    free(name);
    return status;
}
