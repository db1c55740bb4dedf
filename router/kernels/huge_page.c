// Zeroed memory on huge pages: an anonymous map, trimmed to whole huge pages, or the heap's when
// small. NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C
// library's name.
#define _DEFAULT_SOURCE // madvise, MAP_ANONYMOUS

#include "reef_huge_page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE_BYTES 64                  // of the cache
#define TOUCH_BYTES ((size_t)16 << 20) // by one worker at a time

// Bytes of whole huge pages; 0 where the heap serves.
static size_t mapped_bytes(size_t count, size_t each) {
    size_t bytes = count * each;
    if (bytes < REEF_HUGE_PAGE_BYTES) return 0;
    return (bytes + REEF_HUGE_PAGE_BYTES - 1) / REEF_HUGE_PAGE_BYTES * REEF_HUGE_PAGE_BYTES;
}

static void *small_new(size_t bytes) {
    size_t lines = bytes / LINE_BYTES + 1;
    void *block = aligned_alloc(LINE_BYTES, lines * LINE_BYTES);
    if (block != NULL) memset(block, 0, lines * LINE_BYTES);
    return block;
}

void *reef_huge_page_new(size_t count, size_t each) {
    // Two huge pages of slack, for rounding up and for alignment.
    if (each > 0 && count > (SIZE_MAX - 2 * REEF_HUGE_PAGE_BYTES) / each) return NULL;
    size_t bytes = mapped_bytes(count, each);
    if (bytes == 0) return small_new(count * each);
    // One page too much, so that a multiple of its size lies within; what is left over goes back.
    char *map = mmap(NULL, bytes + REEF_HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    // The map begins at any page, a huge page at a multiple of its size.
    size_t past = (uintptr_t)map % REEF_HUGE_PAGE_BYTES;
    size_t before = past == 0 ? 0 : REEF_HUGE_PAGE_BYTES - past;
    if (before > 0) (void)munmap(map, before);
    (void)munmap(map + before + bytes, REEF_HUGE_PAGE_BYTES - before);
#ifdef MADV_HUGEPAGE
    // A hint: without huge pages the memory works all the same.
    (void)madvise(map + before, bytes, MADV_HUGEPAGE);
#endif
    return map + before;
}

typedef struct touch {
    volatile char *block;
    size_t bytes, page_bytes;
} touch;

static void touch_piece(void *context, size_t piece) {
    const touch *t = context;
    size_t first = piece * TOUCH_BYTES, left = t->bytes - first;
    size_t end = first + (left < TOUCH_BYTES ? left : TOUCH_BYTES);
    // Written back unchanged: a read alone would map the shared page of zeros.
    for (size_t at = first; at < end; at += t->page_bytes) t->block[at] = t->block[at];
}

void reef_huge_page_touch(reef_thread_pool *workers, void *block, size_t bytes) {
    touch t = {block, bytes, (size_t)sysconf(_SC_PAGESIZE)};
    reef_thread_pool_run(workers, (bytes + TOUCH_BYTES - 1) / TOUCH_BYTES, touch_piece, &t);
}

void reef_huge_page_free(void *block, size_t count, size_t each) {
    size_t bytes = mapped_bytes(count, each);
    if (block == NULL) return;
    if (bytes == 0)
        free(block);
    else
        (void)munmap(block, bytes);
}
