// Files in the safetensors format: named tensors behind a header in JSON.
//
//   0      8 bytes, little-endian: bytes of the header, padding included
//   8      the header: one JSON object, padded with spaces to a multiple of 8
//            "__metadata__": {text: text, ...}
//            NAME: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}, ...
//   then   the data: tensors without gaps, offsets counted from here
//
// Only the types that generations and models have are known here: F32, I8, U8 and, for
// counts, I64.
#ifndef REEF_SAFETENSORS_H
#define REEF_SAFETENSORS_H

#include "reef_store.h"

#include <jansson.h>

#define REEF_SAFETENSORS_HEADER_BYTES_MAX (8u << 20) // configuration, and a root a generation
#define REEF_TENSOR_RANK_MAX 4

typedef struct reef_safetensor {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_dtype dtype; // REEF_F32, REEF_I8, REEF_BYTES or REEF_U64
    size_t rank;
    uint64_t shape[REEF_TENSOR_RANK_MAX];
    uint64_t begin, end; // in the data
} reef_safetensor;

/** Bytes of a tensor by its type and shape; UINT64_MAX when that is more than there can be. */
uint64_t reef_safetensor_bytes(const reef_safetensor *tensor);

typedef struct reef_safetensors_writer reef_safetensors_writer;

/**
 * Begin a file: PATH.part with its header. Data follows in the order of `tensors`, whose offsets
 * leave no gap. What an export left there that was killed is written over.
 *
 * metadata  an object of texts; not taken over
 * force     replace a file of that name once this one is whole
 *
 * Errors: INVALID the file exists, another is being written, or PATH.part belongs to a user;
 * NOT_FOUND no such directory; FULL; IO; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_safetensors_create(reef_safetensors_writer **out,
                                                    const char *path,
                                                    bool force,
                                                    const json_t *metadata,
                                                    size_t tensor_count,
                                                    const reef_safetensor *tensors,
                                                    reef_error *err);
/** The next bytes of the data. */
REEF_MUST_CHECK reef_status reef_safetensors_write(reef_safetensors_writer *writer,
                                                   const void *data,
                                                   size_t bytes,
                                                   reef_error *err);
/**
 * All data was written: sync it, and move it into place. Uses the writer up. file_bytes may be
 * NULL.
 */
REEF_MUST_CHECK reef_status reef_safetensors_finish(reef_safetensors_writer *writer,
                                                    uint64_t *file_bytes,
                                                    reef_error *err);
/** Give up: nothing is left of the file. Accepts NULL. */
void reef_safetensors_abandon(reef_safetensors_writer *writer);

#endif
