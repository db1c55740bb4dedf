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

// ---- forward and backward ------------------------------------------------------------------------

void reef_experts_forward(size_t rows,
                          size_t P,
                          size_t D,
                          float *y,
                          float *hidden,
                          const float *x,
                          const reef_expert_id *indices,
                          const float *gate,
                          const float *experts,
                          const uint8_t *active) {
    float dots[CHUNK], weights[CHUNK];
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) continue;
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = least(CHUNK, P - begin), at = t * P + begin;
            float *kept = hidden ? hidden + at : dots;
            reef_dot_rows(count, D, kept, x + t * D, experts, 2 * D, indices + at);
            reef_gelu(count, weights, kept);
            for (size_t p = 0; p < count; p++) weights[p] *= gate[at + p];
            reef_axpy_rows(count, D, y + t * D, weights, experts + D, 2 * D, indices + at);
        }
    }
}

void reef_experts_backward(size_t rows,
                           size_t P,
                           size_t D,
                           float *d_x,
                           float *d_gate,
                           float *d_hidden,
                           const float *d_y,
                           const float *x,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const float *experts,
                           const uint8_t *active) {
    (void)x; // enters the gradient of w_down only, which is the update's
    float dots[CHUNK], activations[CHUNK];
    for (size_t t = 0; t < rows; t++) {
        if (active && !active[t]) {
            memset(d_gate + t * P, 0, P * sizeof(*d_gate));
            memset(d_hidden + t * P, 0, P * sizeof(*d_hidden));
            continue;
        }
        for (size_t begin = 0; begin < P; begin += CHUNK) {
            size_t count = least(CHUNK, P - begin), at = t * P + begin;
            reef_dot_rows(count, D, dots, d_y + t * D, experts + D, 2 * D, indices + at);
            reef_gelu(count, activations, hidden + at);
            for (size_t p = 0; p < count; p++) {
                d_gate[at + p] = dots[p] * activations[p];
                d_hidden[at + p] = dots[p] * gate[at + p];
            }
            reef_gelu_backward(count, d_hidden + at, d_hidden + at, hidden + at);
            reef_axpy_rows(count, D, d_x + t * D, d_hidden + at, experts, 2 * D, indices + at);
        }
    }
}

// ---- pairs ---------------------------------------------------------------------------------------

// Floats between the gradients of two pieces: whole cache lines, so that threads share none.
static size_t grad_stride(size_t D) {
    return (2 * D + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

reef_status reef_expert_pairs_init(reef_expert_pairs *pairs,
                                   size_t pair_count_max,
                                   size_t expert_count,
                                   size_t D,
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
    size_t grad_bytes = REEF_EXPERT_PIECES * grad_stride(D) * sizeof(*pairs->row_grads);
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

void reef_expert_row_gradient(size_t pair_count,
                              size_t P,
                              size_t D,
                              float *row_grad,
                              const uint32_t *pairs,
                              const float *x,
                              const float *d_y,
                              const float *gate,
                              const float *hidden,
                              const float *d_hidden) {
    float down[CHUNK], up[CHUNK];
    uint32_t tokens[CHUNK];
    memset(row_grad, 0, 2 * D * sizeof(*row_grad));
    for (size_t begin = 0; begin < pair_count; begin += CHUNK) {
        size_t count = least(CHUNK, pair_count - begin);
        const uint32_t *pair = pairs + begin;
        for (size_t i = 0; i < count; i++) {
            tokens[i] = pair[i] / (uint32_t)P;
            down[i] = d_hidden[pair[i]];
            up[i] = hidden[pair[i]];
        }
        reef_gelu(count, up, up); // recomputed: cheaper than one more array to write and read
        for (size_t i = 0; i < count; i++) up[i] *= gate[pair[i]];
        reef_axpy_rows(count, D, row_grad, down, x, D, tokens);
        reef_axpy_rows(count, D, row_grad + D, up, d_y, D, tokens);
    }
}

typedef struct update_pass {
    size_t P, D;
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

static float clip_scale(size_t D, const float *row_grad, float clip) {
    if (clip <= 0) return 1;
    float norm = sqrtf(reef_dot(2 * D, row_grad, row_grad));
    return norm > clip ? clip / norm : 1;
}

static void expert_update(const update_pass *pass, size_t expert, float *row_grad) {
    const reef_expert_update *update = pass->update;
    const uint32_t *pairs = pass->pairs->pairs + pass->pairs->starts[expert];
    size_t count = pass->pairs->starts[expert + 1] - pass->pairs->starts[expert];
    size_t D = pass->D, row = expert * 2 * D;
    if (update->usage) usage_add(&update->usage[expert], count, pairs, pass->gate);
    if (update->flags && update->flags[expert]) return;

    reef_expert_row_gradient(count, pass->P, D, row_grad, pairs, pass->x, pass->d_y, pass->gate,
                             pass->hidden, pass->d_hidden);
    uint32_t *updates = &pass->moments->counts[expert];
    if (*updates < UINT32_MAX) (*updates)++; // beyond that the correction is 1 anyway
    reef_adam_update(2 * D, pass->experts + row, pass->moments->adam_m + row,
                     pass->moments->adam_v + row, row_grad, clip_scale(D, row_grad, update->clip),
                     *updates, &update->adam);
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
    size_t row = expert * 2 * pass->D;
    for (size_t d = row; d < row + 2 * pass->D; d += LINE_FLOATS) {
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
    float *row_grad = pairs->row_grads + piece * grad_stride(pass->D);
    for (size_t expert = selected_from(pairs, begin, end); expert < end;) {
        size_t next = selected_from(pairs, expert + 1, end);
        if (next < end) row_prefetch(pass, next);
        expert_update(pass, expert, row_grad);
        expert = next;
    }
}

void reef_experts_update(reef_workers *workers,
                         size_t rows,
                         size_t P,
                         size_t D,
                         float *experts,
                         reef_expert_moments *moments,
                         const reef_expert_pairs *pairs,
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *hidden,
                         const float *d_hidden,
                         const reef_expert_update *update) {
    assert(pairs->starts[pairs->expert_count] <= rows * P);
    (void)rows;
    update_pass pass = {.P = P,
                        .D = D,
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
