// A trial that reads generated text: that, and a directory for a pool that lives as long as it.
#ifndef REEF_SCRATCH_POOL_H
#define REEF_SCRATCH_POOL_H

#include "reef_error.h"
#include "reef_trainer.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Words of two to nine letters from a fixed generator; on the heap. */
uint8_t *reef_scratch_text(size_t count);

/** The value of the line `FIELD: N kB` of a file of the system, in bytes; 0 if it is missing. */
double reef_proc_bytes(const char *path, const char *field);

/**
 * A directory below TMPDIR that is gone once this process is, however it ends: a second process
 * sees to that.
 */
typedef struct reef_scratch_directory {
    char *path; // on the heap; NULL if absent
    int alive;  // a socket: the guardian waits for its end, when this process has gone
    pid_t guardian;
} reef_scratch_directory;

REEF_MUST_CHECK reef_status reef_scratch_directory_new(reef_scratch_directory *out,
                                                       reef_error *err);
/** Remove it with everything inside. Accepts one that was not made: {0}. */
void reef_scratch_directory_remove(reef_scratch_directory *directory);

#endif
