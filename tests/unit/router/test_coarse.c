// The first pass of retrieval: its whole numbers, its bounds and its exact scores against plain
// loops, and its lists against those of all scores, for each instruction set.
#include "router_internal.h"

#include "draw.h"
#include "kernels_internal.h"
#include "test.h"

#include <math.h>

enum { SIDE_LARGEST = 700, HALF_LARGEST = COARSE_HALF_MAX, QUERIES = 128 };

// A table of keys of some kind (one more for the other half), queries, and memory for both ways.
typedef struct fixture {
    coarse_table table;
    float keys[SIDE_LARGEST * HALF_LARGEST], queries[QUERIES * HALF_LARGEST];
    int8_t bytes[(SIDE_LARGEST + COARSE_KEYS) * HALF_LARGEST];
    int16_t starts[(SIDE_LARGEST + COARSE_KEYS) * HALF_LARGEST / COARSE_CHUNK];
    int32_t totals[SIDE_LARGEST + COARSE_KEYS];
    int16_t words[SIDE_LARGEST * HALF_LARGEST];
    uint32_t groups[COARSE_GROUP_MAX * HALF_LARGEST / 2];
    int16_t query_words[COARSE_GROUP_MAX * HALF_LARGEST];
    int16_t scores[COARSE_GROUP_MAX * (SIDE_LARGEST + COARSE_KEYS)];
    uint16_t rows[COARSE_ROOM];
    float near[COARSE_ROOM], exact[COARSE_ROOM], best[COARSE_ROOM];
    uint16_t best_rows[COARSE_ROOM];
    float tile[QUERIES * SIDE_LARGEST];
} fixture;

static int set_up(void **state) {
    *state = room(sizeof(fixture));
    return *state == NULL ? -1 : 0;
}

static int tear_down(void **state) {
    return 0;
}

static const reef_coarse_kernels *chosen; // of this run

static const reef_coarse_kernels *kernels(void) {
    return chosen;
}

// What keys and queries look like.
typedef enum look {
    LOOK_UNIFORM,
    LOOK_SHIFTED, // keys far from zero, close to each other
    LOOK_UNEQUAL, // a few keys, and a few values of each, larger than the others
    LOOK_WHOLE,   // small whole numbers, so that scores tie
    LOOK_TWINS,   // every key twice
    LOOK_TINY,
    LOOK_COUNT
} look;

static void set_keys(fixture *f, look how, size_t side, size_t half, uint64_t *seed) {
    draw_floats(seed, side * half, f->keys, -1, 1);
    if (how == LOOK_WHOLE) draw_ints(seed, side * half, f->keys, -2, 2);
    for (size_t i = 0; i < side; i++)
        for (size_t d = 0; d < half; d++) {
            float *key = &f->keys[i * half + d];
            if (how == LOOK_SHIFTED) *key += 3;
            if (how == LOOK_UNEQUAL && (i % 50 == 0 || d % 9 == 0)) *key *= 4;
            if (how == LOOK_TWINS && i % 2 == 1) *key = key[-(ptrdiff_t)half];
            if (how == LOOK_TINY) *key *= 1e-6f;
        }
    f->table = (coarse_table){.side = side,
                              .half = half,
                              .keys = f->keys,
                              .stride = half,
                              .bytes = f->bytes,
                              .together = kernels()->together,
                              .starts = f->starts,
                              .totals = f->totals,
                              .words = f->words};
    kernels()->table(&f->table);
}

static void set_queries(fixture *f, look how, size_t half, uint64_t *seed) {
    draw_floats(seed, QUERIES * half, f->queries, -1, 1);
    if (how == LOOK_WHOLE) draw_ints(seed, QUERIES * half, f->queries, -2, 2);
    for (size_t i = 0; how == LOOK_TINY && i < QUERIES * half; i++) f->queries[i] *= 1e4f;
}

static float exact_score(const fixture *f, const float *query, size_t row) {
    float sum = 0;
    for (size_t d = 0; d < f->table.half; d++)
        sum = fmaf(query[d], f->keys[row * f->table.half + d], sum);
    return sum;
}

