// Retrieved experts: the loops over rows that are gathered by id, and the update pass that makes
// Adam steps of (expert, token) pairs without ever storing a gradient. Values are experts without
// an activation: theirs is 1, whatever the token.
//
// What always holds: a token's result depends on that token alone; a row's update depends on its
// own pairs, in token order, alone; nothing here allocates after reef_expert_pairs_init. Which
// experts, and with which weights, is the router's business; when a row may change is the caller's
// (flags).
#include "experts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// Experts of one token that are handled together: bounds the buffers on the stack. The paper's 8
// heads with 16 experts each are one chunk.
#define CHUNK 256

#define LINE_FLOATS (REEF_EXPERT_LINE_BYTES / sizeof(float))

static size_t experts_least(size_t a, size_t b) {
    return a < b ? a : b;
}

// ---- activation ---------------------------------------------------------------------------------

// The P values after the first P of a token's hidden ones, if the kind has them.
static const float *gated(const reef_expert_shape *shape, const float *hidden) {
    return shape->kind == REEF_EXPERT_GLU ? hidden + shape->P : hidden;
}

static void activate(
    reef_expert_kind kind, size_t count, float *a, const float *down, const float *glu) {
    if (kind == REEF_EXPERT_RELU) {
        for (size_t p = 0; p < count; p++) a[p] = down[p] > 0 ? down[p] : 0;
        return;
    }
    reef_gelu(count, a, glu); // not gated: glu is down
    if (kind == REEF_EXPERT_GLU)
        for (size_t p = 0; p < count; p++) a[p] *= down[p];
}

// d_down and d_glu from the gradient of the activation; the latter for gated experts only. The
// other kinds may have d_down == d_a.
static void activate_backward(reef_expert_kind kind,
                              size_t count,
                              float *d_down,
                              float *d_glu,
                              const float *d_a,
                              const float *down,
                              const float *glu) {
    if (kind == REEF_EXPERT_RELU) {
        for (size_t p = 0; p < count; p++) d_down[p] = down[p] > 0 ? d_a[p] : 0;
    } else if (kind == REEF_EXPERT_GELU) {
        reef_gelu_backward(count, d_down, d_a, down);
    } else {
        reef_gelu(count, d_down, glu);
        reef_gelu_backward(count, d_glu, d_a, glu);
        for (size_t p = 0; p < count; p++) {
            d_down[p] *= d_a[p];
            d_glu[p] *= down[p];
        }
    }
}

// ---- rows ---------------------------------------------------------------------------------------

/** Where the rows of one chunk lie. */
typedef struct gathered {
    reef_dtype dtype;
    size_t count, D;
    size_t span; // values of a row, prefetched by the first product
    union {
        const float *f32[CHUNK];
        const int8_t *i8[CHUNK]; // each begins with its scale
    } rows;
} gathered;

static void gather_experts(gathered *out,
                           const reef_expert_shape *shape,
                           const reef_expert_rows *experts,
                           size_t count,
                           const reef_expert_id *indices) {
    const size_t row = reef_expert_row_values(shape);
    const size_t row_bytes = reef_row_bytes(experts->dtype, row);
    const uint64_t in_block = ((uint64_t)1 << experts->block_shift) - 1;
    out->dtype = experts->dtype;
    out->count = count;
    out->D = shape->D;
    out->span = row;
    for (size_t p = 0; p < count; p++) {
        uint64_t id = indices[p];
        const void *block = experts->blocks[id >> experts->block_shift];
        size_t at = (size_t)(id & in_block) * row_bytes;
        if (block == NULL) { // another rank owns it
            assert(experts->fetched->places[id] < experts->fetched->count);
            block = experts->fetched->rows;
            at = experts->fetched->places[id] * row_bytes;
        }
        const void *start = (const char *)block + at;
        if (experts->dtype == REEF_I8)
            out->rows.i8[p] = start;
        else
            out->rows.f32[p] = start;
    }
}

static void dot_rows(const gathered *g, float *out, const float *x, size_t offset, size_t span) {
    if (g->dtype == REEF_I8)
        reef_dot_rows_i8(g->count, g->D, out, x, g->rows.i8, offset, span);
    else
        reef_dot_rows(g->count, g->D, out, x, g->rows.f32, offset, span);
}

