// The memories of kinds while a pool is trained.
//
//   kind          a generation begins one, and its number is the kind's
//   open kind     what the open generation's net learns: the kind it began, or an older one
//   current kind  what the last text was of, by recognition.h: the open kind or one that came back
//   head          an older kind's memory, a copy of its generation's that learns on
//                 (generation_memory.h)
//
// Heads are read when they are needed. They rest in memory while together they take at most half of
// what the process may take; then the one used longest ago is released, once the pool has what it
// learned. The last two always stay. So what a kind knows depends on the order of bytes alone, and
// not on which heads were in memory.
#ifndef REEF_KIND_MEMORIES_H
#define REEF_KIND_MEMORIES_H

#include "trainer_internal.h"

#include <jansson.h>

/** Do kinds of this pool learn on when they come back? Not without memories. */
bool reef_kinds_may_return(const reef_trainer *trainer);

// ---- any kind -----------------------------------------------------------------------------------

/**
 * The memory of a kind as it is now, that of the open generation too; read from the pool if needed.
 * Valid until two other kinds were asked for, or one learns. NULL: the kind has learned nothing.
 */
REEF_MUST_CHECK reef_status reef_kind_load_memory(reef_trainer *trainer,
                                                  uint32_t kind,
                                                  const reef_memory **out,
                                                  reef_error *err);

/** Where in the stream the kind learned last. */
uint64_t reef_kind_last_learned_at(const reef_trainer *trainer, uint32_t kind);

/** Was it merged into another one? into  written where it was; may be NULL */
bool reef_kind_is_merged(const reef_trainer *trainer, uint32_t kind, uint32_t *into);

// ---- the open kind ------------------------------------------------------------------------------

uint32_t reef_open_kind(const reef_trainer *trainer);
/** Is it an older one? Then its head learns in place of a memory of the open generation. */
bool reef_open_kind_is_older(const reef_trainer *trainer);
/** Its memory where that is loaded. NULL: it is not, or has learned nothing. */
const reef_memory *reef_open_kind_memory(const reef_trainer *trainer);
/**
 * For status: count again how full it is, if it has learned enough since the last count. Changes
 * nothing that is learned.
 */
void reef_open_kind_refresh_stats(reef_trainer *trainer);
/**
 * Its memory, to learn what the net learns; read from the pool if needed. Good until another kind
 * is asked for. Errors: NO_MEMORY, IO, CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_open_kind_load(reef_trainer *trainer,
                                                reef_generation_memory **out,
                                                reef_error *err);
/** That memory has learned a batch. */
void reef_open_kind_note_learned(reef_trainer *trainer);

// ---- kinds that came back -----------------------------------------------------------------------

/**
 * The head of a kind learns the first pending batch, which was recognised as of that kind.
 *
 * bits  written; the mean surprise, which is counted by source
 *
 * Errors: NO_MEMORY, IO, CORRUPT: nothing was learned, or the trainer is broken.
 */
REEF_MUST_CHECK reef_status reef_kind_learn_pending_batch(reef_trainer *trainer,
                                                          uint32_t kind,
                                                          double *bits,
                                                          reef_error *err);

/**
 * A memory learned the batch that begins there: what each target surprised (batch * context) counts
 * for its source. Returns the mean, which is `last_bits`.
 */
double reef_memory_count_losses(reef_trainer *trainer, uint64_t begin, const float *bits);

/**
 * The head of a kind learns a text that is not of the stream. Not that of the open generation.
 *
 * Errors: those of reef_kind_learn_pending_batch.
 */
REEF_MUST_CHECK reef_status reef_kind_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err);

/** Bytes that it has learned in all. 0: it has not come back. */
uint64_t reef_kind_bytes_learned(const reef_trainer *trainer, uint32_t kind);
/** Bytes that it learned when it came back; its net has learned none of the last of them. */
uint64_t reef_kind_bytes_without_net(const reef_trainer *trainer, uint32_t kind);
/** From here on its net learns with it. */
void reef_kind_let_net_follow(reef_trainer *trainer, uint32_t kind);

