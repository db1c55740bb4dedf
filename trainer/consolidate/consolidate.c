// Consolidation: several sealed generations give way to one, so that the cost of a token stays
// bounded.
//
//   plan      which generations, which snapshots and states go, which text of the reservoir there
//             is and whether it is enough
//   measure   loss of the whole pool on the part of that text that nothing is taught from
//   distil    the new generation, in memory (distil.c)
//   swap      it takes the place of the last of them; the others become numbers without content
//   commit    one transaction; when it fails, the old ones are swapped back
//   measure   again
#include "batch.h"
#include "commit.h"
#include "distil.h"
#include "events.h"
#include "kind_memories.h"
#include "recognition.h"
#include "reef_snapshot.h"
#include "sealed_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_OUT 8 // one window in so many is only measured on
// Steps by default: so that each byte there is to teach is seen about so many times, within bounds.
#define EPOCHS 8
#define STEPS_MIN 200
#define STEPS_MAX 4000

typedef struct consolidation {
    reef_trainer *trainer;
    const reef_consolidation_options *options;
    reef_consolidation *report;
    bool first_damaged; // the record of the first of its snapshots
    reef_sample *samples;
    size_t sample_count, taught_count, silent_count; // the latter two of those that are used
    uint64_t *fired;    // (generations) tokens on which each fired, of the last measurement
    uint64_t fired_any; // on which any of the consolidated ones did
    uint64_t tokens;
} consolidation;

void reef_consolidation_release(reef_consolidation *report) {
    free(report->losses);
    free(report->memories);
    free(report->snapshots);
    *report = (reef_consolidation){0};
}

// ---- plan ---------------------------------------------------------------------------------------

static uint64_t generation_experts(const reef_generation *generation) {
    uint64_t count = 0;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        count += generation->expert_tables[l].expert_count;
    return count;
}

// Without its context memory.
static uint64_t generation_bytes(const reef_generation *generation) {
    uint64_t bytes = (generation->value_count + REEF_GATE_WEIGHTS) * sizeof(float);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        bytes += (uint64_t)generation->expert_tables[l].expert_count *
                 reef_row_bytes(generation->expert_tables[l].rows.dtype,
                                generation->expert_tables[l].row_values);
    return bytes;
}

// A kind whose net lies in several generations has one memory: neither can be merged without the
// other.
static reef_status check_whole_kinds(const reef_network *network,
                                     uint32_t first,
                                     uint32_t last,
                                     reef_error *err) {
    for (uint32_t g = 0; (size_t)g < network->generation_count; g++) {
        const reef_generation_record *info = &network->generations[g]->info;
        uint32_t kind = reef_generation_kind(info);
        if (info->continues == 0 || ((g < first || g > last) && (kind < first || kind > last)))
            continue;
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " continues kind %" PRIu32
                         ": neither can be consolidated with others",
                         g, kind);
    }
    return REEF_OK;
}

static reef_status check_range(const consolidation *c, reef_error *err) {
    const reef_network *network = &c->trainer->network;
    uint32_t first = c->options->first, last = c->options->last;
    // The open generation cannot be merged: it is still learning, and the distilled one would be
    // stale at the next step.
    uint32_t open = (uint32_t)network->generation_count - 1, content = 0;
    if (reef_config_is_vector(&network->config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "generations of a model of vectors are not consolidated");
    // Generation 0 is the backbone. The others are corrections of it, and would have no base.
    if (first == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation 0 holds the backbone that all others stand on; it cannot be "
                         "consolidated; start at 1");
    if (open == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "no generation is sealed yet; it takes two after generation 0 to "
                         "consolidate");
    if (first > last || last > open)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generations %u to %u are not a range of the pool's; sealed are 0 to %u",
                         first, last, open - 1);
    if (last == open)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "generation %u is open; only sealed ones can be consolidated: end at %u or "
            "seal it first",
            open, open - 1);
    // The new generation takes the number of the last one. That number must have content, or a
    // snapshot's lineage would name a generation that was merged before.
    if (reef_generation_is_empty(&network->generations[last]->info))
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %u was consolidated into generation %u already; name that one",
                         last, reef_distil_owner(network, last));
    for (uint32_t g = first; g <= last; g++)
        content += !reef_generation_is_empty(&network->generations[g]->info);
    reef_status status = check_whole_kinds(network, first, last, err);
    if (status != REEF_OK) return status;
    if (content < 2)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generations %u to %u are %u with content; it takes two to consolidate",
                         first, last, content);
    return REEF_OK;
}

