// Incidents of a pool that watches its lines: what rang, and what a person says of it.
#include "lib.h"
#include "reef_json_build.h"
#include "reef_timeline_json.h"

#include <stdlib.h>

void reef_text_free(char *text) {
    free(text);
}

static reef_status check_watches(const reef_pool *pool, reef_error *err) {
    if (pool->config.watch) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "pool %.120s watches no lines: make one with watch=true",
                     reef_store_path(pool->store));
}

reef_status reef_lib_incidents_text(json_t *incidents, char **out, reef_error *err) {
    // As the other programs: 17 digits give the same number back.
    json_t *json = json_pack("{s:O}", "incidents", incidents);
    *out = json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    if (*out != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu incidents",
                     json_array_size(incidents));
}

static reef_status read_incidents(reef_pool *pool, json_t *list, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = check_watches(pool, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_incidents_json(txn, list, err);
    reef_txn_abort(txn);
    return status;
}

// The last ones of a list, or with 0 all. All are read: what became of one is known at its end.
static reef_status tell_last(json_t *list, uint64_t last, char **out, reef_error *err) {
    const size_t count = json_array_size(list);
    json_t *shown = json_array();
    for (size_t i = last > 0 && count > last ? count - (size_t)last : 0; i < count; i++)
        reef_json_append(&shown, json_incref(json_array_get(list, i)));
    reef_status status = reef_lib_incidents_text(shown, out, err);
    json_decref(shown);
    return status;
}

reef_status reef_pool_incidents(reef_pool *pool, uint64_t last, char **incidents, reef_error *err) {
    *incidents = NULL;
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    json_t *list = json_array();
    if (list == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for incidents");
    else
        status = read_incidents(pool, list, err);
    if (status == REEF_OK) status = tell_last(list, last, incidents, err);
    json_decref(list);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_decide(reef_pool *pool,
                             uint64_t incident,
                             const char *decision,
                             int64_t for_s,
                             uint64_t *types,
                             reef_error *err) {
    reef_decision said;
    size_t count = 0;
    reef_status status = reef_decision_read(&said, decision, for_s, err);
    if (status == REEF_OK) status = reef_lib_enter_writer(pool, "decide about an incident", err);
    if (status != REEF_OK) return status;
    status = check_watches(pool, err);
    if (status == REEF_OK)
        status = reef_trainer_decide(pool->trainer, incident, said, (uint64_t)for_s, &count, err);
    if (status == REEF_OK && types != NULL) *types = count;
    reef_lib_leave(pool);
    return status;
}
