// How far a long job is.
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

#endif
