// What was decided while bytes were learned: enough to bring tables of an earlier time up to date
// without predicting anything (replay.c).
//
// A line of a table changes by its own content, by the text, and by few decisions that other lines
// or the mixer made. With these each line can be learned again by itself, from whenever it was
// stored. So the slices of a memory's tables can be stored one after the other while it learns.
//
//   block   offset  size
//                0     8  position of the first byte: how many were learned before it
//                8    24  the last eight bytes; positions of the line and of the line above
//               32    52  the other words of the position there, as in a memory's header
//               84     4  a bit for each context that is often met again
//               88    16  hashes of the matches
//              104        a record for each byte
//
//   record     1  lower four bits: how the byte was learned (reef_log_way); then what follows:
//                 16 contexts met again, 32 cells that became trees, 64 what followed the last two
//                 bytes before, at the first time in the block, 128 the same trees as in the last
//                 record that has some
//              3  contexts met again, a bit each
//              2  what followed
//              3  contexts that had trees, unless the byte was foreseen
//              1  how many cells became trees; then 4 each: context, history, first, second byte
#ifndef REEF_LEARN_LOG_H
#define REEF_LEARN_LOG_H

#include "reef_replay.h"

#include "position.h"

#include <stdbool.h>

#define REEF_LOG_HEAD_BYTES 104
#define REEF_LOG_RECORD_MAX (1 + 3 + 2 + 3 + 1 + 4 * REEF_CONTEXTS)

/** 1 .. 8: it was trusted, and so many bits were learned at once when one contradicted. */
enum reef_log_way { REEF_LOG_BIT_BY_BIT = 0, REEF_LOG_FORESEEN = 9 };
/** What follows. */
enum reef_log_flag {
    REEF_LOG_MET = 16,
    REEF_LOG_STORED = 32,
    REEF_LOG_FOLLOWERS = 64,
    REEF_LOG_SAME = 128,
};

typedef struct reef_log_event {
    uint8_t context, history, first, second;
} reef_log_event;

typedef struct reef_learn_log {
    reef_log_block *blocks; // owned, as their bytes are; the last one is open
    size_t count, capacity;
    uint32_t trees, met;  // as the last record of the block says
    uint64_t pairs[1024]; // two bytes that came in the block, a bit each
    reef_log_event events[REEF_CONTEXTS];
    size_t event_count; // of the byte in hand
} reef_learn_log;

struct reef_predictor;

/** Between two bytes: room for the next one. */
REEF_MUST_CHECK reef_status reef_learn_log_reserve(reef_learn_log *log,
                                                   const struct reef_predictor *p,
                                                   reef_error *err);
/** After reef_learn_log_reserve: a byte was learned. `way`: reef_log_way. */
void reef_learn_log_put(reef_learn_log *log,
                        const struct reef_predictor *p,
                        uint32_t way,
                        uint32_t last_two,
                        uint32_t followers);
void reef_learn_log_free(reef_learn_log *log); // accepts NULL

/** Words of a position in the order of a memory's header; NULL stands for has_letter. */
#define REEF_POSITION_WORDS 13
void reef_position_words(reef_position *position, uint32_t *words[REEF_POSITION_WORDS]);

#endif
