// Incidents as JSON.
#ifndef REEF_WATCH_JSON_H
#define REEF_WATCH_JSON_H

#include "reef_watch.h"

#include <jansson.h>

/** What a source is called, lent. */
typedef const char *reef_source_name(const void *context, uint32_t source);

/** {"incident", "state", "rings", "first_time", ..., "events"}, the rarest event first; NULL: no
 * memory. */
json_t *reef_incident_json(const reef_incident *incident,
                           reef_source_name *name_of,
                           const void *context);

#endif
