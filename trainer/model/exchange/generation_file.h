// What a file of one sealed generation holds: its records as tensors, and where it comes from as
// metadata.
//
// Shared by generation_export.c, which writes such files, and generation_import.c, which trusts
// nothing in them. Tensors stand in the order of the generation's root: dense ones by name, rows of
// experts by layer, flags by layer, records of its context memory by name; so the root can be taken
// while the data passes by.
#ifndef REEF_GENERATION_FILE_H
#define REEF_GENERATION_FILE_H

#include "generation.h"
#include "safetensors.h"

#define REEF_GENERATION_FILE_VERSION 1u

/** One tensor of the file, and which records of a generation it is made of. */
typedef struct reef_generation_tensor {
    reef_safetensor tensor;
    reef_db db; // TENSORS (one record), EXPERTS, FLAGS or MEMORY (a record a block)
    uint32_t layer;
    uint32_t block_rows; // rows of a block; of MEMORY bytes
    size_t row_bytes;
} reef_generation_tensor;

typedef struct reef_generation_tensors {
    size_t count;
    reef_generation_tensor *parts;
} reef_generation_tensors;

/**
 * List what a sealed generation of this configuration has; `gate_values` as stored (0 in generation
 * 0). Its context memory counts where it is in `generation`.
 */
REEF_MUST_CHECK reef_status reef_generation_tensors_init(reef_generation_tensors *parts,
                                                         const reef_config *config,
                                                         const reef_generation *generation,
                                                         size_t gate_values,
                                                         reef_error *err);
void reef_generation_tensors_release(reef_generation_tensors *parts); // accepts the zeroed list

/** Rank and shape of the dense tensor of that name; REEF_F32 has its type. */
void reef_tensor_shape(reef_safetensor *tensor, const reef_config *config, uint32_t side);

typedef struct reef_tensor_record {
    reef_key key;    // its name belongs to the part
    uint64_t offset; // in the part
    size_t bytes;
} reef_tensor_record;

/** Record `index` of a part, as of a generation of that number; false after the last. */
bool reef_tensor_record_at(const reef_generation_tensor *part,
                           uint32_t generation,
                           uint32_t index,
                           reef_tensor_record *out);

// ---- the context memory -------------------------------------------------------------------------

#define REEF_MEMORY_PREFIX "memory." // of its tensors, before the names of its records

/** Is there one? `prefix` is REEF_MEMORY_PREFIX, after what else the names of its tensors have. */
bool reef_memory_is_in_file(const reef_safetensors *file, const char *prefix);
/**
 * Read it into one that has none; nothing where there is none.
 *
 * Errors: CORRUPT a tensor is missing, has another size, or holds what no memory has; VERSION it is
 * of another version; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_memory_from_file(reef_generation_memory *memory,
                                                  const reef_safetensors *file,
                                                  const char *prefix,
                                                  reef_error *err);

/** Rows of a sealed generation that is not stored yet, and the tables that it has until then. */
REEF_MUST_CHECK reef_status reef_generation_allocate_tables(reef_generation *generation,
                                                            reef_error *err);

/** Where a generation comes from. */
typedef struct reef_generation_origin {
    reef_generation_record info; // in its pool; the root is that of the file's data
    // Of the generation in its pool. It differs from that of the file where the kind learned more
    // since: the file has the memory as it is now.
    uint8_t sealed_root[REEF_HASH_BYTES];
    reef_config config; // of its pool
    // The generations below it that it was trained on top of: 0 .. base_count - 1. Only generation
    // 0 where no other can fire on the same token and its gate reads no losses, otherwise all
    // before it.
    uint32_t base_count;
    uint8_t (*base_roots)[REEF_HASH_BYTES]; // (base_count) owned
} reef_generation_origin;

/** The file's metadata; NULL when out of memory. */
json_t *reef_origin_metadata(const reef_generation_origin *origin);
/**
 * Read it back. Errors: INVALID no file of a generation; VERSION a newer one; CORRUPT a text that
 * is missing or none of what it may be. Release the origin, after an error too.
 */
REEF_MUST_CHECK reef_status reef_origin_parse(reef_generation_origin *origin,
                                              const reef_safetensors *file,
                                              reef_error *err);
void reef_origin_release(reef_generation_origin *origin); // accepts the zeroed origin

/** Does a generation of this configuration, with such a gate, need all older ones as they were? */
bool reef_origin_needs_all(const reef_config *config);
/** What this memory learned; without one, the length of the generation's part of the stream. */
uint64_t reef_origin_trained_bytes(const reef_generation_record *info,
                                   const reef_generation_memory *memory);
/** Experts in all layers. */
uint64_t reef_origin_experts(const reef_config *config, uint32_t side);

#endif
