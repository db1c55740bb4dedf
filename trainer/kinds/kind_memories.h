// Kinds that come back: their memories continue to learn (memory/visit.h).
//
// A batch that is recognised as an older generation's kind is learned by a copy of that
// generation's memory, the kind's *head*. Heads are read when they are needed, and released while
// other kinds learn, once the pool has what they learned. So what a kind knows depends on the order
// of bytes alone, and not on which heads were in memory.
#ifndef REEF_KIND_MEMORIES_H
#define REEF_KIND_MEMORIES_H

#include "trainer_internal.h"

#include <jansson.h>

/** Do kinds of this pool continue to learn? Not without memories, or in pools of older formats. */
bool reef_kinds_learn(const reef_trainer *trainer);

/** The kind that the open generation's net learns: the one it began, or one that it continues. */
uint32_t reef_kinds_open_kind(const reef_trainer *trainer);
/** Does it continue one? Then that kind's head learns in place of a memory of its own. */
bool reef_kinds_open_continues(const reef_trainer *trainer);
/** The memory of that kind, where it is loaded. NULL: it is not, or has learned nothing. */
const reef_memory *reef_kinds_open_memory(const reef_trainer *trainer);
/**
 * The memory that learns what the open generation's net learns, read from the pool if it must be.
 * Good until another kind is asked for. Errors: NO_MEMORY, IO, CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_kinds_open_learner(reef_trainer *trainer,
                                                    reef_generation_memory **out,
                                                    reef_error *err);
/** That memory has learned a batch. */
void reef_kinds_open_learned(reef_trainer *trainer);

/** Bytes that a kind learned when it came back; its net has learned none of the last of them. */
uint64_t reef_kinds_without_net(const reef_trainer *trainer, uint32_t kind);
/** Bytes that it has learned in all. 0: it has not come back. */
uint64_t reef_kinds_learned(const reef_trainer *trainer, uint32_t kind);
/** From here on its net learns with it. */
void reef_kinds_follow(reef_trainer *trainer, uint32_t kind);

/**
 * The head of a kind learns the first pending batch, which was recognised as of generation `kind`.
 *
 * bits  written; the mean surprise, which is counted by source
 *
 * Errors: NO_MEMORY, IO, CORRUPT: nothing was learned, or the trainer is broken.
 */
REEF_MUST_CHECK reef_status reef_kinds_learn_batch(reef_trainer *trainer,
                                                   uint32_t kind,
                                                   double *bits,
                                                   reef_error *err);

/**
 * The head of a kind learns a text that is not of the stream. Not that of the open generation.
 *
 * Errors: those of reef_kinds_learn_batch.
 */
REEF_MUST_CHECK reef_status reef_kinds_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err);

/** A kind was merged: it has no memory from here on, `into` learns its text. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kinds_mark_merged(reef_trainer *trainer,
                                                   uint32_t kind,
                                                   uint32_t into,
                                                   reef_error *err);
/** Was it merged into another one? into  written where it was; may be NULL */
bool reef_kinds_is_merged(const reef_trainer *trainer, uint32_t kind, uint32_t *into);

/**
 * The memory of a kind as it is now, that of the open generation too; read from the pool if needed.
 * Valid until two other kinds were asked for, or one learns. NULL: the kind has learned nothing.
 */
REEF_MUST_CHECK reef_status reef_kinds_memory(reef_trainer *trainer,
                                              uint32_t kind,
                                              const reef_memory **out,
                                              reef_error *err);
/**
 * Of a kind that came back, for status: its memory where that is loaded, or NULL.
 * seen  written; what was last seen of it, with what it has learned by now; zeros: it is not known
 */
const reef_memory *reef_kinds_seen(const reef_trainer *trainer,
                                   uint32_t kind,
                                   reef_memory_stats *seen);
/** See what the pool has of the memory of the kind that is being learned: after it was opened. */
void reef_kinds_look_up(reef_trainer *trainer, reef_txn *txn);

/** Where in the stream the kind learned last. */
uint64_t reef_kinds_learned_at(const reef_trainer *trainer, uint32_t kind);

/** A damaged kind goes on with `memory`, which is taken. Not that of the open generation. */
REEF_MUST_CHECK reef_status reef_kinds_replace(reef_trainer *trainer,
                                               uint32_t kind,
                                               reef_generation_memory *memory,
                                               reef_error *err);
/** Is `chain` that of the last commit, where the kind came back? */
bool reef_kinds_is_known_as(const reef_trainer *trainer,
                            uint32_t kind,
                            const uint8_t chain[REEF_HASH_BYTES]);

/** A boundary: the visits that the open generation holds are sealed with it. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kinds_seal(reef_trainer *trainer,
                                            reef_generation *sealed,
                                            reef_error *err);

/**
 * The next commit writes all that the open generation holds, and not only what is new: for one that
 * clears its records. Their memories are read for that. Errors: NO_MEMORY, IO, CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_kinds_write_anew(reef_trainer *trainer, reef_error *err);

/** Write what the open generation holds, into the transaction of a commit. */
REEF_MUST_CHECK reef_status reef_kinds_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
void reef_kinds_committed(reef_trainer *trainer);

/** A copy of a kind's memory as it is now. It counts as adopted. Nothing where there is none. */
REEF_MUST_CHECK reef_status reef_kinds_copy(reef_generation_memory *out,
                                            const reef_trainer *trainer,
                                            const reef_generation *sealed,
                                            reef_error *err);

/** The member "kinds" of the trainer's state: all heads. Left out where there are none. */
void reef_kinds_set_state(const reef_trainer *trainer, json_t **state);
REEF_MUST_CHECK reef_status reef_kinds_load(reef_trainer *trainer,
                                            reef_txn *txn,
                                            const json_t *state,
                                            reef_error *err);
void reef_kinds_release(reef_trainer *trainer);

#endif
