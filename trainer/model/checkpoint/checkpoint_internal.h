// The inside of checkpoint.h, shared by the files that write and read the records of a generation:
//
//   checkpoint.c           a generation as a whole; how each record is laid out
//   checkpoint_tensors.c   dense tensors, their moments
//   checkpoint_experts.c   blocks of experts: rows, moments, flags, usage
//   checkpoint_memory.c    its context memory
//   checkpoint_slices.c    a large one, slice by slice
//   zero_runs.c            blocks of a memory, packed
//   checkpoint_visits.c    memories of kinds that came back
//   residency.c            rows that stay in the store's map
#ifndef REEF_CHECKPOINT_INTERNAL_H
#define REEF_CHECKPOINT_INTERNAL_H

#include "checkpoint.h"

// arrays of the weights' shape in a record of moments: with averages
#define REEF_MOMENT_PLANES_MAX 3

/** How many there are where `average` is the weights' average, or NULL. */
static inline size_t reef_moment_planes(const float *average) {
    return average != NULL ? REEF_MOMENT_PLANES_MAX : REEF_MOMENT_PLANES_MAX - 1;
}

// checkpoint_tensors.c

static inline reef_key reef_tensor_key(reef_db db, uint32_t generation, const char *name) {
    return (reef_key){.db = db, .generation = generation, .name = name};
}
/** All dense tensors of a generation, as it is evaluated. */
REEF_MUST_CHECK reef_status reef_checkpoint_put_tensors(reef_txn *txn,
                                                        const reef_generation *generation,
                                                        reef_error *err);
REEF_MUST_CHECK reef_status reef_checkpoint_read_tensors(reef_txn *txn,
                                                         uint32_t records,
                                                         reef_generation *generation,
                                                         reef_error *err);
/** Their moments; `buffer` is one of reef_checkpoint_moments_buffer. */
REEF_MUST_CHECK reef_status reef_checkpoint_put_tensor_moments(reef_txn *txn,
                                                               const reef_generation *generation,
                                                               float *buffer,
                                                               reef_error *err);
/** After reef_checkpoint_read_tensors: what that read are the averages, if there are any. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_tensor_moments(
    reef_txn *txn, uint32_t records, reef_generation *generation, float *buffer, reef_error *err);
/**
 * Moments and usage are missing where a snapshot was restored that has none: they begin with zeros.
 * (A record that was lost is a different error, which the store distinguishes.)
 */
REEF_MUST_CHECK reef_status reef_checkpoint_read_or_zero(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err);
/**
 * Moments of a tensor or block, for which `weights` (floats) are stored. Without a record training
 * begins with zeros, and averages begin with the weights.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_read_moments(reef_txn *txn,
                                                         const reef_key *key,
                                                         float *buffer,
                                                         size_t bytes,
                                                         const float *weights,
                                                         size_t floats,
                                                         bool averaged,
                                                         reef_error *err);

// checkpoint_memory.c

/**
 * What a commit holds of a generation's context memory: its tables where it is sealed or they are
 * due (then `checkpoint_put` is set), else the tail. Nothing without a memory.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_put_memory(reef_txn *txn,
                                                       reef_generation *generation,
                                                       reef_error *err);

/** Before what is put of it: an earlier transaction may have failed. */
void reef_checkpoint_begin_put(reef_generation_memory *m);
/**
 * What a commit holds of a memory that learns, whose records have the database, generation and
 * layer of `prefix`: tail, tables or slices. clear: removes what is stored of it, which may be
 * damaged.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_put_learning(
    reef_txn *txn,
    const reef_key *prefix,
    reef_generation_memory *m,
    reef_status (*clear)(
        reef_txn *txn, const reef_key *prefix, const reef_generation_memory *m, reef_error *err),
    reef_error *err);

static inline reef_key reef_checkpoint_memory_key(const reef_key *prefix,
                                                  const char *name,
                                                  uint32_t block) {
    reef_key key = *prefix;
    key.name = name;
    key.block = block;
    return key;
}
/** Bytes of the block at `at` of a part. */
static inline size_t reef_checkpoint_block_bytes(size_t bytes, size_t at) {
    return bytes - at < REEF_BLOCK_BYTES_MAX ? bytes - at : REEF_BLOCK_BYTES_MAX;
}
/** Room for one packed block; the caller's. */
REEF_MUST_CHECK reef_status reef_checkpoint_new_packed(uint8_t **out, reef_error *err);
/** Which of the tables of reef_memory_tables the part is; -1: none. */
int reef_checkpoint_table(const char *name);
/** Write a part that is no table, or a list. packed: see reef_checkpoint_new_packed. */
REEF_MUST_CHECK reef_status reef_checkpoint_put_part(reef_txn *txn,
                                                     const reef_key *prefix,
                                                     const reef_memory_part *part,
                                                     uint8_t *packed,
                                                     reef_error *err);
