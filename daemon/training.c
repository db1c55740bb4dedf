// The trainer's thread; see training.h.
//
// What decides the result is the order of bytes and of commands, never time: a commit may come between
// any two steps. A commit that fails leaves the state in memory as it was and is tried again after a
// pause, a bounded number of times.
#include "training.h"

#include "schedule.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1000000000u
#define DECISION_RETRY_SECONDS 1

struct reef_training {
    // set before the thread starts
    reef_training_options options;
    uv_thread_t thread;
    // the trainer's thread only
    uint64_t committed_ns; // when the last commit was
    uint64_t commit_steps; // steps since
    bool dirty;            // something was accepted since
    bool served;           // the last piece of work was a request
    bool compacting;       // since the last commit usage may have windows to merge
    bool compacted;        // the last piece of work merged some
    bool drained;          // the last source's end was dealt with
    bool stop_seen;        // a pause between commits was cut short
    uv_mutex_t lock;       // protects everything below
    uv_cond_t changed;     // something below changed that the trainer may wait for
    reef_schedule schedule;
    uint64_t *cursors;        // (sources) bytes accepted
    reef_source_loss *losses; // (sources) before training on them
    reef_request *requests;   // first come first
    reef_request *drains;     // those that wait for bytes to be trained
    bool paused;
    reef_request *answered;
    bool stopping;
    reef_training_view view;
};

const char *reef_training_state_text(reef_training_state state) {
    static const char *const TEXTS[] = {
#define REEF_TRAINING_STATE_TEXT(name, text) text,
        REEF_TRAINING_STATE_LIST(REEF_TRAINING_STATE_TEXT)
#undef REEF_TRAINING_STATE_TEXT
    };
    return TEXTS[state];
}

// ---- the loop's side -----------------------------------------------------------------------------

bool reef_training_space(reef_training *training, size_t source, uint8_t **at, size_t *count) {
    uv_mutex_lock(&training->lock);
    bool room = reef_lanes_space(&training->schedule.lanes, source, at, count);
    uv_mutex_unlock(&training->lock);
    return room;
}

void reef_training_fill(
    reef_training *training, size_t source, size_t count, uint64_t begin, char *mark) {
    uv_mutex_lock(&training->lock);
    reef_lanes_fill(&training->schedule.lanes, source, count, begin, mark);
    uv_cond_signal(&training->changed);
    uv_mutex_unlock(&training->lock);
}

void reef_training_source_end(reef_training *training, size_t source) {
    uv_mutex_lock(&training->lock);
    reef_lanes_end(&training->schedule.lanes, source);
    uv_cond_signal(&training->changed);
    uv_mutex_unlock(&training->lock);
}

