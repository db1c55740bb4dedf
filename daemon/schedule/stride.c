// Turns by position; see turns.h. Nothing here knows time, files or threads.
#include "stride.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define SCALE 1000 // of where a lane stands: as fine as the largest weight

void reef_turns_init(reef_turns *turns, reef_turn_lane *lanes, size_t count, size_t record_bytes) {
    *turns = (reef_turns){
        .lanes = lanes, .count = count, .record_bytes = record_bytes, .current = REEF_TURN_NONE};
}

static bool takes_part(const reef_turn_lane *lane) {
    return !lane->done && !lane->out;
}

static size_t lowest(const reef_turns *turns) {
    size_t best = REEF_TURN_NONE;
    for (size_t i = 0; i < turns->count; i++)
        if (takes_part(&turns->lanes[i]) &&
            (best == REEF_TURN_NONE || turns->lanes[i].at < turns->lanes[best].at))
            best = i;
    return best;
}

size_t reef_turns_lane(reef_turns *turns) {
    if (turns->current == REEF_TURN_NONE) {
        turns->current = lowest(turns);
        turns->given = 0;
    }
    return turns->current;
}

// How many bytes of the turn are left, if that follows from a count alone; 0 where the next newline decides.
static uint64_t left_by_count(const reef_turns *turns) {
    if (turns->record_bytes) {
        uint64_t whole = (REEF_SLICE_BYTES + turns->record_bytes - 1) / turns->record_bytes;
        return whole * turns->record_bytes - turns->given;
    }
    return turns->given < REEF_SLICE_BYTES ? REEF_SLICE_BYTES - turns->given : 0;
}

size_t reef_turns_share(const reef_turns *turns, const uint8_t *bytes, size_t count) {
    if (turns->count == 1) return count;
    uint64_t left = left_by_count(turns);
    if (left >= count) return count;
    if (turns->record_bytes) return (size_t)left;
    // The byte that fills the slice may be the end of a line; otherwise the line is given to its end.
    size_t from = left > 0 ? (size_t)left - 1 : 0;
    const uint8_t *newline = memchr(bytes + from, '\n', count - from);
    uint64_t longest = REEF_SLICE_BYTES_MAX - turns->given;
    size_t share = newline ? (size_t)(newline - bytes) + 1 : count;
    return share < longest ? share : (size_t)longest;
}

static bool turn_is_over(const reef_turns *turns, uint8_t last) {
    if (turns->record_bytes) return left_by_count(turns) == 0;
    return turns->given >= REEF_SLICE_BYTES_MAX ||
           (turns->given >= REEF_SLICE_BYTES && last == '\n');
}

void reef_turns_took(reef_turns *turns, const uint8_t *bytes, size_t count) {
    if (count == 0) return;
    turns->total += count;
    if (turns->count == 1) return;
    assert(turns->current != REEF_TURN_NONE);
    reef_turn_lane *lane = &turns->lanes[turns->current];
    turns->given += count;
    lane->partial =
        turns->record_bytes ? turns->given % turns->record_bytes != 0 : bytes[count - 1] != '\n';
    if (!turn_is_over(turns, bytes[count - 1])) return;
    lane->at += turns->given * SCALE / lane->weight;
    lane->fresh = false;
    turns->current = REEF_TURN_NONE;
}

// What it gave in a turn that ends early counts as well.
static void leave_turn(reef_turns *turns, size_t lane) {
    if (turns->current != lane) return;
    turns->lanes[lane].at += turns->given * SCALE / turns->lanes[lane].weight;
    turns->current = REEF_TURN_NONE;
}

void reef_turns_give_to(reef_turns *turns, size_t lane) {
    if (turns->count == 1 || turns->current == lane) return;
    if (turns->current != REEF_TURN_NONE) leave_turn(turns, turns->current);
    turns->current = lane;
    turns->given = 0;
}

void reef_turns_done(reef_turns *turns, size_t lane) {
    leave_turn(turns, lane);
    turns->lanes[lane].done = true;
}

// Where the stream stands: with the lowest lane that takes part. While nobody does, with the highest of those that sit
// out, so that whoever begins first does not hold up the others when they are back.
static uint64_t standing(const reef_turns *turns) {
    size_t best = lowest(turns);
    if (best != REEF_TURN_NONE) return turns->lanes[best].at;
    uint64_t highest = 0;
    for (size_t i = 0; i < turns->count; i++)
        if (!turns->lanes[i].done && turns->lanes[i].at > highest) highest = turns->lanes[i].at;
    return highest;
}

