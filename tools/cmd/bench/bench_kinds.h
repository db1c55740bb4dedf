// Many kinds of text in one stream: are they told apart, do they go on when they come back, and
// what do texts cost beside a memory that knows their kind: what `reef bench kinds` measures.
#ifndef REEF_BENCH_KINDS_H
#define REEF_BENCH_KINDS_H

#include "reef_context.h"
#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_KINDS_TEXT_MAX (UINT64_C(1) << 28) // of each text

typedef struct reef_kinds_plan {
    char *const *paths;    // (kind_count, 2) a text to learn, and one held out of it
    size_t kind_count;     // at least 2
    uint64_t memory_bytes; // of a kind's memory at most
    uint64_t train_bytes;  // of each text to learn at most
    uint64_t piece_bytes;  // of held-out texts in a random order
    uint64_t seed;         // of orders
    size_t threads;
} reef_kinds_plan;

/** One kind. Bits a byte are those of the last quarter of its held-out text. */
typedef struct reef_bench_kind {
    char *name;
    uint8_t *train, *held;
    size_t train_bytes, held_bytes;
    uint64_t begins;         // where in the stream
    bool is_found;           // a generation was opened there
    uint32_t learner;        // the kind of the pool that has learned most of it
    int64_t late;            // so many bytes behind it
    double own, bits, later; // of a memory that learned this kind alone, of the pool, and of the
                             // pool after all kinds came back
    reef_memory *memory;     // its own
    reef_memory_session *session; // of pieces, NULL before the first one
    reef_memory_session *alone;   // of separate pieces, reset before each
    size_t met;                   // of the text of pieces, by that session
    size_t pieces_read;           // bytes of its last quarter
} reef_bench_kind;

typedef struct reef_kinds_findings {
    reef_bench_kind *kinds; // (kind_count), in the order of the stream
    size_t kind_count;
    uint64_t stream_bytes, pool_bytes;
    size_t generations, found, invented; // opened where a kind begins, and elsewhere
    double learn_seconds, own_learn_seconds;
    double read_seconds, own_read_seconds; // of the last quarters
    uint64_t read_bytes;
    double own, bits, later, forgetting_max; // means over kinds
    uint64_t back_bytes, strange_bytes;      // of the other quarters; of these, learned by
    size_t back_generations;                 // generations that were opened among them, and
    uint64_t same_bytes; // by the kind that had learned most of the text to learn
    uint64_t pieces_bytes;
    double pieces_own, pieces_bits; // a byte
    uint64_t alone_bytes;           // scored of pieces that were read each by itself
    double alone_own, alone_bits;   // a byte
} reef_kinds_findings;

/**
 * A new pool below TMPDIR without a net learns all texts as one stream, then three quarters of
 * the held-out ones in another order. Before and after that it reads the last quarters.
 *
 * found  written, also on failure; release it
 *
 * Errors: NOT_FOUND a file that is missing or has no byte; INVALID a bound of memory that there
 * cannot be, or a held-out text that is too short to be divided; IO, FULL.
 */
REEF_MUST_CHECK reef_status reef_bench_kinds_run(const reef_kinds_plan *plan,
                                                 reef_kinds_findings *found,
                                                 reef_error *err);
void reef_bench_kinds_release(reef_kinds_findings *found); // accepts zeros

#endif
