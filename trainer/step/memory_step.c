// See memory_step.h.
#include "memory_step.h"
#include "kind_memories.h"

void reef_memory_step_refresh_stats(reef_trainer *trainer) {
    const reef_memory *memory = reef_open_kind_memory(trainer);
    if (memory != NULL)
        reef_memory_refresh_stats(memory, &trainer->memory.stats);
    else
        trainer->memory.stats = (reef_memory_stats){0};
}

// What was seen of a memory, and of now what costs nothing. memory  NULL: it is not loaded
static void describe(reef_memory_status *out,
                     const reef_memory *memory,
                     const reef_memory_stats *seen,
                     uint64_t bytes_max) {
    *out = (reef_memory_status){.stats = *seen};
    if (memory != NULL) {
        out->stats.learned_bytes = reef_memory_learned_bytes(memory);
        reef_memory_inputs(memory, out->shares, out->hits);
    }
    out->stats.bytes_max = bytes_max;
}

// Of a kind that came back nothing is loaded before it is learned, by a daemon that began just now for example.
static void describe_kind(const reef_trainer *trainer, uint32_t kind, reef_memory_status *out) {
    reef_memory_stats seen = trainer->memory.stats;
    const reef_memory *memory =
        kind == reef_open_kind(trainer) ? reef_open_kind_memory(trainer) : NULL;
    if (memory == NULL) memory = reef_kind_view_loaded(trainer, kind, &seen);
    describe(out, memory, &seen, trainer->network.config.context_memory);
}

void reef_memory_step_describe(const reef_trainer *trainer, reef_trainer_status *out) {
    describe_kind(trainer, reef_open_kind(trainer), &out->memory);
    out->kind_memory = out->memory;
    if (out->kind != reef_open_kind(trainer)) describe_kind(trainer, out->kind, &out->kind_memory);
}
