// The record "state" of a generation, as far as a reader needs it: where in its stream a pool
// stands.
#ifndef REEF_STREAM_POSITION_H
#define REEF_STREAM_POSITION_H

#include "reef_store.h"

#include <jansson.h>

/**
 * Key of a record of the trainer's state, such as "state" or "carry", that is kept with a
 * generation.
 */
static inline reef_key reef_state_key(uint32_t generation, const char *name) {
    return (reef_key){.db = REEF_DB_TENSORS, .generation = generation, .name = name};
}

/** Parse the record "state"; the caller frees *out with json_decref. Errors: CORRUPT, NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_state_parse(json_t **out,
                                             const reef_view *view,
                                             uint32_t generation,
                                             reef_error *err);

/**
 * Where the stream stands in the state of an open generation, whose records lie under number
 * `records`.
 */
REEF_MUST_CHECK reef_status reef_state_position(reef_txn *txn,
                                                uint32_t records,
                                                uint64_t *step,
                                                uint64_t *generation_step,
                                                uint64_t *stream_bytes,
                                                reef_error *err);

#endif