static uint64_t square(uint64_t side) {
    return side * side;
}

// The new generation has the ids of those it replaces, so it cannot have more experts than they
// had.
static reef_status choose_side(consolidation *c, reef_error *err) {
    const reef_network *network = &c->trainer->network;
    // Expert ids are permanent: usage and tools refer to them. The ids of the replaced range are
    // the only ones that the new generation may reuse.
    uint32_t first = c->options->first, last = c->options->last, side = 0;
    uint64_t begin = network->generations[reef_distil_owner(network, first)]->info.first_id;
    uint64_t room = network->generations[last]->info.first_id +
                    square(network->generations[last]->info.side) - begin;
    // By default as wide as the widest of them, which is less than all of them together: that is
    // the point of merging.
    for (uint32_t g = first; g <= last; g++)
        if (network->generations[g]->info.side > side) side = network->generations[g]->info.side;
    if (c->options->side > 0) side = c->options->side;
    if (square(side) > room)
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %u makes %llu experts in each PEER layer; generations %u to %u have "
                         "ids for %llu: side %u at most",
                         side, (unsigned long long)square(side), first, last,
                         (unsigned long long)room, (unsigned)sqrt((double)room));
    if (side < network->config.topk)
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %u is less than the %u experts that a head chooses (topk)", side,
                         network->config.topk);
    c->report->side = side;
    return REEF_OK;
}

static reef_status list_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    consolidation *c = context;
    reef_consolidation *report = c->report;
    // Snapshots that share only generations before the range are not affected by the merge.
    if (snapshot->shared_count <= report->first) return REEF_OK;
    size_t count = report->snapshot_count + 1;
    char(*names)[REEF_NAME_BYTES_MAX + 1] = realloc(report->snapshots, count * sizeof(*names));
    if (names == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu snapshots", count);
    report->snapshots = names;
    if (report->snapshot_count == 0) c->first_damaged = snapshot->damaged;
    memcpy(names[report->snapshot_count++], snapshot->name, sizeof(*names));
    return REEF_OK;
}

static reef_status find_snapshots(consolidation *c, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, c->trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, list_snapshot, c, err);
    reef_txn_abort(txn);
    return status;
}

// Does any of the generations fire on most of this window?
static reef_status fires_on_most(
    const consolidation *c, const uint8_t *bytes, size_t size, bool *out, reef_error *err) {
    reef_trainer *trainer = c->trainer;
    reef_batch batch;
    // `answered` does not matter here: margins are complete whether or not a gate needed a loss.
    bool answered;
    size_t fired = 0;
    reef_status status =
        reef_step_read(trainer, &trainer->network, bytes, size, &batch, &answered, err);
    if (status != REEF_OK) return status;
    // A window belongs to the merged generations where the gates say so for more than half of its
    // tokens. Margins are read instead of firing, because firing is cut to the strongest when
    // several gates agree.
    for (size_t t = 0; t < size; t++) {
        bool any = false;
        for (uint32_t g = c->options->first; g <= c->options->last; g++)
            any = any || trainer->margins[g * batch.fire_stride + t] > 0.0f;
        fired += any;
    }
    *out = 2 * fired > size;
    return REEF_OK;
}

