// Incidents, and options of a watch, as JSON.
#ifndef REEF_WATCH_JSON_H
#define REEF_WATCH_JSON_H

#include "reef_watch.h"

#include <jansson.h>

/** Where a line lies, in words: lent. */
typedef struct reef_line_place {
    const char *source; // what it is called
    const char *file;   // of the source; NULL: it is none, or there is only one
    uint64_t offset;    // in the file; without one in the source
} reef_line_place;

/** Find the place of `out->offset` in a source; `file` is set where the event has it. */
typedef void reef_line_place_of(const void *context, uint32_t source, reef_line_place *out);

/** {"incident", "state", "rings", "first_time", ..., "events"}, the rarest event first; NULL: no
 * memory. */
json_t *reef_incident_json(const reef_incident *incident,
                           reef_line_place_of *place_of,
                           const void *context);

/** {"budget", "gap_s", "quiet_s", "forget_days"}; NULL: no memory. */
json_t *reef_watch_options_json(const reef_watch_options *options);

#endif
