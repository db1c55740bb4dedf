// A training batch: windows of the stream and of old data, and which generations fire for each of
// their tokens.
#include "batch.h"
#include "trainer_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

size_t reef_batch_windows(const reef_config *config) {
    return (size_t)config->batch + REEF_RETAIN_WINDOWS;
}

reef_status reef_batch_reserve(reef_trainer *trainer, size_t generations, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // `stride` counts the tokens of all windows, padding included: the flags of generation g begin
    // at g * stride.
    size_t stride = reef_batch_windows(config) * config->context;
    if (generations <= trainer->batch.generations) return REEF_OK;
    uint8_t *fire = realloc(trainer->batch.fire, generations * stride);
    // Each array keeps its new address at once. If a later one fails, nothing is lost or freed
    // twice, and capacity stays as it was.
    if (fire != NULL) trainer->batch.fire = fire;
    float *margins = realloc(trainer->batch.margins, generations * stride * sizeof(*margins));
    if (margins != NULL) trainer->batch.margins = margins;
    // Tokens and targets of a text that is read aside, then its flags: one block, cut by
    // reef_batch_read_fire.
    uint8_t *reading = realloc(trainer->batch.reading, (2 + generations) * stride);
    if (reading != NULL) trainer->batch.reading = reading;
    if (fire == NULL || margins == NULL || reading == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the firing of %zu generations",
                         generations);
    trainer->batch.generations = generations;
    return REEF_OK;
}

void reef_batch_place(reef_trainer *trainer, size_t window, const uint8_t *bytes) {
    size_t size = trainer->network.config.context;
    memcpy(trainer->batch.tokens + window * size, bytes, size);
    memcpy(trainer->batch.targets + window * size, bytes + 1, size);
}

size_t reef_batch_stride(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    return reef_batch_windows(config) * config->context;
}

uint8_t *reef_batch_read_fire(const reef_trainer *trainer, size_t g) {
    return trainer->batch.reading + (2 + g) * reef_batch_stride(trainer);
}

reef_status reef_batch_read(reef_trainer *trainer,
                            const reef_network *network,
                            const uint8_t *bytes,
                            size_t size,
                            reef_batch *out,
                            reef_error *err) {
    size_t T = network->config.context, windows = (size + T - 1) / T,
           stride = reef_batch_stride(trainer);
    uint8_t *tokens = trainer->batch.reading, *targets = tokens + stride;
    // Callers cut texts to a batch and reserve for every generation; both are our own promises, so
    // asserts.
    assert(network->generation_count <= trainer->batch.generations && windows * T <= stride);
    // What the last T-window lacks is padded: attention is causal, so nothing before it notices.
    memset(tokens, 0, windows * T);
    memset(targets, 0, windows * T);
    memcpy(tokens, bytes, size);
    memcpy(targets, bytes + 1, (size - 1));
    *out = (reef_batch){
        .windows = windows,
        .tokens = tokens,
        .targets = targets,
        .fire = reef_batch_read_fire(trainer, 0),
        .fire_stride = stride,
    };
    // A state of its own: reading a text aside must not move the gates of the stream.
    reef_gating gating = {0};
    reef_status status = reef_gating_init(&gating, network, err);
    if (status == REEF_OK)
        reef_gating_decide(&gating, network, out, size, reef_batch_read_fire(trainer, 0),
                           trainer->batch.margins, stride);
    reef_gating_release(&gating);
    return status;
}

reef_batch reef_batch_make(reef_trainer *trainer,
                           size_t windows,
                           size_t retain_windows,
                           bool gradient) {
    // Nothing is copied: the batch lends the trainer's arrays and is good until the next one is
    // placed.
    return (reef_batch){
        .windows = windows + retain_windows,
        .retain_windows = retain_windows,
        .tokens = trainer->batch.tokens,
        .targets = trainer->batch.targets,
        .weight = gradient ? trainer->batch.weight : NULL,
        .fire = trainer->batch.fire,
        .fire_stride = reef_batch_stride(trainer),
    };
}

void reef_batch_decide(reef_trainer *trainer, const uint8_t *bytes, reef_gating *gating) {
    const reef_config *config = &trainer->network.config;
    // `bytes` has one more token than the batch. Targets are tokens shifted by one, so window w
    // ends with the first token of window w + 1.
    size_t size = config->context;
    for (size_t w = 0; w < config->batch; w++) reef_batch_place(trainer, w, bytes + w * size);
    reef_batch batch = reef_batch_make(trainer, config->batch, 0, false);
    // Only the batch's own windows move the gates; a retain window comes later and is decided
    // elsewhere.
    reef_gating_decide(gating, &trainer->network, &batch, reef_batch_bytes(config),
                       trainer->batch.fire, trainer->batch.margins, reef_batch_stride(trainer));
}
