// What a person says of an incident, and how much is to ring. Both are part of the state of the
// watch, and events of the timeline.
#include "events.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <stdio.h>

static reef_status need_watch(const reef_trainer *trainer, reef_error *err) {
    if (trainer->watching.watch != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "this pool watches no lines: reef init POOL --watch true makes one that does");
}

reef_status reef_trainer_decide(reef_trainer *trainer,
                                uint64_t incident,
                                reef_decision decision,
                                uint64_t for_s,
                                size_t *types,
                                reef_error *err) {
    *types = 0;
    int64_t until_ms = 0;
    char until[48] = "";
    reef_status status = need_watch(trainer, err);
    if (status == REEF_OK)
        status = reef_watch_decide(trainer->watching.watch, incident, decision, for_s, types,
                                   &until_ms, err);
    if (until_ms != 0)
        snprintf(until, sizeof(until), ", \"muted_until\": %.3f", (double)until_ms / 1000.0);
    if (status == REEF_OK)
        status = reef_state_event(trainer, err, "incident_decided",
                                  "\"incident\": %" PRIu64
                                  ", \"decision\": \"%s\", \"for_s\": %" PRIu64 "%s",
                                  incident, reef_decision_name(decision), for_s, until);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

reef_status reef_trainer_watch_change(reef_trainer *trainer,
                                      const reef_watch_options *change,
                                      reef_watch_options *out,
                                      reef_error *err) {
    *out = (reef_watch_options){0};
    reef_status status = need_watch(trainer, err);
    if (status == REEF_OK) status = reef_watch_change(trainer->watching.watch, change, err);
    if (status != REEF_OK) return status;
    reef_watch_read_options(trainer->watching.watch, out);
    status = reef_state_event(trainer, err, "watch_changed",
                              "\"budget\": %.17g, \"gap_s\": %" PRIu32 ", \"quiet_s\": %" PRIu32
                              ", \"forget_days\": %" PRIu32,
                              out->budget, out->gap_s, out->quiet_s, out->forget_days);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}
