// Stride scheduling by position; see stride.h. Nothing here knows time, files or threads.
#include "stride.h"
#include "reef_source.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SCALE 1000 // of a queue's pass: as fine as the largest weight

void reef_stride_init(reef_stride *stride, reef_stride_queue *queues, size_t count) {
    *stride = (reef_stride){.queues = queues,
                            .count = count,
                            .slice_bytes = REEF_SLICE_BYTES,
                            .current = REEF_STRIDE_NONE};
}

static bool is_runnable(const reef_stride_queue *queue) {
    return !queue->done && !queue->idle;
}

static size_t lowest(const reef_stride *stride) {
    size_t best = REEF_STRIDE_NONE;
    for (size_t i = 0; i < stride->count; i++)
        if (is_runnable(&stride->queues[i]) &&
            (best == REEF_STRIDE_NONE || stride->queues[i].pass < stride->queues[best].pass))
            best = i;
    return best;
}

size_t reef_stride_next(reef_stride *stride) {
    if (stride->current == REEF_STRIDE_NONE) {
        stride->current = lowest(stride);
        stride->given = 0;
    }
    return stride->current;
}

void reef_stride_begin(reef_stride *stride, size_t queue, uint64_t time_ms) {
    stride->current = queue;
    stride->given = 0;
    stride->queues[queue].pass = time_ms;
}

// How many bytes of the slice are left; 0 where it ends with the line.
static uint64_t bytes_left(const reef_stride *stride) {
    return stride->given < stride->slice_bytes ? stride->slice_bytes - stride->given : 0;
}

size_t reef_stride_share(const reef_stride *stride, const uint8_t *bytes, size_t count) {
    // With one queue there is nothing to share.
    if (stride->count == 1) return count;
    uint64_t left = bytes_left(stride);
    // Fewer bytes wait than the slice still has: all of them belong to it.
    if (left >= count) return count;
    // The byte that fills the slice may be the end of a line; otherwise the line is given to its
    // end.
    size_t from = left > 0 ? (size_t)left - 1 : 0;
    const uint8_t *newline = memchr(bytes + from, '\n', count - from);
    // A line longer than the maximum is cut, so that a source without newlines cannot keep the
    // slice for ever.
    uint64_t longest = REEF_SLICE_BYTES_MAX - stride->given;
    size_t share = newline != NULL ? (size_t)(newline - bytes) + 1 : count;
    return share < longest ? share : (size_t)longest;
}

static bool slice_is_over(const reef_stride *stride, uint8_t last) {
    return stride->given >= REEF_SLICE_BYTES_MAX ||
           (stride->given >= stride->slice_bytes && last == '\n');
}

// Stride scheduling (Waldspurger & Weihl 1995): the pass advances by bytes / weight, in fixed point.
static void advance(const reef_stride *stride, reef_stride_queue *queue) {
    if (!stride->by_time) queue->pass += stride->given * SCALE / queue->weight;
}

void reef_stride_took(reef_stride *stride, const uint8_t *bytes, size_t count) {
    if (count == 0) return;
    stride->total += count;
    if (stride->count == 1) return;
    assert(stride->current != REEF_STRIDE_NONE);
    reef_stride_queue *queue = &stride->queues[stride->current];
    stride->given += count;
    queue->partial = bytes[count - 1] != '\n';
    if (!slice_is_over(stride, bytes[count - 1])) return;
    advance(stride, queue);
    queue->back_bytes += stride->given;
    // By time a slice is a line.
    if (!stride->by_time || queue->back_bytes >= REEF_SLICE_BYTES) queue->fresh = false;
    stride->current = REEF_STRIDE_NONE;
}

// Bytes of a slice that ends early count as well.
static void end_slice(reef_stride *stride, size_t queue) {
    if (stride->current != queue) return;
    advance(stride, &stride->queues[queue]);
    stride->current = REEF_STRIDE_NONE;
}

void reef_stride_give_to(reef_stride *stride, size_t queue) {
    if (stride->count == 1 || stride->current == queue) return;
    if (stride->current != REEF_STRIDE_NONE) end_slice(stride, stride->current);
    stride->current = queue;
    stride->given = 0;
}

void reef_stride_done(reef_stride *stride, size_t queue) {
    end_slice(stride, queue);
    stride->queues[queue].done = true;
}

// The stream's pass: the lowest among the queues that take part. While all are idle, the highest of
// theirs, so that the first to return does not hold up the others when they are back.
static uint64_t standing(const reef_stride *stride) {
    size_t best = lowest(stride);
    if (best != REEF_STRIDE_NONE) return stride->queues[best].pass;
    uint64_t highest = 0;
    for (size_t i = 0; i < stride->count; i++)
        if (!stride->queues[i].done && stride->queues[i].pass > highest)
            highest = stride->queues[i].pass;
    return highest;
}

