// Trainings by several processes, the ranks, on one machine: what one run of mpirun costs, and the
// least that its ranks have to send each other.
#ifndef REEF_BENCH_RANKS_H
#define REEF_BENCH_RANKS_H

#include "reef_store.h"
#include "reef_trainer.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_RANKS_MAX 16

/** What is trained, always the same. */
typedef struct reef_ranks_plan {
    const reef_config *config;
    const char *directory; // for pools
    const char *text;      // a file, of at least steps * step_tokens + context bytes
    const char *reefd;     // the program
    uint64_t commit_steps; // from one commit to the next
    uint64_t step_tokens;  // of the stream
    bool divided;          // each of several ranks has a part of the rows of experts
} reef_ranks_plan;

// name in replies, what it is
#define REEF_RANKS_TIME_LIST(X)                                                                    \
    X(computing)                                                                                   \
    X(packing)    /* between arrays and messages */                                                \
    X(waiting)    /* for the network and other ranks */                                            \
    X(telling)    /* bytes of the stream and commands */                                           \
    X(committing) /* with the wait for the others' commits */

/** One run, as rank 0 sees it, in seconds of it where nothing else is said. */
typedef struct reef_ranks_run {
    uint64_t steps;
    double step_seconds;          // computing, packing and waiting of a step
    double cpu_seconds;           // of a step, of the rank that took most
    double sent_bytes, exchanges; // of a step
    struct {
#define REEF_RANKS_TIME_FIELD(name) double name;
        REEF_RANKS_TIME_LIST(REEF_RANKS_TIME_FIELD)
#undef REEF_RANKS_TIME_FIELD
    } seconds;
    double memory_peak_bytes[BENCH_RANKS_MAX]; // of each rank
    char root[2 * REEF_HASH_BYTES + 1];
} reef_ranks_run;

/**
 * Train a new pool with `ranks` processes of one thread.
 *
 * Errors: NOT_FOUND there is no mpirun; IO it failed, with what the first rank that failed said.
 */
REEF_MUST_CHECK reef_status reef_bench_ranks_run(const reef_ranks_plan *plan,
                                                 size_t ranks,
                                                 reef_ranks_run *out,
                                                 reef_error *err);

/**
 * The least that rank 0 has to send in a step, as windows and gradients are shared out now: see
 * OPERATING.md, "What the network must give". Of models of dense networks and experts before the
 * first boundary, where all have all rows; NAN of others.
 */
double reef_bench_ranks_least_bytes(const reef_config *config, size_t ranks);

#endif