void reef_training_stop(reef_training *training) {
    uv_mutex_lock(&training->lock);
    if (!training->stopping) {
        training->stopping = true;
        reef_schedule_stop(&training->schedule);
        if (training->view.state < REEF_STATE_DRAINING) training->view.state = REEF_STATE_DRAINING;
        uv_cond_signal(&training->changed);
    }
    uv_mutex_unlock(&training->lock);
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

static void append(reef_request **list, reef_request *request) {
    while (*list) list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

// A drain waits for what has been read by now, and what was promised to be.
static void note_what_was_read(reef_training *training, reef_request *request) {
    for (size_t i = 0; i < training->schedule.lanes.count; i++) {
        const reef_lane *lane = &training->schedule.lanes.lanes[i];
        const reef_input *input = &training->options.sources[lane->sources[0]];
        bool promised = lane->live && input->kind->promised && input->bytes > input->offset;
        request->until[i] = lane->ring.tail + (promised ? input->bytes - input->offset : 0);
    }
}

reef_status reef_training_request(reef_training *training, reef_request *request, reef_error *err) {
    if (request->kind == REEF_REQUEST_DRAIN) {
        request->until = calloc(training->schedule.lanes.count + 1, sizeof(*request->until));
        if (!request->until) return reef_fail(err, REEF_NO_MEMORY, "no memory for the request");
    }
    uv_mutex_lock(&training->lock);
    bool ended = training->view.ended;
    if (!ended) {
        if (request->until) note_what_was_read(training, request);
        request->asked_ns = uv_hrtime();
        append(request->kind == REEF_REQUEST_DRAIN ? &training->drains : &training->requests,
               request);
        uv_cond_signal(&training->changed);
    }
    uv_mutex_unlock(&training->lock);
    return ended ? reef_fail(err, REEF_BUSY, "the daemon is ending") : REEF_OK;
}

void reef_training_answer(reef_training *training) {
    uv_mutex_lock(&training->lock);
    reef_request *list = training->answered;
    training->answered = NULL;
    uv_mutex_unlock(&training->lock);
    while (list) {
        reef_request *next = list->next;
        if (list->owner) list->on_answer(list);
        reef_request_release(list);
        free(list);
        list = next;
    }
}

void reef_training_view_read(reef_training *training,
                             reef_training_view *view,
                             reef_progress *progress) {
    uv_mutex_lock(&training->lock);
    *view = training->view;
    view->queue_bytes = reef_lanes_waiting(&training->schedule.lanes);
    const reef_schedule *schedule = &training->schedule;
    for (size_t i = 0; progress && i < training->options.source_count; i++)
        progress[i] =
            (reef_progress){.cursor = training->cursors[i],
                            .loss = training->losses[i],
                            .ended = reef_lanes_has_ended(&schedule->lanes, i),
                            .sits_out = schedule->turn_lanes[schedule->lanes.lane_of[i]].out};
    uv_mutex_unlock(&training->lock);
}

// ---- what to do next -----------------------------------------------------------------------------

typedef enum work_kind {
    WORK_REQUEST,
    WORK_DAMAGE,
    WORK_COMMIT,
    WORK_COMPACT,
    WORK_DECIDE,
    WORK_FEED,
    WORK_DRAIN,
    WORK_END
} work_kind;

typedef struct work {
    work_kind kind;
    reef_request *request;
    reef_schedule_next next; // bytes to train, or a decision about turns
} work;

static uint64_t commit_deadline(const reef_training *training) {
    double seconds = training->options.commit_seconds;
    if (!training->dirty || seconds <= 0) return UINT64_MAX;
    return training->committed_ns + (uint64_t)(seconds * NS_PER_SECOND);
}

static bool commit_is_due(const reef_training *training) {
    uint64_t steps = training->options.commit_steps;
    if (steps && training->commit_steps >= steps) return true;
    return uv_hrtime() >= commit_deadline(training);
}

static reef_request *take_first(reef_request **list) {
    reef_request *request = *list;
    *list = request->next;
    return request;
}

static bool is_drained(const reef_training *training, const reef_request *request) {
    for (size_t i = 0; i < training->schedule.lanes.count; i++)
        if (training->schedule.lanes.lanes[i].ring.head < request->until[i]) return false;
    return true;
}

// One that has nothing to wait for any more: what it named is trained, or nothing is trained now.
static bool drain_is_due(const reef_training *training) {
    const reef_request *drain = training->drains;
    return drain && (training->paused || training->stopping || is_drained(training, drain));
}

// What would be trained now, or decided so that something can be.
static bool find_stream(reef_training *training, reef_schedule_next *next) {
    *next = (reef_schedule_next){.deadline_ns = UINT64_MAX};
    if (training->paused && !training->stopping) return false;
    reef_schedule_find(&training->schedule, uv_hrtime(), next);
    return next->kind != REEF_SCHEDULE_NOTHING;
}

static bool find_work(reef_training *training, work *found) {
    *found = (work){0};
    bool stream = find_stream(training, &found->next);
    // After a request a step goes first, so that clients who ask without pause cannot stop training.
    if (training->requests && !(training->served && stream)) {
        found->kind = WORK_REQUEST;
        found->request = take_first(&training->requests);
        return true;
    }
    if (drain_is_due(training)) {
        found->kind = WORK_REQUEST;
        found->request = take_first(&training->drains);
        return true;
    }
    if (training->options.scrubber && reef_scrubber_waits(training->options.scrubber)) {
        found->kind = WORK_DAMAGE;
        return true;
    }
    if (commit_is_due(training)) {
        found->kind = WORK_COMMIT;
        return true;
    }
    // One small step at a time with training in between; what is left at the end is for the next run.
    if (training->compacting && !training->stopping && !(training->compacted && stream)) {
        found->kind = WORK_COMPACT;
        return true;
    }
    if (stream) {
        found->kind = found->next.kind == REEF_SCHEDULE_BYTES ? WORK_FEED : WORK_DECIDE;
        return true;
    }
    if (training->stopping) {
        found->kind = WORK_END;
        return true;
    }
    if (training->paused || !reef_schedule_is_done(&training->schedule)) return false;
    found->kind = training->drained ? WORK_END : WORK_DRAIN;
    return !training->drained || !training->options.stay;
}

static void wait_for_change(reef_training *training, uint64_t deadline) {
    uint64_t commit = commit_deadline(training), now = uv_hrtime();
    if (commit < deadline) deadline = commit;
    if (deadline == UINT64_MAX)
        uv_cond_wait(&training->changed, &training->lock);
    else if (deadline > now)
        (void)uv_cond_timedwait(&training->changed, &training->lock, deadline - now);
}

static void set_paused(reef_training *training, bool paused) {
    uv_mutex_lock(&training->lock);
    training->paused = paused;
    uv_mutex_unlock(&training->lock);
}

static void set_state(reef_training *training, reef_training_state state) {
    // Draining and ending are never taken back.
    if (training->view.state < REEF_STATE_DRAINING || state > training->view.state)
        training->view.state = state;
}

static work next_work(reef_training *training) {
    work next;
    uv_mutex_lock(&training->lock);
    while (!find_work(training, &next)) {
        set_state(training, training->paused ? REEF_STATE_PAUSED : REEF_STATE_WAITING);
        training->view.idle = true;
        wait_for_change(training, next.next.deadline_ns);
        training->view.idle = false;
    }
    if (next.kind == WORK_FEED) set_state(training, REEF_STATE_TRAINING);
    training->served = next.kind == WORK_REQUEST;
    training->compacted = next.kind == WORK_COMPACT;
    uv_mutex_unlock(&training->lock);
    return next;
}

// ---- commits -------------------------------------------------------------------------------------

static void refresh_view(reef_training *training) {
    reef_trainer_status status;
    reef_trainer_status_read(training->options.trainer, &status);
    uv_mutex_lock(&training->lock);
    training->view.trainer = status;
    for (size_t i = 0; i < training->options.source_count; i++)
        (void)reef_trainer_source_loss(training->options.trainer, training->options.sources[i].name,
                                       &training->losses[i]);
    uv_mutex_unlock(&training->lock);
}

// For the watchdog: something was done, and not only tried.
static void note_advance(reef_training *training) {
    uv_mutex_lock(&training->lock);
    training->view.advances++;
    uv_mutex_unlock(&training->lock);
}

static void count_commit(reef_commit_times *times, double seconds) {
    static const double BOUNDS[REEF_COMMIT_BUCKETS] = REEF_COMMIT_BOUNDS;
    size_t bucket = 0;
    while (bucket < REEF_COMMIT_BUCKETS && seconds > BOUNDS[bucket]) bucket++;
    if (bucket < REEF_COMMIT_BUCKETS) times->buckets[bucket]++;
    times->count++;
    times->seconds += seconds;
}

static void note_commit(reef_training *training, const reef_commit *commit, double ms) {
    training->committed_ns = uv_hrtime();
    training->commit_steps = 0;
    training->dirty = false;
    training->compacting = true;
    uv_mutex_lock(&training->lock);
    training->view.last = (reef_commit_view){.commit = *commit, .ms = ms};
    count_commit(&training->view.commits, ms / 1e3);
    training->view.advances++;
    training->view.failing[0] = 0;
    uv_mutex_unlock(&training->lock);
}

// How far the scrubber has come goes along with what training has to write; alone it is no reason to.
static void pass_scrub_on(reef_training *training) {
    reef_scrubber_view view;
    if (!training->options.scrubber) return;
    reef_scrubber_view_read(training->options.scrubber, &view);
    if (view.scrub.passes > 0 || view.scrub.records > 0)
        reef_trainer_set_scrub(training->options.trainer, &view.scrub);
}

static reef_status commit_once(reef_training *training, reef_error *err) {
    reef_commit commit;
    pass_scrub_on(training);
    uint64_t begin = uv_hrtime();
    reef_status status = reef_trainer_commit(training->options.trainer, &commit, err);
    if (status == REEF_OK) note_commit(training, &commit, (double)(uv_hrtime() - begin) / 1e6);
    refresh_view(training);
    return status;
}

static bool worth_retrying(reef_status status) {
    return status == REEF_FULL || status == REEF_IO || status == REEF_NO_MEMORY ||
           status == REEF_BUSY;
}

// Returns false when a stop cut the pause short: then the next try is the last.
static bool pause_for(reef_training *training, uint64_t seconds) {
    uint64_t deadline = uv_hrtime() + seconds * NS_PER_SECOND;
    uv_mutex_lock(&training->lock);
    uint64_t now = uv_hrtime();
    while (now < deadline && (!training->stopping || training->stop_seen)) {
        (void)uv_cond_timedwait(&training->changed, &training->lock, deadline - now);
        now = uv_hrtime();
    }
    bool cut = now < deadline;
    if (cut) training->stop_seen = true;
    uv_mutex_unlock(&training->lock);
    return !cut;
}

static void note_failure(reef_training *training, const reef_error *err) {
    uv_mutex_lock(&training->lock);
    snprintf(training->view.failing, sizeof(training->view.failing), "%s", err->message);
    uv_mutex_unlock(&training->lock);
}

static reef_status commit_with_retries(reef_training *training, reef_error *err) {
    uint32_t retries = training->options.commit_retries;
    bool waited = true;
    for (uint32_t attempt = 0;; attempt++) {
        reef_status status = commit_once(training, err);
        if (status == REEF_OK) {
            if (attempt)
                reef_report_warning(training->options.report, "commit_recovered",
                                    "the commit went through");
            return REEF_OK;
        }
        note_failure(training, err);
        if (!worth_retrying(status) || attempt == retries || !waited) return status;
        uint64_t seconds = 1u << attempt;
        reef_report_warning(
            training->options.report, "commit_failed",
            "%s; nothing committed is lost, the rest is kept in memory: trying again in %" PRIu64
            " s (%" PRIu32 " of %" PRIu32 ")",
            err->message, seconds, attempt + 1, retries);
        waited = pause_for(training, seconds);
    }
}

// Seal, grow, branch, freeze and snapshot commit by themselves; the record is in the pool.
static reef_status read_commit(reef_store *store, reef_commit *commit, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, commit, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status note_own_commit(reef_training *training, double ms, reef_error *err) {
    reef_commit commit;
    reef_status status = read_commit(training->options.store, &commit, err);
    if (status == REEF_OK && commit.number != training->view.last.commit.number)
        note_commit(training, &commit, ms);
    return status;
}

// What is written beside training is a commit of its own, but nothing of what was accepted since the last one is
// in it: that stays dirty.
static reef_status note_aside(reef_training *training, reef_error *err) {
    reef_commit commit;
    reef_status status = read_commit(training->options.store, &commit, err);
    if (status != REEF_OK) return status;
    uv_mutex_lock(&training->lock);
    training->view.last.commit = commit;
    uv_mutex_unlock(&training->lock);
    return REEF_OK;
}

static reef_status compact_once(reef_training *training, bool *more, reef_error *err) {
    reef_usage_compaction done;
    reef_status status = reef_trainer_compact(training->options.trainer, &done, err);
    *more = status == REEF_OK && (done.merged > 0 || done.dropped > 0);
    return *more ? note_aside(training, err) : status;
}

// Statistics for people are no reason to stop training: what fails is said, and tried after the next commit.
static void compact(reef_training *training) {
    reef_error err = {.status = REEF_OK};
    bool more = false;
    if (compact_once(training, &more, &err) != REEF_OK)
        reef_report_warning(training->options.report, "compact_failed",
                            "usage over time was not compacted: %s; trying again after the next "
                            "commit",
                            err.message);
    training->compacting = more;
    if (more) note_advance(training);
}

// Damage becomes events of the timeline, which the next commit writes.
static void note_damage(reef_training *training) {
    char what[256];
    while (training->options.scrubber && reef_scrubber_take(training->options.scrubber, what)) {
        reef_error err;
        if (reef_trainer_note_damage(training->options.trainer, what, &err) == REEF_OK)
            training->dirty = true;
        else
            reef_report_warning(training->options.report, "damage_untold",
                                "the timeline does not know of it: %s", err.message);
    }
}

// ---- the pieces of work --------------------------------------------------------------------------

// Only this thread reads them.
static void set_pace(reef_training *training, const reef_pace *pace) {
    training->options.commit_steps = pace->commit_steps;
    training->options.commit_seconds = pace->commit_seconds;
    training->options.commit_retries = pace->commit_retries;
}

static reef_status run_request(reef_training *training, reef_request *request, reef_error *err) {
    reef_trainer *trainer = training->options.trainer;
    switch (request->kind) {
    case REEF_REQUEST_COMMIT:
        return training->dirty ? commit_once(training, err) : REEF_OK;
    case REEF_REQUEST_SEAL:
        return reef_trainer_seal(trainer, request->seal_dtype[0] ? request->seal_dtype : NULL,
                                 &request->sealing, err);
    case REEF_REQUEST_GROW:
        return reef_trainer_grow(trainer, request->side, err);
    case REEF_REQUEST_BRANCH:
        return reef_trainer_branch(trainer, request->branch.from, request->dry_run,
                                   &request->branch, err);
    case REEF_REQUEST_FREEZE:
        return reef_trainer_freeze(trainer, &request->freeze, &request->changed, err);
    case REEF_REQUEST_SNAPSHOT:
        return reef_trainer_snapshot(trainer, request->name, &request->snapshot, err);
    case REEF_REQUEST_SNAPSHOT_REMOVE:
        return reef_trainer_snapshots_remove(trainer, request->names, request->name_count, err);
    case REEF_REQUEST_PAUSE:
        set_paused(training, true);
        return training->dirty ? commit_once(training, err) : REEF_OK;
    case REEF_REQUEST_RESUME:
        set_paused(training, false);
        return REEF_OK;
    case REEF_REQUEST_CALL:
        return request->call(request->call_context, training->options.store, trainer, err);
    case REEF_REQUEST_DRAIN:
        if (!is_drained(training, request))
            return reef_fail(err, REEF_BUSY, "training is %s, so what was read is not trained now",
                             training->paused ? "paused" : "ending");
        return training->dirty ? commit_once(training, err) : REEF_OK;
    case REEF_REQUEST_PACE:
        set_pace(training, &request->pace);
        return REEF_OK;
    case REEF_REQUEST_RELOAD:
    case REEF_REQUEST_VERIFY:
        break; // the service's
    }
    return reef_fail(err, REEF_INVALID, "unknown request %d", (int)request->kind);
}

// A command that fails is its sender's concern; training goes on.
static void serve(reef_training *training, reef_request *request) {
    request->error = (reef_error){.status = REEF_OK};
    uint64_t begin = uv_hrtime();
    request->waited_ms = (double)(begin - request->asked_ns) / 1e6;
    reef_status status = run_request(training, request, &request->error);
    // What was accepted is neither written nor changed by a call.
    bool aside = request->kind == REEF_REQUEST_CALL;
    if (status == REEF_OK && aside)
        status = note_aside(training, &request->error);
    else if (status == REEF_OK)
        status = note_own_commit(training, (double)(uv_hrtime() - begin) / 1e6, &request->error);
    request->error.status = status;
    // The change may be in memory although its commit failed: the next commit writes it.
    if (worth_retrying(status) && !aside) training->dirty = true;
    refresh_view(training);
    uv_mutex_lock(&training->lock);
    training->view.advances += status == REEF_OK;
    request->trainer = training->view.trainer;
    request->last = training->view.last;
    append(&training->answered, request);
    uv_mutex_unlock(&training->lock);
    (void)uv_async_send(training->options.wake);
}

static void took(reef_training *training, size_t source, const work *piece, size_t taken) {
    uint64_t cursor =
        reef_trainer_cursor(training->options.trainer, training->options.sources[source].name);
    uv_mutex_lock(&training->lock);
    training->cursors[source] = cursor;
    (void)reef_lane_mark(&training->schedule.lanes.lanes[piece->next.lane],
                         cursor); // frees old ones
    bool room = reef_schedule_took(&training->schedule, &piece->next, taken);
    uv_mutex_unlock(&training->lock);
    if (room) (void)uv_async_send(training->options.wake);
}

static reef_status feed(reef_training *training, const work *piece, reef_error *err) {
    size_t taken = 0, steps = 0;
    // Only this thread moves a lane on to its next source.
    size_t source = reef_lane_source(&training->schedule.lanes.lanes[piece->next.lane]);
    reef_status status =
        reef_trainer_feed(training->options.trainer, training->options.sources[source].name,
                          piece->next.bytes, piece->next.count, &taken, &steps, err);
    if (status != REEF_OK) return status;
    assert(taken <= piece->next.count);
    training->dirty = true;
    training->commit_steps += steps;
    took(training, source, piece, taken);
    refresh_view(training);
    note_advance(training);
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
    reef_decision decision = reef_schedule_decision(writer->schedule, writer->next);
    return reef_decision_write(txn, &decision, err);
}

// A decision about turns takes effect once it is in the pool, so that it is the same after a crash. Until then
// the lane that has nothing is waited for.
static void decide(reef_training *training, const reef_schedule_next *next) {
    reef_error err = {.status = REEF_OK};
    decision_writer writer = {.schedule = &training->schedule, .next = next};
    reef_status status =
        reef_trainer_write(training->options.trainer, write_decision, &writer, &err);
    if (status == REEF_OK) status = note_aside(training, &err);
    if (status != REEF_OK) {
        reef_report_warning(training->options.report, "turn_failed",
                            "whose turn it is could not be written: %s; trying again", err.message);
        (void)pause_for(training, DECISION_RETRY_SECONDS);
        return;
    }
    if (next->kind == REEF_SCHEDULE_FORGET)
        reef_report_warning(training->options.report, "turns_forgotten",
                            "the sources do not give what they gave before the last end, so the "
                            "order of the stream is decided anew");
    uv_mutex_lock(&training->lock);
    if (next->kind == REEF_SCHEDULE_FORGET)
        reef_schedule_forgot(&training->schedule);
    else
        reef_schedule_decided(&training->schedule, next, uv_hrtime());
    uv_mutex_unlock(&training->lock);
}

// Along with every commit: whose turn it is, and where the live sources' next bytes lie.
static reef_status write_places(void *context, reef_txn *txn, reef_error *err) {
    reef_training *training = context;
    reef_schedule *schedule = &training->schedule;
    reef_status status =
        schedule->lanes.count > 1 ? reef_turns_write(txn, &schedule->turns, err) : REEF_OK;
    for (size_t i = 0; i < schedule->lanes.count && status == REEF_OK; i++) {
        reef_lane *lane = &schedule->lanes.lanes[i];
        if (!lane->live) continue;
        reef_input *input = &training->options.sources[lane->sources[0]];
        uint64_t cursor = reef_trainer_cursor(training->options.trainer, input->name);
        if (input->kind->committed) status = input->kind->committed(input, txn, cursor, err);
        uv_mutex_lock(&training->lock);
        const reef_place_mark *mark = reef_lane_mark(lane, cursor);
        uv_mutex_unlock(&training->lock);
        // Only this thread frees marks, so it stays.
        if (status == REEF_OK && mark)
            status = reef_place_write(txn, input->name, mark->begin, mark->text, err);
    }
    return status;
}

static bool nothing_ever_came(const reef_training *training) {
    for (size_t i = 0; i < training->options.source_count; i++)
        if (training->cursors[i]) return false;
    return true;
}

static void end_state(reef_training *training) {
    uv_mutex_lock(&training->lock);
    set_state(training, REEF_STATE_ENDING);
    uv_mutex_unlock(&training->lock);
}

// The last source has ended: run the steps that held-back batches still allow, and commit.
static reef_status drain(reef_training *training, reef_error *err) {
    training->drained = true;
    if (!training->options.stay) end_state(training);
    if (!training->options.source_count) return REEF_OK;
    if (nothing_ever_came(training)) {
        if (!training->options.stay)
            return reef_fail(err, REEF_NOT_FOUND,
                             "the stream is empty: nothing to train on in %s%s; give a source "
                             "that has something",
                             training->options.sources[0].label,
                             training->options.source_count > 1 ? " and the others" : "");
        reef_report_warning(training->options.report, "empty", "no source has a single byte");
        return REEF_OK;
    }
    reef_status status = REEF_OK;
    const char *name = training->options.sources[training->options.source_count - 1].name;
    for (size_t steps = 1, taken = 0; status == REEF_OK && steps;) {
        status = reef_trainer_feed(training->options.trainer, name, (const uint8_t *)"", 0, &taken,
                                   &steps, err);
        if (steps) training->dirty = true;
        if (steps) note_advance(training);
    }
    refresh_view(training);
    if (status == REEF_OK && training->dirty) status = commit_with_retries(training, err);
    return status;
}

static reef_status run(reef_training *training, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK) {
        work next = next_work(training);
        switch (next.kind) {
        case WORK_REQUEST:
            serve(training, next.request);
            break;
        case WORK_DAMAGE:
            note_damage(training);
            break;
        case WORK_COMMIT:
            status = commit_with_retries(training, err);
            break;
        case WORK_COMPACT:
            compact(training);
            break;
        case WORK_DECIDE:
            decide(training, &next.next);
            break;
        case WORK_FEED:
            status = feed(training, &next, err);
            break;
        case WORK_DRAIN:
            status = drain(training, err);
            break;
        case WORK_END:
            return REEF_OK;
        }
    }
    return status;
}

static void move_unserved(reef_training *training) {
    while (training->requests || training->drains) {
        reef_request *request =
            take_first(training->requests ? &training->requests : &training->drains);
        request->error.status = reef_fail(&request->error, REEF_BUSY, "the daemon is ending");
        append(&training->answered, request);
    }
}

static void training_main(void *argument) {
    reef_training *training = argument;
    reef_error err = {.status = REEF_OK};
    reef_status status = run(training, &err);
    end_state(training);
    note_damage(training);
    if (status == REEF_OK && training->dirty) status = commit_with_retries(training, &err);
    err.status = status;

    uv_mutex_lock(&training->lock);
    move_unserved(training);
    training->view.ended = true;
    training->view.outcome = err;
    uv_mutex_unlock(&training->lock);
    (void)uv_async_send(training->options.wake);
}

// ---- life ----------------------------------------------------------------------------------------

static void training_free(reef_training *training) {
    uv_cond_destroy(&training->changed);
    uv_mutex_destroy(&training->lock);
    reef_schedule_release(&training->schedule);
    free(training->cursors);
    free(training->losses);
    free(training);
}

// Memory, lock and condition; on failure nothing is left.
static reef_status training_new(reef_training **out,
                                const reef_training_options *options,
                                reef_error *err) {
    reef_training *training = calloc(1, sizeof(*training));
    if (!training) return reef_fail(err, REEF_NO_MEMORY, "no memory for the trainer's thread");
    training->options = *options;
    if (uv_mutex_init(&training->lock) || uv_cond_init(&training->changed))
        abort(); // out of kernel memory
    training->cursors = calloc(options->source_count + 1, sizeof(*training->cursors));
    training->losses = calloc(options->source_count + 1, sizeof(*training->losses));
    reef_status status =
        training->cursors && training->losses
            ? reef_schedule_init(&training->schedule, options->store, options->sources,
                                 options->source_count, options->record_bytes, options->patience_s,
                                 err)
            : reef_fail(err, REEF_NO_MEMORY, "no memory for %zu sources", options->source_count);
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

    for (size_t i = 0; i < options->source_count; i++)
        training->cursors[i] = reef_trainer_cursor(options->trainer, options->sources[i].name);
    reef_trainer_on_commit(options->trainer, write_places, training);
    training->committed_ns = uv_hrtime();
    training->compacting = true; // what the run before left
    training->view.state = REEF_STATE_WAITING;
    reef_trainer_status_read(options->trainer, &training->view.trainer);
    status = read_commit(options->store, &training->view.last.commit, err);
    if (status == REEF_OK) {
        int code = uv_thread_create(&training->thread, training_main, training);
        if (code)
            status =
                reef_fail(err, REEF_NO_MEMORY, "no thread for training: %s", uv_strerror(code));
    }
    if (status != REEF_OK) {
        reef_trainer_on_commit(options->trainer, NULL, NULL);
        training_free(training);
        return status;
    }
    *out = training;
    return REEF_OK;
}

void reef_training_join(reef_training *training) {
    if (!training) return;
    (void)uv_thread_join(&training->thread);
    reef_trainer_on_commit(training->options.trainer, NULL, NULL);
    training_free(training);
}
