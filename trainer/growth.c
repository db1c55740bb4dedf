// The life of generations: a boundary seals one and opens the next, gates are fitted, grids grow.
#include "learner.h"

#include <stdlib.h>
#include <string.h>

#define GATE_FIRST_FIT 32  // steps of a generation before its gate is fitted from its own sample
#define GATE_WINDOWS_MIN 4 // of each kind, or there is nothing to fit on

// ---- gate ----------------------------------------------------------------------------------------

bool reef_growth_gate_due(const reef_trainer *trainer) {
    if (reef_open_generation(trainer)->info.generation == 0) return false;
    uint64_t due = GATE_FIRST_FIT;
    while (due < trainer->generation_step) due *= 4;
    return due == trainer->generation_step;
}

// The windows of the new domain: the generation's own sample, and what is known to be its data already.
static size_t add_fresh(const reef_reservoir *reservoir,
                        reef_gate_windows *young,
                        const uint8_t **bytes,
                        size_t *sizes,
                        const uint8_t *fresh,
                        size_t fresh_bytes) {
    size_t count = young->count, window = reservoir->window_bytes;
    memcpy(bytes, young->bytes, count * sizeof *bytes);
    memcpy(sizes, young->sizes, count * sizeof *sizes);
    for (size_t at = 0; at + window <= fresh_bytes; at += window) {
        bytes[count] = fresh + at;
        sizes[count++] = window;
    }
    *young = (reef_gate_windows){.count = count, .bytes = bytes, .sizes = sizes};
    return count;
}

reef_status reef_growth_fit_gate(reef_trainer *trainer,
                                 reef_gen *gen,
                                 const uint8_t *fresh,
                                 size_t fresh_bytes,
                                 reef_error *err) {
    const reef_config *config = &trainer->net.config;
    const reef_reservoir *reservoir = &trainer->reservoir;
    if (gen->info.generation == 0) return REEF_OK;
    reef_reservoir_lists lists;
    reef_status status = reef_reservoir_lists_init(&lists, reservoir, gen->info.generation, err);
    if (status != REEF_OK) return status;
    size_t most = lists.young.count + fresh_bytes / reservoir->window_bytes + 1;
    const uint8_t **bytes = calloc(most, sizeof *bytes);
    size_t *sizes = calloc(most, sizeof *sizes);
    if (bytes == NULL || sizes == NULL) {
        status = reef_fail(err, REEF_NO_MEMORY, "no memory for the windows of a gate");
        goto cleanup;
    }
    reef_gate_windows young = lists.young;
    size_t count = add_fresh(reservoir, &young, bytes, sizes, fresh, fresh_bytes);
    // Too little data to tell the domains apart: the gate stays as it is (at first: never fires).
    if (count < GATE_WINDOWS_MIN || lists.old_calibrate.count < GATE_WINDOWS_MIN) goto cleanup;
    reef_gate_fit fit = {.leak_max = config->leak_max, .decay = config->gate_decay};
    status = reef_gate_train(&gen->gate, &lists.old_fit, &lists.old_calibrate, &young, &fit, err);
    if (status != REEF_OK) goto cleanup;
    gen->gate_leak = fit.leak;
    gen->gate_detect = fit.detect;

cleanup:
    free(bytes);
    free(sizes);
    reef_reservoir_lists_release(&lists);
    return status;
}

// ---- a boundary ----------------------------------------------------------------------------------

static reef_status open_next(reef_gen **out,
                             const reef_trainer *trainer,
                             const reef_gen *open,
                             reef_error *err) {
    const reef_config *config = &trainer->net.config;
    reef_generation info = {
        .generation = open->info.generation + 1,
        .parent = open->info.generation,
        .side = config->side_new,
        .first_id = open->info.first_id + (uint64_t)open->info.side * open->info.side,
        .dtype = REEF_F32,
        .opened_step = trainer->step,
        .opened_at = trainer->stream_bytes,
    };
    *out = NULL;
    if (info.generation >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_FULL, "the pool has %u generations, the most there can be",
                         info.generation);
    reef_status status = reef_gen_new(out, config, &info, err);
    if (status == REEF_OK) reef_gen_initialise(*out, config, open);
    return status;
}