static reef_status plan_samples(consolidation *c, reef_error *err) {
    const reef_reservoir *reservoir = &c->trainer->reservoir;
    const reef_network *network = &c->trainer->network;
    c->samples = calloc(reservoir->old_slots, sizeof(*c->samples));
    uint32_t *seen = calloc(network->generation_count, sizeof(*seen));
    reef_status status = REEF_OK;
    if (c->samples == NULL || seen == NULL)
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu windows", reservoir->old_slots);
    // The reservoir is all text that the pool still has, so it is both the training and the test
    // sample. A window of fewer than two tokens predicts nothing.
    for (size_t slot = 0; status == REEF_OK && slot < reservoir->old_slots; slot++) {
        if (reservoir->sizes[slot] < 2 * reservoir->token_bytes) continue;
        reef_sample *sample = &c->samples[c->sample_count++];
        sample->slot = slot;
        sample->generation = reef_distil_owner(network, reservoir->generations[slot]);
        // Every HOLD_OUT-th window of each generation is kept back, starting with the second: a
        // generation with one window is taught, not tested.
        sample->held_out = seen[sample->generation]++ % HOLD_OUT == 1;
        sample->taught =
            sample->generation >= c->options->first && sample->generation <= c->options->last;
        // Text of other generations is taught as well where the merged gates fire on it, because
        // there the pool's predictions change too.
        if (!sample->taught)
            status = fires_on_most(c, reservoir->bytes + slot * reservoir->window_bytes,
                                   reservoir->sizes[slot] / reservoir->token_bytes, &sample->taught,
                                   err);
        if (!reef_sample_is_used(sample, c->trainer)) continue;
        c->taught_count += sample->taught;
        c->silent_count += !sample->taught;
        if (sample->taught) c->report->taught_bytes += reservoir->sizes[slot];
    }
    free(seen);
    return status;
}

// Is there text to teach from, and to fit a gate on?
static reef_status check_samples(const consolidation *c, reef_error *err) {
    const reef_config *config = &c->trainer->network.config;
    const reef_reservoir *reservoir = &c->trainer->reservoir;
    // Without a gate every generation takes part everywhere, so all text counts as theirs.
    bool off = config->gate == REEF_GATE_OFF;
    bool few =
        c->taught_count < REEF_GATE_WINDOWS_MIN || c->silent_count < 2 * REEF_GATE_WINDOWS_MIN;
    if (off ? c->taught_count > 0 : !few) return REEF_OK;
    // A window must be longer than the context, or a sample at a random offset cannot be cut from
    // it.
    if (reservoir->window_bytes / reservoir->token_bytes <= config->context)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the reservoir's windows of %zu bytes are no longer than the context of "
                         "%u tokens, so nothing can be distilled from them: a pool needs a larger "
                         "reservoir_window, and batch 2 or more",
                         reservoir->window_bytes, config->context);
    return reef_fail(err, REEF_ERR_INVALID,
                     "the reservoir has %zu windows of generations %u to %u to distil and %zu of "
                     "other text; %d and %d are needed: a pool needs a larger reservoir_bytes",
                     c->taught_count, c->options->first, c->options->last, c->silent_count,
                     off ? 1 : REEF_GATE_WINDOWS_MIN, off ? 0 : 2 * REEF_GATE_WINDOWS_MIN);
}

static uint64_t default_steps(const consolidation *c) {
    const reef_config *config = &c->trainer->network.config;
    uint64_t step_bytes =
        ((uint64_t)config->batch + config->rehearse) * config->context * reef_token_bytes(config);
    uint64_t steps = EPOCHS * c->report->taught_bytes / step_bytes;
    if (steps < STEPS_MIN) return STEPS_MIN;
    return steps < STEPS_MAX ? steps : STEPS_MAX;
}

static reef_status count_bytes(consolidation *c, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = c->report->first; status == REEF_OK && g <= c->report->last; g++) {
        const reef_generation *generation = c->trainer->network.generations[g];
        uint64_t memory = 0;
        if (reef_generation_is_empty(&generation->info)) continue;
        status = reef_sealed_memory_bytes(c->trainer, generation, &memory, err);
        c->report->bytes_before += generation_bytes(generation) + memory;
    }
    return status;
}

