// What happened to a pool, as JSON: the same events and incidents for the command line, the daemon
// and the library.
#ifndef REEF_TIMELINE_JSON_H
#define REEF_TIMELINE_JSON_H

#include "reef_trainer.h"

#include <jansson.h>

/**
 * Append every event of the timeline to the array `events`, oldest first; what a restore undid has
 * a member "undone", true. CORRUPT an event that is not JSON.
 */
REEF_MUST_CHECK reef_status reef_timeline_json(reef_txn *txn, json_t *events, reef_error *err);
/**
 * Incidents that rang, in the order in which they began, each as its last event of the timeline has
 * it, with `decision` and `muted_until` where a person said something of it. Errors: as above.
 */
REEF_MUST_CHECK reef_status reef_incidents_json(reef_txn *txn, json_t *incidents, reef_error *err);
/**
 * The first change of an incident's state, as the timeline has it, of the events from number *next
 * on: *next becomes its number, and it is the caller's. NULL: there is none, and *next is that of
 * the event to come. Damaged events are passed over. Errors: as reef_record_view.
 */
REEF_MUST_CHECK reef_status reef_incident_change(reef_txn *txn,
                                                 uint64_t *next,
                                                 json_t **out,
                                                 reef_error *err);

#endif
