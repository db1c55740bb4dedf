// Lengths of time, and how many a day, as people type them.
#ifndef REEF_TIME_SPAN_H
#define REEF_TIME_SPAN_H

#include "cli.h"

/** "90s", "10m", "1h", "30d", "2w"; `what` is named in the error. INVALID for anything else. */
REEF_MUST_CHECK reef_status reef_time_span_parse(const char *what,
                                                 const char *text,
                                                 uint32_t *out,
                                                 reef_error *err);

/** The same of an option; *out keeps its value where it is not given. */
REEF_MUST_CHECK reef_status reef_time_span_read(const reef_cli_call *cli,
                                                const char *option,
                                                uint32_t *out,
                                                reef_error *err);

/** "30d", "4w": whole days. */
REEF_MUST_CHECK reef_status reef_days_parse(const char *what,
                                            const char *text,
                                            uint32_t *out,
                                            reef_error *err);

/** "5/day", "0.5" incidents a day; as above. */
REEF_MUST_CHECK reef_status reef_budget_parse(const char *what,
                                              const char *text,
                                              double *out,
                                              reef_error *err);

#endif
