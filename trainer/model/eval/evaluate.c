// A text read by a copy of some state of the pool: its loss and logits.
//
// A text is one stream: cut into windows of the model's context, with gates updated from window to
// window; only the windows of generations that fire cost anything.
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_model_check_reads_text(const reef_model *model, reef_error *err) {
    if (!reef_config_is_layer(&model->network.config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "the pool holds a layer by itself, which has no loss of bytes; what it is for "
                     "is up to the program that uses it through libreef");
}

// What the last window lacks is padded: attention is causal, so nothing before it notices.
void reef_model_decide(reef_model *model,
                       reef_gating *gating,
                       const uint8_t *bytes,
                       size_t count,
                       const uint8_t *next,
                       reef_batch *out) {
    const reef_network *network = &model->network;
    size_t T = network->config.context, windows = (count + T - 1) / T, rows = windows * T;
    // Zero is a valid token, and its losses are not read.
    memset(model->tokens, 0, rows);
    memset(model->targets, 0, rows);
    memcpy(model->tokens, bytes, count);
    memcpy(model->targets, bytes + 1, (count - 1));
    // Without a next token the last target stays 0, and its loss is not counted.
    if (next != NULL) memcpy(model->targets + (count - 1), next, 1);
    *out = (reef_batch){
        .windows = windows,
        .tokens = model->tokens,
        .targets = model->targets,
        .fire = model->fire,
        .fire_stride = model->stride,
    };
    reef_gating_decide(gating, network, out, count, model->fire, model->margins, model->stride);
}

reef_status reef_model_run(reef_model *model,
                           reef_gating *gating,
                           const uint8_t *bytes,
                           size_t count,
                           const uint8_t *next,
                           reef_error *err) {
    reef_batch batch;
    // A model in memory renews nothing; one read in place lets the writer have its pages here.
    reef_status status = reef_residency_renew(&model->residency, &model->network, err);
    if (status != REEF_OK) return status;
    reef_model_decide(model, gating, bytes, count, next, &batch);
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
    *tokens = all - at < model->stride ? all - at : model->stride;
    const uint8_t *next = at + *tokens < all ? bytes + (at + *tokens) : NULL;
    return reef_model_run(model, gating, bytes + at, *tokens, next, err);
}

static void count_fired(const reef_model *model, size_t count, uint64_t *fired) {
    for (size_t g = 1; g < model->network.generation_count; g++)
        for (size_t t = 0; t < count; t++) fired[g] += model->fire[g * model->stride + t];
}

// One text through the net and the memories. Tokens before `from` are the net's context alone.
typedef struct text {
    const uint8_t *bytes;
    size_t all, from;     // in tokens
    reef_answers answers; // zeros, or (all): written
} text;

// The net's part of a piece, or without a net the gates', and losses of those that know nothing.
static reef_status run_piece(reef_model *model,
                             reef_gating *gating,
                             const text *of,
                             size_t at,
                             size_t tokens,
                             reef_error *err) {
    const reef_network *network = &model->network;
    const uint8_t *bytes = of->bytes + at, *next = of->bytes + (at + tokens);
    if (network->config.net_share > 0.0f)
        return reef_model_run(model, gating, bytes, tokens, next, err);
    reef_batch batch;
    for (size_t t = 0; t < tokens; t++) model->acts.loss[t] = log(REEF_VOCAB);
    if (reef_recall_uses_posterior(network)) return REEF_OK; // gates are not asked
    reef_model_decide(model, gating, bytes, tokens, next, &batch);
    return REEF_OK;
}

// From a token on.
static reef_answers answers_from(const reef_answers *all, size_t token) {
    reef_answers rest = *all;
    if (rest.kinds != NULL) rest.kinds += token * rest.width;
    if (rest.weights != NULL) rest.weights += token * rest.width;
    return rest;
}

// The memories' part of a piece whose losses by the net are in the pass. Row t is about the token
// after it.
static reef_status recall_piece(
    reef_model *model, const text *of, size_t at, size_t tokens, reef_error *err) {
    if (!reef_recall_answers(&model->network)) return REEF_OK;
    bool has_net = model->network.config.net_share > 0.0f;
    size_t skipped = at + 1 < of->from ? of->from - at - 1 : 0;
    if (skipped >= tokens) return REEF_OK;
    const reef_recall_piece piece = {.bytes = of->bytes + at + 1 + skipped,
                                     .count = tokens - skipped,
                                     .fire = model->fire + skipped,
                                     .stride = model->stride,
                                     .net = has_net ? model->acts.predictions + skipped : NULL,
                                     .answers = answers_from(&of->answers, at + 1 + skipped)};
    return reef_recall_read(&model->recall, &model->network, &piece, model->acts.loss + skipped,
                            err);
}

// Losses of the tokens from `of->from` on, or from the second.
static reef_status read_text(reef_model *model,
                             const text *of,
                             float *bits,
                             double *nats,
                             uint64_t *fired,
                             void (*progress)(void *context, size_t done),
                             void *context,
                             reef_error *err) {
    reef_gating gating = {0};
    reef_status status = reef_gating_init(&gating, &model->network, err);
    // As many windows at a time as the pass has room for. Gates keep their state, so the cut
    // changes no bit.
    for (size_t at = 0; status == REEF_OK && at + 1 < of->all; at += model->stride) {
        size_t left = of->all - 1 - at, tokens = left < model->stride ? left : model->stride;
        status = run_piece(model, &gating, of, at, tokens, err);
        if (status == REEF_OK) status = recall_piece(model, of, at, tokens, err);
        if (status != REEF_OK) break;
        for (size_t t = 0; t < tokens; t++) {
            if (at + 1 + t < of->from) continue;
            *nats += model->acts.loss[t];
            if (bits != NULL) bits[at + 1 + t - of->from] = (float)(model->acts.loss[t] / REEF_LN2);
        }
        count_fired(model, tokens, fired);
        if (progress != NULL) progress(context, (at + tokens));
    }
    reef_gating_release(&gating);
    return status;
}

// The first token is not scored, but the memories read it: it is the context of the second.
static reef_status begin_text(reef_model *model,
                              const uint8_t *first,
                              const reef_answers *answers,
                              reef_error *err) {
    double ignored;
    if (!reef_recall_answers(&model->network)) return REEF_OK;
    reef_status status = reef_recall_begin(&model->recall, &model->network, err);
    const reef_recall_piece piece = {.bytes = first, .count = 1, .answers = *answers};
    return status == REEF_OK
               ? reef_recall_read(&model->recall, &model->network, &piece, &ignored, err)
               : status;
}

static reef_status check_length(size_t all, reef_error *err) {
    if (all >= 2) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "a text of %zu bytes has nothing to predict; give 2 or more", all);
}