// ---- the kernels --------------------------------------------------------------------------------

static void assert_exact(const fixture *f, const coarse_exact *of) {
    for (size_t n = 0; n < of->count; n++) {
        float expected = exact_score(f, of->query, of->rows[n]);
        assert_memory_equal(&of->scores[n], &expected, sizeof(expected));
    }
}

#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, fixture *f)

WORLD_TEST(exact_scores_are_sums_in_the_order_of_values) {
    uint64_t seed = 1;
    for (size_t half = COARSE_HALF_STEP; half <= HALF_LARGEST; half += COARSE_HALF_STEP) {
        set_keys(f, LOOK_UNIFORM, 300, half, &seed);
        set_queries(f, LOOK_UNIFORM, half, &seed);
        for (size_t count = 1; count <= 40; count++) {
            for (size_t n = 0; n < count; n++) f->rows[n] = (uint16_t)draw_int(&seed, 0, 299);
            // Beside it another query, of other rows.
            const size_t others = (size_t)draw_int(&seed, 1, 40);
            for (size_t n = 0; n < others; n++) f->best_rows[n] = (uint16_t)draw_int(&seed, 0, 299);
            const coarse_exact of[2] = {{f->queries, count, f->rows, f->exact},
                                        {f->queries + half, others, f->best_rows, f->best}};
            kernels()->exact(&f->table, 1 + count % 2, of);
            for (size_t i = 0; i < 1 + count % 2; i++) assert_exact(f, &of[i]);
        }
    }
}

// rho and kappa of one value, as they lie in groups.
static int32_t product_at(const fixture *f, size_t n, size_t row, size_t d) {
    const size_t half = f->table.half, together = f->table.together, group = d / together;
    const uint32_t bytes = f->groups[n * (half / together) + group];
    if (together == 2) assert_int_equal(bytes >> 16, bytes & 0xffff); // twice
    const int32_t rho = (int32_t)(bytes >> d % together * 8 & 0xff) - 128;
    const int8_t *keys = f->bytes + row / COARSE_KEYS * COARSE_KEYS * half;
    return rho * keys[(group * COARSE_KEYS + row % COARSE_KEYS) * together + d % together];
}

// rho . kappa as the bytes say it, cut to a share: chunk by chunk, or once where four go together.
static int32_t whole_score(const fixture *f, size_t n, size_t row) {
    const size_t half = f->table.half, chunk = f->table.together == 2 ? COARSE_CHUNK : half;
    const int32_t share = 1 << coarse_shift(half, f->table.together);
    int32_t total = 0, sum = 0;
    for (size_t d = 0; d < half; d++) {
        sum += product_at(f, n, row, d);
        if ((d + 1) % chunk != 0 && d + 1 < half) continue;
        assert_true(abs(sum) <= INT16_MAX * share);
        total += (sum + (1 << 20)) / share - (1 << 20) / share; // rounded down
        sum = 0;
    }
    return total;
}

WORLD_TEST(coarse_scores_are_those_of_the_bytes) {
    uint64_t seed = 2;
    for (size_t half = COARSE_HALF_STEP; half <= HALF_LARGEST; half *= 2)
        for (look how = 0; how < LOOK_COUNT; how++) {
            const size_t side = (size_t)draw_int(&seed, 33, 200), padded = reef_coarse_padded(side);
            set_keys(f, how, side, half, &seed);
            set_queries(f, how, half, &seed);
            assert_true(f->table.usable);
            for (size_t n = 0; n < COARSE_GROUP_MAX; n++)
                assert_true(kernels()
                                ->query(&f->table, f->queries + n * half,
                                        f->groups + n * half / kernels()->together, f->query_words)
                                .bound > 0);
            kernels()->scores(&f->table, COARSE_GROUP_MAX, f->groups, f->scores, padded);
            for (size_t n = 0; n < COARSE_GROUP_MAX; n++) {
                for (size_t row = 0; row < side; row++)
                    assert_int_equal(f->scores[n * padded + row], whole_score(f, n, row));
                for (size_t row = side; row < padded; row++)
                    assert_int_equal(f->scores[n * padded + row], INT16_MIN);
            }
        }
}

