// Commits of the trainer's thread, and what it writes between two of them; see training_thread.h.
//
// A commit that fails leaves the state in memory as it was and is tried again after a pause, a
// bounded number of times.
#include "training_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_duration(reef_commit_times *times, double seconds) {
    static const double BOUNDS[REEF_COMMIT_BUCKETS] = REEF_COMMIT_BOUNDS;
    size_t bucket = 0;
    while (bucket < REEF_COMMIT_BUCKETS && seconds > BOUNDS[bucket]) bucket++;
    if (bucket < REEF_COMMIT_BUCKETS) times->buckets[bucket]++;
    times->count++;
    times->seconds += seconds;
}

static void settle(reef_training *training) {
    uv_mutex_lock(&training->lock);
    for (size_t i = 0; i < training->options.source_count; i++) {
        if (!training->positions[i].fresh) continue;
        free(training->settled[i].checkpoint);
        training->settled[i] = training->positions[i];
        training->positions[i] = (reef_settled_position){0};
    }
    uv_mutex_unlock(&training->lock);
    (void)uv_async_send(training->options.wake);
}

static void note_commit_done(reef_training *training, const reef_commit *commit, double ms) {
    reef_trainer_status status;
    reef_trainer_status_read(training->options.trainer, &status);
    training->committed_ns = uv_hrtime();
    training->commit_steps = 0;
    training->dirty = training->commit_soon = false;
    training->compacting = true;
    settle(training);
    uv_mutex_lock(&training->lock);
    training->view.last = (reef_commit_view){.commit = *commit, .ms = ms};
    training->view.committed = status;
    memcpy(training->committed, training->cursors,
           training->options.source_count * sizeof(*training->committed));
    count_duration(&training->view.commits, ms / 1e3);
    training->view.advances++;
    training->view.failing[0] = 0;
    uv_mutex_unlock(&training->lock);
}

// The scrubber's progress is written with what training commits; alone it causes no commit.
static void pass_scrub_on(reef_training *training) {
    reef_scrubber_view view;
    if (training->options.scrubber == NULL) return;
    reef_scrubber_view_read(training->options.scrubber, &view);
    if (view.scrub.passes > 0 || view.scrub.records > 0)
        reef_trainer_set_scrub(training->options.trainer, &view.scrub);
}

reef_status reef_training_commit_once(reef_training *training, reef_error *err) {
    reef_crew_result done;
    pass_scrub_on(training);
    uint64_t begin = uv_hrtime();
    reef_status status =
        reef_crew_do(training->options.crew, training->options.trainer,
                     &(reef_crew_order){.kind = REEF_CREW_COMMIT}, NULL, 0, &done, err);
    if (status == REEF_OK)
        note_commit_done(training, &done.commit, (double)(uv_hrtime() - begin) / 1e6);
    reef_training_refresh(training);
    return status;
}

bool reef_training_worth_retrying(reef_status status) {
    return status == REEF_ERR_FULL || status == REEF_ERR_IO || status == REEF_ERR_NO_MEMORY ||
           status == REEF_ERR_BUSY;
}

bool reef_training_wait_until(reef_training *training, uint64_t deadline, reef_request **request) {
    bool cut = false;
    uv_mutex_lock(&training->lock);
    for (uint64_t now = uv_hrtime(); now < deadline; now = uv_hrtime()) {
        cut = training->stopping && !training->stop_seen;
        if (cut) break;
        if (request != NULL && (*request = reef_training_take_request(training, false))) break;
        (void)uv_cond_timedwait(&training->changed, &training->lock, deadline - now);
    }
    if (cut) training->stop_seen = true;
    uv_mutex_unlock(&training->lock);
    return !cut;
}

void reef_training_pause_for(reef_training *training, uint64_t seconds) {
    (void)reef_training_wait_until(training, uv_hrtime() + seconds * NS_PER_SECOND, NULL);
}

