// What is trained next; see schedule.h.
#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1e9

// ---- life ----------------------------------------------------------------------------------------

// Sources that end are a lane without a name: which of them it is at does not matter for its turns.
static void name_lanes(reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->lanes.count; i++) {
        const reef_lane *lane = &schedule->lanes.lanes[i];
        const reef_input *input = &schedule->lanes.inputs[lane->sources[0]];
        schedule->turn_lanes[i] = (reef_turn_lane){.name = lane->live ? input->name : "",
                                                   .weight = lane->live ? input->weight : 1};
    }
}

// How much of a vector's record a lane has given already.
static uint64_t begun_record(const reef_schedule *schedule, size_t lane) {
    uint64_t begun = 0;
    for (size_t i = 0; i < schedule->lanes.input_count; i++)
        if (schedule->lanes.lane_of[i] == lane)
            begun += schedule->lanes.inputs[i].offset % schedule->turns.record_bytes;
    return begun % schedule->turns.record_bytes;
}

// A pool that was trained on one lane may have stopped inside a vector's record: that goes first, and is waited for. And
// a lane that was trained alone does not stand where it stood in its slice: slices end with a record.
static void finish_record(reef_schedule *schedule) {
    reef_turns *turns = &schedule->turns;
    for (size_t i = 0; turns->record_bytes && i < schedule->lanes.count; i++) {
        uint64_t begun = begun_record(schedule, i);
        bool current = turns->current == i;
        schedule->turn_lanes[i].partial = begun != 0;
        if (current ? turns->given % turns->record_bytes == begun : begun == 0) continue;
        reef_turns_give_to(turns, i);
        turns->given = begun;
    }
}

reef_status reef_schedule_init(reef_schedule *schedule,
                               reef_store *store,
                               const reef_input *inputs,
                               size_t count,
                               size_t record_bytes,
                               double patience_s,
                               reef_error *err) {
    *schedule = (reef_schedule){.patience_ns = (uint64_t)(patience_s * NS_PER_SECOND)};
    reef_status status = reef_lanes_init(&schedule->lanes, inputs, count, record_bytes, err);
    if (status != REEF_OK) return status;
    size_t lanes = schedule->lanes.count;
    schedule->turn_lanes = calloc(lanes + 1, sizeof(*schedule->turn_lanes));
    schedule->out_since = calloc(lanes + 1, sizeof(*schedule->out_since));
    schedule->empty_since = calloc(lanes + 1, sizeof(*schedule->empty_since));
    if (!schedule->turn_lanes || !schedule->out_since || !schedule->empty_since)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu lanes", lanes);
    name_lanes(schedule);
    reef_turns_init(&schedule->turns, schedule->turn_lanes, lanes, record_bytes);
    if (lanes < 2) return REEF_OK;
    status = reef_turns_read(store, &schedule->turns, &schedule->after, err);
    if (status == REEF_OK) finish_record(schedule);
    return status;
}

void reef_schedule_release(reef_schedule *schedule) {
    reef_lanes_release(&schedule->lanes);
    reef_decisions_release(&schedule->after);
    free(schedule->turn_lanes);
    free(schedule->out_since);
    free(schedule->empty_since);
    *schedule = (reef_schedule){0};
}

// ---- decisions -----------------------------------------------------------------------------------

static bool all_applied(const reef_schedule *schedule) {
    return schedule->applied == schedule->after.count;
}

static void apply(reef_schedule *schedule, const reef_decision *decision) {
    for (size_t i = 0; i < schedule->turns.count; i++)
        if (!strcmp(schedule->turn_lanes[i].name, decision->lane))
            reef_turns_sit_out(&schedule->turns, i, decision->out);
    schedule->turns.decided = decision->number;
}

// Its lane was trained alone meanwhile, and stands inside a vector's record where it stood before one.
static bool would_cut(const reef_schedule *schedule, const reef_decision *decision) {
    size_t current = schedule->turns.current;
    return schedule->turns.record_bytes && decision->out && current != REEF_TURN_NONE &&
           schedule->turn_lanes[current].partial &&
           !strcmp(schedule->turn_lanes[current].name, decision->lane);
}

