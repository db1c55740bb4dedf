// The structure of the data file, read page by page without LMDB.
//
// Checksums cover records. What holds them together, LMDB does not protect at all: a flipped bit in
// a page's header, in a node, in a separator or in the free list hides records, or has a later
// commit write over live pages, and reading them may end the process. So here the trees are walked
// with pread (page_reader.h, which draws the layout) before LMDB follows them, and what LMDB takes
// for granted is checked:
//
//   meta pages   numbers of the two differ by one, each in its own page
//   page         its number, kind and bounds; its nodes fill it from `upper` to the end without gap
//                or overlap
//   keys         ascend, and lie between the separators on the way to their page
//   tree         depth, and the counts of branch, leaf and overflow pages and of entries
//   free list    descends; no page is free and used, used twice, or neither
//
// What it leaves out are bytes that nothing reads: the room between `lower` and `upper`, the ends
// of overflow pages, free pages, and all but the number and the kind of the older meta page.
#include "check.h"

#include "page_reader.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_store.h"
#include "store_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES_MAX 511u // LMDB's own limit

typedef struct page_check {
    reef_check *check;
    reef_pages *pages;
    uint8_t *taken; // one bit per page: used, or free
    uint64_t used, free;
    // (2, TREE_DEPTH_MAX, page_bytes) the pages on the way down: of databases, of records
    uint8_t *buffers;
    bool broken;        // part of a tree is unknown, and so is which pages are left over
    reef_error stopped; // by a lack of memory
} page_check;

typedef enum tree_kind { FREE_LIST, DATABASES, RECORDS } tree_kind;

typedef struct tree {
    tree_kind kind;
    uint8_t *buffers; // (TREE_DEPTH_MAX, page_bytes) by height
    reef_db db;       // of RECORDS; REEF_DB_COUNT for a database that is not ours
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_page_tree recorded, found; // in the tree's own record, and counted so far
    bool broken;                    // part of it is unknown
} tree;

typedef struct span {
    const uint8_t *data; // NULL: no bound
    size_t bytes;
} span;

static span key_of(const reef_page_node *node) {
    return (span){.data = node->key, .bytes = node->key_bytes};
}

// ---- saying it ----------------------------------------------------------------------------------

#define FROM_BYTES (REEF_KEY_TEXT_BYTES + 16)

// Which records a page holds, by the separator that leads to it: " (from experts (...) on)".
static void from_format(const tree *t, span from, char out[FROM_BYTES]) {
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    char text[REEF_KEY_TEXT_BYTES];
    reef_db db = t->db;
    out[0] = '\0';
    if (t->kind != RECORDS || db == REEF_DB_COUNT || from.data == NULL) return;
    if (db == REEF_DB_SUMS) { // the database of the record, and its key
        if (from.bytes < 1 || !reef_db_has_records((reef_db)from.data[0])) return;
        db = (reef_db)from.data[0];
        from = (span){.data = from.data + 1, .bytes = from.bytes - 1};
    }
    if (reef_key_decode(db, from.data, from.bytes, &key, name, NULL) != REEF_OK) return;
    reef_key_format(&key, text);
    snprintf(out, FROM_BYTES, " (from %s on)", text);
}

