// reef-lab: measurements of Reef's parts, for docs/RESULTS.md. What its commands share.
#ifndef REEF_LAB_H
#define REEF_LAB_H

#include "cli.h"
#include "cli_format.h"
#include "reef_router.h"

#include <stddef.h>
#include <stdint.h>

#define LAB_REPEAT_MAX 1000
#define LAB_SIDE_MAX 16384 // of 268 million experts

// One file lab_<name>.c each.
#define LAB_COMMANDS(X)                                                                            \
    X(peer)                                                                                        \
    X(scale)                                                                                       \
    X(step)                                                                                        \
    X(usage)                                                                                       \
    X(report)                                                                                      \
    X(flops)                                                                                       \
    X(context)                                                                                     \
    X(stream)

#define LAB_DECLARE(command)                                                                       \
    REEF_MUST_CHECK reef_status reef_lab_##command(reef_cli_call *cli, reef_error *err);           \
    extern const reef_cli_manual reef_lab_##command##_manual;
LAB_COMMANDS(LAB_DECLARE)
#undef LAB_DECLARE

/** Median of `count` doubles that lie `stride` doubles apart. */
double reef_lab_median(const double *values, size_t count, size_t stride);

/**
 * The options --heads, --topk, --d-key, --d-model, --tokens and --repeat over what the arguments
 * hold. The side is the caller's, and so is checking the whole.
 */
REEF_MUST_CHECK reef_status reef_lab_shape_read(const reef_cli_call *cli,
                                                reef_router_shape *shape,
                                                size_t *tokens,
                                                uint64_t *repeat,
                                                reef_error *err);

/** A net alone, in one generation, with the fields of --model; checked as a whole. */
REEF_MUST_CHECK reef_status reef_lab_model_read(const reef_cli_call *cli,
                                                reef_config *config,
                                                reef_error *err);

/** INVALID if an open layer of this shape takes more than the machine's memory. */
REEF_MUST_CHECK reef_status reef_lab_memory_check(const reef_router_shape *shape, reef_error *err);

/** "avx2 kernels, OpenBLAS for Zen, 2 threads", printed as the first line of every answer. */
void reef_lab_machine_print(size_t threads);
/** The same as members of a document. */
void reef_lab_machine_json(json_t *document, size_t threads);

// ---- lab_rival.c --------------------------------------------------------------------------------

/**
 * Run `/usr/bin/python3 arguments...` (the first is the script; ends with NULL) to its end. *text
 * is what it printed, at most 64 KiB of it, the caller's; its standard error is ours.
 *
 * Errors: NOT_FOUND the script cannot be read; IO it could not be run, or failed.
 */
REEF_MUST_CHECK reef_status reef_lab_python_run(char **text,
                                                const char *const *arguments,
                                                reef_error *err);

#endif