// Having been away is no reason to catch up.
static void join(const reef_turns *turns, reef_turn_lane *lane) {
    uint64_t at = standing(turns);
    if (lane->at < at) lane->at = at;
}

void reef_turns_sit_out(reef_turns *turns, size_t lane, bool out) {
    // Whoever was found before has not begun: made again at this place, the decision comes first.
    if (turns->given == 0) turns->current = REEF_TURN_NONE;
    if (out)
        leave_turn(turns, lane);
    else
        join(turns, &turns->lanes[lane]);
    turns->lanes[lane].out = out;
    turns->lanes[lane].fresh = !out;
}

// ---- between two runs ----------------------------------------------------------------------------

// One that has ended stays where it ended while the others go on: if there is more of it in the next run, it begins
// where the lowest of them stands, and does not catch up.
json_t *reef_turns_save(const reef_turns *turns) {
    json_t *lanes = json_array();
    for (size_t i = 0; i < turns->count; i++) {
        const reef_turn_lane *lane = &turns->lanes[i];
        if (lane->done) continue;
        json_array_append_new(lanes, json_pack("{s:s, s:I, s:b, s:b, s:b}", "name", lane->name,
                                               "at", (json_int_t)lane->at, "out", lane->out,
                                               "fresh", lane->fresh, "partial", lane->partial));
    }
    const char *current = turns->current == REEF_TURN_NONE || turns->given == 0
                              ? NULL
                              : turns->lanes[turns->current].name;
    return json_pack("{s:I, s:I, s:I, s:s?, s:o}", "total", (json_int_t)turns->total, "decided",
                     (json_int_t)turns->decided, "given", (json_int_t)(current ? turns->given : 0),
                     "current", current, "lanes", lanes);
}

static reef_turn_lane *lane_named(const reef_turns *turns, const char *name) {
    for (size_t i = 0; i < turns->count; i++)
        if (!strcmp(turns->lanes[i].name, name)) return &turns->lanes[i];
    return NULL;
}

static bool load_lane(reef_turn_lane *lane, const json_t *saved) {
    json_int_t at = 0;
    int out = 0, fresh = 0, partial = 0;
    if (json_unpack((json_t *)saved, "{s:I, s:b, s:b, s:b}", "at", &at, "out", &out, "fresh",
                    &fresh, "partial", &partial) ||
        at < 0)
        return false;
    lane->at = (uint64_t)at;
    lane->out = out;
    lane->fresh = fresh;
    lane->partial = partial;
    return true;
}

reef_status reef_turns_load(reef_turns *turns, const json_t *saved, reef_error *err) {
    json_int_t total = 0, decided = 0, given = 0;
    const char *current = json_string_value(json_object_get(saved, "current")); // or null
    json_t *lanes = NULL;
    bool good = !json_unpack((json_t *)saved, "{s:I, s:I, s:I, s:o}", "total", &total, "decided",
                             &decided, "given", &given, "lanes", &lanes) &&
                json_is_array(lanes) && total >= 0 && decided >= 0 && given >= 0 &&
                given < REEF_SLICE_BYTES_MAX + (json_int_t)turns->record_bytes;
    for (size_t i = 0; i < turns->count; i++) turns->lanes[i].out = true; // until it is known
    for (size_t i = 0; good && i < json_array_size(lanes); i++) {
        const json_t *one = json_array_get(lanes, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        reef_turn_lane *lane = name ? lane_named(turns, name) : NULL;
        good = name && (!lane || load_lane(lane, one));
    }
    if (!good)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the record of whose turn it is makes no sense: 'reef verify' checks the "
                         "pool");
    turns->total = (uint64_t)total;
    turns->decided = (uint64_t)decided;
    reef_turn_lane *now = current ? lane_named(turns, current) : NULL;
    if (now) {
        turns->current = (size_t)(now - turns->lanes);
        turns->given = (uint64_t)given;
    }
    for (size_t i = 0; i < turns->count; i++) {
        bool known = false;
        for (size_t k = 0; k < json_array_size(lanes) && !known; k++)
            known = !strcmp(turns->lanes[i].name,
                            json_string_value(json_object_get(json_array_get(lanes, k), "name")));
        if (known) continue;
        join(turns, &turns->lanes[i]);
        turns->lanes[i].out = false;
    }
    return REEF_OK;
}