// Seal, grow, freeze and snapshot commit by themselves; the record is in the pool.
reef_status reef_training_note_own_commit(reef_training *training, double ms, reef_error *err) {
    reef_commit commit;
    reef_status status = reef_store_read_commit(training->options.store, &commit, err);
    if (status == REEF_OK && commit.number != training->view.last.commit.number)
        note_commit_done(training, &commit, ms);
    return status;
}

// What is written beside training is a commit of its own, but nothing of what was accepted since
// the last one is in it: that stays dirty.
reef_status reef_training_note_aside(reef_training *training, reef_error *err) {
    reef_commit commit;
    reef_status status = reef_store_read_commit(training->options.store, &commit, err);
    if (status != REEF_OK) return status;
    uv_mutex_lock(&training->lock);
    training->view.last.commit = commit;
    uv_mutex_unlock(&training->lock);
    return REEF_OK;
}

static reef_status compact_once(reef_training *training, bool *more, reef_error *err) {
    reef_crew_result done;
    reef_status status =
        reef_crew_do(training->options.crew, training->options.trainer,
                     &(reef_crew_order){.kind = REEF_CREW_COMPACT}, NULL, 0, &done, err);
    *more = status == REEF_OK && (done.compaction.merged > 0 || done.compaction.dropped > 0);
    return *more ? reef_training_note_aside(training, err) : status;
}

// Statistics for people do not stop training: a failure is logged and tried again after the next
// commit.
void reef_training_compact(reef_training *training) {
    reef_error err = {.status = REEF_OK};
    bool more = false;
    if (compact_once(training, &more, &err) != REEF_OK)
        reef_report_warning(training->options.report, "compact_failed",
                            "usage over time was not compacted: "
                            "%s; trying again after the next commit",
                            err.message);
    training->compacting = more;
    if (more) reef_training_advance(training);
}

// Damage becomes events of the timeline, which the next commit writes.
void reef_training_note_damage(reef_training *training) {
    char what[256];
    while (training->options.scrubber != NULL &&
           reef_scrubber_take(training->options.scrubber, what)) {
        reef_error err;
        if (reef_trainer_note_damage(training->options.trainer, what, &err) == REEF_OK)
            training->dirty = true;
        else
            reef_report_warning(training->options.report, "damage_untold",
                                "the timeline does not know of it: %s", err.message);
    }
}

// ---- what the loop and the training thread share under one lock ---------------------------------

void reef_training_append(reef_request **list, reef_request *request) {
    while (*list != NULL) list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

reef_request *reef_training_take_first(reef_request **list) {
    reef_request *request = *list;
    *list = request->next;
    return request;
}

bool reef_training_is_drained(const reef_training *training, const reef_request *request) {
    for (size_t i = 0; i < training->schedule.queues.count; i++)
        if (training->schedule.queues.queues[i].ring.head < request->until[i]) return false;
    return true;
}

// One that has nothing to wait for any more: what it named is trained, or nothing is trained now.
static bool drain_is_due(const reef_training *training) {
    const reef_request *drain = training->drains;
    return drain != NULL &&
           (training->paused || training->stopping || reef_training_is_drained(training, drain));
}

reef_request *reef_training_take_request(reef_training *training, bool only_drains) {
    if (training->requests != NULL && !only_drains)
        return reef_training_take_first(&training->requests);
    return drain_is_due(training) ? reef_training_take_first(&training->drains) : NULL;
}

void reef_training_set_paused(reef_training *training, bool paused) {
    uv_mutex_lock(&training->lock);
    training->paused = paused;
    uv_mutex_unlock(&training->lock);
}

void reef_training_set_state(reef_training *training, reef_training_state state) {
    // Draining and ending are never taken back.
    if (training->view.state < REEF_STATE_DRAINING || state > training->view.state)
        training->view.state = state;
}

void reef_training_refresh(reef_training *training) {
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
void reef_training_advance(reef_training *training) {
    uv_mutex_lock(&training->lock);
    training->view.advances++;
    uv_mutex_unlock(&training->lock);
}
