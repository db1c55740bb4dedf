// Which records make up a state of the pool: what people write behind --as-of, found in it; and of
// a state that has an open generation what the trainer keeps with that one.
#ifndef REEF_AS_OF_H
#define REEF_AS_OF_H

#include "reef_snapshot.h"
#include "reef_store.h"

#include <jansson.h>

/**
 * Which records to read: of generations 0 .. last, each under its own number or a snapshot's copy.
 */
typedef struct reef_as_of {
    uint32_t last;
    uint32_t own; // the first so many under their own numbers
    bool of_snapshot;
    reef_snapshot snapshot;
} reef_as_of;

/** The state of a snapshot, which is not damaged. */
static inline reef_as_of reef_as_of_snapshot(const reef_snapshot *snapshot) {
    // Generations below shared_count lie under their own numbers; its copies lie elsewhere.
    return (reef_as_of){.last = snapshot->open_generation,
                        .own = snapshot->shared_count,
                        .of_snapshot = true,
                        .snapshot = *snapshot};
}

/** Under which number the records of generation 0 .. last lie. */
static inline uint32_t reef_as_of_records(const reef_as_of *as_of, uint32_t generation) {
    return as_of->of_snapshot ? reef_snapshot_records(&as_of->snapshot, generation) : generation;
}

/**
 * Find a state: NULL or "now", the number of a generation, a snapshot or the beginning of its name,
 * or a moment (reef_state_at).
 *
 * Errors: NOT_FOUND there is none.
 */
REEF_MUST_CHECK reef_status reef_as_of_find(reef_as_of *out,
                                            reef_txn *txn,
                                            const char *as_of,
                                            reef_error *err);

// ---- the trainer's state ------------------------------------------------------------------------

/**
 * Key of a record of the trainer's state, such as "state" or "carry", that is kept with a
 * generation.
 */
static inline reef_key reef_state_key(uint32_t generation, const char *name) {
    return (reef_key){.db = REEF_DB_TENSORS, .generation = generation, .name = name};
}

/**
 * Read the record "state" of the generation whose records lie under a number; the caller frees *out
 * with json_decref. Errors: NOT_FOUND, CORRUPT, NO_MEMORY; *out is then NULL.
 */
REEF_MUST_CHECK reef_status reef_state_read(json_t **out,
                                            reef_txn *txn,
                                            uint32_t records,
                                            reef_error *err);

/**
 * Where the stream stands in the state of an open generation, whose records lie under number
 * `records`.
 */
REEF_MUST_CHECK reef_status reef_state_position(reef_txn *txn,
                                                uint32_t records,
                                                uint64_t *step,
                                                uint64_t *generation_step,
                                                uint64_t *stream_bytes,
                                                reef_error *err);

#endif
