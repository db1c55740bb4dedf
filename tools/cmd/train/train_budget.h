// Training until a budget of FLOPs is spent: what `reef train --flops` and the cells of an
// experiment do.
#ifndef REEF_TRAIN_BUDGET_H
#define REEF_TRAIN_BUDGET_H

#include "cli.h"

typedef struct reef_train_budget {
    double flops;          // of all that the pool is trained
    double commit_seconds; // between two commits; 0: the default
    bool dry_run;          // check and count, train nothing: the store may be open for reading only
    size_t threads;
    uint64_t memory_bytes;
    bool (*stopped)(void); // asked between steps: true commits and ends; may be NULL
    void (*progress)(void *context, double share); // of the budget, after each step; may be NULL
    void *context;
} reef_train_budget;

/** What has been spent. Rehearsed windows count in FLOPs and trained tokens, in all steps alike. */
typedef struct reef_train_spent {
    uint64_t steps, steps_planned; // of the pool
    uint64_t stream_bytes;         // of the pool
    uint64_t data_bytes;           // of all files together
    uint64_t other_bytes; // that the pool has read besides, of other files or by other commands
    uint64_t trained_tokens;
    double flops;
    double epochs;  // how often the files were trained on
    double seconds; // of this run
    bool finished;
} reef_train_spent;

/** Steps that a budget pays for: as many whole ones as fit, and one at least. */
uint64_t reef_train_budget_steps(const reef_flops *flops, double budget);

/**
 * Train the pool, which `store` has open for writing, on the files as one stream that begins again
 * where it ends, until the budget is spent. Continues from the pool's last commit. Commits at the
 * end, and when it is stopped.
 *
 * Errors: INVALID where FLOPs cannot be counted: a vector model, a policy that may defer, skip
 * or add to what is trained, more than one generation, or one that has grown; those of opening and
 * training.
 */
REEF_MUST_CHECK reef_status reef_train_budget_run(reef_store *store,
                                                  char **files,
                                                  size_t count,
                                                  const reef_train_budget *budget,
                                                  reef_train_spent *out,
                                                  reef_error *err);

/** `reef train --flops`: the command behind that option. `stopped` as above. */
REEF_MUST_CHECK reef_status reef_train_budget_command(reef_cli_call *cli,
                                                      bool (*stopped)(void),
                                                      reef_error *err);

json_t *reef_train_flops_json(const reef_flops *flops);

#endif
