// The kernels in vectors of VEC_FLOATS floats, included once by each instruction set's file, which
// defines the types vec and vec_int and the few operations that C has no operator for.
//
// What always holds: vectors are loaded from where the array starts, never from the next aligned
// address, and sums have a fixed order; so a result depends on values and sizes alone. The rest
// after the last whole vector is padded with zeros and goes through the same instructions, so an
// element's result in an elementwise kernel does not depend on its position either.
//
// Products and sums are written apart; -ffp-contract=fast fuses them.
#include <math.h>
#include <string.h>

static inline vec load(const float *from) {
    vec v;
    memcpy(&v, from, sizeof(v));
    return v;
}

static inline void store(float *to, vec v) {
    memcpy(to, &v, sizeof(v));
}

static inline vec broadcast(float value) {
    return value - (vec){0}; // minus zero keeps the sign of -0
}

static inline vec load_some_i8(size_t count, const int8_t *from) {
    int8_t padded[VEC_FLOATS] = {0};
    memcpy(padded, from, count * sizeof(*padded));
    return load_i8(padded);
}

#define ROW float
#define ROW_LOAD load
#define ROW_LOAD_SOME load_some
#define ROW_NAME(name) name
#include "kernels_rows.h"

#define ROW int8_t
#define ROW_LOAD load_i8
#define ROW_LOAD_SOME load_some_i8
#define ROW_NAME(name) name##_i8
#define ROW_SCALED
#include "kernels_rows.h"

static float dot(size_t D, const float *a, const float *b) {
    return dot_row(D, a, b);
}

static void axpy(size_t D, float *y, float alpha, const float *x) {
    axpy_row(D, y, alpha, x);
}

// As in kernels_scalar.c; the ends of the range are reached by clamping, which lets NaN through.
static inline vec exp_vec(vec x) {
    x = vec_min(broadcast(EXP_X_MAX), vec_max(broadcast(EXP_X_MIN), x));
    vec rounded = x * EXP_LOG2E + EXP_ROUND;
    vec n = rounded - EXP_ROUND;
    vec r = (x - n * EXP_LOG2_HIGH) - n * EXP_LOG2_LOW;
    vec p = r * EXP_P0 + EXP_P1;
    p = p * r + EXP_P2;
    p = p * r + EXP_P3;
    p = p * r + EXP_P4;
    p = p * r + EXP_P5;
    p = p * (r * r) + r + 1.0f;
    // n as an integer, and 2^n as the product of two powers that are both normal numbers.
    vec_int whole = (vec_int)rounded - (vec_int)broadcast(EXP_ROUND);
    vec_int half = whole >> 1;
    vec low = (vec)((half + 127) << 23);
    vec high = (vec)((whole - half + 127) << 23);
    return p * low * high;
}

static void exp_all(size_t D, float *y, const float *x) {
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) store(y + d, exp_vec(load(x + d)));
    if (d < D) store_some(D - d, y + d, exp_vec(load_some(D - d, x + d)));
}

static float max_of(size_t D, const float *row) {
    vec max = broadcast(row[0]);
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) max = vec_max(load(row + d), max);
    float most = max_lanes(max);
    for (; d < D; d++) most = row[d] > most ? row[d] : most;
    return most;
}

static void softmax(size_t D, float *row) {
    // Maximum, exponentials and scaling in three passes: rows are short enough to stay in cache.
    vec max = broadcast(max_of(D, row));
    vec sums = {0};
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) {
        vec e = exp_vec(load(row + d) - max);
        store(row + d, e);
        sums += e;
    }
    if (d < D) {
        vec e = exp_vec(load_some(D - d, row + d) - max);
        store_some(D - d, row + d, e);
        sums += load_some(D - d, row + d); // without the padding
    }
    vec factor = broadcast(1.0f / sum_lanes(sums));
    for (d = 0; d + VEC_FLOATS <= D; d += VEC_FLOATS) store(row + d, load(row + d) * factor);
    if (d < D) store_some(D - d, row + d, load_some(D - d, row + d) * factor);
}

