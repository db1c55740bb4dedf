// Which records make up a state of the pool: what people write behind --as-of, found in it.
#ifndef REEF_AS_OF_H
#define REEF_AS_OF_H

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

/**
 * Find a state: NULL or "now", the number of a generation, or a snapshot or the beginning of its
 * name. Errors: NOT_FOUND none of them, or a generation that was consolidated into a later one.
 */
REEF_MUST_CHECK reef_status reef_as_of_find(reef_as_of *out,
                                            reef_txn *txn,
                                            const char *as_of,
                                            reef_error *err);

/** Under which number the records of generation 0 .. last lie. */
uint32_t reef_as_of_records(const reef_as_of *as_of, uint32_t generation);

#endif
