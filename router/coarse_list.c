// The first pass of retrieval; coarse.h says why it loses nothing.
//
// What always holds: the pairs that are chosen from these lists, and their scores, have the bits of
// the plain way, in which BLAS scores every sub-key. What is left is scored by a kernel of our own
// in the order that BLAS was found to have. OpenBLAS's kernels for AVX2 sum most scores product by
// product; at the edges of the blocks that it cuts a product into, even and odd products have sums
// of their own. Which places are at an edge follows from the sizes of caches, so it is asked for.
#include "coarse_list.h"

#include "kernels_internal.h"
#include "reef_random.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Retrieval takes 0.95 of the time at side 256, 0.83 at 512 (d_key 128, AVX2 on Zen 3).
enum { SIDE_MIN = 384 };

size_t reef_coarse_padded(size_t side) {
    return (side + COARSE_KEYS - 1) / COARSE_KEYS * COARSE_KEYS;
}

bool reef_coarse_fits(const reef_coarse_kernels *kernels, const reef_router_shape *shape) {
    const size_t half = shape->d_key / 2;
    // Only as many chunks as a power of two end where the keys that fill a block must.
    const size_t chunks = coarse_chunks(half);
    return kernels != NULL && shape->side >= SIDE_MIN && shape->topk < COARSE_KEPT_MAX &&
           half % COARSE_HALF_STEP == 0 && half <= COARSE_HALF_MAX && (chunks & (chunks - 1)) == 0;
}

// ---- the order of a score's sum -----------------------------------------------------------------

enum {
    DRAWS_MIN = 4,  // each shows an order that is another one in most scores
    DRAWS_MAX = 48, // until each score has shown which of the two it has
    EXPONENTS = 12,
    CHUNK = 128, // keys that are compared at once
    QUERIES_MAX = 256
};

typedef struct order_probe {
    const reef_coarse_kernels *kernels;
    size_t count, side, half, words;
    float *queries, *keys, *tile;
    size_t tile_stride;
    uint32_t *wrong[2]; // (count, words) bits: not this order
} order_probe;

// Numbers of many sizes lose other bits in another order. In every second draw the products of the
// second half take back those of the first, so that only what was lost is left.
static void draw_operands(size_t count, size_t half, float *values, uint64_t stream, float again) {
    const bool cancel = stream / 2 % 2 == 1;
    for (size_t i = 0; i < count * half; i++) {
        uint64_t bits = reef_random_bits(1, stream, i);
        float value = (float)(int32_t)(bits >> 40) * 0x1p-23f - 1;
        values[i] = value * (float)(1u << bits % EXPONENTS);
        if (cancel && i % half >= half / 2) values[i] = again * values[i - half / 2];
    }
}

static void mark_wrong(const order_probe *t, size_t n, size_t order) {
    static const uint32_t orders[2][CHUNK / 32] = {{0}, {~0u, ~0u, ~0u, ~0u}};
    uint16_t rows[CHUNK + COARSE_ROOM];
    float scores[CHUNK + COARSE_ROOM];
    const float *expected = t->tile + n * t->tile_stride;
    coarse_table table = {.half = t->half, .stride = t->half};
    for (size_t first = 0; first < t->side; first += CHUNK) {
        size_t count = t->side - first < CHUNK ? t->side - first : CHUNK;
        for (size_t i = 0; i < count; i++) rows[i] = (uint16_t)i;
        table.keys = t->keys + first * t->half;
        const coarse_exact of = {t->queries + n * t->half, orders[order], count, rows, scores};
        t->kernels->exact(&table, 1, &of);
        for (size_t i = 0; i < count; i++)
            if (memcmp(&scores[i], &expected[first + i], sizeof(*scores)) != 0)
                t->wrong[order][n * t->words + (first + i) / 32] |= 1u << (first + i) % 32;
    }
}

// Strides are not the router's: BLAS copies what it multiplies, row by row.
static void probe_product(const order_probe *t, uint64_t number) {
    draw_operands(t->count, t->half, t->queries, 2 * number, 1);
    draw_operands(t->side, t->half, t->keys, 2 * number + 1, -1);
    reef_gemm(false, true, t->count, t->side, t->half, 1, t->queries, t->half, t->keys, t->half, 0,
              t->tile, t->tile_stride);
    for (size_t n = 0; n < t->count; n++)
        for (size_t order = 0; order < 2; order++) mark_wrong(t, n, order);
}

typedef enum finding {
    FINDING_NONE,  // nothing was multiplied yet
    FINDING_OTHER, // a score has neither order
    FINDING_OPEN,  // the draws so far fit both orders of some score
    FINDING_ORDER  // each score has exactly one of them
} finding;