static void axpy_rows(const gathered *g, float *y, const float *alpha, size_t offset) {
    if (g->dtype == REEF_I8)
        reef_axpy_rows_i8(g->count, g->D, y, alpha, g->rows.i8, offset);
    else
        reef_axpy_rows(g->count, g->D, y, alpha, g->rows.f32, offset);
}

// ---- forward and backward -----------------------------------------------------------------------

// Of values no product comes first, whose kernel would have fetched the rows. To the second-level
// cache, as there.
REEF_PREFETCH_ONLY static inline void fetch_rows(const gathered *g) {
    const size_t bytes = reef_row_bytes(g->dtype, g->span);
    for (size_t p = 0; p < g->count; p++) {
        const char *row =
            g->dtype == REEF_I8 ? (const char *)g->rows.i8[p] : (const char *)g->rows.f32[p];
        for (size_t at = 0; at < bytes; at += REEF_EXPERT_LINE_BYTES)
            __builtin_prefetch(row + at, 0, 2);
    }
}

// y[t] += sum over p of gate[t][p] * the value of indices[t][p]
static void values_forward(const reef_expert_shape *shape,
                           size_t rows,
                           float *y,
                           const reef_expert_id *indices,
                           const float *gate,
                           const reef_expert_rows *experts,
                           const uint8_t *active) {
    const size_t P = shape->P;
    gathered g;
    for (size_t t = 0; t < rows; t++) {
        if (active != NULL && !active[t]) continue;
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t at = t * P + begin;
            gather_experts(&g, shape, experts, experts_least(CHUNK, P - begin), indices + at);
            fetch_rows(&g);
            axpy_rows(&g, y + t * shape->D, gate + at, 0);
        }
    }
}

void reef_experts_forward(const reef_expert_shape *shape,
                          size_t rows,
                          float *y,
                          float *hidden,
                          const float *x,
                          const reef_expert_id *indices,
                          const float *gate,
                          const reef_expert_rows *experts,
                          const uint8_t *active) {
    const size_t P = shape->P, D = shape->D, hidden_values = reef_expert_hidden_values(shape);
    float down[CHUNK], glu[CHUNK], weights[CHUNK];
    gathered g;
    if (shape->kind == REEF_EXPERT_VALUE) {
        values_forward(shape, rows, y, indices, gate, experts, active);
        return;
    }
    for (size_t t = 0; t < rows; t++) {
        if (active != NULL && !active[t]) continue;
        // The buffers on the stack bound a chunk. Chunks are added in order, as one sum would be.
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = experts_least(CHUNK, P - begin), at = t * P + begin;
            // Backward needs them; an evaluation passes NULL and they stay on the stack.
            float *kept = hidden != NULL ? hidden + t * hidden_values + begin : down;
            float *kept_glu = shape->kind != REEF_EXPERT_GLU ? kept
                              : hidden != NULL               ? kept + P
                                                             : glu;
            gather_experts(&g, shape, experts, count, indices + at);
            // The first product fetches whole rows, so w_up is in cache when axpy_rows needs it.
            dot_rows(&g, kept, x + t * D, 0, g.span);
            if (kept_glu != kept) dot_rows(&g, kept_glu, x + t * D, 2 * D, 0);
            activate(shape->kind, count, weights, kept, kept_glu);
            for (size_t p = 0; p < count; p++) weights[p] *= gate[at + p];
            axpy_rows(&g, y + t * D, weights, D);
        }
    }
}

// The factors of `count` experts of one token, vector by vector of their rows.
static void keep_factors(size_t count,
                         size_t vectors,
                         float *factors,
                         const float *d_down,
                         const float *weights,
                         const float *d_glu) {
    for (size_t p = 0; p < count; p++) {
        factors[p * vectors] = d_down[p];
        factors[p * vectors + 1] = weights[p];
        if (vectors == 3) factors[p * vectors + 2] = d_glu[p];
    }
}

