// Records of a vector model: how its experts are cut into blocks.
#ifndef REEF_VECTOR_CHECKPOINT_H
#define REEF_VECTOR_CHECKPOINT_H

#include "vector.h"

// Blocks of rows; `adam`: the moments of baselines instead of the rows themselves.
typedef struct reef_vector_block {
    uint32_t index;
    size_t at, count; // values: the first and how many
} reef_vector_block;

/** The block after *b, from {0} on; false after the last. */
bool reef_vector_block_next(const reef_vector_generation *generation, reef_vector_block *b);

/** Key of a block of experts, or of their moments. */
reef_key reef_vector_block_key(reef_db db, uint32_t generation, const reef_vector_block *b);

/** Key of a record by name. */
reef_key reef_vector_record_key(reef_db db, uint32_t generation, const char *name);

/** Read `bytes` bytes of a named record. Errors: those of reef_record_read. */
REEF_MUST_CHECK reef_status reef_vector_record_read(reef_txn *txn,
                                                    reef_db db,
                                                    uint32_t generation,
                                                    const char *name,
                                                    void *data,
                                                    size_t bytes,
                                                    reef_error *err);

/** Rows in a matrix of floats that is stored under a name. Errors: CORRUPT. */
REEF_MUST_CHECK reef_status reef_vector_record_rows(reef_txn *txn,
                                                    uint32_t generation,
                                                    const char *name,
                                                    size_t width,
                                                    size_t *out,
                                                    reef_error *err);

#endif
