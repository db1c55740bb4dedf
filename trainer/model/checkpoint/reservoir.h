// A uniform sample of the stream so far, and one of the open generation's part of it.
//
// Windows of the stream in numbered slots (Vitter 1985, algorithm R): slots 0 .. old_slots - 1
// sample everything that was ever trained, the rest (a quarter as many) only what the open
// generation saw. Gates are fitted on both; half of the old slots calibrate; the retain term draws
// from the old ones.
#ifndef REEF_RESERVOIR_H
#define REEF_RESERVOIR_H

#include "reef_model.h"

typedef struct reef_reservoir {
    uint64_t seed;
    size_t window_bytes, old_slots, slots;
    uint64_t seen, young_seen; // windows offered so far: to all slots, to the young ones
    uint8_t *bytes;            // (slots, window_bytes)
    uint32_t *sizes;           // (slots) in bytes; 0: empty
    uint32_t *generations;     // (slots) the generation that trained on it
    uint64_t *offsets;         // (slots) where in the stream it began
    uint8_t *dirty;            // (slots) changed since the last commit
} reef_reservoir;

REEF_MUST_CHECK reef_status reef_reservoir_init(reef_reservoir *reservoir,
                                                const reef_config *config,
                                                reef_error *err);
void reef_reservoir_release(reef_reservoir *reservoir);

/** Offer the windows that `bytes` holds, from stream position `offset` on. */
void reef_reservoir_offer(reef_reservoir *reservoir,
                          uint32_t generation,
                          uint64_t offset,
                          const uint8_t *bytes,
                          size_t count);

/** A generation was opened: its sample starts empty. */
void reef_reservoir_clear_sample(reef_reservoir *reservoir);

/**
 * Lists of windows for the gate of `generation`, each (slots) long and sized in tokens, the
 * caller's to free.
 *
 * own  (generation) Are the windows of an older generation of the same kind? They are young then.
 *      NULL: of none
 */
typedef struct reef_reservoir_lists {
    reef_gate_windows old_fit, old_calibrate, young;
    const uint8_t **bytes; // the memory of all three
    size_t *sizes;
} reef_reservoir_lists;
REEF_MUST_CHECK reef_status reef_reservoir_lists_init(reef_reservoir_lists *lists,
                                                      const reef_reservoir *reservoir,
                                                      uint32_t generation,
                                                      const bool *own,
                                                      reef_error *err);
void reef_reservoir_lists_release(reef_reservoir_lists *lists);

/** Slots that changed since the last commit, into the transaction of one. */
REEF_MUST_CHECK reef_status reef_reservoir_put(reef_txn *txn,
                                               const reef_reservoir *reservoir,
                                               reef_error *err);
REEF_MUST_CHECK reef_status reef_reservoir_load(reef_txn *txn,
                                                reef_reservoir *reservoir,
                                                reef_error *err);

#endif
