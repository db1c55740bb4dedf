// Selections of experts, sorted so that each expert's stand together: what the update pass walks.
//
// What always holds: nothing here has the size of the pool, nothing allocates after
// reef_expert_pairs_init, and where a pair ends up does not depend on the number of threads.
#include "experts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// The sort's pieces at most, and the bits of an id that one pass sorts by at most: the lines that a
// pass writes to, one for each of 2^12 digits, stay in the second-level cache. Every piece clears
// and sums a count of each digit, so a small net's pairs get few: those of 512 tokens of 16 experts
// among 4,096 are sorted in a quarter of the time that 32 pieces take.
enum { SORT_PIECES = 32, PIECE_PAIRS = 2048, DIGIT_BITS_MAX = 12, DIGITS = 1 << DIGIT_BITS_MAX };

reef_status reef_expert_pairs_init(reef_expert_pairs *pairs,
                                   size_t pair_count_max,
                                   size_t expert_count,
                                   size_t row_values,
                                   reef_error *err) {
    *pairs = (reef_expert_pairs){0};
    if (pair_count_max > UINT32_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu selections in a step are more than 2^32; make the batch smaller",
                         pair_count_max);
    pairs->pair_count_max = pair_count_max;
    pairs->expert_count = expert_count;
    // + 1: never an empty block
    pairs->sorted = calloc(pair_count_max + 1, sizeof(*pairs->sorted));
    pairs->scratch = calloc(pair_count_max + 1, sizeof(*pairs->scratch));
    // One row of offsets more than pieces: the sums over all of them.
    pairs->offsets = calloc((SORT_PIECES + 1) * (size_t)DIGITS, sizeof(*pairs->offsets));
    size_t grad_bytes =
        REEF_EXPERT_PIECES * reef_expert_grad_stride(row_values) * sizeof(*pairs->row_grads);
    pairs->row_grads = aligned_alloc(REEF_EXPERT_LINE_BYTES, grad_bytes);
    // Of no betas: both are below 1.
    pairs->biases = calloc(REEF_EXPERT_BIASES, sizeof(*pairs->biases));
    pairs->bias_beta1 = pairs->bias_beta2 = 1;
    if (pairs->sorted != NULL && pairs->scratch != NULL && pairs->offsets != NULL &&
        pairs->row_grads != NULL && pairs->biases != NULL)
        return REEF_OK;
    reef_expert_pairs_release(pairs);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu selections of %zu experts",
                     pair_count_max, expert_count);
}

void reef_expert_pairs_release(reef_expert_pairs *pairs) {
    free(pairs->sorted);
    free(pairs->scratch);
    free(pairs->offsets);
    free(pairs->row_grads);
    free(pairs->biases);
    *pairs = (reef_expert_pairs){0};
}

size_t reef_expert_pairs_end(const reef_expert_pairs *pairs, size_t begin) {
    size_t end = begin + 1;
    while (end < pairs->pair_count &&
           reef_pair_expert(pairs->sorted[end]) == reef_pair_expert(pairs->sorted[begin]))
        end++;
    return end;
}

// A stable sort by digits of the id, the least first (Knuth 1998, 5.2.5). Every piece counts and
// moves its own share of the pairs: nothing has the size of the pool, and the position of a pair
// does not depend on the thread that moved it.
typedef struct sort_pass {
    size_t rows, P, count, pieces;
    const reef_expert_id *indices;
    const uint8_t *active;
    const reef_pair *from;
    reef_pair *to;
    uint32_t *offsets; // (pieces + 1, DIGITS)
    unsigned shift;    // of the radix pass's digit in an id
    uint32_t mask;
} sort_pass;

static uint32_t digit_of(const sort_pass *acts, reef_expert_id expert) {
    return expert >> acts->shift & acts->mask;
}

static uint32_t *cleared_counts(const sort_pass *acts, size_t piece) {
    uint32_t *counts = acts->offsets + piece * DIGITS;
    memset(counts, 0, ((size_t)acts->mask + 1) * sizeof(*counts));
    return counts;
}

// Turns what every piece counted of each digit into where its first one goes: digit by digit, and
// within one in the order of the pieces. Returns the sum. Rows of digits are walked, not columns of
// pieces.
static size_t offsets_from_counts(const sort_pass *acts) {
    const size_t digits = (size_t)acts->mask + 1;
    uint32_t *next = cleared_counts(acts, acts->pieces), sum = 0;
    for (size_t piece = 0; piece < acts->pieces; piece++)
        for (size_t i = 0; i < digits; i++) next[i] += acts->offsets[piece * DIGITS + i];
    for (size_t i = 0; i < digits; i++) {
        uint32_t count = next[i];
        next[i] = sum;
        sum += count;
    }
    for (size_t piece = 0; piece < acts->pieces; piece++) {
        uint32_t *offsets = acts->offsets + piece * DIGITS;
        for (size_t i = 0; i < digits; i++) {
            uint32_t count = offsets[i];
            offsets[i] = next[i];
            next[i] += count;
        }
    }
    return sum;
}

