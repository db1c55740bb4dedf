// States that the daemon keeps by the clock: what their snapshots are called (such as
// auto-20261116T120000Z), and which of them stay.
#ifndef REEF_KEPT_STATES_H
#define REEF_KEPT_STATES_H

#include "reef_store.h"

/**
 * Of so many hours, days and weeks the last state stays; hours without one do not count. Days and
 * weeks (from Monday) are local ones.
 */
typedef struct reef_keep_policy {
    uint32_t hourly, daily, weekly;
} reef_keep_policy;

#define REEF_KEEP_DEFAULT "hourly=24,daily=30,weekly=52"

/** Read "hourly=24,daily=30,weekly=52"; what is left out is 0. INVALID says what is wrong. */
REEF_MUST_CHECK reef_status reef_keep_parse(reef_keep_policy *out,
                                            const char *text,
                                            reef_error *err);

/**
 * Which states stay; the newest always does.
 *
 * unix_ms  (count) when they were made, oldest first
 * kept     (count) written
 */
void reef_keep_choose(const reef_keep_policy *policy,
                      const uint64_t *unix_ms,
                      size_t count,
                      bool *kept);

/**
 * Is a state due at `now_ms` that was to be kept at `due_ms`? Also where the clock was set back, and
 * would not reach that time for more than a period.
 */
bool reef_keep_is_due(uint64_t due_ms, uint64_t now_ms, uint64_t every_ms);

/** The name of a snapshot that is made at this time. */
void reef_keep_name(char out[REEF_NAME_BYTES_MAX + 1], uint64_t unix_ms);
/** Is it such a name? Other snapshots are people's, and stay. */
bool reef_keep_has_name(const char *name);

#endif
