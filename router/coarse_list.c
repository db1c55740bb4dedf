// The first pass of retrieval; coarse.h says why it loses nothing.
//
// What always holds: the pairs that are chosen from these lists, and their scores, have the bits of
// the plain way, which scores every sub-key by the same kernel (reef_coarse_score_all).
#include "router_internal.h"

#include "kernels_internal.h"

#include <assert.h>
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
    const coarse_table *table = tile->tables[side];
    for (size_t first = 0; first < tile->count; first += 2) {
        const size_t count = tile->count - first < 2 ? 1 : 2;
        coarse_exact of[2];
        for (size_t i = 0; i < count; i++) {
            const size_t n = first + i;
            of[i] =
                (coarse_exact){tile->query + n * tile->stride + side * table->half,
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

void reef_coarse_score_all(const reef_coarse_kernels *kernels,
                           const coarse_table *table,
                           const float *query,
                           float *scores) {
    enum { CHUNK = 128 };
    uint16_t rows[CHUNK + COARSE_ROOM];
    float chunk[CHUNK + COARSE_ROOM];
    for (size_t first = 0; first < table->side; first += CHUNK) {
        const size_t count = table->side - first < CHUNK ? table->side - first : CHUNK;
        for (size_t i = 0; i < count; i++) rows[i] = (uint16_t)(first + i);
        const coarse_exact of = {query, count, rows, chunk};
        kernels->exact(table, 1, &of);
        memcpy(scores + first, chunk, count * sizeof(*scores));
    }
}