// Has each score exactly one of the orders?
static finding compare_orders(const order_probe *t) {
    finding found = FINDING_ORDER;
    for (size_t n = 0; n < t->count; n++)
        for (size_t i = 0; i < t->side; i++) {
            const size_t at = n * t->words + i / 32;
            const uint32_t bit = 1u << i % 32;
            const bool wrong0 = t->wrong[0][at] & bit, wrong1 = t->wrong[1][at] & bit;
            if (wrong0 && wrong1) return FINDING_OTHER;
            if (!wrong0 && !wrong1) found = FINDING_OPEN;
        }
    return found;
}

static bool find_order(const order_probe *t) {
    finding found = FINDING_NONE;
    for (uint64_t n = 0; n < DRAWS_MAX && found != FINDING_OTHER; n++) {
        if (n >= DRAWS_MIN && found == FINDING_ORDER) break;
        probe_product(t, n);
        found = compare_orders(t);
    }
    return found == FINDING_ORDER;
}

/** A size that was asked for; `order` has a pattern where one was found. */
typedef struct known_order {
    const reef_coarse_kernels *kernels;
    size_t count, side, half;
    coarse_order order;
    uint8_t patterns[QUERIES_MAX];
} known_order;

// Rows of `wrong[0]` that are the same share a pattern; they move up to it.
static void keep_patterns(order_probe *t, known_order *known) {
    uint32_t *rows = t->wrong[0];
    size_t found = 0;
    for (size_t n = 0; n < t->count; n++) {
        size_t same = 0;
        const size_t bytes = t->words * sizeof(*rows);
        while (same < found && memcmp(rows + same * t->words, rows + n * t->words, bytes) != 0)
            same++;
        if (same == found) memmove(rows + found++ * t->words, rows + n * t->words, bytes);
        known->patterns[n] = (uint8_t)same;
    }
    uint32_t *smaller = realloc(rows, found * t->words * sizeof(*rows));
    known->order = (coarse_order){known->patterns, smaller == NULL ? rows : smaller, t->words};
    t->wrong[0] = NULL; // the order's now
}

static void ask_blas(known_order *known, float *queries, size_t tile_stride, float *tile) {
    order_probe t = {.kernels = known->kernels,
                     .count = known->count,
                     .side = known->side,
                     .half = known->half,
                     .words = (known->side + 31) / 32,
                     .queries = queries,
                     .keys = tile + known->count * tile_stride,
                     .tile = tile,
                     .tile_stride = tile_stride};
    for (size_t order = 0; order < 2; order++)
        t.wrong[order] = calloc(t.count * t.words, sizeof(*t.wrong[order]));
    // On one thread, as the router's products are: programs have one, and libreef claims it.
    if (t.wrong[0] != NULL && t.wrong[1] != NULL && find_order(&t)) keep_patterns(&t, known);
    free(t.wrong[0]);
    free(t.wrong[1]);
}

enum { KNOWN_MAX = 256 }; // sizes; others have no first pass
static pthread_mutex_t known_mutex = PTHREAD_MUTEX_INITIALIZER;
static known_order known_orders[KNOWN_MAX];
static size_t known_count;

static void before_fork(void) {
    pthread_mutex_lock(&known_mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&known_mutex);
}

// A child of fork must not find the mutex locked by a thread that it does not have.
static void register_fork_handlers(void) {
    // It fails without memory only; then there are no handlers.
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static bool is_size(const known_order *known,
                    const reef_coarse_kernels *kernels,
                    size_t count,
                    size_t side,
                    size_t half) {
    return known->kernels == kernels && known->count == count && known->side == side &&
           known->half == half;
}

const coarse_order *reef_coarse_order(const reef_coarse_kernels *kernels,
                                      size_t count,
                                      size_t side,
                                      size_t half,
                                      float *queries,
                                      size_t tile_stride,
                                      float *tile) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (count > QUERIES_MAX) return NULL;
    (void)pthread_once(&once, register_fork_handlers);
    // Held while a size is tried, or threads that open models of one size would all try it.
    pthread_mutex_lock(&known_mutex);
    size_t n = 0;
    while (n < known_count && !is_size(&known_orders[n], kernels, count, side, half)) n++;
    if (n == known_count && n < KNOWN_MAX) {
        known_orders[n] = (known_order){kernels, count, side, half, {0}, {0}};
        ask_blas(&known_orders[n], queries, tile_stride, tile);
        known_count++;
    }
    pthread_mutex_unlock(&known_mutex);
    return n < KNOWN_MAX && known_orders[n].order.pattern != NULL ? &known_orders[n].order : NULL;
}

// ---- lists --------------------------------------------------------------------------------------

static size_t kept_of(const coarse_tile *tile) {
    return reef_pairs_kept(tile->tables[0]->side, tile->topk);
}

