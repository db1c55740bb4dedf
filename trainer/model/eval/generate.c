// A text continued byte by byte.
#include "model_internal.h"
#include "reef_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float p;
    uint8_t byte;
} candidate;

static int most_likely_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->byte - y->byte;
}

// Draw a byte from the nucleus (Holtzman et al. 2020) of softmax(logits / temperature).
static uint8_t draw_byte(const float *logits, const reef_sampling *sampling, uint64_t counter) {
    candidate candidates[REEF_VOCAB];
    float p[REEF_VOCAB], temperature = sampling->temperature > 0.0f ? sampling->temperature : 1.0f;
    float most = logits[0];
    for (size_t v = 1; v < REEF_VOCAB; v++) most = logits[v] > most ? logits[v] : most;
    // Near 0 the quotients are beyond a float; those of the distances to the largest are 0 and
    // -infinity.
    float origin = isfinite(most / temperature) ? 0.0f : most;
    for (size_t v = 0; v < REEF_VOCAB; v++) p[v] = (logits[v] - origin) / temperature;
    reef_softmax(REEF_VOCAB, p);
    for (size_t v = 0; v < REEF_VOCAB; v++) candidates[v] = (candidate){p[v], (uint8_t)v};
    // Sorted by probability, then by byte: equal probabilities give the same draw on any machine.
    qsort(candidates, REEF_VOCAB, sizeof(*candidates), most_likely_first);
    // Temperature 0 is the argmax.
    if (sampling->temperature <= 0.0f) return candidates[0].byte;
    double top_p = sampling->top_p > 0.0f ? (double)sampling->top_p : 1.0, nucleus = 0.0;
    size_t kept = 0;
    // The smallest set whose probabilities reach top_p.
    while (kept < REEF_VOCAB && nucleus < top_p) nucleus += (double)candidates[kept++].p;
    // Numbered by the position in the text: the same seed gives the same text, whatever ran before.
    double target = reef_random_unit(sampling->seed, 301, counter) * nucleus;
    for (size_t i = 0; i + 1 < kept; i++) {
        target -= (double)candidates[i].p;
        if (target < 0.0) return candidates[i].byte;
    }
    // Rounding may leave a rest; the last kept byte takes it.
    return candidates[kept - 1].byte;
}

// The window that is being continued.
typedef struct growing {
    uint8_t *bytes; // (T)
    size_t length;
    float net[REEF_VOCAB]; // what the net says of the next byte
} growing;

// A full window keeps its later half.
static void append_byte(reef_model *model, growing *text, uint8_t byte) {
    size_t T = model->network.config.context;
    if (text->length == T) {
        size_t keep = T / 2, gone = T - keep;
        memmove(text->bytes, text->bytes + gone, keep);
        text->length = keep;
    }
    text->bytes[text->length++] = byte;
}

static reef_status next_logits(reef_model *model,
                               const growing *text,
                               const float **out,
                               reef_error *err) {
    *out = model->acts.logits + (text->length - 1) * REEF_VOCAB;
    if (model->network.config.net_share > 0.0f)
        return reef_model_run(model, reef_recall_net(&model->recall, &model->network), text->bytes,
                              text->length, NULL, err);
    // Without a net all bytes are alike, until a memory says more.
    memset(model->acts.logits + (text->length - 1) * REEF_VOCAB, 0, REEF_VOCAB * sizeof(float));
    return REEF_OK;
}

// The memories read what is continued, as they read any text.
static reef_status recall_prompt(reef_model *model,
                                 const uint8_t *prompt,
                                 size_t prompt_bytes,
                                 reef_error *err) {
    reef_score score = {0};
    double ignored;
    if (prompt_bytes >= 2)
        return reef_model_score(model, prompt, prompt_bytes, NULL, &score, NULL, NULL, err);
    reef_status status = reef_recall_begin(&model->recall, &model->network, err);
    if (status != REEF_OK) return status;
    const uint8_t *first = prompt_bytes == 1 ? prompt : (const uint8_t *)"\n";
    const reef_recall_piece piece = {.bytes = first, .count = 1};
    return reef_recall_read(&model->recall, &model->network, &piece, &ignored, err);
}

// That it has seen in its window; 0: it says nothing.
static uint16_t tokens_of_net(const reef_model *model, const growing *text) {
    return model->network.config.net_share > 0.0f ? (uint16_t)text->length : 0;
}

// Logits of the next byte with a memory's help, from the net's, which are in the pass.
static reef_status recall_logits(
    reef_model *model, growing *text, const float *logits, float *p, reef_error *err) {
    memcpy(p, logits, REEF_VOCAB * sizeof(*p));
    reef_softmax(REEF_VOCAB, p);
    memcpy(text->net, p, sizeof(text->net));
    reef_status status = reef_recall_distribution(&model->recall, &model->network,
                                                  tokens_of_net(model, text), p, err);
    for (size_t v = 0; v < REEF_VOCAB; v++) p[v] = logf(p[v]);
    return status;
}

// The byte that was drawn is read like any other.
static reef_status recall_byte(reef_model *model,
                               const growing *text,
                               uint8_t byte,
                               reef_error *err) {
    reef_net_prediction prediction;
    double loss = 0.0;
    reef_net_predict_byte(text->net, byte, tokens_of_net(model, text), &prediction);
    const reef_recall_piece piece = {.bytes = &byte, .count = 1, .net = &prediction};
    return reef_recall_read(&model->recall, &model->network, &piece, &loss, err);
}

reef_status reef_model_generate(reef_model *model,
                                const uint8_t *prompt,
                                size_t prompt_bytes,
                                size_t count,
                                const reef_sampling *sampling,
                                uint8_t *out,
                                reef_error *err) {
    reef_status status = reef_model_check_reads_text(model, err);
    if (status != REEF_OK) return status;
    size_t T = model->network.config.context;
    growing text = {.bytes = calloc(T, 1)};
    if (text.bytes == NULL) status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to generate");
    if (status != REEF_OK) goto cleanup;
    // An empty prompt begins like a line: something has to be read before a byte can be predicted.
    if (prompt_bytes == 0) append_byte(model, &text, '\n');
    for (size_t i = 0; i < prompt_bytes; i++) append_byte(model, &text, prompt[i]);
    bool recalls = reef_recall_answers(&model->network);
    if (recalls) status = recall_prompt(model, prompt, prompt_bytes, err);
    if (status != REEF_OK) goto cleanup;
    for (size_t i = 0; i < count; i++) {
        const float *logits;
        float p[REEF_VOCAB];
        status = next_logits(model, &text, &logits, err);
        if (status == REEF_OK && recalls) {
            status = recall_logits(model, &text, logits, p, err);
            logits = p;
        }
        if (status != REEF_OK) goto cleanup;
        out[i] = draw_byte(logits, sampling, i);
        if (recalls) status = recall_byte(model, &text, out[i], err);
        if (status != REEF_OK) goto cleanup;
        // A client that is gone ends the generation without an error.
        if (sampling->on_byte != NULL && !sampling->on_byte(sampling->context, out[i])) break;
        append_byte(model, &text, out[i]);
    }

cleanup:
    free(text.bytes);
    return status;
}
