// Sorting 64 scores by a network (Batcher 1968), which has no branches. Included by
// kernels_vector.h, once for each width of vectors.
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