// The first radix pass takes its pairs from the indices.
static void count_indices(void *context, size_t piece) {
    const sort_pass *acts = context;
    const size_t end = reef_piece_begin(acts->rows, piece + 1, acts->pieces), P = acts->P;
    uint32_t *counts = cleared_counts(acts, piece);
    for (size_t t = reef_piece_begin(acts->rows, piece, acts->pieces); t < end; t++) {
        if (acts->active != NULL && !acts->active[t]) continue;
        for (size_t i = t * P; i < (t + 1) * P; i++) counts[digit_of(acts, acts->indices[i])]++;
    }
}

static void scatter_indices(void *context, size_t piece) {
    const sort_pass *acts = context;
    const size_t end = reef_piece_begin(acts->rows, piece + 1, acts->pieces), P = acts->P;
    uint32_t *offsets = acts->offsets + piece * DIGITS;
    for (size_t t = reef_piece_begin(acts->rows, piece, acts->pieces); t < end; t++) {
        if (acts->active != NULL && !acts->active[t]) continue;
        for (size_t i = t * P; i < (t + 1) * P; i++)
            acts->to[offsets[digit_of(acts, acts->indices[i])]++] =
                (reef_pair)acts->indices[i] << 32 | i;
    }
}

static void count_pairs(void *context, size_t piece) {
    const sort_pass *acts = context;
    uint32_t *counts = cleared_counts(acts, piece);
    size_t end = reef_piece_begin(acts->count, piece + 1, acts->pieces);
    for (size_t i = reef_piece_begin(acts->count, piece, acts->pieces); i < end; i++)
        counts[digit_of(acts, reef_pair_expert(acts->from[i]))]++;
}

static void move_pairs(void *context, size_t piece) {
    const sort_pass *acts = context;
    uint32_t *offsets = acts->offsets + piece * DIGITS;
    size_t end = reef_piece_begin(acts->count, piece + 1, acts->pieces);
    for (size_t i = reef_piece_begin(acts->count, piece, acts->pieces); i < end; i++)
        acts->to[offsets[digit_of(acts, reef_pair_expert(acts->from[i]))]++] = acts->from[i];
}

// A stable sort's result is the same for any number.
static size_t pieces_of(size_t pair_count) {
    size_t pieces = (pair_count + PIECE_PAIRS - 1) / PIECE_PAIRS;
    return pieces < 1 ? 1 : pieces > SORT_PIECES ? SORT_PIECES : pieces;
}

// Bits of the largest id, at least one.
static unsigned id_bits(size_t expert_count) {
    unsigned bits = 1;
    while (bits < 32 && expert_count > (size_t)1 << bits) bits++;
    return bits;
}

void reef_expert_pairs_sort(reef_expert_pairs *pairs,
                            reef_thread_pool *workers,
                            size_t rows,
                            size_t P,
                            const reef_expert_id *indices,
                            const uint8_t *active) {
    assert(rows * P <= pairs->pair_count_max);
    sort_pass acts = {.rows = rows,
                      .P = P,
                      .pieces = pieces_of(rows * P),
                      .indices = indices,
                      .active = active,
                      .offsets = pairs->offsets};
    unsigned bits = id_bits(pairs->expert_count);
    unsigned passes = (bits + DIGIT_BITS_MAX - 1) / DIGIT_BITS_MAX;
    for (unsigned pass = 0; pass < passes; pass++) {
        acts.shift = bits * pass / passes;
        acts.mask = ((uint32_t)1 << (bits * (pass + 1) / passes - acts.shift)) - 1;
        // The last radix pass writes to `sorted`.
        acts.to = (passes - pass) % 2 ? pairs->sorted : pairs->scratch;
        reef_thread_pool_run(workers, acts.pieces, pass == 0 ? count_indices : count_pairs, &acts);
        acts.count = offsets_from_counts(&acts);
        reef_thread_pool_run(workers, acts.pieces, pass == 0 ? scatter_indices : move_pairs, &acts);
        acts.from = acts.to;
    }
    pairs->pair_count = acts.count;
}
