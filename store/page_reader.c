// LMDB's pages, read with pread and checked; see page_reader.h. What is used of LMDB's layout
// (64-bit, little-endian):
//
//   page   0 pgno u64   8 pad u16   10 flags u16   12 lower u16   14 upper u16   16 offsets u16[]
//          (overflow pages: 12 count of pages u32)
//   meta   16 magic u32   20 version u32   40 page size u32   40 free tree   88 main tree
//          136 last page u64   144 transaction u64
//   tree   0 page size u32   4 flags u16   6 depth u16   8 branch pages u64   16 leaf pages u64
//          24 overflow pages u64   32 entries u64   40 root u64
//   node   0 size low u16   2 size high u16   4 flags u16   6 key bytes u16   8 key, then the value
//          (in a branch: the three first fields are the child's page number)
#include "page_reader.h"

#include "pool_file.h"
#include "reef_byte_order.h"
#include "store_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define META_MAGIC 0xBEEFC0DEu
#define META_VERSION 1u
#define META_BYTES 152        // of a meta page, as far as it is read
#define META_ATTEMPTS_MAX 100 // to read them between two commits
#define PAGE_META 0x08u
#define PAGE_BYTES_MIN 512u
#define NODE_HEADER_BYTES 8u

static reef_status no_memory(const char *path, reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while reading pool %s", path);
}

static reef_status fail_read(const reef_pages *file, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot read " DATA_FILE " of pool %s: %s", file->path,
                     strerror(errno));
}

reef_status reef_pages_open(reef_pages *out, const char *path, reef_error *err) {
    *out = (reef_pages){.path = path, .fd = -1};
    char *name = reef_pool_file_path(path, DATA_FILE);
    if (name == NULL) return no_memory(path, err);
    out->fd = open(name, O_RDONLY | O_CLOEXEC);
    // Before free(), which may change it.
    int code = errno;
    free(name);
    if (out->fd >= 0) return REEF_OK;
    if (code == EACCES) return reef_pool_access_fail(path, "open the data", err);
    return reef_fail(err, code == ENOENT || code == ENOTDIR ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                     "cannot open " DATA_FILE " of pool %s: %s", path, strerror(code));
}

void reef_pages_close(reef_pages *pages) {
    if (pages->path != NULL && pages->fd >= 0) close(pages->fd);
    pages->fd = -1;
}

// ---- pages and nodes ----------------------------------------------------------------------------

static uint16_t get_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

reef_status reef_page_damaged(const reef_pages *file, uint64_t page, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "pool %s: page %" PRIu64 " of " DATA_FILE " is damaged",
                     file->path, page);
}

reef_status reef_pages_truncated(const reef_pages *file, uint64_t pages, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "pool %s is truncated: " DATA_FILE " has %" PRIu64 " whole pages of %" PRIu32
                     " bytes, its last commit needs %" PRIu64,
                     file->path, file->file_pages, file->page_bytes, pages);
}

reef_status reef_pages_read(
    reef_pages *file, uint64_t first, size_t count, uint8_t *out, reef_error *err) {
    if (first > file->last_page || count > file->last_page - first + 1)
        return reef_page_damaged(file, first, err);
    size_t bytes = count * file->page_bytes;
    ssize_t got = pread(file->fd, out, bytes, (off_t)(first * file->page_bytes));
    if (got < 0) return fail_read(file, err);
    return (size_t)got == bytes ? REEF_OK : reef_pages_truncated(file, first + count, err);
}

unsigned reef_page_flags(const uint8_t *page) {
    return get_le16(page + 10);
}

size_t reef_page_nodes(const uint8_t *page) {
    return (get_le16(page + 12) - PAGE_HEADER_BYTES) / 2;
}

size_t reef_page_upper(const uint8_t *page) {
    return get_le16(page + 14);
}

