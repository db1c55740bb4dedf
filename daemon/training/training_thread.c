// The trainer's thread; see training_thread.h.
//
// What decides the result is the order of bytes and of commands, never time: a commit may come
// between any two steps. A commit that fails leaves the state in memory as it was and is tried
// again after a pause, a bounded number of times.
#include "training_internal.h"

#include "joins.h"
#include "reef_process.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

const char *reef_training_state_text(reef_training_state state) {
    static const char *const TEXTS[] = {
#define REEF_TRAINING_STATE_TEXT(name, text) text,
        REEF_TRAINING_STATE_LIST(REEF_TRAINING_STATE_TEXT)
#undef REEF_TRAINING_STATE_TEXT
    };
    return TEXTS[state];
}

// ---- the loop's side ----------------------------------------------------------------------------

bool reef_training_space(reef_training *training, size_t source, uint8_t **at, size_t *count) {
    uv_mutex_lock(&training->lock);
    bool room = reef_queues_space(&training->schedule.queues, source, at, count);
    uv_mutex_unlock(&training->lock);
    return room;
}

void reef_training_fill(
    reef_training *training, size_t source, size_t count, uint64_t begin, char *checkpoint) {
    uv_mutex_lock(&training->lock);
    reef_queues_fill(&training->schedule.queues, source, count, begin, checkpoint);
    uv_cond_signal(&training->changed);
    uv_mutex_unlock(&training->lock);
}

void reef_training_source_end(reef_training *training, size_t source) {
    uv_mutex_lock(&training->lock);
    reef_queues_end(&training->schedule.queues, source);
    uv_cond_signal(&training->changed);
    uv_mutex_unlock(&training->lock);
}

void reef_training_stop(reef_training *training) {
    uv_mutex_lock(&training->lock);
    // Twice is harmless: a second signal comes often.
    if (!training->stopping) {
        training->stopping = true;
        reef_schedule_stop(&training->schedule);
        if (training->view.state < REEF_STATE_DRAINING) training->view.state = REEF_STATE_DRAINING;
        uv_cond_signal(&training->changed);
    }
    uv_mutex_unlock(&training->lock);
}

void reef_training_commit_soon(reef_training *training) {
    training->commit_soon = training->dirty;
}

void reef_training_poke(void *context) {
    reef_training *training = context;
    uv_mutex_lock(&training->lock);
    uv_cond_signal(&training->changed);
    uv_mutex_unlock(&training->lock);
}

void reef_request_release(reef_request *request) {
    free(request->names);
    free(request->until);
    request->names = NULL;
    request->until = NULL;
    request->name_count = 0;
    json_decref(request->result);
    request->result = NULL;
}

// A drain waits for what has been read by now, and what was promised to be.
static void note_what_was_read(reef_training *training, reef_request *request) {
    for (size_t i = 0; i < training->schedule.queues.count; i++) {
        const reef_queue *queue = &training->schedule.queues.queues[i];
        const reef_input *input = &training->options.sources[queue->sources[0]];
        bool promised = queue->live && input->kind->promised && input->bytes > input->offset;
        request->until[i] = queue->ring.tail + (promised ? input->bytes - input->offset : 0);
    }
}

static bool is_full(const reef_request *drains) {
    size_t count = 0;
    for (; drains != NULL; drains = drains->next) count++;
    return count >= REEF_DRAINS_MAX;
}

