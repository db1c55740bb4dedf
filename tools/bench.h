// What the benchmarks share: text to train on, and a directory for a pool that lives as long as they.
#ifndef REEF_BENCH_H
#define REEF_BENCH_H

#include "reef_error.h"
#include "reef_trainer.h"

#include <stddef.h>
#include <stdint.h>

/** Words of two to nine letters from a fixed generator; on the heap. */
uint8_t *bench_text(size_t count);

/** INVALID a configuration of vectors: what is measured here is fed with text. */
REEF_MUST_CHECK reef_status bench_wants_text(const reef_config *config, reef_error *err);

/** What the line `FIELD: N kB` of a file of the system says, in bytes; 0 where there is none. */
double bench_proc_bytes(const char *path, const char *field);

/** A new directory below TMPDIR; its path is on the heap, NULL when it could not be made. */
REEF_MUST_CHECK reef_status bench_directory_new(char **out, reef_error *err);
/** Remove it with everything inside, and free the path. Accepts NULL. */
void bench_directory_remove(char *path);

#endif
