// The states of a pool that `--as-of` names by a generation, and giving up those that nobody needs.
//
// What kinds had learned as of a generation lies with the generations that were open meanwhile
// (docs/FORMAT.md, `visits`), so a pool grows with the states that can be asked. Pruned of old
// ones, it keeps what later states and snapshots are read from, and all that it knows now.
#ifndef REEF_STATES_H
#define REEF_STATES_H

#include "reef_store.h"

typedef struct reef_pruning {
    uint32_t states; // that could be asked before, and cannot any more
    uint64_t visits; // whose records were removed
    uint64_t bytes;  // of these records
} reef_pruning;

/**
 * Give up the states as of all generations but the newest `keep_last`, the open one counted, unless
 * all of a state is needed by one that is kept or by a snapshot. No root hash changes.
 *
 * keep_last  at least 1
 * dry_run    only say what it would do; a read transaction will do
 *
 * Errors: INVALID keep_last 0, or a snapshot's record is damaged, which may need any state; CORRUPT
 * names the record; those of a write.
 */
REEF_API REEF_MUST_CHECK reef_status reef_states_prune(
    reef_txn *txn, uint32_t keep_last, bool dry_run, reef_pruning *out, reef_error *err);

/**
 * Which states can be asked: not those that were given up, nor those of consolidated generations.
 *
 * kept  written: allocated, free() it; `count` of them, one for each generation
 *
 * Errors: CORRUPT names the record; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_states_kept(reef_txn *txn,
                                                      bool **kept,
                                                      uint32_t *count,
                                                      reef_error *err);

#endif
