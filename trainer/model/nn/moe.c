// See moe.h. Ties go to the earlier token; sums over experts run in their order, sums over windows
// in theirs.
#include "moe.h"

#include "transformer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- memory -------------------------------------------------------------------------------------

/** One expert's block of C tokens, wherever its arrays lie. */
typedef struct block {
    const uint16_t *tokens; // (count)
    size_t count;           // at most C; rows from there on are zero
    float *x, *in, *act, *out;
    float *d_out;
    float *d_act, *d_x; // scratch of backward
} block;

// Floats of a window's scratch: the arrays of one block.
static size_t scratch_values(const reef_moe_shape *shape) {
    return shape->C * (4 * shape->D + 3 * shape->F);
}

static bool floats(float **out, size_t count) {
    *out = calloc(count + 1, sizeof(**out));
    return *out != NULL;
}

static bool allocate_kept(reef_moe_tape *tape, const reef_moe_shape *shape, size_t windows) {
    size_t rows = shape->E * windows * shape->C, D = shape->D, F = shape->F;
    tape->products = calloc(2 * shape->E, sizeof(*tape->products));
    return tape->products != NULL && floats(&tape->lowest, windows * shape->E) &&
           floats(&tape->x, rows * D) && floats(&tape->in, rows * F) &&
           floats(&tape->act, rows * F) && floats(&tape->out, rows * D) &&
           floats(&tape->d_out, rows * D) && floats(&tape->d_logits, windows * shape->T * shape->E);
}

reef_status reef_moe_tape_init(reef_moe_tape *tape,
                               const reef_moe_shape *shape,
                               size_t windows_max,
                               bool backward,
                               reef_error *err) {
    size_t slots = windows_max * shape->E;
    *tape = (reef_moe_tape){0};
    assert(shape->T <= UINT16_MAX && shape->C >= 1 && shape->C <= shape->T);
    tape->tokens = calloc(slots * shape->T, sizeof(*tape->tokens));
    tape->counts = calloc(slots, sizeof(*tape->counts));
    bool ok = tape->tokens != NULL && tape->counts != NULL &&
              floats(&tape->scores, slots * shape->T) &&
              floats(&tape->scratch, windows_max * scratch_values(shape));
    if (ok && (!backward || allocate_kept(tape, shape, windows_max))) return REEF_OK;
    reef_moe_tape_release(tape);
    return reef_fail(err, REEF_ERR_NO_MEMORY,
                     "no memory for a mixture of %zu experts over %zu windows", shape->E,
                     windows_max);
}

void reef_moe_tape_release(reef_moe_tape *tape) {
    float *const all[] = {tape->scores, tape->scratch, tape->lowest, tape->x,       tape->in,
                          tape->act,    tape->out,     tape->d_out,  tape->d_logits};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) free(all[i]);
    free(tape->tokens);
    free(tape->counts);
    free(tape->products);
    *tape = (reef_moe_tape){0};
}

void reef_moe_begin(reef_moe_tape *tape, size_t windows, bool choose) {
    assert(!choose || tape->lowest != NULL);
    tape->windows = windows;
    tape->chosen = choose;
}

// ---- who takes what -----------------------------------------------------------------------------

// A score is not negative, so its bits are in the order of the scores.
static uint32_t bits_of(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    return bits;
}

static size_t count_from(const reef_moe_shape *shape, const float *scores, uint32_t bits) {
    size_t count = 0;
    for (size_t t = 0; t < shape->T; t++) count += bits_of(scores[t * shape->E]) >= bits;
    return count;
}

// Bits of the C-th highest of an expert's scores (every E-th): the largest number that C of them
// reach, bit by bit. Nothing is moved or compared as floats, so it also ends where a score is not a
// number.
static uint32_t lowest_taken(const reef_moe_shape *shape, const float *scores) {
    uint32_t lowest = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit != 0; bit >>= 1)
        if (count_from(shape, scores, lowest | bit) >= shape->C) lowest |= bit;
    return lowest;
}

