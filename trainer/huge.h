// Memory for arrays that are reached at random: a small page would cost a walk of the page tables per row.
#ifndef REEF_HUGE_H
#define REEF_HUGE_H

#include <stddef.h>

#define REEF_HUGE_PAGE_BYTES ((size_t)2 * 1024 * 1024)

/**
 * `count` * `each` zero bytes, from a new cache line on. Arrays of a huge page or more begin at a multiple
 * of it, the system is asked for huge pages (where it has none they are ordinary ones), and nothing is
 * resident before it is touched. NULL when there is no memory.
 */
void *reef_huge_new(size_t count, size_t each);
/** Give back what reef_huge_new made with the same numbers. Accepts NULL. */
void reef_huge_free(void *block, size_t count, size_t each);

#endif
