// See incidents.h.
#include "incidents.h"
#include "rare_bits.h"

#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
#define RING_BITS_MIN 8.0
#define REPEAT_MS INT64_C(1800000) // behind its last event repeats keep an incident open so long
#define NEWS_GO_ON_MS INT64_C(7200000)
#define MORE_EVENTS_BITS 1.0 // for twice as many

// ---- the threshold ------------------------------------------------------------------------------

static int rarest_first(const void *a, const void *b) {
    double x = ((const reef_past_incident *)a)->bits, y = ((const reef_past_incident *)b)->bits;
    return (x < y) - (x > y);
}

static void forget_old(reef_incidents *all, int64_t now) {
    size_t kept = 0;
    for (size_t i = 0; i < all->past_count; i++)
        if (now - all->past[i].ms < REEF_INCIDENT_DAYS * DAY_MS) all->past[kept++] = all->past[i];
    all->past_count = kept;
}

// So rare was what the days before would have been allowed to ring for.
static double threshold(const reef_incidents *all, int64_t now) {
    double days =
        fmin(fmax((double)(now - all->first_ms) / (double)DAY_MS, 1.0), REEF_INCIDENT_DAYS);
    size_t allowed = (size_t)(days * all->budget);
    double least = RING_BITS_MIN;
    if (allowed < all->past_count && all->past[allowed].bits > least)
        least = all->past[allowed].bits;
    return least;
}

// ---- an incident --------------------------------------------------------------------------------

static void release_events(reef_incident *incident) {
    for (size_t i = 0; i < incident->event_count; i++) {
        free(incident->events[i].line);
        free(incident->events[i].nearest);
        free(incident->events[i].file);
    }
    free(incident->events);
}

static void end_one(reef_incidents *all, reef_open_incident *open) {
    reef_incident *incident = &open->incident;
    if (incident->number == 0) return;
    incident->is_open = incident->lingers = false;
    all->heard(all->context, incident);
    forget_old(all, incident->last_ms);
    if (all->past_count == REEF_INCIDENTS_MAX) all->past_count--;
    all->past[all->past_count++] = (reef_past_incident){incident->first_ms, incident->bits};
    qsort(all->past, all->past_count, sizeof(*all->past), rarest_first);
    release_events(incident);
    *open = (reef_open_incident){0};
}

void reef_incidents_end(reef_incidents *all) {
    // In the order in which they began.
    for (size_t ended = 0; ended < REEF_INCIDENTS_OPEN_MAX; ended++) {
        reef_open_incident *first = NULL;
        for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++) {
            reef_open_incident *open = &all->open[i];
            if (open->incident.number == 0) continue;
            if (first == NULL || open->incident.number < first->incident.number) first = open;
        }
        if (first != NULL) end_one(all, first);
    }
}

void reef_incidents_release(reef_incidents *all) {
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++) release_events(&all->open[i].incident);
}

// A clock may have been set back.
static bool is_near(const reef_incidents *all, const reef_open_incident *open, int64_t time_ms) {
    return llabs(time_ms - open->incident.last_ms) <= (int64_t)all->gap_s * 1000;
}

static bool goes_on(const reef_open_incident *open, int64_t time_ms) {
    return open->source != UINT32_MAX && llabs(time_ms - open->incident.first_ms) <= NEWS_GO_ON_MS;
}

// It is silent.
static void linger(reef_incidents *all, reef_incident *incident) {
    if (incident->lingers) return;
    incident->is_open = false;
    incident->lingers = true;
    all->heard(all->context, incident);
    incident->said = true;
}

void reef_incidents_advance(reef_incidents *all, int64_t time_ms) {
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++) {
        reef_open_incident *open = &all->open[i];
        if (open->incident.number == 0 || is_near(all, open, time_ms)) continue;
        if (goes_on(open, time_ms))
            linger(all, &open->incident);
        else
            end_one(all, open);
    }
}

reef_open_incident *reef_incidents_find(reef_incidents *all, uint64_t number) {
    for (size_t i = 0; number != 0 && i < REEF_INCIDENTS_OPEN_MAX; i++)
        if (all->open[i].incident.number == number) return &all->open[i];
    return NULL;
}

const reef_told_incident *reef_incidents_told(const reef_incidents *all, uint64_t number) {
    const reef_told_incident *told = &all->told[number % REEF_TOLD_MAX];
    return number != 0 && told->number == number ? told : NULL;
}

