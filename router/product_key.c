// Product keys: expert ids of key pairs, and the choice of the best pairs without scoring all of
// them (He 2024 eq. 4-5; Lample et al. 2019).
//
// What always holds: the choice equals that of an exhaustive search which sorts all pairs by
// rounded score, and by id among equals. Both lists sorted by score, positions counted from 0:
//
//   - A pair at positions (p, q) has (p+1)(q+1) - 1 others at or before both its positions. None of
//     them scores less, since rounding keeps order. So the topk best *scores* are found among the
//     pairs with (p+1)(q+1) <= topk, the candidates: 50 instead of 256 for topk = 16. Let T be the
//     worst of those scores. Every pair that scores more than T is a candidate.
//   - Pairs that score exactly T may also stand outside the candidates, because sub-scores were
//     equal or because sums rounded to one number, and they may have lower ids. Every outside pair
//     has an outside pair of the frontier, (p, topk / (p+1)), at or before both its positions. If
//     the frontier scores less than T throughout, no outside pair ties, and the candidates decide.
//   - Otherwise the pairs that score T are searched in id order, which stops when enough are found.
//     On normally distributed scores it was not needed for one of 2.3 million queries (topk = 16,
//     side 48 to 1024); with ties throughout, as for a query of zeros, it stops after topk pairs.
#include "router_internal.h"

#include "kernels_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

reef_expert_id reef_expert_id_of(uint32_t i, uint32_t j) {
    // Shell m holds the ids m*m to (m+1)*(m+1) - 1, so a larger side keeps all ids.
    uint32_t m = i > j ? i : j;
    return m * m + i + (m - j); // without a branch: m - j is 0 where j is the larger one
}

void reef_expert_pair_of(reef_expert_id id, uint32_t *i, uint32_t *j) {
    // Exact: ids have 32 bits, so the root of m*m - 1 is far enough below m for a double.
    uint32_t m = (uint32_t)sqrt((double)id);
    uint32_t position = id - m * m;
    *i = position < m ? position : m;
    *j = position < m ? m : 2 * m - position;
}

// Larger keys are better: first by score, then by the lower id. Adding zero makes -0 equal to 0.
static uint64_t key_of(float score, reef_expert_id id) {
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof(bits));
    // Order of floats as order of integers: flip all bits of negatives, the sign bit of others.
    uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (uint32_t)~id;
}

static float score_at(const pair_lists *lists, size_t p, size_t q) {
    return lists->score_a[p] + lists->score_b[q];
}

static void insert_pair(const pair_lists *lists, size_t count, uint64_t key, uint32_t positions) {
    size_t at = count;
    // Keys are unique, as ids are, so no two pairs can change places.
    for (; at > 0 && lists->keys[at - 1] < key; at--) {
        lists->keys[at] = lists->keys[at - 1];
        lists->positions[at] = lists->positions[at - 1];
    }
    lists->keys[at] = key;
    lists->positions[at] = positions;
}

// Sort the topk best candidates into keys and positions.
static void sort_candidates(const pair_lists *lists) {
    const size_t topk = lists->topk;
    size_t count = 0;

    for (size_t p = 0; p < topk && p < lists->length_a; p++) {
        for (size_t q = 0; (p + 1) * (q + 1) <= topk && q < lists->length_b; q++) {
            reef_expert_id id = reef_expert_id_of(lists->row_a[p], lists->row_b[q]);
            uint64_t key = key_of(score_at(lists, p, q), id);
            bool full = count == topk;
            if (full && key < lists->keys[topk - 1]) {
                if (key >> 32 < lists->keys[topk - 1] >> 32) break; // what follows scores no more
                continue;
            }
            insert_pair(lists, full ? topk - 1 : count, key, (uint32_t)(p << 16 | q));
            if (!full) count++;
        }
    }
}

// Candidates of row p are the positions q below topk / (p + 1). Rows come in order, so no division
// is needed.
static size_t row_length(size_t topk, size_t p, size_t length_before) {
    while (length_before * (p + 1) > topk) length_before--;
    return length_before;
}

