// What a person says of an incident: part of what is known of lines, and an event.
#include "events.h"
#include "trainer_internal.h"

#include <inttypes.h>

reef_status reef_trainer_decide(reef_trainer *trainer,
                                uint64_t incident,
                                reef_decision decision,
                                uint64_t for_s,
                                size_t *types,
                                reef_error *err) {
    *types = 0;
    if (trainer->watching.watch == NULL)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "this pool watches no lines: reef init POOL --watch true makes one that does");
    reef_status status =
        reef_watch_decide(trainer->watching.watch, incident, decision, for_s, types, err);
    if (status == REEF_OK)
        status =
            reef_state_event(trainer, err, "incident_decided",
                             "\"incident\": %" PRIu64 ", \"decision\": \"%s\", \"for_s\": %" PRIu64,
                             incident, reef_decision_name(decision), for_s);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}