// Whatever is further apart than twice the bound is in the same order by exact score.
static void assert_order_holds(fixture *f, const float *query, const coarse_query *rounded) {
    float exact[SIDE_LARGEST], peaks[COARSE_PEAKS];
    const size_t side = f->table.side;
    for (size_t i = 0; i < side; i++) exact[i] = exact_score(f, query, i);
    for (size_t i = 0; i < side; i++) f->rows[i] = (uint16_t)i;
    kernels()->near(&f->table, rounded, f->query_words, side, f->rows, f->near, peaks);
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            if (f->scores[i] < f->scores[j] - 2 * rounded->bound) assert_true(exact[i] < exact[j]);
            if (f->near[i] < f->near[j] - 2 * rounded->margin) assert_true(exact[i] < exact[j]);
        }
}

WORLD_TEST(bounds_hold) {
    uint64_t seed = 3;
    const size_t side = COARSE_FOUND_MAX;
    for (size_t half = COARSE_HALF_STEP; half <= HALF_LARGEST; half *= 2)
        for (look how = 0; how < LOOK_COUNT; how++) {
            set_keys(f, how, side, half, &seed);
            set_queries(f, how, half, &seed);
            for (size_t n = 0; n < 20; n++) {
                coarse_query rounded =
                    kernels()->query(&f->table, f->queries + n * half, f->groups, f->query_words);
                assert_true(rounded.bound > 0);
                kernels()->scores(&f->table, COARSE_QUERIES, f->groups, f->scores,
                                  reef_coarse_padded(side));
                assert_order_holds(f, f->queries + n * half, &rounded);
            }
        }
}

WORLD_TEST(all_that_may_be_among_the_best_is_left) {
    uint64_t seed = 4;
    for (int repeat = 0; repeat < 1000; repeat++) {
        const size_t side = 32 * (size_t)draw_int(&seed, 1, 20);
        const size_t K = (size_t)draw_int(&seed, 1, 23);
        const int32_t bound = draw_int(&seed, 1, 40), range = draw_int(&seed, 1, 30000);
        for (size_t i = 0; i < side; i++) f->scores[i] = (int16_t)draw_int(&seed, -range, range);
        const int32_t least = kernels()->least(side, f->scores, K);
        size_t left = kernels()->reach(side, f->scores, least - 2 * bound, f->rows);
        if (left == 0) continue; // too many
        assert_true(left >= K && left <= COARSE_FOUND_MAX);
        size_t at = 0;
        for (size_t i = 0; i < side; i++) {
            size_t above = 0;
            for (size_t j = 0; j < side; j++) above += f->scores[j] - 2 * bound > f->scores[i];
            if (at < left && f->rows[at] == i)
                at++;
            else
                assert_true(above >= K);
        }
        assert_int_equal(at, left); // rising, no others
    }
}

WORLD_TEST(peaks_are_scores_of_different_rows_in_order) {
    uint64_t seed = 6;
    float peaks[COARSE_PEAKS];
    set_keys(f, LOOK_WHOLE, 300, 16, &seed);
    set_queries(f, LOOK_WHOLE, 16, &seed);
    coarse_query rounded = kernels()->query(&f->table, f->queries, f->groups, f->query_words);
    for (size_t count = 1; count <= COARSE_FOUND_MAX; count++) {
        for (size_t n = 0; n < count; n++) f->rows[n] = (uint16_t)(n + 7);
        kernels()->near(&f->table, &rounded, f->query_words, count, f->rows, f->near, peaks);
        for (size_t k = 0; k < COARSE_PEAKS; k++) {
            // As many rows reach a peak as stand before it.
            size_t reach = 0;
            for (size_t n = 0; n < count; n++) reach += f->near[n] >= peaks[k];
            if (k >= count) assert_true(isinf(peaks[k]));
            if (k < count) assert_true(reach >= k + 1 && peaks[k] > -INFINITY);
            assert_true(k == 0 || peaks[k] <= peaks[k - 1]);
        }
        const float least = peaks[draw_int(&seed, 0, count < 16 ? (int)count - 1 : 15)];
        size_t kept = kernels()->keep(count, f->near, least, f->rows), at = 0;
        for (size_t n = 0; n < count; n++)
            if (f->near[n] >= least) assert_int_equal(f->rows[at++], n + 7);
        assert_int_equal(kept, at);
    }
}