// Row p of the set for `m` has m / (p + 1)^slant places.
static size_t stairs_row(size_t m, double slant, size_t p) {
    return (size_t)((double)m / pow((double)(p + 1), slant));
}

// The least set of this slant with topk places.
static void lay_stairs(size_t topk, double slant, size_t number, pair_stairs *stairs) {
    size_t m = 0;
    for (size_t places = 0; places < topk;) {
        m++;
        places = 0;
        for (size_t p = 0; p < m; p++) places += stairs_row(m, slant, p);
    }
    size_t steps = 0;
    for (size_t p = 0; p < m && stairs_row(m, slant, p) > 0; p++) {
        const size_t length = stairs_row(m, slant, p);
        if (stairs_row(m, slant, p + 1) == length) continue; // not the last of its step
        stairs->p[number][steps] = (uint8_t)p;
        stairs->q[number][steps++] = (uint8_t)(length - 1);
    }
    stairs->steps[number] = (uint8_t)steps;
}

void reef_pairs_stairs(size_t topk, pair_stairs *stairs) {
    enum { TOPK_MAX = 128 }; // 10 steps at most
    static const double slants[PAIR_STAIRS] = {1, 1.5, 2.5, 64};
    memset(stairs, 0, sizeof(*stairs));
    for (size_t n = 0; n < PAIR_STAIRS && topk <= TOPK_MAX; n++)
        lay_stairs(topk, slants[n], n, stairs);
}

static float least_of_steps(const pair_stairs *stairs,
                            size_t n,
                            size_t count_p,
                            const float *p,
                            size_t count_q,
                            const float *q) {
    const size_t steps = stairs->steps[n];
    // The first step is the longest row, the last one the last row.
    if (steps == 0 || stairs->q[n][0] >= count_q || stairs->p[n][steps - 1] >= count_p)
        return -INFINITY;
    float least = INFINITY;
    for (size_t i = 0; i < steps; i++) {
        float sum = p[stairs->p[n][i]] + q[stairs->q[n][i]];
        least = sum < least ? sum : least;
    }
    return least;
}

float reef_pairs_reached(
    const pair_stairs *stairs, size_t count_a, const float *a, size_t count_b, const float *b) {
    // Where one table's scores lie further apart than the other's, a slanted set bounds best.
    float most = -INFINITY;
    for (size_t n = 0; n < PAIR_STAIRS; n++) {
        float one = least_of_steps(stairs, n, count_a, a, count_b, b);
        float other = least_of_steps(stairs, n, count_b, b, count_a, a);
        most = one > most ? one : most;
        most = other > most ? other : most;
    }
    return most;
}

// The same by the kernel that ranks pairs of short lists, many times as fast. It knows no ids:
// false, with nothing settled, when two of the best score the same, or lists are too long for it.
static bool rank_candidates(const pair_lists *lists) {
    const float least = reef_pairs_reached(&lists->stairs, lists->length_a, lists->score_a,
                                           lists->length_b, lists->score_b);
    return least > -INFINITY &&
           reef_kernels()->rank_pairs(lists->length_a, lists->score_a, lists->length_b,
                                      lists->score_b, least, lists->topk, lists->positions);
}

// Does a pair outside the candidates score as much as the worst of the chosen?
static bool frontier_ties(const pair_lists *lists, float worst) {
    size_t q = lists->topk;
    for (size_t p = 0; p < lists->length_a; p++) {
        q = row_length(lists->topk, p, q);
        // No pair outside scores more than `worst` (see the top of the file), so >= means a tie.
        if (q < lists->length_b && score_at(lists, p, q) >= worst) return true;
    }
    return false;
}

// Where chosen pairs are written.
typedef struct chosen_pairs {
    size_t count, topk;
    reef_expert_id *indices;
    uint16_t *index_a;
    uint16_t *index_b;
    float *scores;
} chosen_pairs;

