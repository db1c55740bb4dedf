// See reef_timeline_json.h. Records of the timeline are JSON, written by the trainer (events.h).
#include "reef_timeline_json.h"

#include <inttypes.h>
#include <string.h>

// ---- events -------------------------------------------------------------------------------------

typedef struct reading {
    json_t *events;
    reef_lineage lineage;
} reading;

// What a restore leaves as it is: snapshots, and damage.
static bool is_of_the_state(const json_t *event) {
    static const char *const lasting[] = {"snapshot", "snapshot_remove", "damage"};
    const char *kind = json_string_value(json_object_get(event, "event"));
    for (size_t i = 0; kind != NULL && i < sizeof(lasting) / sizeof(lasting[0]); i++)
        if (strcmp(kind, lasting[i]) == 0) return false;
    return true;
}

static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    reading *r = context;
    json_t *event = json_loadb(view->data, view->bytes, JSON_ALLOW_NUL, NULL);
    if (event == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT, "event %" PRIu64 " of the timeline is not JSON",
                         key->sequence);
    // Commits that a restore has left behind still have their events; they are marked as undone.
    bool undone = !reef_lineage_has(&r->lineage, view->commit) && is_of_the_state(event);
    bool taken = (!undone || json_object_set_new(event, "undone", json_true()) == 0) &&
                 json_array_append(r->events, event) == 0;
    // The list has taken its own reference.
    json_decref(event);
    return taken ? REEF_OK : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the timeline");
}

reef_status reef_timeline_json(reef_txn *txn, json_t *events, reef_error *err) {
    reading r = {.events = events};
    reef_status status = reef_lineage_read(&r.lineage, txn, err);
    if (status == REEF_OK)
        status = reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event, &r, err);
    reef_lineage_release(&r.lineage);
    return status;
}

// ---- incidents ----------------------------------------------------------------------------------

static json_t *find_incident(const json_t *incidents, json_int_t number, size_t *at) {
    // The last ones are asked for.
    for (size_t i = json_array_size(incidents); i-- > 0;) {
        json_t *one = json_array_get(incidents, i);
        if (json_integer_value(json_object_get(one, "incident")) != number) continue;
        *at = i;
        return one;
    }
    return NULL;
}

// What a person said last, of an incident or in an event: in place of what was said before.
static void take_decision(json_t *to, const json_t *from) {
    static const char *const MEMBERS[] = {"decision", "muted_until"};
    for (size_t i = 0; i < sizeof(MEMBERS) / sizeof(*MEMBERS); i++) {
        json_t *member = json_object_get(from, MEMBERS[i]);
        (void)json_object_del(to, MEMBERS[i]);
        if (member != NULL) (void)json_object_set(to, MEMBERS[i], member);
    }
}

// An event of the timeline without what all events have.
static void take_incident(json_t *incidents, json_t *event) {
    size_t at;
    json_t *known =
        find_incident(incidents, json_integer_value(json_object_get(event, "incident")), &at);
    json_t *one = json_copy(event);
    (void)json_object_del(one, "event");
    (void)json_object_del(one, "generation");
    (void)json_object_del(one, "step");
    take_decision(one, known);
    if (known != NULL)
        (void)json_array_set_new(incidents, at, one);
    else
        (void)json_array_append_new(incidents, one);
}

reef_status reef_incidents_json(reef_txn *txn, json_t *incidents, reef_error *err) {
    size_t index, at;
    json_t *event, *events = json_array();
    reef_status status = reef_timeline_json(txn, events, err);
    json_array_foreach(events, index, event) {
        const char *kind = json_string_value(json_object_get(event, "event"));
        if (kind == NULL || json_is_true(json_object_get(event, "undone"))) continue;
        if (strcmp(kind, "incident") == 0) take_incident(incidents, event);
        if (strcmp(kind, "incident_decided") != 0) continue;
        json_t *one =
            find_incident(incidents, json_integer_value(json_object_get(event, "incident")), &at);
        if (one != NULL) take_decision(one, event);
    }
    json_decref(events);
    return status;
}

// NULL unless the event is of an incident.
static json_t *incident_of(const reef_view *view) {
    json_t *event = json_loadb(view->data, view->bytes, JSON_ALLOW_NUL, NULL);
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (kind != NULL && strcmp(kind, "incident") == 0) return event;
    json_decref(event);
    return NULL;
}

reef_status reef_incident_change(reef_txn *txn, uint64_t *next, json_t **out, reef_error *err) {
    reef_error why;
    for (*out = NULL;; ++*next) {
        const reef_key key = {.db = REEF_DB_TIMELINE, .sequence = *next};
        reef_view view;
        const reef_status status = reef_record_view(txn, &key, &view, &why);
        if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
        if (status == REEF_ERR_CORRUPT) continue;
        if (status != REEF_OK) return reef_fail(err, status, "%s", why.message);
        *out = incident_of(&view);
        if (*out != NULL) return REEF_OK;
    }
}