static inline vec gelu_vec(vec x) {
    vec u = GELU_ROOT * (x + GELU_CUBE * x * x * x);
    return x / (1.0f + exp_vec(-2.0f * u));
}

static void gelu(size_t D, float *y, const float *x) {
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) store(y + d, gelu_vec(load(x + d)));
    if (d < D) store_some(D - d, y + d, gelu_vec(load_some(D - d, x + d)));
}

static inline vec gelu_slope_vec(vec x) {
    x = vec_min(broadcast(GELU_X_MAX), vec_max(broadcast(-GELU_X_MAX), x));
    vec u = GELU_ROOT * (x + GELU_CUBE * x * x * x);
    vec slope = GELU_ROOT * (1.0f + 3.0f * GELU_CUBE * x * x);
    vec s = 1.0f / (1.0f + exp_vec(-2.0f * u));
    return s + x * s * (1.0f - s) * 2.0f * slope;
}

static void gelu_backward(size_t D, float *d_x, const float *d_y, const float *x) {
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS)
        store(d_x + d, load(d_y + d) * gelu_slope_vec(load(x + d)));
    if (d < D)
        store_some(D - d, d_x + d,
                   load_some(D - d, d_y + d) * gelu_slope_vec(load_some(D - d, x + d)));
}

static inline void adam_vec(
    vec *param, vec *adam_m, vec *adam_v, vec grad, const reef_adam_step *step) {
    vec g = grad * step->scale;
    *adam_m = step->beta1 * *adam_m + (1.0f - step->beta1) * g;
    *adam_v = step->beta2 * *adam_v + (1.0f - step->beta2) * g * g;
    *param -= step->rate * *adam_m / (vec_sqrt(*adam_v) * step->root + step->epsilon);
}

static void adam(size_t D,
                 float *param,
                 float *adam_m,
                 float *adam_v,
                 const float *grad,
                 const reef_adam_step *step) {
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) {
        vec p = load(param + d), m = load(adam_m + d), v = load(adam_v + d);
        adam_vec(&p, &m, &v, load(grad + d), step);
        store(param + d, p);
        store(adam_m + d, m);
        store(adam_v + d, v);
    }
    if (d < D) {
        size_t rest = D - d;
        vec p = load_some(rest, param + d);
        vec m = load_some(rest, adam_m + d);
        vec v = load_some(rest, adam_v + d);
        adam_vec(&p, &m, &v, load_some(rest, grad + d), step);
        store_some(rest, param + d, p);
        store_some(rest, adam_m + d, m);
        store_some(rest, adam_v + d, v);
    }
}

static void approach(size_t D, float *average, const float *param, float share) {
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) {
        vec old = load(average + d);
        store(average + d, old + share * (load(param + d) - old));
    }
    if (d < D) {
        vec old = load_some(D - d, average + d);
        store_some(D - d, average + d, old + share * (load_some(D - d, param + d) - old));
    }
}

// Sorting 64 scores by a network (Batcher 1968), which has no branches.
//
// What is sorted are keys of 32 bits: the upper bits of a score, as a whole number in the same
// order, and below them the place where the score stands. Keys order all scores but those that
// differ in their last bits alone, which are neighbours then: one pass of insertion over the scores
// themselves puts these in order.
//
//   score   1.5 = 0x3fc00000    place 3 of 64    key 0x3fc0003c    the lower place has the higher
//           1.5                       9              0x3fc00036    key
enum { SORTED = 64, SORTED_VECS = SORTED / VEC_FLOATS };

#define KEY_NONE INT32_MIN // below the keys of all numbers

// Keys of scores that are numbers; `mask` has the bits of places.
static inline vec_int sort_keys(vec scores, vec_int places, int32_t mask) {
    vec_int bits = (vec_int)(scores + broadcast(0.0f)); // -0 equals 0
    // Negative numbers: all but the sign is flipped, so that they fall as their size grows.
    bits ^= (bits >> 31) & INT32_MAX;
    return (bits & ~mask) | (~places & mask);
}

static inline void sort_exchange(vec_int *upper, vec_int *lower) {
    vec_int greater = vec_int_max(*upper, *lower);
    *lower = vec_int_min(*upper, *lower);
    *upper = greater;
}