// No gradient flows to the tokens; a value's is its gate times d_y.
static void values_backward(const reef_expert_shape *shape,
                            size_t rows,
                            float *d_gate,
                            float *factors,
                            const float *d_y,
                            const reef_expert_id *indices,
                            const float *gate,
                            const reef_expert_rows *experts,
                            const uint8_t *active) {
    const size_t P = shape->P;
    gathered g;
    for (size_t t = 0; t < rows; t++) {
        bool skipped = active != NULL && !active[t];
        for (size_t begin = 0; !skipped && begin < P; begin += CHUNK) {
            size_t at = t * P + begin;
            gather_experts(&g, shape, experts, experts_least(CHUNK, P - begin), indices + at);
            dot_rows(&g, d_gate + at, d_y + t * shape->D, 0, g.span);
        }
        if (skipped) memset(d_gate + t * P, 0, P * sizeof(*d_gate));
        if (factors != NULL && skipped) memset(factors + t * P, 0, P * sizeof(*factors));
        if (factors != NULL && !skipped)
            memcpy(factors + t * P, gate + t * P, P * sizeof(*factors));
    }
}

void reef_experts_backward(const reef_expert_shape *shape,
                           size_t rows,
                           float *d_x,
                           float *d_gate,
                           float *factors,
                           const float *d_y,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const reef_expert_rows *experts,
                           const uint8_t *active) {
    const size_t P = shape->P, D = shape->D, hidden_values = reef_expert_hidden_values(shape);
    const size_t vectors = reef_expert_vectors(shape);
    float d_activation[CHUNK], weights[CHUNK], d_down[CHUNK], d_glu[CHUNK];
    gathered g;
    // Experts of a single value vector have no hidden unit, and so a loop of their own.
    if (shape->kind == REEF_EXPERT_VALUE) {
        values_backward(shape, rows, d_gate, factors, d_y, indices, gate, experts, active);
        return;
    }
    for (size_t t = 0; t < rows; t++) {
        // An inactive token has zero gradients, which must be written: buffers are used again.
        if (active != NULL && !active[t]) {
            memset(d_gate + t * P, 0, P * sizeof(*d_gate));
            if (factors != NULL)
                memset(factors + t * P * vectors, 0, P * vectors * sizeof(*factors));
            continue;
        }
        // In chunks that fit on the stack; P may be thousands.
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = experts_least(CHUNK, P - begin), at = t * P + begin;
            const float *down = hidden + t * hidden_values + begin, *glu = gated(shape, down);
            // Rows of scattered experts are gathered once and used by all products below.
            gather_experts(&g, shape, experts, count, indices + at);
            // d_activation of a unit with weight: the dot product of its w_up with d_y.
            dot_rows(&g, d_activation, d_y + t * D, D, g.span);
            activate(shape->kind, count, weights, down, glu);
            // y = sum of gate * activation * w_up, so each factor gets the product of the others.
            for (size_t p = 0; p < count; p++) {
                d_gate[at + p] = d_activation[p] * weights[p];
                d_activation[p] *= gate[at + p];
                weights[p] *= gate[at + p];
            }
            activate_backward(shape->kind, count, d_down, d_glu, d_activation, down, glu);
            axpy_rows(&g, d_x + t * D, d_down, 0);
            if (vectors == 3) axpy_rows(&g, d_x + t * D, d_glu, 2 * D);
            // The rows' own gradients are applied later, in the order of experts, from these
            // factors.
            if (factors != NULL)
                keep_factors(count, vectors, factors + at * vectors, d_down, weights, d_glu);
        }
    }
}

// ---- update -------------------------------------------------------------------------------------

