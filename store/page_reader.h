// LMDB's pages, read with pread and checked, never mapped. Private to the store.
//
// LMDB believes what it maps; these functions believe nothing: a wrong page is an error, and a disk
// that fails is one too instead of a signal. What they are for: whether a file may be mapped at all
// (pool_file.c), whether its trees are whole (page_check.c), and checks beside training (scrub.c).
// Nobody else knows LMDB's layout.
#ifndef REEF_PAGE_READER_H
#define REEF_PAGE_READER_H

#include "reef_store.h"

#define DATA_FILE "data.mdb"
#define PAGE_HEADER_BYTES 16u
#define PAGE_BYTES_MAX 65536u
#define PAGE_BRANCH 0x01u
#define PAGE_LEAF 0x02u
#define PAGE_OVERFLOW 0x04u
#define NODE_BIG 0x01u     // the value is the number of its first overflow page
#define NODE_SUBTREE 0x02u // the value is a tree
#define TREE_BYTES 48
#define TREE_DEPTH_MAX 32
#define TREE_EMPTY UINT64_MAX
#define TREE_INTEGER_KEYS 8u // flags of the free tree; all others have none

typedef struct reef_pages {
    const char *path; // of the pool
    int fd;
    uint32_t page_bytes;
    uint64_t file_pages;      // whole pages in the file
    uint64_t transactions[2]; // of both meta pages
    uint64_t meta_numbers[2]; // page numbers stored in the pages themselves; only checks read them
    bool metas_equal;         // but for these numbers: no commit since a step back, or a new file
    uint64_t transaction;     // of the commit that is read
    uint64_t last_page;       // of that commit, as are both trees
    uint8_t free_tree[TREE_BYTES], main_tree[TREE_BYTES];
    uint64_t main_root_before; // of the other meta page's main tree
} reef_pages;

typedef struct reef_page_node {
    const uint8_t *key, *value;
    size_t key_bytes, value_bytes;
    uint16_t flags;
    uint64_t child;       // in branch pages
    size_t offset, bytes; // in its page, its header and padding included
} reef_page_node;

/** A tree as a meta page, or the list of databases, describes it. */
typedef struct reef_page_tree {
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries;
    uint64_t root; // TREE_EMPTY if there is no root
} reef_page_tree;

/**
 * Open the data file of the pool in `path`, which must outlive `out`; its meta pages are not read
 * yet. reef_pages_close accepts the zeroed one and one that failed to open.
 */
REEF_MUST_CHECK reef_status reef_pages_open(reef_pages *out, const char *path, reef_error *err);
void reef_pages_close(reef_pages *pages);
/**
 * Read the meta pages, that of the newest commit is used, and the file's length. Errors: INVALID no
 * LMDB file; VERSION; CORRUPT; IO.
 */
REEF_MUST_CHECK reef_status reef_pages_meta(reef_pages *pages, reef_error *err);
/**
 * Begin a read, so that the pages of its commit stay as they are, and read that commit's meta page.
 * A read in `*txn` is ended before; NULL: none. Errors: BUSY: commits do not pause; those of both.
 */
REEF_MUST_CHECK reef_status reef_pages_pin(reef_pages *pages,
                                           reef_store *store,
                                           reef_txn **txn,
                                           reef_error *err);

/**
 * Read pages first .. first + count - 1. CORRUPT when they are beyond the last page or the file's
 * end.
 */
REEF_MUST_CHECK reef_status
reef_pages_read(reef_pages *pages, uint64_t first, size_t count, uint8_t *out, reef_error *err);
/** CORRUPT "the pool is truncated"; `pages` are what its last commit needs. */
reef_status reef_pages_truncated(const reef_pages *file, uint64_t pages, reef_error *err);
/**
 * Where the value of a NODE_BIG node lies: its run of pages, whose first page is read and checked.
 */
REEF_MUST_CHECK reef_status reef_pages_overflow(
    reef_pages *pages, const reef_page_node *node, uint64_t *first, size_t *count, reef_error *err);
/**
 * A leaf node's value, wherever it lies; `buffer` (to be freed, also after an error) holds it if
 * need be.
 */
REEF_MUST_CHECK reef_status reef_pages_value(reef_pages *pages,
                                             const reef_page_node *node,
                                             const uint8_t **value,
                                             uint8_t **buffer,
                                             reef_error *err);

unsigned reef_page_flags(const uint8_t *page);
size_t reef_page_nodes(const uint8_t *page); // how many
size_t reef_page_upper(const uint8_t *page); // where their room begins
/** Is this a branch or leaf page whose every node lies inside it? */
bool reef_page_is_sound(const uint8_t *page, size_t page_bytes, uint64_t number);
/** Node i of a branch or leaf page; false when it is not inside it. */
bool reef_page_node_parse(
    const uint8_t *page, size_t page_bytes, size_t i, bool branch, reef_page_node *out);
void reef_page_tree_parse(const uint8_t bytes[TREE_BYTES], reef_page_tree *out);
/** CORRUPT "page N of data.mdb is damaged". */
reef_status reef_page_damaged(const reef_pages *file, uint64_t page, reef_error *err);

typedef reef_status (*reef_page_visit)(void *context,
                                       reef_pages *pages,
                                       const reef_page_node *node,
                                       reef_error *err);
/**
 * Visit the leaf nodes of a tree in the order of their keys, from the first one that is not below
 * `from` (all when from_bytes is 0). A status other than OK ends the walk and is passed on.
 */
REEF_MUST_CHECK reef_status reef_pages_walk(reef_pages *pages,
                                            uint64_t root,
                                            const void *from,
                                            size_t from_bytes,
                                            reef_page_visit visit,
                                            void *context,
                                            reef_error *err);

#endif
