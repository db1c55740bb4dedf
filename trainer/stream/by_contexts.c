// See by_contexts.h.
#include "by_contexts.h"
#include "growth_policy.h"
#include "kind_memories.h"
#include "net_return.h"
#include "pending.h"
#include "recognition.h"
#include "step.h"
#include "warm_start.h"

// The first pending batch is learned by a kind; whose it is has been decided.
static reef_status learn_as_kind(reef_trainer *trainer,
                                 uint32_t kind,
                                 size_t *steps,
                                 reef_error *err) {
    const reef_config *config = &trainer->network.config;
    bool net = reef_pending_is_for_net(trainer, trainer->stream_bytes);
    double bits = 0.0;
    reef_status status = REEF_OK;
    if (kind != reef_open_kind(trainer)) {
        status = reef_pending_move_gates(trainer, err);
        if (status == REEF_OK) status = reef_pending_give(trainer, kind, 0.0, steps, err);
        return status == REEF_OK && reef_net_return_is_due(trainer, kind)
                   ? reef_net_return(trainer, kind, err)
                   : status;
    }
    ++*steps;
    if (net && reef_start_is_due(trainer)) {
        status = reef_pending_settle(trainer, REEF_OK, err);
        if (status == REEF_OK)
            status =
                reef_start_generation(trainer, trainer->pending, reef_batch_bytes(config), err);
    }
    if (status == REEF_OK && net) {
        reef_pending_begin_net(trainer);
        status = reef_step_forward(trainer, trainer->pending, &trainer->ahead, &bits, err);
    }
    if (status != REEF_OK) return status;
    if (net) {
        reef_step_count_losses(trainer, trainer->stream_bytes, false);
        trainer->last_bits = bits;
    }
    return net ? reef_pending_train(trainer, bits, err) : reef_pending_memorise(trainer, err);
}

static reef_status learn_batches(
    reef_trainer *trainer, uint32_t kind, size_t count, size_t *steps, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < count; i++)
        status = learn_as_kind(trainer, kind, steps, err);
    return reef_pending_settle(trainer, status, err);
}

// Older kinds have learned all that came since the open generation was opened: it is still new.
static bool open_is_unused(const reef_trainer *trainer) {
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    return trainer->generation_step == 0 && !trainer->branched && open->continues == 0 &&
           trainer->current_kind != open->generation;
}

// The first batches of a new kind. Where there is no room for another, the last one that began
// takes all that is strange, and the others stay clean.
static reef_status begin_kind(reef_trainer *trainer, size_t count, size_t *steps, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    uint32_t open = reef_open_generation(trainer)->info.generation;
    size_t first = (count - 1) % reef_piece_batches(config) + 1;
    reef_status status = REEF_OK;
    bool unused = open_is_unused(trainer);
    if (!unused && !reef_policy_is_full(trainer))
        status = reef_policy_boundary(trainer, "contexts", trainer->pending,
                                      count * reef_batch_bytes(config), err);
    if (status != REEF_OK) return status;
    bool opened = unused || reef_open_generation(trainer)->info.generation != open;
    trainer->current_kind = reef_open_generation(trainer)->info.generation;
    // Of a new kind only the first piece: what follows may be the next one already.
    return learn_batches(trainer, trainer->current_kind, opened ? first : count, steps, err);
}

reef_status reef_by_contexts_next(reef_trainer *trainer, size_t *steps, reef_error *err) {
    size_t batches = reef_piece_batches(&trainer->network.config);
    size_t pieces = trainer->deferred_batches / batches;
    uint32_t current = trainer->current_kind;
    reef_kind_decision decision;
    reef_status status = reef_recognise_piece(trainer, pieces, &decision, err);
    if (status != REEF_OK) return status;
    pieces++;
    if (decision.verdict == REEF_VERDICT_DEFER) {
        trainer->deferred_batches += batches;
        return REEF_OK;
    }
    trainer->deferred_batches = 0;
    if (decision.verdict == REEF_VERDICT_CURRENT) {
        for (size_t i = 0; i < pieces; i++) reef_recognition_count(trainer, i, current);
        return learn_batches(trainer, current, pieces * batches, steps, err);
    }
    size_t left = pieces * batches - decision.from;
    status = learn_batches(trainer, current, decision.from, steps, err);
    if (status != REEF_OK) return status;
    if (decision.verdict == REEF_VERDICT_NEW) return begin_kind(trainer, left, steps, err);
    // A piece that is another's in part says nothing of either.
    for (size_t i = (decision.from + batches - 1) / batches; i < pieces; i++)
        reef_recognition_count(trainer, i, decision.kind);
    trainer->current_kind = decision.kind;
    return learn_batches(trainer, decision.kind, left, steps, err);
}

reef_status reef_by_contexts_end(reef_trainer *trainer, size_t *steps, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_status status = REEF_OK;
    trainer->deferred_batches = 0;
    while (status == REEF_OK && reef_pending_usable_bytes(trainer) >=
                                    reef_batch_bytes(config) + reef_token_bytes(config))
        status = learn_as_kind(trainer, trainer->current_kind, steps, err);
    return reef_pending_settle(trainer, status, err);
}
