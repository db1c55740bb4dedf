// A text read by a copy of some state of the pool: its loss and logits.
//
// A text is one stream, cut into windows of the model's context. The memories say whose text it is
// as they read it, and the net answers with that kind's generation from the next piece on.
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

#define BEGIN_TOKENS 32 // the first piece of a text: what it is, is soon known

reef_status reef_model_run(reef_model *model,
                           size_t fires,
                           const uint8_t *bytes,
                           size_t count,
                           const uint8_t *next,
                           reef_error *err) {
    // A model in memory renews nothing; one read in place lets the writer have its pages here.
    reef_status status = reef_residency_renew(&model->residency, &model->network, err);
    if (status != REEF_OK) return status;
    size_t T = model->network.config.context, windows = (count + T - 1) / T, rows = windows * T;
    // What the last window lacks is padded: attention is causal, so nothing before it notices. Zero
    // is a valid token, and its losses are not read.
    memset(model->tokens, 0, rows);
    memset(model->targets, 0, rows);
    memcpy(model->tokens, bytes, count);
    memcpy(model->targets, bytes + 1, (count - 1));
    // Without a next token the last target stays 0, and its loss is not counted.
    if (next != NULL) memcpy(model->targets + (count - 1), next, 1);
    const reef_batch batch = {
        .windows = windows, .tokens = model->tokens, .targets = model->targets, .fires = fires};
    return reef_network_forward(&model->acts, &model->network, model->workers, &batch,
                                REEF_PASS_EVALUATE, err);
}

reef_status reef_model_run_piece(reef_model *model,
                                 const uint8_t *bytes,
                                 size_t all,
                                 size_t at,
                                 size_t *tokens,
                                 reef_error *err) {
    *tokens = all - at < model->stride ? all - at : model->stride;
    const uint8_t *next = at + *tokens < all ? bytes + (at + *tokens) : NULL;
    return reef_model_run(model, model->network.generation_count - 1, bytes + at, *tokens, next,
                          err);
}

// One text through the net and the memories. Tokens before `from` are the net's context alone.
typedef struct text {
    const uint8_t *bytes;
    size_t all, from;     // in tokens
    reef_answers answers; // zeros, or (all): written
} text;

// The net's part of a piece, or without a net losses of one that knows nothing.
static reef_status run_piece(
    reef_model *model, const text *of, size_t at, size_t tokens, reef_error *err) {
    const uint8_t *bytes = of->bytes + at, *next = of->bytes + (at + tokens);
    if (model->network.config.net_share > 0.0f)
        return reef_model_run(model, reef_recall_net(&model->recall, &model->network), bytes,
                              tokens, next, err);
    for (size_t t = 0; t < tokens; t++) model->acts.loss[t] = log(REEF_VOCAB);
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
                                     .net = has_net ? model->acts.predictions + skipped : NULL,
                                     .answers = answers_from(&of->answers, at + 1 + skipped)};
    return reef_recall_read(&model->recall, &model->network, &piece, model->acts.loss + skipped,
                            err);
}

// As many windows as the pass has room for; a text that has just begun has a short piece first.
static size_t piece_tokens(const reef_model *model, size_t left) {
    bool begins = reef_recall_answers(&model->network) && model->recall.length < BEGIN_TOKENS;
    size_t most = begins && BEGIN_TOKENS < model->stride ? BEGIN_TOKENS : model->stride;
    return left < most ? left : most;
}

// Losses of the tokens from `of->from` on, or from the second.
static reef_status read_text(reef_model *model,
                             const text *of,
                             float *bits,
                             double *nats,
                             void (*progress)(void *context, size_t done),
                             void *context,
                             reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t at = 0, tokens; status == REEF_OK && at + 1 < of->all; at += tokens) {
        tokens = piece_tokens(model, of->all - 1 - at);
        status = run_piece(model, of, at, tokens, err);
        if (status == REEF_OK) status = recall_piece(model, of, at, tokens, err);
        if (status != REEF_OK) break;
        for (size_t t = 0; t < tokens; t++) {
            if (at + 1 + t < of->from) continue;
            *nats += model->acts.loss[t];
            if (bits != NULL) bits[at + 1 + t - of->from] = (float)(model->acts.loss[t] / REEF_LN2);
        }
        if (progress != NULL) progress(context, (at + tokens));
    }
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

static void read_shares(const reef_model *model, double *shares) {
    const size_t count = model->network.generation_count;
    if (reef_recall_answers(&model->network)) {
        reef_recall_shares(&model->recall, shares);
        return;
    }
    for (size_t g = 0; g < count; g++) shares[g] = g == count - 1 ? 1.0 : 0.0;
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
    // The first token has no context in a stream and is charged 8 bits.
    if (bits != NULL) bits[0] = 8.0f;
    // Before a memory has learned anything, what there is, is of the first kind.
    if (!reef_recall_answers(network)) reef_answers_set(&score->answers, 0, all, 0);
    status = begin_text(model, bytes, &score->answers, err);
    const text of = {.bytes = bytes, .all = all, .answers = score->answers};
    if (status == REEF_OK) status = read_text(model, &of, bits, &nats, progress, context, err);
    if (status == REEF_OK) {
        score->bytes = all - 1;
        score->bits = nats / REEF_LN2;
        score->bits_per_byte = score->bits / (double)(all - 1);
        if (score->fire_share != NULL) read_shares(model, score->fire_share);
    }
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
    return status == REEF_OK ? read_text(model, &of, bits, &nats, NULL, NULL, err) : status;
}

reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err) {
    reef_status status = reef_model_check_reads_text(model, err);
    size_t all = count, V = REEF_VOCAB;
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        // The last piece may be short; its padding is not copied.
        status = reef_model_run_piece(model, bytes, all, at, &tokens, err);
        if (status == REEF_OK)
            memcpy(logits + at * V, model->acts.logits, tokens * V * sizeof(*logits));
    }
    return status;
}
