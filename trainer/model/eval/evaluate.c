// A text read by a copy of some state of the pool: its loss and logits.
//
// A text is one stream, cut into windows of the model's context. The memories say whose text it is
// as they read it, and the net answers with that kind's generation (reef_recall_net).
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

// One text through the net and the memories.
typedef struct text {
    const uint8_t *bytes;
    size_t all;           // in tokens
    reef_answers answers; // zeros, or (all): written
} text;

// Tokens that are predicted together, in a pass over the windows from `window` on.
typedef struct piece {
    size_t window, at, tokens;
} piece;

static bool has_net(const reef_model *model) {
    return model->network.config.net_share > 0.0f;
}

// The next tokens, from `at` on: as many as the pass has room for, and the net answers with one
// generation.
static piece next_piece(const reef_model *model, const text *of, size_t at) {
    const size_t context = model->network.config.context;
    piece next = {.window = has_net(model) ? at - at % context : at, .at = at};
    size_t most = model->stride - (at - next.window), left = of->all - 1 - at;
    if (has_net(model) && reef_recall_answers(&model->network) &&
        most > reef_recall_net_left(&model->recall))
        most = reef_recall_net_left(&model->recall);
    next.tokens = left < most ? left : most;
    return next;
}

// The net's part of a piece, or without a net losses of one that knows nothing.
static reef_status run_piece(reef_model *model, const text *of, piece it, reef_error *err) {
    const size_t end = it.at + it.tokens;
    if (has_net(model))
        return reef_model_run(model, reef_recall_net(&model->recall, &model->network),
                              of->bytes + it.window, end - it.window, of->bytes + end, err);
    for (size_t t = 0; t < it.tokens; t++) model->acts.loss[t] = log(REEF_VOCAB);
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
static reef_status recall_piece(reef_model *model, const text *of, piece it, reef_error *err) {
    const size_t row = it.at - it.window;
    if (!reef_recall_answers(&model->network)) return REEF_OK;
    const reef_recall_piece read = {.bytes = of->bytes + it.at + 1,
                                    .count = it.tokens,
                                    .net = has_net(model) ? model->acts.predictions + row : NULL,
                                    .answers = answers_from(&of->answers, it.at + 1)};
    return reef_recall_read(&model->recall, &model->network, &read, model->acts.loss + row, err);
}

// Losses of the tokens from the second on.
static reef_status read_text(reef_model *model,
                             const text *of,
                             float *bits,
                             double *nats,
                             void (*progress)(void *context, size_t done),
                             void *context,
                             reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t at = 0; status == REEF_OK && at + 1 < of->all;) {
        const piece it = next_piece(model, of, at);
        status = run_piece(model, of, it, err);
        if (status == REEF_OK) status = recall_piece(model, of, it, err);
        if (status != REEF_OK) break;
        const double *losses = model->acts.loss + (it.at - it.window);
        for (size_t t = 0; t < it.tokens; t++) {
            *nats += losses[t];
            if (bits != NULL) bits[at + 1 + t] = (float)(losses[t] / REEF_LN2);
        }
        at += it.tokens;
        if (progress != NULL) progress(context, at);
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
    const reef_recall_piece read = {.bytes = first, .count = 1, .answers = *answers};
    return status == REEF_OK
               ? reef_recall_read(&model->recall, &model->network, &read, &ignored, err)
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
