// What a trainer does differently for each kind of model: language model, layer.
//
//   language_ops.c     a stream of tokens, gates, a reservoir
//   layer/layer_ops.c  no stream: a program calls forward, backward and step
//
// The kind is chosen once, when memory is allocated (trainer.c). All other code calls through
// `trainer->ops` and never asks which model it has.
#ifndef REEF_TRAINER_OPS_H
#define REEF_TRAINER_OPS_H

#include "reef_trainer.h"

#include <stddef.h>
#include <stdint.h>

/** Every function is set; every refusal is a message, or NULL where the kind can do it. */
typedef struct reef_trainer_ops {
    // Opening, in this order. Functions that have nothing to do return REEF_OK.

    /** Memory whose size the configuration decides. */
    reef_status (*allocate)(reef_trainer *trainer, reef_error *err);
    /** Generation 0 of a new pool, instead of load_generations. */
    reef_status (*first_generation)(reef_trainer *trainer, reef_error *err);
    /** All generations of the last commit; the last one is open. */
    reef_status (*load_generations)(reef_trainer *trainer, reef_txn *txn, reef_error *err);
    /** Gates of all generations at the start of the stream. */
    reef_status (*start_gating)(reef_trainer *trainer, reef_error *err);
    /** What this kind stores beside the state of reef_state_load. */
    reef_status (*load_state)(reef_trainer *trainer, reef_txn *txn, reef_error *err);
    /** Accepts a trainer whose opening failed at any point. */
    void (*release)(reef_trainer *trainer);

    // The stream.

    /** Bring the rows of sealed generations into reach; see reef_trainer_repin. */
    reef_status (*pin)(reef_trainer *trainer, reef_error *err);
    /** Accept bytes and learn what one decision about them lets it; see reef_trainer_feed. */
    reef_status (*push)(reef_trainer *trainer,
                        const uint8_t *bytes,
                        size_t count,
                        size_t *taken, // written: bytes accepted
                        size_t *steps, // written: batches trained
                        reef_error *err);
    /** Decide about deferred batches again, because the model under them changes. */
    reef_status (*reset_lookahead)(reef_trainer *trainer, reef_error *err);

    // A commit, inside its transaction and after it.

    reef_status (*put_generations)(reef_trainer *trainer,
                                   reef_txn *txn,
                                   uint64_t unix_ms,
                                   reef_error *err);
    /** The counterpart of load_state. */
    reef_status (*put_state)(reef_trainer *trainer, reef_txn *txn, reef_error *err);
    /** The transaction is durable: nothing is dirty any more. */
    void (*committed)(reef_trainer *trainer);

    // Boundaries and growth by command.

    /** What `seal` would refuse, and the side of the generation it would open. */
    reef_status (*seal_check)(reef_trainer *trainer,
                              const char *seal_dtype, // NULL: as configured
                              uint32_t *side,
                              reef_error *err);
    /** Seal the open generation, open the next and commit. `out` may be NULL. */
    reef_status (*seal)(reef_trainer *trainer,
                        const char *seal_dtype,
                        reef_sealing *out,
                        reef_error *err);
    /** May the open generation grow now? `no_growth` was asked before. */
    reef_status (*grow_check)(const reef_trainer *trainer, reef_error *err);
    /** The open generation has more experts than a moment ago. */
    void (*grown)(reef_trainer *trainer);

    /** Correct what reef_trainer_status_read filled in for any kind. */
    void (*describe)(const reef_trainer *trainer, reef_trainer_status *out);

    // Why the kind cannot do it; NULL: it can.

    const char *no_stream;
    const char *no_import;
    const char *no_freeze;
    const char *no_growth;
} reef_trainer_ops;

extern const reef_trainer_ops reef_language_ops;
extern const reef_trainer_ops reef_layer_ops;

/** REEF_OK, or REEF_ERR_INVALID with one of the kind's refusals, such as `kind->no_growth`. */
static inline reef_status reef_kind_allows(const char *refusal, reef_error *err) {
    return refusal == NULL ? REEF_OK : reef_fail(err, REEF_ERR_INVALID, "%s", refusal);
}

#endif