// What was decided at this place of the stream is decided again, but for what is to be passed by.
static void apply_due(reef_schedule *schedule) {
    while (!all_applied(schedule)) {
        const reef_decision *decision = &schedule->after.items[schedule->applied];
        if (decision->at != schedule->turns.total || would_cut(schedule, decision)) return;
        apply(schedule, decision);
        schedule->applied++;
    }
}

reef_decision reef_schedule_decision(const reef_schedule *schedule,
                                     const reef_schedule_next *next) {
    return (reef_decision){.number = schedule->turns.decided + 1,
                           .at = schedule->turns.total,
                           .out = next->out,
                           .lane = (char *)schedule->turn_lanes[next->lane].name};
}

void reef_schedule_decided(reef_schedule *schedule,
                           const reef_schedule_next *next,
                           uint64_t now_ns) {
    reef_decision decision = reef_schedule_decision(schedule, next);
    apply(schedule, &decision);
    if (next->out) schedule->out_since[next->lane] = now_ns;
}

void reef_schedule_forgot(reef_schedule *schedule) {
    schedule->applied = schedule->after.count;
}

void reef_schedule_stop(reef_schedule *schedule) {
    schedule->stopping = true;
    reef_lanes_stop(&schedule->lanes);
}

// ---- what is next --------------------------------------------------------------------------------

static uint64_t waiting(const reef_schedule *schedule, size_t lane) {
    return reef_ring_count(&schedule->lanes.lanes[lane].ring);
}

// From when on each is waited for, whoever has the turn: lanes that all have nothing are waited for together.
static void note_empty_lanes(reef_schedule *schedule, uint64_t now) {
    for (size_t i = 0; i < schedule->lanes.count; i++) {
        if (waiting(schedule, i))
            schedule->empty_since[i] = 0;
        else if (!schedule->empty_since[i])
            schedule->empty_since[i] = now;
    }
}

static void note_ended_lanes(reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->lanes.count; i++) {
        reef_lane *lane = &schedule->lanes.lanes[i];
        reef_lane_skip_ended(&schedule->lanes, lane);
        if (reef_lane_is_done(lane) && !schedule->turn_lanes[i].done)
            reef_turns_done(&schedule->turns, i);
    }
}

// The place of the next decision of the run before, which may lie within a slice; UINT64_MAX when there is none.
static uint64_t next_place(const reef_schedule *schedule) {
    return all_applied(schedule) ? UINT64_MAX : schedule->after.items[schedule->applied].at;
}

static bool lend(reef_schedule *schedule, size_t lane, reef_schedule_next *next) {
    size_t count = reef_lanes_view(&schedule->lanes, lane, &next->bytes);
    if (!count) return false;
    uint64_t place = next_place(schedule), at = schedule->turns.total;
    if (place > at && place - at < count) count = (size_t)(place - at);
    next->kind = REEF_SCHEDULE_BYTES;
    next->lane = lane;
    next->count = reef_turns_share(&schedule->turns, next->bytes, count);
    return true;
}

// The first lane that has something that cannot be read again.
static size_t kept_lane(reef_schedule *schedule) {
    const uint8_t *bytes = NULL;
    for (size_t i = 0; i < schedule->lanes.count; i++)
        if (reef_lanes_view(&schedule->lanes, i, &bytes)) return i;
    return REEF_TURN_NONE;
}

// Whoever is in the middle of a line finishes it, so that it and what is kept do not become one.
static void lend_what_is_kept(reef_schedule *schedule, reef_schedule_next *next) {
    size_t kept = kept_lane(schedule), current = schedule->turns.current;
    if (kept == REEF_TURN_NONE) return;
    if (current != REEF_TURN_NONE && schedule->turn_lanes[current].partial) {
        reef_lanes_keep_line(&schedule->lanes, current);
        if (lend(schedule, current, next)) return;
    }
    reef_turns_give_to(&schedule->turns, kept);
    (void)lend(schedule, kept, next);
}

