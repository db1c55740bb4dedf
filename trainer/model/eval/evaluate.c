// A text read by a copy of some state of the pool: its loss and logits.
//
// A text is one stream: cut into windows of the model's context, with gates updated from window to
// window; only the windows of generations that fire cost anything.
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_model_check_text(const reef_model *model,
                                  const uint8_t *bytes,
                                  size_t count,
                                  reef_error *err) {
    if (model->kind->no_text != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s", model->kind->no_text);
    return reef_tokens_check(&model->network.config, "the text", 0, bytes, count, err);
}

// What the last window lacks is padded: attention is causal, so nothing before it notices.
reef_status reef_model_decide(reef_model *model,
                              const reef_network *network,
                              reef_gating *gating,
                              const uint8_t *bytes,
                              size_t count,
                              const uint8_t *next,
                              reef_batch *out,
                              bool *answered,
                              reef_error *err) {
    size_t T = network->config.context, windows = (count + T - 1) / T, rows = windows * T;
    size_t each = reef_token_bytes(&network->config);
    // Zero is a valid token, and its losses are not read.
    memset(model->tokens, 0, rows * each);
    memset(model->targets, 0, rows * each);
    memcpy(model->tokens, bytes, count * each);
    memcpy(model->targets, bytes + each, (count - 1) * each);
    // Without a next token the last target stays 0, and its loss is not counted.
    if (next != NULL) memcpy(model->targets + (count - 1) * each, next, each);
    *out = (reef_batch){
        .windows = windows,
        .tokens = model->tokens,
        .targets = model->targets,
        .fire = model->fire,
        .fire_stride = model->stride,
    };
    reef_gating_means means = {network, &model->acts, model->workers};
    return reef_gating_decide(gating, &means, out, count, model->fire, model->margins,
                              model->stride, answered, err);
}

reef_status reef_model_run(reef_model *model,
                           reef_gating *gating,
                           const uint8_t *bytes,
                           size_t count,
                           const uint8_t *next,
                           reef_error *err) {
    reef_batch batch;
    bool answered;
    // A model in memory renews nothing; one read in place lets the writer have its pages here.
    reef_status status = reef_residency_renew(&model->residency, &model->network, err);
    if (status == REEF_OK)
        status = reef_model_decide(model, &model->network, gating, bytes, count, next, &batch,
                                   &answered, err);
    // Gates that read losses have run the pass already.
    if (status != REEF_OK || answered) return status;
    return reef_network_forward(&model->acts, &model->network, model->workers, &batch,
                                REEF_PASS_EVALUATE, err);
}

reef_status reef_model_run_piece(reef_model *model,
                                 reef_gating *gating,
                                 const uint8_t *bytes,
                                 size_t all,
                                 size_t at,
                                 size_t *tokens,
                                 reef_error *err) {
    size_t each = reef_token_bytes(&model->network.config);
    *tokens = all - at < model->stride ? all - at : model->stride;
    const uint8_t *next = at + *tokens < all ? bytes + (at + *tokens) * each : NULL;
    return reef_model_run(model, gating, bytes + at * each, *tokens, next, err);
}

static void count_fired(const reef_model *model, size_t count, uint64_t *fired) {
    for (size_t g = 1; g < model->network.generation_count; g++)
        for (size_t t = 0; t < count; t++) fired[g] += model->fire[g * model->stride + t];
}

reef_status reef_model_score(reef_model *model,
                             const uint8_t *bytes,
                             size_t count,
                             float *bits,
                             reef_score *score,
                             void (*progress)(void *context, size_t done),
                             void *context,
                             reef_error *err) {
    size_t each = reef_token_bytes(&model->network.config), all = count / each;
    reef_status status = reef_model_check_text(model, bytes, count, err);
    if (status != REEF_OK) return status;
    // The first token has no context in a stream and is charged log2(vocab) below.
    if (all < 2)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a text of %zu %s has nothing to predict; give 2 or more", all,
                         each == 1 ? "bytes" : "token ids");
    reef_gating gating = {0};
    double nats = 0.0;
    uint64_t *fired = calloc(model->network.generation_count, sizeof(*fired));
    status = reef_gating_init(&gating, &model->network, err);
    if (status == REEF_OK && fired == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count");
    if (bits != NULL) bits[0] = (float)log2(model->network.config.vocab);
    // As many windows at a time as the pass has room for. Gates keep their state, so the cut
    // changes no bit.
    for (size_t at = 0; status == REEF_OK && at + 1 < all; at += model->stride) {
        size_t tokens = all - 1 - at < model->stride ? all - 1 - at : model->stride;
        status = reef_model_run(model, &gating, bytes + at * each, tokens,
                                bytes + (at + tokens) * each, err);
        if (status != REEF_OK) break;
        for (size_t t = 0; t < tokens; t++) nats += model->acts.loss[t];
        for (size_t t = 0; bits != NULL && t < tokens; t++)
            bits[at + 1 + t] = (float)(model->acts.loss[t] / REEF_LN2);
        count_fired(model, tokens, fired);
        if (progress != NULL) progress(context, (at + tokens) * each);
    }
    if (status == REEF_OK) {
        score->bytes = all - 1;
        score->bits = nats / REEF_LN2;
        score->bits_per_byte = score->bits / (double)(all - 1);
        // Generation 0 takes part in every token.
        for (size_t g = 0; score->fire_share != NULL && g < model->network.generation_count; g++)
            score->fire_share[g] = g == 0 ? 1.0 : (double)fired[g] / (double)(all - 1);
    }
    reef_gating_release(&gating);
    free(fired);
    return status;
}

reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err) {
    reef_gating gating = {0};
    reef_status status = reef_model_check_text(model, bytes, count, err);
    if (status == REEF_OK) status = reef_gating_init(&gating, &model->network, err);
    size_t all = count / reef_token_bytes(&model->network.config), V = model->network.config.vocab;
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        // The last piece may be short; its padding is not copied.
        status = reef_model_run_piece(model, &gating, bytes, all, at, &tokens, err);
        if (status == REEF_OK)
            memcpy(logits + at * V, model->acts.logits, tokens * V * sizeof(*logits));
    }
    reef_gating_release(&gating);
    return status;
}
