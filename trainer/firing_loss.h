// Which generations take part in which token, where gates also read the loss of the older model.
#ifndef REEF_FIRING_LOSS_H
#define REEF_FIRING_LOSS_H

#include "firing.h"

/** What computes the losses. The pass's activations are overwritten. */
typedef struct reef_firing_means {
    const reef_net *net;
    reef_pass *pass; // has room for the windows
    reef_workers *workers;
} reef_firing_means;

/** Does a gate of the net's generations read losses? */
bool reef_firing_reads_losses(const reef_net *net);

/**
 * As reef_firing_score, with a loss for every gate that has a weight for it. Generation g's is the loss of the
 * model of generations 0 .. g - 1, as they fire by their own gates: that of the state as of generation g - 1.
 * So generations decide in ascending order, each after at most one forward pass (REEF_PASS_EVALUATE); none is
 * needed where nothing has fired since the last one, because silence is exact.
 *
 * A loss is known once the byte after its token is, so the decision about a token rests on earlier losses
 * only: no byte changes a decision before it.
 *
 * batch     windows, tokens and targets of the next bytes of the stream, from the beginning of a window on;
 *           of the last window anything may follow `count`. `fire` is ignored
 * count     tokens of the batch that belong to the stream; `targets` of the last one is the byte after it, or
 *           the stream ends here and `firing` is good for nothing afterwards
 * fire      (gen_count, stride) row g >= 1, columns 0 .. count - 1 written, the rest of the batch cleared
 * margins   (gen_count, stride) row g >= 1 written: before fire_max
 * answered  the pass holds losses and logits of this batch by all generations: what another forward pass with
 *           these decisions would give. False where no loss was needed, or the last to decide fires
 *
 * Errors: NO_MEMORY, or what the pass says. `firing` is then unspecified.
 */
REEF_MUST_CHECK reef_status reef_firing_decide(reef_firing *firing,
                                               const reef_firing_means *means,
                                               const reef_batch *batch,
                                               size_t count,
                                               uint8_t *fire,
                                               float *margins,
                                               size_t stride,
                                               bool *answered,
                                               reef_error *err);

#endif