// The C best tokens of one expert, the earlier one first among equals. Returns the lowest score
// among them.
static float choose(const reef_moe_shape *shape, const float *scores, uint16_t *tokens) {
    uint32_t lowest = lowest_taken(shape, scores);
    size_t above = lowest == UINT32_MAX ? 0 : count_from(shape, scores, lowest + 1), count = 0;
    size_t ties = shape->C - above;
    float score;
    for (size_t t = 0; t < shape->T; t++) {
        uint32_t bits = bits_of(scores[t * shape->E]);
        if (bits < lowest || (bits == lowest && ties == 0)) continue;
        ties -= bits == lowest;
        tokens[count++] = (uint16_t)t;
    }
    assert(count == shape->C);
    memcpy(&score, &lowest, sizeof(score));
    return score;
}

static size_t reach(const reef_moe_shape *shape,
                    const float *scores,
                    float threshold,
                    uint16_t *tokens) {
    size_t count = 0;
    for (size_t t = 0; t < shape->T; t++)
        if (scores[t * shape->E] >= threshold) tokens[count++] = (uint16_t)t;
    return count;
}

static void route(const reef_moe_shape *shape,
                  const reef_moe_params *params,
                  const reef_moe_tape *tape,
                  size_t window,
                  const float *x) {
    size_t T = shape->T, E = shape->E;
    float *scores = tape->scores + window * T * E;
    reef_gemm(false, false, T, E, shape->D, 1.0f, x, shape->D, params->w_router, E, 0.0f, scores,
              E);
    for (size_t t = 0; t < T; t++) reef_softmax(E, scores + t * E);
    for (size_t e = 0; e < E; e++) {
        size_t slot = window * E + e;
        uint16_t *tokens = tape->tokens + slot * T;
        if (tape->chosen) {
            tape->lowest[slot] = choose(shape, scores + e, tokens);
            tape->counts[slot] = shape->C;
        } else {
            tape->counts[slot] = reach(shape, scores + e, params->threshold[e], tokens);
        }
    }
}

// ---- one block ----------------------------------------------------------------------------------

// The block of an expert's tokens from `begin` on; its arrays are the window's scratch, or what is
// kept.
static block block_at(
    const reef_moe_shape *shape, const reef_moe_tape *tape, size_t window, size_t e, size_t begin) {
    size_t C = shape->C, wide = C * shape->D, hidden = C * shape->F, slot = window * shape->E + e;
    size_t left = tape->counts[slot] - begin;
    float *scratch = tape->scratch + window * scratch_values(shape);
    block b = {.tokens = tape->tokens + slot * shape->T + begin, .count = left < C ? left : C};
    b.d_act = scratch;
    b.d_x = b.d_act + hidden;
    b.x = b.d_x + wide;
    b.in = b.x + wide;
    b.act = b.in + hidden;
    b.out = b.act + hidden;
    b.d_out = b.out + wide;
    if (!tape->chosen) return b;
    size_t kept = e * tape->windows + window;
    b.x = tape->x + kept * wide;
    b.in = tape->in + kept * hidden;
    b.act = tape->act + kept * hidden;
    b.out = tape->out + kept * wide;
    b.d_out = tape->d_out + kept * wide;
    return b;
}

static void compute_expert(const reef_moe_shape *shape,
                           const reef_moe_params *params,
                           size_t e,
                           const block *b,
                           const float *x) {
    size_t C = shape->C, D = shape->D, F = shape->F;
    for (size_t i = 0; i < b->count; i++)
        memcpy(b->x + i * D, x + b->tokens[i] * D, D * sizeof(*b->x));
    memset(b->x + b->count * D, 0, (C - b->count) * D * sizeof(*b->x));
    reef_gemm(false, false, C, F, D, 1.0f, b->x, D, params->w_in + e * D * F, F, 0.0f, b->in, F);
    reef_gelu(C * F, b->act, b->in);
    reef_gemm(false, false, C, D, F, 1.0f, b->act, F, params->w_out + e * F * D, D, 0.0f, b->out,
              D);
}

void reef_moe_forward(const reef_moe_shape *shape,
                      const reef_moe_params *params,
                      reef_moe_tape *tape,
                      size_t window,
                      float *y,
                      const float *x) {
    size_t D = shape->D, E = shape->E;
    const float *scores = tape->scores + window * shape->T * E;
    route(shape, params, tape, window, x);
    for (size_t e = 0; e < E; e++)
        for (size_t begin = 0; begin < tape->counts[window * E + e]; begin += shape->C) {
            block b = block_at(shape, tape, window, e, begin);
            compute_expert(shape, params, e, &b, x);
            for (size_t i = 0; i < b.count; i++)
                reef_axpy(D, y + b.tokens[i] * D, scores[b.tokens[i] * E + e], b.out + i * D);
        }
}

