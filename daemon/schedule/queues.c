// Queues of what was read; see lanes.h.
#include "queues.h"

#include <stdlib.h>
#include <string.h>

#define NOT_ENDED UINT64_MAX

// ---- life ----------------------------------------------------------------------------------------

static reef_lane *add_lane(reef_lanes *lanes, bool live) {
    reef_lane *lane = &lanes->lanes[lanes->count++];
    lane->live = live;
    lane->until = UINT64_MAX;
    lane->marks_end = &lane->marks;
    return lane;
}

static reef_status put_in_lane(reef_lanes *lanes,
                               size_t source,
                               size_t record_bytes,
                               reef_error *err) {
    const reef_input *input = &lanes->inputs[source];
    bool live = input->kind->live;
    reef_lane *lane = NULL;
    for (size_t i = 0; !live && i < lanes->count; i++)
        if (!lanes->lanes[i].live) lane = &lanes->lanes[i];
    if (!lane) {
        lane = add_lane(lanes, live);
        lane->sources = calloc(live ? 1 : lanes->input_count, sizeof(*lane->sources));
        if (!lane->sources) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a lane");
        size_t unit = input->kind->promised && record_bytes ? record_bytes : 1;
        reef_status status =
            reef_ring_init(&lane->ring, live ? REEF_LIVE_BYTES_HIGH : REEF_QUEUE_BYTES_HIGH, unit,
                           input->offset % unit, err);
        if (status != REEF_OK) return status;
    }
    lanes->lane_of[source] = (size_t)(lane - lanes->lanes);
    lane->sources[lane->count++] = source;
    return REEF_OK;
}

reef_status reef_lanes_init(reef_lanes *lanes,
                            const reef_input *inputs,
                            size_t input_count,
                            size_t record_bytes,
                            reef_error *err) {
    size_t room = input_count + 1; // never a request for nothing
    *lanes = (reef_lanes){.inputs = inputs, .input_count = input_count};
    lanes->lanes = calloc(room, sizeof(*lanes->lanes));
    lanes->lane_of = calloc(room, sizeof(*lanes->lane_of));
    lanes->ends = calloc(room, sizeof(*lanes->ends));
    if (!lanes->lanes || !lanes->lane_of || !lanes->ends)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu sources", input_count);
    reef_status status = REEF_OK;
    for (size_t i = 0; i < input_count && status == REEF_OK; i++) {
        lanes->ends[i] = NOT_ENDED;
        status = put_in_lane(lanes, i, record_bytes, err);
    }
    return status;
}

static void free_first_mark(reef_lane *lane) {
    reef_place_mark *mark = lane->marks;
    lane->marks = mark->next;
    lane->mark_bytes -= strlen(mark->text);
    if (!lane->marks) lane->marks_end = &lane->marks;
    free(mark->text);
    free(mark);
}

void reef_lanes_release(reef_lanes *lanes) {
    for (size_t i = 0; i < lanes->count; i++) {
        reef_lane *lane = &lanes->lanes[i];
        while (lane->marks) free_first_mark(lane);
        reef_ring_release(&lane->ring);
        free(lane->sources);
    }
    free(lanes->lanes);
    free(lanes->lane_of);
    free(lanes->ends);
    *lanes = (reef_lanes){0};
}

// ---- filling -------------------------------------------------------------------------------------

static bool is_its_turn(const reef_lanes *lanes, const reef_lane *lane, size_t source) {
    for (size_t i = 0; i < lane->count && lane->sources[i] != source; i++)
        if (lanes->ends[lane->sources[i]] == NOT_ENDED) return false;
    return lanes->ends[source] == NOT_ENDED;
}

// The newest mark stays for as long as nothing comes after it: however long it is, it is no reason to wait.
static bool marks_fit(const reef_lane *lane) {
    return !lane->marks || !lane->marks->next || lane->mark_bytes < REEF_MARK_BYTES_HIGH;
}

bool reef_lanes_space(reef_lanes *lanes, size_t source, uint8_t **at, size_t *count) {
    reef_lane *lane = &lanes->lanes[lanes->lane_of[source]];
    if (!is_its_turn(lanes, lane, source)) return false;
    if (marks_fit(lane) && reef_ring_space(&lane->ring, at, count)) return true;
    lane->blocked = true;
    return false;
}

