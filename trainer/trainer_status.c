// What a trainer says of itself.
#include "trainer_internal.h"
#include "vector.h"

#include <math.h>
#include <stdio.h>

static void status_of_vector(const reef_trainer *trainer, reef_trainer_status *out) {
    out->anomalous = trainer->vector->deferred_batches;
    out->bits_per_byte = reef_vector_expected_errors(trainer->vector);
    if (isnan(out->bits_per_byte)) out->bits_per_byte = trainer->last_bits; // too few so far
    out->experts_open = trainer->vector->network.generations[0]->expert_count;
    out->experts = out->experts_open * trainer->vector->network.generation_count;
}

void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out) {
    const reef_generation *open = reef_open_generation(trainer);
    double median, spread;
    reef_drift_level(&trainer->drift, &median, &spread);
    *out = (reef_trainer_status){
        .step = trainer->step,
        .stream_bytes = trainer->stream_bytes,
        .pending_bytes = trainer->pending_bytes,
        .skipped_bytes = trainer->skipped_bytes,
        .recycled_experts = trainer->recycled_experts,
        .generation = open->info.generation,
        .generation_step = trainer->generation_step,
        .task = trainer->strategy.task,
        .opened_at = open->info.opened_at,
        .anomalous = trainer->anomalous,
        .bits_per_byte = trainer->drift.count > 0 ? median : (double)NAN,
        .last_bits_per_byte = trainer->last_bits,
        .learning_rate = (double)trainer->learning_rate,
        .dirty_since_step = trainer->step - trainer->committed_step,
        .seconds_forward = trainer->seconds_forward,
        .seconds_backward = trainer->seconds_backward,
        .seconds_router = trainer->acts.seconds_router,
        .seconds_experts = trainer->acts.seconds_experts,
        .seconds_update = trainer->seconds_update + trainer->acts.seconds_update,
        .seconds_commit = trainer->seconds_commit,
    };
    snprintf(out->strategy, sizeof out->strategy, "%s",
             reef_config_word(&trainer->network.config, "strategy"));
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        for (uint32_t l = 0; l < trainer->network.config.layers; l++)
            out->experts += trainer->network.generations[g]->expert_tables[l].expert_count;
    for (uint32_t l = 0; l < trainer->network.config.layers; l++)
        out->experts_open += open->expert_tables[l].expert_count;
    out->drift = out->drift_limit = (double)NAN;
    if (trainer->vector != NULL) {
        status_of_vector(trainer, out);
    } else if (trainer->drift.count > 0) {
        out->drift_limit = reef_drift_limit(median, spread, &trainer->network.config);
        if (spread > 0 && !isnan(trainer->last_bits)) // there has been a batch since the start
            out->drift = (trainer->last_bits - median) / spread;
    }
}
