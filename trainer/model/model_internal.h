// The inside of a reef_model, shared by the files that ask it something:
//
//   open.c    the copy: how it is read from a pool, and taken over by a later one
//   evaluate.c      one pass over a piece of a text; loss and logits
//   expert_uses.c   which experts a text uses, and where it uses one
//   gate_margins.c  the gate of one generation along a text
//   generate.c      a text continued
//   layer_model.c   the same copy of a layer by itself
//   vector_model.c  and of vectors
#ifndef REEF_EVALUATE_H
#define REEF_EVALUATE_H

#include "gating.h"
#include "layer_internal.h"
#include "reef_model.h"
#include "residency.h"
#include "vector.h"

struct reef_model {
    // While loading: of an older copy, whose sealed generations are taken over; or NULL.
    reef_network *known;
    reef_commit commit;            // that it was read at
    reef_vector_network *vector;   // NULL in a language model; else `net` is the configuration only
    reef_generation_record *infos; // (generations) of a vector model, as the state has them
    reef_layer *layer;             // NULL but of a layer by itself
    reef_network network;
    reef_activations acts;
    reef_thread_pool *workers;
    reef_residency residency;
    uint8_t *tokens, *targets; // (windows * T) of reef_token_bytes each
    uint8_t *fire;             // (generations, windows * T)
    float *margins;
    size_t stride; // windows * T
};

// evaluate.c

/** Does it read a text: is it neither of vectors nor a layer by itself? */
bool reef_model_has_stream(const reef_model *model);
/** INVALID, and why a model without a stream cannot be asked about a text. */
REEF_MUST_CHECK reef_status reef_model_refuse_text(const reef_model *model, reef_error *err);
/** Can the model read this text? */
REEF_MUST_CHECK reef_status reef_model_check_text(const reef_model *model,
                                                  const uint8_t *bytes,
                                                  size_t count,
                                                  reef_error *err);
/**
 * The gates' decisions, those of `net`, about `count` tokens from `bytes` on (at most a pass).
 * `next` is the token after the last; NULL where there is none, and `firing` is no good any more.
 *
 * out, answered  written: see reef_firing_decide
 */
REEF_MUST_CHECK reef_status reef_model_decide(reef_model *model,
                                              const reef_network *network,
                                              reef_gating *gating,
                                              const uint8_t *bytes,
                                              size_t count,
                                              const uint8_t *next,
                                              reef_batch *out,
                                              bool *answered,
                                              reef_error *err);
/** Forward of the same tokens: losses and logits in the model's pass. */
REEF_MUST_CHECK reef_status reef_model_run(reef_model *model,
                                           reef_gating *gating,
                                           const uint8_t *bytes,
                                           size_t count,
                                           const uint8_t *next,
                                           reef_error *err);
/**
 * The piece of a text of `all` tokens that begins with token `at`; *tokens says how many it has.
 */
REEF_MUST_CHECK reef_status reef_model_run_piece(reef_model *model,
                                                 reef_gating *gating,
                                                 const uint8_t *bytes,
                                                 size_t all,
                                                 size_t at,
                                                 size_t *tokens,
                                                 reef_error *err);

#endif
