// A state of a pool as one file: which tensors it has, and as metadata what they are of.
//
// Written by model_export.c for other programs; nothing here reads it. Names are those of the pool's tensors, and "memory.RECORD" of a context memory's. Rows of
// experts are taken apart into w_down, w_up and w_gate, so that a program that knows nothing of
// pools finds matrices. Generations after the first have theirs under "generationG.".
//
//   metadata   format           reef.model
//              format_version   1
//              configuration    JSON, as in the pool
//              generations      JSON, a list: {"number", "parent", "side", "dtype", "sealed",
//                               "opened_step", ..., "root" of those that are sealed, "continues"
//                               of those that continue a kind}
//              step, generation_step, stream_bytes
#ifndef REEF_MODEL_FILE_H
#define REEF_MODEL_FILE_H

#include "checkpoint.h"
#include "safetensors.h"

#define REEF_MEMORY_PREFIX "memory." // of its tensors, before the names of its records
#define REEF_MODEL_FORMAT "reef.model"
#define REEF_MODEL_FILE_VERSION 1u

/** One tensor of the file. */
typedef struct reef_tensor_group {
    reef_safetensor tensor;
    char record[REEF_NAME_BYTES_MAX + 1]; // its name without the generation
    uint32_t generation;                  // in the file
    // TENSORS: one record. MEMORY: one record of reef_memory_records. EXPERTS, FLAGS, USAGE: of
    // each row of a block `bytes` from `offset` on.
    reef_db db;
    uint32_t layer, block_rows;
    size_t row_bytes, offset, bytes;
} reef_tensor_group;

typedef struct reef_tensor_groups {
    size_t count, capacity;
    reef_tensor_group *parts; // owned
} reef_tensor_groups;

/**
 * Add the tensors of generation number `generation` of the file; `gate_values` as stored (0: it has
 * no gate). Its context memory counts where it is in `generation`.
 */
REEF_MUST_CHECK reef_status reef_tensor_groups_add(reef_tensor_groups *parts,
                                                   const reef_config *config,
                                                   const reef_generation *generation,
                                                   uint32_t number,
                                                   reef_error *err);
void reef_tensor_groups_release(reef_tensor_groups *parts); // accepts the zeroed list

/** What the names of the tensors of generation `generation` of the file begin with; "" of 0. */
const char *reef_tensor_prefix(uint32_t generation, char out[REEF_NAME_BYTES_MAX + 1]);

/** One generation of the file. */
typedef struct reef_file_generation {
    reef_generation_record info; // parent, continues: in the file
    uint32_t number;             // in the pool it comes from, which its root is of
    uint32_t records;            // export: where its records lie
    bool has_root;
} reef_file_generation;

/** What the file is of. */
typedef struct reef_model_origin {
    reef_config config;
    uint32_t count;
    reef_file_generation *generations; // (count) owned
    uint64_t step, generation_step, stream_bytes;
} reef_model_origin;

/** The file's metadata; NULL when out of memory. */
json_t *reef_model_metadata(const reef_model_origin *origin);
void reef_model_origin_release(reef_model_origin *origin); // accepts the zeroed origin

/** Of a kind whose whole state is generations? INVALID says what it has besides. */
REEF_MUST_CHECK reef_status reef_model_check_kind(const reef_config *config, reef_error *err);

#endif