void reef_page_tree_parse(const uint8_t bytes[TREE_BYTES], reef_page_tree *out) {
    *out = (reef_page_tree){.flags = get_le16(bytes + 4),
                            .depth = get_le16(bytes + 6),
                            .branch_pages = reef_get_le64(bytes + 8),
                            .leaf_pages = reef_get_le64(bytes + 16),
                            .overflow_pages = reef_get_le64(bytes + 24),
                            .entries = reef_get_le64(bytes + 32),
                            .root = reef_get_le64(bytes + 40)};
}

// LMDB keeps nodes at even addresses.
static size_t even(size_t bytes) {
    return bytes + (bytes & 1);
}

bool reef_page_node_parse(
    const uint8_t *page, size_t page_bytes, size_t i, bool branch, reef_page_node *out) {
    size_t upper = get_le16(page + 14);
    size_t offset = get_le16(page + PAGE_HEADER_BYTES + 2 * i);
    if (offset < upper || offset + NODE_HEADER_BYTES > page_bytes) return false;
    const uint8_t *node = page + offset;
    size_t room = page_bytes - offset - NODE_HEADER_BYTES;
    *out = (reef_page_node){
        .offset = offset, .key = node + NODE_HEADER_BYTES, .key_bytes = get_le16(node + 6)};
    // Everything is compared with the page's end: these bytes may be damaged.
    if (out->key_bytes > room) return false;
    out->bytes = even(NODE_HEADER_BYTES + out->key_bytes);
    if (branch) {
        out->child = reef_get_le32(node) | (uint64_t)get_le16(node + 4) << 32;
        return true;
    }
    out->flags = get_le16(node + 4);
    out->value = out->key + out->key_bytes;
    out->value_bytes = reef_get_le32(node);
    // A large value has its page number here instead of its bytes.
    size_t stored = out->flags & NODE_BIG ? 8 : out->value_bytes;
    out->bytes = even(NODE_HEADER_BYTES + out->key_bytes + stored);
    return stored <= room - out->key_bytes;
}

bool reef_page_is_sound(const uint8_t *page, size_t page_bytes, uint64_t number) {
    unsigned flags = get_le16(page + 10);
    size_t lower = get_le16(page + 12);
    size_t upper = get_le16(page + 14);
    if (reef_get_le64(page) != number || (flags != PAGE_BRANCH && flags != PAGE_LEAF)) return false;
    if (lower < PAGE_HEADER_BYTES || lower % 2 != 0 || lower > upper || upper > page_bytes)
        return false;
    // All nodes once, so that later steps may rely on every one of them.
    for (size_t i = 0; i < (lower - PAGE_HEADER_BYTES) / 2; i++) {
        reef_page_node node;
        if (!reef_page_node_parse(page, page_bytes, i, flags == PAGE_BRANCH, &node)) return false;
    }
    return true;
}

// ---- walking ------------------------------------------------------------------------------------

typedef struct walk {
    reef_pages *pages;
    const void *from;
    size_t from_bytes;
    reef_page_visit visit;
    void *context;
} walk;

static bool is_below(const reef_page_node *node, const walk *w) {
    size_t common = node->key_bytes < w->from_bytes ? node->key_bytes : w->from_bytes;
    int order = common == 0 ? 0 : memcmp(node->key, w->from, common);
    return order < 0 || (order == 0 && node->key_bytes < w->from_bytes);
}

// All keys below child i are below the key of child i + 1. (The first key of a branch is empty.)
static bool child_is_below(const walk *w, const uint8_t *page, size_t i, size_t count) {
    reef_page_node next;
    return w->from_bytes > 0 && i + 1 < count &&
           reef_page_node_parse(page, w->pages->page_bytes, i + 1, true, &next) &&
           is_below(&next, w);
}

static reef_status walk_page(const walk *w, uint64_t number, unsigned depth, reef_error *err);

