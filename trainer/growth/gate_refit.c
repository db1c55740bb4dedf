// When the gate of the open generation is fitted, and on which windows: see router/reef_router.h
// for how.
//
// Half of the old windows of the reservoir fit, the other half calibrate; new are the generation's
// own sample and, at a boundary, the batches that were deferred. What is stored as the gate's leak
// was measured on windows that its weights have never seen.
#include "gate_refit.h"
#include "batch.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_MIN 4     // of each kind, or there is nothing to fit a gate on
#define LEAK_MAX 0.005f   // share of old bytes on which a new gate may fire: one in 200
#define GATE_FIRST_FIT 32 // steps of a generation before its gate is fitted from its own sample

bool reef_growth_gate_due(const reef_trainer *trainer) {
    if (reef_open_generation(trainer)->info.generation == 0) return false;
    uint64_t due = GATE_FIRST_FIT;
    while (due < trainer->generation_step) due *= 4;
    return due == trainer->generation_step;
}

// With too few windows the gate stays as it is.
static reef_status fit_gate(reef_generation *generation,
                            const reef_config *config,
                            const reef_gate_windows *old_fit,
                            const reef_gate_windows *old_calibrate,
                            const reef_gate_windows *young,
                            reef_error *err) {
    if (!reef_config_has_gates(config)) return REEF_OK;
    // Too little data to tell the domains apart: the gate stays as it is (at first: never fires).
    if (young->count < WINDOWS_MIN || old_calibrate->count < WINDOWS_MIN) return REEF_OK;
    reef_gate_fit fit = {.leak_max = LEAK_MAX};
    reef_status status =
        reef_gate_train(&generation->gate, old_fit, old_calibrate, young, &fit, err);
    if (status != REEF_OK) return status;
    generation->gate_leak = fit.leak;
    generation->gate_detect = fit.detect;
    return REEF_OK;
}

// The windows of the new domain: the generation's own sample, and what is known to be its data
// already.
static void add_fresh(const reef_reservoir *reservoir,
                      reef_gate_windows *young,
                      const uint8_t **bytes,
                      size_t *sizes,
                      const uint8_t *fresh,
                      size_t fresh_bytes) {
    size_t count = young->count, window = reservoir->window_bytes;
    memcpy(bytes, young->bytes, count * sizeof(*bytes));
    memcpy(sizes, young->sizes, count * sizeof(*sizes));
    // Cut into windows of the reservoir's size, so that fresh data and sampled data weigh alike.
    for (size_t at = 0; at + window <= fresh_bytes; at += window) {
        bytes[count] = fresh + at;
        sizes[count++] = window;
    }
    *young = (reef_gate_windows){.count = count, .bytes = bytes, .sizes = sizes};
}

// Which older generations learned the kind that this one continues? (generation), the caller's to
// free. NULL: it continues none.
static reef_status find_own(const reef_trainer *trainer,
                            const reef_generation *generation,
                            bool **out,
                            reef_error *err) {
    const reef_generation_record *info = &generation->info;
    *out = NULL;
    if (info->continues == 0) return REEF_OK;
    *out = calloc(info->generation, sizeof(**out));
    if (*out == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a gate's windows");
    for (uint32_t g = 0; g < info->generation; g++)
        (*out)[g] = reef_generation_kind(&trainer->network.generations[g]->info) ==
                    reef_generation_kind(info);
    return REEF_OK;
}

reef_status reef_growth_fit_gate(reef_trainer *trainer,
                                 reef_generation *generation,
                                 const uint8_t *fresh,
                                 size_t fresh_bytes,
                                 reef_error *err) {
    const reef_reservoir *reservoir = &trainer->net.reservoir;
    // Generation 0 answers wherever nobody else does; it has no gate.
    if (generation->info.generation == 0) return REEF_OK;
    reef_reservoir_lists lists;
    bool *own;
    reef_status status = find_own(trainer, generation, &own, err);
    if (status != REEF_OK) return status;
    status = reef_reservoir_lists_init(&lists, reservoir, generation->info.generation, own, err);
    free(own);
    if (status != REEF_OK) return status;
    // Room for the sample and for every fresh window.
    size_t most = lists.young.count + fresh_bytes / reservoir->window_bytes + 1;
    const uint8_t **bytes = calloc(most, sizeof(*bytes));
    size_t *sizes = calloc(most, sizeof(*sizes));
    if (bytes == NULL || sizes == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the windows of a gate");
        goto cleanup;
    }
    reef_gate_windows young = lists.young;
    add_fresh(reservoir, &young, bytes, sizes, fresh, fresh_bytes);
    status = fit_gate(generation, &trainer->network.config, &lists.old_fit, &lists.old_calibrate,
                      &young, err);

cleanup:
    free(bytes);
    free(sizes);
    reef_reservoir_lists_release(&lists);
    return status;
}
