// Alarms: incidents that ring leave the machine, for a command or a web hook.
//
//   trainer's thread  commits events of the timeline: an incident begins to ring, or has ended
//   loop              pokes after a commit
//   a thread a way    reads the timeline behind its place, delivers, notes its place in a file
//
// A way's place is noted once the receiver has taken an alarm, so each is delivered once, in order,
// over restarts and while a receiver is away. Only where the daemon is killed between the two is
// one delivered twice, the same to the byte.
//
// Lines that were over a day old when they were judged are history that is read in: what they rang
// is in the pool, and goes nowhere.
#ifndef REEF_ALARMS_H
#define REEF_ALARMS_H

#include "reef_log.h"
#include "reef_store.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum reef_alarm_way {
    REEF_ALARM_EXEC, // a command of the shell, with the incident as JSON on its standard input
    REEF_ALARM_HOOK, // a POST in Alertmanager's format
    REEF_ALARM_WAY_COUNT
} reef_alarm_way;

typedef struct reef_alarms reef_alarms;

typedef struct reef_alarms_options {
    reef_store *store; // outlives the alarms, as does all else
    const char *exec;  // or NULL
    const char *hook;  // or NULL
    reef_report *report;
} reef_alarms_options;

/** What became of alarms since the daemon began. */
typedef struct reef_alarm_view {
    bool used;
    uint64_t delivered, failures; // of attempts
    uint64_t refused;             // a receiver said that it will never take it
    uint64_t past;                // of history, not sent
    char error[256];              // why the next one waits; empty: none does
} reef_alarm_view;

const char *reef_alarm_way_name(reef_alarm_way way);

/**
 * Start a thread for each way that is given. A way that is used for the first time begins with what
 * is committed from now on.
 *
 * out  NULL where no way is given, which all else here accepts
 *
 * Errors: NO_MEMORY, CORRUPT and IO of a noted place.
 */
REEF_MUST_CHECK reef_status reef_alarms_start(reef_alarms **out,
                                              const reef_alarms_options *options,
                                              reef_error *err);
/** Something was committed. Any thread. */
void reef_alarms_poke(reef_alarms *alarms);
/** Deliver what waits, but for a few seconds at most and only once; then end and free. */
void reef_alarms_stop(reef_alarms *alarms);
/** Any thread. Without alarms no way is used. */
void reef_alarms_view_read(reef_alarms *alarms, reef_alarm_way way, reef_alarm_view *out);

#endif
