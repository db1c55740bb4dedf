// See watching.h. Incidents that ring become events of the timeline, when they begin to ring and
// when they end: {"event": "incident", ...} and the members of reef_watch_json.h.
#include "watching.h"
#include "as_of.h"
#include "events.h"
#include "reef_system.h"
#include "reef_watch_json.h"

#include <string.h>

static reef_key key_of(uint32_t generation, uint32_t part) {
    reef_key key = reef_state_key(generation, "watch");
    key.block = part;
    return key;
}

// ---- incidents ----------------------------------------------------------------------------------

static void find_place(const void *context, uint32_t source, reef_line_place *out) {
    const reef_trainer *trainer = context;
    out->source = trainer->stream.sources[source].name;
}

// What went wrong is told by the call during which it was heard.
static void on_incident(void *context, const reef_incident *incident) {
    reef_trainer *trainer = context;
    const bool is_told = !incident->is_open && !incident->lingers && incident->said;
    if (!incident->rings || incident->event_count == 0 || is_told) return;
    json_t *json = reef_incident_json(incident, find_place, trainer);
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
                               const char *file,
                               uint64_t offset,
                               const uint8_t *bytes,
                               size_t count,
                               reef_error *err) {
    if (trainer->watching.watch == NULL || count == 0) return REEF_OK;
    trainer->watching.failed.status = REEF_OK;
    reef_status status = reef_watch_bytes(trainer->watching.watch, (uint32_t)source, file, offset,
                                          bytes, count, err);
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

reef_status reef_watching_leave_sealed(const reef_trainer *trainer,
                                       reef_txn *txn,
                                       reef_error *err) {
    const reef_network *network = &trainer->network;
    reef_status status = REEF_OK;
    for (size_t g = 0; g + 1 < network->generation_count; g++) {
        const reef_generation *sealed = network->generations[g];
        const uint32_t parts = sealed->stored ? 0 : trainer->watching.parts;
        for (uint32_t part = 0; status == REEF_OK && part < parts; part++) {
            reef_key key = key_of(sealed->info.generation, part);
            status = reef_record_delete(txn, &key, err);
        }
    }
    return status;
}