// In each vector: lanes i and `other` of i are exchanged, the greater one to the lane without
// the bit `half`.
#define SORT_LANES(v, swapped, half)                                                               \
    do {                                                                                           \
        vec_int other = (swapped);                                                                 \
        (v) = vec_int_blend(vec_int_max(v, other), vec_int_min(v, other), half);                   \
    } while (0)

// A vector whose lanes rise and fall once becomes one that falls.
static inline vec_int sort_lanes_merge(vec_int v) {
    for (int half = VEC_FLOATS / 2; half > 0; half /= 2) SORT_LANES(v, vec_int_swap(v, half), half);
    return v;
}

static inline vec_int sort_lanes(vec_int v) {
    for (int size = 2; size <= VEC_FLOATS; size *= 2) {
        SORT_LANES(v, vec_int_mirror(v, size), size / 2);
        for (int half = size / 4; half > 0; half /= 2) SORT_LANES(v, vec_int_swap(v, half), half);
    }
    return v;
}

// `count` vectors whose values rise and fall once, all together, become ones that fall.
static inline void sort_merge(size_t count, vec_int *keys) {
    for (size_t half = count / 2; half > 0; half /= 2)
        for (size_t i = 0; i < count; i++)
            if ((i & half) == 0) sort_exchange(&keys[i], &keys[i + half]);
    for (size_t i = 0; i < count; i++) keys[i] = sort_lanes_merge(keys[i]);
}

static inline void sort_keys_64(vec_int keys[SORTED_VECS]) {
    for (size_t i = 0; i < SORTED_VECS; i++) keys[i] = sort_lanes(keys[i]);
    for (size_t size = 2; size <= SORTED_VECS; size *= 2)
        for (size_t first = 0; first < SORTED_VECS; first += size) {
            // The second half mirrored, so that both together rise and fall once.
            for (size_t i = 0; i < size / 2; i++) {
                vec_int *lower = &keys[first + size - 1 - i];
                *lower = vec_int_mirror(*lower, VEC_FLOATS);
            }
            for (size_t i = 0; i < size / 4; i++) {
                vec_int last = keys[first + size - 1 - i];
                keys[first + size - 1 - i] = keys[first + size / 2 + i];
                keys[first + size / 2 + i] = last;
            }
            sort_merge(size, keys + first);
        }
}

// The 64 greatest of two sorted lists, sorted, in `keys`. The greatest of the others.
static inline vec_int sort_keep_64(vec_int keys[SORTED_VECS], const vec_int more[SORTED_VECS]) {
    vec_int left_out = (vec_int)broadcast(0) + KEY_NONE;
    for (size_t i = 0; i < SORTED_VECS; i++) {
        vec_int other = vec_int_mirror(more[SORTED_VECS - 1 - i], VEC_FLOATS);
        left_out = vec_int_max(left_out, vec_int_min(keys[i], other));
        keys[i] = vec_int_max(keys[i], other);
    }
    sort_merge(SORTED_VECS, keys);
    return left_out;
}

// The scores of sorted keys, in exact order, and their places. False if two of the first K + 1 are
// equal; then these are in the order of their places.
static inline bool sort_scores(size_t count,
                               const vec_int keys[SORTED_VECS],
                               int32_t mask,
                               const float *scores,
                               size_t K,
                               float sorted[SORTED],
                               int32_t places[SORTED]) {
    for (size_t i = 0; i < SORTED_VECS; i++) {
        vec_int at = ~keys[i] & mask;
        memcpy(places + i * VEC_FLOATS, &at, sizeof(at));
    }
    bool differ = true;
    sorted[0] = scores[places[0]];
    for (size_t i = 1; i < count; i++) {
        const int32_t place = places[i];
        const float score = scores[place];
        size_t at = i;
        // Rarely entered: only where scores differ in bits that keys have no room for.
        for (; at > 0 && sorted[at - 1] < score; at--) {
            sorted[at] = sorted[at - 1];
            places[at] = places[at - 1];
        }
        sorted[at] = score;
        places[at] = place;
    }
    const size_t last = count <= K ? count - 1 : K;
    for (size_t i = 1; i <= last; i++) differ &= sorted[i] != sorted[i - 1];
    return differ;
}

