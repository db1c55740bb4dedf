// Lines of a file or of standard input, a batch at a time.
#ifndef REEF_INGEST_BATCHES_H
#define REEF_INGEST_BATCHES_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_ingest_feed {
    // set by the caller before reef_ingest_feed_open
    const char *path; // "-": standard input
    uint64_t skip;    // bytes at the beginning that are left out
    size_t lines_max; // of a batch
    size_t bytes_max; // and no more than so many,
    size_t line_max;  // or one line of no more than so many; at least as many
    bool steady;      // batches depend on the content alone, not on when it comes
    // of the batch, written by reef_ingest_feed_next
    const uint8_t *batch; // (bytes) good until the next call
    size_t bytes;         // 0: the end
    size_t lines;
    uint64_t offset; // of its first byte
    uint64_t line;   // number of its first line, from 1; counted from where `skip` ended
    // its own
    int fd;
    uint64_t size; // of a file; 0: unknown
    uint8_t *buffer;
    size_t used, taken;
    bool eof;
} reef_ingest_feed;

/** NOT_FOUND it cannot be read; INVALID it has not as many bytes as are to be skipped. */
REEF_MUST_CHECK reef_status reef_ingest_feed_open(reef_ingest_feed *feed, reef_error *err);
/**
 * The next whole lines; of the last one the end may be missing. Where lines come slowly a batch is
 * smaller, unless it is to be steady. INVALID a line that is too long; IO.
 */
REEF_MUST_CHECK reef_status reef_ingest_feed_next(reef_ingest_feed *feed, reef_error *err);
void reef_ingest_feed_close(reef_ingest_feed *feed);

#endif