static reef_status plan_merge(consolidation *c, reef_error *err) {
    const reef_network *network = &c->trainer->network;
    reef_consolidation *report = c->report;
    reef_status status = check_range(c, err);
    if (status != REEF_OK) return status;
    report->first = c->options->first;
    report->last = c->options->last;
    report->token_bytes = (uint32_t)reef_token_bytes(&network->config);
    report->gate_leak = report->gate_detect = NAN;
    // Everything that the report promises is computed before anything changes: a dry run stops
    // after this function.
    for (uint32_t g = report->first; g <= report->last; g++) {
        report->merged += !reef_generation_is_empty(&network->generations[g]->info);
        report->experts_before += generation_experts(network->generations[g]);
    }
    // Generations after the range were trained on top of the old ones. How many there are is
    // reported, because their losses may move a little.
    for (size_t g = (size_t)report->last + 1; g + 1 < network->generation_count; g++)
        report->later += !reef_generation_is_empty(&network->generations[g]->info);
    status = count_bytes(c, err);
    if (status == REEF_OK) status = choose_side(c, err);
    if (status == REEF_OK) status = find_snapshots(c, err);
    if (status == REEF_OK) status = plan_samples(c, err);
    if (status == REEF_OK) status = check_samples(c, err);
    if (status != REEF_OK) return status;
    uint32_t layers = 0;
    for (uint32_t l = 0; l < network->config.layers; l++)
        layers += reef_layer_retrieves(&network->config, l);
    report->experts_after = layers * square(report->side);
    report->steps = c->options->steps > 0 ? c->options->steps : default_steps(c);
    if (!reef_has_net(c->trainer)) report->steps = 0; // there is no net to teach
    return REEF_OK;
}

// ---- measure ------------------------------------------------------------------------------------

// Sum of the losses (nats) of what follows the first of `size` tokens of one window, which fits the
// trainer's pass: every gate decides for itself, from the window's beginning.
static reef_status measure_window(
    consolidation *c, const uint8_t *bytes, size_t size, double *nats, reef_error *err) {
    reef_trainer *trainer = c->trainer;
    size_t count = size - 1, generations = trainer->network.generation_count;
    reef_batch batch;
    bool answered;
    reef_status status =
        reef_step_read(trainer, &trainer->network, bytes, size, &batch, &answered, err);
    if (status != REEF_OK) return status;
    for (size_t t = 0; t < count; t++) {
        bool any = false;
        // Counted on the positions whose next token is scored, so that shares and losses are of the
        // same tokens.
        for (size_t g = 1; g < generations; g++) {
            uint8_t fired = reef_step_read_fire(trainer, g)[t];
            c->fired[g] += fired;
            any = any || (fired && g >= c->report->first && g <= c->report->last);
        }
        c->fired_any += any;
    }
    c->tokens += count;
    // Deciding may have run the whole forward pass already, if a gate reads losses. It is not run
    // twice.
    if (!answered && reef_has_net(trainer))
        status = reef_network_forward(&trainer->acts, &trainer->network, trainer->workers, &batch,
                                      REEF_PASS_EVALUATE, err);
    for (size_t t = 0; t < count; t++) *nats += trainer->acts.loss[t];
    return status;
}

static reef_status measure_generation(
    consolidation *c, uint32_t generation, uint64_t *bytes, double *bits, reef_error *err) {
    const reef_reservoir *reservoir = &c->trainer->reservoir;
    double nats = 0.0;
    *bytes = 0;
    // Only held-out windows: on text that distillation saw, the loss would flatter it.
    for (size_t i = 0; i < c->sample_count; i++) {
        const reef_sample *sample = &c->samples[i];
        if (!sample->held_out || sample->generation != generation) continue;
        size_t size = reservoir->sizes[sample->slot] / reservoir->token_bytes;
        reef_status status = measure_window(
            c, reservoir->bytes + sample->slot * reservoir->window_bytes, size, &nats, err);
        if (status != REEF_OK) return status;
        *bytes += size - 1;
    }
    // The losses are those of the nets: memories have learned the very text.
    if (!reef_has_net(c->trainer)) *bytes = 0;
    *bits = nats / REEF_LN2 / (double)*bytes; // NaN when there is nothing
    return REEF_OK;
}

