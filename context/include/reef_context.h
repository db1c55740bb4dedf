// Context memory: what follows what, learned from each byte when it is seen.
//
// A memory predicts the next byte bit by bit. Some twenty contexts (the last one to six bytes, the
// word, the field of a line, ...) each remember which bytes followed them; matches continue the
// longest earlier occurrence; a logistic mixer weighs all of these. It learns a byte in one pass,
// in whole numbers alone: the same bits on every CPU and with every kernel.
//
// A session reads a text over a memory that does not change. It adapts as it reads, in a
// copy-on-write view, and forgets that at its end. So what it says is a function of the memory and
// the text.
//
// The method is that of the PAQ compressors (Mahoney 2005, "Adaptive weighing of context models for
// lossless data compression"); every probability can drive an arithmetic coder.
#ifndef REEF_CONTEXT_H
#define REEF_CONTEXT_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_MEMORY_BYTES_DEFAULT (64ull << 20)
#define REEF_MEMORY_BYTES_MIN (4ull << 20)
#define REEF_MEMORY_BYTES_MAX (128ull << 20)

typedef struct reef_memory reef_memory;
typedef struct reef_memory_session reef_memory_session;

typedef struct reef_memory_options {
    /**
     * What the memory may take, in bytes; 0: REEF_MEMORY_BYTES_DEFAULT. It begins small and doubles
     * as it learns. At the bound the least used contexts make room for new ones.
     */
    uint64_t bytes_max;
} reef_memory_options;

/** Errors: INVALID a bound outside MIN .. MAX; NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_new(reef_memory **out,
                                                     const reef_memory_options *options,
                                                     reef_error *err);
REEF_API void reef_memory_free(reef_memory *memory); // accepts NULL

/**
 * Learn `count` bytes, the next of the memory's stream. How the stream is cut into calls changes
 * nothing.
 *
 * bits  (count) or NULL: written; the surprise of each byte before it was learned
 *
 * Errors: NO_MEMORY; the bytes before the one that failed are learned.
 * Threads: one at a time on a memory, and no session of it meanwhile.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_learn(
    reef_memory *memory, const uint8_t *bytes, size_t count, float *bits, reef_error *err);

/** The inputs of the mixer, by name: "order 1", "word", "match", ... */
REEF_API size_t reef_memory_input_count(void);
REEF_API const char *reef_memory_input_name(size_t input);

typedef struct reef_memory_stats {
    uint64_t learned_bytes;     // of the stream
    uint64_t bytes, bytes_max;  // of memory now, and its bound
    uint64_t cells, cells_used; // one a context
    uint64_t trees, trees_used; // of bit histories, for contexts with three bytes and more
    uint64_t text_bytes;        // of the stream that matches can reach
} reef_memory_stats;

/** Walks the tables: milliseconds. */
REEF_API void reef_memory_read_stats(const reef_memory *memory, reef_memory_stats *out);

// ---- sessions -----------------------------------------------------------------------------------

/**
 * Begin to read a text. `frozen`: nothing adapts, not even to the text itself. The memory must
 * neither learn nor end before the session. Threads: any number of sessions of one memory at once.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_open(reef_memory_session **out,
                                                              const reef_memory *memory,
                                                              bool frozen,
                                                              reef_error *err);
REEF_API void reef_memory_session_close(reef_memory_session *session); // accepts NULL
/** As just opened, in the memory that it has. */
REEF_API void reef_memory_session_reset(reef_memory_session *session);

/** Read `count` bytes more. bits (count) or NULL: written; the surprise of each byte. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_read(
    reef_memory_session *session, const uint8_t *bytes, size_t count, float *bits, reef_error *err);

/**
 * What each input was worth in all that the session has read since it was opened or reset.
 *
 * shares  (input count) written; parts of the log odds before the last mixer, sum 1
 * hits    (input count) written; part of the bytes in which the input had something to say
 */
REEF_API void reef_memory_session_inputs(const reef_memory_session *session,
                                         double *shares,
                                         double *hits);

// ---- bit by bit, for coders ---------------------------------------------------------------------

/**
 * Probability that the next bit (the highest of a byte first) is 1, in units of 1/65536, from 1 to
 * 65535.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_predict(reef_memory_session *session,
                                                                 uint32_t *one,
                                                                 reef_error *err);
/** The bit that came; after a predict. */
REEF_API void reef_memory_session_update(reef_memory_session *session, int bit);

#endif
