// See batch.h.
#include "batch.h"

#include <string.h>

void reef_batch_place(reef_trainer *trainer, size_t window, const uint8_t *bytes) {
    size_t size = trainer->network.config.context;
    memcpy(trainer->batch.tokens + window * size, bytes, size);
    memcpy(trainer->batch.targets + window * size, bytes + 1, size);
}

size_t reef_batch_place_text(reef_trainer *trainer, const uint8_t *bytes, size_t count) {
    const reef_config *config = &trainer->network.config;
    size_t windows = count == 0 ? 0 : (count - 1) / config->context;
    if (windows > config->batch) windows = config->batch;
    for (size_t w = 0; w < windows; w++) reef_batch_place(trainer, w, bytes + w * config->context);
    return windows;
}

reef_batch reef_batch_make(reef_trainer *trainer, size_t windows, size_t fires, bool gradient) {
    // Nothing is copied: the batch lends the trainer's arrays and is good until the next one is
    // placed.
    return (reef_batch){
        .windows = windows,
        .tokens = trainer->batch.tokens,
        .targets = trainer->batch.targets,
        .weight = gradient ? trainer->batch.weight : NULL,
        .fires = fires,
    };
}
