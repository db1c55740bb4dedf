// Location of the rows of sealed generations: copied into memory or, in pools larger than memory,
// read in place from the store's map. The rows of the open generation are always in memory.
#ifndef REEF_RESIDENCY_H
#define REEF_RESIDENCY_H

#include "generation.h"
#include "row_prefetch.h"

typedef struct reef_residency {
    reef_store *store;                // not owned; outlives this
    uint64_t memory_bytes;            // that the process may hold
    bool in_place;                    // sealed generations that are stored are read in place
    reef_txn *txn;                    // while pinned: keeps the pages of the map where they are
    double pinned_since, pin_seconds; // a monotonic clock; how long it took to find the rows
    reef_row_prefetch *prefetch;      // NULL until rows are read in place
} reef_residency;

/** No rows are read in place yet. `memory_bytes` 0: what the machine has. */
void reef_residency_init(reef_residency *residency, reef_store *store, uint64_t memory_bytes);
void reef_residency_release(reef_residency *residency); // accepts the zeroed one

/**
 * Decide before a model is loaded: in place if the rows of the generations 0 .. sealed_count - 1
 * take more than half of the memory.
 */
REEF_MUST_CHECK reef_status reef_residency_decide(reef_residency *residency,
                                                  reef_txn *txn,
                                                  const reef_config *config,
                                                  uint32_t sealed_count,
                                                  reef_error *err);

/**
 * Make the rows of `network` accessible until reef_residency_unpin: decides again, frees the memory
 * of stored sealed generations that are now read in place, and finds those in the map with a read
 * transaction of its own. Does nothing while everything is in memory.
 *
 * loaded  the model is as it was loaded from the pool, and must still be so there: a trainer makes
 *         its own
 *
 * Errors: CORRUPT a block is missing or has another size; BUSY a generation that was loaded is no
 * longer in the pool; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_residency_pin(reef_residency *residency,
                                               reef_network *network,
                                               bool loaded,
                                               reef_error *err);
/**
 * Between two passes of a reader: if the rows have been pinned for REEF_READ_MS_MAX, or was
 * released, end it, begin another and find all rows again. (Where finding takes long, less often:
 * it stays below a twentieth of the time.) Errors: as reef_residency_pin.
 */
REEF_MUST_CHECK reef_status reef_residency_renew(reef_residency *residency,
                                                 reef_network *network,
                                                 reef_error *err);
/** Are all rows in reach? */
bool reef_residency_is_pinned(const reef_residency *residency);
/**
 * End the transaction: a writer in this process can enlarge the map. No pass may run until the rows
 * are pinned again.
 */
void reef_residency_unpin(reef_residency *residency);

#endif
