// Context memory: what follows what, learned from each byte when it is seen.
//
// A memory predicts the next byte bit by bit. Some twenty contexts (the last one to six bytes, the
// word, the field of a line, ...) each remember which bytes followed them; matches continue the
// longest earlier occurrence; a logistic mixer weighs all of these. It learns a byte in one pass,
// in whole numbers alone: the same bits on every CPU and with every kernel.
//
// A session reads a text over a memory that does not change. It adapts as it reads, in a
// copy-on-write view, or only remembers the text for its matches, or not even that; and forgets all
// of it at its end. So what it says is a function of the memory and the text.
//
// A net may say of each byte what it expects. That is one more input, present or absent byte by
// byte, of a second layer with mixers of its own; what the memory learns does not depend on it.
//
// The method is that of the PAQ compressors (Mahoney 2005, "Adaptive weighing of context models for
// lossless data compression"); every probability can drive an arithmetic coder.
#ifndef REEF_CONTEXT_H
#define REEF_CONTEXT_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_MEMORY_BYTES_DEFAULT (1ull << 30)
#define REEF_MEMORY_BYTES_MIN (4ull << 20)
#define REEF_MEMORY_BYTES_MAX (64ull << 30)
#define REEF_MEMORY_TEXT_MIN (2 * REEF_TEXT_BLOCK_BYTES)
#define REEF_MEMORY_TEXT_MAX (4ull << 30)
#define REEF_TEXT_BLOCK_BYTES (1ull << 17)
#define REEF_TEXT_NAME_BYTES 16 // of a block of text: the XXH3-128 of its bytes

typedef struct reef_memory reef_memory;
typedef struct reef_memory_session reef_memory_session;

typedef struct reef_memory_options {
    /**
     * What its tables may take, in bytes; 0: REEF_MEMORY_BYTES_DEFAULT. They begin small and double
     * as it learns. At the bound the least used contexts make room for new ones. Some megabytes for
     * the mixers come beside it, and what of the text is not lent (reef_memory_text_lend).
     */
    uint64_t bytes_max;
    /**
     * Bytes of the text that are kept, where matches are found: whole blocks, from
     * REEF_MEMORY_TEXT_MIN to REEF_MEMORY_TEXT_MAX. 0: four times the bound, as far as that goes.
     */
    uint64_t text_max;
} reef_memory_options;

/** Errors: INVALID a bound that no memory has; NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_new(reef_memory **out,
                                                     const reef_memory_options *options,
                                                     reef_error *err);
/**
 * A memory that knows no text, with the mixer of another one: its trust in what contexts say, and
 * nothing that they said. Errors: NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_new_with_mixer(reef_memory **out,
                                                                const reef_memory *of,
                                                                reef_error *err);
REEF_API void reef_memory_free(reef_memory *memory); // accepts NULL

// ---- what a net says ----------------------------------------------------------------------------

/** What a net said of one byte before it came. */
typedef struct reef_net_prediction {
    /**
     * Log odds of a one, of each bit along the path of the byte that came, the highest first, in
     * units of 1/256, from -3071 to 3071; others are clipped.
     */
    int16_t odds[8];
    /** Tokens that it had seen in its window; 0: it says nothing of this byte. */
    uint16_t tokens;
} reef_net_prediction;

/**
 * The prediction of a byte that came.
 *
 * probabilities  (256) of each byte, 0 and more, their sum about 1; where those of both halves of a
 *                node are 0 or not finite, its odds are 0
 *
 * The same bits on every machine. Threads: any.
 */
REEF_API void reef_net_predict_byte(const float *probabilities,
                                    uint8_t byte,
                                    uint16_t tokens,
                                    reef_net_prediction *out);

// ---- learning -----------------------------------------------------------------------------------

/**
 * Learn `count` bytes, the next of the memory's stream. How the stream is cut into calls changes
 * nothing.
 *
 * net   (count) or NULL: what a net says of each byte. With the first byte that it speaks of the
 *       memory gets weights for such bytes, less than a megabyte beside its bound
 * bits  (count) or NULL: written; the surprise of each byte before it was learned
 *
 * Errors: NO_MEMORY; the bytes before the one that failed are learned.
 * Threads: one at a time on a memory, and no session of it meanwhile.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_learn(reef_memory *memory,
                                                       const uint8_t *bytes,
                                                       size_t count,
                                                       const reef_net_prediction *net,
                                                       float *bits,
                                                       reef_error *err);

/** How many bytes it has learned. */
REEF_API uint64_t reef_memory_learned_bytes(const reef_memory *memory);

/** What its tables may take. */
REEF_API uint64_t reef_memory_bytes_max(const reef_memory *memory);

/** Bytes of memory that it takes now: tables, mixers, and what of its text is not lent. */
REEF_API uint64_t reef_memory_bytes(const reef_memory *memory);

/**
 * Copy the newest `count` bytes of the stream that it keeps, or all of them where they are fewer,
 * the oldest first. Returns how many; `out` NULL only asks how many it keeps.
 */
REEF_API size_t reef_memory_text(const reef_memory *memory, uint8_t *out, size_t count);

