// The inside of a reef_model, shared by the files that ask it something:
//
//   open.c          the copy: how it is read from a pool, and taken over by a later one
//   read_state.c    the generations of a state, and their memories
//   evaluate.c      one pass over a piece of a text; loss and logits
//   recall.c        what context memories add to it
//   line_score.c    how unusual a line is, by the text that context memories keep
//   generate.c      a text continued
//   layer_model.c   the same copy of a layer by itself
#ifndef REEF_MODEL_INTERNAL_H
#define REEF_MODEL_INTERNAL_H

#include "activations.h"
#include "layer_internal.h"
#include "recall.h"
#include "reef_model.h"
#include "residency.h"

struct reef_as_of;

struct reef_model {
    // While loading: of an older copy, whose sealed generations are taken over or shared; or NULL.
    reef_network *known;
    bool shares;
    // (generations) which ones an older copy owns, until this one replaces it; NULL: none
    bool *shared;
    // Learn all tails while they are read: one did not lead to where it must, before.
    bool careful;
    reef_lost_kind *lost; // owned; (lost_count)
    size_t lost_count;
    reef_commit commit; // that it was read at
    reef_layer *layer;  // of a layer by itself alone
    reef_network network;
    reef_activations acts;
    reef_thread_pool *workers;
    reef_residency residency;
    uint8_t *tokens, *targets; // (windows * T)
    size_t stride;             // windows * T
    reef_recall recall;
    reef_line_scorer *scorer; // NULL: not asked for yet
    bool scorer_is_lent;      // by the model that this one is a twin of; else owned
};

// open.c

/** Add to reef_model_lost_kinds. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_model_note_lost(reef_model *model,
                                                 const reef_lost_kind *lost,
                                                 reef_error *err);
void reef_model_forget_lost(reef_model *model);

// read_state.c

/**
 * Read the chosen state into the model, whose rows are not in reach yet. BUSY: a generation
 * vanished meanwhile; try again.
 */
REEF_MUST_CHECK reef_status reef_model_read_state(reef_model *model,
                                                  reef_txn *txn,
                                                  const struct reef_as_of *chosen,
                                                  reef_error *err);

// evaluate.c

/** INVALID where the model reads no text. */
REEF_MUST_CHECK reef_status reef_model_check_reads_text(const reef_model *model, reef_error *err);
/**
 * Forward of `count` tokens from `bytes` on (at most a pass): losses and logits in the model's
 * pass.
 *
 * next   the token after the last, or NULL
 * fires  the later generation that takes part, or 0
 */
REEF_MUST_CHECK reef_status reef_model_run(reef_model *model,
                                           size_t fires,
                                           const uint8_t *bytes,
                                           size_t count,
                                           const uint8_t *next,
                                           reef_error *err);
/**
 * The piece of a text of `all` tokens that begins with token `at`, with the newest generation;
 * *tokens says how many it has.
 */
REEF_MUST_CHECK reef_status reef_model_run_piece(reef_model *model,
                                                 const uint8_t *bytes,
                                                 size_t all,
                                                 size_t at,
                                                 size_t *tokens,
                                                 reef_error *err);

#endif
