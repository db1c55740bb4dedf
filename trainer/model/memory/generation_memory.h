// The context memory of a generation, and what it learned since its last checkpoint.
//
// The memory learns each trained batch of the stream once. Its tables change all over with every
// byte, so a commit does not write them. It writes the *tail*: the bytes learned since the last
// checkpoint of the tables, with what the net had said of them. To load an open generation is to
// read its checkpoint and to learn the tail again, which gives the same tables: they are a function
// of what was learned, in its order.
//
// Tables of a large memory are too much for one commit. Once it is large, a commit that finds the
// tail long writes some slices of the tables, all else, and a log of what was decided in learning
// (memory_slices.h). Slices that did not change since are shared by all states that have them.
#ifndef REEF_GENERATION_MEMORY_H
#define REEF_GENERATION_MEMORY_H

#include "memory_slices.h"
#include "reef_config.h"
#include "reef_context.h"
#include "reef_store.h"

typedef struct reef_generation_memory {
    reef_memory *memory; // owned; NULL: the generation has none, or has learned nothing yet
    uint64_t next;       // position in the stream behind the last byte that it learned
    // XXH3-128 of all that it learned, see reef_generation_memory_learn: what the root hash of an
    // open generation covers in place of the tables
    uint8_t chain[REEF_HASH_BYTES];
    // what it learned since the last checkpoint, as a chain of segments
    uint8_t *tail; // owned
    size_t tail_bytes, tail_capacity;
    uint64_t checkpoint_bytes; // learned when that checkpoint was made; 0: there is none
    uint64_t text_lent;        // up to here its text is lent by the pool
    bool checkpoint_put;       // the transaction under way holds one of the present state
    bool adopted;              // its tables came from elsewhere, and are in no checkpoint here
    bool rests;                // old slices are due: see reef_generation_memory_rest
    bool spares_text;          // blocks of text that are damaged are left out when it is read
    bool lacks_text;           // some were
    // owned: how its tables are stored, NULL: they are not; and after the present transaction
    reef_memory_slices *slices, *slices_put;
    uint8_t *unlearned; // owned: the tail as it was read, until it is learned
    size_t unlearned_bytes;
    bool chain_is_known; // before the tail was learned: then it leads to `known_chain`
    uint8_t known_chain[REEF_HASH_BYTES];
} reef_generation_memory;

void reef_generation_memory_release(reef_generation_memory *m); // accepts zeros

/** `to`, which has none, takes all of `from`. */
void reef_generation_memory_move(reef_generation_memory *to, reef_generation_memory *from);

/**
 * Learn a segment of the stream, and keep it in the tail.
 *
 * bytes_max  bound of a memory that is made here, with the first segment
 * begin      position of bytes[0] in the stream
 * net        (count) or NULL: what the net said of each byte
 * bits       (count) or NULL: written; the surprise of each byte
 *
 *   chain = XXH3-128(chain, header of the segment, bytes, predictions)
 *
 * Errors: NO_MEMORY; the memory is then only good for release.
 */
REEF_MUST_CHECK reef_status reef_generation_memory_learn(reef_generation_memory *m,
                                                         uint64_t bytes_max,
                                                         uint64_t begin,
                                                         const uint8_t *bytes,
                                                         size_t count,
                                                         const reef_net_prediction *net,
                                                         float *bits,
                                                         reef_error *err);

/**
 * Learn the batch at `bytes` (one more than a batch), which stands at `begin` in the stream. The
 * first of them is learned only where it has not been yet.
 *
 * predictions  (batch * context) what the net said of each target before it learned the batch, or
 *              NULL: nothing
 * bits         (batch * context) written: what each target surprised
 *
 * Errors: NO_MEMORY; the memory is then only good for release.
 */
REEF_MUST_CHECK reef_status reef_memory_learn_batch(const reef_config *config,
                                                    reef_generation_memory *memory,
                                                    const uint8_t *bytes,
                                                    uint64_t begin,
                                                    const reef_net_prediction *predictions,
                                                    float *bits,
                                                    reef_error *err);

/**
 * Should the tables be written, or some slices of them, since the tail is so long, or does not lead
 * to them?
 */
bool reef_generation_memory_is_due(const reef_generation_memory *m);

/**
 * It stops learning. The next commit writes some of its old slices, so that the next reader has
 * less to replay. Holds until it learns or that commit is made; after it, more may be due.
 */
void reef_generation_memory_rest(reef_generation_memory *m);
/** So much may be left to learn again of one that rests: a share of a round. */
uint64_t reef_generation_memory_rest_bytes(const reef_generation_memory *m);

