// Taking batches: from the client to the journal, and the reply back; see push.h.
//
// Batches that came while the trainer was busy with a step go into the journal together: it takes
// the whole list when it gets there. The list and what is done are behind a lock; everything else
// belongs to the loop.
#include "push.h"

#include "reef_push_journal.h"
#include "reef_system.h"
#include "training_thread.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES 1024 // what a batch counts for beside its bytes

void reef_push_batch_free(reef_push_batch *batch) {
    if (batch == NULL) return;
    free(batch->body);
    reef_ingested_release(&batch->made);
    free(batch);
}

void reef_pusher_init(reef_pusher *pusher) {
    if (uv_mutex_init(&pusher->lock)) abort(); // out of kernel memory
}

static void append_batch(reef_push_batch **list, reef_push_batch *batch) {
    while (*list != NULL) list = &(*list)->next;
    batch->next = NULL;
    *list = batch;
}

static void free_all(reef_push_batch *list) {
    while (list != NULL) {
        reef_push_batch *next = list->next;
        reef_push_batch_free(list);
        list = next;
    }
}

void reef_pusher_release(reef_pusher *pusher) {
    free_all(pusher->waiting);
    free_all(pusher->done);
    uv_mutex_destroy(&pusher->lock);
}

// ---- on the trainer's thread --------------------------------------------------------------------

static reef_push_batch *take_waiting(reef_pusher *pusher, size_t *count) {
    // The list is taken as a whole, so the lock is held for two assignments.
    uv_mutex_lock(&pusher->lock);
    reef_push_batch *list = pusher->waiting;
    pusher->waiting = NULL;
    pusher->asked = false;
    uv_mutex_unlock(&pusher->lock);
    *count = 0;
    for (const reef_push_batch *batch = list; batch != NULL; batch = batch->next) ++*count;
    return list;
}

static void give_back(reef_pusher *pusher, reef_push_batch *list) {
    uv_mutex_lock(&pusher->lock);
    while (list != NULL) {
        reef_push_batch *next = list->next;
        append_batch(&pusher->done, list);
        list = next;
    }
    uv_mutex_unlock(&pusher->lock);
}

static void fail_all(reef_push_batch *list, const reef_error *err) {
    for (; list != NULL; list = list->next) {
        list->error = *err;
        if (err->status == REEF_ERR_BUSY) list->retry_ms = REEF_PUSH_RETRY_FULL_MS;
    }
}

static void note_results(reef_pusher *pusher,
                         reef_push_batch *list,
                         const reef_journal_batch *entries) {
    for (size_t i = 0; list != NULL; list = list->next, i++) {
        if (entries[i].trained) reef_training_commit_soon(pusher->training);
        list->error = entries[i].error;
        list->duplicate = entries[i].duplicate;
        list->position = entries[i].position;
        // The hint tells a client when room is likely.
        if (list->error.status == REEF_ERR_BUSY) list->retry_ms = REEF_PUSH_RETRY_FULL_MS;
    }
}