// The best K of a row are found in three passes with few branches: a bound that at least K scores
// reach, the few scores that reach it, and their order by counting. For K = 17 of 1,024 scores that
// takes 0.3 us; comparing whole vectors with the worst of a sorted list and inserting what exceeds
// it took 1.7 us, most of it in branches that no CPU can foresee (AVX-512, Zen 5).
enum {
    BLOCK = 64, // scores that are compared together; one bit each in 64
    BLOCK_VECS = BLOCK / VEC_FLOATS,
    CANDIDATES_MAX = 2 * BLOCK, // more take the slow way; ties only, or K near BLOCK
};

// Scores that may be among the best, in the order of the row.
typedef struct candidates {
    size_t count;
    float scores[CANDIDATES_MAX + 2 * BLOCK];
    int32_t indices[CANDIDATES_MAX + 2 * BLOCK];
} candidates;

// The K-th largest of `count` vectors of values: the least of those that fewer than K others
// exceed. Inlined with a constant count, so that the counts stay in registers.
static inline __attribute__((always_inline)) float kth_largest_of(size_t count,
                                                                  const vec *values,
                                                                  size_t K) {
    float each[BLOCK];
    vec_int above[BLOCK_VECS] = {0};
    for (size_t i = 0; i < count; i++) store(each + i * VEC_FLOATS, values[i]);
    // All against all: no branch depends on the values.
    for (size_t n = 0; n < count * VEC_FLOATS; n++) {
        vec other = broadcast(each[n]);
        for (size_t i = 0; i < count; i++) above[i] = vec_count_above(above[i], other, values[i]);
    }

    // A minimum as the maximum of negated values: max_lanes has no counterpart for minima.
    vec minus_least = broadcast(-INFINITY);
    for (size_t i = 0; i < count; i++) {
        vec_int fewer = above[i] < (int32_t)K;
        vec_int others = ~fewer & (vec_int)broadcast(-INFINITY);
        minus_least = vec_max((vec)((fewer & (vec_int)-values[i]) | others), minus_least);
    }
    return -max_lanes(minus_least);
}

static float kth_largest(size_t count, const vec *values, size_t K) {
    // Constants, so that each call is inlined with its loops unrolled.
    if (count == 1) return kth_largest_of(1, values, K);
    if (count == 2) return kth_largest_of(2, values, K);
    if (count == 4) return kth_largest_of(4, values, K);
    return kth_largest_of(count, values, K);
}

// A bound that at least K <= BLOCK of D scores reach: the K-th largest of maxima, each over scores
// at one position of every whole block (with fewer than a block, of every vector). For a small K
// the maxima are folded onto each other, as long as K is at most three quarters of them: fewer to
// rank, and hardly more candidates.
static float lower_bound(size_t D, const float *row, size_t K) {
    vec most[BLOCK_VECS];
    size_t count = BLOCK_VECS;
    if (D < BLOCK) {
        count = (D + VEC_FLOATS - 1) / VEC_FLOATS;
        for (size_t i = 0; i < D / VEC_FLOATS; i++) most[i] = load(row + i * VEC_FLOATS);
        if (D % VEC_FLOATS != 0) {
            // Padding that is never among the largest.
            most[count - 1] = broadcast(-INFINITY);
            memcpy(&most[count - 1], row + D / VEC_FLOATS * VEC_FLOATS,
                   D % VEC_FLOATS * sizeof(*row));
        }
    } else {
        for (size_t i = 0; i < BLOCK_VECS; i++) most[i] = load(row + i * VEC_FLOATS);
        for (size_t d = BLOCK; d + BLOCK <= D; d += BLOCK)
            for (size_t i = 0; i < BLOCK_VECS; i++)
                most[i] = vec_max(load(row + d + i * VEC_FLOATS), most[i]);
    }
    // Fold the upper half onto the lower one; each fold leaves a quarter of the comparisons.
    for (size_t half = (count + 1) / 2; half < count && 4 * K <= 3 * (half * VEC_FLOATS);
         count = half, half = (count + 1) / 2)
        for (size_t i = half; i < count; i++) most[i - half] = vec_max(most[i], most[i - half]);
    return kth_largest(count, most, K);
}

