// What a context memory makes of texts, and how fast, beside another program: what `reef bench
// context` measures.
#ifndef REEF_BENCH_CONTEXT_H
#define REEF_BENCH_CONTEXT_H

#include "bench_rival.h"
#include "reef_context.h"
#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_CONTEXT_BYTES_MAX (UINT64_C(1) << 30) // of a text, which is held in memory
#define BENCH_CONTEXT_ROUNDS_MAX 1000

/** What is measured. */
typedef struct reef_context_plan {
    char *const *paths;               // (text_count, 2) a text to learn, and one held out of it
    size_t text_count;                // at least 1
    uint64_t memory_bytes;            // of a memory at most; 0: the default of reef_memory_options
    uint64_t train_bytes, held_bytes; // of each text at most
    uint64_t rounds;                  // 1 .. BENCH_CONTEXT_ROUNDS_MAX
    const char *rival;                // a program, or NULL
} reef_context_plan;

// In the order of the answer.
#define CONTEXT_FIGURE_LIST(X)                                                                     \
    X(first_pass_bits_per_byte) /* while it learns */                                              \
    X(held_out_bits_per_byte)   /* of a session that adapts */                                     \
    X(frozen_bits_per_byte)     /* of one that does not */                                         \
    X(learn_bytes_per_s)        /* of CPU time, the median of the rounds */                        \
    X(read_bytes_per_s)         /* the same of the session that adapts */                          \
    X(lines_per_byte)           /* of 64 bytes, that learning reads of the tables */               \
    X(limit_bytes_per_s)        /* of a loop that does nothing but read so many, at random */      \
    X(memory_bytes)                                                                                \
    X(memory_bytes_per_byte) /* of the stream */                                                   \
    X(cells_used_percent)                                                                          \
    X(trees_used_percent)

enum {
#define CONTEXT_FIGURE_ENUM(name) CONTEXT_##name,
    CONTEXT_FIGURE_LIST(CONTEXT_FIGURE_ENUM)
#undef CONTEXT_FIGURE_ENUM
        CONTEXT_FIGURE_COUNT
};

/** The figures of a text, or the means over all of them. Not a number where there is none. */
typedef struct reef_context_figures {
    double values[CONTEXT_FIGURE_COUNT];
    double *shares, *hits;                 // (reef_memory_input_count()) as a session tells them
    double rival[BENCH_RIVAL_COLUMNS_MAX]; // medians of the rounds
    double rival_speed_ratio;              // of learning to the rival's first column in kB/s
} reef_context_figures;

/** One pair of files. */
typedef struct reef_context_text {
    char *name;                     // of the text to learn, as FOLDER/FILE
    char *rival_train, *rival_held; // copies for the rival, or NULL
    uint8_t *train, *held;
    size_t train_bytes, held_bytes;
    double *learn_seconds, *read_seconds, *limit_seconds; // (rounds)
    reef_bench_rival_row *rows;                           // (rounds) what the rival printed
    reef_context_figures figures;
} reef_context_text;

typedef struct reef_context_findings {
    reef_context_text *texts; // (text_count)
    size_t text_count;
    reef_context_figures mean;
    uint64_t memory_bytes_max;  // the bound of each memory
    reef_bench_rival_row rival; // names of its columns; none without a rival
} reef_context_findings;

/**
 * Measure every pair of files in each round: a new memory learns the first, and two sessions read
 * the second. A rival runs in turns with that, on copies below TMPDIR that are cut to the same
 * bytes. A progress bar on a terminal shows how long it takes.
 *
 * found  written, also on failure; release it
 *
 * Errors: NOT_FOUND a file or the rival that is missing, or a file without a byte; INVALID a bound
 * of memory that there cannot be, or a rival that failed or printed no table; IO.
 */
REEF_MUST_CHECK reef_status reef_bench_context_run(const reef_context_plan *plan,
                                                   reef_context_findings *found,
                                                   reef_error *err);
void reef_bench_context_release(reef_context_findings *found); // accepts the zeroed findings

#endif