/**
 * For status: its memory where that is loaded, or NULL.
 * seen  written; what was last seen of it, with what it has learned by now; zeros: it is not known
 */
const reef_memory *reef_kind_view_loaded(const reef_trainer *trainer,
                                         uint32_t kind,
                                         reef_memory_stats *seen);
/**
 * For status: see what the pool has of the current kind and that of the open generation, after it
 * was opened.
 */
void reef_kind_read_facts(reef_trainer *trainer, reef_txn *txn);

/** A kind was merged: it has no memory from here on, `into` learns its text. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kind_mark_merged(reef_trainer *trainer,
                                                  uint32_t kind,
                                                  uint32_t into,
                                                  reef_error *err);

/** A damaged kind goes on with `memory`, which is taken. Not that of the open generation. */
REEF_MUST_CHECK reef_status reef_kind_replace_memory(reef_trainer *trainer,
                                                     uint32_t kind,
                                                     reef_generation_memory *memory,
                                                     reef_error *err);
/** Is `chain` that of the last commit, where the kind came back? */
bool reef_kind_is_committed_as(const reef_trainer *trainer,
                               uint32_t kind,
                               const uint8_t chain[REEF_HASH_BYTES]);

// ---- boundaries and commits ---------------------------------------------------------------------

/** A boundary: the visits that the open generation holds are sealed with it. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kinds_seal_visits(reef_trainer *trainer,
                                                   reef_generation *sealed,
                                                   reef_error *err);

/**
 * The next commit writes all that the open generation holds, and not only what is new: for one that
 * clears its records. Their memories are read for that. Errors: NO_MEMORY, IO, CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_kinds_write_all_next(reef_trainer *trainer, reef_error *err);

/** For reef_trainer_rest. Is a commit worth it? */
bool reef_kinds_rest(reef_trainer *trainer);

/** Write what the open generation holds, into the transaction of a commit. */
REEF_MUST_CHECK reef_status reef_kinds_put_visits(reef_trainer *trainer,
                                                  reef_txn *txn,
                                                  reef_error *err);
/**
 * That commit is made: copies of memories that it sealed have the slices that these were stored in.
 * Before reef_generations_committed, which gives the sealed ones up.
 */
void reef_kinds_take_slices(reef_trainer *trainer);
/** And all visits are stored. */
void reef_kinds_note_commit(reef_trainer *trainer);

// ---- the state: kind_state.c --------------------------------------------------------------------

/** Members "kinds" and "merged_kinds" of the trainer's state. Left out where there are none. */
void reef_kinds_set_state(const reef_trainer *trainer, json_t **state);
REEF_MUST_CHECK reef_status reef_kinds_load_state(reef_trainer *trainer,
                                                  reef_txn *txn,
                                                  const json_t *state,
                                                  reef_error *err);
void reef_kinds_release(reef_trainer *trainer);

// ---- damaged_kinds.c ----------------------------------------------------------------------------

/**
 * May the pool be trained on? Nothing is to learn what goes on from a damaged kind. Looked for
 * where training reads all kinds soon, which is where contexts decide; elsewhere a kind is read
 * when it comes back, and fails then. Errors: CORRUPT names the kind.
 */
REEF_MUST_CHECK reef_status reef_kinds_check(const reef_trainer *trainer,
                                             reef_txn *txn,
                                             reef_error *err);

// ---- heads, for this folder ---------------------------------------------------------------------

/** NULL: it has none. */
reef_kind_head *reef_kind_head_find(const reef_trainer *trainer, uint32_t kind);
/** For a kind that has none. Other heads may move. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kind_head_add(reef_trainer *trainer,
                                               uint32_t kind,
                                               reef_kind_head **out,
                                               reef_error *err);
/** False: it was only read to compare. One that began anew may have learned nothing. */
static inline bool reef_kind_head_came_back(const reef_kind_head *head) {
    return head->visit.next > 0;
}

#endif