static vec_int lane_numbers(void) {
    vec_int lanes;
    for (int i = 0; i < VEC_FLOATS; i++) lanes[i] = i;
    return lanes;
}

// Collect the scores that are not below the bound, NaN included. False when they are too many.
static bool collect(size_t D, const float *row, float bound, candidates *found) {
    const vec least = broadcast(bound);
    const vec_int lanes = lane_numbers();
    size_t count = 0;
    size_t d = 0;
    for (; D >= 4 * BLOCK && d + BLOCK <= D; d += BLOCK) { // of long rows few scores in a block
        uint64_t reached = 0;
        for (size_t i = 0; i < BLOCK_VECS; i++)
            reached |= (uint64_t)vec_not_below(load(row + d + i * VEC_FLOATS), least)
                       << (i * VEC_FLOATS);
        // Bit by bit: in a long row a block has about one.
        for (; reached != 0; reached &= reached - 1) {
            size_t index = d + (size_t)__builtin_ctzll(reached);
            found->scores[count] = row[index];
            found->indices[count++] = (int32_t)index;
        }
        // Checked once a block: the arrays have room for all that one block can add.
        if (count > CANDIDATES_MAX) return false;
    }
    for (; d < D; d += VEC_FLOATS) {
        size_t rest = D - d < VEC_FLOATS ? D - d : VEC_FLOATS;
        vec these = rest < VEC_FLOATS ? load_some(rest, row + d) : load(row + d);
        // The mask drops the zeros that pad the last vector.
        uint32_t reached = vec_not_below(these, least) & (uint32_t)((1ull << rest) - 1);
        vec_compress(reached, found->scores + count, these, found->indices + count,
                     lanes + (int32_t)d);
        count += (size_t)__builtin_popcount(reached);
    }
    found->count = count;
    return count <= CANDIDATES_MAX;
}

// Up to so many candidates are counted, which takes a vector's step for each pair of them. More are
// sorted by a network.
enum { COUNTED_MAX = 32 };

// The same order as scatter_by_rank, for up to 64 candidates.
static void scatter_sorted(const candidates *found, size_t K, float *scores, uint16_t *indices) {
    vec_int keys[SORTED_VECS];
    float sorted[SORTED];
    int32_t places[SORTED];
    const vec_int lanes = lane_numbers();
    for (size_t i = 0; i < SORTED_VECS; i++) {
        const vec_int place = lanes + (int32_t)(i * VEC_FLOATS);
        const vec_int none = place >= (int32_t)found->count;
        keys[i] = sort_keys(load(found->scores + i * VEC_FLOATS), place, SORTED - 1);
        keys[i] = (keys[i] & ~none) | (none & KEY_NONE);
    }
    sort_keys_64(keys);
    (void)sort_scores(found->count, keys, SORTED - 1, found->scores, K, sorted, places);
    memcpy(scores, sorted, K * sizeof(*scores));
    for (size_t k = 0; k < K; k++) indices[k] = (uint16_t)found->indices[places[k]];
}

// A candidate's rank is the number of those before it in the order: higher scores, and equal ones
// that precede it in the row. So those of earlier vectors count if they are not below, those of
// later vectors if they are above. Without NaN all ranks differ; those from K on are dropped at the
// end, which costs less than a branch for each.
static void scatter_by_rank(const candidates *found, size_t K, float *scores, uint16_t *indices) {
    float sorted[CANDIDATES_MAX + VEC_FLOATS];
    uint16_t order[CANDIDATES_MAX + VEC_FLOATS];
    const vec_int lanes = lane_numbers();
    for (size_t first = 0; first < found->count; first += VEC_FLOATS) {
        const vec these = load(found->scores + first);
        const size_t left = found->count - first, here = left < VEC_FLOATS ? left : VEC_FLOATS;
        vec_int before = {0};
        // Not below, above, or by lane: which one depends on where the other stands in the row.
        for (size_t n = 0; n < first; n++)
            before = vec_count_not_below(before, broadcast(found->scores[n]), these);
        for (size_t n = 0; n < here; n++) {
            vec other = broadcast(found->scores[first + n]);
            before -= (other > these) | ((other == these) & (lanes > (int32_t)n));
        }
        for (size_t n = first + here; n < found->count; n++)
            before = vec_count_above(before, broadcast(found->scores[n]), these);
        int32_t slots[VEC_FLOATS];
        memcpy(slots, &before, sizeof(slots));
        // Ranks are a permutation, so every slot is written once.
        for (size_t i = 0; i < here; i++) {
            sorted[slots[i]] = found->scores[first + i];
            order[slots[i]] = (uint16_t)found->indices[first + i];
        }
    }
    memcpy(scores, sorted, K * sizeof(*scores));
    memcpy(indices, order, K * sizeof(*indices));
}