// Loss of all generations from `first` on, into `before` or `after`. Those that were consolidated
// keep their numbers in the list: it is their text.
static reef_status measure_losses(consolidation *c, bool after, reef_error *err) {
    reef_consolidation *report = c->report;
    // The open generation trains with its raw weights but is evaluated with their averages.
    // Exchanging the two twice is exact: pointers are swapped, no value is computed.
    reef_generation *open = reef_open_generation(c->trainer);
    reef_generation_exchange(open, &c->trainer->network.config); // as it is evaluated
    memset(c->fired, 0, c->trainer->network.generation_count * sizeof(*c->fired));
    c->fired_any = c->tokens = 0;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < report->loss_count; i++) {
        reef_consolidation_loss *loss = &report->losses[i];
        status = measure_generation(c, loss->generation, &loss->bytes,
                                    after ? &loss->after : &loss->before, err);
    }
    reef_generation_exchange(open, &c->trainer->network.config);
    return status;
}

// Generations after the first that fire per byte. With `merged`, all that were consolidated count
// once.
static double fired_per_byte(const consolidation *c, bool merged) {
    uint64_t fired = merged ? c->fired_any : 0;
    for (size_t g = 1; g < c->trainer->network.generation_count; g++)
        if (!merged || g < c->report->first || g > c->report->last) fired += c->fired[g];
    return (double)fired / (double)c->tokens;
}

static reef_status measure_before(consolidation *c, reef_error *err) {
    const reef_network *network = &c->trainer->network;
    reef_consolidation *report = c->report;
    // Zeroed counts of every generation, also those before the range: firing per byte is a sum over
    // all.
    c->fired = calloc(network->generation_count, sizeof(*c->fired));
    report->losses = calloc(network->generation_count, sizeof(*report->losses));
    if (c->fired == NULL || report->losses == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the losses of %zu generations",
                         network->generation_count);
    for (uint32_t g = report->first; g < network->generation_count; g++)
        if (!reef_generation_is_empty(&network->generations[g]->info))
            report->losses[report->loss_count++] =
                (reef_consolidation_loss){.generation = g, .before = NAN, .after = NAN};
    // The state before is measured with the generations as they are. The same call after the merge
    // measures the same windows, so the two numbers can be compared.
    reef_status status = measure_losses(c, false, err);
    report->fired_before = fired_per_byte(c, false);
    report->fired_after = fired_per_byte(c, true); // as planned; measured later
    // Nets have no losses there, so it is memories that are compared.
    if (status == REEF_OK && !reef_has_net(c->trainer))
        status = reef_distil_memory_costs(c->trainer, report->first, report->last, report, err);
    return status;
}

// ---- swap and commit ----------------------------------------------------------------------------

// What replaces generations first .. last of the model, or what was removed from them. Swapping
// twice changes nothing.
typedef struct swap_slots {
    reef_generation **generations; // (last - first + 1)
    reef_gate_state *states;       // the same
    uint32_t first, count;
} swap_slots;

static void swap_slots_release(swap_slots *p) {
    for (uint32_t i = 0; p->generations != NULL && i < p->count; i++)
        reef_generation_free(p->generations[i]);
    free(p->generations);
    free(p->states);
    *p = (swap_slots){0};
}

static void swap_generations(reef_trainer *trainer, swap_slots *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t g = p->first + i;
        reef_generation *generation = trainer->network.generations[g];
        reef_gate_state state = trainer->gating.states[g];
        trainer->network.generations[g] = p->generations[i];
        trainer->gating.states[g] = p->states[i];
        p->generations[i] = generation;
        p->states[i] = state;
        reef_activations_forget_generation(&trainer->acts, g);
    }
}

