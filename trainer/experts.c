// Single-neuron experts: the loops over rows that are gathered by id, and the update pass that turns
// (expert, token) pairs into Adam steps without ever storing a gradient.
//
// What always holds: a token's result depends on that token alone; a row's update depends on its own
// pairs, in token order, alone; nothing here allocates after reef_expert_pairs_init. Which experts,
// and with which weights, is the router's business; when a row may change is the caller's (flags).
#include "experts.h"

#include "expert_row.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Experts of one token that are handled together: bounds the buffers on the stack. The paper's 8 heads
// with 16 experts each are one chunk.
#define CHUNK 256

#define LINE_BYTES 64
#define LINE_FLOATS (LINE_BYTES / sizeof(float))

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// ---- activation ----------------------------------------------------------------------------------

// The P values after the first P of a token's hidden ones, where there are any.
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

// d_down and d_glu from the gradient of the activation; the latter for gated experts only. The other
// kinds may have d_down == d_a.
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

// ---- rows ----------------------------------------------------------------------------------------

/** Where the rows of one chunk lie. */
typedef struct gathered {
    reef_dtype dtype;
    size_t count, D;
    size_t span; // values of a row, prefetched by the first product
    union {
        const float *f32[CHUNK];
        const reef_bf16 *bf16[CHUNK];
    } rows;
} gathered;

static void gather(gathered *out,
                   const reef_expert_shape *shape,
                   const reef_expert_rows *experts,
                   size_t count,
                   const reef_expert_id *indices) {
    const size_t row = reef_expert_row_values(shape);
    const uint64_t in_block = ((uint64_t)1 << experts->block_shift) - 1;
    out->dtype = experts->dtype;
    out->count = count;
    out->D = shape->D;
    out->span = row;
    for (size_t p = 0; p < count; p++) {
        uint64_t id = indices[p];
        const void *block = experts->blocks[id >> experts->block_shift];
        size_t at = (size_t)(id & in_block) * row;
        if (experts->dtype == REEF_BF16)
            out->rows.bf16[p] = (const reef_bf16 *)block + at;
        else
            out->rows.f32[p] = (const float *)block + at;
    }
}

static void dot_rows(const gathered *g, float *out, const float *x, size_t offset, size_t span) {
    if (g->dtype == REEF_BF16)
        reef_dot_rows_bf16(g->count, g->D, out, x, g->rows.bf16, offset, span);
    else
        reef_dot_rows(g->count, g->D, out, x, g->rows.f32, offset, span);
}

static void axpy_rows(const gathered *g, float *y, const float *alpha, size_t offset) {
    if (g->dtype == REEF_BF16)
        reef_axpy_rows_bf16(g->count, g->D, y, alpha, g->rows.bf16, offset);
    else
        reef_axpy_rows(g->count, g->D, y, alpha, g->rows.f32, offset);
}

// ---- forward and backward ------------------------------------------------------------------------

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
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) continue;
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = least(CHUNK, P - begin), at = t * P + begin;
            float *kept = hidden ? hidden + t * hidden_values + begin : down;
            float *kept_glu = shape->kind != REEF_EXPERT_GLU ? kept : hidden ? kept + P : glu;
            gather(&g, shape, experts, count, indices + at);
            dot_rows(&g, kept, x + t * D, 0, g.span);
            if (kept_glu != kept) dot_rows(&g, kept_glu, x + t * D, 2 * D, 0);
            activate(shape->kind, count, weights, kept, kept_glu);
            for (size_t p = 0; p < count; p++) weights[p] *= gate[at + p];
            axpy_rows(&g, y + t * D, weights, D);
        }
    }
}

void reef_experts_backward(const reef_expert_shape *shape,
                           size_t rows,
                           float *d_x,
                           float *d_gate,
                           float *d_hidden,
                           const float *d_y,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const reef_expert_rows *experts,
                           const uint8_t *active) {
    const size_t P = shape->P, D = shape->D, hidden_values = reef_expert_hidden_values(shape);
    float d_activation[CHUNK], activation[CHUNK];
    gathered g;
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) {
            memset(d_gate + t * P, 0, P * sizeof(*d_gate));
            memset(d_hidden + t * hidden_values, 0, hidden_values * sizeof(*d_hidden));
            continue;
        }
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = least(CHUNK, P - begin), at = t * P + begin;
            const float *down = hidden + t * hidden_values + begin, *glu = gated(shape, down);
            float *d_down = d_hidden + t * hidden_values + begin, *d_glu = d_down + P;
            gather(&g, shape, experts, count, indices + at);
            dot_rows(&g, d_activation, d_y + t * D, D, g.span);
            activate(shape->kind, count, activation, down, glu);
            for (size_t p = 0; p < count; p++) {
                d_gate[at + p] = d_activation[p] * activation[p];
                d_activation[p] *= gate[at + p];
            }
            activate_backward(shape->kind, count, d_down, d_glu, d_activation, down, glu);
            axpy_rows(&g, d_x + t * D, d_down, 0);
            if (shape->kind == REEF_EXPERT_GLU) axpy_rows(&g, d_x + t * D, d_glu, 2 * D);
        }
    }
}