static void set_deadline(reef_schedule_next *next, uint64_t deadline_ns) {
    if (deadline_ns < next->deadline_ns) next->deadline_ns = deadline_ns;
}

static void decide(reef_schedule_next *next, size_t lane, bool out) {
    next->kind = REEF_SCHEDULE_DECIDE;
    next->lane = lane;
    next->out = out;
}

// A lane that sits out and has something again is back with a slice, or after a while with less.
static bool find_return(reef_schedule *schedule, uint64_t now, reef_schedule_next *next) {
    bool alone = reef_turns_lane(&schedule->turns) == REEF_TURN_NONE;
    for (size_t i = 0; i < schedule->lanes.count; i++) {
        const reef_turn_lane *lane = &schedule->turn_lanes[i];
        if (!lane->out || lane->done || !waiting(schedule, i)) continue;
        uint64_t due = schedule->out_since[i] + schedule->patience_ns;
        if (alone || waiting(schedule, i) >= REEF_SLICE_BYTES || now >= due) {
            decide(next, i, false);
            return true;
        }
        set_deadline(next, due);
    }
    return false;
}

static bool others_wait(const reef_schedule *schedule, size_t lane) {
    for (size_t i = 0; i < schedule->lanes.count; i++)
        if (i != lane && waiting(schedule, i)) return true;
    return false;
}

// The lane whose turn it is has nothing. A record of a vector is never left in its middle.
static void wait_for(reef_schedule *schedule,
                     size_t index,
                     uint64_t now,
                     reef_schedule_next *next) {
    const reef_turn_lane *lane = &schedule->turn_lanes[index];
    if ((lane->partial && schedule->turns.record_bytes) || !others_wait(schedule, index)) return;
    bool at_once = lane->fresh && !lane->partial;
    uint64_t due = schedule->empty_since[index] + (at_once ? 0 : schedule->patience_ns);
    if (now < due)
        set_deadline(next, due);
    else if (all_applied(schedule))
        decide(next, index, true);
    else
        next->kind = REEF_SCHEDULE_FORGET;
}

// Everybody sits out, and what was decided next lies further on: the sources are not the ones they were.
static void forget_if_stuck(const reef_schedule *schedule, reef_schedule_next *next) {
    if (!all_applied(schedule) && others_wait(schedule, REEF_TURN_NONE))
        next->kind = REEF_SCHEDULE_FORGET;
}

void reef_schedule_find(reef_schedule *schedule, uint64_t now_ns, reef_schedule_next *next) {
    *next = (reef_schedule_next){.deadline_ns = UINT64_MAX};
    note_ended_lanes(schedule);
    if (schedule->stopping) {
        lend_what_is_kept(schedule, next);
        return;
    }
    if (schedule->lanes.count < 2) {
        if (schedule->lanes.count) (void)lend(schedule, 0, next);
        return;
    }
    note_empty_lanes(schedule, now_ns);
    apply_due(schedule);
    if (all_applied(schedule) && find_return(schedule, now_ns, next)) return;
    if (next_place(schedule) < schedule->turns.total) { // it was passed by, out of turn
        next->kind = REEF_SCHEDULE_FORGET;
        return;
    }
    size_t lane = reef_turns_lane(&schedule->turns);
    if (lane == REEF_TURN_NONE)
        forget_if_stuck(schedule, next);
    else if (!lend(schedule, lane, next))
        wait_for(schedule, lane, now_ns, next);
}

bool reef_schedule_took(reef_schedule *schedule, const reef_schedule_next *next, size_t count) {
    reef_turns_took(&schedule->turns, next->bytes, count);
    return reef_lanes_take(&schedule->lanes, next->lane, count);
}

bool reef_schedule_is_done(const reef_schedule *schedule) {
    for (size_t i = 0; i < schedule->lanes.count; i++)
        if (!reef_lane_is_done(&schedule->lanes.lanes[i])) return false;
    return true;
}
