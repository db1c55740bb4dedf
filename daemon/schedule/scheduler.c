// What is trained next; see scheduler.h.
#include "scheduler.h"

#include "reef_system.h"
#include "reef_watch.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1e9
#define HEAD_BYTES 224                    // of a line that have its time
#define TIME_MIN_MS INT64_C(946684800000) // 2000: a pass that is less was counted in bytes

// ---- life ---------------------------------------------------------------------------------------

// Sources that end share one queue without a name: which of them is current does not change its
// share.
static void name_queue(reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->queues.count; i++) {
        const reef_queue *queue = &schedule->queues.queues[i];
        const reef_input *input = &schedule->queues.inputs[queue->sources[0]];
        schedule->stride_queues[i] = (reef_stride_queue){.name = queue->live ? input->name : "",
                                                         .weight = queue->live ? input->weight : 1};
    }
}

reef_status reef_schedule_init(reef_schedule *schedule,
                               reef_store *store,
                               const reef_input *inputs,
                               size_t count,
                               double patience_s,
                               bool by_time,
                               reef_error *err) {
    *schedule = (reef_schedule){.patience_ns = (uint64_t)(patience_s * NS_PER_SECOND),
                                .near_ms = (int64_t)reef_unix_ms()};
    reef_status status = reef_queues_init(&schedule->queues, inputs, count, err);
    if (status != REEF_OK) return status;
    size_t queues = schedule->queues.count;
    schedule->stride_queues = calloc(queues + 1, sizeof(*schedule->stride_queues));
    schedule->idle_since = calloc(queues + 1, sizeof(*schedule->idle_since));
    schedule->empty_since = calloc(queues + 1, sizeof(*schedule->empty_since));
    schedule->heads = calloc(queues + 1, sizeof(*schedule->heads));
    if (schedule->heads == NULL || schedule->stride_queues == NULL ||
        schedule->idle_since == NULL || schedule->empty_since == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu queues", queues);
    name_queue(schedule);
    reef_stride_init(&schedule->stride, schedule->stride_queues, queues);
    schedule->stride.by_time = by_time;
    if (by_time) schedule->stride.slice_bytes = 1;
    // One queue needs no schedule; its stream is the order of its bytes.
    if (queues < 2) return REEF_OK;
    // The stride state of the last commit, and decisions that were made after it and have to be
    // made again.
    return reef_stride_read(store, &schedule->stride, &schedule->after, err);
}

void reef_schedule_release(reef_schedule *schedule) {
    reef_queues_release(&schedule->queues);
    reef_decisions_release(&schedule->after);
    free(schedule->stride_queues);
    free(schedule->idle_since);
    free(schedule->empty_since);
    free(schedule->heads);
    *schedule = (reef_schedule){0};
}

// ---- decisions ----------------------------------------------------------------------------------

static bool all_applied(const reef_schedule *schedule) {
    return schedule->applied == schedule->after.count;
}

static void apply_decision(reef_schedule *schedule, const reef_schedule_choice *decision) {
    for (size_t i = 0; i < schedule->stride.count; i++)
        if (strcmp(schedule->stride_queues[i].name, decision->queue) == 0)
            reef_stride_set_idle(&schedule->stride, i, decision->idle);
    schedule->stride.decided = decision->number;
}

// Decisions made at this position of the stream are repeated.
static void apply_due(reef_schedule *schedule) {
    while (!all_applied(schedule)) {
        const reef_schedule_choice *decision = &schedule->after.items[schedule->applied];
        if (decision->at != schedule->stride.total) return;
        apply_decision(schedule, decision);
        schedule->applied++;
    }
}

reef_schedule_choice reef_schedule_decision(const reef_schedule *schedule,
                                            const reef_schedule_next *next) {
    return (reef_schedule_choice){.number = schedule->stride.decided + 1,
                                  .at = schedule->stride.total,
                                  .idle = next->idle,
                                  .queue = (char *)schedule->stride_queues[next->queue].name};
}

void reef_schedule_decided(reef_schedule *schedule,
                           const reef_schedule_next *next,
                           uint64_t now_ns) {
    reef_schedule_choice decision = reef_schedule_decision(schedule, next);
    apply_decision(schedule, &decision);
    if (next->idle) schedule->idle_since[next->queue] = now_ns;
}

void reef_schedule_forgot(reef_schedule *schedule) {
    schedule->applied = schedule->after.count;
}

void reef_schedule_stop(reef_schedule *schedule) {
    schedule->stopping = true;
    reef_queues_stop(&schedule->queues);
}

// ---- what is next -------------------------------------------------------------------------------

static uint64_t waiting(const reef_schedule *schedule, size_t queue) {
    return reef_ring_count(&schedule->queues.queues[queue].ring);
}

// Since when each is waited for, whichever queue is current: empty queues are waited for together.
static void note_empty_queue(reef_schedule *schedule, uint64_t now) {
    for (size_t i = 0; i < schedule->queues.count; i++) {
        if (waiting(schedule, i))
            schedule->empty_since[i] = 0;
        else if (!schedule->empty_since[i])
            schedule->empty_since[i] = now;
    }
}

static void note_ended_queue(reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->queues.count; i++) {
        reef_queue *queue = &schedule->queues.queues[i];
        reef_queue_skip_ended(&schedule->queues, queue);
        if (reef_queue_is_done(queue) && !schedule->stride_queues[i].done)
            reef_stride_done(&schedule->stride, i);
    }
}

