// The status of a trainer.
#include "recognition.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdio.h>

void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out) {
    const reef_generation *open = reef_open_generation(trainer);
    *out = (reef_trainer_status){
        .step = trainer->step,
        .stream_bytes = trainer->stream_bytes,
        .pending_bytes = trainer->stream.pending_bytes,
        .not_learned_bytes = trainer->stream.not_learned_bytes,
        .learns_all = trainer->store != NULL && reef_learns_all(&trainer->network.config),
        .visited_bytes = trainer->kinds.visited_bytes,
        .generation = open->info.generation,
        .generation_step = trainer->generation_step,
        .opened_at = open->info.opened_at,
        .bits_per_byte = (double)NAN,
        .last_bits_per_byte = trainer->net.last_bits,
        .learning_rate = (double)trainer->net.learning_rate,
        .dirty_since_step = trainer->step - trainer->committed_step,
        .seconds_forward = trainer->seconds.forward,
        .seconds_backward = trainer->seconds.backward,
        .seconds_router = trainer->net.acts.seconds_router,
        .seconds_experts = trainer->net.acts.seconds_experts,
        .seconds_update = trainer->seconds.update + trainer->net.acts.seconds_update,
        .seconds_commit = trainer->seconds.commit,
    };
    out->kind =
        reef_recognises_by_contexts(trainer) ? trainer->kinds.current : open->info.generation;
    snprintf(out->kind_name, sizeof(out->kind_name), "%s",
             reef_kind_names_of(&trainer->kinds.names, out->kind));
    // Counted instead of kept: generations come, go and grow.
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        out->kinds += reef_generation_begins_kind(&trainer->network.generations[g]->info);
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        for (uint32_t l = 0; l < trainer->network.config.layers; l++)
            out->experts += trainer->network.generations[g]->expert_tables[l].expert_count;
    for (uint32_t l = 0; l < trainer->network.config.layers; l++)
        out->experts_open += open->expert_tables[l].expert_count;
    trainer->ops->describe(trainer, out);
}
