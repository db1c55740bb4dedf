// Texts that a benchmark reads.
#ifndef REEF_BENCH_TEXT_H
#define REEF_BENCH_TEXT_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

/**
 * The first bytes of a file, at most `limit`, into memory of that size, the caller's.
 *
 * Errors: NOT_FOUND it is missing, a folder, or has no byte; IO.
 */
REEF_MUST_CHECK reef_status reef_bench_text_read(
    const char *path, uint64_t limit, uint8_t **bytes, size_t *count, reef_error *err);

/** FOLDER/FILE: the folder tells texts apart whose files have the same name. On the heap. */
char *reef_bench_text_name(const char *path);

#endif
