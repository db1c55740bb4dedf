// See watching.h. Incidents become events of the timeline:
//
// {"incident", "state": "rings" or "ended", "first_ms", "last_ms", "bits", "title", "more",
//  "events": [{"news", "severity", "source", "offset", "first_ms", "last_ms", "count", "bits",
//              "line", "new": [at, bytes], "nearest"}]}
#include "watching.h"
#include "as_of.h"
#include "events.h"
#include "reef_json_build.h"
#include "reef_system.h"

#include <string.h>

#define EVENTS_TOLD 16 // of an incident

static reef_key key_of(uint32_t generation, uint32_t part) {
    reef_key key = reef_state_key(generation, "watch");
    key.block = part;
    return key;
}

// ---- incidents ----------------------------------------------------------------------------------

// Lines are any bytes. JSON has UTF-8 without zeros: other bytes become '?'.
static json_t *line_json(const char *line) {
    json_t *text = json_string(line);
    if (text != NULL) return text;
    size_t count = strlen(line);
    char ascii[REEF_WATCH_SHOWN_BYTES_MAX + 1];
    for (size_t i = 0; i < count; i++) ascii[i] = (uint8_t)line[i] < 0x80 ? line[i] : '?';
    return json_stringn(ascii, count);
}

static json_t *event_json(const reef_trainer *trainer, const reef_event *e) {
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:o}", "news", reef_news_name(e->news),
                  "severity", reef_severity_name(e->severity), "source",
                  trainer->stream.sources[e->source].name, "offset", (json_int_t)e->offset,
                  "first_ms", (json_int_t)e->first_ms, "last_ms", (json_int_t)e->last_ms, "count",
                  (json_int_t)e->count, "bits", e->bits, "line", line_json(e->line));
    if (e->new_bytes > 0)
        reef_json_set(&json, "new",
                      json_pack("[I, I]", (json_int_t)e->new_at, (json_int_t)e->new_bytes));
    if (e->nearest != NULL) reef_json_set(&json, "nearest", line_json(e->nearest));
    return json;
}

// The rarest event is the first.
static json_t *incident_json(const reef_trainer *trainer, const reef_incident *i) {
    json_t *events = json_array();
    reef_json_append(&events, event_json(trainer, &i->events[i->rarest]));
    size_t told = 1;
    for (size_t e = 0; e < i->event_count && told < EVENTS_TOLD; e++) {
        if (e == i->rarest) continue;
        reef_json_append(&events, event_json(trainer, &i->events[e]));
        told++;
    }
    return json_pack("{s:I, s:s, s:I, s:I, s:f, s:I, s:o}", "incident", (json_int_t)i->number,
                     "state", i->is_open ? "rings" : "ended", "first_ms", (json_int_t)i->first_ms,
                     "last_ms", (json_int_t)i->last_ms, "bits", i->bits, "more",
                     (json_int_t)(i->event_count - told + i->more), "events", events);
}

// What went wrong is told by the call during which it was heard.
static void on_incident(void *context, const reef_incident *incident) {
    reef_trainer *trainer = context;
    if (!incident->rings || incident->event_count == 0) return;
    json_t *json = incident_json(trainer, incident);
    char *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    reef_error *err = &trainer->watching.failed;
    if (text == NULL)
        (void)reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an incident");
    else // its members, without braces
        (void)!reef_state_event(trainer, err, "incident", "%.*s", (int)strlen(text) - 2, text + 1);
    free(text);
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stored {
    reef_txn *txn;
    uint32_t generation, parts;
} stored;

static reef_status get_part(
    void *context, uint32_t number, const uint8_t **bytes, size_t *count, reef_error *err) {
    stored *s = context;
    reef_key key = key_of(s->generation, number);
    reef_view view;
    reef_status status = reef_record_view(s->txn, &key, &view, err);
    if (status != REEF_OK) return status;
    *bytes = view.data;
    *count = view.bytes;
    s->parts = number + 1;
    return REEF_OK;
}

reef_status reef_watching_load(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    const reef_watch_options options = {.near_ms = (int64_t)reef_unix_ms()};
    stored s = {txn, reef_open_generation(trainer)->info.generation, 0};
    reef_key key = key_of(s.generation, 0);
    reef_view view;
    reef_error none;
    if (!trainer->network.config.watch) return REEF_OK;
    reef_status status =
        reef_watch_new(&trainer->watching.watch, &options, on_incident, trainer, err);
    if (status != REEF_OK) return status;
    status = reef_record_view(txn, &key, &view, &none);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK; // nothing was read yet
    if (status != REEF_OK) return reef_fail(err, status, "%s", none.message);
    status = reef_watch_read(trainer->watching.watch, get_part, &s, err);
    trainer->watching.parts = s.parts;
    return status;
}

void reef_watching_release(reef_trainer *trainer) {
    reef_watch_free(trainer->watching.watch);
    trainer->watching.watch = NULL;
}

reef_status reef_watching_read(reef_trainer *trainer,
                               size_t source,
                               uint64_t offset,
                               const uint8_t *bytes,
                               size_t count,
                               reef_error *err) {
    if (trainer->watching.watch == NULL || count == 0) return REEF_OK;
    trainer->watching.failed.status = REEF_OK;
    reef_status status =
        reef_watch_bytes(trainer->watching.watch, (uint32_t)source, offset, bytes, count, err);
    const reef_error *failed = &trainer->watching.failed;
    return status != REEF_OK || failed->status == REEF_OK
               ? status
               : reef_fail(err, failed->status, "%s", failed->message);
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status put_part(
    void *context, uint32_t number, const uint8_t *bytes, size_t count, reef_error *err) {
    const stored *s = context;
    reef_key key = key_of(s->generation, number);
    return reef_record_put(s->txn, &key, REEF_BYTES, bytes, count, err);
}

reef_status reef_watching_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    if (trainer->watching.watch == NULL) return REEF_OK;
    stored s = {txn, reef_open_generation(trainer)->info.generation, 0};
    return reef_watch_write(trainer->watching.watch, put_part, &s, &trainer->watching.parts, err);
}

reef_status reef_watching_delete(const reef_trainer *trainer,
                                 reef_txn *txn,
                                 uint32_t generation,
                                 reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t part = 0; status == REEF_OK && part < trainer->watching.parts; part++) {
        reef_key key = key_of(generation, part);
        status = reef_record_delete(txn, &key, err);
    }
    return status;
}