/**
 * Is it to be stored in slices from its next checkpoint on: are its tables large, or of a small
 * bound a good part of it?
 */
bool reef_generation_memory_is_large(const reef_generation_memory *m);

/** So many bytes are learned while all slices are stored once. */
uint64_t reef_generation_memory_round(const reef_generation_memory *m);

/**
 * Bring slices that were read up to date, and learn the tail that was read with a checkpoint and
 * waits in `unlearned`, if one does. Up to some seconds, so not in a transaction that others wait
 * for.
 *
 * workers  that share in it, or NULL
 *
 * Errors: CORRUPT the log is not what it learned; it ends within a segment, or it is not what leads
 * to the chain; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_generation_memory_catch_up(reef_generation_memory *m,
                                                            uint64_t bytes_max,
                                                            struct reef_thread_pool *workers,
                                                            reef_error *err);

/** How many bytes a tail is about. Errors: CORRUPT it ends within a segment. */
REEF_MUST_CHECK reef_status reef_generation_memory_tail_learned(const uint8_t *tail,
                                                                size_t tail_bytes,
                                                                uint64_t *learned,
                                                                reef_error *err);

/** The tables were written: empty the tail. */
void reef_generation_memory_settle(reef_generation_memory *m);

/**
 * Look up how full a memory is, if it has learned much since it was `seen` last: counting walks
 * tables of up to 128 MB, some hundredths of a second for seconds of the stream.
 */
void reef_memory_refresh_stats(const reef_memory *memory, reef_memory_stats *seen);

// ---- as records ---------------------------------------------------------------------------------

#define REEF_MEMORY_POSITION_NAME "mark"
#define REEF_MEMORY_RECORDS_MAX 16

/** What is stored beside the tables. */
typedef struct reef_memory_position {
    uint64_t next;
    uint8_t chain[REEF_HASH_BYTES];
} reef_memory_position;

/** The position ("mark"), and the parts of the tables that have bytes. */
typedef struct reef_memory_records {
    reef_memory_position position; // `records` points to it: not to be copied
    size_t count;
    reef_memory_part records[REEF_MEMORY_RECORDS_MAX]; // in the order of their names; views
} reef_memory_records;

/** Of a generation that has a memory. Good until it learns, or ends. */
void reef_generation_memory_list(const reef_generation_memory *m, reef_memory_records *out);
/** The record of that name; NULL: there is none. */
const reef_memory_part *reef_memory_records_find(const reef_memory_records *records,
                                                 const char *name);

/**
 * A memory from its records, "mark" included, into one that has none. It counts as adopted.
 *
 * Errors: those of reef_memory_restore; `m` has none then.
 */
REEF_MUST_CHECK reef_status reef_generation_memory_restore(reef_generation_memory *m,
                                                           const reef_memory_reader *from,
                                                           reef_error *err);

/** `to`, which has none, becomes another one like `from`, which has one. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_generation_memory_copy(reef_generation_memory *to,
                                                        const reef_generation_memory *from,
                                                        reef_error *err);

// ---- visits -------------------------------------------------------------------------------------
//
// What the kind of an older generation learned when it came back.
//
// A generation's memory is sealed with it, so that every state that has it stays exact. When its
// kind of text comes back, a copy of that memory continues to learn. What it learns is kept with
// the generation that is open meanwhile, the *holder*, and sealed with that one:
//
//   generation 0   memory: 400 kB of English                                       sealed
//   generation 1   memory: German       visits of kind 0: 20 kB more of English    sealed
//   generation 2   memory: Python       visits of kind 0: 90 kB more; of kind 1: 5 kB
//
// As of generation 1 the memory of kind 0 is that of generation 0 and the visit that generation 1
// holds; now it is both visits more. A visit is stored as what was learned, and as tables once that
// is long, so that few bytes are learned again when it is read. It begins with the slices that the
// kind had, and writes those that change.
//
// A kind that was merged into another one has a last visit without either, in the generation that
// was open then: from there on it has no memory, and before it states are as they were.

typedef struct reef_visit {
    uint32_t kind;                  // the generation that began it
    uint64_t learned;               // bytes, of all its memory has learned
    uint64_t next;                  // position in the stream behind the last of them
    uint8_t chain[REEF_HASH_BYTES]; // of all of them: see reef_generation_memory
    reef_generation_memory memory;  // owned; without tables where it is not loaded
    bool merged;                    // the kind ends here: another one learns its text
} reef_visit;

/** What of them is stored in the record `kinds` of a holder. */
#define REEF_VISIT_BYTES 56

#endif