// Numbers without content, then the new generation, which is taken over.
static reef_status swap_slots_init(swap_slots *p,
                                   const consolidation *c,
                                   reef_generation *fresh,
                                   reef_error *err) {
    const reef_network *network = &c->trainer->network;
    uint32_t first = c->report->first, count = c->report->last - first + 1;
    *p = (swap_slots){.first = first, .count = count};
    p->generations = calloc(count, sizeof(*p->generations));
    p->states = calloc(count, sizeof(*p->states));
    if (p->generations == NULL || p->states == NULL) {
        reef_generation_free(fresh);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u generations", count);
    }
    // The distilled generation stands under the last number of the range; the numbers before it
    // become empty.
    p->generations[count - 1] = fresh;
    reef_gate_reset(&fresh->gate, &p->states[count - 1]); // it begins to read the stream here
    // An empty generation keeps its number, parent and stream positions. Timeline and snapshots
    // keep its number, and reef_distil_owner finds where its content went.
    for (uint32_t i = 0; i + 1 < count; i++) {
        reef_generation_record info = network->generations[first + i]->info;
        // Side 0 means no experts and no tensors.
        info.side = 0;
        reef_status status = reef_generation_new(&p->generations[i], &network->config, &info, err);
        if (status != REEF_OK) return status;
        reef_gate_reset(&p->generations[i]->gate, &p->states[i]);
        p->generations[i]->stored = true; // by reef_generations_replace
    }
    return REEF_OK;
}

// In the transaction of the commit, before anything is written.
static reef_status replace(void *context, reef_txn *txn, reef_error *err) {
    const consolidation *c = context;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < c->report->snapshot_count; i++)
        status = reef_snapshot_remove(txn, c->report->snapshots[i], err);
    return status == REEF_OK ? reef_generations_replace(txn, c->report->first, c->report->last, err)
                             : status;
}

static reef_status add_event(const consolidation *c, reef_error *err) {
    const reef_consolidation *report = c->report;
    return reef_state_event(
        c->trainer, err, "consolidate",
        "\"first\": %u, \"last\": %u, \"side\": %u, \"steps\": %llu, \"experts_before\": %llu, "
        "\"experts_after\": %llu, \"bytes_before\": %llu, \"bytes_after\": %llu, \"snapshots\": "
        "%zu",
        report->first, report->last, report->side, (unsigned long long)report->steps,
        (unsigned long long)report->experts_before, (unsigned long long)report->experts_after,
        (unsigned long long)report->bytes_before, (unsigned long long)report->bytes_after,
        report->snapshot_count);
}

// A trainer that could not commit has the old generations, and no event of new ones.
static reef_status commit_swapped(consolidation *c, swap_slots *p, reef_error *err) {
    reef_trainer *trainer = c->trainer;
    uint32_t first = c->report->first, last = c->report->last, current = trainer->current_kind;
    reef_kind_names names = trainer->kind_names;
    reef_status status = reef_kind_names_copy(&trainer->kind_names, &names, err);
    if (status != REEF_OK) {
        trainer->kind_names = names;
        return status;
    }
    reef_kind_names_merge(&trainer->kind_names, first, last);
    if (current >= first && current <= last) trainer->current_kind = last;
    // Deferred batches stay pending and are tested again, with the new generation.
    trainer->deferred_batches = 0;
    trainer->anomalous = 0;
    swap_generations(trainer, p);
    reef_kinds_set_consolidating(trainer, first, last, true);
    // The event is part of the commit: who reads the timeline sees the merge and its figures
    // together.
    status = add_event(c, err);
    size_t reported = status == REEF_OK;
    if (status == REEF_OK) status = reef_trainer_commit_after(trainer, replace, c, err);
    if (status == REEF_OK) {
        reef_kinds_drop_consolidated(trainer);
        reef_recognition_forget(trainer);
        reef_kind_names_release(&names);
        return reef_gating_copy(&trainer->ahead, &trainer->gating, err);
    }
    reef_kinds_set_consolidating(trainer, first, last, false);
    reef_kind_names_release(&trainer->kind_names);
    trainer->kind_names = names;
    trainer->current_kind = current;
    // The commit failed, so nothing on disk changed. Memory is put back in the same way, by
    // swapping again.
    if (reported) free(trainer->events[--trainer->event_count]);
    swap_generations(trainer, p);
    // No room for an error text: the status that matters is that of the commit.
    reef_status copied = reef_gating_copy(&trainer->ahead, &trainer->gating, NULL);
    return copied == REEF_OK ? status : copied;
}

