// The open generation is sealed, or grows, on command; growth_policy.c decides when it does so by
// itself.
#include "boundary_commands.h"
#include "boundary.h"
#include "branch.h"
#include "commit.h"
#include "enlarge.h"
#include "events.h"
#include "gate_refit.h"
#include "generation.h"
#include "growth_policy.h"
#include "kind_memories.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// May a generation of a language model be sealed now, and what would the next one be?
static reef_status prepare_seal(reef_trainer *trainer, reef_opening *opening, reef_error *err) {
    const reef_generation *open = reef_open_generation(trainer);
    if (reef_task_step(trainer) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32
                         " is open and has trained nothing yet; there is nothing to seal",
                         open->info.generation);
    // The policy decides about the size as it does at a boundary of its own, but without fresh
    // data: nothing of the next domain has been seen when a person asks.
    reef_status status = reef_policy_size(trainer, "command", NULL, 0, opening, err);
    if (status != REEF_OK) return status;
    return opening->side == 0 ? reef_policy_fail_full(trainer, err) : REEF_OK;
}

// A dry run: it says what a seal would refuse and how large the next generation would be, and
// touches neither the trainer nor the pool.
reef_status reef_language_seal_check(reef_trainer *trainer,
                                     const char *seal_dtype,
                                     uint32_t *side,
                                     reef_error *err) {
    reef_opening opening = {0};
    reef_config config = trainer->network.config; // a copy: only the word is checked
    reef_status status = REEF_OK;
    *side = config.side_new;
    if (seal_dtype != NULL) status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    if (status != REEF_OK) return status;
    status = prepare_seal(trainer, &opening, err);
    *side = opening.side;
    return status;
}

reef_status reef_language_seal(reef_trainer *trainer,
                               const char *seal_dtype,
                               reef_sealing *out,
                               reef_error *err) {
    reef_config config = trainer->network.config; // the pool's own stays as it is
    reef_sealing sealing;
    reef_opening opening;
    reef_status status = reef_trainer_pin(trainer, err); // passes measure, and fit the gate
    if (status == REEF_OK && seal_dtype != NULL)
        status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    if (status == REEF_OK) status = prepare_seal(trainer, &opening, err);
    if (status != REEF_OK) return status;
    // What was deferred trains the new generation first.
    status = trainer->ops->reset_lookahead(trainer, err);
    if (status == REEF_OK)
        status = reef_growth_boundary(trainer, &opening, reef_generation_seal_dtype(&config),
                                      &sealing, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK && out != NULL) *out = sealing;
    return status;
}

reef_status reef_trainer_seal_check(reef_trainer *trainer,
                                    const char *seal_dtype,
                                    uint32_t *side,
                                    reef_error *err) {
    return trainer->ops->seal_check(trainer, seal_dtype, side, err);
}

reef_status reef_trainer_seal(reef_trainer *trainer,
                              const char *seal_dtype,
                              reef_sealing *out,
                              reef_error *err) {
    reef_status status = reef_trainer_check_whole(trainer, err);
    return status == REEF_OK ? trainer->ops->seal(trainer, seal_dtype, out, err) : status;
}

reef_status reef_trainer_grow_check(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_status refused = reef_kind_allows(trainer->ops->no_growth, err);
    if (refused != REEF_OK) return refused;
    if (!reef_has_net(trainer))
        return reef_fail(err, REEF_ERR_INVALID, "the pool has no net, and so no experts");
    // Growing means more sub-keys and more experts behind them. A model of dense or mixture layers
    // has neither.
    if (reef_config_retrieving_layers(config) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool cannot grow to side %" PRIu32 ": its layers are of ffw %s, and "
                         "only those of kind p and k have experts that grow",
                         side, config->ffw);
    refused = trainer->ops->grow_check(trainer, err);
    if (refused != REEF_OK) return refused;
    return reef_policy_check_side(trainer, side, err);
}

