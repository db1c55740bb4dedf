// Events of the trainer, kept until the next commit writes them.
#ifndef REEF_EVENTS_H
#define REEF_EVENTS_H

#include "trainer_internal.h"

/** Record an event: `fields` is printf-formatted JSON members after the common ones, or "". */
REEF_MUST_CHECK reef_status
reef_state_event(reef_trainer *trainer, reef_error *err, const char *event, const char *fields, ...)
    __attribute__((format(printf, 4, 5)));

/** Drop all events but the first `count`: the transaction that reports the others was aborted. */
void reef_state_drop_events(reef_trainer *trainer, size_t count);

#endif
