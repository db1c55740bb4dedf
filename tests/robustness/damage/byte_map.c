// See byte_map.h. The layout is drawn in store/pool_file.c; here every byte of it gets a name.
#include "byte_map.h"

#include "reef_byte_order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_HEADER 16u
#define NODE_HEADER 8u
#define BRANCH 0x01u
#define LEAF 0x02u
#define OVERFLOW 0x04u
#define BIG 0x01u
#define EMPTY UINT64_MAX

static uint16_t get16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static void mark(byte_map *map, size_t at, size_t bytes, byte_kind kind, uint32_t owner) {
    assert(at + bytes <= map->bytes);
    for (size_t i = at; i < at + bytes; i++) {
        map->kind[i] = (uint8_t)kind;
        map->owner[i] = owner;
    }
}

static const uint8_t *page_at(const byte_map *map, const uint8_t *image, uint64_t page) {
    return image + page * map->page_bytes;
}

// ---- records ------------------------------------------------------------------------------------

static uint32_t record_find(const byte_map *map, uint8_t tree, const uint8_t *key, size_t bytes) {
    for (size_t i = 0; i < map->record_count; i++) {
        const live_record *r = map->records + i;
        if (r->tree == tree && r->key_bytes == bytes && memcmp(r->key, key, bytes) == 0)
            return (uint32_t)i;
    }
    return UINT32_MAX;
}

static uint32_t record_add(
    byte_map *map, uint8_t tree, size_t at, const uint8_t *key, size_t bytes) {
    reef_key decoded;
    char name[REEF_NAME_BYTES_MAX + 1];
    if (map->record_count % 256 == 0)
        map->records = realloc(map->records, (map->record_count + 256) * sizeof(*map->records));
    assert(map->records != NULL);
    live_record *r = map->records + map->record_count;
    *r = (live_record){.tree = tree, .at = at, .key = key, .key_bytes = bytes};
    if (tree != REEF_DB_SUMS) {
        reef_status status = reef_key_decode((reef_db)tree, key, bytes, &decoded, name, NULL);
        assert(status == REEF_OK);
        reef_key_format(&decoded, r->text);
    }
    return (uint32_t)map->record_count++;
}

// Whose record is it: of sums, the one that the entry is about.
static uint32_t owner_of(byte_map *map, uint8_t tree, size_t at, const uint8_t *key, size_t bytes) {
    uint32_t added = record_add(map, tree, at, key, bytes);
    if (tree != REEF_DB_SUMS) return added;
    uint32_t about = record_find(map, key[0], key + 1, bytes - 1);
    assert(about != UINT32_MAX);
    return about;
}

// ---- trees --------------------------------------------------------------------------------------

static void walk(byte_map *map, uint8_t tree, uint64_t page);

// pad u32 (never read), flags, depth, counts, root
static void mark_tree_record(byte_map *map, size_t at) {
    mark(map, at + 4, 44, BYTE_TREE, 0);
}

static uint8_t tree_named(const uint8_t *name, size_t bytes) {
    for (reef_db db = 0; db < REEF_DB_COUNT; db++)
        if (strlen(reef_db_name(db)) == bytes && memcmp(reef_db_name(db), name, bytes) == 0)
            return (uint8_t)db;
    assert(false);
    return 0;
}

static void mark_value(byte_map *map, uint8_t tree, size_t at, size_t bytes, uint32_t owner) {
    if (tree != TREE_FREE) {
        mark(map, at, bytes, BYTE_RECORD, owner);
        return;
    }
    uint64_t count = reef_get_le64(map->image + at); // what follows the pages is room
    mark(map, at, 8 * (1 + count), BYTE_TREE, 0);
}

static void mark_big(byte_map *map, uint8_t tree, uint64_t page, size_t bytes, uint32_t owner) {
    size_t at = page * map->page_bytes;
    uint64_t count = reef_get_le32(map->image + at + 12);
    assert(get16(map->image + at + 10) == OVERFLOW);
    for (uint64_t i = 0; i < count; i++) map->tree[page + i] = tree;
    mark(map, at, 8, BYTE_TREE, 0);      // number
    mark(map, at + 10, 6, BYTE_TREE, 0); // flags, count
    mark_value(map, tree, at + PAGE_HEADER, bytes, owner);
}