static void page_damage(page_check *p, tree *t, uint64_t page, span from, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void page_damage(page_check *p, tree *t, uint64_t page, span from, const char *format, ...) {
    char records[FROM_BYTES];
    char what[sizeof(((reef_error *)0)->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    from_format(t, from, records);
    reef_check_damage(p->check, NULL, "page %" PRIu64 " of %s%s: %s", page, t->name, records, what);
    // Counts are incomplete now, so no page may be called lost.
    t->broken = true;
    p->broken = true;
}

// What cannot be read is damaged, unless it is only memory that this process lacks.
static void unreadable(page_check *p, tree *t, uint64_t page, span from, const reef_error *reason) {
    if (reason->status != REEF_ERR_NO_MEMORY) {
        page_damage(p, t, page, from, "%s", reason->message);
        return;
    }
    p->stopped = *reason;
    t->broken = true;
    p->broken = true;
}

// ---- pages --------------------------------------------------------------------------------------

static bool is_in_file(const page_check *p, uint64_t first, uint64_t count) {
    uint64_t last = p->pages->last_page;
    return first >= 2 && count > 0 && first <= last && count <= last - first + 1;
}

// False when it was taken before.
static bool take_page(page_check *p, uint64_t page) {
    uint8_t bit = (uint8_t)(1u << (page & 7));
    if (p->taken[page >> 3] & bit) return false;
    p->taken[page >> 3] |= bit;
    return true;
}

// Take a run of pages for a tree. What is wrong with that, or NULL.
static const char *take_used(page_check *p, uint64_t first, uint64_t count) {
    if (!is_in_file(p, first, count)) return "a tree points there, where it has no page";
    if (first + count > p->pages->file_pages) return "the file ends before it";
    uint64_t once = 0;
    for (uint64_t page = first; page < first + count; page++) once += take_page(p, page);
    p->used += once;
    return once == count ? NULL : "it is used twice, or free and used";
}

// Free pages may lie beyond the end of the file: they were given back before they were written.
static const char *take_free(page_check *p, uint64_t page) {
    if (!is_in_file(p, page, 1)) return "which the file does not have";
    if (!take_page(p, page)) return "which is in use, or was named before";
    p->free++;
    return NULL;
}

// Do the nodes of a sound page fill it from `upper` to its end, none over another?
static bool nodes_fill(const uint8_t *page, size_t page_bytes) {
    uint8_t covered[PAGE_BYTES_MAX];
    bool branch = reef_page_flags(page) == PAGE_BRANCH;
    size_t room = page_bytes - reef_page_upper(page), filled = 0;
    memset(covered, 0, page_bytes);
    for (size_t i = 0; i < reef_page_nodes(page); i++) {
        reef_page_node node;
        if (!reef_page_node_parse(page, page_bytes, i, branch, &node)) return false;
        size_t end = node.offset + node.bytes;
        // Two nodes over the same bytes would each pass every other test.
        for (size_t at = node.offset; at < end; at++)
            if (covered[at]++) return false;
        filled += node.bytes;
    }
    return filled == room;
}

static int compare_keys(const tree *t, span one, span other) {
    if (t->kind == FREE_LIST) { // all have 8 bytes, see keys_ascend
        uint64_t a = reef_get_le64(one.data), b = reef_get_le64(other.data);
        return (a > b) - (a < b);
    }
    int order = memcmp(one.data, other.data, one.bytes < other.bytes ? one.bytes : other.bytes);
    return order != 0 ? order : (one.bytes > other.bytes) - (one.bytes < other.bytes);
}

static bool keys_ascend(
    const page_check *p, const tree *t, const uint8_t *page, span from, span end) {
    bool branch = reef_page_flags(page) == PAGE_BRANCH;
    span before = {0};
    for (size_t i = branch ? 1 : 0; i < reef_page_nodes(page);
         i++) { // a branch's first is not read
        reef_page_node node;
        if (!reef_page_node_parse(page, p->pages->page_bytes, i, branch, &node)) return false;
        span key = key_of(&node);
        if (key.bytes > KEY_BYTES_MAX || (!branch && key.bytes == 0)) return false;
        if (t->kind == FREE_LIST && key.bytes != 8) return false;
        if (before.data != NULL && compare_keys(t, before, key) >= 0) return false;
        // The others ascend from the first, so it alone needs the lower bound.
        if (before.data == NULL && from.data != NULL && compare_keys(t, key, from) < 0)
            return false;
        before = key;
    }
    return end.data == NULL || compare_keys(t, before, end) < 0;
}

// What is wrong with the bytes of a page at this height above the leaves, or NULL.
static const char *page_wrong(const page_check *p,
                              const tree *t,
                              const uint8_t *page,
                              uint64_t number,
                              unsigned height,
                              span from,
                              span end) {
    size_t page_bytes = p->pages->page_bytes;
    if (reef_get_le64(page) != number) return "it has the number of another page";
    if (!reef_page_is_sound(page, page_bytes, number)) return "its header or a node is damaged";
    bool leaf = reef_page_flags(page) == PAGE_LEAF;
    if (reef_page_nodes(page) < (leaf ? 1 : 2)) return "its header is damaged"; // LMDB relies on it
    if (!nodes_fill(page, page_bytes)) return "its nodes do not fit together";
    if (leaf != (height == 1)) return "its tree has another depth";
    return keys_ascend(p, t, page, from, end) ? NULL : "its keys are out of order";
}

// ---- leaves -------------------------------------------------------------------------------------

// A value of the free tree: a count, and page numbers that descend. One finding for each list.
static void check_free_list(
    page_check *p, tree *t, uint64_t page, const reef_page_node *node, const uint8_t *list) {
    size_t room = node->value_bytes / 8;
    uint64_t count = room > 0 ? reef_get_le64(list) : 0;
    const char *wrong = NULL;
    uint64_t before = UINT64_MAX, named = 0;
    if (node->value_bytes % 8 != 0 || room == 0 || count > room - 1) {
        page_damage(p, t, page, key_of(node), "a list of free pages does not fit its record");
        return;
    }
    // The key is the transaction that freed the pages, so it cannot lie after the commit.
    if (reef_get_le64(node->key) > p->pages->transaction)
        page_damage(p, t, page, key_of(node), "a list of free pages is of a later transaction");
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t number = reef_get_le64(list + 8 * i);
        // Each page is taken even after a fault: later lists are judged by all that this one holds.
        const char *reason = take_free(p, number);
        if (reason == NULL && number >= before) reason = "which is out of order";
        if (wrong == NULL && reason != NULL) {
            wrong = reason;
            named = number;
        }
        before = number;
    }
    if (wrong != NULL)
        page_damage(p, t, page, key_of(node), "it lists page %" PRIu64 " as free, %s", named,
                    wrong);
}

// The pages of a large value; false, after saying so, when they are damaged.
static bool check_overflow(page_check *p, tree *t, const reef_page_node *node) {
    reef_error reason;
    uint64_t first;
    size_t count;
    reef_status status = reef_pages_overflow(p->pages, node, &first, &count, &reason);
    if (status == REEF_ERR_CORRUPT) {
        page_damage(p, t, first, key_of(node), "it is not the large value that belongs there");
        return false;
    }
    if (status != REEF_OK) {
        unreadable(p, t, first, key_of(node), &reason);
        return false;
    }
    // Counted even if another tree uses them: the record of this tree counts them as well.
    t->found.overflow_pages += count;
    const char *wrong = take_used(p, first, count);
    if (wrong != NULL) page_damage(p, t, first, key_of(node), "%s", wrong);
    return wrong == NULL;
}

static void check_tree(page_check *p, tree *t);

static void check_database(page_check *p, tree *t, uint64_t page, const reef_page_node *node) {
    tree below = {.kind = RECORDS};
    below.buffers = p->buffers + (size_t)TREE_DEPTH_MAX * p->pages->page_bytes;
    if (node->flags != NODE_SUBTREE || node->value_bytes != TREE_BYTES) {
        page_damage(p, t, page, key_of(node), "an entry is not a database");
        return;
    }
    // The name goes into messages, so bytes that a terminal interprets are replaced.
    size_t bytes = node->key_bytes < REEF_NAME_BYTES_MAX ? node->key_bytes : REEF_NAME_BYTES_MAX;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t c = node->key[i];
        below.name[i] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    below.db = reef_db_named(node->key, node->key_bytes);
    if (below.db == REEF_DB_COUNT)
        page_damage(p, t, page, key_of(node), "it lists a database %s, which no pool has",
                    below.name);
    // A database that is not ours is walked too: its pages are used, not lost.
    reef_page_tree_parse(node->value, &below.recorded);
    check_tree(p, &below);
}

static void check_leaf_node(page_check *p, tree *t, uint64_t page, const reef_page_node *node) {
    reef_error reason;
    const uint8_t *value;
    uint8_t *buffer;
    t->found.entries++;
    if (t->kind == DATABASES) {
        check_database(p, t, page, node);
        return;
    }
    if ((node->flags & ~NODE_BIG) != 0) {
        page_damage(p, t, page, key_of(node), "a node is damaged");
        return;
    }
    if ((node->flags & NODE_BIG) && !check_overflow(p, t, node)) return;
    // Contents of records are verified elsewhere; here the structure matters.
    if (t->kind != FREE_LIST) return;
    if (reef_pages_value(p->pages, node, &value, &buffer, &reason) != REEF_OK)
        unreadable(p, t, page, key_of(node), &reason);
    else
        check_free_list(p, t, page, node, value);
    free(buffer);
}

// ---- trees --------------------------------------------------------------------------------------

// A page and all below it, whose keys are from `from` (inclusive) to `end` (exclusive); leaves have
// height 1.
static void check_page(
    page_check *p, tree *t, uint64_t number, unsigned height, span from, span end) {
    reef_error reason;
    uint8_t *page = t->buffers + (size_t)(height - 1) * p->pages->page_bytes;
    const char *wrong = take_used(p, number, 1);
    if (wrong == NULL && reef_pages_read(p->pages, number, 1, page, &reason) != REEF_OK) {
        unreadable(p, t, number, from, &reason);
        return;
    }
    if (wrong == NULL) wrong = page_wrong(p, t, page, number, height, from, end);
    if (wrong != NULL) {
        page_damage(p, t, number, from, "%s", wrong);
        return;
    }
    size_t count = reef_page_nodes(page), page_bytes = p->pages->page_bytes;
    bool branch = height > 1;
    *(branch ? &t->found.branch_pages : &t->found.leaf_pages) += 1;
    for (size_t i = 0; i < count; i++) {
        reef_page_node node, next = {.key = end.data, .key_bytes = end.bytes};
        (void)reef_page_node_parse(page, page_bytes, i, branch, &node); // page_wrong has parsed all
        if (!branch) {
            check_leaf_node(p, t, number, &node);
            continue;
        }
        if (i + 1 < count) (void)reef_page_node_parse(page, page_bytes, i + 1, true, &next);
        // The first key of a branch is empty, so the lower bound of the page holds for that child.
        check_page(p, t, node.child, height - 1, i == 0 ? from : key_of(&node), key_of(&next));
    }
}

static void check_tree(page_check *p, tree *t) {
    const reef_page_tree *recorded = &t->recorded, *found = &t->found;
    bool whole = recorded->flags == (t->kind == FREE_LIST ? TREE_INTEGER_KEYS : 0);
    if (recorded->root == TREE_EMPTY) {
        whole = whole && recorded->depth == 0;
    } else if (recorded->depth == 0 || recorded->depth > TREE_DEPTH_MAX) {
        whole = false;
        p->broken = true;
    } else {
        check_page(p, t, recorded->root, recorded->depth, (span){0}, (span){0});
    }
    // Where a page was damaged, what is below it could not be counted.
    bool counted = recorded->branch_pages == found->branch_pages &&
                   recorded->leaf_pages == found->leaf_pages &&
                   recorded->entries == found->entries &&
                   recorded->overflow_pages == found->overflow_pages;
    if (whole && (counted || t->broken)) return;
    reef_check_damage(
        p->check, NULL,
        "the record of %s in the %s is damaged, or part of it is missing: it records "
        "%" PRIu64 " entries on %" PRIu64 " pages, there are %" PRIu64 " on %" PRIu64,
        t->name, t->kind == RECORDS ? "list of databases" : "newest meta page", recorded->entries,
        recorded->branch_pages + recorded->leaf_pages + recorded->overflow_pages, found->entries,
        found->branch_pages + found->leaf_pages + found->overflow_pages);
}

// ---- the whole ----------------------------------------------------------------------------------

static void check_metas(page_check *p) {
    const uint64_t *numbers = p->pages->transactions;
    for (uint64_t i = 0; i < 2; i++)
        if (p->pages->meta_numbers[i] != i)
            reef_check_damage(p->check, NULL, "meta page %" PRIu64 ": its header is damaged", i);
    // A rank that went back one commit has the older page twice: see shard.c.
    if (p->pages->metas_equal) return;
    // Transaction n writes page n % 2, so the other one has n - 1, or 0 in a new file.
    uint64_t apart = numbers[0] > numbers[1] ? numbers[0] - numbers[1] : numbers[1] - numbers[0];
    bool valid_slots = numbers[0] % 2 == 0 && (numbers[1] % 2 == 1 || numbers[1] == 0);
    // Only reported: what is checked next goes by one of the two pages.
    if (apart > 1 || !valid_slots)
        reef_check_damage(p->check, NULL,
                          "the meta pages: transactions %" PRIu64 " and %" PRIu64
                          " cannot follow each other, one of the two is damaged or stale",
                          numbers[0], numbers[1]);
}

// Used pages first: one that is used and free is then the free list's fault, which has no records.
static void check_trees(page_check *p) {
    tree databases = {.kind = DATABASES, .buffers = p->buffers, .name = "the list of databases"};
    tree free_list = {.kind = FREE_LIST, .buffers = p->buffers, .name = "the free list"};
    reef_page_tree_parse(p->pages->main_tree, &databases.recorded);
    reef_page_tree_parse(p->pages->free_tree, &free_list.recorded);
    check_tree(p, &databases);
    check_tree(p, &free_list);
}

static void check_rest(page_check *p) {
    uint64_t first = 2;
    if (p->broken || p->check->report->pages_lost == 0) return;
    while (p->taken[first >> 3] & 1u << (first & 7)) first++;
    reef_check_damage(p->check, NULL,
                      "the free list: %" PRIu64 " pages, the first of them %" PRIu64
                      ", are neither used nor free",
                      p->check->report->pages_lost, first);
}

static void report_pages(const page_check *p) {
    reef_check_report *r = p->check->report;
    r->pages = p->pages->last_page + 1;
    r->pages_used = p->used + 2; // the meta pages
    r->pages_free = p->free;
    r->pages_lost = r->pages - r->pages_used - r->pages_free;
    r->used_bytes = r->pages_used * p->pages->page_bytes;
    r->file_bytes = r->pages * p->pages->page_bytes;
}

reef_status reef_check_pages(reef_check *c, reef_pages *pages, reef_error *err) {
    page_check p = {.check = c, .pages = pages};
    // One bit a page: each is used once, or free once.
    p.taken = calloc(pages->last_page / 8 + 1, 1);
    // One page a height, for the list of databases and for one database below it.
    p.buffers = calloc(2 * TREE_DEPTH_MAX, pages->page_bytes);
    if (p.taken == NULL || p.buffers == NULL) {
        p.stopped.status = reef_fail(&p.stopped, REEF_ERR_NO_MEMORY,
                                     "no memory to check %" PRIu64 " pages", pages->last_page + 1);
    } else {
        check_metas(&p);
        check_trees(&p);
        report_pages(&p);
        // Last: a page is lost only if no tree and no list has claimed it.
        check_rest(&p);
    }
    free(p.taken);
    free(p.buffers);
    if (p.stopped.status == REEF_OK) return REEF_OK;
    return reef_fail(err, p.stopped.status, "%s", p.stopped.message);
}
