// Product keys: expert ids in shell order, and the choice of pairs against exhaustive search.
#include "router_internal.h"

#include "draw.h"
#include "exhaustive_pairs.h"
#include "reef_kernels.h"
#include "test.h"

#include <math.h>

enum { SIDE_MAX = 300 };

// One selection's lists, and its outputs with a guard element behind each.
typedef struct fixture {
    pair_lists lists;
    reef_expert_id indices[SIDE_MAX + 1];
    uint16_t index_a[SIDE_MAX + 1], index_b[SIDE_MAX + 1];
    float scores[SIDE_MAX + 1];
    float score_a[SIDE_MAX], score_b[SIDE_MAX];
    float top_a[SIDE_MAX + 1], top_b[SIDE_MAX + 1];
    uint16_t row_a[SIDE_MAX + 1], row_b[SIDE_MAX + 1];
    uint64_t keys[SIDE_MAX];
    uint32_t positions[SIDE_MAX];
    uint16_t tied_a[SIDE_MAX], tied_b[SIDE_MAX];
    scored_pair pairs[SIDE_MAX * SIDE_MAX];
} fixture;

static int set_up(void **state) {
    fixture *f = room(sizeof(*f));
    f->lists = (pair_lists){
        .score_a = f->top_a,
        .score_b = f->top_b,
        .row_a = f->row_a,
        .row_b = f->row_b,
        .keys = f->keys,
        .positions = f->positions,
        .tied_a = f->tied_a,
        .tied_b = f->tied_b,
    };
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    return 0;
}

static bool choose(fixture *f, size_t side, size_t topk) {
    f->lists.side = side;
    f->lists.topk = topk;
    f->lists.length_a = f->lists.length_b = reef_pairs_kept(side, topk);
    reef_pairs_stairs(topk, &f->lists.stairs);
    f->indices[topk] = 0xdeadbeef;
    return reef_pairs_list(side, topk, f->score_a, f->top_a, f->row_a) &&
           reef_pairs_list(side, topk, f->score_b, f->top_b, f->row_b) &&
           reef_pairs_choose(&f->lists, f->score_a, f->score_b, f->indices, f->index_a, f->index_b,
                             f->scores) == PAIRS_CHOSEN;
}

static void assert_equals_exhaustive(fixture *f, size_t side, size_t topk) {
    assert_true(choose(f, side, topk));
    assert_int_equal(f->indices[topk], 0xdeadbeef);
    exhaustive_pairs(side, f->score_a, f->score_b, f->pairs);
    for (size_t k = 0; k < topk; k++) {
        if (f->indices[k] != f->pairs[k].id)
            fail_msg("side %zu topk %zu place %zu: expert %u scores %.9g, expected %u with %.9g",
                     side, topk, k, f->indices[k], (double)f->scores[k], f->pairs[k].id,
                     (double)f->pairs[k].score);
        assert_int_equal(f->index_a[k], f->pairs[k].i);
        assert_int_equal(f->index_b[k], f->pairs[k].j);
        assert_true(f->scores[k] == f->pairs[k].score);
    }
}

#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, fixture *f)

WORLD_TEST(ids_are_a_bijection_for_every_side) {
    for (uint32_t side = 1; side <= 70; side++) {
        uint8_t *seen = room(side * side);
        for (uint32_t i = 0; i < side; i++) {
            for (uint32_t j = 0; j < side; j++) {
                reef_expert_id id = reef_expert_id_of(i, j);
                assert_true(id < side * side); // so a larger grid leaves these ids alone
                assert_int_equal(seen[id]++, 0);
                uint32_t i_back, j_back;
                reef_expert_pair_of(id, &i_back, &j_back);
                assert_int_equal(i_back, i);
                assert_int_equal(j_back, j);
            }
        }
    }
}

WORLD_TEST(ids_follow_the_documented_order) {
    const uint32_t ids[3][3] = {{0, 1, 4}, {3, 2, 5}, {8, 7, 6}};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 3; j++) assert_int_equal(reef_expert_id_of(i, j), ids[i][j]);
}

WORLD_TEST(the_largest_ids_have_pairs) {
    const uint32_t m = REEF_SIDE_MAX - 1;
    const uint32_t others[] = {0, 1, m / 2, m - 1, m};
    for (size_t n = 0; n < sizeof(others) / sizeof(*others); n++) {
        uint32_t i, j;
        reef_expert_pair_of(reef_expert_id_of(m, others[n]), &i, &j);
        assert_int_equal(i, m);
        assert_int_equal(j, others[n]);
        reef_expert_pair_of(reef_expert_id_of(others[n], m), &i, &j);
        assert_int_equal(i, others[n]);
        assert_int_equal(j, m);
    }
}

// Every way to draw scores, at every odd side up to 39 and every topk.
static void assert_choice_is_exhaustive(fixture *f, int low, int high, float unit, bool whole) {
    uint64_t seed = 7;
    for (size_t side = 1; side <= 39; side += 2) {
        for (size_t topk = 1; topk <= side; topk++) {
            for (int repeat = 0; repeat < 3; repeat++) {
                if (whole) {
                    draw_ints(&seed, side, f->score_a, low, high);
                    draw_ints(&seed, side, f->score_b, low, high);
                } else {
                    draw_floats(&seed, side, f->score_a, (float)low, (float)high);
                    draw_floats(&seed, side, f->score_b, (float)low, (float)high);
                }
                for (size_t i = 0; i < side; i++) f->score_a[i] *= unit;
                assert_equals_exhaustive(f, side, topk);
            }
        }
    }
}