static void walk_leaf_node(byte_map *map, uint8_t tree, size_t at) {
    const uint8_t *node = map->image + at;
    size_t value_bytes = reef_get_le32(node);
    size_t key_bytes = get16(node + 6);
    size_t value_at = at + NODE_HEADER + key_bytes;
    bool big = get16(node + 4) & BIG;
    uint32_t owner = 0;
    mark(map, at, NODE_HEADER, BYTE_TREE, 0);
    if (tree == TREE_MAIN) {
        mark(map, at + NODE_HEADER, key_bytes, BYTE_TREE, 0);
        mark_tree_record(map, value_at);
        return; // below, sums last
    }
    if (tree == TREE_FREE) {
        mark(map, at + NODE_HEADER, key_bytes, BYTE_ANY, 0); // a lower number may still be in order
    } else {
        owner = owner_of(map, tree, at, node + NODE_HEADER, key_bytes);
        mark(map, at + NODE_HEADER, key_bytes, BYTE_RECORD, owner);
    }
    if (big) {
        mark(map, value_at, 8, BYTE_TREE, 0);
        mark_big(map, tree, reef_get_le64(map->image + value_at), value_bytes, owner);
    } else {
        mark_value(map, tree, value_at, value_bytes, owner);
    }
}

static void walk_branch_node(byte_map *map, uint8_t tree, size_t at, bool first) {
    const uint8_t *node = map->image + at;
    mark(map, at, NODE_HEADER, BYTE_TREE, 0);
    // A key's length may change and still separate; the first key is never compared.
    mark(map, at + 6, 2, BYTE_ANY, 0);
    byte_kind kind = first ? BYTE_UNUSED : tree < REEF_DB_COUNT ? BYTE_SEPARATOR : BYTE_ANY;
    mark(map, at + NODE_HEADER, get16(node + 6), kind, 0);
    walk(map, tree, reef_get_le32(node) | (uint64_t)get16(node + 4) << 32);
}

static void walk(byte_map *map, uint8_t tree, uint64_t page) {
    assert(page >= 2 && page < map->page_count);
    size_t at = page * map->page_bytes;
    const uint8_t *bytes = map->image + at;
    unsigned flags = get16(bytes + 10);
    size_t lower = get16(bytes + 12);
    assert(reef_get_le64(bytes) == page && (flags == LEAF || flags == BRANCH));
    map->tree[page] = tree;
    mark(map, at, 8, BYTE_TREE, 0);
    mark(map, at + 10, lower - 10, BYTE_TREE, 0); // flags, bounds, offsets of nodes
    for (size_t i = 0; i < (lower - PAGE_HEADER) / 2; i++) {
        size_t node = at + get16(bytes + PAGE_HEADER + 2 * i);
        if (flags == LEAF)
            walk_leaf_node(map, tree, node);
        else
            walk_branch_node(map, tree, node, i == 0);
    }
}

// The databases that the main tree lists, in the order of their numbers. The sums come last, after
// the records that they are of.
static void read_roots(byte_map *map, uint64_t page) {
    const uint8_t *bytes = page_at(map, map->image, page);
    for (size_t i = 0; i < (get16(bytes + 12) - PAGE_HEADER) / 2u; i++) {
        const uint8_t *node = bytes + get16(bytes + PAGE_HEADER + 2 * i);
        size_t key_bytes = get16(node + 6);
        if (get16(bytes + 10) == BRANCH)
            read_roots(map, reef_get_le32(node) | (uint64_t)get16(node + 4) << 32);
        else
            map->roots[tree_named(node + NODE_HEADER, key_bytes)] =
                reef_get_le64(node + NODE_HEADER + key_bytes + 40);
    }
}

static void mark_meta(byte_map *map, size_t at, bool newest) {
    map->tree[at / map->page_bytes] = TREE_META;
    mark(map, at, 8, BYTE_TREE, 0);       // number
    mark(map, at + 10, 2, BYTE_TREE, 0);  // flags
    mark(map, at + 16, 8, BYTE_TREE, 0);  // magic, version
    mark(map, at + 32, 8, BYTE_ANY, 0);   // size of the map
    mark(map, at + 40, 4, BYTE_TREE, 0);  // bytes of a page
    mark(map, at + 144, 8, BYTE_TREE, 0); // transaction
    if (!newest) return;
    mark(map, at + 44, 44, BYTE_TREE, 0); // the free tree
    mark_tree_record(map, at + 88);
    mark(map, at + 136, 8, BYTE_TREE, 0); // last page
}

