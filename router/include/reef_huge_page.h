// Memory for arrays that are reached at random: a small page would cost a walk of the page tables
// per row.
#ifndef REEF_HUGE_PAGE_H
#define REEF_HUGE_PAGE_H

#include "reef_kernels.h"

#include <stddef.h>

#define REEF_HUGE_PAGE_BYTES ((size_t)2 * 1024 * 1024)

/**
 * `count` * `each` zero bytes, from a new cache line on. Arrays of a huge page or more begin at a
 * multiple of it, the system is asked for huge pages (where it has none they are ordinary ones),
 * and nothing is resident before it is touched. NULL if memory is exhausted.
 */
void *reef_huge_page_new(size_t count, size_t each);
/**
 * Make `bytes` bytes from `block` on resident, by all workers together: the first touch of a page
 * that the system has to find takes longer than what is written to it later. Its values stay. NULL
 * workers: one thread.
 */
void reef_huge_page_touch(reef_thread_pool *workers, void *block, size_t bytes);
/** Give back what reef_huge_page_new made with the same numbers. Accepts NULL. */
void reef_huge_page_free(void *block, size_t count, size_t each);

#endif