static bool has_nan(size_t D, const float *x) {
    vec_int found = {0};
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) found |= load(x + d) != load(x + d);
    if (d < D) found |= load_some(D - d, x + d) != load_some(D - d, x + d);
    int32_t each[VEC_FLOATS];
    memcpy(each, &found, sizeof(each));
    int32_t any = 0;
    for (size_t i = 0; i < VEC_FLOATS; i++) any |= each[i];
    return any != 0;
}

// The best K <= SORTED of more scores than are counted, in whole vectors, the best first: 64 at a
// time are sorted, and the best 64 kept. False where keys, which lack the bits of `mask` for
// places, do not tell which or in what order they are.
static bool best_sorted(size_t count,
                        const float *scores,
                        int32_t mask,
                        size_t K,
                        float sorted[SORTED],
                        int32_t order[SORTED]) {
    vec_int best[SORTED_VECS], more[SORTED_VECS];
    vec_int left_out = (vec_int)broadcast(0) + KEY_NONE;
    const vec_int lanes = lane_numbers();
    for (size_t first = 0; first < count; first += SORTED) {
        vec_int *keys = first == 0 ? best : more;
        for (size_t i = 0; i < SORTED_VECS; i++) {
            const size_t at = first + i * VEC_FLOATS;
            const vec_int place = lanes + (int32_t)at;
            const vec_int none = place >= (int32_t)count;
            vec_int these = at < count ? sort_keys(load(scores + at), place, mask) : none;
            keys[i] = (these & ~none) | (none & KEY_NONE);
        }
        sort_keys_64(keys);
        if (first > 0) left_out = vec_int_max(left_out, sort_keep_64(best, more));
    }
    const size_t kept = count < SORTED ? count : SORTED;
    if (!sort_scores(kept, best, mask, scores, K, sorted, order)) return false;
    // Keys do not tell the last one from scores that were left out where these differ from it by
    // less than the bits of places.
    int32_t others[VEC_FLOATS], last;
    memcpy(others, &left_out, sizeof(others));
    memcpy(&last, (const int32_t *)best + K - 1, sizeof(last));
    for (size_t i = 0; i < VEC_FLOATS; i++)
        if ((others[i] | mask) >= last) return false;
    return true;
}

// Of so few scores so many are wanted that a bound leaves most of them. False: see best_sorted.
static bool topk_of_few(size_t D, const float *row, size_t K, float *scores, uint16_t *indices) {
    enum { FEW = 1024 };
    float sorted[SORTED];
    int32_t order[SORTED];
    if (K <= COUNTED_MAX || K > SORTED || D <= SORTED || D > FEW || D % VEC_FLOATS != 0)
        return false;
    if (!best_sorted(D, row, D <= FEW / 4 ? FEW / 4 - 1 : FEW - 1, K, sorted, order)) return false;
    memcpy(scores, sorted, K * sizeof(*scores));
    for (size_t k = 0; k < K; k++) indices[k] = (uint16_t)order[k];
    return true;
}