bool byte_map_init(byte_map *map, const uint8_t *image, size_t bytes) {
    *map = (byte_map){.image = image, .bytes = bytes, .page_bytes = reef_get_le32(image + 40)};
    if (map->page_bytes < 512 || map->page_bytes > 65536) return false;
    map->page_count = bytes / map->page_bytes;
    map->kind = calloc(bytes, sizeof(*map->kind));
    map->owner = calloc(bytes, sizeof(*map->owner));
    map->tree = malloc(map->page_count);
    if (map->kind == NULL || map->owner == NULL || map->tree == NULL) return false;
    memset(map->tree, TREE_NONE, map->page_count);
    const uint8_t *other = page_at(map, image, 1);
    size_t newest = reef_get_le64(other + 144) > reef_get_le64(image + 144);
    mark_meta(map, 0, newest == 0);
    mark_meta(map, map->page_bytes, newest == 1);
    const uint8_t *meta = page_at(map, image, newest);
    uint64_t free_root = reef_get_le64(meta + 80);
    uint64_t main_root = reef_get_le64(meta + 128);
    read_roots(map, main_root);
    walk(map, TREE_MAIN, main_root);
    for (uint8_t db = 0; db < REEF_DB_COUNT; db++)
        if (db != REEF_DB_SUMS && map->roots[db] != EMPTY) walk(map, db, map->roots[db]);
    if (map->roots[REEF_DB_SUMS] != EMPTY) walk(map, REEF_DB_SUMS, map->roots[REEF_DB_SUMS]);
    if (free_root != EMPTY) walk(map, TREE_FREE, free_root);
    return true;
}

void byte_map_release(byte_map *map) {
    free(map->kind);
    free(map->owner);
    free(map->tree);
    free(map->records);
    *map = (byte_map){0};
}

const char *byte_map_tree_name(uint8_t tree) {
    static const char *const names[] = {"list of databases", "the free list", "meta page",
                                        "no tree"};
    return tree < REEF_DB_COUNT ? reef_db_name((reef_db)tree) : names[tree - REEF_DB_COUNT];
}

// ---- searching ----------------------------------------------------------------------------------

static int compare(const uint8_t *node, const uint8_t *key, size_t bytes) {
    size_t node_bytes = get16(node + 6);
    int order = memcmp(node + NODE_HEADER, key, node_bytes < bytes ? node_bytes : bytes);
    return order != 0 ? order : (node_bytes > bytes) - (node_bytes < bytes);
}

// As LMDB searches: in branches by bisection, the first key being lower than all.
static size_t search(const byte_map *map, const uint8_t *image, const live_record *r) {
    uint64_t page = map->roots[r->tree];
    for (int depth = 0; depth < 32 && page < map->page_count; depth++) {
        const uint8_t *bytes = page_at(map, image, page);
        size_t count = (get16(bytes + 12) - PAGE_HEADER) / 2u;
        bool leaf = get16(bytes + 10) == LEAF;
        size_t low = leaf ? 0 : 1, high = count;
        while (low < high) { // the first node that is greater
            size_t middle = (low + high) / 2;
            const uint8_t *node = bytes + get16(bytes + PAGE_HEADER + 2 * middle);
            if (compare(node, r->key, r->key_bytes) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0) return SIZE_MAX;
        const uint8_t *node = bytes + get16(bytes + PAGE_HEADER + 2 * (low - 1));
        if (leaf)
            return compare(node, r->key, r->key_bytes) == 0 ? (size_t)(node - image) : SIZE_MAX;
        page = reef_get_le32(node) | (uint64_t)get16(node + 4) << 32;
    }
    return SIZE_MAX;
}

bool byte_map_finds_all(const byte_map *map, const uint8_t *image) {
    for (size_t i = 0; i < map->record_count; i++)
        if (search(map, image, map->records + i) != map->records[i].at) return false;
    return true;
}
