// Which records make up a state of the pool: what people write behind --as-of, found in it.
#ifndef REEF_AS_OF_H
#define REEF_AS_OF_H

#include "reef_snapshot.h"
#include "reef_store.h"

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

#endif
