// The threshold above which lines or sessions are alarms, set by what a pool has learned.
#ifndef REEF_ALARM_H
#define REEF_ALARM_H

#include "cli_pool.h"
#include "sessions.h"

typedef struct reef_alarm {
    double percent;   // of what was learned that may lie above the threshold
    double threshold; // an alarm has a higher score
    size_t learned;   // lines or sessions that it was set on
} reef_alarm;

/**
 * Read --alarms: above 0 % and below 100 %. *given is whether it was; the rest of `out` is 0.
 */
REEF_MUST_CHECK reef_status reef_alarm_read(reef_alarm *out,
                                            bool *given,
                                            const reef_cli_call *cli,
                                            reef_error *err);
/**
 * Set the threshold on the learned lines (reef_learned_text_score), or on their sessions. The
 * lowest one that at most `percent` of them exceed.
 *
 * sessions  NULL: lines
 *
 * Errors: INVALID the pool keeps no line of what it learned, or none in which `sessions` matches.
 */
REEF_MUST_CHECK reef_status reef_alarm_set(reef_alarm *alarm,
                                           const reef_cli_call *cli,
                                           reef_model *model,
                                           reef_store *store,
                                           const regex_t *sessions,
                                           reef_error *err);
/** The threshold, and how many alarms there were, as JSON. */
json_t *reef_alarm_json(const reef_alarm *alarm, uint64_t count);

#endif