static reef_status walk_nodes(const walk *w, const uint8_t *page, unsigned depth, reef_error *err) {
    reef_pages *pages = w->pages;
    bool branch = reef_page_flags(page) == PAGE_BRANCH;
    size_t count = reef_page_nodes(page);
    if (branch && count < 2) // LMDB asserts this
        return reef_page_damaged(pages, reef_get_le64(page), err);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        reef_page_node node;
        bool sound = reef_page_node_parse(page, pages->page_bytes, i, branch, &node);
        assert(sound);
        if (branch && !child_is_below(w, page, i, count))
            status = walk_page(w, node.child, depth - 1, err);
        else if (!branch && !is_below(&node, w))
            status = w->visit(w->context, pages, &node, err);
    }
    return status;
}

static reef_status walk_page(const walk *w, uint64_t number, unsigned depth, reef_error *err) {
    reef_pages *pages = w->pages;
    // A damaged child may point upwards, and the walk would never end.
    if (depth == 0) return reef_page_damaged(pages, number, err);
    uint8_t *page = malloc(pages->page_bytes);
    if (page == NULL) return no_memory(pages->path, err);
    reef_status status = reef_pages_read(pages, number, 1, page, err);
    if (status == REEF_OK && !reef_page_is_sound(page, pages->page_bytes, number))
        status = reef_page_damaged(pages, number, err);
    if (status == REEF_OK) status = walk_nodes(w, page, depth, err);
    free(page);
    return status;
}

reef_status reef_pages_walk(reef_pages *pages,
                            uint64_t root,
                            const void *from,
                            size_t from_bytes,
                            reef_page_visit visit,
                            void *context,
                            reef_error *err) {
    const walk w = {pages, from, from_bytes, visit, context};
    return root == TREE_EMPTY ? REEF_OK : walk_page(&w, root, TREE_DEPTH_MAX, err);
}

// ---- values -------------------------------------------------------------------------------------

reef_status reef_pages_overflow(reef_pages *pages,
                                const reef_page_node *node,
                                uint64_t *first,
                                size_t *count,
                                reef_error *err) {
    size_t needed =
        (PAGE_HEADER_BYTES + node->value_bytes + pages->page_bytes - 1) / pages->page_bytes;
    *first = reef_get_le64(node->value);
    *count = 0;
    uint8_t *page = malloc(pages->page_bytes);
    if (page == NULL) return no_memory(pages->path, err);
    reef_status status = reef_pages_read(pages, *first, 1, page, err);
    size_t have = status == REEF_OK ? reef_get_le32(page + 12) : 0;
    // The run may be longer than needed: LMDB writes a smaller value over a larger one.
    if (status == REEF_OK &&
        (reef_get_le64(page) != *first || reef_page_flags(page) != PAGE_OVERFLOW || have < needed ||
         have > pages->last_page - *first + 1))
        status = reef_page_damaged(pages, *first, err);
    free(page);
    if (status == REEF_OK) *count = have;
    return status;
}

reef_status reef_pages_value(reef_pages *pages,
                             const reef_page_node *node,
                             const uint8_t **value,
                             uint8_t **buffer,
                             reef_error *err) {
    uint64_t first;
    size_t count;
    *buffer = NULL;
    *value = node->value;
    if (!(node->flags & NODE_BIG)) return REEF_OK;
    reef_status status = reef_pages_overflow(pages, node, &first, &count, err);
    if (status != REEF_OK) return status;
    // Not all of the run: it may be longer than its value, and its end was then never written.
    count = (PAGE_HEADER_BYTES + node->value_bytes + pages->page_bytes - 1) / pages->page_bytes;
    *buffer = malloc(count * pages->page_bytes);
    if (*buffer == NULL) return no_memory(pages->path, err);
    *value = *buffer + PAGE_HEADER_BYTES;
    return reef_pages_read(pages, first, count, *buffer, err);
}

// ---- meta pages ---------------------------------------------------------------------------------

// If the first meta page is damaged, the second one still identifies the file as a pool.
static bool has_second_meta(const reef_pages *file) {
    uint8_t meta[META_BYTES];
    for (off_t at = PAGE_BYTES_MIN; at <= PAGE_BYTES_MAX; at *= 2)
        if (pread(file->fd, meta, META_BYTES, at) == META_BYTES &&
            reef_get_le32(meta + 16) == META_MAGIC && reef_get_le32(meta + 20) == META_VERSION &&
            reef_get_le64(meta) == 1)
            return true;
    return false;
}

