// See bench_exhaustive.h.
//
// To be a fair comparison it is written as the router is: products in tiles that stay in cache,
// scores looked through in blocks of vectors, and only a block in which some score reaches the
// worst that is kept is looked at one by one. Queries are cut into the router's tiles, so that
// scores have the same bits.
#include "bench_exhaustive.h"

#include "cli.h"
#include "cli_format.h"
#include "reef_clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64              // scores that are compared together
#define KEYS_PER_PRODUCT 4096 // of one tile's scores, 1 to 2 MB

typedef struct candidate {
    float score;
    reef_expert_id id;
} candidate;

/** What one thread works with. */
typedef struct scratch {
    float *tile_a, *tile_b; // (tile rows, stride) scores; tile_b of the sub-keys only
    candidate *best;        // (tile rows, topk) best first
} scratch;

typedef size_t (*scan_function)(size_t, size_t, const float *, float, float);

struct reef_bench_exhaustive {
    reef_router_shape shape;
    const reef_router_params *router;
    const reef_router_tape *tape;
    size_t tokens, stride; // floats of a row of scores, whole blocks
    float *keys;           // (side * side, d_key) by id; NULL without
    reef_expert_id *ids;   // (tokens, heads, topk) chosen
    scratch *scratch;      // (threads)
    size_t threads;
    scan_function scan;
    atomic_size_t next; // piece
};

// ---- looking through scores ---------------------------------------------------------------------

// The first block from `from` on in which some base + score reaches `worst`.
static inline __attribute__((always_inline)) size_t scan_blocks(
    size_t count, size_t from, const float *scores, float base, float worst) {
    for (; from < count; from += BLOCK) {
        int reaches = 0;
        for (size_t j = 0; j < BLOCK; j++) reaches |= base + scores[from + j] >= worst;
        if (reaches) break;
    }
    return from;
}

static size_t scan_scalar(size_t count, size_t from, const float *scores, float base, float worst) {
    return scan_blocks(count, from, scores, base, worst);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static size_t scan_avx2(
    size_t count, size_t from, const float *scores, float base, float worst) {
    return scan_blocks(count, from, scores, base, worst);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static size_t scan_avx512(
    size_t count, size_t from, const float *scores, float base, float worst) {
    return scan_blocks(count, from, scores, base, worst);
}
#endif

// The same vectors as the router's kernels.
static scan_function scan_for(const char *kernels) {
#if defined(__x86_64__)
    if (strcmp(kernels, "avx512") == 0) return scan_avx512;
    if (strcmp(kernels, "avx2") == 0) return scan_avx2;
#else
    (void)kernels;
#endif
    return scan_scalar;
}

static bool is_better(float score, reef_expert_id id, const candidate *than) {
    return score > than->score || (score == than->score && id < than->id);
}

static void offer(size_t topk, candidate best[], float score, reef_expert_id id) {
    if (!is_better(score, id, &best[topk - 1])) return;
    size_t at = topk - 1;
    for (; at > 0 && is_better(score, id, &best[at - 1]); at--) best[at] = best[at - 1];
    best[at] = (candidate){score, id};
}

// One row of scores: of all pairs with sub-key `row` of the first table, or of experts `row`, `row`
// + 1, ..
static void search_all(const reef_bench_exhaustive *search,
                       candidate *best,
                       size_t count, // whole blocks; what fills the last is -INFINITY
                       const float *scores,
                       float base,
                       size_t row) {
    const size_t topk = search->shape.topk;
    // The scan jumps over blocks that hold nothing above the worst of the best; most blocks do not.
    for (size_t from = 0;; from += BLOCK) {
        from = search->scan(count, from, scores, base, best[topk - 1].score);
        if (from >= count) return;
        // A block that may hold one is looked at score by score.
        for (size_t j = from; j < from + BLOCK; j++) {
            if (scores[j] == -INFINITY) continue; // no expert
            // The row is either the first of the blocks of keys or the first half of a pair's
            // number.
            reef_expert_id id = search->keys != NULL
                                    ? (reef_expert_id)(row + j)
                                    : reef_expert_id_of((uint32_t)row, (uint32_t)j);
            offer(topk, best, base + scores[j], id);
        }
    }
}

static size_t whole_blocks(size_t count) {
    return (count + BLOCK - 1) / BLOCK * BLOCK;
}

// -INFINITY behind the scores of each row, up to a whole block.
static void fill_up(float *tile, size_t rows, size_t stride, size_t keys) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = keys; j < whole_blocks(keys); j++) tile[r * stride + j] = -INFINITY;
}

// ---- the two searches ---------------------------------------------------------------------------

static void search_sums(const reef_bench_exhaustive *search,
                        scratch *s,
                        size_t first,
                        size_t count) {
    const reef_router_shape *shape = &search->shape;
    const size_t d_key = shape->d_key, half = d_key / 2, stride = search->stride;
    // The queries of the tile lie one after the other in the tape.
    const float *query = search->tape->query + first * d_key;
    // Both halves are scored against all sub-keys at once: two products of matrices instead of one
    // per query.
    reef_gemm(false, true, count, shape->side, half, 1, query, d_key, search->router->sub_keys_a,
              half, 0, s->tile_a, stride);
    reef_gemm(false, true, count, shape->side, half, 1, query + half, d_key,
              search->router->sub_keys_b, half, 0, s->tile_b, stride);
    // Whole blocks let the vector code run without a special case for the end.
    fill_up(s->tile_b, count, stride, shape->side);
    // Every pair: row i of the first table with all of the second.
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < shape->side; i++)
            search_all(search, s->best + n * shape->topk, whole_blocks(shape->side),
                       s->tile_b + n * stride, s->tile_a[n * stride + i], i);
}

