// Usage figures on cases that were worked out by hand.
#include "reef_router.h"
#include "test.h"

#include <math.h>

PLAIN_TEST(uniform_use_is_perfectly_even) {
    reef_usage usage[6];
    for (size_t i = 0; i < 6; i++) usage[i] = (reef_usage){.count = 2, .score = 500};
    reef_usage_summary summary;
    reef_usage_summarise(6, usage, &summary);
    assert_int_equal(summary.expert_count, 6);
    assert_int_equal(summary.used_count, 6);
    assert_int_equal(summary.selections, 12);
    assert_true(summary.used_percent == 100);
    assert_true(summary.unevenness >= 0 && summary.unevenness < 1e-12);
}

PLAIN_TEST(one_expert_taking_all_is_log_n_uneven) {
    reef_usage usage[8] = {[5] = {.count = 3, .score = 3 * REEF_USAGE_SCORE_ONE}};
    reef_usage_summary summary;
    reef_usage_summarise(8, usage, &summary);
    assert_int_equal(summary.used_count, 1);
    assert_int_equal(summary.selections, 3);
    assert_true(summary.used_percent == 12.5);
    assert_true(fabs(summary.unevenness - log(8)) < 1e-12);
}

// z = (1/2, 1/4, 1/4, 0): log 4 - (1/2 log 2 + 1/2 log 4) = log(2) / 2.
PLAIN_TEST(a_mixed_case_agrees_with_the_formula) {
    const reef_usage usage[4] = {{4, 200}, {1, 100}, {7, 100}, {0, 0}};
    reef_usage_summary summary;
    reef_usage_summarise(4, usage, &summary);
    assert_int_equal(summary.used_count, 3);
    assert_int_equal(summary.selections, 12);
    assert_true(summary.used_percent == 75);
    assert_true(fabs(summary.unevenness - log(2) / 2) < 1e-12);
}

PLAIN_TEST(an_expert_chosen_with_a_vanishing_score_is_used) {
    const reef_usage usage[2] = {{.count = 1, .score = 0}, {.count = 1, .score = 10}};
    reef_usage_summary summary;
    reef_usage_summarise(2, usage, &summary);
    assert_int_equal(summary.used_count, 2);
    assert_true(fabs(summary.unevenness - log(2)) < 1e-12);
}

PLAIN_TEST(no_use_at_all_is_all_zero) {
    const reef_usage usage[3] = {{0, 0}};
    reef_usage_summary summary;
    reef_usage_summarise(3, usage, &summary);
    assert_int_equal(summary.expert_count, 3);
    assert_int_equal(summary.used_count, 0);
    assert_true(summary.used_percent == 0 && summary.unevenness == 0);
    reef_usage_summarise(0, NULL, &summary);
    assert_true(summary.used_percent == 0 && summary.unevenness == 0);
}

PLAIN_TEST(sums_near_the_end_of_the_counter_do_not_overflow) {
    const reef_usage usage[2] = {{1, UINT64_MAX}, {1, UINT64_MAX}};
    reef_usage_summary summary;
    reef_usage_summarise(2, usage, &summary);
    assert_true(summary.unevenness < 1e-12);
}

RUN_TESTS
