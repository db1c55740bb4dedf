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
    uint64_t bytes;  // of these records, and of text that no state names any more
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
 * Which states can be asked: not those that were given up.
 *
 * kept  written: allocated, free() it; `count` of them, one for each generation
 *
 * Errors: CORRUPT names the record; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_states_kept(reef_txn *txn,
                                                      bool **kept,
                                                      uint32_t *count,
                                                      reef_error *err);

/**
 * The newest state that was there at a moment: the last commit's ("now"), that of a sealed
 * generation (its number) or a snapshot's. Of states of the same millisecond the snapshot's.
 *
 * unix_ms  of commits and snapshots by the wall clock of the machine that made them
 * name     written: what reef_as_of_find takes for it
 *
 * Errors: NOT_FOUND there was none yet, or it is gone: says which is the oldest; CORRUPT names the
 * record; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_state_at(reef_txn *txn,
                                                   uint64_t unix_ms,
                                                   char name[REEF_NAME_BYTES_MAX + 1],
                                                   reef_error *err);

/**
 * The name of the state that people mean: of a moment (reef_moment.h) that of the newest state at
 * its end, of the beginning of a snapshot's name all of it. "now" and numbers are as they are.
 *
 * Errors: those of reef_state_at and reef_snapshot_find.
 */
REEF_API REEF_MUST_CHECK reef_status reef_state_name(char name[REEF_NAME_BYTES_MAX + 1],
                                                     reef_txn *txn,
                                                     const char *as_of,
                                                     reef_error *err);

#endif