void reef_lanes_fill(reef_lanes *lanes, size_t source, size_t count, uint64_t begin, char *mark) {
    reef_lane *lane = &lanes->lanes[lanes->lane_of[source]];
    reef_ring_fill(&lane->ring, count);
    if (!mark) return;
    reef_place_mark *place = malloc(sizeof(*place));
    if (!place) abort(); // a few bytes; without them the place would be lost
    *place = (reef_place_mark){.begin = begin, .text = mark};
    *lane->marks_end = place;
    lane->marks_end = &place->next;
    lane->mark_bytes += strlen(mark);
}

void reef_lanes_end(reef_lanes *lanes, size_t source) {
    lanes->ends[source] = lanes->lanes[lanes->lane_of[source]].ring.tail;
}

// Bytes that can be read again may be dropped only when nothing after them in their lane has to be kept: the
// order of the stream is part of the result.
static uint64_t last_kept_position(const reef_lanes *lanes, const reef_lane *lane) {
    uint64_t kept = lane->ring.head, begin = 0;
    for (size_t i = 0; i < lane->count; i++) {
        size_t source = lane->sources[i];
        uint64_t end = lanes->ends[source] == NOT_ENDED ? lane->ring.tail : lanes->ends[source];
        if (!lanes->inputs[source].kind->again && end > begin && end > kept) kept = end;
        if (lanes->ends[source] == NOT_ENDED) break; // nothing was read of the ones after it
        begin = end;
    }
    return kept;
}

void reef_lanes_stop(reef_lanes *lanes) {
    for (size_t i = 0; i < lanes->count; i++)
        lanes->lanes[i].until = last_kept_position(lanes, &lanes->lanes[i]);
}

void reef_lanes_keep_line(reef_lanes *lanes, size_t index) {
    reef_lane *lane = &lanes->lanes[index];
    uint64_t end = reef_ring_after(&lane->ring, '\n');
    if (end > lane->until) lane->until = end;
}

// ---- taking --------------------------------------------------------------------------------------

size_t reef_lane_source(const reef_lane *lane) {
    return lane->sources[lane->current < lane->count ? lane->current : lane->count - 1];
}

bool reef_lane_is_done(const reef_lane *lane) {
    return lane->current == lane->count;
}

void reef_lane_skip_ended(const reef_lanes *lanes, reef_lane *lane) {
    while (lane->current < lane->count &&
           lanes->ends[lane->sources[lane->current]] == lane->ring.head)
        lane->current++;
}

size_t reef_lanes_view(reef_lanes *lanes, size_t index, const uint8_t **at) {
    const reef_lane *lane = &lanes->lanes[index];
    if (reef_lane_is_done(lane)) return 0;
    size_t source = lane->sources[lane->current];
    uint64_t end = lanes->ends[source];
    if (end == NOT_ENDED) end = lane->ring.tail;
    if (end > lane->until) end = lane->until;
    return end > lane->ring.head ? reef_ring_view(&lane->ring, end, at) : 0;
}

bool reef_lanes_take(reef_lanes *lanes, size_t index, size_t count) {
    reef_lane *lane = &lanes->lanes[index];
    reef_ring_take(&lane->ring, count);
    reef_lane_skip_ended(lanes, lane);
    bool room =
        lane->blocked && reef_ring_count(&lane->ring) < lane->ring.high / 2 && marks_fit(lane);
    if (room) lane->blocked = false;
    return room;
}

bool reef_lanes_has_ended(const reef_lanes *lanes, size_t source) {
    const reef_lane *lane = &lanes->lanes[lanes->lane_of[source]];
    for (size_t i = 0; i < lane->current; i++)
        if (lane->sources[i] == source) return true;
    return false;
}

uint64_t reef_lanes_waiting(const reef_lanes *lanes) {
    uint64_t waiting = 0;
    for (size_t i = 0; i < lanes->count; i++) waiting += reef_ring_count(&lanes->lanes[i].ring);
    return waiting;
}

const reef_place_mark *reef_lane_mark(reef_lane *lane, uint64_t cursor) {
    while (lane->marks && lane->marks->next && lane->marks->next->begin <= cursor)
        free_first_mark(lane);
    return lane->marks && lane->marks->begin <= cursor ? lane->marks : NULL;
}