/**
 * A full block of the text that it keeps, from 0, the oldest: REEF_TEXT_BLOCK_BYTES bytes; NULL:
 * there are not so many. What comes behind them is in the part "text".
 *
 * name  (REEF_TEXT_NAME_BYTES) lent
 */
REEF_API const uint8_t *reef_memory_text_block(const reef_memory *memory,
                                               size_t block,
                                               const uint8_t **name);
/** The same bytes are lent as long as the memory lives: its own copy of them goes. */
REEF_API void reef_memory_text_lend(reef_memory *memory, size_t block, const uint8_t *bytes);
REEF_API bool reef_memory_text_is_lent(const reef_memory *memory, size_t block);
/** Copy what is lent: the memory outlives who lent it. Errors: NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_text_copy(reef_memory *memory, reef_error *err);

#define REEF_MEMORY_INPUTS_MAX 64 // more than there are inputs

/** The inputs of the mixer, by name: "order 1", "word", "match", .... */
REEF_API size_t reef_memory_input_count(void);
REEF_API const char *reef_memory_input_name(size_t input);

typedef struct reef_memory_stats {
    uint64_t learned_bytes;     // of the stream
    uint64_t bytes;             // of memory now, but for its text
    uint64_t bytes_max;         // the bound of its tables
    uint64_t cells, cells_used; // one a context
    uint64_t trees, trees_used; // of bit histories, for contexts with three bytes and more
    uint64_t text_bytes;        // of the stream that matches can reach; lent, or beside `bytes`
} reef_memory_stats;

/** Walks the tables: some milliseconds for each 64 MiB. */
REEF_API void reef_memory_read_stats(const reef_memory *memory, reef_memory_stats *out);

/**
 * What each input was worth in what the memory has learned since it was made or restored; see
 * reef_memory_session_inputs.
 */
REEF_API void reef_memory_inputs(const reef_memory *memory, double *shares, double *hits);

/**
 * Lines of its tables, of 64 bytes, that one of these bytes read: cells of its contexts, trees
 * where the byte was not trusted, and the indexes of matches. 0 before the first byte.
 */
REEF_API double reef_memory_lines_a_byte(const reef_memory *memory);

// ---- is it the same kind of text? ---------------------------------------------------------------

#define REEF_FAMILIARITY_BYTES_MAX 4096
#define REEF_FAMILIARITY_PER_BIT 256.0 // units of familiarity in a bit

/**
 * How much of a text the memory has met, in units of 1/256 bit: the sum, over contexts of 3, 4, 5
 * and 8 bytes, of the base-2 logarithm of the part of the text's contexts that it knows, plus 1/50.
 * An order whose contexts are all unknown gives -5.6 bits. A context that is repeated counts once.
 *
 * memory  NULL: one that has learned nothing
 * text    (count); of more than REEF_FAMILIARITY_BYTES_MAX bytes only the first count
 *
 * Some hundred nanoseconds a byte. Threads: any, while nothing is learned.
 */
REEF_API int32_t reef_memory_familiarity(const reef_memory *memory,
                                         const uint8_t *text,
                                         size_t count);

// ---- to store and restore -----------------------------------------------------------------------

// A memory is a few arrays of bytes, in the order of docs/FORMAT.md, on every machine the same.
// Restored from them it learns on to the same bits as if it had never been stored.

#define REEF_TEXT_BLOCKS_NAME "text blocks" // the part with the names of full blocks

typedef struct reef_memory_part {
    const char *name; // "header" comes first; of static storage
    const void *data; // NULL where there are no bytes
    size_t bytes;     // may be 0
} reef_memory_part;

REEF_API size_t reef_memory_part_count(void);

/** parts  (reef_memory_part_count()) written; views, good until the memory learns or ends */
REEF_API void reef_memory_parts(reef_memory *memory, reef_memory_part *parts);

/**
 * Names and sizes of all parts that a stored header announces, as reef_memory_restore reads them.
 *
 * header  all of that part
 * parts   (reef_memory_part_count()) written; without data
 *
 * Errors: CORRUPT, VERSION as for reef_memory_restore.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_stored_parts(const void *header,
                                                              size_t header_bytes,
                                                              reef_memory_part *parts,
                                                              reef_error *err);

/**
 * Read the part `name`, which has `bytes` bytes, into `into`. Fails with what the caller of
 * reef_memory_restore is to get, such as CORRUPT where the part has another size.
 */
typedef reef_status (*reef_memory_fetch)(
    void *context, const char *name, void *into, size_t bytes, reef_error *err);

/**
 * The full block of text of that name, the block-th that is kept: REEF_TEXT_BLOCK_BYTES at *out.
 * They are copied unless *lent is set: then they stay as long as the memory. *out NULL: it is lost,
 * and zeros take its place, which no match agrees with; so the block gets another name.
 */
typedef reef_status (*reef_memory_fetch_text)(void *context,
                                              size_t block,
                                              const uint8_t name[REEF_TEXT_NAME_BYTES],
                                              const uint8_t **out,
                                              bool *lent,
                                              reef_error *err);

