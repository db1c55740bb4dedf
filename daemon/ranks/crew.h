// The ranks of one training, as processes that mpirun started: `mpirun -n R reefd --pool DIR`.
//
//   rank 0        is the daemon: sources, sockets, commands; it passes its trainer's orders on
//   ranks 1 ..    have a trainer on DIR/rank-K, follow what rank 0 says, and share the net's steps
//
// Each rank has its shard of one divided pool (`reef shards`). A kind's memory is learned by each
// rank from the same bytes, which costs the time of one and sends nothing. Before anything is
// trained the ranks meet and compare what they are and have; see reef_crew_meet.
//
// With `--join-every` each rank is a daemon instead, and a trainer of its own: see joins.h.
//
// Without MPI in the build, or without mpirun, the crew is NULL, and these calls do nothing.
//
// Threads: begin, meet and end on the process's first thread; what tells, feeds and gathers on the
// trainer's; figures are read on any.
#ifndef REEF_CREW_H
#define REEF_CREW_H

#include "reef_kinds.h"
#include "reef_log.h"
#include "reef_settings.h"
#include "reef_snapshot.h"
#include "reef_states.h"
#include "reef_trainer.h"
#include "reef_usage.h"

#include <jansson.h>

typedef struct reef_crew reef_crew;

/**
 * Join the others, where mpirun started this process; else *out is NULL. `report` outlives it.
 *
 * Errors: INVALID mpirun started it and the build has no MPI; those of reef_mpi_begin.
 */
REEF_MUST_CHECK reef_status reef_crew_begin(reef_crew **out,
                                            const reef_options *options,
                                            reef_report *report,
                                            reef_error *err);

/** DIR/rank-K, as long as the crew; NULL without one. */
const char *reef_crew_pool(const reef_crew *crew);
bool reef_crew_follows(const reef_crew *crew); // is it a rank above 0, with a part of one training?
bool reef_crew_is_apart(const reef_crew *crew); // do ranks learn apart, and join?
size_t reef_crew_rank(const reef_crew *crew);   // 0 without one
reef_ranks *reef_crew_ranks(const reef_crew *crew);

/** For one process alone. INVALID, with the command to run, if `pool` holds shards. */
REEF_MUST_CHECK reef_status reef_crew_check_alone(const char *pool, reef_error *err);

/**
 * Compare with the others, before anything is written: version and kernels of the program, the
 * pool's configuration, whose shard it is, epoch, position in the stream, root. A rank that made
 * one commit more than rank 0 steps back. With join-every, equal pools begin a new training: copies
 * of one. Every rank calls it, one that failed before with its error.
 *
 * store   (in, out) open for writing, or NULL after a failure; opened again by a rank that stepped
 *         back
 * status  what this rank ends with so far, and `err` why
 * shard   written: for the trainer's options
 *
 * Errors: those of the first rank with one, named; rank 0 reports it.
 */
REEF_MUST_CHECK reef_status reef_crew_meet(
    reef_crew *crew, reef_store **store, reef_status status, reef_shard *shard, reef_error *err);

/**
 * After all have met: the same outcome on every rank, that of the first one that failed, named.
 */
REEF_MUST_CHECK reef_status reef_crew_agree(reef_crew *crew, reef_status status, reef_error *err);

typedef enum reef_crew_kind {
    REEF_CREW_STILL_HERE, // nothing to do; says so before the others give rank 0 up
    REEF_CREW_FEED,       // the payload: bytes of the source `name`; returns after a step
    REEF_CREW_COMMIT,
    REEF_CREW_SEAL,
    REEF_CREW_GROW,
    REEF_CREW_FREEZE,
    REEF_CREW_KIND_NAME,
    REEF_CREW_DECIDE,
    REEF_CREW_WATCH,
    REEF_CREW_PRUNE,
    REEF_CREW_SNAPSHOT,
    REEF_CREW_SNAPSHOT_REMOVE, // the payload: names
    REEF_CREW_POOL_MAX,
    REEF_CREW_COMPACT,
    REEF_CREW_END
} reef_crew_kind;

/** What the trainer of every rank is to do; fields as of the call of reef_trainer.h. */
typedef struct reef_crew_order {
    reef_crew_kind kind;
    bool dry_run;
    uint32_t number; // side, kind, how many
    uint64_t pool_max;
    uint64_t payload_bytes;
    uint64_t incident, for_s;
    reef_decision decision;
    reef_watch_options watch; // what changes of it
    reef_freeze freeze;
    char seal_dtype[8];
    char name[REEF_NAME_BYTES_MAX * 4];
    char file[REEF_WATCH_FILE_BYTES_MAX + 1]; // feed; empty: none
    uint64_t file_offset;
} reef_crew_order;

#define REEF_CREW_FEED_BYTES_MAX 8192 // of an order: what is not taken is sent again

/** What came of an order, by its kind. */
typedef struct reef_crew_result {
    size_t taken, steps; // feed
    reef_commit commit;  // commit
    uint64_t changed;    // freeze
    size_t types;        // decide
    reef_watch_options watch;
    reef_sealing sealing;
    reef_pruning pruning;
    reef_snapshot snapshot;
    reef_usage_compaction compaction;
} reef_crew_result;

/** Tell the others; then the caller does the same itself. `payload` may be NULL. */
void reef_crew_tell(reef_crew *crew, reef_crew_order order, const void *payload, size_t bytes);
/**
 * Carry out an order on every rank: tell the others, then apply it to this rank's trainer. Without
 * a crew only this trainer is used. Errors: those of the function of reef_trainer.h.
 */
REEF_MUST_CHECK reef_status reef_crew_do(reef_crew *crew,
                                         reef_trainer *trainer,
                                         const reef_crew_order *order,
                                         const void *payload,
                                         size_t bytes,
                                         reef_crew_result *out,
                                         reef_error *err);
/** Seconds in which something has to be told. */
double reef_crew_patience(const reef_crew *crew);

/** Of ranks above 0: do what rank 0 says, until it says that this was all. */
void reef_crew_follow(reef_crew *crew, reef_trainer *trainer);

// ---- figures ------------------------------------------------------------------------------------

/** Before the first order; every rank. This and the calls below accept a NULL crew. */
void reef_crew_begin_figures(reef_crew *crew, const reef_trainer *trainer);
/** What was gathered last; NULL without a crew. */
json_t *reef_crew_json(reef_crew *crew);

/** End all ranks because of something that only this one met; does not return. */
_Noreturn void reef_crew_fail(reef_crew *crew, const reef_error *err);

/** Leave together: rank 0 tells the others to. Accepts NULL. */
void reef_crew_end(reef_crew *crew);

#endif
