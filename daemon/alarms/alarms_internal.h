// The inside of alarms.h:
//
//   alarms.c       the threads: what is next, and trying again
//   alarm_place.c  how far a way has come, in a file of the pool
//   alarm_exec.c   one delivery to a command
//   alarm_hook.c   one delivery over HTTP
//   alert_json.c   an incident as Alertmanager has it
#ifndef REEF_ALARMS_INTERNAL_H
#define REEF_ALARMS_INTERNAL_H

#include "alarms.h"

#include <jansson.h>
#include <stddef.h>

#define ALARM_ATTEMPT_SECONDS 30 // for one delivery

/** How far a way has come. */
typedef struct alarm_place {
    char *path;    // POOL/alarm-WAY.json
    uint64_t next; // of the timeline
    json_t *told;  // severities by number: incidents whose beginning was delivered, and no end yet
} alarm_place;

/**
 * Read it; where none is noted, begin at `end`, and note that. A place beyond `end` is of a newer
 * copy of the pool: it becomes `end`.
 *
 * Errors: NO_MEMORY, IO, CORRUPT.
 */
REEF_MUST_CHECK reef_status alarm_place_open(
    alarm_place *out, const char *pool, const char *way, uint64_t end, reef_error *err);
/** Note it: the old place or the new one is in the file, whatever ends the process. IO. */
REEF_MUST_CHECK reef_status alarm_place_save(const alarm_place *place, reef_error *err);
void alarm_place_release(alarm_place *place);

/** Asked during a delivery: shall it be given up? */
typedef bool alarm_gives_up(void *context);

typedef struct alarm_delivery {
    const char *to;          // the command, or the URL
    const json_t *incident;  // as the timeline has it, and `pool`
    const char *severity;    // when it began
    uint64_t sequence;       // of the event in the timeline: names this change of state
    alarm_gives_up *give_up; // NULL: never
    void *context;
} alarm_delivery;

/**
 * Run the command and wait for its end. Errors: IO it could not be run, failed, or took too long;
 * BUSY given up.
 */
REEF_MUST_CHECK reef_status alarm_exec(const alarm_delivery *delivery, reef_error *err);
/**
 * POST it. Errors: INVALID the receiver will never take this one; IO it did not now; BUSY as
 * above.
 */
REEF_MUST_CHECK reef_status alarm_hook(const alarm_delivery *delivery, reef_error *err);

/**
 * An incident in Alertmanager's words: the list of alerts that its /api/v2/alerts takes or, with
 * `for_receiver`, what it sends to web hooks (version 4). NULL without memory.
 */
json_t *alert_json(const alarm_delivery *delivery, bool for_receiver);

#endif
