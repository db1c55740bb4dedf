// What both programs do before they compute anything.
#ifndef REEF_PROCESS_H
#define REEF_PROCESS_H

#include "reef_error.h"

#include <stdbool.h>

/**
 * Call first: no file gets the number of a standard descriptor that is closed, and from here on the
 * program says so and ends with the exit code of REEF_ERR_NO_MEMORY when memory runs out while JSON
 * is read or written, which could otherwise be cut short without a word.
 *
 * name  of the program, for that message; it stays
 */
REEF_API void reef_program_begin(const char *name);

/**
 * What this file says when the program ends: as one JSON object, or with the journal's prefix of an
 * error.
 */
REEF_API void reef_program_log(bool json, bool journal);

/** Choose the kernels that REEF_ISA names; empty or unset: the best that this CPU runs. */
REEF_API REEF_MUST_CHECK reef_status reef_program_choose_kernels(reef_error *err);

/**
 * LMDB believes the pages of a pool, so a damaged one can end the process by a signal. From now on
 * such an end is one line that says so and points to `reef verify`, and exit code 65. The pool is
 * as its last commit left it, as after a kill. Call it when it is clear which pool is used; later
 * calls change nothing.
 */
REEF_API void reef_program_guard(const char *program, const char *pool);

// ---- niceness -----------------------------------------------------------------------------------
//
// Niceness of the threads of reefd. A client waits for its reply, so the loop and queries keep that
// of the process. Training, and opening a newer state for queries, give way to them. Checks of what
// is stored give way to all others.

#define REEF_NICENESS_TRAINING 5
#define REEF_NICENESS_CHECK 10

#endif
