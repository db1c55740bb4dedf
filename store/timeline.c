// The timeline: what happened to the pool, one JSON object an event, in the order of happening.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <jansson.h>

#include <string.h>

static reef_status json_check(const char *json, reef_error *err) {
    json_error_t reason;
    json_t *value =
        json == NULL ? NULL : json_loads(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &reason);
    // jansson gives no reason where it finds no memory.
    if (value == NULL && json != NULL && reason.text[0] == '\0')
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an event of the timeline");
    if (value == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "an event for the timeline is not JSON: %s",
                         json == NULL ? "it is missing" : reason.text);
    bool is_object = json_is_object(value);
    json_decref(value);
    return is_object
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID, "an event for the timeline is not a JSON object");
}

reef_status reef_timeline_next(reef_txn *txn, uint64_t *out, reef_error *err) {
    reef_cursor cursor;
    *out = 1;
    reef_status status = reef_cursor_open(&cursor, txn, REEF_DB_TIMELINE, NULL, 0, err);
    if (status == REEF_OK && !cursor.done) {
        // Events are only appended, so the last key gives the next number.
        int code = mdb_cursor_get(cursor.lmdb, &cursor.key, &cursor.value, MDB_LAST);
        if (code != 0)
            status = reef_environment_fail(txn->environment, code, 0, "find the last event", err);
        else if (cursor.key.mv_size != 8)
            status = reef_fail(err, REEF_ERR_CORRUPT, "a key of timeline is malformed");
        else
            *out = reef_get_be64(cursor.key.mv_data) + 1;
    }
    reef_cursor_close(&cursor);
    return status;
}

reef_status reef_timeline_append(reef_txn *txn, const char *json, reef_error *err) {
    reef_key key = {.db = REEF_DB_TIMELINE};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = json_check(json, err);
    if (status == REEF_OK) status = reef_timeline_next(txn, &key.sequence, err);
    return status == REEF_OK ? reef_record_store(txn, &key, REEF_JSON, json, strlen(json), err)
                             : status;
}
