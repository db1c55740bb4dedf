// The router's two passes, as lists of phases that the workers run piece by piece.
//
//   forward    pieces of rows   raw query = x Wq (+ bias when folded)
//              feature panels   batch norm over all rows               train mode with batch norm
//              pieces of rows   scores tile by tile, choice of pairs, gate
//   backward   groups of pieces d_score, d_query, sub-key gradients of the group
//              key rows         sub-key gradients summed over groups
//              feature panels   backward of the batch norm             train mode with batch norm
//              panels and pieces  d_Wq = x^T d_query, and d_x += d_query Wq^T
//
// What always holds: how the work is cut depends on the sizes alone, every output is written by one
// piece, and sums over groups run in their order. So the bits do not depend on the workers.
// Backward holds the choice of experts fixed.
#include "kernels_internal.h"
#include "router_internal.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

// One panel of d_Wq: large enough for BLAS, small enough that sixteen threads have work at d_model
// 256.
enum { WEIGHT_PANEL_ROWS = 64, WEIGHT_PANEL_COLUMNS = 256 };
// Rows of a sub-key table that one piece of the sum over groups covers.
enum { KEY_PANEL_ROWS = 64 };

/** One pass: the caller's arguments and what follows from them. */
typedef struct router_pass {
    const reef_router_shape *shape;
    const reef_router_params *params;
    bool normalise; // train mode with batch norm
    bool folded;
    const float *x;
    const uint8_t *piece_active;
    const reef_router_tape *tape;
    size_t rows, piece_rows, piece_count;
    size_t width; // of all heads' queries: H * d_key

    // forward
    atomic_size_t bad_row; // lowest row with a query or score that is not finite; SIZE_MAX for none
    const reef_coarse_kernels *coarse; // of the first pass; NULL: all sub-keys are scored

    // backward
    const float *d_gate;
    float *d_x;
    reef_router_params *grads;
    size_t group_count;
    size_t panel_count; // of d_Wq

    _Atomic uint64_t slots_taken; // one bit per slot of the tape's scratch
} router_pass;

static router_pass pass_begin(const reef_router_shape *shape,
                              const reef_router_params *params,
                              reef_router_mode mode,
                              size_t rows,
                              const float *x,
                              const uint8_t *piece_active,
                              const reef_router_tape *tape) {
    assert(rows <= tape->rows_max);
    bool train = mode == REEF_ROUTER_TRAIN;
    assert(!train || tape->d_query != NULL); // the tape was made for a backward
    return (router_pass){
        .shape = shape,
        .params = params,
        .normalise = train && shape->batch_norm,
        .folded = !train,
        .x = x,
        // Batch statistics need every row, whatever the mask.
        .piece_active = train ? NULL : piece_active,
        .tape = tape,
        .rows = rows,
        .piece_rows = tape->piece_rows,
        .piece_count = (rows + tape->piece_rows - 1) / tape->piece_rows,
        .width = shape->head_count * shape->d_key,
        .bad_row = SIZE_MAX,
    };
}

// Rows of a piece: the last one may be shorter.
static size_t rows_of(const router_pass *pass, size_t piece) {
    const size_t rest = pass->rows - piece * pass->piece_rows;
    return rest < pass->piece_rows ? rest : pass->piece_rows;
}

static bool is_active(const router_pass *pass, size_t piece) {
    return pass->piece_active == NULL || pass->piece_active[piece] != 0;
}

// ---- slots --------------------------------------------------------------------------------------

// The lowest free slot, so that as many slots are in use (and in cache) as there are threads. Which
// one a piece gets does not matter: nothing is left in it.
static size_t take_slot(router_pass *pass) {
    const size_t count = pass->tape->slot_count;
    const uint64_t all = count == 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
    uint64_t taken = atomic_load_explicit(&pass->slots_taken, memory_order_relaxed);
    for (;;) {
        uint64_t free_slots = ~taken & all;
        if (free_slots == 0) { // more than 64 threads run pieces; one of them is about to finish
            sched_yield();
            taken = atomic_load_explicit(&pass->slots_taken, memory_order_relaxed);
            continue;
        }
        // Acquire pairs with the release in give_slot: what the last piece wrote there is finished.
        uint64_t lowest = free_slots & -free_slots;
        if (atomic_compare_exchange_weak_explicit(&pass->slots_taken, &taken, taken | lowest,
                                                  memory_order_acquire, memory_order_relaxed))
            return (size_t)__builtin_ctzll(lowest);
    }
}

