// What the router's files share: the query network, the choice of pairs, coarse lists, and how a
// tape's scratch is divided. Private to the router and its tests.
#ifndef REEF_ROUTER_INTERNAL_H
#define REEF_ROUTER_INTERNAL_H

#include "coarse.h"
#include "reef_router.h"

// ---- query_network.c ----------------------------------------------------------------------------

/** Features that one piece of batch-norm work covers; the sums of a panel fit the stack. */
enum { PANEL_WIDTH = 64 };

/** Are all D values finite? */
bool reef_query_is_finite(size_t D, const float *x);

/**
 * Batch norm over B rows of `count` <= PANEL_WIDTH neighbouring features; `stride` floats a row.
 * mean, var  (count) written; var is biased
 */
void reef_query_norm_forward(size_t B,
                             size_t count,
                             size_t stride,
                             float *query,           // (B, stride) written
                             float *mean,            // (count) written
                             float *var,             // (count) written
                             const float *query_raw, // (B, stride)
                             const float *bn_scale,  // (count)
                             const float *bn_shift); // (count)

/** Backward of reef_query_norm_forward, in place: d_query becomes the gradient of query_raw. */
void reef_query_norm_backward(size_t B,
                              size_t count,
                              size_t stride,
                              float *d_query,    // (B, stride) in and out
                              float *d_bn_scale, // (count) accumulated into
                              float *d_bn_shift, // (count) accumulated into
                              const float *query_raw,
                              const float *mean,
                              const float *var,
                              const float *bn_scale);

// ---- product_key.c: choosing the best pairs of two score rows -----------------------------------

enum { PAIR_STAIRS = 4, PAIR_STEPS_MAX = 16 };

/**
 * Sets of at least topk places (p, q) in sorted lists, so that with a place all before it in both
 * are in the set: their rows have falling lengths. Of each set the last places of its steps, where
 * its least sums are; the sets turned over, p for q, count too.
 */
typedef struct pair_stairs {
    uint8_t steps[PAIR_STAIRS];
    uint8_t p[PAIR_STAIRS][PAIR_STEPS_MAX], q[PAIR_STAIRS][PAIR_STEPS_MAX];
} pair_stairs;

/** The sorted lists of one selection, its scratch, and its sizes. */
typedef struct pair_lists {
    size_t side, topk;
    pair_stairs stairs;  // reef_pairs_stairs
    float *score_a;      // (reef_pairs_kept) best scores of table a, best first
    float *score_b;      // (reef_pairs_kept)
    uint16_t *row_a;     // (reef_pairs_kept) their rows
    uint16_t *row_b;     // (reef_pairs_kept)
    size_t length_a;     // of the lists: reef_pairs_kept, or fewer where no pair with another
    size_t length_b;     // sub-key can be among the best or score what the worst of them does
    uint64_t *keys;      // (topk) best pairs so far: score and id in one sortable number
    uint32_t *positions; // (topk) in the lists: position in a << 16 | position in b
    uint16_t *tied_a;    // (side) rows that may take part in a tie
    uint16_t *tied_b;    // (side)
} pair_lists;

/**
 * Length of the lists: one more than are chosen, which shows whether ties continue; side at most.
 */
size_t reef_pairs_kept(size_t side, size_t topk);

/** Sets for `topk`, from square to one row; empty where it is too large for them. */
void reef_pairs_stairs(size_t topk, pair_stairs *stairs);

/**
 * A sum that at least topk pairs reach, by `count` scores of different rows of each table, best
 * first; -INFINITY where none is known.
 */
float reef_pairs_reached(const pair_stairs *stairs,
                         size_t count_a,
                         const float *a, // (count_a)
                         size_t count_b,
                         const float *b);

/** Fill one table's list from its scores (side). False, list unspecified, when one is NaN. */
bool reef_pairs_list(size_t side, size_t topk, const float *scores, float *best, uint16_t *rows);

/** Whether pairs were chosen; the outputs are unspecified otherwise. */
typedef enum pairs_outcome {
    PAIRS_CHOSEN,
    PAIRS_NOT_FINITE, // the best scores are not all finite numbers
    PAIRS_TIED,       // ties reach beyond the lists, and there are no rows of scores to search
} pairs_outcome;

/**
 * The `topk` best of all side * side pairs (i, j) by score_a[i] + score_b[j], the sum rounded to
 * float, best first and the lower id first among equals. Exact, as if every pair had been
 * scored. Both lists are filled before.
 */
pairs_outcome reef_pairs_choose(const pair_lists *lists,
                                const float *score_a,    // (side) or NULL: the lists are all
                                const float *score_b,    // (side) there is
                                reef_expert_id *indices, // (topk) written
                                uint16_t *index_a,       // (topk) written
                                uint16_t *index_b,       // (topk) written
                                float *scores);          // (topk) written

// ---- coarse_list.c: the best sub-keys by coarse scores first, and exact ones of what they leave -

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

// ---- router_tape.c ------------------------------------------------------------------------------

/** Groups of pieces that sum sub-key gradients apart: enough for as many threads, few enough for
 *  memory (2 * side * key row floats each), and a function of the number of pieces only. */
enum { TAPE_GROUPS_MAX = 16 };

/** Scratch of one piece while it runs. */
typedef struct tape_slot {
    float *tile_a;        // (tile_rows, tile_stride) scores against table a
    float *tile_b;        // (tile_rows, tile_stride)
    float *best_a;        // (tile_rows, pairs_kept) best scores against table a
    uint16_t *row_a;      // (tile_rows, pairs_kept)
    size_t *length_a;     // (tile_rows) of these lists
    float *decay;         // (topk) exp(-|score|) of one query
    float *d_score;       // (topk) gradient of the scores of one query
    const float **keys_a; // (topk) its rows of sub_keys_a
    const float **keys_b; // (topk)
    pair_lists lists;     // of one query; its list of table a is the caller's to set
    coarse_scratch coarse;
} tape_slot;

/** View of slot `number`; lives as long as the tape. */
tape_slot reef_tape_slot_at(const reef_router_tape *tape,
                            const reef_router_shape *shape,
                            size_t number);

/** Groups that `piece_count` pieces are divided into. */
size_t reef_tape_group_count(size_t piece_count);

#endif
