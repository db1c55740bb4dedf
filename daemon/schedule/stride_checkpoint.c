// Records of the journal about the order of the stream; see stride_checkpoint.h.
#include "stride_checkpoint.h"

#include "reef_source.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static reef_key journal_key(const char *name, uint64_t sequence) {
    return (reef_key){.db = REEF_DB_JOURNAL, .name = name, .sequence = sequence};
}

// Takes the reference.
static reef_status put_json(reef_txn *txn, const reef_key *key, json_t *json, reef_error *err) {
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a record of the journal");
    reef_status status = reef_record_put(txn, key, REEF_JSON, text, strlen(text), err);
    free(text);
    return status;
}

static reef_status view_json(reef_txn *txn, const reef_key *key, json_t **out, reef_error *err) {
    reef_view view;
    *out = NULL;
    reef_status status = reef_record_view(txn, key, &view, err);
    if (status != REEF_OK) return status;
    *out = json_loadb(view.data, view.bytes, 0, NULL);
    if (*out != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "the journal's record %llu of '%s' is not JSON",
                     (unsigned long long)key->sequence, key->name);
}

// ---- which queue is next ------------------------------------------------------------------------

void reef_decisions_release(reef_decisions *decisions) {
    for (size_t i = 0; i < decisions->count; i++) free(decisions->items[i].queue);
    free(decisions->items);
    *decisions = (reef_decisions){0};
}

static reef_status add_decision(reef_decisions *after,
                                uint64_t number,
                                const json_t *saved,
                                reef_error *err) {
    json_int_t at = 0;
    int out = 0;
    const char *queue = NULL;
    // "lane" and "out" are the names on disk.
    if (json_unpack((json_t *)saved, "{s:I, s:s, s:b}", "at", &at, "lane", &queue, "out", &out) ||
        at < 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "decision %llu about the next queue makes no sense",
                         (unsigned long long)number);
    // One by one: decisions after the last commit are few.
    reef_schedule_choice *items = realloc(after->items, (after->count + 1) * sizeof(*items));
    if (items == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a decision");
    after->items = items;
    items[after->count++] = (reef_schedule_choice){
        .number = number, .at = (uint64_t)at, .idle = out, .queue = strdup(queue)};
    return items[after->count - 1].queue != NULL
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a name");
}

static reef_status read_stride(reef_txn *txn,
                               reef_stride *stride,
                               reef_decisions *after,
                               reef_error *err) {
    reef_key key = journal_key(REEF_STRIDE_NAME, 0);
    json_t *json = NULL;
    reef_status status = view_json(txn, &key, &json, err);
    if (status == REEF_OK) status = reef_stride_load(stride, json, err);
    if (status == REEF_ERR_NOT_FOUND)
        status = REEF_OK; // the first commit with several queues is to come
    json_decref(json);
    // Decisions are numbered without gaps: the first missing number is the end.
    for (uint64_t number = stride->decided + 1; status == REEF_OK; number++) {
        key = journal_key(REEF_STRIDE_NAME, number);
        status = view_json(txn, &key, &json, err);
        // All decisions after the commit have been found.
        if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
        if (status == REEF_OK) status = add_decision(after, number, json, err);
        json_decref(json);
    }
    return status;
}

reef_status reef_stride_read(reef_store *store,
                             reef_stride *stride,
                             reef_decisions *after,
                             reef_error *err) {
    reef_txn *txn = NULL;
    *after = (reef_decisions){0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = read_stride(txn, stride, after, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_stride_write(reef_txn *txn, const reef_stride *stride, reef_error *err) {
    reef_key key = journal_key(REEF_STRIDE_NAME, 0);
    reef_status status = put_json(txn, &key, reef_stride_save(stride), err);
    // The ones before the last commit's are gone already.
    for (uint64_t number = stride->decided; status == REEF_OK && number > 0; number--) {
        reef_view view;
        key.sequence = number;
        // The first missing number ends it: they are deleted from the newest to the oldest.
        if (reef_record_view(txn, &key, &view, NULL) == REEF_ERR_NOT_FOUND) break;
        status = reef_record_delete(txn, &key, err);
    }
    return status;
}

reef_status reef_decision_write(reef_txn *txn,
                                const reef_schedule_choice *decision,
                                reef_error *err) {
    reef_key key = journal_key(REEF_STRIDE_NAME, decision->number);
    return put_json(txn, &key,
                    json_pack("{s:I, s:s, s:b}", "at", (json_int_t)decision->at, "lane",
                              decision->queue, "out", decision->idle),
                    err);
}

reef_status reef_decisions_drop(reef_txn *txn, const reef_decisions *after, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < after->count && status == REEF_OK; i++) {
        reef_key key = journal_key(REEF_STRIDE_NAME, after->items[i].number);
        status = reef_record_delete(txn, &key, err);
    }
    return status;
}

// ---- checkpoints of sources ---------------------------------------------------------------------

static reef_status read_checkpoint(
    reef_txn *txn, const char *source, uint64_t *begin, char **checkpoint, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    // The journal's keys are bounded; long source names are shortened the same way everywhere.
    reef_source_name(name, REEF_NAME_BYTES_MAX, source, strlen(source));
    reef_key key = journal_key(name, 0);
    json_t *json = NULL;
    reef_status status = view_json(txn, &key, &json, err);
    if (status != REEF_OK) return status;
    // "mark" is the name on disk of the checkpoint.
    json_t *saved = json_object_get(json, "mark");
    json_int_t at = json_integer_value(json_object_get(json, "begin"));
    // A checkpoint is handed on as text: only its own source understands it.
    if (saved != NULL && at >= 0) {
        *begin = (uint64_t)at;
        *checkpoint = json_dumps(saved, JSON_COMPACT);
    }
    json_decref(json);
    if (*checkpoint != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "the checkpoint of the source '%.100s' makes no sense",
                     source);
}

reef_status reef_source_checkpoint_read(
    reef_store *store, const char *source, uint64_t *begin, char **checkpoint, reef_error *err) {
    reef_txn *txn = NULL;
    *checkpoint = NULL;
    *begin = 0;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = read_checkpoint(txn, source, begin, checkpoint, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_source_checkpoint_write(
    reef_txn *txn, const char *source, uint64_t begin, const char *checkpoint, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_source_name(name, REEF_NAME_BYTES_MAX, source, strlen(source));
    reef_key key = journal_key(name, 0);
    // Stored as JSON and not as a string, so that the record can be read by people.
    json_t *saved = json_loads(checkpoint, 0, NULL);
    if (saved == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "the checkpoint of the source '%.100s' is not JSON",
                         source);
    return put_json(txn, &key, json_pack("{s:I, s:o}", "begin", (json_int_t)begin, "mark", saved),
                    err);
}