static void note_types(reef_incidents *all, const reef_incident *incident) {
    reef_told_incident *told = &all->told[incident->number % REEF_TOLD_MAX];
    if (told->number != incident->number) *told = (reef_told_incident){.number = incident->number};
    for (size_t i = 0; i < incident->event_count; i++) {
        bool known = false;
        for (uint32_t t = 0; t < told->type_count; t++)
            known |= told->types[t] == incident->events[i].type;
        if (!known && told->type_count < REEF_TOLD_TYPES_MAX)
            told->types[told->type_count++] = incident->events[i].type;
    }
}

static void ring(reef_incidents *all, reef_incident *incident) {
    if (!incident->rings && incident->bits < threshold(all, incident->first_ms)) return;
    note_types(all, incident);
    if (incident->rings) return;
    incident->rings = true;
    all->rung++;
    all->heard(all->context, incident);
}

// A free place; where there is none, the one that is silent for longest ends.
static reef_open_incident *begin(reef_incidents *all, const reef_event *event) {
    reef_open_incident *place = &all->open[0];
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++)
        if (all->open[i].incident.last_ms < place->incident.last_ms) place = &all->open[i];
    end_one(all, place);
    if (all->first_ms == 0) all->first_ms = event->first_ms;
    place->source = event->news == REEF_NEWS_TYPE ? event->source : UINT32_MAX;
    place->incident = (reef_incident){.number = ++all->number,
                                      .first_ms = event->first_ms,
                                      .last_ms = event->first_ms,
                                      .is_open = true};
    return place;
}

// The one that was heard of last, of those that an event belongs to.
static reef_open_incident *incident_of(reef_incidents *all, const reef_event *event) {
    const bool is_more = event->severity < REEF_SEVERITY_ERROR &&
                         (event->news == REEF_NEWS_TYPE || event->news == REEF_NEWS_WORD);
    reef_open_incident *found = NULL;
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++) {
        reef_open_incident *open = &all->open[i];
        if (open->incident.number == 0) continue;
        bool more = is_more && open->source == event->source && goes_on(open, event->first_ms);
        if (!more && !is_near(all, open, event->first_ms)) continue;
        if (found == NULL || open->incident.last_ms > found->incident.last_ms) found = open;
    }
    return found;
}

// As rare as its rarest event, and more so the more there are.
static double bits_of(const reef_incident *incident) {
    return incident->events[incident->rarest].bits +
           MORE_EVENTS_BITS * reef_log2_down((double)(incident->event_count + incident->more));
}

static reef_status keep(reef_incident *incident, reef_event *event, reef_error *err) {
    if (event->line == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a line");
    reef_event *events = realloc(incident->events, (incident->event_count + 1) * sizeof(*events));
    if (events == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for events");
    incident->events = events;
    events[incident->event_count] = *event;
    if (event->bits > events[incident->rarest].bits) incident->rarest = incident->event_count;
    incident->event_count++;
    event->line = event->nearest = event->file = NULL;
    return REEF_OK;
}

reef_status reef_incidents_add(
    reef_incidents *all, reef_event *event, uint64_t *number, uint32_t *index, reef_error *err) {
    reef_status status = REEF_OK;
    reef_open_incident *open = incident_of(all, event);
    if (open == NULL) open = begin(all, event);
    reef_incident *incident = &open->incident;
    if (event->last_ms > incident->last_ms) incident->last_ms = event->last_ms;
    open->news_ms = incident->last_ms;
    *number = incident->number;
    *index = (uint32_t)incident->event_count;
    incident->is_open = true;
    incident->lingers = incident->said = false;
    // The last place is for the event that says that the others mean nothing.
    size_t places = REEF_WATCH_EVENTS_MAX - (event->news != REEF_NEWS_NOISE);
    bool kept = incident->event_count < places;
    if (kept) status = keep(incident, event, err);
    if (!kept || status != REEF_OK) {
        incident->more++;
        *index = UINT32_MAX;
    }
    free(event->line);
    free(event->nearest);
    free(event->file);
    event->line = event->nearest = event->file = NULL;
    if (incident->event_count == 0) return status;
    incident->bits = bits_of(incident);
    ring(all, incident);
    return status;
}

void reef_incidents_repeat(reef_open_incident *open,
                           uint32_t index,
                           uint32_t lines,
                           int64_t time_ms) {
    reef_event *event = &open->incident.events[index];
    event->count += lines;
    open->incident.said = false;
    if (time_ms <= event->last_ms) return;
    event->last_ms = time_ms;
    if (time_ms > open->incident.last_ms && time_ms - open->news_ms <= REPEAT_MS)
        open->incident.last_ms = time_ms;
}