static void give_slot(router_pass *pass, size_t slot) {
    atomic_fetch_and_explicit(&pass->slots_taken, ~((uint64_t)1 << slot), memory_order_release);
}

// ---- gate ---------------------------------------------------------------------------------------

// 1 / (1 + exp(-s)), from exp(-|s|), which never overflows: exp(-s) = 1 / exp(s) where s is
// negative.
static void sigmoid(size_t K, float *scores, float *decay) {
    for (size_t k = 0; k < K; k++) decay[k] = -fabsf(scores[k]);
    reef_exp(K, decay, decay);
    for (size_t k = 0; k < K; k++)
        scores[k] = (scores[k] < 0 ? decay[k] : 1.0f) / (1.0f + decay[k]);
}

// The K scores of a head become its gate, in place. `decay` is scratch.
static void gate_forward(reef_router_score score, size_t K, float *gate, float *decay) {
    switch (score) {
    case REEF_SCORE_SOFTMAX:
        reef_softmax(K, gate);
        break;
    case REEF_SCORE_SIGMOID:
        sigmoid(K, gate, decay);
        break;
    case REEF_SCORE_RELU:
        for (size_t k = 0; k < K; k++) gate[k] = gate[k] > 0 ? gate[k] : 0;
        break;
    }
}

// d_score[k] = gate[k] * (d_gate[k] - sum over l of gate[l] * d_gate[l])
static void softmax_backward(size_t K, float *d_score, const float *d_gate, const float *gate) {
    double mean = 0;
    // In double: the differences below cancel.
    for (size_t k = 0; k < K; k++) mean += (double)gate[k] * d_gate[k];
    for (size_t k = 0; k < K; k++) d_score[k] = gate[k] * (d_gate[k] - (float)mean);
}

// Every slope follows from the gate alone, so that a tape does not keep the scores.
static void gate_backward(
    reef_router_score score, size_t K, float *d_score, const float *d_gate, const float *gate) {
    switch (score) {
    case REEF_SCORE_SOFTMAX:
        softmax_backward(K, d_score, d_gate, gate);
        break;
    case REEF_SCORE_SIGMOID:
        for (size_t k = 0; k < K; k++) d_score[k] = gate[k] * (1 - gate[k]) * d_gate[k];
        break;
    case REEF_SCORE_RELU:
        for (size_t k = 0; k < K; k++) d_score[k] = gate[k] > 0 ? d_gate[k] : 0;
        break;
    }
}

// ---- forward ------------------------------------------------------------------------------------

