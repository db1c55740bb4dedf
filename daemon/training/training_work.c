// The pieces of work of the trainer's thread but for commits; see training_thread.h.
#include "joins.h"
#include "training_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DECISION_RETRY_SECONDS 1

// Without a lock: only this thread reads the policy.
static reef_status set_commit_policy(reef_training *training,
                                     const reef_commit_policy *policy,
                                     reef_error *err) {
    // Another period begins at once; otherwise the next state is due when it was.
    if (training->options.commits.state_every_ms != policy->state_every_ms)
        training->state_due_ms = 0;
    training->options.commits = *policy;
    reef_crew_result unused;
    const reef_crew_order order = {.kind = REEF_CREW_POOL_MAX, .pool_max = policy->pool_bytes_max};
    return reef_crew_do(training->options.crew, training->options.trainer, &order, NULL, 0, &unused,
                        err);
}

static reef_status commit_if_dirty(reef_training *training, reef_error *err) {
    return training->dirty ? reef_training_commit_once(training, err) : REEF_OK;
}

// A commit that fails does not pause: its sender was refused and would not know.
static reef_status pause_training(reef_training *training, reef_error *err) {
    reef_status status = commit_if_dirty(training, err);
    if (status == REEF_OK) reef_training_set_paused(training, true);
    return status;
}

static reef_status run_request(reef_training *training, reef_request *request, reef_error *err) {
    // One function for every request: HTTP and signals all end here.
    reef_trainer *trainer = training->options.trainer;
    switch (request->kind) {
    case REEF_REQUEST_COMMIT:
        return commit_if_dirty(training, err);
    case REEF_REQUEST_ORDER:
        return reef_crew_do(training->options.crew, trainer, &request->order, request->names,
                            request->name_count * sizeof(*request->names), &request->done, err);
    case REEF_REQUEST_PAUSE:
        return pause_training(training, err);
    case REEF_REQUEST_RESUME:
        reef_training_set_paused(training, false);
        return REEF_OK;
    case REEF_REQUEST_CALL:
        return request->call(request->call_context, training->options.store, trainer, err);
    case REEF_REQUEST_DRAIN:
        // A drain that cannot finish is refused now, instead of keeping its sender waiting for
        // ever.
        if (!reef_training_is_drained(training, request))
            return reef_fail(err, REEF_ERR_BUSY,
                             "training is %s, so what was read is not trained now",
                             training->paused ? "paused" : "ending");
        return commit_if_dirty(training, err);
    case REEF_REQUEST_COMMIT_POLICY:
        return set_commit_policy(training, &request->commits, err);
    case REEF_REQUEST_RELOAD:
        break; // the service's
    }
    return reef_fail(err, REEF_ERR_INVALID, "unknown request %d", (int)request->kind);
}

// A command that fails concerns its sender only; training continues.
void reef_training_handle_request(reef_training *training, reef_request *request) {
    request->error = (reef_error){.status = REEF_OK};
    uint64_t begin = uv_hrtime();
    // How long it waited behind training is reported, since it bounds how long any request may
    // take.
    request->waited_ms = (double)(begin - request->asked_ns) / 1e6;
    reef_status status = run_request(training, request, &request->error);
    // What was accepted is neither written nor changed by a call. One that failed may have come as
    // far as a commit: that is known then, and is not taken for one of a later request.
    bool aside = request->kind == REEF_REQUEST_CALL;
    if (status != REEF_OK)
        (void)!reef_training_note_aside(training, NULL);
    else if (aside)
        status = reef_training_note_aside(training, &request->error);
    else
        status = reef_training_note_own_commit(training, (double)(uv_hrtime() - begin) / 1e6,
                                               &request->error);
    request->error.status = status;
    // The change may be in memory although its commit failed: the next commit writes it.
    if (reef_training_worth_retrying(status) && !aside) training->dirty = true;
    reef_training_refresh(training);
    uv_mutex_lock(&training->lock);
    // While commits fail, only a successful request counts as progress for the watchdog.
    training->view.advances += status == REEF_OK && !training->view.failing[0];
    request->trainer = training->view.trainer;
    request->last = training->view.last;
    reef_training_append(&training->answered, request);
    uv_mutex_unlock(&training->lock);
    (void)uv_async_send(training->options.wake);
}

