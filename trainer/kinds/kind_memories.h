// Kinds that come back: their memories go on learning (memory/visit.h).
//
// A batch that is recognised as an older generation's kind is learned by a copy of that
// generation's memory, the kind's *head*. Heads are read when they are needed and given up again
// while others learn; what they learned stands in the pool by then. So what a kind knows depends on
// the order of bytes alone, and not on which heads were in memory.
#ifndef REEF_KIND_MEMORIES_H
#define REEF_KIND_MEMORIES_H

#include "trainer_internal.h"

#include <jansson.h>

/** Do kinds of this pool go on learning? Not without memories, or in pools of older formats. */
bool reef_kinds_learn(const reef_trainer *trainer);

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

/** A kind has no memory from here on: `into` goes on in its place. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kinds_mark_merged(reef_trainer *trainer,
                                                   uint32_t kind,
                                                   uint32_t into,
                                                   reef_error *err);
/** Was it merged into another one? into  written where it was; may be NULL */
bool reef_kinds_is_merged(const reef_trainer *trainer, uint32_t kind, uint32_t *into);

/**
 * The memory of a kind as it is now, read if it must be; the open generation's own is one as well.
 * Good until two more of others were asked for, or one learns. NULL: it has learned nothing.
 */
REEF_MUST_CHECK reef_status reef_kinds_memory(reef_trainer *trainer,
                                              uint32_t kind,
                                              const reef_memory **out,
                                              reef_error *err);
/** Where in the stream the kind learned last. */
uint64_t reef_kinds_learned_at(const reef_trainer *trainer, uint32_t kind);

/** A boundary: what the open generation held is sealed with `sealed`. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kinds_seal(reef_trainer *trainer,
                                            reef_generation *sealed,
                                            reef_error *err);

/** Write what the open generation holds, into the transaction of a commit. */
REEF_MUST_CHECK reef_status reef_kinds_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
void reef_kinds_committed(reef_trainer *trainer);

/** A copy of a kind's memory as it is now. It counts as adopted. Nothing where there is none. */
REEF_MUST_CHECK reef_status reef_kinds_copy(reef_generation_memory *out,
                                            const reef_trainer *trainer,
                                            const reef_generation *sealed,
                                            reef_error *err);

/**
 * Generations first .. last give way to `fresh`, which holds from then on what they held of kinds
 * before them.
 */
REEF_MUST_CHECK reef_status reef_kinds_consolidate(
    reef_trainer *trainer, uint32_t first, uint32_t last, reef_generation *fresh, reef_error *err);
/** These kinds end with the commit to come, or after all do not. */
void reef_kinds_set_consolidating(reef_trainer *trainer,
                                  uint32_t first,
                                  uint32_t last,
                                  bool consolidating);
/** That commit succeeded. */
void reef_kinds_drop_consolidated(reef_trainer *trainer);

/** The member "kinds" of the trainer's state: all heads. Left out where there are none. */
void reef_kinds_set_state(const reef_trainer *trainer, json_t **state);
REEF_MUST_CHECK reef_status reef_kinds_load(reef_trainer *trainer,
                                            reef_txn *txn,
                                            const json_t *state,
                                            reef_error *err);
void reef_kinds_release(reef_trainer *trainer);

#endif
