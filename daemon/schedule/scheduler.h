// What is trained next: the queues, the order between them (stride.h), and how long an
// empty queue is waited for. Without a lock of its own: training_thread.c calls under its own.
#ifndef REEF_SCHEDULER_H
#define REEF_SCHEDULER_H

#include "reef_error.h"
#include "reef_source.h"
#include "stride.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- queues.c -----------------------------------------------------------------------------------
//
// Bytes that were read and wait to be trained: one queue for each live source, and one for all
// others.
//
// Sources that end share one queue and are read one after another; a live source has a queue of its
// own. A queue has no lock: its owner (training_thread.c) calls under its own, and only the bytes
// that reef_queues_space and reef_queues_view lend are touched outside it.

// ---- one ring of bytes --------------------------------------------------------------------------
//
// The bounded queue between reading and training: one ring of bytes.
//
// Positions count all bytes that ever went through and never wrap; only indices into the memory do.
// One thread fills at the tail and one takes from the head. The ring itself has no lock: its owner
// calls under its own, and only the bytes that `space` and `view` lend are touched outside it,
// which no other call moves or hands out again.

#define REEF_READ_BYTES_MAX (64u << 10) // one read

typedef struct reef_ring {
    uint8_t *bytes;
    size_t high;         // the high-water mark: no space is lent while this much waits
    uint64_t head, tail; // positions of the next byte to take, to fill
} reef_ring;

REEF_MUST_CHECK reef_status reef_ring_init(reef_ring *ring, size_t high, reef_error *err);
void reef_ring_release(reef_ring *ring);

/** Bytes that wait. */
uint64_t reef_ring_count(const reef_ring *ring);

/** Lend up to REEF_READ_BYTES_MAX free bytes in one piece; false at the high-water mark. */
bool reef_ring_space(reef_ring *ring, uint8_t **at, size_t *count);
/** `count` bytes of the lent space now hold data. */
void reef_ring_fill(reef_ring *ring, size_t count);

/** The position after the first waiting `byte`; the head's if it does not occur. */
uint64_t reef_ring_after(const reef_ring *ring, uint8_t byte);
/** Copy the first bytes that wait, at most `most`; returns how many. */
size_t reef_ring_peek(const reef_ring *ring, uint8_t *out, size_t most);
/** Lend waiting bytes up to position `end`, in one piece; returns how many. */
size_t reef_ring_view(const reef_ring *ring, uint64_t end, const uint8_t **at);
/** The first `count` bytes of the view are done with. */
void reef_ring_take(reef_ring *ring, size_t count);

// ---- queues -------------------------------------------------------------------------------------

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

#define REEF_QUEUE_PLACES_MAX 4096

/** From byte `begin` of a source on its bytes lie in this file. */
typedef struct reef_queue_place {
    uint64_t begin;  // position in the source
    uint64_t offset; // of it in the file
    struct reef_queue_place *next;
    char file[];
} reef_queue_place;

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
    reef_queue_place *places, *places_last;
    size_t place_count;
} reef_queue;

typedef struct reef_queues {
    const reef_input *inputs; // names, kinds and files are read
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
/**
 * The file that has byte `cursor` of a live queue's source, as above; NULL if none is known.
 *
 * count  written: so many bytes from there on lie in it, or in none
 */
const reef_queue_place *reef_queue_place_at(reef_queue *queue, uint64_t cursor, uint64_t *count);

// ---- scheduler.c --------------------------------------------------------------------------------

typedef enum reef_schedule_kind {
    REEF_SCHEDULE_NOTHING, // wait, at most until the deadline
    REEF_SCHEDULE_BYTES,   // train these
    REEF_SCHEDULE_DECIDE,  // write the decision, then reef_schedule_decided
    // decisions that cannot be made again: write that, then reef_schedule_forgot
    REEF_SCHEDULE_FORGET,
} reef_schedule_kind;

typedef struct reef_schedule_next {
    reef_schedule_kind kind;
    size_t queue;
    const uint8_t *bytes; // (count) lent until they are taken
    size_t count;
    bool idle;            // a decision: the queue becomes idle, or active again
    uint64_t deadline_ns; // of uv_hrtime; UINT64_MAX: only a change helps
} reef_schedule_next;

typedef struct reef_schedule {
    reef_queues queues;
    reef_stride stride;
    reef_stride_queue *stride_queues; // (queues.count)
    uint64_t *idle_since;  // (queues.count) since when it is idle, of uv_hrtime; 0 before this run
    uint64_t *empty_since; // (queues.count) since when its ring is empty; 0: it is not
    int64_t *heads;        // (queues.count) by time: of its next line; 0: to be read
    int64_t near_ms;       // by time: what dates without a year are near to at first
    reef_decisions after;  // of the run before, after its last commit
    size_t applied;        // how many of them took effect again
    uint64_t patience_ns;
    bool stopping;
} reef_schedule;

/**
 * Queues of the sources, and the stride as the pool's last commit has it. Release also after an
 * error.
 *
 * by_time  lines in the order of their times, in place of turns by weight
 */
REEF_MUST_CHECK reef_status reef_schedule_init(reef_schedule *schedule,
                                               reef_store *store,
                                               const reef_input *inputs,
                                               size_t count,
                                               double patience_s,
                                               bool by_time,
                                               reef_error *err);
void reef_schedule_release(reef_schedule *schedule);

/**
 * Find what is next at time `now_ns`; lent bytes or a decision are dealt with before the next call.
 */
void reef_schedule_find(reef_schedule *schedule, uint64_t now_ns, reef_schedule_next *next);
/**
 * The first `count` of the lent bytes were trained; true if the loop waits for room and now has it.
 */
bool reef_schedule_took(reef_schedule *schedule, const reef_schedule_next *next, size_t count);
/** For a REEF_SCHEDULE_DECIDE: what has to be written; the queue's name is borrowed. */
reef_schedule_choice reef_schedule_decision(const reef_schedule *schedule,
                                            const reef_schedule_next *next);
/** It was written and takes effect. */
void reef_schedule_decided(reef_schedule *schedule,
                           const reef_schedule_next *next,
                           uint64_t now_ns);
void reef_schedule_forgot(reef_schedule *schedule);
/** Only what cannot be read again is trained from now on. */
void reef_schedule_stop(reef_schedule *schedule);
/** Whether every source has ended and was trained. */
bool reef_schedule_is_done(const reef_schedule *schedule);

#endif
