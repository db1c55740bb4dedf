// Figures of a source `syslog:`, for those who report them.
#ifndef REEF_SYSLOG_COUNTS_H
#define REEF_SYSLOG_COUNTS_H

#include "reef_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Since the process started. */
typedef struct reef_syslog_counts {
    uint64_t dropped;   // messages that found no room
    uint64_t denied;    // messages, of TCP connections, of whom may not send or is one too many
    uint64_t cut;       // messages that were too long, or whose connection ended within
    size_t connections; // now
} reef_syslog_counts;

/** False if it is a source of another kind. */
bool reef_syslog_counts_read(const reef_input *input, reef_syslog_counts *out);

#endif