static void search_keys(const reef_bench_exhaustive *search,
                        scratch *s,
                        size_t first,
                        size_t count) {
    const reef_router_shape *shape = &search->shape;
    const size_t d_key = shape->d_key, all = shape->side * shape->side;
    // All keys at once would need a score for each of a million experts and each query; a part of
    // them fits the cache.
    for (size_t at = 0; at < all; at += KEYS_PER_PRODUCT) {
        size_t keys = all - at < KEYS_PER_PRODUCT ? all - at : KEYS_PER_PRODUCT;
        // Scores of a tile of queries with this part of the keys.
        reef_gemm(false, true, count, keys, d_key, 1, search->tape->query + first * d_key, d_key,
                  search->keys + at * d_key, d_key, 0, s->tile_a, search->stride);
        fill_up(s->tile_a, count, search->stride, keys);
        for (size_t n = 0; n < count; n++)
            search_all(search, s->best + n * shape->topk, whole_blocks(keys),
                       s->tile_a + n * search->stride, 0, at);
    }
}

static void search_tile(reef_bench_exhaustive *search, scratch *s, size_t first, size_t count) {
    const size_t topk = search->shape.topk;
    for (size_t k = 0; k < count * topk; k++) s->best[k] = (candidate){-INFINITY, UINT32_MAX};
    if (search->keys != NULL)
        search_keys(search, s, first, count);
    else
        search_sums(search, s, first, count);
    for (size_t k = 0; k < count * topk; k++) search->ids[first * topk + k] = s->best[k].id;
}

// A piece per thread, so that it has scratch of its own; it takes pieces of tokens until none is
// left.
static void search_thread(void *context, size_t thread) {
    reef_bench_exhaustive *search = context;
    const size_t queries = search->tape->piece_rows * search->shape.head_count;
    const size_t pieces = search->tokens / search->tape->piece_rows;
    const size_t tile = search->tape->tile_rows;
    for (size_t piece; (piece = atomic_fetch_add(&search->next, 1)) < pieces;)
        for (size_t at = 0; at < queries; at += tile)
            search_tile(search, &search->scratch[thread], piece * queries + at,
                        queries - at < tile ? queries - at : tile);
}

double reef_bench_exhaustive_run(reef_bench_exhaustive *search, reef_thread_pool *workers) {
    atomic_store(&search->next, 0);
    double started = reef_seconds();
    reef_thread_pool_run(workers, search->threads, search_thread, search);
    return reef_seconds() - started;
}

double reef_bench_exhaustive_agreement(const reef_bench_exhaustive *search) {
    size_t count = search->tokens * search->shape.head_count * search->shape.topk, same = 0;
    for (size_t i = 0; i < count; i++) same += search->ids[i] == search->tape->indices[i];
    return (double)same / (double)count;
}

// ---- memory -------------------------------------------------------------------------------------

double reef_bench_exhaustive_key_bytes(const reef_router_shape *shape) {
    return (double)shape->side * (double)shape->side * (double)shape->d_key * sizeof(float);
}

// An expert's key: its sub-key of the first table, then that of the second.
static float *keys_new(const reef_router_shape *shape, const reef_router_params *router) {
    const size_t half = shape->d_key / 2, all = shape->side * shape->side;
    float *keys = reef_cli_alloc(all * shape->d_key, sizeof(*keys));
    for (size_t id = 0; id < all; id++) {
        uint32_t i, j;
        reef_expert_pair_of((reef_expert_id)id, &i, &j);
        memcpy(keys + id * 2 * half, router->sub_keys_a + i * half, half * sizeof(*keys));
        memcpy(keys + id * 2 * half + half, router->sub_keys_b + j * half, half * sizeof(*keys));
    }
    return keys;
}

reef_bench_exhaustive *reef_bench_exhaustive_new(const reef_router_shape *shape,
                                                 const reef_router_params *router,
                                                 const reef_router_tape *tape,
                                                 size_t tokens,
                                                 bool keys,
                                                 size_t threads) {
    reef_bench_exhaustive *search = reef_cli_alloc(1, sizeof(*search));
    search->shape = *shape;
    search->router = router;
    search->tape = tape;
    search->tokens = tokens;
    search->stride = keys ? KEYS_PER_PRODUCT : whole_blocks(shape->side);
    search->threads = threads;
    search->scan = scan_for(reef_kernels_name());
    search->keys = keys ? keys_new(shape, router) : NULL;
    search->ids = reef_cli_alloc(tokens * shape->head_count * shape->topk, sizeof(*search->ids));
    search->scratch = reef_cli_alloc(threads, sizeof(*search->scratch));
    for (size_t t = 0; t < threads; t++) {
        size_t floats = tape->tile_rows * search->stride;
        search->scratch[t].tile_a = reef_cli_alloc(floats, sizeof(float));
        if (!keys) search->scratch[t].tile_b = reef_cli_alloc(floats, sizeof(float));
        search->scratch[t].best = reef_cli_alloc(tape->tile_rows * shape->topk, sizeof(candidate));
    }
    return search;
}

void reef_bench_exhaustive_free(reef_bench_exhaustive *search) {
    if (search == NULL) return;
    for (size_t t = 0; t < search->threads; t++) {
        free(search->scratch[t].tile_a);
        free(search->scratch[t].tile_b);
        free(search->scratch[t].best);
    }
    free(search->scratch);
    free(search->ids);
    free(search->keys);
    free(search);
}
