// How the tape's scratch is divided; private to the router.
#ifndef REEF_ROUTER_TAPE_H
#define REEF_ROUTER_TAPE_H

#include "coarse_list.h"
#include "product_key.h"
#include "reef_router.h"

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
