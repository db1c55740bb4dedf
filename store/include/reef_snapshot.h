// Snapshots: named states of a pool that stay as they are.
//
// A snapshot shares the sealed generations. It has a copy of the open one, whose records lie under
// a number of their own from REEF_SNAPSHOT_GENERATION on: a pseudo-generation. Making and removing
// a snapshot changes no root hash.
//
// Errors and threads: see reef_store.h.
#ifndef REEF_SNAPSHOT_H
#define REEF_SNAPSHOT_H

#include "reef_store.h"

typedef struct reef_snapshot {
    char name[REEF_NAME_BYTES_MAX + 1];
    uint64_t commit, step, stream_bytes, unix_ms;
    uint8_t root[REEF_HASH_BYTES]; // root hash of the commit it was made from
    uint32_t sealed_count;         // sealed generations of the state: 0 .. sealed_count - 1
    uint32_t shared_count; // it shares the first ones with the pool, and holds copies of the rest
    uint32_t open_generation; // the generation that was open (== sealed_count)
    uint32_t copy;            // pseudo-generation that holds the copy of the open one
    uint32_t kept; // the same of generation shared_count, and so on; 0: all sealed ones are shared
    // of a scan: its record cannot be read, only `name` is known; it may need all that is sealed
    bool damaged;
} reef_snapshot;

/** Under which number the records of generation 0 .. sealed_count of a snapshot's state lie. */
REEF_API uint32_t reef_snapshot_records(const reef_snapshot *snapshot, uint32_t generation);

/**
 * Lend usage (level 0, window 0) of a block of experts: of the pool, or of a snapshot's copy.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_usage_view(reef_txn *txn,
                                                              uint32_t records,
                                                              uint32_t layer,
                                                              uint32_t block,
                                                              reef_view *out,
                                                              reef_error *err);

/**
 * Make a snapshot inside a write transaction: copies tensors, experts, flags, moments, memory,
 * usage and the generation record of the open generation to a fresh pseudo-generation; sealed ones
 * are shared. INVALID when the name is taken or not [A-Za-z0-9][A-Za-z0-9._-]{0,63}, parses as an
 * unsigned number (numbers name generations) or is "now". The root hash does not change.
 *
 * Commit first: the snapshot is then of the last commit (NOT_FOUND if nothing was committed). When
 * this transaction has already changed something that is hashed, the snapshot is of the commit that
 * it becomes; step, root and times are filled in by reef_txn_commit, not in `out`. `copy` is 0 when
 * no generation is open; the copy's generation record holds the copy's root.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_create(reef_txn *txn,
                                                          const char *name,
                                                          reef_snapshot *out,
                                                          reef_error *err);
/**
 * Is `name` one for `what`, such as "a snapshot": [A-Za-z0-9][A-Za-z0-9._-]{0,63}, and no number,
 * which names `numbers_name`? INVALID says so; whether it is taken is another question.
 */
REEF_API REEF_MUST_CHECK reef_status reef_name_check(const char *name,
                                                     const char *what,
                                                     const char *numbers_name,
                                                     reef_error *err);
/**
 * May a snapshot be called that? INVALID as of reef_snapshot_create; whether it is taken is another
 * question.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_name_check(const char *name, reef_error *err);
/** Errors: NOT_FOUND no snapshot has exactly this name; CORRUPT its record is damaged. */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_read(reef_txn *txn,
                                                        const char *name,
                                                        reef_snapshot *out,
                                                        reef_error *err);
/**
 * The snapshot called `name`, or the only one whose name begins with it.
 * Errors: NOT_FOUND; INVALID several do, which the message lists; CORRUPT its record is damaged.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_find(reef_txn *txn,
                                                        const char *name,
                                                        reef_snapshot *out,
                                                        reef_error *err);
/**
 * Remove a snapshot and the copies it holds; NOT_FOUND. The root hash does not change. One whose
 * record is damaged goes too, with the copies that no other snapshot holds; while another one is
 * damaged, they may be of that one, and stay.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_remove(reef_txn *txn,
                                                          const char *name,
                                                          reef_error *err);
typedef reef_status (*reef_snapshot_visit)(void *context,
                                           const reef_snapshot *snapshot,
                                           reef_error *err);
/** Visit all snapshots in the order of names, those whose record is damaged as well (`damaged`). */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_scan(reef_txn *txn,
                                                        reef_snapshot_visit visit,
                                                        void *context,
                                                        reef_error *err);

// ---- going back ---------------------------------------------------------------------------------

/** What going back to a snapshot takes away. */
typedef struct reef_restore_plan {
    reef_snapshot snapshot;
    uint32_t generation_count; // of the pool as it is
    uint32_t sealed_gone;      // sealed generations from snapshot.shared_count on
    size_t needy_count; // other snapshots that share one of these, or whose record is damaged,
    char needy[REEF_NAME_BYTES_MAX + 1]; // and the first of them
    bool needy_damaged;                  // whose record is damaged
} reef_restore_plan;

/** Errors: those of reef_snapshot_find. */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_restore_plan(reef_txn *txn,
                                                                const char *name,
                                                                reef_restore_plan *plan,
                                                                reef_error *err);

/**
 * Make the state of a snapshot the pool's, inside a write transaction that has changed nothing
 * else: its generations, moments and usage, so that the root hash is that of the commit
 * the snapshot is of (CORRUPT when it is not; commit with the snapshot's step and stream_bytes).
 * Live sources are at their positions of that time, and the scheduler continues with the same
 * queue. Meta, timeline, series and the rest of the journal stay as they are (see
 * reef_journal_move). The snapshot itself stays.
 *
 * keep_as  keep the present state as a snapshot of that name, with copies of the sealed generations
 *          that go; NULL: not at all, and snapshots that need one of these, or whose record is
 *          damaged, are removed
 * plan     written: what was done
 *
 * Errors: NOT_FOUND; INVALID with keep_as: it cannot be a name, or a snapshot needs what would go;
 * FULL.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_restore(
    reef_txn *txn, const char *name, const char *keep_as, reef_restore_plan *plan, reef_error *err);

#endif