WORLD_TEST(choice_equals_exhaustive_search_on_random_scores) {
    assert_choice_is_exhaustive(f, -3, 3, 1, false);
}

WORLD_TEST(choice_equals_exhaustive_search_when_most_scores_tie) {
    assert_choice_is_exhaustive(f, 0, 1, 1, true);
    assert_choice_is_exhaustive(f, -1, 1, 1, true);
    assert_choice_is_exhaustive(f, -4, 4, 1, true);
}

WORLD_TEST(choice_equals_exhaustive_search_when_all_scores_are_equal) {
    assert_choice_is_exhaustive(f, 0, 0, 1, true);
    assert_choice_is_exhaustive(f, 2, 2, 1, true);
}

// Adding a number of 2^24 rounds small differences away: sums tie although no half does.
WORLD_TEST(choice_equals_exhaustive_search_when_sums_tie_by_rounding) {
    uint64_t seed = 11;
    for (size_t side = 1; side <= 39; side += 2) {
        for (size_t topk = 1; topk <= side; topk++) {
            draw_floats(&seed, side, f->score_a, -4, 4);
            draw_floats(&seed, side, f->score_b, 16777216, 16777224);
            assert_equals_exhaustive(f, side, topk);
        }
    }
}

// As many as there are sets of places for, one more, and as many as a side has.
WORLD_TEST(choice_equals_exhaustive_search_of_many_experts) {
    static const size_t SIDES[] = {64, 150}, TOPKS[] = {33, 48, 49, 64, 96, 128, 129, 150};
    static const float WIDES[] = {1, 8, 1000, 0.001f};
    uint64_t seed = 17;
    for (size_t s = 0; s < sizeof(SIDES) / sizeof(SIDES[0]); s++) {
        const size_t side = SIDES[s];
        for (size_t k = 0; k < sizeof(TOPKS) / sizeof(TOPKS[0]) && TOPKS[k] <= side; k++) {
            // Of one table as far apart as of the other, further, and so far that one row has all.
            for (size_t n = 0; n < sizeof(WIDES) / sizeof(WIDES[0]); n++) {
                const float wide = WIDES[n];
                draw_floats(&seed, side, f->score_a, -wide, wide);
                draw_floats(&seed, side, f->score_b, -1, 1);
                assert_equals_exhaustive(f, side, TOPKS[k]);
            }
            draw_ints(&seed, side, f->score_a, -9, 9);
            draw_ints(&seed, side, f->score_b, -9, 9);
            assert_equals_exhaustive(f, side, TOPKS[k]);
        }
    }
}

WORLD_TEST(zeros_of_both_signs_are_equal) {
    uint64_t seed = 13;
    const float zeros[] = {0.0f, -0.0f};
    for (size_t topk = 1; topk <= 9; topk++) {
        for (size_t i = 0; i < 9; i++) {
            f->score_a[i] = zeros[draw_int(&seed, 0, 1)];
            f->score_b[i] = zeros[draw_int(&seed, 0, 1)];
        }
        assert_equals_exhaustive(f, 9, topk);
    }
    // Among the candidates, without a tie outside them: -0 - 0 = -0 for id 0, -0 + 0 = 0 for id 1.
    f->score_a[0] = f->score_b[0] = -0.0f;
    f->score_a[1] = -5;
    f->score_b[1] = 0;
    assert_equals_exhaustive(f, 2, 2);
}

WORLD_TEST(choice_equals_exhaustive_search_at_the_papers_sizes) {
    uint64_t seed = 17;
    const size_t sides[] = {48, 64, 100, 256, 299};
    for (size_t n = 0; n < sizeof(sides) / sizeof(*sides); n++) {
        for (int repeat = 0; repeat < 4; repeat++) {
            draw_floats(&seed, sides[n], f->score_a, -2, 2);
            draw_floats(&seed, sides[n], f->score_b, -2, 2);
            assert_equals_exhaustive(f, sides[n], 16);
            draw_ints(&seed, sides[n], f->score_a, -20, 20);
            draw_ints(&seed, sides[n], f->score_b, -20, 20);
            assert_equals_exhaustive(f, sides[n], 32);
        }
    }
}

WORLD_TEST(scores_that_are_not_numbers_are_refused) {
    const float wrong[] = {NAN, -NAN, INFINITY};
    for (size_t side = 1; side <= 40; side += 13) {
        for (size_t place = 0; place < side; place++) {
            for (size_t n = 0; n < sizeof(wrong) / sizeof(*wrong); n++) {
                for (size_t i = 0; i < side; i++) f->score_a[i] = f->score_b[i] = (float)(i % 5);
                f->score_b[place] = wrong[n];
                assert_false(choose(f, side, 1));
                assert_false(choose(f, side, side));
            }
        }
    }
    for (size_t i = 0; i < 20; i++) f->score_a[i] = f->score_b[i] = -INFINITY;
    assert_false(choose(f, 20, 4));
    for (size_t i = 0; i < 20; i++) f->score_a[i] = f->score_b[i] = 3e38f; // the sum overflows
    assert_false(choose(f, 20, 4));
}

static int run_with(const char *kernels) {
    if (reef_kernels_choose(kernels, NULL) != REEF_OK) return 0; // not on this CPU
    print_message("kernels: %s\n", reef_kernels_name());
    return test_run(set_up, tear_down);
}

int main(void) {
    return run_with("scalar") + run_with("avx2") + run_with("avx512");
}
