// What each byte of a pool's data file is for, found out without the store and without LMDB: an
// oracle for what a check must find. It walks the trees of the newest meta page, as docs/FORMAT.md
// and LMDB's layout say.
#ifndef BYTE_MAP_H
#define BYTE_MAP_H

#include "record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum byte_kind {
    BYTE_UNUSED, // nothing reads it: free pages, gaps, ends of pages
    BYTE_RECORD, // of a live record: its key, header, payload, or its entry in sums
    // of what holds records together: headers, nodes, page numbers, counts, the free list
    BYTE_TREE,
    BYTE_SEPARATOR, // of a key in a branch page: any value that still separates is right
    BYTE_ANY,       // read at times, and any value is possible
} byte_kind;

// Where a page belongs, besides the databases of the store.
enum { TREE_MAIN = REEF_DB_COUNT, TREE_FREE, TREE_META, TREE_NONE };

typedef struct live_record {
    uint8_t tree;       // its database
    size_t at;          // of its node
    const uint8_t *key; // in the image that was mapped
    size_t key_bytes;
    char text[REEF_KEY_TEXT_BYTES]; // as people read it
} live_record;

typedef struct byte_map {
    const uint8_t *image;
    size_t bytes, page_bytes, page_count;
    uint8_t *kind;   // of each byte
    uint32_t *owner; // of each byte of a record: which
    uint8_t *tree;   // of each page
    uint64_t roots[REEF_DB_COUNT];
    live_record *records;
    size_t record_count;
} byte_map;

/** Map a sound file. `image` must outlive the map. False when it makes no sense. */
bool byte_map_init(byte_map *map, const uint8_t *image, size_t bytes);
void byte_map_release(byte_map *map);

/** Is every live record found where it was by a search from the roots of `image`? */
bool byte_map_finds_all(const byte_map *map, const uint8_t *image);

const char *byte_map_tree_name(uint8_t tree);

#endif
