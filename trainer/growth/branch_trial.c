// See branch_trial.h.
#include "branch_trial.h"

#include "branch.h"
#include "memory_step.h"
#include "step.h"

#include <string.h>

// A copy has to be that much better on the first batches: an advantage of the first moment may
// pass.
#define BETTER 0.98

typedef struct trial {
    reef_trainer *trainer;
    reef_generation *open; // as it stands; the caller's
    const uint8_t *fresh;
    size_t batches;
} trial;

static void put_in_place(reef_trainer *trainer, reef_generation *generation) {
    size_t last = trainer->network.generation_count - 1;
    trainer->network.generations[last] = generation;
    reef_activations_forget_generation(&trainer->acts, last);
}

// The open generation once more: nothing of it has been trained.
static reef_status copy_open(reef_generation **out, const trial *t, reef_error *err) {
    const reef_config *config = &t->trainer->network.config;
    reef_status status =
        reef_generation_new_divided(out, config, &t->open->info, t->open->division, err);
    if (status != REEF_OK) return status;
    // The open generation has not trained: weights, experts and gate are all there is to copy.
    // Moments and averages start fresh.
    for (size_t i = 0; i < (*out)->tensor_count; i++)
        memcpy((*out)->tensors[i].data, t->open->tensors[i].data,
               t->open->tensors[i].count * sizeof(float));
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_expert_table *table = &t->open->expert_tables[l];
        if (reef_layer_retrieves(config, l))
            memcpy((*out)->expert_tables[l].experts, table->experts,
                   table->row_count * table->row_values * sizeof(float));
    }
    reef_generation_gate_copy(*out, t->open);
    reef_generation_average_reset(*out);
    return REEF_OK;
}

// A copy of generation `from`, instead of the open one. After a failure the slot is as it was.
static reef_status begin_as(const trial *t, uint32_t from, reef_error *err) {
    reef_trainer *trainer = t->trainer;
    const reef_generation *origin = trainer->network.generations[from];
    reef_generation *made = NULL;
    reef_status status = reef_branch_make(&made, trainer, origin, true, true, err);
    if (status != REEF_OK) return status;
    // The gate is the open one's: who answers must not depend on which copy is tried.
    reef_generation_gate_copy(made, t->open);
    put_in_place(trainer, made);
    status = reef_branch_settle(trainer, origin, true, err);
    if (status == REEF_OK) return REEF_OK;
    // The owner of the slot before the attempt owns it again.
    put_in_place(trainer, t->open);
    reef_generation_free(made);
    return status;
}

// The loss of a batch before it is learned: by the memory, by the net, or by the memory that hears
// the net.
static reef_status train_batch(const trial *t,
                               const uint8_t *bytes,
                               uint64_t begin,
                               reef_gating *moving,
                               double *bits,
                               reef_error *err) {
    reef_trainer *trainer = t->trainer;
    bool net = reef_has_net(trainer);
    reef_status status = net ? reef_step_forward(trainer, bytes, moving, bits, err) : REEF_OK;
    if (status == REEF_OK && trainer->network.config.context_memory > 0)
        status = reef_memory_step_learn(trainer, bytes, begin, net, bits, err);
    if (status == REEF_OK && net) reef_step_backward(trainer);
    return status;
}

// Sum of the losses before each step. The trainer's counts are as before; the generation in the
// open slot has learned.
static reef_status train_candidate(const trial *t, double *bits, reef_error *err) {
    reef_trainer *trainer = t->trainer;
    uint64_t step = trainer->step;
    // The gates of the stream stay where they are: a trial reads ahead and then is gone.
    reef_gating moving = {0};
    reef_status status = reef_gating_copy(&moving, &trainer->gating, err);
    *bits = 0.0;
    for (size_t b = 0; status == REEF_OK && b < t->batches; b++) {
        // Each batch is predicted before it is trained: the sum is a prequential loss, which
        // rewards fast learning and cannot be overfitted.
        size_t at = b * reef_batch_bytes(&trainer->network.config);
        double one = 0.0;
        status = train_batch(t, t->fresh + at, trainer->stream_bytes + at, &moving, &one, err);
        if (status != REEF_OK) break;
        *bits += one;
        trainer->step++; // which windows are drawn follows from it
        trainer->generation_step++;
    }
    reef_gating_release(&moving);
    // The trial leaves no trace in the counters that a commit would write.
    trainer->step = step;
    trainer->generation_step = 0;
    return status;
}

static reef_status try_open(const trial *t, double *bits, reef_error *err) {
    reef_generation *copy = NULL;
    reef_status status = copy_open(&copy, t, err);
    if (status != REEF_OK) return status;
    put_in_place(t->trainer, copy);
    status = train_candidate(t, bits, err);
    put_in_place(t->trainer, t->open);
    reef_generation_free(copy);
    return status;
}

static reef_status try_branch(const trial *t, uint32_t from, double *bits, reef_error *err) {
    reef_status status = begin_as(t, from, err);
    if (status != REEF_OK) return status;
    reef_generation *copy = reef_open_generation(t->trainer);
    status = train_candidate(t, bits, err);
    put_in_place(t->trainer, t->open);
    reef_generation_free(copy);
    return status;
}

static bool can_branch(const reef_trainer *trainer, uint32_t from) {
    const reef_generation *origin = trainer->network.generations[from];
    return reef_branch_is_whole(&trainer->network.config, from) &&
           origin->info.side == reef_open_generation(trainer)->info.side;
}

reef_status reef_branch_trial_choose(reef_trainer *trainer,
                                     const uint8_t *fresh,
                                     size_t batches,
                                     uint32_t *origin,
                                     reef_error *err) {
    const trial t = {
        .trainer = trainer,
        .open = reef_open_generation(trainer),
        .fresh = fresh,
        .batches = batches < REEF_BRANCH_TRIAL_BATCHES ? batches : REEF_BRANCH_TRIAL_BATCHES,
    };
    double least = -1.0; // not tried yet
    *origin = REEF_BRANCH_TRIAL_NONE;
    // On fewer batches the difference is noise.
    if (batches < REEF_BRANCH_TRIAL_BATCHES_MIN) return REEF_OK;
    reef_status status = REEF_OK;
    size_t tried = 0;
    // Newest first: what was learned last is most likely to be near the new data. A bounded number
    // of candidates keeps the cost of a boundary bounded.
    for (uint32_t g = t.open->info.generation; status == REEF_OK && g-- > 1;) {
        if (tried == REEF_BRANCH_TRIAL_BRANCHES || !can_branch(trainer, g)) continue;
        tried++;
        double bits;
        // The plain start is measured only if there is a candidate at all. It gets a bonus: a copy
        // must be clearly better, since it costs its size for ever.
        if (least < 0.0) {
            status = try_open(&t, &least, err);
            least *= BETTER;
        }
        if (status == REEF_OK) status = try_branch(&t, g, &bits, err);
        if (status != REEF_OK || bits >= least) continue;
        least = bits;
        *origin = g;
    }
    if (status != REEF_OK || *origin == REEF_BRANCH_TRIAL_NONE) return status;
    // The copies that were tried have trained; the winner is made again from its origin.
    status = begin_as(&t, *origin, err);
    if (status != REEF_OK) return status;
    trainer->branched = true;
    reef_generation_free(t.open);
    return REEF_OK;
}
