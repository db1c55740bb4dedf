// The figures of continual learning against matrices that were worked out by hand.
#include "matrix.h"
#include "test.h"

#include <math.h>

#define NEAR 1e-12

// Three domains, learned in rows 1, 2 and 3; bits per byte, row 0 untrained.
static double LOSSES[] = {
    8.0, 8.0, 8.0, // before
    2.0, 9.0, 7.0, // after the first
    3.0, 1.0, 6.5, // after the second
    2.5, 1.5, 4.0, // after the third
};
static size_t LEARNED[] = {1, 2, 3};

static reef_matrix losses(void) {
    return (reef_matrix){.rows = 4, .columns = 3, .bits = LOSSES, .learned = LEARNED};
}

PLAIN_TEST(forgetting_follows_both_definitions) {
    reef_matrix m = losses();
    assert_float_equal(reef_matrix_forgetting_max(&m, 0), 0.5, NEAR);  // 2.5 - 2.0
    assert_float_equal(reef_matrix_forgetting_max(&m, 1), 0.5, NEAR);  // 1.5 - 1.0
    assert_float_equal(reef_matrix_forgetting_max(&m, 2), -2.5, NEAR); // best before 6.5, now 4.0
    assert_float_equal(reef_matrix_forgetting_learned(&m, 0), 0.5, NEAR);
    assert_float_equal(reef_matrix_forgetting_learned(&m, 1), 0.5, NEAR);
    assert_float_equal(reef_matrix_forgetting_learned(&m, 2), 0, NEAR);
}

// Where a domain was best in another row than the one right after it, the definitions differ.
PLAIN_TEST(definitions_differ_when_a_later_domain_helped) {
    static double VALUES[] = {8, 8, 3, 8, 2, 1, 2.75, 1.5};
    static size_t ROWS[] = {1, 2};
    reef_matrix m = {.rows = 4, .columns = 2, .bits = VALUES, .learned = ROWS};
    assert_float_equal(reef_matrix_forgetting_max(&m, 0), 0.75, NEAR);      // 2.75 - 2
    assert_float_equal(reef_matrix_forgetting_learned(&m, 0), -0.25, NEAR); // 2.75 - 3
    reef_matrix_summary s = reef_matrix_summarise(&m);
    assert_float_equal(s.forgetting_max, 0.75, NEAR); // the domain learned last does not count
    assert_float_equal(s.backward_transfer, 0.25, NEAR);
}

PLAIN_TEST(summary_averages_over_old_and_new_domains) {
    reef_matrix m = losses();
    reef_matrix_summary s = reef_matrix_summarise(&m);
    assert_float_equal(s.final_mean, (2.5 + 1.5 + 4.0) / 3, NEAR);
    assert_float_equal(s.forgetting_max, 0.5, NEAR);
    assert_float_equal(s.forgetting_learned, 0.5, NEAR);
    assert_float_equal(s.backward_transfer, -0.5, NEAR);
}

PLAIN_TEST(what_was_not_measured_is_unknown) {
    double values[] = {NAN, 8, 2, 9, 3, NAN};
    static size_t ROWS[] = {1, 2};
    reef_matrix m = {.rows = 3, .columns = 2, .bits = values, .learned = ROWS};
    assert_float_equal(reef_matrix_forgetting_max(&m, 0), 1,
                       NEAR); // the row that is missing is left out
    assert_true(isnan(reef_matrix_forgetting_max(&m, 1)));
    assert_true(isnan(reef_matrix_learned(&m, 1)));
    assert_float_equal(reef_matrix_summarise(&m).final_mean, 3, NEAR);
    m.learned = NULL;
    assert_true(isnan(reef_matrix_forgetting_learned(&m, 0)));
    assert_true(
        isnan(reef_matrix_summarise(&m).forgetting_max)); // which domains are old is unknown
    assert_true(isnan(reef_matrix_summarise(&m).backward_transfer));
}

RUN_TESTS