WORLD_TEST(sorting_keeps_the_first_of_equals_first) {
    uint64_t seed = 7;
    for (size_t count = 1; count <= COARSE_SORT_MAX; count++)
        for (int repeat = 0; repeat < 20; repeat++) {
            for (size_t n = 0; n < count; n++) {
                f->exact[n] = (float)draw_int(&seed, -3, 3);
                f->rows[n] = (uint16_t)(100 + n);
            }
            const size_t kept = (size_t)draw_int(&seed, 1, (int)count);
            kernels()->sort(count, f->exact, f->rows, kept, f->best, f->best_rows);
            for (size_t k = 0; k < kept; k++) {
                size_t before = 0, n = f->best_rows[k] - 100u;
                for (size_t i = 0; i < count; i++)
                    before += f->exact[i] > f->exact[n] || (f->exact[i] == f->exact[n] && i < n);
                assert_int_equal(before, k);
                assert_true(f->best[k] == f->exact[n]);
            }
        }
}

WORLD_TEST(what_is_of_no_use_is_refused) {
    uint64_t seed = 5;
    const float wrong[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (size_t n = 0; n < 4; n++) {
        set_keys(f, LOOK_UNIFORM, 300, 16, &seed);
        f->keys[100 * 16 + 3 * n] = wrong[n];
        kernels()->table(&f->table);
        assert_false(f->table.usable);
        f->keys[100 * 16 + 3 * n] = 0;
        kernels()->table(&f->table);
        assert_true(f->table.usable);
        memset(f->queries, 0, 16 * sizeof(float));
        // Zeros.
        assert_true(kernels()->query(&f->table, f->queries, f->groups, f->query_words).bound < 0);
        f->queries[n] = wrong[n];
        assert_true(kernels()->query(&f->table, f->queries, f->groups, f->query_words).bound < 0);
    }
    for (size_t i = 0; i < 300 * 16; i++) f->keys[i] = 0.5f; // keys without spread
    kernels()->table(&f->table);
    assert_false(f->table.usable);
}

// Of tables whose sides fill no chunk and no vector, and the same to rounding as BLAS has them.
WORLD_TEST(all_scores_are_those_of_the_lists) {
    const size_t sides[] = {1, 127, 401, 688}, half = 24;
    uint64_t seed = 8;
    for (size_t s = 0; s < sizeof(sides) / sizeof(*sides); s++) {
        const size_t side = sides[s];
        set_keys(f, LOOK_UNIFORM, side, half, &seed);
        set_queries(f, LOOK_UNIFORM, half, &seed);
        reef_gemm(false, true, QUERIES, side, half, 1, f->queries, half, f->keys, half, 0, f->tile,
                  side);
        for (size_t n = 0; n < QUERIES; n++) {
            float scores[SIDE_LARGEST + 1];
            scores[side] = -7;
            reef_coarse_score_all(kernels(), &f->table, f->queries + n * half, scores);
            assert_true(scores[side] == -7); // not one more is written
            for (size_t row = 0; row < side; row++) {
                float expected = exact_score(f, f->queries + n * half, row);
                assert_memory_equal(&scores[row], &expected, sizeof(expected));
                assert_true(fabsf(expected - f->tile[n * side + row]) < 1e-5f);
            }
        }
    }
}

static int run_with(const char *name, const reef_coarse_kernels *set) {
    chosen = set;
    print_message("kernels: %s\n", name);
    return test_run(set_up, tear_down);
}

int main(void) {
    int failed = 0;
#if defined(__x86_64__)
    if (reef_kernels_choose("avx2", NULL) != REEF_OK) return 0;
    failed += run_with("avx2", &reef_coarse_avx2);
    if (reef_cpu_runs_coarse_avx512()) failed += run_with("avx512", &reef_coarse_avx512);
#endif
    return failed;
}
