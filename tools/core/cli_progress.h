// Long jobs: how far they are, on standard error; and signals that ask them to end, of which the
// first one is noticed between two pieces of work, and the second one ends the process at once.
#ifndef REEF_CLI_PROGRESS_H
#define REEF_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/** A bar on standard error, only on a terminal and only for what takes more than two seconds. */
typedef struct reef_cli_progress {
    const char *label;
    uint64_t done_before; // of the jobs before this one
    uint64_t total;
    const char *unit; // "B" for bytes, otherwise a word
    double started, drawn;
    bool terminal, visible;
} reef_cli_progress;

void reef_cli_progress_start(reef_cli_progress *progress,
                             const char *label,
                             uint64_t total,
                             const char *unit);
void reef_cli_progress_show(reef_cli_progress *progress, uint64_t done);
/** Wipe the bar. */
void reef_cli_progress_end(reef_cli_progress *progress);

/**
 * Catch INT and TERM. With `hangup` also HUP, and signals that this process ignores stay ignored:
 * so nohup works. Call it once.
 */
void reef_cli_catch_signals(bool hangup);
/** Did a signal come? Any thread. */
bool reef_cli_is_stopped(void);
/** End as by the signal that came, if one did, so that a loop of a shell stops too. */
void reef_cli_end_as_signalled(void);

#endif
