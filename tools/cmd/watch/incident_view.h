// An incident for people, in a terminal of 80 columns.
#ifndef REEF_INCIDENT_VIEW_H
#define REEF_INCIDENT_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/**
 * Print one, as reef_incident_json has it.
 *
 * events  at most so many of it
 */
void reef_incident_print(const json_t *incident, size_t events, bool colours);

#endif