static void took(reef_training *training, size_t source, const work *piece, size_t taken) {
    uint64_t cursor =
        reef_trainer_cursor(training->options.trainer, training->options.sources[source].name);
    reef_trainer_status status;
    reef_trainer_status_read(training->options.trainer, &status);
    uv_mutex_lock(&training->lock);
    // Together: whoever asks meanwhile finds cursors that are what was learned and is carried.
    training->cursors[source] = cursor;
    training->view.trainer = status;
    (void)reef_queue_checkpoint_at(&training->schedule.queues.queues[piece->next.queue],
                                   cursor); // frees old ones
    bool room = reef_schedule_took(&training->schedule, &piece->next, taken);
    uv_mutex_unlock(&training->lock);
    if (room) (void)uv_async_send(training->options.wake);
}

// Bytes of a source from its cursor on, for the trainer of every rank; `place` may be NULL.
static reef_status feed(reef_training *training,
                        const char *source,
                        const reef_queue_place *place,
                        uint64_t cursor,
                        const uint8_t *bytes,
                        size_t count,
                        reef_crew_result *out,
                        reef_error *err) {
    reef_crew_order order = {.kind = REEF_CREW_FEED};
    reef_crew *crew = training->options.crew;
    // The call returns after a step; what it leaves travels again.
    if (crew != NULL && count > REEF_CREW_FEED_BYTES_MAX) count = REEF_CREW_FEED_BYTES_MAX;
    assert(strlen(source) < sizeof(order.name)); // as the trainer has it
    memcpy(order.name, source, strlen(source));
    if (place != NULL) {
        assert(strlen(place->file) < sizeof(order.file));
        memcpy(order.file, place->file, strlen(place->file));
        order.file_offset = place->offset + (cursor - place->begin);
    }
    return reef_crew_do(crew, training->options.trainer, &order, bytes, count, out, err);
}

reef_status reef_training_feed(reef_training *training, const work *piece, reef_error *err) {
    reef_crew_result fed = {0};
    // Only this thread moves a queue on to its next source.
    reef_queue *queue = &training->schedule.queues.queues[piece->next.queue];
    size_t source = reef_queue_source(queue);
    const char *name = training->options.sources[source].name;
    uint64_t room = reef_joins_room(training->options.joins), in_file;
    const uint64_t cursor = reef_trainer_cursor(training->options.trainer, name);
    uv_mutex_lock(&training->lock);
    const reef_queue_place *place = reef_queue_place_at(queue, cursor, &in_file);
    uv_mutex_unlock(&training->lock);
    if (in_file < room) room = in_file;
    size_t count = piece->next.count < room ? piece->next.count : (size_t)room;
    // Only this thread frees places.
    reef_status status = feed(training, name, place, cursor, piece->next.bytes, count, &fed, err);
    reef_joins_accepted(training->options.joins, fed.taken);
    if (status != REEF_OK) return status;
    // The trainer takes what it is given, or fails.
    assert(fed.taken <= piece->next.count);
    training->dirty = true;
    training->commit_steps += fed.steps;
    took(training, source, piece, fed.taken);
    reef_training_refresh(training);
    reef_training_advance(training);
    return REEF_OK;
}

typedef struct decision_writer {
    reef_schedule *schedule;
    const reef_schedule_next *next;
} decision_writer;

static reef_status write_decision(void *context, reef_txn *txn, reef_error *err) {
    const decision_writer *writer = context;
    if (writer->next->kind == REEF_SCHEDULE_FORGET)
        return reef_decisions_drop(txn, &writer->schedule->after, err);
    reef_schedule_choice decision = reef_schedule_decision(writer->schedule, writer->next);
    return reef_decision_write(txn, &decision, err);
}