// A queue that was idle does not catch up.
static void join_stride(const reef_stride *stride, reef_stride_queue *queue) {
    uint64_t at = standing(stride);
    if (queue->pass < at) queue->pass = at;
}

void reef_stride_set_idle(reef_stride *stride, size_t queue, bool idle) {
    // The queue found before has not begun: repeated at this position, the decision comes first.
    if (stride->given == 0) stride->current = REEF_STRIDE_NONE;
    if (idle)
        end_slice(stride, queue);
    else
        join_stride(stride, &stride->queues[queue]);
    stride->queues[queue].idle = idle;
    stride->queues[queue].fresh = !idle;
    stride->queues[queue].back_bytes = 0;
}

// ---- between two runs ---------------------------------------------------------------------------

// An ended queue keeps its pass while the others continue. If it has more in the next run, it
// begins at the lowest pass of the others and does not catch up.
json_t *reef_stride_save(const reef_stride *stride) {
    json_t *queues = json_array();
    for (size_t i = 0; i < stride->count; i++) {
        const reef_stride_queue *queue = &stride->queues[i];
        if (queue->done) continue;
        // Names on disk are older than names in the code: "at" is the pass, "out" is idle.
        json_array_append_new(queues, json_pack("{s:s, s:I, s:b, s:b, s:b}", "name", queue->name,
                                                "at", (json_int_t)queue->pass, "out", queue->idle,
                                                "fresh", queue->fresh, "partial", queue->partial));
    }
    // A slice that has not begun is decided again after the restart.
    const char *current = stride->current == REEF_STRIDE_NONE || stride->given == 0
                              ? NULL
                              : stride->queues[stride->current].name;
    return json_pack("{s:I, s:I, s:I, s:s?, s:o}", "total", (json_int_t)stride->total, "decided",
                     (json_int_t)stride->decided, "given",
                     (json_int_t)(current != NULL ? stride->given : 0), "current", current, "lanes",
                     queues);
}

static reef_stride_queue *queue_named(const reef_stride *stride, const char *name) {
    for (size_t i = 0; i < stride->count; i++)
        if (strcmp(stride->queues[i].name, name) == 0) return &stride->queues[i];
    return NULL;
}

static bool load_queue(reef_stride_queue *queue, const json_t *saved) {
    json_int_t at = 0;
    int out = 0, fresh = 0, partial = 0;
    if (json_unpack((json_t *)saved, "{s:I, s:b, s:b, s:b}", "at", &at, "out", &out, "fresh",
                    &fresh, "partial", &partial) ||
        at < 0)
        return false;
    queue->pass = (uint64_t)at;
    queue->idle = out;
    queue->fresh = fresh;
    queue->partial = partial;
    return true;
}

reef_status reef_stride_load(reef_stride *stride, const json_t *saved, reef_error *err) {
    json_int_t total = 0, decided = 0, given = 0;
    const char *current = json_string_value(json_object_get(saved, "current")); // or null
    json_t *queues = NULL;
    // All members at once; a record that lacks one was not written by us.
    bool good = !json_unpack((json_t *)saved, "{s:I, s:I, s:I, s:o}", "total", &total, "decided",
                             &decided, "given", &given, "lanes", &queues) &&
                json_is_array(queues) && total >= 0 && decided >= 0 && given >= 0 &&
                given < REEF_SLICE_BYTES_MAX;
    for (size_t i = 0; i < stride->count; i++) stride->queues[i].idle = true; // until it is known
    // Queues that are not configured now are skipped; their pass is forgotten.
    for (size_t i = 0; good && i < json_array_size(queues); i++) {
        const json_t *one = json_array_get(queues, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        reef_stride_queue *queue = name != NULL ? queue_named(stride, name) : NULL;
        good = name != NULL && (queue == NULL || load_queue(queue, one));
    }
    if (!good)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the record of the next queue is malformed: "
                         "'reef verify' checks the pool");
    stride->total = (uint64_t)total;
    stride->decided = (uint64_t)decided;
    // The queue of the interrupted slice continues where it stopped.
    reef_stride_queue *now = current != NULL ? queue_named(stride, current) : NULL;
    if (now != NULL) {
        stride->current = (size_t)(now - stride->queues);
        stride->given = (uint64_t)given;
    }
    // A queue that the record does not know is new. It starts at the current pass and has nothing
    // to catch up.
    for (size_t i = 0; i < stride->count; i++) {
        bool known = false;
        for (size_t k = 0; k < json_array_size(queues) && !known; k++)
            known =
                strcmp(stride->queues[i].name,
                       json_string_value(json_object_get(json_array_get(queues, k), "name"))) == 0;
        if (known) continue;
        join_stride(stride, &stride->queues[i]);
        stride->queues[i].idle = false;
    }
    return REEF_OK;
}

// ---- what the pool keeps of it ------------------------------------------------------------------

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
