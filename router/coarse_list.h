// Lists of the best sub-keys by coarse scores first, and exact ones of what they leave; private to
// the router.
#ifndef REEF_COARSE_LIST_H
#define REEF_COARSE_LIST_H

#include "coarse.h"
#include "product_key.h"

enum { COARSE_GROUP = 8 }; // queries that are listed together

/** Scratch of a group: of tables a and b each. */
typedef struct coarse_scratch {
    uint32_t *groups;   // (COARSE_GROUP, half / together) of one table after the other
    int16_t *words[2];  // (COARSE_GROUP, half)
    int16_t *scores[2]; // (COARSE_GROUP, padded side)
    uint16_t *rows[2];  // (COARSE_ROOM) sub-keys that are left for one query
    float *near[2];     // (COARSE_ROOM) their scores
    float *exact;       // (COARSE_ROOM)
} coarse_scratch;

/**
 * In which order BLAS sums the products of a score, by the place that it has in a tile: one after
 * the other, or the even ones and the odd ones apart. Lives as long as the process.
 */
typedef struct coarse_order {
    const uint8_t *pattern;   // (count) of the tile's queries
    const uint32_t *pairwise; // (patterns, words) bits of the sub-keys with the second order
    size_t words;             // of a pattern
} coarse_order;

/** Keys of a table with those that fill its last block. */
size_t reef_coarse_padded(size_t side);

/** May this shape have a first pass with these kernels (NULL: there are none)? */
bool reef_coarse_fits(const reef_coarse_kernels *kernels, const reef_router_shape *shape);

/**
 * The order of BLAS in tiles of `count` queries, at most 256. The products themselves are asked,
 * once for each size, with numbers whose sums depend on the order. NULL where they have others, and
 * without memory.
 *
 * queries  (count, half) scratch
 * tile     (count + half, tile_stride) scratch, tile_stride at least side
 *
 * Threads: any number may ask at once.
 */
const coarse_order *reef_coarse_order(const reef_coarse_kernels *kernels,
                                      size_t count,
                                      size_t side,
                                      size_t half,
                                      float *queries,
                                      size_t tile_stride,
                                      float *tile);

/** Up to COARSE_GROUP queries of a tile. */
typedef struct coarse_group {
    const reef_coarse_kernels *kernels;
    const coarse_order *order;
    const coarse_table *tables[2]; // a, b
    size_t first, count;           // in the tile
    const float *query;            // (count) rows of both halves, `stride` apart
    size_t stride;
    coarse_query rounded[2][COARSE_GROUP];
} coarse_group;

/** Coarse scores of all queries of a group. False when one is of no use here. */
bool reef_coarse_score(coarse_group *group, const coarse_scratch *scratch);

/**
 * The lists of query `n` of a group: of both tables the sub-keys that may take part in one of the
 * `topk` best pairs or tie with it, by their exact scores. False, lists unspecified, where too many
 * may.
 */
bool reef_coarse_list(const coarse_group *group,
                      const coarse_scratch *scratch,
                      size_t n,
                      pair_lists *lists);

#endif