/** Where a memory is restored from. */
typedef struct reef_memory_reader {
    reef_memory_fetch fetch;
    reef_memory_fetch_text fetch_text;
    void *context;
} reef_memory_reader;

/**
 * A memory from its parts. They are fetched once each, where they have bytes, the header first,
 * from this thread; the text comes last. Nothing in them is trusted: what they hold can be wrong,
 * but does no harm.
 *
 * Errors: CORRUPT a part that no memory has, by its name; VERSION the header is of another version;
 * NO_MEMORY; what the reader returns.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_restore(reef_memory **out,
                                                         const reef_memory_reader *from,
                                                         reef_error *err);

/**
 * Facts of a stored memory, without restoring it. Of the parts "cells" and "trees" whole lines of
 * 64 bytes are enough: what is in use is then an estimate.
 *
 * header  all of that part
 *
 * Errors: CORRUPT, VERSION as for reef_memory_restore.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_stored_stats(const void *header,
                                                              size_t header_bytes,
                                                              const void *cells,
                                                              size_t cells_bytes,
                                                              const void *trees,
                                                              size_t trees_bytes,
                                                              reef_memory_stats *out,
                                                              reef_error *err);

// ---- sessions -----------------------------------------------------------------------------------

/** What a session takes from the text that it reads, to predict the rest of it. */
typedef enum reef_memory_reading {
    REEF_READ_ADAPTING, // all that a memory would: it learns the text
    REEF_READ_FROZEN,   // no count, weight or table of contexts changes, but matches find the text
    REEF_READ_ALONE,    // nothing: matches find only what the memory has learned
} reef_memory_reading;

/**
 * Begin to read a text. The memory must neither learn nor end before the session. Errors:
 * NO_MEMORY. Threads: any number of sessions of one memory at once, each used by one.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_open(reef_memory_session **out,
                                                              const reef_memory *memory,
                                                              reef_memory_reading reading,
                                                              reef_error *err);
REEF_API void reef_memory_session_close(reef_memory_session *session); // accepts NULL
/** As just opened, in the memory that it has. */
REEF_API void reef_memory_session_reset(reef_memory_session *session);

/**
 * Choose whether the session takes from the bytes that it reads next what its reading allows, or
 * nothing. It does after reef_memory_session_open and reef_memory_session_reset. Call it between
 * two bytes.
 */
REEF_API void reef_memory_session_set_learning(reef_memory_session *session, bool learns);

/**
 * Read `count` bytes more. Call it between two bytes.
 *
 * net   (count) or NULL: what a net says of each byte
 * bits  (count) or NULL: written; the surprise of each byte
 *
 * Errors: NO_MEMORY: the bytes before are read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_read(reef_memory_session *session,
                                                              const uint8_t *bytes,
                                                              size_t count,
                                                              const reef_net_prediction *net,
                                                              float *bits,
                                                              reef_error *err);

/**
 * `count` bytes pass by that another memory answers for: what follows knows them (words, lines,
 * matches with what was learned), but nothing is predicted and nothing learned from them. Some
 * nanoseconds a byte. Errors: INVALID in the middle of a byte; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_skip(reef_memory_session *session,
                                                              const uint8_t *bytes,
                                                              size_t count,
                                                              reef_error *err);

/**
 * Probabilities of the next byte, from the bit predictions that reading it would make. Changes
 * nothing. Takes as long as reading some twenty bytes.
 *
 * net_probabilities  (256) what a net says, as for reef_net_predict_byte, or NULL
 * tokens             that it has seen; 0: it says nothing
 * out                (256) written; each above 0, their sum 1
 *
 * Errors: INVALID within a byte, from its first predict on; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_memory_session_distribution(reef_memory_session *session,
                                 const float *net_probabilities,
                                 uint16_t tokens,
                                 double *out,
                                 reef_error *err);

/**
 * What each input was worth in all that the session has read since it was opened or reset.
 *
 * shares  (input count) written; parts of the log odds before the last mixer, sum 1
 * hits    (input count) written; part of the bytes in which the input had something to say
 */
REEF_API void reef_memory_session_inputs(const reef_memory_session *session,
                                         double *shares,
                                         double *hits);

// ---- bit by bit, for coders ---------------------------------------------------------------------

/**
 * What a net says of the next byte, for the predicts of its bits; without this call nothing.
 *
 * probabilities  (256) as for reef_net_predict_byte; read before this returns
 * tokens         that it has seen; 0: it says nothing
 *
 * Errors: INVALID within a byte, from its first predict on.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_net(reef_memory_session *session,
                                                             const float *probabilities,
                                                             uint16_t tokens,
                                                             reef_error *err);

/**
 * Probability that the next bit (the highest of a byte first) is 1, in units of 1/65536, from 1 to
 * 65535.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_session_predict(reef_memory_session *session,
                                                                 uint32_t *one,
                                                                 reef_error *err);
/** The bit that came; after a predict. */
REEF_API void reef_memory_session_update(reef_memory_session *session, int bit);

#endif