// A scheduling decision takes effect once it is in the pool, so that it is the same after a crash.
// Until then the empty queue is waited for.
void reef_training_decide(reef_training *training, const reef_schedule_next *next) {
    reef_error err = {.status = REEF_OK};
    decision_writer writer = {.schedule = &training->schedule, .next = next};
    // Written and committed before it takes effect: if the process dies here, the next run makes
    // the same decision at the same position.
    reef_status status =
        reef_trainer_write(training->options.trainer, write_decision, &writer, &err);
    if (status == REEF_OK) status = reef_training_note_aside(training, &err);
    if (status != REEF_OK) {
        reef_report_warning(
            training->options.report, "turn_failed",
            "the decision which queue is next could not be written: %s; trying again", err.message);
        reef_training_pause_for(training, DECISION_RETRY_SECONDS);
        return;
    }
    if (next->kind == REEF_SCHEDULE_FORGET)
        reef_report_warning(training->options.report, "turns_forgotten",
                            "the sources do not give what they gave before the last end, so the "
                            "order of the stream is decided again");
    // The schedule belongs to the loop as well.
    uv_mutex_lock(&training->lock);
    if (next->kind == REEF_SCHEDULE_FORGET)
        reef_schedule_forgot(&training->schedule);
    else
        reef_schedule_decided(&training->schedule, next, uv_hrtime());
    uv_mutex_unlock(&training->lock);
}

// For whom it may concern once the commit went through. `checkpoint` may be NULL; without memory
// for it the next commit reports.
static void note_position(reef_training *training,
                          const reef_input *input,
                          uint64_t cursor,
                          const reef_queue_checkpoint *checkpoint) {
    if (input->kind->settled == NULL) return;
    reef_settled_position *position = &training->positions[input - training->options.sources];
    free(position->checkpoint);
    *position = (reef_settled_position){.cursor = cursor, .fresh = true};
    if (checkpoint == NULL) return;
    position->begin = checkpoint->begin;
    position->checkpoint = strdup(checkpoint->text);
}

// Written with every commit: the scheduler's state and the read positions of live sources.
reef_status reef_training_write_checkpoints(void *context, reef_txn *txn, reef_error *err) {
    reef_training *training = context;
    reef_schedule *schedule = &training->schedule;
    // A single queue has no schedule that could be restored.
    reef_status status =
        schedule->queues.count > 1 ? reef_stride_write(txn, &schedule->stride, err) : REEF_OK;
    for (size_t i = 0; i < schedule->queues.count && status == REEF_OK; i++) {
        reef_queue *queue = &schedule->queues.queues[i];
        if (!queue->live) continue;
        reef_input *input = &training->options.sources[queue->sources[0]];
        uint64_t cursor = reef_trainer_cursor(training->options.trainer, input->name);
        // Kinds that keep more than a position, such as pushes, write it in the same transaction.
        if (input->kind->committed != NULL)
            status = input->kind->committed(input, txn, cursor, err);
        uv_mutex_lock(&training->lock);
        const reef_queue_checkpoint *checkpoint = reef_queue_checkpoint_at(queue, cursor);
        uv_mutex_unlock(&training->lock);
        // Only this thread frees checkpoints, so it stays valid.
        if (status == REEF_OK && checkpoint != NULL)
            status = reef_source_checkpoint_write(txn, input->name, checkpoint->begin,
                                                  checkpoint->text, err);
        note_position(training, input, cursor, checkpoint);
    }
    return status == REEF_OK ? reef_joins_write(training->options.joins, txn, err) : status;
}

static void advance(void *context) {
    reef_training_advance(context);
}

reef_status reef_training_join_ranks(reef_training *training, reef_error *err) {
    uint64_t begin = uv_hrtime();
    reef_status status = reef_joins_meet(training->options.joins, advance, training, err);
    if (status == REEF_OK)
        status = reef_training_note_own_commit(training, (double)(uv_hrtime() - begin) / 1e6, err);
    reef_training_refresh(training);
    reef_training_advance(training);
    return status;
}