static void note_bad_row(router_pass *pass, size_t row) {
    // The minimum, not the first to arrive: the message must not depend on the threads.
    size_t lowest = atomic_load_explicit(&pass->bad_row, memory_order_relaxed);
    while (row < lowest &&
           !atomic_compare_exchange_weak_explicit(&pass->bad_row, &lowest, row,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

// x Wq of one piece. Returns false when a query is not finite.
static bool project(router_pass *pass, size_t piece) {
    const size_t first = piece * pass->piece_rows, count = rows_of(pass, piece);
    // Batch norm needs the raw queries again in its backward.
    float *out = pass->normalise ? pass->tape->query_raw : pass->tape->query;
    bool finite = true;

    reef_gemm(false, false, count, pass->width, pass->shape->d_model, 1,
              pass->x + first * pass->shape->d_model, pass->shape->d_model, pass->params->w_query,
              pass->width, 0, out + first * pass->width, pass->width);
    for (size_t row = first; row < first + count; row++) {
        // Only folding makes a bias: in training batch norm would subtract it again.
        if (pass->folded)
            reef_axpy(pass->width, out + row * pass->width, 1, pass->params->query_bias);
        if (reef_query_is_finite(pass->width, out + row * pass->width)) continue;
        note_bad_row(pass, row);
        finite = false;
    }
    return finite;
}

// Queries that meet the same table, and so are scored together: first, first + step, ..
typedef struct tile {
    size_t first, step, count;
    size_t table;
} tile;

// Scores of a tile's queries against one table; `half` is where in a query its half begins. A shape
// that may have a first pass is always scored in the order of its kernel, so that a choice does not
// depend on whether it had one.
static void score(const router_pass *pass, const tile *of, size_t half, float *scores) {
    const size_t d_key = pass->shape->d_key;
    const float *sub_keys = half == 0 ? pass->params->sub_keys_a : pass->params->sub_keys_b;
    if (pass->tape->coarse != NULL) {
        const coarse_table table = {.side = pass->shape->side,
                                    .half = d_key / 2,
                                    .keys = sub_keys + of->table * (d_key / 2),
                                    .stride = reef_router_key_row(pass->shape)};
        for (size_t n = 0; n < of->count; n++)
            reef_coarse_score_all(reef_kernels_coarse(), &table,
                                  pass->tape->query + (of->first + n * of->step) * d_key + half,
                                  scores + n * pass->tape->tile_stride);
        return;
    }
    // Strides skip the other half of each query, and heads with other tables: nothing is copied.
    reef_gemm(false, true, of->count, pass->shape->side, d_key / 2, 1,
              pass->tape->query + of->first * d_key + half, of->step * d_key,
              sub_keys + of->table * (d_key / 2), reef_router_key_row(pass->shape), 0, scores,
              pass->tape->tile_stride);
}

// Lists of table a for a tile of queries, while its scores are in cache. Returns how many were
// made: all, or those before the first query with a score that is NaN.
static size_t list_tile_a(const router_pass *pass, const tape_slot *slot, size_t count) {
    const size_t side = pass->shape->side;
    const size_t topk = pass->shape->topk;
    const size_t kept = reef_pairs_kept(side, topk);

    for (size_t n = 0; n < count; n++)
        if (!reef_pairs_list(side, topk, slot->tile_a + n * pass->tape->tile_stride,
                             slot->best_a + n * kept, slot->row_a + n * kept))
            return n;
    return count;
}

// Experts and gate of one query, whose lists are set; the scores of all sub-keys, or NULL.
static pairs_outcome choose_experts(const router_pass *pass,
                                    const tape_slot *slot,
                                    size_t query,
                                    const float *score_a,
                                    const float *score_b) {
    const reef_router_tape *tape = pass->tape;
    const size_t topk = pass->shape->topk, at = query * topk;
    pairs_outcome outcome =
        reef_pairs_choose(&slot->lists, score_a, score_b, tape->indices + at, tape->index_a + at,
                          tape->index_b + at, tape->gate + at);
    if (outcome == PAIRS_CHOSEN)
        gate_forward(pass->shape->score, topk, tape->gate + at, slot->decay);
    return outcome;
}

// The same from the scores of all sub-keys, for query number `n` of its tile. False when a score is
// not finite.
static bool choose_plainly(const router_pass *pass, tape_slot *slot, size_t query, size_t n) {
    const reef_router_tape *tape = pass->tape;
    const reef_router_shape *shape = pass->shape;
    const size_t kept = reef_pairs_kept(shape->side, shape->topk);
    const float *score_b = slot->tile_b + n * tape->tile_stride;
    pair_lists *lists = &slot->lists;

    // Views: each query of the tile has its own list of table a.
    lists->score_a = slot->best_a + n * kept;
    lists->row_a = slot->row_a + n * kept;
    lists->length_a = lists->length_b = kept;
    if (!reef_pairs_list(shape->side, shape->topk, score_b, lists->score_b, lists->row_b))
        return false;
    return choose_experts(pass, slot, query, slot->tile_a + n * tape->tile_stride, score_b) ==
           PAIRS_CHOSEN;
}

// One tile, one table after the other, so that its scores are read again before they leave the
// cache.
static bool choose_tile(router_pass *pass, tape_slot *slot, const tile *of) {
    score(pass, of, 0, slot->tile_a);
    size_t listed = list_tile_a(pass, slot, of->count);
    score(pass, of, pass->shape->d_key / 2, slot->tile_b);
    for (size_t n = 0; n < of->count; n++) {
        size_t query = of->first + n * of->step;
        if (n < listed && choose_plainly(pass, slot, query, n)) continue;
        note_bad_row(pass, query / pass->shape->head_count);
        return false;
    }
    return true;
}

// One tile without the scores of all sub-keys. False where they are needed, nothing settled: for
// ties, queries of zeros, and keys so much alike that too many are left.
static bool choose_tile_coarsely(const router_pass *pass, tape_slot *slot, const tile *of) {
    const size_t d_key = pass->shape->d_key;
    const size_t kept = reef_pairs_kept(pass->shape->side, pass->shape->topk);
    const coarse_table *table = pass->tape->coarse + of->table;
    pair_lists *lists = &slot->lists;
    const coarse_tile all = {
        .kernels = pass->coarse,
        .tables = {table, table + reef_router_tables(pass->shape)},
        .topk = pass->shape->topk,
        .stairs = &lists->stairs,
        .count = of->count,
        .query = pass->tape->query + of->first * d_key,
        .stride = of->step * d_key,
    };
    if (!reef_coarse_reach(&all, &slot->coarse)) return false;
    for (size_t n = 0; n < of->count; n++)
        slot->length_a[n] = reef_coarse_list(&all, &slot->coarse, 0, n, slot->best_a + n * kept,
                                             slot->row_a + n * kept);
    for (size_t n = 0; n < of->count; n++) {
        // The first halves' lists wait in the slot: each half's table is read once for all queries.
        lists->score_a = slot->best_a + n * kept;
        lists->row_a = slot->row_a + n * kept;
        lists->length_a = slot->length_a[n];
        lists->length_b = reef_coarse_list(&all, &slot->coarse, 1, n, lists->score_b, lists->row_b);
        if (choose_experts(pass, slot, of->first + n * of->step, NULL, NULL) != PAIRS_CHOSEN)
            return false;
    }
    return true;
}

static bool table_is_usable(const router_pass *pass, size_t table) {
    const coarse_table *coarse = pass->tape->coarse;
    return coarse[table].usable && coarse[reef_router_tables(pass->shape) + table].usable;
}

// Experts of one piece, in tiles: of its queries, heads and all, or where each head has a table of
// its own of one head after the other.
static void choose_all(router_pass *pass, tape_slot *slot, size_t piece) {
    const size_t tile_rows = pass->tape->tile_rows;
    const size_t heads = pass->shape->head_count, tables = reef_router_tables(pass->shape);
    const size_t first = piece * pass->piece_rows * heads;
    const size_t queries = rows_of(pass, piece) * heads / tables; // that one table meets

    for (size_t table = 0; table < tables; table++) {
        // Where one tile needed all scores, the next ones are likely to, and are not tried.
        bool coarse = pass->coarse != NULL && table_is_usable(pass, table);
        for (size_t at = 0; at < queries; at += tile_rows) {
            size_t count = queries - at < tile_rows ? queries - at : tile_rows;
            // With a table of its own per head, queries of one head lie `tables` apart.
            tile of = {first + table + at * tables, tables, count, table};
            if (coarse) coarse = choose_tile_coarsely(pass, slot, &of);
            if (coarse) continue;
            if (!choose_tile(pass, slot, &of)) break; // another head may have a lower bad row
        }
    }
}

// One table in bytes; those of side a come first.
static void round_table(void *context, size_t number) {
    const router_pass *pass = context;
    const size_t tables = reef_router_tables(pass->shape), half = pass->shape->d_key / 2;
    coarse_table *table = &pass->tape->coarse[number];
    table->keys = number < tables ? pass->params->sub_keys_a + number * half
                                  : pass->params->sub_keys_b + (number - tables) * half;
    pass->coarse->table(table);
}

// Is the first pass worth its tables? Their keys are rounded once for all queries.
static const reef_coarse_kernels *first_pass(const router_pass *pass) {
    if (pass->tape->coarse == NULL || pass->tape->score_all) return NULL;
    size_t rows = 0;
    for (size_t piece = 0; piece < pass->piece_count; piece++)
        if (is_active(pass, piece)) rows += rows_of(pass, piece);
    return rows * pass->shape->head_count >= pass->shape->side ? reef_kernels_coarse() : NULL;
}

static void project_piece(void *context, size_t piece) {
    project(context, piece);
}

static size_t farthest_row(const router_pass *pass, size_t feature) {
    const float *raw = pass->tape->query_raw + feature, mean = pass->tape->batch_mean[feature];
    size_t farthest = 0;
    for (size_t row = 1; row < pass->rows; row++)
        // Named in the message as the likeliest cause of an infinite variance.
        if (fabsf(raw[row * pass->width] - mean) > fabsf(raw[farthest * pass->width] - mean))
            farthest = row;
    return farthest;
}

static void normalise_panel(void *context, size_t panel) {
    router_pass *pass = context;
    const size_t c = panel * PANEL_WIDTH;
    // Features are independent, so panels of them run on all threads without a reduction.
    const size_t count = pass->width - c < PANEL_WIDTH ? pass->width - c : PANEL_WIDTH;
    reef_query_norm_forward(pass->rows, count, pass->width, pass->tape->query + c,
                            pass->tape->batch_mean + c, pass->tape->batch_var + c,
                            pass->tape->query_raw + c, pass->params->bn_scale + c,
                            pass->params->bn_shift + c);
    // The running variance would not come back from infinity.
    for (size_t i = c; i < c + count; i++)
        if (!isfinite(pass->tape->batch_var[i])) note_bad_row(pass, farthest_row(pass, i));
}

static bool is_chosen_here(const router_pass *pass, size_t piece) {
    size_t first = pass->tape->choose_first, end = pass->tape->choose_end;
    return end == 0 || (piece >= first && piece < end);
}

static void choose_piece(void *context, size_t piece) {
    router_pass *pass = context;
    const size_t first = piece * pass->piece_rows, end = first + rows_of(pass, piece);

    if (!is_active(pass, piece) || !is_chosen_here(pass, piece)) return;
    if (!pass->normalise && !project(pass, piece)) return;
    // After a batch norm the queries are new.
    for (size_t row = first; pass->normalise && row < end; row++) {
        if (reef_query_is_finite(pass->width, pass->tape->query + row * pass->width)) continue;
        note_bad_row(pass, row);
        return;
    }
    // Only now: a piece that is idle or broken must not wait for a slot.
    size_t number = take_slot(pass);
    tape_slot slot = reef_tape_slot_at(pass->tape, pass->shape, number);
    choose_all(pass, &slot, piece);
    give_slot(pass, number);
}

static size_t norm_panels(const router_pass *pass) {
    return (pass->width + PANEL_WIDTH - 1) / PANEL_WIDTH;
}

reef_status reef_router_forward(const reef_router_shape *shape,
                                const reef_router_params *params,
                                reef_router_mode mode,
                                reef_thread_pool *workers,
                                size_t rows,
                                const float *x,
                                const uint8_t *piece_active,
                                reef_router_tape *tape,
                                reef_error *err) {
    router_pass pass = pass_begin(shape, params, mode, rows, x, piece_active, tape);
    if (rows == 0) return REEF_OK; // and no statistics
    pass.coarse = first_pass(&pass);
    if (pass.coarse != NULL)
        reef_thread_pool_run(workers, 2 * reef_router_tables(shape), round_table, &pass);

    if (pass.normalise) reef_thread_pool_run(workers, pass.piece_count, project_piece, &pass);
    // One bad row would spoil the statistics of all: it is named before that.
    if (pass.bad_row == SIZE_MAX) {
        if (pass.normalise)
            reef_thread_pool_run(workers, norm_panels(&pass), normalise_panel, &pass);
        reef_thread_pool_run(workers, pass.piece_count, choose_piece, &pass);
    }
    if (pass.bad_row != SIZE_MAX)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "the router's query of row %zu of %zu is not finite, or its scores or the variance of "
            "its batch are beyond what a float holds",
            (size_t)pass.bad_row, rows);
    return REEF_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// Gradient of one query through the scores of its chosen pairs, and of their sub-keys where wanted.
static void unscore(const router_pass *pass,
                    const tape_slot *slot,
                    size_t query,
                    float *d_keys_a, // (side, d_key / 2) accumulated into; NULL when not wanted
                    float *d_keys_b) {
    const reef_router_tape *tape = pass->tape;
    const size_t topk = pass->shape->topk;
    const size_t half = pass->shape->d_key / 2;
    const size_t row = reef_router_key_row(pass->shape);
    const size_t table = query % reef_router_tables(pass->shape) * half; // where in a row
    const float *q = tape->query + query * 2 * half;
    float *d_q = tape->d_query + query * 2 * half;

    gate_backward(pass->shape->score, topk, slot->d_score, pass->d_gate + query * topk,
                  tape->gate + query * topk);
    for (size_t k = 0; k < topk; k++) {
        slot->keys_a[k] = pass->params->sub_keys_a + tape->index_a[query * topk + k] * row + table;
        slot->keys_b[k] = pass->params->sub_keys_b + tape->index_b[query * topk + k] * row + table;
    }
    // The chosen pairs alone reach the query: the choice itself has no gradient.
    memset(d_q, 0, 2 * half * sizeof(*d_q));
    reef_axpy_rows(topk, half, d_q, slot->d_score, slot->keys_a, 0);
    reef_axpy_rows(topk, half, d_q + half, slot->d_score, slot->keys_b, 0);
    // Sub-keys of a sealed generation do not train.
    if (d_keys_a == NULL) return;
    for (size_t k = 0; k < topk; k++) {
        reef_axpy(half, d_keys_a + tape->index_a[query * topk + k] * row + table, slot->d_score[k],
                  q);
        reef_axpy(half, d_keys_b + tape->index_b[query * topk + k] * row + table, slot->d_score[k],
                  q + half);
    }
}

static void unscore_piece(const router_pass *pass,
                          const tape_slot *slot,
                          size_t piece,
                          float *d_keys_a,
                          float *d_keys_b) {
    const size_t heads = pass->shape->head_count;
    const size_t first = piece * pass->piece_rows, count = rows_of(pass, piece);

    if (is_active(pass, piece)) {
        for (size_t n = 0; n < count * heads; n++)
            unscore(pass, slot, first * heads + n, d_keys_a, d_keys_b);
    } else if (pass->grads != NULL) { // d_Wq sums over all rows
        size_t floats = count * pass->width;
        memset(pass->tape->d_query + first * pass->width, 0, floats * sizeof(float));
    }
}

static float *group_grads(const router_pass *pass, size_t group) {
    return pass->tape->piece_grads +
           group * 2 * pass->shape->side * reef_router_key_row(pass->shape);
}

// Without gradients of parameters a group is one piece.
static void unscore_group(void *context, size_t group) {
    router_pass *pass = context;
    const size_t table = pass->shape->side * reef_router_key_row(pass->shape);
    size_t number = take_slot(pass);
    tape_slot slot = reef_tape_slot_at(pass->tape, pass->shape, number);

    if (pass->grads == NULL) {
        unscore_piece(pass, &slot, group, NULL, NULL);
    } else {
        float *d_keys = group_grads(pass, group);
        memset(d_keys, 0, 2 * table * sizeof(*d_keys));
        // Bounds depend on counts alone, so each group adds the same pieces with any threads.
        size_t piece = group * pass->piece_count / pass->group_count;
        size_t end = (group + 1) * pass->piece_count / pass->group_count;
        for (; piece < end; piece++) unscore_piece(pass, &slot, piece, d_keys, d_keys + table);
    }
    give_slot(pass, number);
}

// Add the groups' gradients of some rows of both tables, in the order of the groups.
static void sum_key_panel(void *context, size_t panel) {
    const router_pass *pass = context;
    const size_t row = reef_router_key_row(pass->shape);
    const size_t table = pass->shape->side * row;
    const size_t first = panel * KEY_PANEL_ROWS;
    const size_t rest = pass->shape->side - first;
    const size_t count = (rest < KEY_PANEL_ROWS ? rest : KEY_PANEL_ROWS) * row;

    // Every sum runs in this order, so its rounding is fixed.
    for (size_t group = 0; group < pass->group_count; group++) {
        const float *d_keys = group_grads(pass, group) + first * row;
        reef_axpy(count, pass->grads->sub_keys_a + first * row, 1, d_keys);
        reef_axpy(count, pass->grads->sub_keys_b + first * row, 1, d_keys + table);
    }
}

static void unnormalise_panel(void *context, size_t panel) {
    const router_pass *pass = context;
    const size_t c = panel * PANEL_WIDTH;
    const size_t count = pass->width - c < PANEL_WIDTH ? pass->width - c : PANEL_WIDTH;
    reef_query_norm_backward(pass->rows, count, pass->width, pass->tape->d_query + c,
                             pass->grads->bn_scale + c, pass->grads->bn_shift + c,
                             pass->tape->query_raw + c, pass->tape->batch_mean + c,
                             pass->tape->batch_var + c, pass->params->bn_scale + c);
}

static size_t panels_across(size_t size, size_t panel) {
    return (size + panel - 1) / panel;
}

// A rectangle of d_Wq += x^T d_query.
static void weight_panel(const router_pass *pass, size_t panel) {
    const size_t D = pass->shape->d_model;
    // Fixed rectangles: the shape of a product decides its bits, see gemm.c.
    const size_t across = panels_across(pass->width, WEIGHT_PANEL_COLUMNS);
    const size_t d = panel / across * WEIGHT_PANEL_ROWS;
    const size_t c = panel % across * WEIGHT_PANEL_COLUMNS;

    reef_gemm(true, false, D - d < WEIGHT_PANEL_ROWS ? D - d : WEIGHT_PANEL_ROWS,
              pass->width - c < WEIGHT_PANEL_COLUMNS ? pass->width - c : WEIGHT_PANEL_COLUMNS,
              pass->rows, 1, pass->x + d, D, pass->tape->d_query + c, pass->width, 1,
              pass->grads->w_query + d * pass->width + c, pass->width);
}

// d_x += d_query Wq^T of one piece.
static void unproject(const router_pass *pass, size_t piece) {
    const size_t D = pass->shape->d_model;
    const size_t first = piece * pass->piece_rows;

    // Nobody reads it where others have chosen: they hand it down themselves.
    if (!is_active(pass, piece) || !is_chosen_here(pass, piece)) return;
    reef_gemm(false, true, rows_of(pass, piece), D, pass->width, 1,
              pass->tape->d_query + first * pass->width, pass->width, pass->params->w_query,
              pass->width, 1, pass->d_x + first * D, D);
}

static void unproject_piece(void *context, size_t piece) {
    const router_pass *pass = context;
    // Weights first: they are the longest pieces, and short ones fill the gaps at the end.
    if (piece < pass->panel_count)
        weight_panel(pass, piece);
    else
        unproject(pass, piece - pass->panel_count);
}

void reef_router_backward(const reef_router_shape *shape,
                          const reef_router_params *params,
                          reef_router_mode mode,
                          reef_thread_pool *workers,
                          size_t rows,
                          const float *x,
                          const uint8_t *piece_active,
                          reef_router_tape *tape,
                          const float *d_gate,
                          float *d_x,
                          reef_router_params *grads) {
    router_pass pass = pass_begin(shape, params, mode, rows, x, piece_active, tape);
    assert(tape->d_query != NULL);
    assert(grads != NULL || pass.folded);
    pass.d_gate = d_gate;
    pass.d_x = d_x;
    pass.grads = grads;
    // Gradients of sub-keys are summed per group, and groups bound their memory. Without them each
    // piece is free.
    pass.group_count = grads == NULL ? pass.piece_count : reef_tape_group_count(pass.piece_count);

    // Scores, batch norm, projection: the forward in reverse. Each run ends before the next begins.
    reef_thread_pool_run(workers, pass.group_count, unscore_group, &pass);
    if (grads != NULL) {
        reef_thread_pool_run(workers, panels_across(shape->side, KEY_PANEL_ROWS), sum_key_panel,
                             &pass);
        // No panels without gradients: then the last run has nothing but d_x.
        pass.panel_count = panels_across(shape->d_model, WEIGHT_PANEL_ROWS) *
                           panels_across(pass.width, WEIGHT_PANEL_COLUMNS);
    }
    if (pass.normalise) reef_thread_pool_run(workers, norm_panels(&pass), unnormalise_panel, &pass);
    reef_thread_pool_run(workers, pass.panel_count + pass.piece_count, unproject_piece, &pass);
}

// ---- usage --------------------------------------------------------------------------------------
//
// How many experts take part, and how evenly. Sums of scores are integers (fixed point), so they
// are exact in any order. A score may round to 0 in fixed point; an expert counts as used when it
// was chosen at all.

// He 2024 section 3.3: z = z' / |z'|_1; unevenness = KL(z, uniform) = log N + sum z_i log z_i.
void reef_usage_summarise(size_t expert_count, const reef_usage *usage, reef_usage_summary *out) {
    *out = (reef_usage_summary){.expert_count = expert_count};
    double total = 0;
    for (size_t i = 0; i < expert_count; i++) {
        out->used_count += usage[i].count > 0 || usage[i].score > 0;
        out->selections += usage[i].count;
        // Exact below 2^53; beyond, the rounding is far below what is reported.
        total += (double)usage[i].score;
    }
    if (expert_count > 0)
        out->used_percent = 100.0 * (double)out->used_count / (double)expert_count;
    if (total == 0) return; // no distribution to speak of

    double sum = 0;
    for (size_t i = 0; i < expert_count; i++) {
        double z = (double)usage[i].score / total;
        // z log z goes to 0 with z.
        if (z > 0) sum += z * log(z);
    }
    out->unevenness = fmax(0, log((double)expert_count) + sum); // rounding may end below 0
}