void reef_expert_row_gradient(const reef_expert_shape *shape,
                              size_t pair_count,
                              float *row_grad,
                              const reef_pair *pairs,
                              const float *x,
                              const float *d_y,
                              const float *factors) {
    const size_t D = shape->D, vectors = reef_expert_vectors(shape), w_up = reef_expert_up(shape);
    const uint32_t P = (uint32_t)shape->P;
    float down[CHUNK], up[CHUNK], glu[CHUNK];
    const float *x_rows[CHUNK], *d_y_rows[CHUNK];
    memset(row_grad, 0, reef_expert_row_values(shape) * sizeof(*row_grad));
    for (size_t begin = 0; begin < pair_count; begin += CHUNK) {
        size_t count = experts_least(CHUNK, pair_count - begin);
        for (size_t i = 0; i < count; i++) {
            // Pairs of one expert come from scattered tokens. Pointers to their rows are collected,
            // so that one kernel call adds them in token order: equal bits for any threads.
            uint32_t pair = reef_pair_index(pairs[begin + i]);
            size_t t = pair / P;
            const float *of_pair = factors + pair * vectors;
            x_rows[i] = x + t * D;
            d_y_rows[i] = d_y + t * D;
            up[i] = of_pair[w_up];
            if (vectors > 1) down[i] = of_pair[0];
            if (vectors == 3) glu[i] = of_pair[2];
        }
        if (vectors > 1) reef_axpy_rows(count, D, row_grad, down, x_rows, 0);
        reef_axpy_rows(count, D, row_grad + w_up * D, up, d_y_rows, 0);
        if (vectors == 3) reef_axpy_rows(count, D, row_grad + 2 * D, glu, x_rows, 0);
    }
}

typedef struct update_pass {
    const reef_expert_shape *shape;
    size_t row_values;
    reef_row_share share;
    float *experts;
    reef_expert_moments *moments;
    const reef_expert_pairs *pairs;
    const float *x, *d_y, *gate, *factors;
    const reef_expert_update *update;
} update_pass;

// Bounded before the conversion, which is undefined for values that 64 bits cannot hold. What is
// left has a sign bit to spare, and signed conversions are one instruction.
static uint64_t usage_score(float gate) {
    double score = (double)gate < REEF_USAGE_SCORE_MAX ? (double)gate : REEF_USAGE_SCORE_MAX;
    return (uint64_t)(int64_t)(score * REEF_USAGE_SCORE_ONE + 0.5);
}

// Scores are rounded one by one to fixed point, so that sums are exact in any order and any
// grouping.
static void usage_add(reef_usage *usage, size_t count, const reef_pair *pairs, const float *gate) {
    uint64_t score = 0;
    for (size_t i = 0; i < count; i++) score += usage_score(gate[reef_pair_index(pairs[i])]);
    usage->count += count;
    usage->score += score;
}

static float clip_scale(size_t row_values, const float *row_grad, float clip) {
    if (clip <= 0) return 1;
    float norm = sqrtf(reef_dot(row_values, row_grad, row_grad));
    return norm > clip ? clip / norm : 1;
}

static void expert_update(const update_pass *pass, size_t begin, size_t end, float *row_grad) {
    const reef_expert_update *update = pass->update;
    const reef_pair *pairs = pass->pairs->sorted + begin;
    const size_t count = end - begin, expert = reef_pair_expert(pairs[0]);
    const size_t row_values = pass->row_values, place = reef_row_place(&pass->share, expert),
                 row = place * row_values;
    if (update->usage != NULL) usage_add(&update->usage[expert], count, pairs, pass->gate);
    if (update->flags != NULL && update->flags[expert]) return;
    // Its owner updates it. Usage is counted everywhere: `reef usage` shows it.
    if (!reef_row_is_here(&pass->share, expert)) return;

    reef_expert_row_gradient(pass->shape, count, row_grad, pairs, pass->x, pass->d_y,
                             pass->factors);
    uint32_t *updates = &pass->moments->counts[place];
    if (*updates < UINT32_MAX) (*updates)++; // beyond that the correction is 1 anyway
    const reef_adam_bias bias = *updates < REEF_EXPERT_BIASES
                                    ? pass->pairs->biases[*updates]
                                    : reef_adam_bias_at(*updates, &update->adam);
    reef_adam_update_with(row_values, pass->experts + row, pass->moments->adam_m + row,
                          pass->moments->adam_v + row, row_grad,
                          clip_scale(row_values, row_grad, update->clip), bias, &update->adam);
    if (pass->moments->average != NULL)
        reef_average_update(row_values, pass->moments->average + row, pass->experts + row, *updates,
                            update->average_rate);
    if (update->dirty != NULL) update->dirty[expert] = 1;
}

