// A probe of fresh batches before a generation is opened for them: their loss, and how much of them
// no gate claims.
#include "batch.h"
#include "growth_policy.h"
#include "step.h"

size_t reef_probe_count(size_t batches) {
    return batches < REEF_PROBE_BATCHES ? batches : REEF_PROBE_BATCHES;
}

// Tokens of the batch just scored on which no gate fires.
static size_t count_unclaimed(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    size_t stride = reef_step_windows(config) * config->context, count = 0;
    for (size_t t = 0; t < reef_batch_tokens(config); t++) {
        size_t fired = 0;
        for (size_t g = 1; g < trainer->network.generation_count; g++)
            fired += trainer->fire[g * stride + t];
        count += fired == 0;
    }
    return count;
}

reef_status reef_probe_walk(reef_trainer *trainer,
                            const uint8_t *fresh,
                            size_t batches,
                            reef_probe_visit visit,
                            void *context,
                            double *unclaimed,
                            reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // All batches are decided about, since gates must read the stream in order. Only some of them
    // are run forward, spread evenly.
    size_t size = reef_batch_bytes(config), probe_count = reef_probe_count(batches), probed = 0;
    size_t silent = 0;
    reef_gating moving = {0}, before = {0};
    reef_status status = reef_gating_copy(&moving, &trainer->gating, err);
    for (size_t b = 0; status == REEF_OK && b < batches; b++) {
        const uint8_t *bytes = fresh + b * size;
        // The pass starts from the gates before the decision: deciding moves them.
        status = reef_gating_copy(&before, &moving, err);
        bool answered;
        if (status == REEF_OK) status = reef_step_decide(trainer, bytes, &moving, &answered, err);
        if (status != REEF_OK) break;
        silent += count_unclaimed(trainer);
        // Integer spacing: the same batches are probed in every run.
        if (probed == probe_count || b != probed * batches / probe_count) continue;
        double bits;
        status = reef_step_forward(trainer, bytes, &before, &bits, err);
        if (status == REEF_OK) visit(context, probed++, bits);
    }
    reef_gating_release(&moving);
    reef_gating_release(&before);
    if (unclaimed != NULL && batches > 0)
        *unclaimed = (double)silent / (double)(batches * reef_batch_tokens(config));
    return status;
}