// One of the two meta pages; `offset` is where it should be.
static reef_status meta_read(reef_pages *file,
                             off_t offset,
                             uint8_t meta[META_BYTES],
                             reef_error *err) {
    ssize_t got = pread(file->fd, meta, META_BYTES, offset);
    if (got < 0) return fail_read(file, err);
    bool lmdb = got == META_BYTES && reef_get_le32(meta + 16) == META_MAGIC &&
                reef_page_flags(meta) == PAGE_META;
    if (lmdb && reef_get_le32(meta + 20) == META_VERSION) return REEF_OK;
    if (offset > 0 || has_second_meta(file)) // one of the two is as it should be
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s: the %s meta page of " DATA_FILE " is damaged", file->path,
                         offset == 0 ? "first" : "second");
    if (!lmdb)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s is not a pool: its " DATA_FILE " is not an LMDB file", file->path);
    return reef_fail(err, REEF_ERR_VERSION,
                     "pool %s: " DATA_FILE " has LMDB format %" PRIu32 ", this program reads %u",
                     file->path, reef_get_le32(meta + 20), META_VERSION);
}

static reef_status metas_read_once(reef_pages *file,
                                   uint8_t metas[2][META_BYTES],
                                   reef_error *err) {
    reef_status status = meta_read(file, 0, metas[0], err);
    if (status != REEF_OK) return status;
    uint32_t page_bytes = reef_get_le32(metas[0] + 40);
    // Where the second meta page lies depends on the size, so it comes first.
    if (page_bytes < PAGE_BYTES_MIN || page_bytes > PAGE_BYTES_MAX ||
        (page_bytes & (page_bytes - 1)))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s: the first meta page of " DATA_FILE
                         " is damaged: it says that pages have %" PRIu32 " bytes",
                         file->path, page_bytes);
    file->page_bytes = page_bytes;
    status = meta_read(file, page_bytes, metas[1], err);
    if (status == REEF_OK && reef_get_le32(metas[1] + 40) != page_bytes) // LMDB takes the newest's
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "pool %s: the meta pages of " DATA_FILE " have pages of %" PRIu32
                           " and of %" PRIu32 " bytes",
                           file->path, page_bytes, reef_get_le32(metas[1] + 40));
    return status;
}

// A writer changes one of the two at every commit, and it may be caught half-written: until they
// are the same twice.
static reef_status metas_read(reef_pages *file, uint8_t metas[2][META_BYTES], reef_error *err) {
    uint8_t before[2][META_BYTES];
    reef_status status = metas_read_once(file, metas, err);
    for (int i = 0; i < META_ATTEMPTS_MAX; i++) {
        reef_status last = status;
        memcpy(before, metas, sizeof(before));
        status = metas_read_once(file, metas, err);
        // A commit writes a meta page without a lock, so one read may be half old and half new.
        if (status == last && (status != REEF_OK || memcmp(before, metas, sizeof(before)) == 0))
            break;
    }
    return status;
}

// From here on `file` is as of the commit of this meta page, one of the two.
static reef_status meta_use(reef_pages *file,
                            uint8_t metas[2][META_BYTES],
                            int which,
                            reef_error *err) {
    const uint8_t *meta = metas[which];
    for (int i = 0; i < 2; i++) file->transactions[i] = reef_get_le64(metas[i] + 144);
    for (int i = 0; i < 2; i++) file->meta_numbers[i] = reef_get_le64(metas[i]);
    file->metas_equal = memcmp(metas[0] + 8, metas[1] + 8, META_BYTES - 8) == 0;
    file->transaction = reef_get_le64(meta + 144);
    file->last_page = reef_get_le64(meta + 136);
    memcpy(file->free_tree, meta + 40, TREE_BYTES);
    memcpy(file->main_tree, meta + 88, TREE_BYTES);
    file->main_root_before = reef_get_le64(metas[1 - which] + 128);

    struct stat info;
    if (fstat(file->fd, &info) != 0) return fail_read(file, err);
    file->file_pages = (uint64_t)info.st_size / file->page_bytes;
    if (file->last_page < 1 || file->last_page > (uint64_t)INT64_MAX / file->page_bytes - 1)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s: the meta page of " DATA_FILE " is damaged", file->path);
    // Pages beyond the end of the file are in the free tree, 8 bytes each. A transaction cannot
    // have left more than these unwritten: a larger number is wrong, and must not size an
    // allocation.
    if (file->last_page / (file->page_bytes / 8 + 1) > file->file_pages)
        return reef_pages_truncated(file, file->last_page + 1, err);
    return REEF_OK;
}

