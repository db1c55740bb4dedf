// Large memory that children of a test need not see: forking is then as quick as for a small
// process. Include first: it needs more than POSIX.
#ifndef NO_FORK_H
#define NO_FORK_H

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): for madvise.
#define _DEFAULT_SOURCE

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define NO_FORK_BYTES_MIN (1 << 20)

/**
 * Once, first: from now on blocks of that size are mappings of their own, which go when they are
 * freed.
 */
static inline void no_fork_init(void) {
    (void)mallopt(M_MMAP_THRESHOLD, NO_FORK_BYTES_MIN);
}

/**
 * The whole pages of this block are left out of every later child, if it is large enough to matter.
 */
static inline void no_fork(const void *block, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)block + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)block + bytes) / page * page;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    end = begin; // sanitizers keep books on memory, in children as well
#endif
    if (bytes >= NO_FORK_BYTES_MIN && end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTFORK);
}

#endif
