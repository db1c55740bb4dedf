// Lists of the best sub-keys by coarse scores first, and exact ones of what they leave; private to
// the router.
#ifndef REEF_COARSE_LIST_H
#define REEF_COARSE_LIST_H

#include "coarse.h"
#include "product_key.h"

/** What is left of one table for one query, whose rows and scores lie beside it. */
typedef struct coarse_left {
    size_t count;
    float margin; // see coarse_query
    float peaks[COARSE_PEAKS];
} coarse_left;

/** Scratch of a tile; of two, the one of table a first. */
typedef struct coarse_scratch {
    uint32_t *groups;      // (group of the kernels, half / together)
    int16_t *words;        // (group of the kernels, half)
    int16_t *scores;       // (group of the kernels, padded side)
    coarse_left *left[2];  // (tile_rows)
    uint16_t *rows[2];     // (tile_rows, COARSE_ROOM)
    float *scores_left[2]; // (tile_rows, COARSE_ROOM) of these rows, nearly exact, then exact
} coarse_scratch;

/** Keys of a table with those that fill its last block. */
size_t reef_coarse_padded(size_t side);

/** May this shape have a first pass with these kernels (NULL: there are none)? */
bool reef_coarse_fits(const reef_coarse_kernels *kernels, const reef_router_shape *shape);

/** The queries of a tile. */
typedef struct coarse_tile {
    const reef_coarse_kernels *kernels;
    const coarse_table *tables[2]; // a, b
    size_t topk;
    const pair_stairs *stairs; // of topk
    size_t count;              // of queries
    const float *query;        // (count) rows of both halves, `stride` apart
    size_t stride;
} coarse_tile;

/**
 * Of both tables the sub-keys that may take part in one of the `topk` best pairs of a query, or tie
 * with one. One table after the other, so that its bytes and words stay in cache. False, nothing
 * settled, when a query is of no use here or too many sub-keys are left.
 */
bool reef_coarse_reach(const coarse_tile *tile, const coarse_scratch *scratch);

/** Their exact scores for one query: the list of table `side`. Returns its length. */
size_t reef_coarse_list(const coarse_tile *tile,
                        const coarse_scratch *scratch,
                        size_t side,
                        size_t n,
                        float *best,     // (reef_pairs_kept) written
                        uint16_t *rows); // (reef_pairs_kept) written

/**
 * Exact scores of all `side` sub-keys of a table for one query: what the lists above have of them.
 * Of the table only keys, side, half and stride are read.
 *
 * query   (half)
 * scores  (side) written
 */
void reef_coarse_score_all(const reef_coarse_kernels *kernels,
                           const coarse_table *table,
                           const float *query,
                           float *scores);

#endif