// The new generation's gate starts at its own beginning; the others go on through the stream.
static reef_status extend_firing(reef_firing *firing, const reef_net *net, reef_error *err) {
    reef_gate_state *states = realloc(firing->states, net->gen_count * sizeof *states);
    if (states == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu gates", net->gen_count);
    firing->states = states;
    for (size_t g = firing->gen_count; g < net->gen_count; g++)
        reef_gate_reset(&net->gens[g]->gate, &states[g]);
    firing->gen_count = net->gen_count;
    return REEF_OK;
}

static reef_status report_boundary(reef_trainer *trainer, const char *reason, reef_error *err) {
    const reef_gen *sealed = trainer->net.gens[trainer->net.gen_count - 2];
    const reef_gen *open = reef_open_generation(trainer);
    reef_status status = reef_state_event(
        trainer, err, "seal", "\"sealed\": %u, \"reason\": \"%s\", \"bits_per_byte\": %.4f",
        sealed->info.generation, reason, sealed->reference_median);
    if (status != REEF_OK) return status;
    return reef_state_event(
        trainer, err, "open",
        "\"reason\": \"%s\", \"side\": %u, \"gate_leak\": %.5f, \"gate_detect\": %.5f", reason,
        open->info.side, (double)open->gate_leak, (double)open->gate_detect);
}

// Memory only: the next commit writes the sealed generation and the new one in one transaction, so a
// full disk or a crash here costs nothing. An error after the generations were swapped (no memory) leaves
// a trainer that is only good for reef_trainer_close.
reef_status reef_growth_boundary(reef_trainer *trainer,
                                 const char *reason,
                                 const uint8_t *fresh,
                                 size_t fresh_bytes,
                                 reef_error *err) {
    const reef_config *config = &trainer->net.config;
    reef_net *net = &trainer->net;
    reef_gen *open = reef_open_generation(trainer), *sealed = NULL, *next = NULL;
    reef_status status = reef_growth_fit_gate(trainer, open, NULL, 0, err);
    if (status == REEF_OK)
        status = open_next(&next, trainer, open, err); // copies the unfolded query
    if (status == REEF_OK) status = reef_net_reserve(net, net->gen_count + 1, err);
    if (status == REEF_OK) status = reef_step_reserve(trainer, net->gen_count + 1, err);
    if (status != REEF_OK) goto cleanup;
    reef_drift_level(&trainer->drift, &open->reference_median, &open->reference_spread);
    open->info.sealed_step = trainer->step;
    open->info.sealed_at = trainer->stream_bytes;
    status = reef_gen_seal(&sealed, open, config, err);
    if (status != REEF_OK) goto cleanup;

    reef_pass_forget_generation(&trainer->pass, net->gen_count - 1);
    reef_gen_free(open);
    net->gens[net->gen_count - 1] = sealed;
    net->gens[net->gen_count++] = next;
    sealed = NULL; // the net owns both now
    next = NULL;
    reef_reservoir_rejuvenate(&trainer->reservoir);
    reef_drift_reset(&trainer->drift);
    trainer->generation_step = 0;
    status = reef_growth_fit_gate(trainer, reef_open_generation(trainer), fresh, fresh_bytes, err);
    if (status == REEF_OK) status = extend_firing(&trainer->firing, net, err);
    if (status == REEF_OK) status = extend_firing(&trainer->ahead, net, err);
    if (status == REEF_OK) status = report_boundary(trainer, reason, err);

cleanup:
    reef_gen_free(sealed);
    reef_gen_free(next);
    return status;
}

// ---- growing in place ----------------------------------------------------------------------------

reef_status reef_growth_enlarge(reef_trainer *trainer, uint32_t side, reef_error *err) {
    reef_gen *open = reef_open_generation(trainer), *grown = NULL;
    uint32_t before = open->info.side;
    if (side > REEF_SIDE_MAX)
        return reef_fail(err, REEF_INVALID, "side %u is more than the %u sub-keys there can be",
                         side, REEF_SIDE_MAX);
    reef_status status = reef_gen_grow(&grown, open, &trainer->net.config, side, err);
    if (status != REEF_OK) return status;
    reef_pass_forget_generation(&trainer->pass, trainer->net.gen_count - 1);
    reef_gen_free(open);
    trainer->net.gens[trainer->net.gen_count - 1] = grown;
    return reef_state_event(trainer, err, "grow", "\"side_before\": %u, \"side\": %u", before,
                            side);
}
