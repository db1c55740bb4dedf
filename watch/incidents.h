// Events that are near to each other are one incident; which of them a person hears of.
//
// What is new in one source goes on to be new for a while: behind a deployment each of its messages
// comes a first time. So an incident that began with a new type of line takes further news of its
// source for two hours, other than errors. Several incidents can be open.
#ifndef REEF_INCIDENTS_H
#define REEF_INCIDENTS_H

#include "reef_watch.h"

#define REEF_INCIDENT_DAYS 14   // whose incidents set the threshold
#define REEF_INCIDENTS_MAX 1024 // of those days that are kept for it
#define REEF_INCIDENTS_OPEN_MAX 8
#define REEF_TOLD_MAX 256
#define REEF_TOLD_TYPES_MAX 16

/** An incident of a day, as rare as it became. */
typedef struct reef_past_incident {
    int64_t ms;
    double bits;
} reef_past_incident;

typedef struct reef_open_incident {
    reef_incident incident; // number 0: none
    int64_t news_ms;        // of its last event
    uint32_t source;        // whose new type of line began it; UINT32_MAX: something else did
} reef_open_incident;

/** An incident that rang, and the types of its lines. */
typedef struct reef_told_incident {
    uint64_t number; // 0: none
    uint64_t types[REEF_TOLD_TYPES_MAX];
    uint32_t type_count;
} reef_told_incident;

typedef struct reef_incidents {
    reef_told_incident told[REEF_TOLD_MAX]; // that with number n at n modulo their count
    reef_open_incident open[REEF_INCIDENTS_OPEN_MAX];
    uint64_t number;  // of the last one
    int64_t first_ms; // when judging began; 0: not yet
    reef_past_incident past[REEF_INCIDENTS_MAX];
    size_t past_count;
    uint32_t gap_s;
    double budget;
    reef_incident_heard *heard;
    void *context;
    uint64_t rung;
} reef_incidents;

/**
 * Something new. The event's texts become the incident's, or are freed.
 *
 * number  of its incident
 * index   of the event in that; UINT32_MAX: it is only counted
 *
 * Errors: NO_MEMORY: it is only counted.
 */
REEF_MUST_CHECK reef_status reef_incidents_add(
    reef_incidents *all, reef_event *event, uint64_t *number, uint32_t *index, reef_error *err);

/** One that rang, of the last; NULL: it is none of them. */
const reef_told_incident *reef_incidents_told(const reef_incidents *all, uint64_t number);

/** The open incident of that number; NULL: it is none. */
reef_open_incident *reef_incidents_find(reef_incidents *all, uint64_t number);

/** Event `index` of an open incident has more lines. */
void reef_incidents_repeat(reef_open_incident *open,
                           uint32_t index,
                           uint32_t lines,
                           int64_t time_ms);

/** It is so late: some may have ended. */
void reef_incidents_advance(reef_incidents *all, int64_t time_ms);

/** End what is open: one, or all. */
void reef_incidents_end(reef_incidents *all);

void reef_incidents_release(reef_incidents *all);

#endif
