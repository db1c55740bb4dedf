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

/** A test by itself, and one between the `setup` and the `teardown` of its file. */
#define ALONE(test) cmocka_unit_test(test)
#define SET_UP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/** The program: its tests, in a world that is made once, or in none. */
#define WORLD_TESTS(make, remove, ...)                                                             \
    int main(void) {                                                                               \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
        return cmocka_run_group_tests(tests, make, remove);                                        \
    }
#define TESTS(...) WORLD_TESTS(NULL, NULL, __VA_ARGS__)

#endif