reef_status reef_training_request(reef_training *training, reef_request *request, reef_error *err) {
    if (request->kind == REEF_REQUEST_DRAIN) {
        // Drains note where every queue stands, and one entry more for the end.
        request->until = calloc(training->schedule.queues.count + 1, sizeof(*request->until));
        if (request->until == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the request");
    }
    uv_mutex_lock(&training->lock);
    bool ended = training->view.ended;
    bool full = request->until != NULL && is_full(training->drains);
    if (!ended && !full) {
        // "Everything read until now" is fixed when the request arrives.
        if (request->until != NULL) note_what_was_read(training, request);
        request->asked_ns = uv_hrtime();
        reef_training_append(
            request->kind == REEF_REQUEST_DRAIN ? &training->drains : &training->requests, request);
        uv_cond_signal(&training->changed);
    }
    uv_mutex_unlock(&training->lock);
    if (!ended && !full) return REEF_OK;
    free(request->until); // a refused request is as it was
    request->until = NULL;
    return reef_fail(err, REEF_ERR_BUSY, "%s",
                     ended ? "the daemon is ending" : "too many drains wait already");
}

void reef_training_reply(reef_training *training) {
    // Taken under the lock, answered without it: callbacks may ask for more.
    uv_mutex_lock(&training->lock);
    reef_request *list = training->answered;
    training->answered = NULL;
    uv_mutex_unlock(&training->lock);
    while (list != NULL) {
        reef_request *next = list->next;
        // The owner may be gone: its reply is dropped.
        if (list->owner != NULL) list->on_reply(list);
        reef_request_release(list);
        free(list);
        list = next;
    }
}

bool reef_training_settled(reef_training *training,
                           size_t source,
                           reef_input_offset *position,
                           char **checkpoint) {
    uv_mutex_lock(&training->lock);
    // Handed over once: the slot is empty until the next commit.
    reef_settled_position settled = training->settled[source];
    training->settled[source] = (reef_settled_position){0};
    uv_mutex_unlock(&training->lock);
    *checkpoint = settled.checkpoint;
    *position = (reef_input_offset){
        .cursor = settled.cursor, .begin = settled.begin, .checkpoint = *checkpoint};
    return settled.fresh;
}

void reef_training_view_read(reef_training *training,
                             reef_training_view *view,
                             reef_progress *progress) {
    uv_mutex_lock(&training->lock);
    // A copy, so that the caller may take its time without the lock.
    *view = training->view;
    view->queue_bytes = reef_queues_waiting(&training->schedule.queues);
    const reef_schedule *schedule = &training->schedule;
    for (size_t i = 0; progress != NULL && i < training->options.source_count; i++)
        progress[i] =
            (reef_progress){.cursor = training->cursors[i],
                            .committed = training->committed[i],
                            .loss = training->losses[i],
                            .ended = reef_queues_has_ended(&schedule->queues, i),
                            .idle = schedule->stride_queues[schedule->queues.queue_of[i]].idle};
    uv_mutex_unlock(&training->lock);
}

// ---- what to do next ----------------------------------------------------------------------------

static uint64_t commit_deadline(const reef_training *training) {
    double seconds = training->options.commits.seconds;
    if (!training->dirty || seconds <= 0) return UINT64_MAX;
    return training->committed_ns + (uint64_t)(seconds * NS_PER_SECOND);
}

static bool commit_is_due(const reef_training *training) {
    if (training->commit_soon) return true;
    uint64_t steps = training->options.commits.steps;
    if (steps && training->commit_steps >= steps) return true;
    return uv_hrtime() >= commit_deadline(training);
}

// What would be trained now, or decided so that something can be.
static bool find_stream(reef_training *training, reef_schedule_next *next) {
    *next = (reef_schedule_next){.deadline_ns = UINT64_MAX};
    if (training->paused && !training->stopping) return false;
    if (reef_joins_room(training->options.joins) == 0) return false;
    reef_schedule_find(&training->schedule, uv_hrtime(), next);
    return next->kind != REEF_SCHEDULE_NOTHING;
}

// What comes first of all that could be done; `stream`: there is something to train.
static work_kind choose(reef_training *training, reef_joins_turn turn, bool stream, work *found) {
    // After a request a step goes first, so that clients who ask without pause cannot stop
    // training.
    found->request = reef_training_take_request(training, training->served && stream);
    if (found->request != NULL) return WORK_REQUEST;
    // Damage that the scrubber found is reported by this thread, because it owns the trainer and
    // its events.
    if (training->options.scrubber != NULL && reef_scrubber_waits(training->options.scrubber))
        return WORK_DAMAGE;
    // A commit that is due comes before new bytes: waiting work would only make it larger.
    if (commit_is_due(training)) return WORK_COMMIT;
    // Before new bytes as well: the state of the full hour is the one before what came after it.
    if (!training->stopping && reef_training_state_is_due(training)) return WORK_KEEP;
    // One small step at a time with training in between; what is left at the end is for the next
    // run.
    if (training->compacting && !training->stopping && !(training->compacted && stream))
        return WORK_COMPACT;
    if (turn == REEF_JOINS_MEET) return WORK_JOIN;
    if (turn == REEF_JOINS_LEAVE) return WORK_LEAVE;
    if (turn == REEF_JOINS_WAIT) return WORK_NONE;
    if (stream) return found->next.kind == REEF_SCHEDULE_BYTES ? WORK_FEED : WORK_DECIDE;
    if (training->stopping) return WORK_END;
    // Paused or waiting for bytes. Looking for them has found out where the last source ended.
    if (training->paused || !reef_schedule_is_done(&training->schedule)) return WORK_NONE;
    if (!training->drained) return WORK_DRAIN;
    return training->options.stay ? WORK_NONE : WORK_END;
}

static bool find_work(reef_training *training, work *found) {
    *found = (work){.next.deadline_ns = UINT64_MAX};
    bool done = reef_schedule_is_done(&training->schedule);
    // Other ranks are heard between any two pieces of work.
    reef_joins_turn turn =
        reef_joins_next(training->options.joins, done && training->drained, training->stopping);
    bool stream = turn == REEF_JOINS_LEARN && find_stream(training, &found->next);
    found->kind = choose(training, turn, stream, found);
    return found->kind != WORK_NONE;
}

static void wait_for_change(reef_training *training, uint64_t deadline) {
    uint64_t commit = commit_deadline(training), now = uv_hrtime();
    uint64_t keep = reef_training_state_deadline(training);
    if (commit < deadline) deadline = commit;
    if (keep < deadline) deadline = keep;
    if (training->options.joins != NULL) {
        uint64_t patience =
            (uint64_t)(reef_joins_patience(training->options.joins) * NS_PER_SECOND);
        if (deadline > now + patience) deadline = now + patience;
    }
    if (training->options.crew != NULL) {
        uint64_t patience = (uint64_t)(reef_crew_patience(training->options.crew) * NS_PER_SECOND);
        if (deadline > now + patience) deadline = now + patience;
    }
    if (deadline == UINT64_MAX)
        uv_cond_wait(&training->changed, &training->lock);
    else if (deadline > now)
        (void)uv_cond_timedwait(&training->changed, &training->lock, deadline - now);
}

// Other ranks would take this one for lost. Sent without the lock, which is held for copies only.
static void say_still_here(reef_training *training) {
    if (training->options.crew == NULL) return;
    uv_mutex_unlock(&training->lock);
    reef_crew_tell(training->options.crew, (reef_crew_order){.kind = REEF_CREW_STILL_HERE}, NULL,
                   0);
    uv_mutex_lock(&training->lock);
}

static work next_work(reef_training *training) {
    work next;
    uv_mutex_lock(&training->lock);
    while (!find_work(training, &next)) {
        reef_training_set_state(training,
                                training->paused ? REEF_STATE_PAUSED : REEF_STATE_WAITING);
        // `idle` tells drains and tests that everything accepted has been dealt with.
        training->view.idle = true;
        wait_for_change(training, next.next.deadline_ns);
        say_still_here(training);
        training->view.idle = false;
    }
    if (next.kind == WORK_FEED) reef_training_set_state(training, REEF_STATE_TRAINING);
    training->served = next.kind == WORK_REQUEST;
    training->compacted = next.kind == WORK_COMPACT;
    uv_mutex_unlock(&training->lock);
    return next;
}

// ---- the thread ---------------------------------------------------------------------------------

static reef_status run_thread(reef_training *training, reef_error *err) {
    reef_status status = REEF_OK;
    reef_crew_begin_figures(training->options.crew, training->options.trainer);
    // Each iteration takes one piece of work, decided under the lock and done without it.
    while (status == REEF_OK) {
        work next = next_work(training);
        switch (next.kind) {
        case WORK_REQUEST:
            reef_training_handle_request(training, next.request);
            break;
        case WORK_DAMAGE:
            reef_training_note_damage(training);
            break;
        case WORK_COMMIT:
            status = reef_training_commit(training, err);
            break;
        case WORK_KEEP:
            reef_training_keep_state(training);
            break;
        case WORK_COMPACT:
            reef_training_compact(training);
            break;
        case WORK_DECIDE:
            reef_training_decide(training, &next.next);
            break;
        case WORK_FEED:
            status = reef_training_feed(training, &next, err);
            break;
        case WORK_DRAIN:
            status = reef_training_drain(training, err);
            break;
        case WORK_JOIN:
            status = reef_training_join_ranks(training, err);
            break;
        case WORK_LEAVE:
            reef_training_stop(training);
            break;
        case WORK_NONE:
        case WORK_END:
            return REEF_OK;
        }
    }
    return status;
}

static void move_unserved(reef_training *training) {
    while (training->requests != NULL || training->drains != NULL) {
        reef_request *request = reef_training_take_first(
            training->requests != NULL ? &training->requests : &training->drains);
        request->error.status = reef_fail(&request->error, REEF_ERR_BUSY, "the daemon is ending");
        reef_training_append(&training->answered, request);
    }
}

// Divided pools make their commits together. Nothing is lost without it.
static void rest(reef_training *training) {
    reef_error err;
    uint64_t begin = uv_hrtime();
    if (training->options.crew != NULL) return;
    reef_status status = reef_trainer_rest(training->options.trainer, &err);
    if (status == REEF_OK)
        status = reef_training_note_own_commit(training, (double)(uv_hrtime() - begin) / 1e6, &err);
    if (status != REEF_OK)
        reef_report_warning(training->options.report, "tables_old",
                            "the next start will take up to some seconds more: %s", err.message);
}

static void training_main(void *argument) {
    reef_training *training = argument;
    reef_error err = {.status = REEF_OK};
    reef_trainer_give_way(training->options.trainer, REEF_NICENESS_TRAINING);
    reef_status status = run_thread(training, &err);
    // The state is that of ending before the last commit, which may take long.
    reef_training_end_state(training);
    reef_training_note_damage(training);
    // What was trained after the last commit is kept, unless training itself failed.
    if (status == REEF_OK && training->dirty) status = reef_training_commit(training, &err);
    if (status == REEF_OK) rest(training);
    err.status = status;
    if (status != REEF_OK) reef_joins_fail(training->options.joins, &err);

    // Requests that came too late get a reply, so that no client waits for ever.
    uv_mutex_lock(&training->lock);
    move_unserved(training);
    training->view.ended = true;
    training->view.outcome = err;
    uv_mutex_unlock(&training->lock);
    // Wakes the loop, which then joins this thread.
    (void)uv_async_send(training->options.wake);
}

// ---- life ---------------------------------------------------------------------------------------

static void training_free(reef_training *training) {
    uv_cond_destroy(&training->changed);
    uv_mutex_destroy(&training->lock);
    reef_schedule_release(&training->schedule);
    for (size_t i = 0; i < training->options.source_count; i++) {
        // Also called when starting failed half way: any of these may be NULL.
        if (training->positions != NULL) free(training->positions[i].checkpoint);
        if (training->settled != NULL) free(training->settled[i].checkpoint);
    }
    free(training->positions);
    free(training->settled);
    free(training->cursors);
    free(training->committed);
    free(training->losses);
    free(training);
}

static bool watches(const reef_training_options *options) {
    reef_trainer_status status;
    reef_trainer_status_read(options->trainer, &status);
    return status.watches;
}

// Memory, lock and condition; on failure nothing is left.
static reef_status training_new(reef_training **out,
                                const reef_training_options *options,
                                reef_error *err) {
    reef_training *training = calloc(1, sizeof(*training));
    if (training == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the trainer's thread");
    training->options = *options;
    if (uv_mutex_init(&training->lock) || uv_cond_init(&training->changed))
        abort(); // out of kernel memory
    training->cursors = calloc(options->source_count + 1, sizeof(*training->cursors));
    training->committed = calloc(options->source_count + 1, sizeof(*training->committed));
    training->losses = calloc(options->source_count + 1, sizeof(*training->losses));
    training->positions = calloc(options->source_count + 1, sizeof(*training->positions));
    training->settled = calloc(options->source_count + 1, sizeof(*training->settled));
    reef_status status =
        training->cursors != NULL && training->committed != NULL && training->losses != NULL &&
                training->positions != NULL && training->settled != NULL
            ? reef_schedule_init(&training->schedule, options->store, options->sources,
                                 options->source_count, options->patience_s, watches(options), err)
            : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu sources",
                        options->source_count);
    if (status != REEF_OK) {
        training_free(training);
        return status;
    }
    *out = training;
    return REEF_OK;
}

reef_status reef_training_start(reef_training **out,
                                const reef_training_options *options,
                                reef_error *err) {
    *out = NULL;
    reef_training *training = NULL;
    reef_status status = training_new(&training, options, err);
    if (status != REEF_OK) return status;

    // Cursors as the pool has them: what was read before counts as accepted and committed.
    for (size_t i = 0; i < options->source_count; i++)
        training->cursors[i] = training->committed[i] =
            reef_trainer_cursor(options->trainer, options->sources[i].name);
    // From here on every commit writes the sources' checkpoints with it.
    reef_trainer_on_commit(options->trainer, reef_training_write_checkpoints, training);
    training->committed_ns = uv_hrtime();
    training->compacting = true; // what the run before left
    training->view.state = REEF_STATE_WAITING;
    reef_trainer_status_read(options->trainer, &training->view.trainer);
    training->view.committed = training->view.trainer;
    status = reef_store_read_commit(options->store, &training->view.last.commit, err);
    if (status == REEF_OK) {
        int code = uv_thread_create(&training->thread, training_main, training);
        if (code)
            status =
                reef_fail(err, REEF_ERR_NO_MEMORY, "no thread for training: %s", uv_strerror(code));
    }
    // The callback must not outlive the structure that it points to.
    if (status != REEF_OK) {
        reef_trainer_on_commit(options->trainer, NULL, NULL);
        training_free(training);
        return status;
    }
    *out = training;
    return REEF_OK;
}

void reef_training_join(reef_training *training) {
    if (training == NULL) return;
    (void)uv_thread_join(&training->thread);
    reef_trainer_on_commit(training->options.trainer, NULL, NULL);
    training_free(training);
}