// The position of the next decision of the run before, which may lie within a slice; UINT64_MAX if
// none is left.
static uint64_t next_position(const reef_schedule *schedule) {
    return all_applied(schedule) ? UINT64_MAX : schedule->after.items[schedule->applied].at;
}

static bool lend(reef_schedule *schedule, size_t queue, reef_schedule_next *next) {
    size_t count = reef_queues_view(&schedule->queues, queue, &next->bytes);
    if (!count) return false;
    uint64_t due = next_position(schedule), at = schedule->stride.total;
    if (due > at && due - at < count) count = (size_t)(due - at);
    next->kind = REEF_SCHEDULE_BYTES;
    next->queue = queue;
    next->count = reef_stride_share(&schedule->stride, next->bytes, count);
    return true;
}

// The first queue that holds bytes which cannot be read again.
static size_t kept_queue(reef_schedule *schedule) {
    const uint8_t *bytes = NULL;
    for (size_t i = 0; i < schedule->queues.count; i++)
        if (reef_queues_view(&schedule->queues, i, &bytes)) return i;
    return REEF_STRIDE_NONE;
}

// Whoever is in the middle of a line finishes it, so that it and what is kept do not become one.
static void lend_what_is_kept(reef_schedule *schedule, reef_schedule_next *next) {
    size_t kept = kept_queue(schedule), current = schedule->stride.current;
    if (kept == REEF_STRIDE_NONE) return;
    if (current != REEF_STRIDE_NONE && schedule->stride_queues[current].partial) {
        reef_queues_keep_line(&schedule->queues, current);
        if (lend(schedule, current, next)) return;
    }
    reef_stride_give_to(&schedule->stride, kept);
    (void)lend(schedule, kept, next);
}

static void set_deadline(reef_schedule_next *next, uint64_t deadline_ns) {
    if (deadline_ns < next->deadline_ns) next->deadline_ns = deadline_ns;
}

static void set_decision(reef_schedule_next *next, size_t queue, bool idle) {
    next->kind = REEF_SCHEDULE_DECIDE;
    next->queue = queue;
    next->idle = idle;
}

static bool takes_turns(const reef_schedule *schedule, size_t queue) {
    return !schedule->stride_queues[queue].idle && !schedule->stride_queues[queue].done;
}

static bool all_are_idle(const reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->queues.count; i++)
        if (takes_turns(schedule, i)) return false;
    return true;
}

// An idle queue with new bytes is active again with a full slice, or after a while with less.
static bool find_return(reef_schedule *schedule, uint64_t now, reef_schedule_next *next) {
    // With nobody else to run, a queue need not wait for a whole slice.
    const bool alone = all_are_idle(schedule);
    const uint64_t slice =
        schedule->stride.by_time ? REEF_SLICE_BYTES : schedule->stride.slice_bytes;
    for (size_t i = 0; i < schedule->queues.count; i++) {
        const reef_stride_queue *queue = &schedule->stride_queues[i];
        if (!queue->idle || queue->done || !waiting(schedule, i)) continue;
        // A trickle comes back after the patience, or it would wait for ever.
        uint64_t due = schedule->idle_since[i] + schedule->patience_ns;
        if (alone || waiting(schedule, i) >= slice || now >= due) {
            set_decision(next, i, false);
            return true;
        }
        set_deadline(next, due);
    }
    return false;
}

static bool others_wait(const reef_schedule *schedule, size_t queue) {
    for (size_t i = 0; i < schedule->queues.count; i++)
        if (i != queue && waiting(schedule, i)) return true;
    return false;
}