static reef_status journal(reef_pusher *pusher,
                           reef_push_batch *list,
                           size_t count,
                           reef_trainer *trainer,
                           reef_error *err) {
    reef_journal_batch *entries = calloc(count, sizeof(*entries));
    if (entries == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the journal");
    // One time for the batch: all of it is committed together.
    uint64_t now = reef_unix_ms();
    size_t i = 0;
    // Entries point into the batches, which stay until the reply.
    for (const reef_push_batch *batch = list; batch != NULL; batch = batch->next, i++)
        entries[i] = (reef_journal_batch){.source = batch->input->name,
                                          .bytes_max = pusher->journal_bytes_max,
                                          .bytes = batch->made.bytes,
                                          .count = batch->made.count,
                                          .id = batch->id,
                                          .unix_ms = now};
    // One write transaction for all batches that wait: an fsync each would bound pushes to the
    // disk's latency.
    reef_status status = reef_trainer_journal(trainer, entries, count, err);
    if (status == REEF_OK) note_results(pusher, list, entries);
    free(entries);
    return status;
}

static reef_status journal_waiting(void *context,
                                   reef_store *store,
                                   reef_trainer *trainer,
                                   reef_error *err) {
    (void)store;
    reef_pusher *pusher = context;
    size_t count = 0;
    // Whatever waits at this moment goes together; later batches make the next one.
    reef_push_batch *list = take_waiting(pusher, &count);
    reef_status status = list != NULL ? journal(pusher, list, count, trainer, err) : REEF_OK;
    // All or none: the transaction failed as a whole.
    if (status != REEF_OK) fail_all(list, err);
    give_back(pusher, list);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static void reply_batch(reef_push_batch *batch) {
    batch->pusher->waiting_bytes -= batch->weight;
    // A refused batch added nothing.
    if (batch->error.status == REEF_OK) {
        batch->accepted_bytes = batch->made.count;
        batch->record_count = batch->made.records;
        reef_push_grew(batch->input, batch->position);
        reef_push_count(batch->input, batch);
    }
    // The connection may have been closed meanwhile.
    if (batch->owner != NULL) batch->on_reply(batch);
    reef_push_batch_free(batch);
}

static void reply_all(reef_push_batch *list) {
    while (list != NULL) {
        reef_push_batch *next = list->next;
        reply_batch(list);
        list = next;
    }
}

static void reply_done(reef_pusher *pusher) {
    uv_mutex_lock(&pusher->lock);
    reef_push_batch *done = pusher->done;
    pusher->done = NULL;
    uv_mutex_unlock(&pusher->lock);
    reply_all(done);
}

// Nobody will journal them any more: the daemon ends.
static void refuse_waiting(reef_pusher *pusher, const reef_error *err) {
    size_t count;
    reef_push_batch *list = take_waiting(pusher, &count);
    fail_all(list, err);
    reply_all(list);
}

static void on_journalled(reef_request *request) {
    reef_pusher *pusher = request->owner;
    reply_done(pusher);
    // A request that was not served at all has left them where they were.
    if (request->error.status == REEF_ERR_BUSY) refuse_waiting(pusher, &request->error);
}

static void request_trainer(reef_pusher *pusher) {
    reef_error err = {.status = REEF_ERR_NO_MEMORY, .message = "no memory for the request"};
    reef_request *request = calloc(1, sizeof(*request));
    if (request != NULL) {
        *request = (reef_request){.kind = REEF_REQUEST_CALL,
                                  .call = journal_waiting,
                                  .call_context = pusher,
                                  .owner = pusher,
                                  .on_reply = on_journalled};
        if (reef_training_request(pusher->training, request, &err) == REEF_OK) return;
    }
    // Not handed over, so the clients get a reply now.
    free(request);
    refuse_waiting(pusher, &err);
}

// ---- coming in ----------------------------------------------------------------------------------

// On a thread of libuv's: a mebibyte of JSON takes longer to read than the loop should wait.
static void make_batch(uv_work_t *work) {
    reef_push_batch *batch = work->data;
    batch->error.status = reef_ingest_parse(&batch->made, batch->format, batch->body,
                                            batch->body_bytes, &batch->error);
}

static void wait_for_trainer(reef_pusher *pusher, reef_push_batch *batch) {
    uv_mutex_lock(&pusher->lock);
    append_batch(&pusher->waiting, batch);
    // One request to the trainer is enough for all batches that wait.
    bool ask = !pusher->asked;
    pusher->asked = true;
    uv_mutex_unlock(&pusher->lock);
    if (ask) request_trainer(pusher);
}

static void on_made(uv_work_t *work, int code) {
    reef_push_batch *batch = work->data;
    if (code) batch->error.status = reef_fail(&batch->error, REEF_ERR_IO, "%s", uv_strerror(code));
    // What was read is freed before the batch waits: only the made bytes are needed.
    free(batch->body);
    batch->body = NULL;
    if (batch->error.status != REEF_OK)
        reply_batch(batch);
    else
        wait_for_trainer(batch->pusher, batch);
}

void reef_push_submit_made(reef_pusher *pusher, reef_push_batch *batch) {
    batch->pusher = pusher;
    wait_for_trainer(pusher, batch);
}

static reef_input *find_input(reef_pusher *pusher, const char *name, size_t *count) {
    reef_input *found = NULL;
    *count = 0;
    for (size_t i = 0; i < pusher->input_count; i++) {
        reef_input *input = &pusher->inputs[i];
        if (input->kind != &reef_input_push) continue;
        ++*count;
        // Without a name the only push source is meant.
        if (!name[0] || strcmp(input->name + strlen(REEF_PUSH_PREFIX), name) == 0) found = input;
    }
    return found;
}

static reef_status choose_input(reef_pusher *pusher, reef_push_batch *batch, reef_error *err) {
    size_t count = 0;
    batch->input = find_input(pusher, batch->source, &count);
    if (count == 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "nothing can be pushed here: start reefd with --source push:NAME");
    // A choice between several sources is the client's.
    if (!batch->source[0] && count > 1)
        return reef_fail(err, REEF_ERR_INVALID, "there are %zu sources to push into: name one",
                         count);
    if (batch->input == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "reefd has no source push:%.60s", batch->source);
    return REEF_OK;
}

static reef_status refuse_for_now(reef_push_batch *batch, const char *why, reef_error *err) {
    batch->retry_ms = REEF_PUSH_RETRY_MS;
    return reef_fail(err, REEF_ERR_BUSY, "%s", why);
}

reef_status reef_push_submit(reef_pusher *pusher, reef_push_batch *batch, reef_error *err) {
    reef_status status = choose_input(pusher, batch, err);
    if (status != REEF_OK) return status;
    // New batches are refused while the daemon ends; those accepted are still journalled.
    if (batch->input->stopped) return refuse_for_now(batch, "the daemon is ending", err);
    batch->weight = batch->body_bytes + BATCH_BYTES;
    // One alone is always taken: it is bounded by what a client may send.
    if (pusher->waiting_bytes > 0 &&
        pusher->waiting_bytes + batch->weight > REEF_PUSH_WAITING_BYTES_MAX)
        return refuse_for_now(batch, "too much waits for the journal: try again", err);
    batch->pusher = pusher;
    batch->work.data = batch;
    int code = uv_queue_work(pusher->loop, &batch->work, make_batch, on_made);
    if (code) return reef_fail(err, REEF_ERR_IO, "cannot take the batch: %s", uv_strerror(code));
    pusher->waiting_bytes += batch->weight;
    return REEF_OK;
}
