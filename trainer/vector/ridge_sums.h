// The sums that a generation of a vector model learns by, and what is solved from them.
#ifndef REEF_RIDGE_SUMS_H
#define REEF_RIDGE_SUMS_H

#include "vector.h"

static inline reef_vector_generation *reef_vector_open(const reef_vector *vector) {
    return vector->network.generations[vector->network.generation_count - 1];
}

REEF_MUST_CHECK reef_status reef_vector_sums_init(reef_vector *vector, reef_error *err);
/** Make room for the generation that was just opened. */
REEF_MUST_CHECK reef_status reef_vector_sums_generation(reef_vector *vector, reef_error *err);
/** Make room for more classes. */
REEF_MUST_CHECK reef_status reef_vector_sums_widen(reef_vector *vector,
                                                   size_t class_count,
                                                   reef_error *err);
/** Add `rows` examples whose classes and hidden units are in the batch; uses hidden units up. */
void reef_vector_sums_add(reef_vector *vector, reef_thread_pool *workers, size_t rows);
/** The open generation is solved for the last time: its sums join the gate's, and are cleared. */
void reef_vector_sums_seal(reef_vector *vector);
/**
 * Head and gate of the open generation from its sums; at least one example has been added. Writes
 * over vectors, z and gate_hidden of the batch.
 */
REEF_MUST_CHECK reef_status reef_vector_solve(reef_vector *vector,
                                              reef_thread_pool *workers,
                                              reef_vector_head *out,
                                              reef_error *err);

#endif
