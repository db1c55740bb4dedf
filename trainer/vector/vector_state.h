// Where the learning of a vector model stands, in a commit; beside the matrices of
// vector_checkpoint.c.
#ifndef REEF_VECTOR_STATE_H
#define REEF_VECTOR_STATE_H

#include "vector.h"

reef_key reef_vector_state_key(uint32_t generation);
REEF_MUST_CHECK reef_status reef_vector_state_put(reef_txn *txn,
                                                  const reef_vector *vector,
                                                  reef_error *err);
/** head  written: sizes and sharpness of the last solution on schedule; no memory */
REEF_MUST_CHECK reef_status reef_vector_state_get(reef_txn *txn,
                                                  reef_vector *vector,
                                                  reef_vector_head *head,
                                                  reef_error *err);
REEF_MUST_CHECK reef_status reef_vector_memory_put(reef_txn *txn,
                                                   const reef_vector *vector,
                                                   reef_error *err);
REEF_MUST_CHECK reef_status reef_vector_memory_get(reef_txn *txn,
                                                   reef_vector *vector,
                                                   reef_error *err);

#endif