reef_status reef_trainer_grow(reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_opening opening = {.reason = "command", .gap = NAN, .distance = NAN};
    reef_status status = reef_trainer_grow_check(trainer, side, err);
    if (status == REEF_OK) status = trainer->ops->reset_lookahead(trainer, err);
    if (status == REEF_OK) status = reef_growth_enlarge(trainer, side, &opening, err);
    if (status != REEF_OK) return status;
    trainer->ops->grown(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}

static void put_in_place(reef_trainer *trainer, reef_generation *generation) {
    size_t n = trainer->network.generation_count - 1;
    trainer->network.generations[n] = generation;
    reef_activations_forget_generation(&trainer->acts, n);
    reef_gate_reset(&generation->gate, &trainer->gating.states[n]);
}

// In the transaction of the commit: what an earlier one holds of the open generation.
static reef_status clear_open(void *context, reef_txn *txn, reef_error *err) {
    return reef_generation_clear(txn, *(const uint32_t *)context, err);
}

static reef_status commit_branch(reef_trainer *trainer,
                                 const reef_generation *from,
                                 const reef_branch *plan,
                                 reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    uint32_t number = open->info.generation;
    // The queries of the copy are still folded, as its origin's are. Their batch statistics are
    // measured before anything is committed, so that a failure here leaves the old open generation
    // in the model.
    reef_status status = reef_branch_settle(trainer, from, plan->whole, err);
    if (status != REEF_OK) return status;
    // Nothing to fit it on yet: only a gate that is off for good is opened by this.
    status = reef_growth_fit_gate(trainer, open, NULL, 0, err);
    if (status == REEF_OK)
        status = reef_state_event(
            trainer, err, "branch",
            "\"from\": %" PRIu32 ", \"side\": %" PRIu32 ", \"whole\": %s, \"experts\": %" PRIu64,
            plan->from, plan->side, plan->whole ? "true" : "false", plan->experts);
    return status == REEF_OK ? reef_trainer_commit_after(trainer, clear_open, &number, err)
                             : status;
}

static reef_status replace_open(reef_trainer *trainer,
                                reef_generation *made,
                                const reef_branch *plan,
                                reef_error *err) {
    reef_generation *before = reef_open_generation(trainer);
    const reef_generation *from = trainer->network.generations[plan->from];
    bool branched = trainer->branched;
    size_t events = trainer->event_count;
    put_in_place(trainer, made);
    trainer->branched = true;
    // The event and the new generation reach the pool in one transaction, or neither does.
    reef_status status = commit_branch(trainer, from, plan, err);
    if (status == REEF_OK) {
        reef_generation_free(before);
    } else {
        // Events of the attempt go with it, or the next commit would report a branch that does not
        // exist.
        while (trainer->event_count > events) free(trainer->events[--trainer->event_count]);
        put_in_place(trainer, before);
        trainer->branched = branched;
        reef_generation_free(made);
    }
    // Deferred batches were decided about with the generation that was replaced or, after a
    // failure, with the copy. Both are decided again from the gates at the first pending byte.
    reef_status copied = reef_gating_copy(&trainer->ahead, &trainer->gating, NULL);
    if (copied != REEF_OK && status == REEF_OK)
        status = reef_fail(err, copied, "no memory for the gates of %zu generations",
                           trainer->network.generation_count);
    if (status == REEF_OK) (void)!reef_trainer_pin(trainer, NULL); // as in commit.c
    return status;
}

reef_status reef_trainer_branch(
    reef_trainer *trainer, uint32_t from, bool dry_run, reef_branch *out, reef_error *err) {
    reef_status status = reef_branch_check(trainer, from, err);
    // The transaction must find the open generation, and the rows of the sealed one be in reach.
    if (status == REEF_OK && !dry_run && reef_trainer_has_unstored(trainer))
        status = reef_trainer_commit(trainer, NULL, err);
    // Its commit clears what the open generation holds.
    if (status == REEF_OK && !dry_run) status = reef_kinds_write_all_next(trainer, err);
    if (status == REEF_OK) status = reef_trainer_pin(trainer, err);
    if (status != REEF_OK) return status;
    const reef_generation *origin = trainer->network.generations[from];
    const reef_config *config = &trainer->network.config;
    reef_branch plan = {.from = from,
                        .generation = reef_open_generation(trainer)->info.generation,
                        .side = origin->info.side,
                        .whole = reef_branch_is_whole(config, from)};
    // Reported even for a dry run: experts count against experts_max.
    for (uint32_t l = 0; l < config->layers; l++)
        plan.experts += origin->expert_tables[l].expert_count;
    reef_generation *made = NULL;
    if (!dry_run) status = reef_branch_make(&made, trainer, origin, plan.whole, true, err);
    if (!dry_run && status == REEF_OK) status = replace_open(trainer, made, &plan, err);
    if (status == REEF_OK && out != NULL) *out = plan;
    return status;
}