// What coarse scores of one table leave of a few queries from `first` on, and their near scores.
static bool reach_group(const coarse_tile *tile,
                        const coarse_scratch *scratch,
                        size_t side,
                        size_t first,
                        size_t count) {
    const reef_coarse_kernels *kernels = tile->kernels;
    const coarse_table *table = tile->tables[side];
    const size_t half = table->half, groups = half / kernels->together;
    const size_t padded = reef_coarse_padded(table->side);
    const size_t whole = (count + COARSE_QUERIES - 1) / COARSE_QUERIES * COARSE_QUERIES;
    coarse_query rounded[COARSE_GROUP_MAX];
    int32_t least[COARSE_GROUP_MAX];

    for (size_t n = 0; n < count; n++) {
        rounded[n] = kernels->query(table, tile->query + (first + n) * tile->stride + side * half,
                                    scratch->groups + n * groups, scratch->words + n * half);
        if (rounded[n].bound < 0) return false;
    }
    memset(scratch->groups + count * groups, 0,
           (whole - count) * groups * sizeof(*scratch->groups));
    kernels->scores(table, whole, scratch->groups, scratch->scores, padded);
    // Each for all queries: steps of one that wait for each other leave room for those of the next.
    for (size_t n = 0; n < count; n++)
        least[n] = kernels->least(padded, scratch->scores + n * padded, kept_of(tile));
    for (size_t n = 0; n < count; n++) {
        coarse_left *left = &scratch->left[side][first + n];
        left->count =
            kernels->reach(padded, scratch->scores + n * padded, least[n] - 2 * rounded[n].bound,
                           scratch->rows[side] + (first + n) * COARSE_ROOM);
        if (left->count == 0) return false;
    }
    for (size_t n = 0; n < count; n++) {
        coarse_left *left = &scratch->left[side][first + n];
        uint16_t *rows = scratch->rows[side] + (first + n) * COARSE_ROOM;
        left->margin = rounded[n].margin;
        kernels->near(table, &rounded[n], scratch->words + n * half, left->count, rows,
                      scratch->scores_left[side] + (first + n) * COARSE_ROOM, left->peaks);
    }
    return true;
}

// A key that falls short with the best partner falls short with all. The margins count twice: for
// the best pairs and for the others.
static void keep_both(const coarse_tile *tile, const coarse_scratch *scratch, size_t n) {
    coarse_left *a = &scratch->left[0][n], *b = &scratch->left[1][n];
    const float sum =
        reef_pairs_reached(tile->stairs, COARSE_PEAKS, a->peaks, COARSE_PEAKS, b->peaks) -
        2 * (a->margin + b->margin);
    a->count = tile->kernels->keep(a->count, scratch->scores_left[0] + n * COARSE_ROOM,
                                   sum - b->peaks[0], scratch->rows[0] + n * COARSE_ROOM);
    b->count = tile->kernels->keep(b->count, scratch->scores_left[1] + n * COARSE_ROOM,
                                   sum - a->peaks[0], scratch->rows[1] + n * COARSE_ROOM);
}

// Exact scores of what is left take the place of nearly exact ones.
static void score_left(const coarse_tile *tile, const coarse_scratch *scratch, size_t side) {
    const coarse_order *order = tile->order;
    const coarse_table *table = tile->tables[side];
    for (size_t first = 0; first < tile->count; first += 2) {
        const size_t count = tile->count - first < 2 ? 1 : 2;
        coarse_exact of[2];
        for (size_t i = 0; i < count; i++) {
            const size_t n = first + i;
            of[i] =
                (coarse_exact){tile->query + n * tile->stride + side * table->half,
                               order->pairwise + order->pattern[n] * order->words,
                               scratch->left[side][n].count, scratch->rows[side] + n * COARSE_ROOM,
                               scratch->scores_left[side] + n * COARSE_ROOM};
        }
        tile->kernels->exact(table, count, of);
    }
}

bool reef_coarse_reach(const coarse_tile *tile, const coarse_scratch *scratch) {
    const size_t group = tile->kernels->group;
    for (size_t side = 0; side < 2; side++)
        for (size_t first = 0; first < tile->count; first += group) {
            size_t rest = tile->count - first, count = rest < group ? rest : group;
            if (!reach_group(tile, scratch, side, first, count)) return false;
        }
    for (size_t n = 0; n < tile->count; n++) keep_both(tile, scratch, n);
    for (size_t side = 0; side < 2; side++) score_left(tile, scratch, side);
    return true;
}

size_t reef_coarse_list(const coarse_tile *tile,
                        const coarse_scratch *scratch,
                        size_t side,
                        size_t n,
                        float *best,
                        uint16_t *rows) {
    const size_t left = scratch->left[side][n].count, kept = kept_of(tile);
    const size_t count = left < kept ? left : kept;
    const uint16_t *found = scratch->rows[side] + n * COARSE_ROOM;
    const float *exact = scratch->scores_left[side] + n * COARSE_ROOM;
    if (left <= COARSE_SORT_MAX) {
        tile->kernels->sort(left, exact, found, count, best, rows);
        return count;
    }
    uint16_t places[COARSE_KEPT_MAX + 1];
    const bool finite = reef_kernels()->topk(left, exact, count, best, places);
    assert(finite); // as queries and keys are
    (void)finite;
    // Rows rise, so the lower row stays first among equals.
    for (size_t k = 0; k < count; k++) rows[k] = found[places[k]];
    return count;
}