// Where the pairs of the first expert begin that begin in this piece or a later one: pieces are cut
// by pairs, not by experts, so that a few busy experts do not make one long piece.
static size_t update_begin(const reef_expert_pairs *pairs, size_t piece) {
    size_t begin = reef_piece_begin(pairs->pair_count, piece, REEF_EXPERT_PIECES);
    return begin == 0 ? 0 : reef_expert_pairs_end(pairs, begin - 1);
}

// Into the second-level cache, as in the kernels over rows: the first one tracks too few lines at a
// time for three rows. A large pool's update takes 56 us a token this way, 68 us with prefetches
// into the first level (262,144 experts of width 256, one thread, AVX-512 on Zen 4).
REEF_PREFETCH_ONLY static inline void prefetch_values(const float *values, size_t count) {
    for (size_t d = 0; d < count; d += LINE_FLOATS) __builtin_prefetch(values + d, 1, 2);
}

// In a large pool the selected rows lie far apart, and no hardware prefetcher sees the next one; it
// has a pair or two there, so what the first one reads is worth as much as the row (56 to 50 us).
REEF_PREFETCH_ONLY static inline void expert_prefetch(const update_pass *pass, reef_pair first) {
    const size_t expert = reef_pair_expert(first);
    if (!reef_row_is_here(&pass->share, expert)) return;
    const size_t place = reef_row_place(&pass->share, expert), row = place * pass->row_values;
    const uint32_t pair = reef_pair_index(first);
    const size_t D = pass->shape->D, t = pair / (uint32_t)pass->shape->P;
    __builtin_prefetch(&pass->moments->counts[place], 1, 2);
    __builtin_prefetch(pass->factors + pair * reef_expert_vectors(pass->shape), 0, 2);
    prefetch_values(pass->x + t * D, D);
    prefetch_values(pass->d_y + t * D, D);
    prefetch_values(pass->experts + row, pass->row_values);
    prefetch_values(pass->moments->adam_m + row, pass->row_values);
    prefetch_values(pass->moments->adam_v + row, pass->row_values);
    if (pass->moments->average != NULL)
        prefetch_values(pass->moments->average + row, pass->row_values);
}

static void update_piece(void *context, size_t piece) {
    const update_pass *pass = context;
    const reef_expert_pairs *pairs = pass->pairs;
    const size_t end = update_begin(pairs, piece + 1);
    float *row_grad = pairs->row_grads + piece * reef_expert_grad_stride(pass->row_values);
    for (size_t at = update_begin(pairs, piece); at < end;) {
        size_t next = reef_expert_pairs_end(pairs, at);
        if (next < end) expert_prefetch(pass, pairs->sorted[next]);
        expert_update(pass, at, next, row_grad);
        at = next;
    }
}

// Betas are a pool's, so this is done once.
static void keep_biases(reef_expert_pairs *pairs, const reef_adam *adam) {
    if (pairs->bias_beta1 == adam->beta1 && pairs->bias_beta2 == adam->beta2) return;
    for (size_t i = 1; i < REEF_EXPERT_BIASES; i++) pairs->biases[i] = reef_adam_bias_at(i, adam);
    pairs->bias_beta1 = adam->beta1;
    pairs->bias_beta2 = adam->beta2;
}

void reef_experts_update(reef_thread_pool *workers,
                         const reef_expert_shape *shape,
                         float *experts,
                         reef_expert_moments *moments,
                         reef_expert_pairs *pairs,
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *factors,
                         const reef_expert_update *update) {
    update_pass pass = {.shape = shape,
                        .row_values = reef_expert_row_values(shape),
                        .share = update->share,
                        .experts = experts,
                        .moments = moments,
                        .pairs = pairs,
                        .x = x,
                        .d_y = d_y,
                        .gate = gate,
                        .factors = factors,
                        .update = update};
    keep_biases(pairs, &update->adam);
    reef_thread_pool_run(workers, REEF_EXPERT_PIECES, update_piece, &pass);
}
