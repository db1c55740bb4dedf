// Between the model in memory and the records of the store.
#ifndef REEF_CHECKPOINT_H
#define REEF_CHECKPOINT_H

#include "generation.h"
#include "reef_shard.h"

/**
 * Write what changed of an open generation: its dense part whole, expert blocks with dirty rows,
 * usage with what it grew by as a delta of `unix_ms`.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_open(reef_txn *txn,
                                                 const reef_config *config,
                                                 reef_generation *generation,
                                                 uint64_t unix_ms,
                                                 reef_error *err);
/**
 * Write a generation that was sealed in memory and seal it in the store: it replaces what an
 * earlier commit holds of it as an open one.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_sealed(reef_txn *txn,
                                                   const reef_config *config,
                                                   reef_generation *generation,
                                                   uint64_t unix_ms,
                                                   reef_error *err);

/** After the commit that holds it succeeded: nothing is dirty any more, a sealed one is stored. */
void reef_checkpoint_clean(reef_generation *generation);

/** Which generation to read, from where, and what of it. */
typedef struct reef_checkpoint_source {
    uint32_t number;  // of the generation
    uint32_t records; // the number that its records have: its own, or that of a snapshot's copy
    bool training;    // read moments, flags and usage too, if it is open
    bool in_place; // leave the rows in the store, for reef_checkpoint_locate, if it is sealed and
                   // has its records under its own number
    bool memory_later;          // leave out its context memory, for reef_checkpoint_read_memory
    reef_row_division division; // whose rows of experts; else all, which must be there
} reef_checkpoint_source;

/**
 * Read a generation.
 *
 * workers  for training they make the memory ready together; may be NULL
 *
 * A renewed transaction may take several steps, as long as what is read is sealed or a snapshot's
 * copy. Errors: BUSY if it is removed meanwhile, as by a restore; CORRUPT names the record;
 * NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_load(reef_generation **out,
                                                 reef_txn *txn,
                                                 const reef_config *config,
                                                 const reef_checkpoint_source *source,
                                                 reef_thread_pool *workers,
                                                 reef_error *err);

/**
 * Make a sealed generation that was loaded from another pool ready to be written to this one: with
 * the flags of its experts, all of it new here.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_load_tables(reef_generation *generation,
                                                        reef_txn *txn,
                                                        reef_error *err);

/**
 * Point the rows of a stored generation, which has none in memory, to where they lie in the map.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_locate(reef_generation *generation,
                                                   reef_txn *txn,
                                                   const reef_config *config,
                                                   reef_error *err);

/**
 * Read the context memory of a generation into one that has none: the tables, and the tail to
 * `unlearned`. Nothing where none is stored. CORRUPT names the record.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_read_memory(reef_txn *txn,
                                                        uint32_t records,
                                                        reef_generation_memory *memory,
                                                        reef_error *err);
/** The chain of a sealed generation's memory, without its tables. NOT_FOUND: it has no memory. */
REEF_MUST_CHECK reef_status reef_checkpoint_read_chain(reef_txn *txn,
                                                       uint32_t records,
                                                       uint8_t chain[REEF_HASH_BYTES],
                                                       reef_error *err);
/** A block of a memory's tables, which is packed to `bytes` bytes (CORRUPT: to others). */
REEF_MUST_CHECK reef_status reef_checkpoint_read_packed(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err);

/**
 * Write the visits that the generation holds, and the list of them. Of one that is loaded the
 * tables where they are due (then its memory's `checkpoint_put` is set) or came from elsewhere,
 * else its tail. Older generations are in the transaction already.
 */
REEF_MUST_CHECK reef_status reef_checkpoint_put_visits(
    reef_txn *txn, uint32_t holder, reef_visit *const *visits, size_t count, reef_error *err);

#endif