/** Read a block of such a part. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_block(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err);
/** What `m` has learned since its checkpoint. */
REEF_MUST_CHECK reef_status reef_checkpoint_put_tail(reef_txn *txn,
                                                     const reef_key *prefix,
                                                     const reef_generation_memory *m,
                                                     reef_error *err);
/** Is there such a record, damaged or not? */
bool reef_checkpoint_is_stored(reef_txn *txn, const reef_key *key);
bool reef_checkpoint_has_tables(reef_txn *txn, const reef_key *prefix);
bool reef_checkpoint_has_tail(reef_txn *txn, const reef_key *prefix);
/** Facts of these tables, by their first blocks; zeros where there are none. CORRUPT, NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_stats(reef_txn *txn,
                                                       const reef_key *prefix,
                                                       reef_memory_stats *out,
                                                       reef_error *err);
/** The slices of tables, as the header announces them. CORRUPT, NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_sizes(reef_txn *txn,
                                                       const reef_key *prefix,
                                                       reef_memory_slices *slices,
                                                       reef_error *err);
/** Nothing where there are none. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_tables(reef_txn *txn,
                                                        const reef_key *prefix,
                                                        reef_generation_memory *m,
                                                        reef_error *err);
/** Adds it to what `m` is to learn. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_tail(reef_txn *txn,
                                                      const reef_key *prefix,
                                                      reef_generation_memory *m,
                                                      reef_error *err);

// checkpoint_slices.c

/**
 * The tables of a memory, and its log. Sets slices_put.
 *
 * learns  it goes on to learn: once it is large, in turns
 */
REEF_MUST_CHECK reef_status reef_checkpoint_put_slices(
    reef_txn *txn, const reef_key *prefix, reef_generation_memory *m, bool learns, reef_error *err);
/** The list of slices of a memory with these parts (reef_memory_stored_parts). CORRUPT. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_slices(reef_txn *txn,
                                                        const reef_key *prefix,
                                                        const reef_memory_part *parts,
                                                        reef_memory_slices *slices,
                                                        reef_error *err);
/** A slice of `bytes` bytes, by the number of its block. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_slice(
    reef_txn *txn, uint64_t number, void *out, size_t bytes, reef_error *err);
/** The log that goes with `slices`; none where they are of one time. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_log(reef_txn *txn,
                                                     const reef_key *prefix,
                                                     reef_memory_slices *slices,
                                                     uint64_t learned,
                                                     reef_error *err);

// checkpoint_experts.c

/** One block of one PEER layer, with room for its moments. */
typedef struct reef_checkpoint_block {
    uint32_t records, layer, index;
    size_t first, rows, row_values;
    float *buffer; // (rows * (REEF_MOMENT_PLANES_MAX * row_values + 1)) floats
} reef_checkpoint_block;

/** All blocks of a layer, and which is next. */
typedef struct reef_checkpoint_blocks {
    uint32_t records, layer, index, block_rows;
    size_t expert_count, row_values;
    float *buffer;
} reef_checkpoint_blocks;

reef_checkpoint_blocks reef_checkpoint_blocks_of(const reef_config *config,
                                                 uint32_t records,
                                                 uint32_t layer,
                                                 size_t expert_count,
                                                 float *buffer);
/** False after the last one. */
bool reef_checkpoint_block_next(reef_checkpoint_blocks *all, reef_checkpoint_block *out);
reef_key reef_checkpoint_block_key(const reef_checkpoint_block *block, reef_db db);

/** Experts of all layers: dirty rows with their moments, flags, usage. */
REEF_MUST_CHECK reef_status reef_checkpoint_put_experts(reef_txn *txn,
                                                        const reef_config *config,
                                                        const reef_generation *generation,
                                                        uint64_t unix_ms,
                                                        float *buffer,
                                                        reef_error *err);
/** Experts of all layers. In steps if the generation does not change any more. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_experts(reef_generation *generation,
                                                         reef_txn *txn,
                                                         const reef_config *config,
                                                         uint32_t records,
                                                         bool training,
                                                         float *buffer,
                                                         reef_error *err);
/** Room for the moments of the largest tensor or of one block. */
REEF_MUST_CHECK reef_status reef_checkpoint_moments_buffer(float **out,
                                                           const reef_config *config,
                                                           const reef_generation *generation,
                                                           reef_error *err);

// zero_runs.c

/** The most that `bytes` bytes can become. */
size_t reef_zero_runs_bound(size_t bytes);

/** out  (reef_zero_runs_bound(bytes)) written. Returns how many. */
size_t reef_zero_runs_pack(uint8_t *out, const uint8_t *in, size_t bytes);

/** How many bytes `in` becomes; at most 128 times as many as it has. */
size_t reef_zero_runs_length(const uint8_t *in, size_t in_bytes);

/** out  (bytes) written. False unless `in` is what becomes exactly so many. */
REEF_MUST_CHECK bool reef_zero_runs_unpack(uint8_t *out,
                                           size_t bytes,
                                           const uint8_t *in,
                                           size_t in_bytes);

#endif