// From d_y to d_x of the block's tokens, and to the gradients of their scores.
static void compute_backward(const reef_moe_shape *shape,
                             const reef_moe_params *params,
                             size_t e,
                             const block *b,
                             float *d_x,
                             float *d_scores, // (T, E)
                             const float *scores,
                             const float *d_y) {
    size_t C = shape->C, D = shape->D, F = shape->F, E = shape->E;
    memset(b->d_out, 0, C * D * sizeof(*b->d_out));
    for (size_t i = 0; i < b->count; i++) {
        size_t t = b->tokens[i];
        d_scores[t * E + e] = reef_dot(D, d_y + t * D, b->out + i * D);
        reef_axpy(D, b->d_out + i * D, scores[t * E + e], d_y + t * D);
    }
    reef_gemm(false, true, C, F, D, 1.0f, b->d_out, D, params->w_out + e * F * D, D, 0.0f, b->d_act,
              F);
    reef_gelu_backward(C * F, b->in, b->d_act, b->in);
    reef_gemm(false, true, C, D, F, 1.0f, b->in, F, params->w_in + e * D * F, F, 0.0f, b->d_x, D);
    for (size_t i = 0; i < b->count; i++)
        reef_axpy(D, d_x + b->tokens[i] * D, 1.0f, b->d_x + i * D);
}

// In slot, from scores to logits: d_logit[e] = score[e] * (d_score[e] - sum over i of score[i]
// d_score[i])
static void softmax_backward(size_t E, float *d, const float *scores) {
    float mean = reef_dot(E, d, scores);
    for (size_t e = 0; e < E; e++) d[e] = scores[e] * (d[e] - mean);
}

void reef_moe_backward(const reef_moe_shape *shape,
                       const reef_moe_params *params,
                       reef_moe_tape *tape,
                       size_t window,
                       float *d_x,
                       const float *d_y,
                       const float *x) {
    size_t T = shape->T, E = shape->E;
    const float *scores = tape->scores + window * T * E;
    float *d_logits = tape->d_logits + window * T * E;
    memset(d_logits, 0, T * E * sizeof(*d_logits));
    for (size_t e = 0; e < E; e++)
        for (size_t begin = 0; begin < tape->counts[window * E + e]; begin += shape->C) {
            block b = block_at(shape, tape, window, e, begin);
            if (!tape->chosen) compute_expert(shape, params, e, &b, x);
            compute_backward(shape, params, e, &b, d_x, d_logits, scores, d_y);
        }
    for (size_t t = 0; t < T; t++) softmax_backward(E, d_logits + t * E, scores + t * E);
    reef_gemm(false, true, T, shape->D, E, 1.0f, d_logits, E, params->w_router, E, 1.0f, d_x,
              shape->D);
}

// ---- parameters ---------------------------------------------------------------------------------

void reef_moe_gradients(const reef_moe_shape *shape,
                        const reef_moe_params *grads,
                        const reef_moe_tape *tape,
                        reef_thread_pool *workers,
                        const float *x) {
    size_t D = shape->D, F = shape->F, rows = tape->windows * shape->C;
    assert(tape->chosen);
    reef_weight_product router = {D, shape->E, grads->w_router, x, tape->d_logits};
    reef_weight_gradients(workers, tape->windows * shape->T, 1, &router);
    for (size_t e = 0; e < shape->E; e++) {
        size_t row = e * rows, at = e * D * F;
        tape->products[2 * e] =
            (reef_weight_product){D, F, grads->w_in + at, tape->x + row * D, tape->in + row * F};
        tape->products[2 * e + 1] = (reef_weight_product){
            F, D, grads->w_out + at, tape->act + row * F, tape->d_out + row * D};
    }
    reef_weight_gradients(workers, rows, 2 * shape->E, tape->products);
}

void reef_moe_update_thresholds(const reef_moe_shape *shape,
                                const reef_moe_params *params,
                                const reef_moe_tape *tape,
                                float momentum) {
    assert(tape->chosen && tape->windows > 0);
    for (size_t e = 0; e < shape->E; e++) {
        double mean = 0.0;
        for (size_t w = 0; w < tape->windows; w++) mean += (double)tape->lowest[w * shape->E + e];
        mean /= (double)tape->windows;
        params->threshold[e] += momentum * ((float)mean - params->threshold[e]);
    }
}
