// See memory_batch.h.
#include "memory_batch.h"

#define STATS_EVERY_MIN (UINT64_C(16) << 10)
#define STATS_EVERY_MAX (UINT64_C(1) << 20)
#define STATS_SHARE 8

void reef_memory_refresh_stats(const reef_memory *memory, reef_memory_stats *seen) {
    uint64_t learned = reef_memory_learned_bytes(memory), every = seen->learned_bytes / STATS_SHARE;
    if (every < STATS_EVERY_MIN) every = STATS_EVERY_MIN;
    if (every > STATS_EVERY_MAX) every = STATS_EVERY_MAX;
    // A memory that has learned less than the last one is another memory.
    bool other = seen->learned_bytes == 0 || learned < seen->learned_bytes;
    if (other || learned - seen->learned_bytes >= every) reef_memory_read_stats(memory, seen);
}

reef_status reef_memory_learn_batch(const reef_config *config,
                                    reef_generation_memory *memory,
                                    const uint8_t *bytes,
                                    uint64_t begin,
                                    const reef_net_prediction *predictions,
                                    float *bits,
                                    reef_error *err) {
    uint64_t bytes_max = config->context_memory;
    reef_status status = REEF_OK;
    // A batch is learned by its targets, which the net spoke about. Its first byte is one of them
    // only where the batch before it was learned as well.
    if (memory->memory == NULL || memory->next != begin + 1)
        status = reef_generation_memory_learn(memory, bytes_max, begin, bytes, 1, NULL, NULL, err);
    if (status != REEF_OK) return status;
    return reef_generation_memory_learn(memory, bytes_max, begin + 1, bytes + 1,
                                        reef_batch_bytes(config), predictions, bits, err);
}