static void choose_pair(chosen_pairs *out, size_t i, size_t j, float score) {
    out->indices[out->count] = reef_expert_id_of((uint32_t)i, (uint32_t)j);
    out->index_a[out->count] = (uint16_t)i;
    out->index_b[out->count] = (uint16_t)j;
    out->scores[out->count] = score;
    out->count++;
}

// Walk the shells m = 0, 1, .. in id order: (i, m) with i rising below m, then (m, j) with j
// falling from m. Only rows that reach `tie` with the best of the other table can take part.
static void choose_ties(const pair_lists *lists,
                        const float *score_a,
                        const float *score_b,
                        float tie,
                        chosen_pairs *out) {
    const float best_a = lists->score_a[0];
    const float best_b = lists->score_b[0];
    size_t count_a = 0;
    size_t count_b = 0;

    for (size_t m = 0; m < lists->side; m++) {
        // A row that misses `tie` with the best partner misses it with all: few rows are left.
        bool reaches_a = score_a[m] + best_b >= tie;
        bool reaches_b = best_a + score_b[m] >= tie;
        for (size_t n = 0; reaches_b && n < count_a; n++) {
            size_t i = lists->tied_a[n];
            if (score_a[i] + score_b[m] == tie) choose_pair(out, i, m, tie);
            if (out->count == out->topk) return;
        }
        // Between the loops: (m, m) belongs to the second one, and must come up once.
        if (reaches_b) lists->tied_b[count_b++] = (uint16_t)m;
        // Backwards, because ids of a shell rise as j falls.
        for (size_t n = count_b; reaches_a && n > 0; n--) {
            size_t j = lists->tied_b[n - 1];
            if (score_a[m] + score_b[j] == tie) choose_pair(out, m, j, tie);
            if (out->count == out->topk) return;
        }
        if (reaches_a) lists->tied_a[count_a++] = (uint16_t)m;
    }
}

size_t reef_pairs_kept(size_t side, size_t topk) {
    return topk < side ? topk + 1 : topk;
}

bool reef_pairs_list(size_t side, size_t topk, const float *scores, float *best, uint16_t *rows) {
    return reef_kernels()->topk(side, scores, reef_pairs_kept(side, topk), best, rows);
}

pairs_outcome reef_pairs_choose(const pair_lists *lists,
                                const float *score_a,
                                const float *score_b,
                                reef_expert_id *indices,
                                uint16_t *index_a,
                                uint16_t *index_b,
                                float *scores) {
    const size_t topk = lists->topk;
    float best = score_at(lists, 0, 0);
    const size_t last_a = topk < lists->length_a ? topk - 1 : lists->length_a - 1;
    const size_t last_b = topk < lists->length_b ? topk - 1 : lists->length_b - 1;
    // The first and the last corner bound all candidates: where both are finite, all are.
    if (!isfinite(best) || !isfinite(score_at(lists, last_a, last_b))) return PAIRS_NOT_FINITE;

    // The fast way knows no ids and refuses ties; the slow one orders them.
    if (!rank_candidates(lists)) sort_candidates(lists);
    uint32_t last = lists->positions[topk - 1];
    float worst = score_at(lists, last >> 16, last & 0xffff);
    bool ties = frontier_ties(lists, worst);
    if (ties && score_a == NULL) return PAIRS_TIED;

    chosen_pairs out = {0, topk, indices, index_a, index_b, scores};
    for (size_t k = 0; k < topk; k++) {
        size_t p = lists->positions[k] >> 16;
        size_t q = lists->positions[k] & 0xffff;
        float score = score_at(lists, p, q);
        // Their order by id includes pairs outside the candidates, so all of them are left to
        // choose_ties.
        if (ties && score == worst) break;
        choose_pair(&out, lists->row_a[p], lists->row_b[q], score);
    }
    if (ties) choose_ties(lists, score_a, score_b, worst, &out);
    assert(out.count == topk);
    return PAIRS_CHOSEN;
}