// ---- pairs ---------------------------------------------------------------------------------------

// Floats between the gradients of two pieces: whole cache lines, so that threads share none.
static size_t grad_stride(size_t row_values) {
    return (row_values + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

reef_status reef_expert_pairs_init(reef_expert_pairs *pairs,
                                   size_t pair_count_max,
                                   size_t expert_count,
                                   size_t row_values,
                                   reef_error *err) {
    *pairs = (reef_expert_pairs){0};
    if (pair_count_max > UINT32_MAX)
        return reef_fail(err, REEF_INVALID,
                         "%zu selections in a step are more than 2^32; make the batch smaller",
                         pair_count_max);
    pairs->pair_count_max = pair_count_max;
    pairs->expert_count = expert_count;
    pairs->pairs = calloc(pair_count_max + 1, sizeof(*pairs->pairs)); // + 1: never an empty block
    pairs->starts = calloc(expert_count + 1, sizeof(*pairs->starts));
    size_t grad_bytes = REEF_EXPERT_PIECES * grad_stride(row_values) * sizeof(*pairs->row_grads);
    pairs->row_grads = aligned_alloc(LINE_BYTES, grad_bytes);
    if (pairs->pairs && pairs->starts && pairs->row_grads) return REEF_OK;
    reef_expert_pairs_release(pairs);
    return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu selections of %zu experts",
                     pair_count_max, expert_count);
}

void reef_expert_pairs_release(reef_expert_pairs *pairs) {
    free(pairs->pairs);
    free(pairs->starts);
    free(pairs->row_grads);
    *pairs = (reef_expert_pairs){0};
}

void reef_expert_pairs_sort(reef_expert_pairs *pairs,
                            size_t rows,
                            size_t P,
                            const reef_expert_id *indices,
                            const uint8_t *active) {
    size_t N = pairs->expert_count;
    uint32_t *starts = pairs->starts;
    assert(rows * P <= pairs->pair_count_max);
    memset(starts, 0, (N + 1) * sizeof(*starts));
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) continue;
        for (size_t p = 0; p < P; p++) starts[indices[t * P + p] + 1]++;
    }
    for (size_t e = 0; e < N; e++) starts[e + 1] += starts[e];

    // Placing moves each start to its end, which is the next expert's start: one shift restores them,
    // and no second array of N cursors is needed.
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) continue;
        for (size_t p = 0; p < P; p++)
            pairs->pairs[starts[indices[t * P + p]]++] = (uint32_t)(t * P + p);
    }
    memmove(starts + 1, starts, N * sizeof(*starts));
    starts[0] = 0;
}

// ---- update --------------------------------------------------------------------------------------

void reef_expert_row_gradient(const reef_expert_shape *shape,
                              size_t pair_count,
                              float *row_grad,
                              const uint32_t *pairs,
                              const float *x,
                              const float *d_y,
                              const float *gate,
                              const float *hidden,
                              const float *d_hidden) {
    const size_t P = shape->P, D = shape->D, hidden_values = reef_expert_hidden_values(shape);
    const bool is_gated = shape->kind == REEF_EXPERT_GLU;
    float down[CHUNK], glu[CHUNK], up[CHUNK];
    const float *x_rows[CHUNK], *d_y_rows[CHUNK];
    memset(row_grad, 0, reef_expert_row_values(shape) * sizeof(*row_grad));
    for (size_t begin = 0; begin < pair_count; begin += CHUNK) {
        size_t count = least(CHUNK, pair_count - begin);
        const uint32_t *pair = pairs + begin;
        for (size_t i = 0; i < count; i++) {
            size_t t = pair[i] / P, at = t * hidden_values + pair[i] % P;
            x_rows[i] = x + t * D;
            d_y_rows[i] = d_y + t * D;
            down[i] = hidden[at];
            if (is_gated) glu[i] = hidden[at + P];
        }
        // Recomputed: cheaper than one more array to write and read.
        activate(shape->kind, count, up, down, is_gated ? glu : down);
        for (size_t i = 0; i < count; i++) {
            size_t at = pair[i] / P * hidden_values + pair[i] % P;
            up[i] *= gate[pair[i]];
            down[i] = d_hidden[at];
            if (is_gated) glu[i] = d_hidden[at + P];
        }
        reef_axpy_rows(count, D, row_grad, down, x_rows, 0);
        reef_axpy_rows(count, D, row_grad + D, up, d_y_rows, 0);
        if (is_gated) reef_axpy_rows(count, D, row_grad + 2 * D, glu, x_rows, 0);
    }
}

