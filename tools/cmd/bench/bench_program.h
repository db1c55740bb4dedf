// Another program, run to its end for what it prints.
#ifndef REEF_BENCH_PROGRAM_H
#define REEF_BENCH_PROGRAM_H

#include "reef_error.h"

/**
 * Run `arguments` (first the program, found as a shell finds it; last NULL) to its end. *text is
 * what it printed on both outputs, at most 64 KiB of it, the caller's; NULL when it did not end
 * well. It gets no input.
 *
 * name  what messages call it
 * Errors: NOT_FOUND if there is no such program; IO if it could not be run, failed, or took more
 * than half an hour and was stopped. The message has the last line that it printed.
 */
REEF_MUST_CHECK reef_status reef_bench_program_run(char **text,
                                                   const char *name,
                                                   char **arguments,
                                                   reef_error *err);

/** The last line that is not empty, as any terminal shows it; on the heap. */
char *reef_bench_last_words(const char *text);

#endif
