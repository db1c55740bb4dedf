// What every cmocka program includes.
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/** Remember `thing` to the end of the program: what helpers hand out with it needs no release. */
static inline void *keep(void *thing) {
    static void **kept;
    static size_t count, size;
    if (count == size) {
        size = 2 * size + 64;
        kept = realloc(kept, size * sizeof(*kept));
        assert_non_null(kept);
    }
    return kept[count++] = thing;
}

/** Zeros to write to, which last to the end of the program. */
static inline void *room(size_t bytes) {
    void *made = calloc(1, bytes);
    assert_non_null(made);
    return keep(made);
}

/** A copy that lasts to the end of the program. */
static inline void *copied(const void *from, size_t bytes) {
    return memcpy(room(bytes), from, bytes);
}

/** For TEST_WITH: a test, and the line that it stands on. */
typedef struct listed_test {
    struct CMUnitTest test;
    int line;
} listed_test;

static listed_test *listed_tests;
static size_t listed_test_count;

static inline void test_list(const struct CMUnitTest *test, int line) {
    listed_tests = realloc(listed_tests, (listed_test_count + 1) * sizeof(*listed_tests));
    listed_tests[listed_test_count++] = (listed_test){*test, line};
}

static inline int test_before(const void *a, const void *b) {
    return ((const listed_test *)a)->line - ((const listed_test *)b)->line;
}

/** All tests of the file, in its order, in a world that is made once (NULL: in none). */
static inline int test_run(CMFixtureFunction make, CMFixtureFunction remove) {
    struct CMUnitTest *tests = keep(calloc(listed_test_count, sizeof(*tests)));
    qsort(listed_tests, listed_test_count, sizeof(*listed_tests), test_before);
    for (size_t i = 0; i < listed_test_count; i++) tests[i] = listed_tests[i].test;
    return _cmocka_run_group_tests("tests", tests, listed_test_count, make, remove);
}

/**
 * A test, which test_run will run: TEST_WITH(a_sentence, setup, teardown, pool *p) { .. }. `made`
 * is what the setup left in *state.
 */
#define TEST_WITH(name, setup, teardown, made)                                                     \
    static void name##_body(made);                                                                 \
    static void name(void **state) {                                                               \
        name##_body(*state);                                                                       \
    }                                                                                              \
    __attribute__((constructor)) static void list_##name(void) {                                   \
        test_list(                                                                                 \
            &(const struct CMUnitTest)cmocka_unit_test_setup_teardown(name, setup, teardown),      \
            __LINE__);                                                                             \
    }                                                                                              \
    static void name##_body(made)

/** One by itself. */
#define PLAIN_TEST(name) TEST_WITH(name, NULL, NULL, void *none)

/** The last line of a file whose program is its tests. */
#define RUN_TESTS_IN(make, remove)                                                                 \
    int main(void) {                                                                               \
        return test_run(make, remove);                                                             \
    }
#define RUN_TESTS RUN_TESTS_IN(NULL, NULL)

#endif