static bool topk(size_t D, const float *row, size_t K, float *scores, uint16_t *indices) {
    candidates found;
    if (has_nan(D, row)) return false;
    if (topk_of_few(D, row, K, scores, indices)) return true;
    // Many ties or a large K: the scalar kernel is exact for any input.
    // All of a row reach any bound: to find one costs as much as to rank them.
    if (K > BLOCK || !collect(D, row, K < D ? lower_bound(D, row, K) : -INFINITY, &found))
        return reef_kernels_scalar.topk(D, row, K, scores, indices);
    if (found.count > COUNTED_MAX && found.count <= SORTED)
        scatter_sorted(&found, K, scores, indices);
    else
        scatter_by_rank(&found, K, scores, indices);
    return true;
}

static bool rank_sorted(
    size_t count, const float *sums, const int32_t *places, size_t topk, uint32_t *positions) {
    enum { MASK = 255 };
    _Static_assert((int)RANK_PAIRS_MAX <= (int)MASK, "a key has room for each place");
    float sorted[SORTED];
    int32_t order[SORTED];
    if (!best_sorted(count, sums, MASK, topk, sorted, order)) return false;
    for (size_t k = 0; k < topk; k++) positions[k] = (uint32_t)places[order[k]];
    return true;
}

static bool rank_pairs(size_t count_a,
                       const float *a,
                       size_t count_b,
                       const float *b,
                       float least,
                       size_t topk,
                       uint32_t *positions) {
    float sums[RANK_PAIRS_MAX + VEC_FLOATS];
    int32_t places[RANK_PAIRS_MAX + VEC_FLOATS];
    const vec_int lanes = lane_numbers();
    const vec bound = broadcast(least);
    size_t count = 0;
    for (size_t p = 0; p < count_a && a[p] + b[0] >= least; p++)
        for (size_t q = 0; q < count_b; q += VEC_FLOATS) {
            const size_t rest = count_b - q < VEC_FLOATS ? count_b - q : VEC_FLOATS;
            vec row = broadcast(a[p]) + (rest < VEC_FLOATS ? load_some(rest, b + q) : load(b + q));
            vec_int place = lanes + (int32_t)(p << 16 | q);
            store(sums + count, row);
            memcpy(places + count, &place, sizeof(place));
            // Sums of a row fall, so those that reach the bound are its first ones.
            uint32_t reached = vec_not_below(row, bound) & (uint32_t)((1ull << rest) - 1);
            count += (size_t)__builtin_popcount(reached);
            if (count > RANK_PAIRS_MAX) return false;
            if (reached >> (VEC_FLOATS - 1) == 0) break;
        }

    if (count > COUNTED_MAX && topk <= SORTED)
        return rank_sorted(count, sums, places, topk, positions);
    // Ranks by counting, as in scatter_by_rank; equal sums share a rank.
    int32_t ranked[RANK_PAIRS_MAX + VEC_FLOATS];
    size_t below = 0; // ranks below topk
    for (size_t k = 0; k < topk; k++) ranked[k] = -1;
    for (size_t first = 0; first < count; first += VEC_FLOATS) {
        const vec these = load(sums + first);
        const size_t left = count - first, here = left < VEC_FLOATS ? left : VEC_FLOATS;
        vec_int above = {0};
        for (size_t n = 0; n < count; n++)
            above = vec_count_above(above, broadcast(sums[n]), these);
        int32_t slots[VEC_FLOATS];
        memcpy(slots, &above, sizeof(slots));
        for (size_t i = 0; i < here; i++) {
            ranked[slots[i]] = places[first + i];
            below += (size_t)slots[i] < topk;
        }
    }
    // Where sums are equal a rank is missing, or too many have the last one.
    bool missing = false;
    for (size_t k = 0; k < topk; k++) missing |= ranked[k] < 0;
    if (missing || below != topk) return false;
    memcpy(positions, ranked, topk * sizeof(*positions));
    return true;
}

const reef_kernel_table VEC_TABLE = {
    .name = VEC_NAME,
    .dot = dot,
    .axpy = axpy,
    .dot_rows = dot_rows,
    .axpy_rows = axpy_rows,
    .dot_rows_i8 = dot_rows_i8,
    .axpy_rows_i8 = axpy_rows_i8,
    .exp = exp_all,
    .softmax = softmax,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .adam = adam,
    .approach = approach,
    .topk = topk,
    .rank_pairs = rank_pairs,
};
