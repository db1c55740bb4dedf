// Bytes that were read and wait to be trained: one queue for each live source, and one for all
// others.
//
// Sources that end share one queue and are read one after another; a live source has a queue of its
// own. A queue has no lock: its owner (training_thread.c) calls under its own, and only the bytes
// that reef_queues_space and reef_queues_view lend are touched outside it.
#ifndef REEF_QUEUES_H
#define REEF_QUEUES_H

#include "byte_ring.h"
#include "reef_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_QUEUE_BYTES_HIGH (4u << 20) // of sources that end: reading stops when this much waits
#define REEF_LIVE_BYTES_HIGH (1u << 20)  // of a live source
// of its checkpoints: those of a large directory are long
#define REEF_CHECKPOINT_BYTES_HIGH (1u << 20)

/** Where a byte of a live source lies, as its kind put it. */
typedef struct reef_queue_checkpoint {
    uint64_t begin; // position in the source
    char *text;     // JSON, on the heap
    struct reef_queue_checkpoint *next;
} reef_queue_checkpoint;

typedef struct reef_queue {
    bool live;
    size_t *sources; // (count) the sources, in their order
    size_t count;
    size_t current; // which of them the byte at the head is of; count after the last
    reef_ring ring;
    uint64_t until; // no byte from this position on is lent; for reef_queues_stop
    bool blocked;   // no room was found: wake the loop when there is
    reef_queue_checkpoint *checkpoints, **checkpoints_end;
    size_t checkpoint_bytes; // of their texts
} reef_queue;

typedef struct reef_queues {
    const reef_input *inputs; // names and kinds are read
    size_t input_count;
    reef_queue *queues;
    size_t count;
    size_t *queue_of; // (input_count)
    uint64_t *ends;   // (input_count) position in the queue where it ended, or UINT64_MAX
} reef_queues;

/** Release also after an error. */
REEF_MUST_CHECK reef_status reef_queues_init(reef_queues *queues,
                                             const reef_input *inputs,
                                             size_t input_count,
                                             reef_error *err);
void reef_queues_release(reef_queues *queues);

// ---- filling ------------------------------------------------------------------------------------

/**
 * Lend room for the next bytes of `source`: not before the earlier sources of its queue have ended,
 * nor while the queue is full.
 */
bool reef_queues_space(reef_queues *queues, size_t source, uint8_t **at, size_t *count);
/**
 * `count` bytes came. Checkpoint `text` (heap, taken; may be NULL) locates the first of them, byte
 * `begin`.
 */
void reef_queues_fill(reef_queues *queues, size_t source, size_t count, uint64_t begin, char *text);
/** The source has no more; the taker moves on by reef_queue_skip_ended. */
void reef_queues_end(reef_queues *queues, size_t source);
/**
 * From here on only bytes that cannot be read again are lent, and those before them in their queue.
 */
void reef_queues_stop(reef_queues *queues);
/**
 * After reef_queues_stop: the line at the head of a queue is lent as well, if all of it is here.
 */
void reef_queues_keep_line(reef_queues *queues, size_t index);

// ---- taking -------------------------------------------------------------------------------------

/** The source of the next byte of a queue; the last one after all have ended. */
size_t reef_queue_source(const reef_queue *queue);
/** Whether all its sources have ended and were taken. */
bool reef_queue_is_done(const reef_queue *queue);
/** Lend waiting bytes of one source, in one piece; returns how many. */
size_t reef_queues_view(reef_queues *queues, size_t index, const uint8_t **at);
/**
 * The first `count` bytes of the view are done with; true when the loop waits for room and now has
 * it.
 */
bool reef_queues_take(reef_queues *queues, size_t queue, size_t count);
/** Step over sources that ended where the head stands. */
void reef_queue_skip_ended(const reef_queues *queues, reef_queue *queue);
/** Whether all of a source was taken. */
bool reef_queues_has_ended(const reef_queues *queues, size_t source);
/** Bytes that wait in all queues. */
uint64_t reef_queues_waiting(const reef_queues *queues);
/**
 * The checkpoint of byte `cursor` of a live queue's source: the last one at or before it.
 * Checkpoints before it are freed; it stays the queue's. NULL if there is none.
 */
const reef_queue_checkpoint *reef_queue_checkpoint_at(reef_queue *queue, uint64_t cursor);

#endif
