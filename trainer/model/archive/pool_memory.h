// The context memories of a pool's states: which there are, which of them an archive needs, and one
// of them in memory.
//
// A memory is known by its chain, the hash of all that it learned: two of the same chain and the
// same bound are the same, in whichever state or pool they lie.
#ifndef REEF_POOL_MEMORY_H
#define REEF_POOL_MEMORY_H

#include "archive_format.h"
#include "generation_memory.h"

/** A memory and where its records lie. */
typedef struct reef_memory_source {
    reef_archive_memory id; // learned_bytes is known once it was loaded
    uint32_t records;
} reef_memory_source;

/** A state that stays as it is, with the memories of its generations. */
typedef struct reef_archive_state {
    reef_archive_header header; // pool and state; no pieces, and memories stay where they are
    size_t count;
    reef_memory_source *sources; // (count) owned, by generation
} reef_archive_state;

/** Errors: as of reef_archive_write. `out` is to be released also then. */
REEF_MUST_CHECK reef_status reef_archive_state_find(reef_archive_state *out,
                                                    reef_store *store,
                                                    const char *as_of,
                                                    reef_error *err);
void reef_archive_state_release(reef_archive_state *state); // accepts zeros

/**
 * Where in the pool the memory lies that an archive needs. Errors: INVALID the archive is of
 * another pool; NOT_FOUND its state is gone.
 */
REEF_MUST_CHECK reef_status reef_memory_source_find(reef_memory_source *out,
                                                    reef_store *store,
                                                    const reef_archive_header *header,
                                                    const reef_archive_memory *wanted,
                                                    reef_error *err);

/**
 * Load it. BUSY: another one is there now. Release `out` with reef_generation_memory_release, also
 * after an error.
 */
REEF_MUST_CHECK reef_status reef_memory_source_load(reef_generation_memory *out,
                                                    reef_store *store,
                                                    reef_memory_source *source,
                                                    uint64_t memory_bytes_max,
                                                    reef_error *err);

#endif
