// Sizes of a new pool by one word or by memory, and how fast this machine trains it.
#ifndef REEF_INIT_SIZE_H
#define REEF_INIT_SIZE_H

#include "cli.h"

/** What was chosen, and why; all-zero where every size was left to the configuration. */
typedef struct reef_init_size {
    const char *name;          // "small", "medium" or "large"; NULL: nothing was chosen
    uint64_t budget_bytes;     // of --memory; 0: none was given
    uint64_t memory_bytes;     // that training takes, as estimated
    uint64_t generation_bytes; // that one more sealed generation adds
} reef_init_size;

/**
 * The configuration that the options ask for: sizes of --size, or the largest that fit --memory,
 * and over them what else is given. Errors: INVALID an unknown size, both at once, or too little
 * memory for the smallest.
 */
REEF_MUST_CHECK reef_status reef_init_configure(const reef_cli_call *cli,
                                                reef_config *config,
                                                reef_init_size *size,
                                                reef_error *err);

/** What training steps were measured to cost here. */
typedef struct reef_init_probe {
    uint64_t steps, bytes; // trained
    double seconds;
    uint64_t memory_bytes; // that the process grew by
} reef_init_probe;

/** Train a temporary pool of this configuration on made-up data for two seconds of steps. */
REEF_MUST_CHECK reef_status reef_init_probe_run(const reef_config *config,
                                                size_t threads,
                                                reef_init_probe *probe,
                                                reef_error *err);

#endif
