// Taking batches: from the client to the journal, and the reply back; see push.h.
//
// Batches that came while the trainer was busy with a step go into the journal together: it takes
// the whole list when it gets there. The list and what is done are behind a lock; everything else
// belongs to the loop.
#include "push.h"

#include "reef_push_journal.h"
#include "reef_system.h"
#include "training_thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES 1024 // what a batch counts for beside its bytes
#define ID_BYTES_MAX 117 // of a batch that is cut into pieces, which get their number

static void free_parts(reef_push_batch *batch) {
    for (size_t i = 0; batch->parts != NULL && i < batch->pusher->input_count; i++)
        reef_ingested_release(&batch->parts[i]);
    free(batch->parts);
    batch->parts = NULL;
}

void reef_push_batch_free(reef_push_batch *batch) {
    if (batch == NULL) return;
    reef_push_batch *whole = batch->whole;
    free(batch->body);
    reef_ingested_release(&batch->made);
    free_parts(batch);
    free(batch);
    if (whole != NULL && --whole->part_count == 0) reef_push_batch_free(whole);
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

// The whole is answered with its last part, and refused with any of them.
static void note_part(reef_push_batch *whole, const reef_push_batch *part) {
    if (part->error.status != REEF_OK) {
        whole->error = part->error;
        whole->retry_ms = part->retry_ms;
    }
    whole->input = part->input;
    whole->duplicate = part->duplicate && (whole->duplicate || whole->answered_count == 0);
    whole->accepted_bytes += part->accepted_bytes;
    whole->record_count += part->record_count;
    whole->position = part->position;
    whole->answered_count++;
    if (whole->part_count == 1 && whole->owner != NULL) whole->on_reply(whole);
}

static void reply_batch(reef_push_batch *batch) {
    batch->pusher->waiting_bytes -= batch->weight;
    // A refused batch added nothing; one of several sources has added its parts.
    if (batch->error.status == REEF_OK && batch->made.count > 0) {
        batch->accepted_bytes = batch->made.count;
        batch->record_count = batch->made.records;
        reef_push_grew(batch->input, batch->position);
        reef_push_count(batch->input, batch);
    }
    if (batch->whole != NULL)
        note_part(batch->whole, batch);
    else if (batch->owner != NULL) // the connection may have been closed meanwhile
        batch->on_reply(batch);
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

// What its streams may go to: all sources that are pushed into, by their places among the inputs.
static reef_status list_sources(const reef_push_batch *batch,
                                const char ***names,
                                reef_ingest_form *form,
                                reef_error *err) {
    const reef_pusher *pusher = batch->pusher;
    const char *other = batch->format == REEF_INGEST_LOKI ? "loki" : "otlp";
    *names = calloc(pusher->input_count, sizeof(**names));
    if (*names == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    form->sources = *names;
    form->source_count = form->other = pusher->input_count;
    for (size_t i = 0; i < pusher->input_count; i++) {
        const reef_input *input = &pusher->inputs[i];
        bool pushed = input->kind == &reef_input_push;
        (*names)[i] = pushed ? input->name + strlen(REEF_PUSH_PREFIX) : "";
        if (pushed && strcmp((*names)[i], other) == 0) form->other = i;
    }
    return REEF_OK;
}

// On a thread of libuv's: a mebibyte of JSON takes longer to read than the loop should wait.
static void make_batch(uv_work_t *work) {
    reef_push_batch *batch = work->data;
    reef_error *err = &batch->error;
    const char **names = NULL;
    reef_ingest_notes notes = {0};
    reef_ingest_form form = {.format = batch->format,
                             .packing = batch->packing,
                             .field = batch->field[0] != '\0' ? batch->field : NULL};
    err->status = REEF_OK;
    if (batch->parts != NULL) err->status = list_sources(batch, &names, &form, err);
    if (err->status == REEF_OK)
        err->status = reef_ingest_parse(batch->parts != NULL ? batch->parts : &batch->made, &notes,
                                        &form, batch->body, batch->body_bytes, err);
    batch->too_large = notes.too_large;
    batch->empty_count = notes.empty;
    // Shippers name no batches, but they send the same one again: two that are alike to the
    // nanosecond are one.
    if (batch->id[0] == '\0' && notes.all_timed)
        snprintf(batch->id, sizeof(batch->id), "%016" PRIx64 "%016" PRIx64, notes.hash[0],
                 notes.hash[1]);
    free((void *)names);
}

// How many of the bytes one entry of the journal takes: whole lines, of which the last has an end.
static size_t piece_bytes(const reef_ingested *made, size_t at) {
    size_t count = made->count - at;
    if (count <= REEF_JOURNAL_BATCH_BYTES_MAX) return count;
    for (count = REEF_JOURNAL_BATCH_BYTES_MAX; count > 0 && made->bytes[at + count - 1] != '\n';)
        count--;
    return count;
}

static reef_push_batch *new_part(reef_push_batch *whole, reef_input *input, unsigned number) {
    reef_push_batch *part = calloc(1, sizeof(*part));
    if (part == NULL) return NULL;
    part->pusher = whole->pusher;
    part->input = input;
    // The first has the whole's name, also where others follow.
    if (number > 0 && whole->id[0] != '\0')
        snprintf(part->id, sizeof(part->id), "%.*s~%u", ID_BYTES_MAX, whole->id, number);
    else
        memcpy(part->id, whole->id, sizeof(part->id));
    return part;
}

// Adds to `list` what `made` comes to, piece by piece.
static reef_status add_parts(reef_push_batch *batch,
                             reef_input *input,
                             const reef_ingested *made,
                             reef_push_batch **list,
                             reef_error *err) {
    unsigned number = 0;
    for (size_t at = 0, count; at < made->count; at += count, number++) {
        count = piece_bytes(made, at);
        batch->too_large = count == 0 || (number > 0 && strlen(batch->id) > ID_BYTES_MAX);
        if (count == 0)
            return reef_fail(err, REEF_ERR_INVALID, "a line has more than %u bytes",
                             REEF_JOURNAL_BATCH_BYTES_MAX);
        if (batch->too_large)
            return reef_fail(err, REEF_ERR_INVALID,
                             "Reef-Batch-Id has more than %d characters, and the batch more than "
                             "%u bytes",
                             ID_BYTES_MAX, REEF_JOURNAL_BATCH_BYTES_MAX);
        reef_push_batch *part = new_part(batch, input, number);
        if (part == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
        append_batch(list, part);
        part->made.bytes = malloc(count);
        if (part->made.bytes == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
        memcpy(part->made.bytes, made->bytes + at, count);
        part->made.count = count;
        part->made.records = number == 0 ? made->records : 0;
    }
    return REEF_OK;
}

// Into a batch for each source that its streams have lines for, and for each piece of what is
// longer than one may be. All of them are handed over together, or none.
static reef_status split_batch(reef_push_batch *batch, reef_push_batch **list, reef_error *err) {
    reef_pusher *pusher = batch->pusher;
    reef_status status = REEF_OK;
    if (batch->parts == NULL) status = add_parts(batch, batch->input, &batch->made, list, err);
    for (size_t i = 0; batch->parts != NULL && status == REEF_OK && i < pusher->input_count; i++)
        status = add_parts(batch, &pusher->inputs[i], &batch->parts[i], list, err);
    for (reef_push_batch *part = *list; part != NULL && status != REEF_OK; part = *list) {
        *list = part->next;
        reef_push_batch_free(part);
    }
    for (reef_push_batch *part = *list; part != NULL; part = part->next) {
        part->whole = batch;
        part->weight = part->made.count + BATCH_BYTES;
        pusher->waiting_bytes += part->weight;
        batch->part_count++;
    }
    if (*list == NULL) return status;
    reef_ingested_release(&batch->made);
    free_parts(batch);
    pusher->waiting_bytes -= batch->weight; // the parts' from now on
    batch->weight = 0;
    return REEF_OK;
}

static reef_status refuse_for_now(reef_push_batch *batch, const char *why, reef_error *err) {
    batch->retry_ms = REEF_PUSH_RETRY_MS;
    return reef_fail(err, REEF_ERR_BUSY, "%s", why);
}

// What it takes from now on: its lines. One alone is always taken.
static reef_status weigh(reef_push_batch *batch, reef_error *err) {
    size_t *waiting = &batch->pusher->waiting_bytes, weight = batch->made.count + BATCH_BYTES;
    for (size_t i = 0; batch->parts != NULL && i < batch->pusher->input_count; i++)
        weight += batch->parts[i].count;
    *waiting = *waiting - batch->weight + weight;
    batch->weight = weight;
    if (*waiting == weight || *waiting <= REEF_PUSH_WAITING_BYTES_MAX) return REEF_OK;
    return refuse_for_now(batch, "too much waits for the journal: try again", err);
}

static void wait_for_trainer(reef_pusher *pusher, reef_push_batch *list) {
    uv_mutex_lock(&pusher->lock);
    while (list != NULL) {
        reef_push_batch *next = list->next;
        append_batch(&pusher->waiting, list);
        list = next;
    }
    // One request to the trainer is enough for all batches that wait.
    bool ask = !pusher->asked;
    pusher->asked = true;
    uv_mutex_unlock(&pusher->lock);
    if (ask) request_trainer(pusher);
}

static void on_made(uv_work_t *work, int code) {
    reef_push_batch *batch = work->data, *list = NULL;
    reef_pusher *pusher = batch->pusher;
    reef_status *status = &batch->error.status;
    if (code) *status = reef_fail(&batch->error, REEF_ERR_IO, "%s", uv_strerror(code));
    // What was read is freed before the batch waits: only the made bytes are needed.
    free(batch->body);
    batch->body = NULL;
    if (*status == REEF_OK) *status = weigh(batch, &batch->error);
    bool is_one = batch->parts == NULL && batch->made.count <= REEF_JOURNAL_BATCH_BYTES_MAX;
    if (*status == REEF_OK && !is_one)
        *status = split_batch(batch, &list, &batch->error);
    else if (*status == REEF_OK && batch->made.count > 0)
        append_batch(&list, batch);
    // Without a line there is nothing to do.
    if (list == NULL)
        reply_batch(batch);
    else
        wait_for_trainer(pusher, list);
}

void reef_push_submit_made(reef_pusher *pusher, reef_push_batch *batch) {
    batch->pusher = pusher;
    batch->next = NULL;
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

// has_streams: there are several sources, and the batch's streams name theirs.
static reef_status choose_input(reef_pusher *pusher,
                                reef_push_batch *batch,
                                bool *has_streams,
                                reef_error *err) {
    size_t count = 0;
    batch->input = find_input(pusher, batch->source, &count);
    if (count == 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "nothing can be pushed here: start reefd with --source push:NAME");
    *has_streams = batch->format >= REEF_INGEST_LOKI && !batch->source[0] && count > 1;
    // A choice between several sources is the client's.
    if (!*has_streams && !batch->source[0] && count > 1)
        return reef_fail(err, REEF_ERR_INVALID, "there are %zu sources to push into: name one",
                         count);
    if (batch->input == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "reefd has no source push:%.60s", batch->source);
    return REEF_OK;
}

reef_status reef_push_submit(reef_pusher *pusher, reef_push_batch *batch, reef_error *err) {
    bool has_streams = false;
    reef_status status = choose_input(pusher, batch, &has_streams, err);
    if (status != REEF_OK) return status;
    // New batches are refused while the daemon ends; those accepted are still journalled.
    if (batch->input->stopped) return refuse_for_now(batch, "the daemon is ending", err);
    batch->pusher = pusher;
    batch->weight = batch->body_bytes + BATCH_BYTES;
    // One alone is always taken: it is bounded by what a client may send.
    if (pusher->waiting_bytes > 0 &&
        pusher->waiting_bytes + batch->weight > REEF_PUSH_WAITING_BYTES_MAX)
        return refuse_for_now(batch, "too much waits for the journal: try again", err);
    if (has_streams) {
        batch->input = NULL;
        batch->parts = calloc(pusher->input_count, sizeof(*batch->parts));
        if (batch->parts == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    }
    batch->work.data = batch;
    int code = uv_queue_work(pusher->loop, &batch->work, make_batch, on_made);
    if (code) return reef_fail(err, REEF_ERR_IO, "cannot take the batch: %s", uv_strerror(code));
    pusher->waiting_bytes += batch->weight;
    return REEF_OK;
}