typedef struct update_pass {
    const reef_expert_shape *shape;
    size_t row_values;
    float *experts;
    reef_expert_moments *moments;
    const reef_expert_pairs *pairs;
    const float *x, *d_y, *gate, *hidden, *d_hidden;
    const reef_expert_update *update;
} update_pass;

// Scores are rounded one by one to fixed point, so that sums are exact in any order and any grouping.
static void usage_add(reef_usage *usage, size_t count, const uint32_t *pairs, const float *gate) {
    uint64_t score = 0;
    for (size_t i = 0; i < count; i++)
        score += (uint64_t)((double)gate[pairs[i]] * REEF_USAGE_SCORE_ONE + 0.5);
    usage->count += count;
    usage->score += score;
}

static float clip_scale(size_t row_values, const float *row_grad, float clip) {
    if (clip <= 0) return 1;
    float norm = sqrtf(reef_dot(row_values, row_grad, row_grad));
    return norm > clip ? clip / norm : 1;
}

static void expert_update(const update_pass *pass, size_t expert, float *row_grad) {
    const reef_expert_update *update = pass->update;
    const uint32_t *pairs = pass->pairs->pairs + pass->pairs->starts[expert];
    size_t count = pass->pairs->starts[expert + 1] - pass->pairs->starts[expert];
    size_t row_values = pass->row_values, row = expert * row_values;
    if (update->usage) usage_add(&update->usage[expert], count, pairs, pass->gate);
    if (update->flags && update->flags[expert]) return;

    reef_expert_row_gradient(pass->shape, count, row_grad, pairs, pass->x, pass->d_y, pass->gate,
                             pass->hidden, pass->d_hidden);
    uint32_t *updates = &pass->moments->counts[expert];
    if (*updates < UINT32_MAX) (*updates)++; // beyond that the correction is 1 anyway
    reef_adam_update(row_values, pass->experts + row, pass->moments->adam_m + row,
                     pass->moments->adam_v + row, row_grad,
                     clip_scale(row_values, row_grad, update->clip), *updates, &update->adam);
    if (update->dirty) update->dirty[expert] = 1;
}

// The first expert whose pairs begin at or after `pair`: pieces are cut by pairs, not by experts, so
// that a few busy experts do not make one long piece.
static size_t expert_at(const reef_expert_pairs *pairs, size_t pair) {
    size_t low = 0, high = pairs->expert_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pairs->starts[middle] < pair)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The first expert from `expert` on that has pairs, or `end`.
static size_t selected_from(const reef_expert_pairs *pairs, size_t expert, size_t end) {
    while (expert < end && pairs->starts[expert] == pairs->starts[expert + 1]) expert++;
    return expert;
}

// In a large pool the selected rows lie far apart, and no hardware prefetcher sees the next one.
static void row_prefetch(const update_pass *pass, size_t expert) {
    size_t row = expert * pass->row_values;
    for (size_t d = row; d < row + pass->row_values; d += LINE_FLOATS) {
        __builtin_prefetch(pass->experts + d, 1, 3);
        __builtin_prefetch(pass->moments->adam_m + d, 1, 3);
        __builtin_prefetch(pass->moments->adam_v + d, 1, 3);
    }
}

static void update_piece(void *context, size_t piece) {
    const update_pass *pass = context;
    const reef_expert_pairs *pairs = pass->pairs;
    size_t pair_count = pairs->starts[pairs->expert_count];
    size_t begin = expert_at(pairs, pair_count * piece / REEF_EXPERT_PIECES);
    size_t end = expert_at(pairs, pair_count * (piece + 1) / REEF_EXPERT_PIECES);
    float *row_grad = pairs->row_grads + piece * grad_stride(pass->row_values);
    for (size_t expert = selected_from(pairs, begin, end); expert < end;) {
        size_t next = selected_from(pairs, expert + 1, end);
        if (next < end) row_prefetch(pass, next);
        expert_update(pass, expert, row_grad);
        expert = next;
    }
}

void reef_experts_update(reef_workers *workers,
                         const reef_expert_shape *shape,
                         float *experts,
                         reef_expert_moments *moments,
                         const reef_expert_pairs *pairs,
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *hidden,
                         const float *d_hidden,
                         const reef_expert_update *update) {
    update_pass pass = {.shape = shape,
                        .row_values = reef_expert_row_values(shape),
                        .experts = experts,
                        .moments = moments,
                        .pairs = pairs,
                        .x = x,
                        .d_y = d_y,
                        .gate = gate,
                        .hidden = hidden,
                        .d_hidden = d_hidden,
                        .update = update};
    reef_workers_run(workers, REEF_EXPERT_PIECES, update_piece, &pass);
}
