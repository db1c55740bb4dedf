// Queues of what was read; see scheduler.h.
#include "scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NOT_ENDED UINT64_MAX

// ---- life ---------------------------------------------------------------------------------------

static reef_queue *add_queue(reef_queues *queues, bool live) {
    reef_queue *queue = &queues->queues[queues->count++];
    queue->live = live;
    queue->until = UINT64_MAX;
    queue->checkpoints_end = &queue->checkpoints;
    return queue;
}

static reef_status put_in_queue(reef_queues *queues, size_t source, reef_error *err) {
    const reef_input *input = &queues->inputs[source];
    bool live = input->kind->live;
    reef_queue *queue = NULL;
    // All sources that end share one queue and are read one after another; each live source has
    // its own.
    for (size_t i = 0; !live && i < queues->count; i++)
        if (!queues->queues[i].live) queue = &queues->queues[i];
    if (queue == NULL) {
        queue = add_queue(queues, live);
        queue->sources = calloc(live ? 1 : queues->input_count, sizeof(*queue->sources));
        if (queue->sources == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a queue");
        reef_status status =
            reef_ring_init(&queue->ring, live ? REEF_LIVE_BYTES_HIGH : REEF_QUEUE_BYTES_HIGH, err);
        if (status != REEF_OK) return status;
    }
    queues->queue_of[source] = (size_t)(queue - queues->queues);
    queue->sources[queue->count++] = source;
    return REEF_OK;
}

reef_status reef_queues_init(reef_queues *queues,
                             const reef_input *inputs,
                             size_t input_count,
                             reef_error *err) {
    size_t room = input_count + 1; // never a request for nothing
    *queues = (reef_queues){.inputs = inputs, .input_count = input_count};
    queues->queues = calloc(room, sizeof(*queues->queues));
    queues->queue_of = calloc(room, sizeof(*queues->queue_of));
    queues->ends = calloc(room, sizeof(*queues->ends));
    if (queues->queues == NULL || queues->queue_of == NULL || queues->ends == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu sources", input_count);
    reef_status status = REEF_OK;
    for (size_t i = 0; i < input_count && status == REEF_OK; i++) {
        // No source has ended yet.
        queues->ends[i] = NOT_ENDED;
        status = put_in_queue(queues, i, err);
    }
    return status;
}

static void free_first_checkpoint(reef_queue *queue) {
    reef_queue_checkpoint *first = queue->checkpoints;
    queue->checkpoints = first->next;
    queue->checkpoint_bytes -= strlen(first->text);
    if (queue->checkpoints == NULL) queue->checkpoints_end = &queue->checkpoints;
    free(first->text);
    free(first);
}

static void free_first_place(reef_queue *queue) {
    reef_queue_place *first = queue->places;
    queue->places = first->next;
    queue->place_count--;
    free(first);
}

void reef_queues_release(reef_queues *queues) {
    for (size_t i = 0; i < queues->count; i++) {
        reef_queue *queue = &queues->queues[i];
        while (queue->checkpoints != NULL) free_first_checkpoint(queue);
        while (queue->places != NULL) free_first_place(queue);
        reef_ring_release(&queue->ring);
        free(queue->sources);
    }
    free(queues->queues);
    free(queues->queue_of);
    free(queues->ends);
    *queues = (reef_queues){0};
}

// ---- filling ------------------------------------------------------------------------------------

static bool is_current_source(const reef_queues *queues, const reef_queue *queue, size_t source) {
    for (size_t i = 0; i < queue->count && queue->sources[i] != source; i++)
        if (queues->ends[queue->sources[i]] == NOT_ENDED) return false;
    return queues->ends[source] == NOT_ENDED;
}

// The newest checkpoint stays as long as nothing follows it: its length never makes training wait.
static bool checkpoints_fit(const reef_queue *queue) {
    return queue->place_count < REEF_QUEUE_PLACES_MAX &&
           (queue->checkpoints == NULL || queue->checkpoints->next == NULL ||
            queue->checkpoint_bytes < REEF_CHECKPOINT_BYTES_HIGH);
}

bool reef_queues_space(reef_queues *queues, size_t source, uint8_t **at, size_t *count) {
    reef_queue *queue = &queues->queues[queues->queue_of[source]];
    if (!is_current_source(queues, queue, source)) return false;
    if (checkpoints_fit(queue) && reef_ring_space(&queue->ring, at, count)) return true;
    queue->blocked = true;
    return false;
}

// Not where the last one says it already.
static void add_place(reef_queue *queue, uint64_t begin, const char *file, uint64_t offset) {
    const reef_queue_place *last = queue->places_last;
    if (queue->places != NULL && begin - last->begin == offset - last->offset &&
        strcmp(last->file, file) == 0)
        return;
    reef_queue_place *place = malloc(sizeof(*place) + strlen(file) + 1);
    if (place == NULL) abort(); // as for a checkpoint
    *place = (reef_queue_place){.begin = begin, .offset = offset};
    memcpy(place->file, file, strlen(file) + 1);
    *(queue->places == NULL ? &queue->places : &queue->places_last->next) = place;
    queue->places_last = place;
    queue->place_count++;
}

void reef_queues_fill(
    reef_queues *queues, size_t source, size_t count, uint64_t begin, char *text) {
    reef_queue *queue = &queues->queues[queues->queue_of[source]];
    const reef_input *input = &queues->inputs[source];
    reef_ring_fill(&queue->ring, count);
    if (input->file != NULL) add_place(queue, begin, input->file, input->file_offset);
    if (text == NULL) return;
    reef_queue_checkpoint *checkpoint = malloc(sizeof(*checkpoint));
    if (checkpoint == NULL) abort(); // a few bytes; without them the position would be lost
    *checkpoint = (reef_queue_checkpoint){.begin = begin, .text = text};
    *queue->checkpoints_end = checkpoint;
    queue->checkpoints_end = &checkpoint->next;
    queue->checkpoint_bytes += strlen(text);
}

void reef_queues_end(reef_queues *queues, size_t source) {
    queues->ends[source] = queues->queues[queues->queue_of[source]].ring.tail;
}

// Bytes that can be read again may be dropped only if nothing after them in their queue has to be
// kept: the order of the stream is part of the result.
static uint64_t last_kept_position(const reef_queues *queues, const reef_queue *queue) {
    uint64_t kept = queue->ring.head, begin = 0;
    for (size_t i = 0; i < queue->count; i++) {
        size_t source = queue->sources[i];
        uint64_t end = queues->ends[source] == NOT_ENDED ? queue->ring.tail : queues->ends[source];
        if (!queues->inputs[source].kind->again && end > begin && end > kept) kept = end;
        if (queues->ends[source] == NOT_ENDED) break; // nothing was read of the ones after it
        begin = end;
    }
    return kept;
}

void reef_queues_stop(reef_queues *queues) {
    for (size_t i = 0; i < queues->count; i++)
        queues->queues[i].until = last_kept_position(queues, &queues->queues[i]);
}

void reef_queues_keep_line(reef_queues *queues, size_t index) {
    reef_queue *queue = &queues->queues[index];
    uint64_t end = reef_ring_after(&queue->ring, '\n');
    if (end > queue->until) queue->until = end;
}

// ---- taking -------------------------------------------------------------------------------------

size_t reef_queue_source(const reef_queue *queue) {
    return queue->sources[queue->current < queue->count ? queue->current : queue->count - 1];
}

bool reef_queue_is_done(const reef_queue *queue) {
    return queue->current == queue->count;
}

void reef_queue_skip_ended(const reef_queues *queues, reef_queue *queue) {
    while (queue->current < queue->count &&
           queues->ends[queue->sources[queue->current]] == queue->ring.head)
        queue->current++;
}

size_t reef_queues_view(reef_queues *queues, size_t index, const uint8_t **at) {
    const reef_queue *queue = &queues->queues[index];
    if (reef_queue_is_done(queue)) return 0;
    size_t source = queue->sources[queue->current];
    uint64_t end = queues->ends[source];
    if (end == NOT_ENDED) end = queue->ring.tail;
    if (end > queue->until) end = queue->until;
    return end > queue->ring.head ? reef_ring_view(&queue->ring, end, at) : 0;
}

bool reef_queues_take(reef_queues *queues, size_t index, size_t count) {
    reef_queue *queue = &queues->queues[index];
    reef_ring_take(&queue->ring, count);
    reef_queue_skip_ended(queues, queue);
    bool room = queue->blocked && reef_ring_count(&queue->ring) < queue->ring.high / 2 &&
                checkpoints_fit(queue);
    if (room) queue->blocked = false;
    return room;
}

bool reef_queues_has_ended(const reef_queues *queues, size_t source) {
    const reef_queue *queue = &queues->queues[queues->queue_of[source]];
    for (size_t i = 0; i < queue->current; i++)
        if (queue->sources[i] == source) return true;
    return false;
}

uint64_t reef_queues_waiting(const reef_queues *queues) {
    uint64_t waiting = 0;
    for (size_t i = 0; i < queues->count; i++) waiting += reef_ring_count(&queues->queues[i].ring);
    return waiting;
}

const reef_queue_checkpoint *reef_queue_checkpoint_at(reef_queue *queue, uint64_t cursor) {
    while (queue->checkpoints != NULL && queue->checkpoints->next != NULL &&
           queue->checkpoints->next->begin <= cursor)
        free_first_checkpoint(queue);
    return queue->checkpoints != NULL && queue->checkpoints->begin <= cursor ? queue->checkpoints
                                                                             : NULL;
}

const reef_queue_place *reef_queue_place_at(reef_queue *queue, uint64_t cursor, uint64_t *count) {
    while (queue->places != NULL && queue->places->next != NULL &&
           queue->places->next->begin <= cursor)
        free_first_place(queue);
    const reef_queue_place *first = queue->places;
    const bool lies_in_it = first != NULL && first->begin <= cursor;
    const reef_queue_place *next = lies_in_it ? first->next : first;
    *count = next != NULL ? next->begin - cursor : UINT64_MAX;
    return lies_in_it ? first : NULL;
}

// ---- one ring of bytes --------------------------------------------------------------------------
//
// The memory is one read larger than the high-water mark, so that a read which starts just below
// the mark always fits.

static size_t room_of(const reef_ring *ring) {
    return ring->high + REEF_READ_BYTES_MAX;
}

reef_status reef_ring_init(reef_ring *ring, size_t high, reef_error *err) {
    *ring = (reef_ring){.high = high};
    ring->bytes = malloc(room_of(ring));
    if (ring->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no %zu bytes for the input queue",
                         room_of(ring));
    return REEF_OK;
}

void reef_ring_release(reef_ring *ring) {
    free(ring->bytes);
    *ring = (reef_ring){0};
}

uint64_t reef_ring_count(const reef_ring *ring) {
    return ring->tail - ring->head;
}

static size_t smaller(uint64_t a, uint64_t b) {
    return (size_t)(a < b ? a : b);
}

bool reef_ring_space(reef_ring *ring, uint8_t **at, size_t *count) {
    if (reef_ring_count(ring) >= ring->high) return false;
    size_t index = (size_t)(ring->tail % room_of(ring));
    *at = ring->bytes + index;
    *count = smaller(REEF_READ_BYTES_MAX, room_of(ring) - index);
    return true;
}

void reef_ring_fill(reef_ring *ring, size_t count) {
    ring->tail += count;
    assert(reef_ring_count(ring) <= room_of(ring));
}

uint64_t reef_ring_after(const reef_ring *ring, uint8_t byte) {
    for (uint64_t at = ring->head; at < ring->tail; at++)
        if (ring->bytes[at % room_of(ring)] == byte) return at + 1;
    return ring->head;
}

size_t reef_ring_peek(const reef_ring *ring, uint8_t *out, size_t most) {
    const size_t count = smaller(reef_ring_count(ring), most);
    for (size_t i = 0; i < count; i++) out[i] = ring->bytes[(ring->head + i) % room_of(ring)];
    return count;
}

size_t reef_ring_view(const reef_ring *ring, uint64_t end, const uint8_t **at) {
    assert(end >= ring->head);
    size_t index = (size_t)(ring->head % room_of(ring));
    *at = ring->bytes + index;
    size_t waiting = smaller(end - ring->head, reef_ring_count(ring));
    return smaller(waiting, room_of(ring) - index);
}

void reef_ring_take(reef_ring *ring, size_t count) {
    assert(count <= reef_ring_count(ring));
    ring->head += count;
}
