// Lengths of time as people type them.
#ifndef REEF_TIME_SPAN_H
#define REEF_TIME_SPAN_H

#include "cli.h"

/** "90s", "10m", "1h", "30d", "2w"; *out keeps its value where the option is not given. INVALID for
 * anything else. */
REEF_MUST_CHECK reef_status reef_time_span_read(const reef_cli_call *cli,
                                                const char *option,
                                                uint32_t *out,
                                                reef_error *err);

#endif