reef_status reef_pages_meta(reef_pages *file, reef_error *err) {
    uint8_t metas[2][META_BYTES] = {{0}};
    reef_status status = metas_read(file, metas, err);
    if (status != REEF_OK) return status;
    return meta_use(file, metas, reef_get_le64(metas[1] + 144) > reef_get_le64(metas[0] + 144),
                    err);
}

// The same, with the meta page of the commit `transaction`. *found: it is one of the last two.
// Errors: those of reef_pages_meta.
static reef_status meta_of(reef_pages *file, uint64_t transaction, bool *found, reef_error *err) {
    uint8_t metas[2][META_BYTES] = {{0}};
    reef_status status = metas_read(file, metas, err);
    *found = false;
    for (int which = 0; status == REEF_OK && !*found && which < 2; which++) {
        // A newer commit overwrites the older page; then the transaction is gone.
        if (reef_get_le64(metas[which] + 144) != transaction) continue;
        *found = true;
        status = meta_use(file, metas, which, err);
    }
    return status;
}

// Whose the pool is says what to do about it.
reef_status reef_pool_access_fail(const char *path, const char *doing, reef_error *err) {
    struct stat info;
    struct passwd user, *found = NULL;
    char words[1024], file[PATH_MAX];
    snprintf(file, sizeof(file), "%s/data.mdb", path);
    if (stat(file, &info) != 0 && stat(path, &info) != 0)
        return reef_fail(err, REEF_ERR_IO,
                         "no right to %s of pool %.140s: a folder above it may not be entered",
                         doing, path);
    if (getpwuid_r(info.st_uid, &user, words, sizeof(words), &found) != 0) found = NULL;
    return reef_fail(err, REEF_ERR_IO,
                     "no right to %s of pool %.120s: it is owned by %.32s (user %u), mode %04o",
                     doing, path, found != NULL ? user.pw_name : "nobody known",
                     (unsigned)info.st_uid, (unsigned)info.st_mode & 07777);
}

char *reef_pool_file_path(const char *path, const char *file) {
    size_t bytes = strlen(path) + 1 + strlen(file) + 1;
    char *joined = malloc(bytes);
    if (joined != NULL) snprintf(joined, bytes, "%s/%s", path, file);
    return joined;
}

// ---- the pages of a commit ----------------------------------------------------------------------

// Commits between the start of a read and reading its meta page; a writer cannot win so often in a
// row.
#define PIN_ATTEMPTS_MAX 1000

reef_status reef_pages_pin(reef_pages *pages, reef_store *store, reef_txn **txn, reef_error *err) {
    for (int i = 0; i < PIN_ATTEMPTS_MAX; i++) {
        bool found = false;
        reef_txn_abort(*txn);
        reef_status status = reef_txn_begin(txn, store, REEF_TXN_READ, err);
        // Mostly the newest. But LMDB lets nobody begin on a commit whose meta page is not yet on
        // the disk, which takes long, though all can read it there.
        if (status == REEF_OK) status = meta_of(pages, mdb_txn_id((*txn)->lmdb), &found, err);
        if (status != REEF_OK || found) return status;
    }
    return reef_fail(err, REEF_ERR_BUSY, "commits of pool %s do not pause", pages->path);
}