static bool nothing_ever_came(const reef_training *training) {
    for (size_t i = 0; i < training->options.source_count; i++)
        if (training->cursors[i]) return false;
    return true;
}

void reef_training_end_state(reef_training *training) {
    uv_mutex_lock(&training->lock);
    reef_training_set_state(training, REEF_STATE_ENDING);
    uv_mutex_unlock(&training->lock);
}

// ---- commits that are tried again ---------------------------------------------------------------

// The pause between two tries. Requests are handled meanwhile, and fail with the same error where
// they need space. When a commit that a client requested succeeds, the pause is over. Returns false
// when a stop cut it short: then the next try is the last.
static bool handle_requests(reef_training *training, uint64_t seconds) {
    uint64_t deadline = uv_hrtime() + seconds * NS_PER_SECOND;
    for (;;) {
        reef_request *request = NULL;
        if (!reef_training_wait_until(training, deadline, &request)) return false;
        if (request == NULL) return true;
        reef_training_handle_request(training, request);
        if (!training->dirty) return true;
    }
}

static void note_failure(reef_training *training, const reef_error *err) {
    uv_mutex_lock(&training->lock);
    snprintf(training->view.failing, sizeof(training->view.failing), "%s", err->message);
    uv_mutex_unlock(&training->lock);
}

reef_status reef_training_commit(reef_training *training, reef_error *err) {
    bool waited = true;
    for (uint32_t attempt = 0;; attempt++) {
        // Whoever asked for a commit in the pause may have had it.
        bool done = attempt > 0 && !training->dirty;
        reef_status status = done ? REEF_OK : reef_training_commit_once(training, err);
        if (status == REEF_OK) {
            if (attempt)
                reef_report_warning(training->options.report, "commit_recovered",
                                    "the commit went through");
            return REEF_OK;
        }
        note_failure(training, err);
        // Read again each time: a reload in the pause may have changed it.
        uint32_t retries = training->options.commits.retries;
        if (!reef_training_worth_retrying(status) || attempt >= retries || !waited) return status;
        uint64_t seconds = 1u << attempt;
        reef_report_warning(
            training->options.report, "commit_failed",
            "%s; nothing committed is lost, the rest is kept in memory: trying again in %" PRIu64
            " s (%" PRIu32 " of %" PRIu32 ")",
            err->message, seconds, attempt + 1, retries);
        waited = handle_requests(training, seconds);
    }
}

// The last source has ended: run the steps that deferred batches still allow, and commit.
reef_status reef_training_drain(reef_training *training, reef_error *err) {
    training->drained = true;
    if (!training->options.stay) reef_training_end_state(training);
    if (!training->options.source_count) return REEF_OK;
    // An empty stream is an error for a run that should end, and a warning for one that stays.
    if (nothing_ever_came(training)) {
        if (!training->options.stay)
            return reef_fail(err, REEF_ERR_NOT_FOUND,
                             "the stream is empty: nothing to train on in %s%s; "
                             "give a source that has something",
                             training->options.sources[0].label,
                             training->options.source_count > 1 ? " and the others" : "");
        reef_report_warning(training->options.report, "empty", "no source has a single byte");
        return REEF_OK;
    }
    reef_status status = REEF_OK;
    const char *name = training->options.sources[training->options.source_count - 1].name;
    // Zero bytes of the last source: the trainer decides about the batches that it still holds.
    for (reef_crew_result fed = {.steps = 1}; status == REEF_OK && fed.steps;) {
        status = feed(training, name, NULL, 0, (const uint8_t *)"", 0, &fed, err);
        if (fed.steps) training->dirty = true;
        if (fed.steps) reef_training_advance(training);
    }
    reef_training_refresh(training);
    if (status == REEF_OK && training->dirty) status = reef_training_commit(training, err);
    return status;
}