// The current queue is empty.
static void wait_for_scheduler(reef_schedule *schedule,
                               size_t index,
                               uint64_t now,
                               reef_schedule_next *next) {
    const reef_stride_queue *queue = &schedule->stride_queues[index];
    // No other queue has bytes: nothing needs to be decided.
    if (!others_wait(schedule, index)) return;
    // A queue that has just come back and is empty again may go idle at once.
    bool at_once = queue->fresh && !queue->partial;
    uint64_t due = schedule->empty_since[index] + (at_once ? 0 : schedule->patience_ns);
    if (now < due) set_deadline(next, due);
    // Decisions of the previous run are replayed first. If they do not fit what the sources give
    // now, they are dropped.
    else if (all_applied(schedule))
        set_decision(next, index, true);
    else
        next->kind = REEF_SCHEDULE_FORGET;
}

// Of the next line of a queue; one without a time is of that before it. Of a line whose head is not
// all here, too: then only its own order depends on how bytes came.
static int64_t head_time(reef_schedule *schedule, size_t index) {
    uint8_t head[HEAD_BYTES];
    int64_t *time_ms = &schedule->heads[index], read_ms;
    if (*time_ms != 0) return *time_ms;
    const int64_t before = (int64_t)schedule->stride_queues[index].pass;
    const size_t count = reef_ring_peek(&schedule->queues.queues[index].ring, head, sizeof(head));
    const uint8_t *end = memchr(head, '\n', count);
    const size_t bytes = end != NULL ? (size_t)(end - head) : count;
    const bool has =
        reef_line_time(head, bytes, before >= TIME_MIN_MS ? before : schedule->near_ms, &read_ms);
    *time_ms = has && read_ms > 0 ? read_ms : before;
    return *time_ms;
}

// Whose next line is the earliest. Where one takes turns and has none, that one: it is waited for.
static size_t earliest(reef_schedule *schedule) {
    size_t best = REEF_STRIDE_NONE;
    int64_t best_ms = 0;
    if (schedule->stride.current != REEF_STRIDE_NONE) return schedule->stride.current;
    for (size_t i = 0; i < schedule->queues.count; i++) {
        if (!takes_turns(schedule, i)) continue;
        if (!waiting(schedule, i)) return i;
        const int64_t time_ms = head_time(schedule, i);
        if (best != REEF_STRIDE_NONE && time_ms >= best_ms) continue;
        best = i;
        best_ms = time_ms;
    }
    if (best != REEF_STRIDE_NONE) reef_stride_begin(&schedule->stride, best, (uint64_t)best_ms);
    return best;
}

// All queues are idle, and the next stored decision lies further on: the sources have changed.
static void forget_if_stuck(const reef_schedule *schedule, reef_schedule_next *next) {
    if (!all_applied(schedule) && others_wait(schedule, REEF_STRIDE_NONE))
        next->kind = REEF_SCHEDULE_FORGET;
}

void reef_schedule_find(reef_schedule *schedule, uint64_t now_ns, reef_schedule_next *next) {
    *next = (reef_schedule_next){.deadline_ns = UINT64_MAX};
    note_ended_queue(schedule);
    // After a stop only bytes that cannot be read again are trained.
    if (schedule->stopping) {
        lend_what_is_kept(schedule, next);
        return;
    }
    if (schedule->queues.count < 2) {
        if (schedule->queues.count) (void)lend(schedule, 0, next);
        return;
    }
    note_empty_queue(schedule, now_ns);
    // Decisions are tied to positions of the stream, so replaying them does not depend on time.
    apply_due(schedule);
    if (all_applied(schedule) && find_return(schedule, now_ns, next)) return;
    if (next_position(schedule) < schedule->stride.total) { // it was skipped, out of order
        next->kind = REEF_SCHEDULE_FORGET;
        return;
    }
    const size_t queue =
        schedule->stride.by_time ? earliest(schedule) : reef_stride_next(&schedule->stride);
    if (queue == REEF_STRIDE_NONE)
        forget_if_stuck(schedule, next);
    else if (!lend(schedule, queue, next))
        wait_for_scheduler(schedule, queue, now_ns, next);
}

bool reef_schedule_took(reef_schedule *schedule, const reef_schedule_next *next, size_t count) {
    reef_stride_took(&schedule->stride, next->bytes, count);
    schedule->heads[next->queue] = 0;
    return reef_queues_take(&schedule->queues, next->queue, count);
}

bool reef_schedule_is_done(const reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->queues.count; i++)
        if (!reef_queue_is_done(&schedule->queues.queues[i])) return false;
    return true;
}
