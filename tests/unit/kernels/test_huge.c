// Memory for arrays that are reached at random: zero, aligned for huge pages from one of them on,
// and given back with the numbers it was asked for.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // mincore

#include "checked.h"
#include "reef_huge_page.h"

#include <sys/mman.h>

PLAIN_TEST(arrays_are_zero_and_aligned) {
    static const size_t counts[] = {1,
                                    63,
                                    1000,
                                    REEF_HUGE_PAGE_BYTES / 4 - 1,
                                    REEF_HUGE_PAGE_BYTES / 4,
                                    REEF_HUGE_PAGE_BYTES + 3};
    for (size_t n = 0; n < sizeof(counts) / sizeof(*counts); n++) {
        uint32_t *array = reef_huge_page_new(counts[n], sizeof(*array));
        assert_non_null(array);
        size_t page =
            counts[n] * sizeof(*array) >= REEF_HUGE_PAGE_BYTES ? REEF_HUGE_PAGE_BYTES : 64;
        assert_int_equal((uintptr_t)array % page, 0);
        for (size_t i = 0; i < counts[n]; i++) assert_true(array[i] == 0);
        memset(array, 0xff, counts[n] * sizeof(*array)); // all of it is ours
        reef_huge_page_free(array, counts[n], sizeof(*array));
    }
    reef_huge_page_free(NULL, 5, 4);
}

PLAIN_TEST(touching_keeps_the_values) {
    const size_t count = ((size_t)35 << 20) / sizeof(uint32_t) + 3;
    reef_thread_pool *workers = NULL;
    must(reef_thread_pool_new(&workers, 3, &why));
    uint32_t *array = reef_huge_page_new(count, sizeof(*array));
    assert_non_null(array);
    array[0] = 1;
    array[count / 2] = 2;
    array[count - 1] = 3;
    reef_huge_page_touch(workers, array, count * sizeof(*array));
    reef_huge_page_touch(NULL, array, count * sizeof(*array));
    reef_huge_page_touch(workers, array, 0);
    size_t pages = (count * sizeof(*array) + 4095) / 4096;
    unsigned char *resident = room(pages);
    assert_int_equal(mincore(array, count * sizeof(*array), resident), 0);
    for (size_t i = 0; i < pages; i++) assert_true(resident[i] & 1);
    assert_int_equal(array[0] + array[count / 2] + array[count - 1], 6);
    for (size_t i = 1; i < count / 2; i++) assert_true(array[i] == 0);
    reef_huge_page_free(array, count, sizeof(*array));
    reef_thread_pool_free(workers);
}

PLAIN_TEST(what_no_machine_has_is_refused) {
    assert_null(reef_huge_page_new(SIZE_MAX / 2, 4));
    assert_null(reef_huge_page_new(SIZE_MAX / 8, 4));
}

RUN_TESTS