static void read_shares(const reef_model *model,
                        const uint64_t *fired,
                        size_t tokens,
                        double *shares) {
    const reef_network *network = &model->network;
    if (reef_recall_uses_posterior(network)) {
        reef_recall_shares(&model->recall, shares);
        return;
    }
    // Generation 0 takes part in every token.
    for (size_t g = 0; g < network->generation_count; g++)
        shares[g] = g == 0 ? 1.0 : (double)fired[g] / (double)tokens;
}

reef_status reef_model_score(reef_model *model,
                             const uint8_t *bytes,
                             size_t count,
                             float *bits,
                             reef_score *score,
                             void (*progress)(void *context, size_t done),
                             void *context,
                             reef_error *err) {
    const reef_network *network = &model->network;
    size_t all = count;
    reef_status status = reef_model_check_reads_text(model, err);
    if (status == REEF_OK) status = check_length(all, err);
    if (status != REEF_OK) return status;
    double nats = 0.0;
    uint64_t *fired = calloc(network->generation_count, sizeof(*fired));
    if (fired == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count");
    // The first token has no context in a stream and is charged 8 bits.
    if (bits != NULL) bits[0] = 8.0f;
    // Before a memory has learned anything, what there is, is of the first kind.
    if (!reef_recall_answers(network)) reef_answers_set(&score->answers, 0, all, 0);
    status = begin_text(model, bytes, &score->answers, err);
    const text of = {.bytes = bytes, .all = all, .answers = score->answers};
    if (status == REEF_OK)
        status = read_text(model, &of, bits, &nats, fired, progress, context, err);
    if (status == REEF_OK) {
        score->bytes = all - 1;
        score->bits = nats / REEF_LN2;
        score->bits_per_byte = score->bits / (double)(all - 1);
        if (score->fire_share != NULL) read_shares(model, fired, all - 1, score->fire_share);
    }
    free(fired);
    return status;
}

reef_status reef_model_score_next(reef_model *model,
                                  const uint8_t *bytes,
                                  size_t before,
                                  size_t count,
                                  float *bits,
                                  reef_error *err) {
    double nats = 0.0;
    reef_status status = reef_model_check_reads_text(model, err);
    if (status == REEF_OK && before == 0 && count > 0) {
        status = begin_text(model, bytes, &(reef_answers){0}, err);
        *bits++ = 8.0f;
        before++;
        count--;
    }
    const text of = {.bytes = bytes, .all = before + count, .from = before};
    uint64_t *fired = calloc(model->network.generation_count, sizeof(*fired));
    if (status == REEF_OK && fired == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count");
    if (status == REEF_OK) status = read_text(model, &of, bits, &nats, fired, NULL, NULL, err);
    free(fired);
    return status;
}

reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err) {
    reef_gating gating = {0};
    reef_status status = reef_model_check_reads_text(model, err);
    if (status == REEF_OK) status = reef_gating_init(&gating, &model->network, err);
    size_t all = count, V = REEF_VOCAB;
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        // The last piece may be short; its padding is not copied.
        status = reef_model_run_piece(model, &gating, bytes, all, at, &tokens, err);
        if (status == REEF_OK)
            memcpy(logits + at * V, model->acts.logits, tokens * V * sizeof(*logits));
    }
    reef_gating_release(&gating);
    return status;
}
