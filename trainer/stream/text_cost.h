// What does a text cost to a kind, before anything has learned it? Kinds are told apart by the bits
// that a memory saves of those that learning the text from nothing costs.
#ifndef REEF_TEXT_COST_H
#define REEF_TEXT_COST_H

#include "reef_context.h"

typedef struct reef_deferred_text {
    const uint8_t *bytes; // (count) not owned
    size_t count;
    float *anew;  // owned; (count) bits by a memory that begins with nothing
    float *known; // (count) bits by what a kind knows
} reef_deferred_text;

/** What a kind's memory makes of a text, while it learns on: bits over those of learning it from
 * nothing. 1: what it knows is of no use. */
typedef struct reef_text_cost {
    double all, halves[2];
    double behind_first; // 2 kB, into which what was before may reach
    double bits;         // a byte, by what the kind knows
} reef_text_cost;

/**
 * A text of at least a byte, and what it costs to learn it from nothing.
 *
 * mixer  a memory whose mixer is used, so that what is measured is what was learned of texts
 *
 * Errors: NO_MEMORY: nothing is to be closed, and closing is harmless.
 */
REEF_MUST_CHECK reef_status reef_deferred_text_open(reef_deferred_text *out,
                                                    const reef_memory *mixer,
                                                    const uint8_t *bytes,
                                                    size_t count,
                                                    reef_error *err);
void reef_deferred_text_close(reef_deferred_text *text);

/**
 * What it costs to a memory, which is only read. NULL: one that knows nothing.
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_text_cost_read(const reef_deferred_text *text,
                                                const reef_memory *memory,
                                                reef_text_cost *out,
                                                reef_error *err);

#endif