static reef_status check_snapshots(const consolidation *c, reef_error *err) {
    const reef_consolidation *report = c->report;
    if (report->snapshot_count == 0 || c->options->drop_snapshots) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_INVALID,
        "snapshot %s%s %s a generation of %u to %u as it is; what is given up goes for "
        "good: allow that with --drop-snapshots, or %s",
        report->snapshots[0], report->snapshot_count > 1 ? " (one of several)" : "",
        c->first_damaged ? "is damaged and may need" : "needs", report->first, report->last,
        c->first_damaged ? "remove it" : "choose a later range");
}

static reef_status carry_out(consolidation *c, reef_error *err) {
    reef_consolidation *report = c->report;
    reef_generation *fresh = NULL;
    swap_slots p = {0};
    reef_distil distil = {
        .trainer = c->trainer,
        .first = report->first,
        .last = report->last,
        .side = report->side,
        .dtype = reef_generation_seal_dtype(&c->trainer->network.config),
        .steps = report->steps,
        .samples = c->samples,
        .sample_count = c->sample_count,
        .progress = c->options->progress,
        .context = c->options->context,
    };
    // A clean start: the distilled bits must not depend on how much was trained since the last
    // commit.
    reef_status status =
        reef_trainer_commit(c->trainer, NULL, err); // so that nothing depends on when
    if (status == REEF_OK) status = reef_trainer_pin(c->trainer, err);
    if (status != REEF_OK) return status;
    reef_generation *open = reef_open_generation(c->trainer);
    // The teacher speaks as readers hear it, with averaged weights; training continues with the raw
    // ones.
    reef_generation_exchange(
        open, &c->trainer->network.config); // the teacher is the model as it is evaluated
    status = reef_distil_run(&distil, &fresh, err);
    reef_generation_exchange(open, &c->trainer->network.config);
    if (status != REEF_OK) return status;
    report->gate_leak = (double)fresh->gate_leak;
    report->gate_detect = (double)fresh->gate_detect;
    report->bytes_after = generation_bytes(fresh) + reef_generation_memory_bytes(&fresh->memory);
    // From here on `p` owns the distilled generation; after the swap it owns those that were
    // replaced.
    status = swap_slots_init(&p, c, fresh, err);
    if (status == REEF_OK)
        status = reef_kinds_consolidate(c->trainer, report->first, report->last, fresh, err);
    if (status == REEF_OK) status = commit_swapped(c, &p, err);
    swap_slots_release(&p); // the old ones, or after a failure the new one
    return status;
}

reef_status reef_trainer_consolidate(reef_trainer *trainer,
                                     const reef_consolidation_options *options,
                                     reef_consolidation *report,
                                     reef_error *err) {
    *report = (reef_consolidation){0};
    reef_status status = reef_kind_allows(trainer->ops->no_consolidation, err);
    if (status != REEF_OK) return status;
    consolidation c = {.trainer = trainer, .options = options, .report = report};
    status = reef_trainer_pin(trainer, err);
    if (status == REEF_OK) status = plan_merge(&c, err);
    if (status == REEF_OK && !options->dry_run) status = check_snapshots(&c, err);
    if (status == REEF_OK) status = measure_before(&c, err);
    // A dry run has its plan and its losses by now, and has changed nothing.
    if (status != REEF_OK || options->dry_run) goto cleanup;
    status = carry_out(&c, err);
    // The commit released the rows; measuring needs them again.
    if (status == REEF_OK) status = reef_trainer_pin(trainer, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_losses(&c, true, err);
    report->fired_after = fired_per_byte(&c, false);

cleanup:
    free(c.samples);
    free(c.fired);
    return status;
}
