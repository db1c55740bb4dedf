// A read-only copy of some state of the pool: loss of a text, logits, generated text.
//
// The copy is made in short read transactions and lives without the pool afterwards, so evaluation does not
// keep the writer from reusing pages: the open generation in one, sealed ones, which do not change, in turns.
// Of a pool larger than memory rows are read in place; then the transaction is begun anew between two passes.
// A text is one stream: cut into windows of the model's context, gates carried from window to window; only the
// windows of generations that fire cost anything.
#include "as_of.h"
#include "firing.h"
#include "layer.h"
#include "model.h"
#include "persist.h"
#include "random.h"
#include "residency.h"
#include "vector.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PASS_WINDOWS 16
#define PASS_LOGITS_MAX ((size_t)1 << 24) // of one pass, where a vocabulary is large
#define LOAD_ATTEMPTS_MAX 3               // consolidating takes minutes, more often than loading
#define LN2 0.6931471805599453

struct reef_model {
    reef_net
        *known; // while loading: of an older copy, whose sealed generations are taken over; or NULL
    reef_commit commit;        // that it was read at
    reef_vector_model *vector; // NULL in a language model; else `net` is the configuration only
    reef_layer *layer;         // NULL but of a layer by itself
    reef_net net;
    reef_pass pass;
    reef_workers *workers;
    reef_residency residency;
    uint8_t *tokens, *targets; // (windows * T) of reef_token_bytes each
    uint8_t *fire;             // (generations, windows * T)
    float *margins;
    size_t stride; // windows * T
};

// ---- open ----------------------------------------------------------------------------------------

static reef_status load_vector(reef_model *model,
                               reef_txn *txn,
                               const reef_as_of *chosen,
                               reef_error *err) {
    uint32_t *records = calloc((size_t)chosen->last + 1, sizeof *records);
    if (records == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a model");
    for (uint32_t g = 0; g <= chosen->last; g++) records[g] = reef_as_of_records(chosen, g);
    reef_status status = reef_vector_model_new(&model->vector, txn, &model->net.config,
                                               (size_t)chosen->last + 1, records, err);
    free(records);
    return status;
}

static bool is_known(const reef_net *known, const reef_generation *expected, uint32_t g) {
    if (known == NULL || g >= known->gen_count || known->gens[g] == NULL) return false;
    const reef_generation *info = &known->gens[g]->info;
    return memcmp(info->root, expected->root, sizeof expected->root) == 0;
}

// A sealed generation does not change, and no open one has a root. What was merged with it stays right where the
// backbone, which is generation 0, is the same as well.
static bool take_known(reef_model *model,
                       const reef_generation *base,
                       const reef_generation *expected,
                       uint32_t g) {
    reef_net *known = model->residency.in_place ? NULL : model->known;
    if (!expected->sealed || !is_known(known, expected, g)) return false;
    if (g > 0 && !is_known(known, base, 0)) return false;
    model->net.gens[g] = known->gens[g];
    known->gens[g] = NULL;
    return true;
}

// One generation, which must still be what it was when the state was chosen.
static reef_status load_generation(reef_model *model,
                                   reef_txn *txn,
                                   const reef_as_of *chosen,
                                   const reef_generation *expected,
                                   uint32_t g,
                                   reef_error *err) {
    reef_gen **gen = &model->net.gens[g];
    reef_status status =
        reef_persist_load(gen, txn, &model->net.config, g, reef_as_of_records(chosen, g), false,
                          model->residency.in_place, NULL, err);
    if (status != REEF_OK || memcmp((*gen)->info.root, expected->root, sizeof expected->root) == 0)
        return status;
    return reef_fail(err, REEF_BUSY,
                     "generation %" PRIu32 " was given up while the model was read; try again", g);
}

// The last one first, which may be open: it belongs to the same commit as the list of generations.
static reef_status load_generations(reef_model *model,
                                    reef_txn *txn,
                                    const reef_as_of *chosen,
                                    reef_error *err) {
    reef_net *net = &model->net;
    size_t count = (size_t)chosen->last + 1;
    reef_generation *expected = calloc(count, sizeof *expected);
    if (expected == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a model");
    reef_status status = reef_net_reserve(net, count, err);
    if (status == REEF_OK) {
        memset(net->gens, 0, count * sizeof *net->gens); // NULL can be freed
        net->gen_count = count;
    }
    for (uint32_t g = 0; status == REEF_OK && g < count; g++)
        status = reef_generation_read(txn, reef_as_of_records(chosen, g), &expected[g], err);
    // Only generations between the backbone's and the last one may have given way to a later one.
    if (status == REEF_OK &&
        (reef_generation_is_empty(&expected[0]) || reef_generation_is_empty(&expected[count - 1])))
        status = reef_fail(err, REEF_CORRUPT, "generation %u is empty, and none stands for it",
                           reef_generation_is_empty(&expected[0]) ? 0 : chosen->last);
    for (uint32_t g = (uint32_t)count; status == REEF_OK && g-- > 0;)
        if (!take_known(model, &expected[0], &expected[g], g))
            status = load_generation(model, txn, chosen, &expected[g], g, err);
    free(expected);
    return status;
}

static reef_status load_once(reef_model *model, const char *as_of, reef_error *err) {
    reef_net *net = &model->net;
    reef_txn *txn = NULL;
    reef_as_of chosen = {0};
    reef_status status = reef_txn_begin(&txn, model->residency.store, REEF_TXN_READ_IN_TURNS, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &net->config, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &model->commit, err);
    if (status == REEF_OK) status = reef_as_of_find(&chosen, txn, as_of, err);
    if (status == REEF_OK && reef_config_is_vector(&net->config)) {
        status = load_vector(model, txn, &chosen, err);
        reef_txn_abort(txn);
        return status;
    }
    if (status == REEF_OK)
        status = reef_residency_decide(&model->residency, txn, &net->config, chosen.own, err);
    if (status == REEF_OK) status = load_generations(model, txn, &chosen, err);
    reef_txn_abort(txn);
    // Sealed generations do not change any more: those of the next transaction are the same.
    return status == REEF_OK ? reef_residency_hold(&model->residency, net, err) : status;
}

// Again from the start when a generation was given up halfway: what it gave way to is there by then.
static reef_status load_net(reef_model *model, const char *as_of, reef_error *err) {
    reef_status status = REEF_BUSY;
    for (int i = 0; i < LOAD_ATTEMPTS_MAX && status == REEF_BUSY; i++) {
        reef_residency_let_go(&model->residency);
        reef_net_release(&model->net);
        status = load_once(model, as_of, err);
    }
    return status;
}

// Of one pass: which windows are read at once changes no bit.
static size_t pass_windows(const reef_config *config) {
    size_t most = PASS_LOGITS_MAX / ((size_t)config->context * config->vocab);
    if (most < 1) return 1;
    return most < PASS_WINDOWS ? most : PASS_WINDOWS;
}

static reef_status open_model(reef_model **out,
                              reef_store *store,
                              const char *as_of,
                              const reef_model_options *options,
                              reef_net *known,
                              reef_error *err) {
    *out = NULL;
    reef_model *model = calloc(1, sizeof *model);
    if (model == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a model");
    const reef_model_options defaults = {0};
    if (options == NULL) options = &defaults;
    reef_residency_init(&model->residency, store, options->memory_bytes);
    model->known = known;
    reef_status status = load_net(model, as_of, err);
    model->known = NULL;
    if (status == REEF_OK) status = reef_workers_new(&model->workers, options->threads, err);
    if (status == REEF_OK && reef_config_is_layer(&model->net.config))
        status = reef_layer_new(&model->layer, err);
    if (status == REEF_OK && (model->vector != NULL || model->layer != NULL)) {
        *out = model;
        return REEF_OK;
    }
    const reef_config *config = &model->net.config;
    size_t windows = status == REEF_OK ? pass_windows(config) : 0;
    if (status == REEF_OK) status = reef_pass_init(&model->pass, config, windows, false, err);
    if (status != REEF_OK) goto cleanup;
    model->pass.pager = model->residency.pager;
    model->stride = windows * config->context;
    model->tokens = calloc(model->stride, reef_token_bytes(config));
    model->targets = calloc(model->stride, reef_token_bytes(config));
    model->fire = calloc(model->net.gen_count, model->stride);
    model->margins = calloc(model->net.gen_count * model->stride, sizeof *model->margins);
    if (model->tokens && model->targets && model->fire && model->margins) {
        *out = model;
        return REEF_OK;
    }
    status = reef_fail(err, REEF_NO_MEMORY, "no memory for windows of %u tokens", config->context);

cleanup:
    reef_model_close(model);
    return status;
}

reef_status reef_model_open(reef_model **out,
                            reef_store *store,
                            const char *as_of,
                            const reef_model_options *options,
                            reef_error *err) {
    return open_model(out, store, as_of, options, NULL, err);
}

reef_status reef_model_reopen(reef_model **model,
                              reef_store *store,
                              const char *as_of,
                              const reef_model_options *options,
                              reef_error *err) {
    reef_model *older = *model;
    // Rows that are read in place are the transaction's, which ends with the older copy.
    bool copied = older != NULL && older->vector == NULL && !older->residency.in_place;
    if (!copied) {
        reef_model_close(older);
        return open_model(model, store, as_of, options, NULL, err);
    }
    // What is not taken over gives way before the rest is read: there need not be memory for both.
    size_t open = older->net.gen_count;
    while (open > 0 && older->net.gens[open - 1]->open) {
        reef_gen_free(older->net.gens[--open]);
        older->net.gens[open] = NULL;
    }
    reef_status status = open_model(model, store, as_of, options, &older->net, err);
    reef_model_close(older);
    return status;
}

void reef_model_close(reef_model *model) {
    if (model == NULL) return;
    reef_vector_model_free(model->vector);
    reef_layer_free(model->layer);
    reef_pass_release(&model->pass);
    reef_residency_release(&model->residency);
    reef_net_release(&model->net);
    reef_workers_free(model->workers);
    free(model->tokens);
    free(model->targets);
    free(model->fire);
    free(model->margins);
    free(model);
}

void reef_model_rest(reef_model *model) {
    reef_residency_let_go(&model->residency);
}

const reef_config *reef_model_config(const reef_model *model) {
    return &model->net.config;
}

const reef_commit *reef_model_commit(const reef_model *model) {
    return &model->commit;
}

uint32_t reef_model_generation_count(const reef_model *model) {
    if (model->vector != NULL) return (uint32_t)reef_vector_model_net(model->vector)->gen_count;
    return (uint32_t)model->net.gen_count;
}

uint64_t reef_model_parameter_count(const reef_model *model) {
    if (model->vector != NULL)
        return reef_vector_parameter_count(reef_vector_model_net(model->vector));
    return reef_net_parameter_count(&model->net);
}

// ---- vectors -------------------------------------------------------------------------------------

size_t reef_model_class_count(const reef_model *model) {
    return model->vector == NULL ? 0 : reef_vector_model_net(model->vector)->class_count;
}

void reef_model_classes(const reef_model *model, int32_t *labels) {
    if (model->vector == NULL) return;
    const reef_vector_net *net = reef_vector_model_net(model->vector);
    memcpy(labels, net->labels, net->class_count * sizeof *labels);
}

reef_status reef_model_predict(reef_model *model,
                               size_t count,
                               const float *vectors,
                               int32_t *labels,
                               float *scores,
                               uint32_t *generations,
                               reef_error *err) {
    if (model->vector == NULL)
        return reef_fail(err, REEF_INVALID,
                         "the pool holds a language model, which predicts no classes of vectors; "
                         "score or continue a text with it");
    return reef_vector_model_predict(model->vector, model->workers, count, vectors, labels, scores,
                                     generations, err);
}

static bool has_stream(const reef_model *model) {
    return model->vector == NULL && model->layer == NULL;
}

static reef_status refuse_text(const reef_model *model, reef_error *err) {
    if (model->layer != NULL)
        return reef_fail(err, REEF_INVALID,
                         "the pool holds a layer by itself, which has no loss of bytes; what it is "
                         "for is up to the program that uses it through libreef");
    return reef_fail(err, REEF_INVALID,
                     "the pool holds a vector model, which has no loss of bytes; predict the "
                     "classes of vectors with it");
}

static reef_status check_text(const reef_model *model,
                              const uint8_t *bytes,
                              size_t count,
                              reef_error *err) {
    if (!has_stream(model)) return refuse_text(model, err);
    return reef_tokens_check(&model->net.config, "the text", 0, bytes, count, err);
}

// ---- a layer by itself ---------------------------------------------------------------------------

static reef_status begin_layer(reef_model *model, reef_layer_view *view, reef_error *err) {
    if (model->layer == NULL)
        return reef_fail(err, REEF_INVALID, "the pool is no layer by itself: its model is %s",
                         model->net.config.model);
    reef_status status = reef_residency_renew(&model->residency, &model->net, err);
    *view = (reef_layer_view){&model->net, model->workers, model->residency.pager, model->layer};
    return status;
}

reef_status reef_model_layer_forward(reef_model *model,
                                     const reef_layer_choice *choice,
                                     size_t rows,
                                     const float *x,
                                     float *y,
                                     reef_layer_tape *tape,
                                     reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_layer(model, &view, err);
    if (status != REEF_OK) return status;
    if (choice != NULL && choice->train)
        return reef_fail(err, REEF_INVALID,
                         "the layer cannot learn: the pool is open for reading only");
    return reef_layer_run(&view, choice, rows, x, y, tape, err);
}

reef_status reef_model_layer_backward(reef_model *model,
                                      reef_layer_tape *tape,
                                      const float *x,
                                      const float *d_y,
                                      float *d_x,
                                      reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_layer(model, &view, err);
    return status == REEF_OK ? reef_layer_back(&view, tape, x, d_y, d_x, err) : status;
}

reef_status reef_model_layer_read(reef_model *model,
                                  uint32_t generation,
                                  const char *name,
                                  float *out,
                                  size_t count,
                                  reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_layer(model, &view, err);
    if (status != REEF_OK) return status;
    return reef_layer_tensor_read(&model->net, generation, name, out, count, err);
}

const reef_generation *reef_model_generation(const reef_model *model, size_t g) {
    return g < model->net.gen_count ? &model->net.gens[g]->info : NULL;
}

// ---- one pass over a piece of a stream -----------------------------------------------------------

// The gates' decisions about `count` tokens from `bytes` on (at most a pass). What the last window
// lacks is padded: attention is causal, so nothing before it notices. `next` is the token after the last; NULL
// where there is none, and `firing` is no good any more.
static reef_status decide(reef_model *model,
                          const reef_net *net,
                          reef_firing *firing,
                          const uint8_t *bytes,
                          size_t count,
                          const uint8_t *next,
                          reef_batch *out,
                          bool *answered,
                          reef_error *err) {
    size_t T = net->config.context, windows = (count + T - 1) / T, rows = windows * T;
    size_t each = reef_token_bytes(&net->config);
    memset(model->tokens, 0, rows * each);
    memset(model->targets, 0, rows * each);
    memcpy(model->tokens, bytes, count * each);
    memcpy(model->targets, bytes + each, (count - 1) * each);
    if (next != NULL) memcpy(model->targets + (count - 1) * each, next, each);
    *out = (reef_batch){
        .windows = windows,
        .tokens = model->tokens,
        .targets = model->targets,
        .fire = model->fire,
        .fire_stride = model->stride,
    };
    reef_firing_means means = {net, &model->pass, model->workers};
    return reef_firing_decide(firing, &means, out, count, model->fire, model->margins,
                              model->stride, answered, err);
}

// Forward of the same tokens: losses and logits in the model's pass.
static reef_status run(reef_model *model,
                       reef_firing *firing,
                       const uint8_t *bytes,
                       size_t count,
                       const uint8_t *next,
                       reef_error *err) {
    reef_batch batch;
    bool answered;
    reef_status status = reef_residency_renew(&model->residency, &model->net, err);
    if (status == REEF_OK)
        status = decide(model, &model->net, firing, bytes, count, next, &batch, &answered, err);
    if (status != REEF_OK || answered) return status;
    return reef_pass_forward(&model->pass, &model->net, model->workers, &batch, REEF_PASS_EVALUATE,
                             err);
}

// The piece of a text of `all` tokens that begins with token `at`; *tokens says how many it has.
static reef_status run_piece(reef_model *model,
                             reef_firing *firing,
                             const uint8_t *bytes,
                             size_t all,
                             size_t at,
                             size_t *tokens,
                             reef_error *err) {
    size_t each = reef_token_bytes(&model->net.config);
    *tokens = all - at < model->stride ? all - at : model->stride;
    const uint8_t *next = at + *tokens < all ? bytes + (at + *tokens) * each : NULL;
    return run(model, firing, bytes + at * each, *tokens, next, err);
}

typedef struct tally {
    double nats;
    uint64_t *fired; // (generations)
} tally;

static void count_fired(const reef_model *model, size_t count, uint64_t *fired) {
    for (size_t g = 1; g < model->net.gen_count; g++)
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
    size_t each = reef_token_bytes(&model->net.config), all = count / each;
    reef_status status = check_text(model, bytes, count, err);
    if (status != REEF_OK) return status;
    if (all < 2)
        return reef_fail(err, REEF_INVALID,
                         "a text of %zu %s has nothing to predict; give 2 or more", all,
                         each == 1 ? "bytes" : "token ids");
    reef_firing firing = {0};
    tally sum = {.fired = calloc(model->net.gen_count, sizeof *sum.fired)};
    status = reef_firing_init(&firing, &model->net, err);
    if (status == REEF_OK && sum.fired == NULL)
        status = reef_fail(err, REEF_NO_MEMORY, "no memory to count");
    if (bits != NULL) bits[0] = (float)log2(model->net.config.vocab);
    for (size_t at = 0; status == REEF_OK && at + 1 < all; at += model->stride) {
        size_t tokens = all - 1 - at < model->stride ? all - 1 - at : model->stride;
        status = run(model, &firing, bytes + at * each, tokens, bytes + (at + tokens) * each, err);
        if (status != REEF_OK) break;
        for (size_t t = 0; t < tokens; t++) sum.nats += model->pass.loss[t];
        for (size_t t = 0; bits != NULL && t < tokens; t++)
            bits[at + 1 + t] = (float)(model->pass.loss[t] / LN2);
        count_fired(model, tokens, sum.fired);
        if (progress != NULL) progress(context, (at + tokens) * each);
    }
    if (status == REEF_OK) {
        score->bytes = all - 1;
        score->bits = sum.nats / LN2;
        score->bits_per_byte = score->bits / (double)(all - 1);
        for (size_t g = 0; score->fire_share != NULL && g < model->net.gen_count; g++)
            score->fire_share[g] = g == 0 ? 1.0 : (double)sum.fired[g] / (double)(all - 1);
    }
    reef_firing_release(&firing);
    free(sum.fired);
    return status;
}

// The one block that retrieves: its tape is what a pass, which has one for all layers, leaves behind.
static reef_status check_usage(const reef_net *net, size_t expert_count, reef_error *err) {
    size_t retrieving = 0, there = 0;
    for (uint32_t l = 0; net->gen_count == 1 && l < net->config.layers; l++) {
        if (net->gens[0]->peers[l].expert_count == 0) continue;
        there = net->gens[0]->peers[l].expert_count;
        retrieving++;
    }
    if (retrieving == 1 && there == expert_count) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "usage by a text is known for one generation with one block that retrieves "
                     "%zu experts; this model has %zu generations, and %zu blocks, the last of %zu",
                     expert_count, net->gen_count, retrieving, there);
}

reef_status reef_model_usage(reef_model *model,
                             const uint8_t *bytes,
                             size_t count,
                             size_t expert_count,
                             reef_usage *usage,
                             reef_error *err) {
    reef_firing firing = {0};
    reef_status status = check_text(model, bytes, count, err);
    if (status == REEF_OK) status = check_usage(&model->net, expert_count, err);
    if (status == REEF_OK) status = reef_firing_init(&firing, &model->net, err);
    size_t P = (size_t)model->net.config.heads * model->net.config.topk;
    size_t all = count / reef_token_bytes(&model->net.config);
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        status = run_piece(model, &firing, bytes, all, at, &tokens, err);
        if (status != REEF_OK) break;
        const reef_router_tape *tape = &model->pass.peers[0][0].tape;
        for (size_t i = 0; i < tokens * P; i++) {
            double score = fmin((double)tape->gate[i], REEF_USAGE_SCORE_MAX);
            usage[tape->indices[i]].count++;
            usage[tape->indices[i]].score += (uint64_t)(score * REEF_USAGE_SCORE_ONE + 0.5);
        }
    }
    reef_firing_release(&firing);
    return status;
}

// One expert while a text is read: by token of the last pass, its score (0: not chosen) and what it said.
typedef struct watched {
    const reef_model *model;
    uint32_t generation, layer, expert;
    double *scores, *activations; // (stride)
} watched;

static double activation_of(const reef_expert_shape *shape, const float *hidden, size_t p) {
    float value = 1.0f;
    if (shape->kind == REEF_EXPERT_VALUE) return 1.0;
    if (shape->kind == REEF_EXPERT_RELU) return hidden[p] > 0.0f ? (double)hidden[p] : 0.0;
    reef_gelu(1, &value, hidden + (shape->kind == REEF_EXPERT_GLU ? shape->P + p : p));
    return (double)value * (shape->kind == REEF_EXPERT_GLU ? (double)hidden[p] : 1.0);
}

// Gates that read losses ask for passes before the one that counts, which comes last.
static void on_experts(void *context, size_t g, uint32_t l) {
    watched *w = context;
    if (g != w->generation || l != w->layer) return;
    const reef_model *model = w->model;
    reef_expert_shape shape = reef_gen_expert_shape(&model->net.config, l);
    const reef_pass_peer *peer = &model->pass.peers[g][0];
    memset(w->scores, 0, model->stride * sizeof *w->scores);
    for (size_t t = 0; t < model->stride; t++) {
        if (!model->pass.piece_active[t / model->net.config.context]) continue;
        const float *hidden = peer->hidden + t * reef_expert_hidden_values(&shape);
        for (size_t p = 0; p < shape.P; p++) {
            if (peer->tape.indices[t * shape.P + p] != w->expert) continue;
            w->scores[t] += (double)peer->tape.gate[t * shape.P + p];
            w->activations[t] = activation_of(&shape, hidden, p);
        }
    }
}

static reef_status check_expert(
    const reef_net *net, uint32_t generation, uint32_t layer, uint32_t expert, reef_error *err) {
    if (generation >= net->gen_count || layer >= net->config.layers ||
        expert >= net->gens[generation]->peers[layer].expert_count)
        return reef_fail(
            err, REEF_NOT_FOUND,
            "no expert %" PRIu32 " in layer %" PRIu32 " of generation %" PRIu32
            ": the state has %zu generations, the last of them %" PRIu32 " experts a side",
            expert, layer, generation, net->gen_count, net->gens[net->gen_count - 1]->info.side);
    return REEF_OK;
}

reef_status reef_model_expert_uses(reef_model *model,
                                   uint32_t generation,
                                   uint32_t layer,
                                   uint32_t expert,
                                   const uint8_t *bytes,
                                   size_t count,
                                   reef_expert_visit visit,
                                   void *context,
                                   reef_error *err) {
    if (model->vector != NULL || model->layer != NULL) return refuse_text(model, err);
    reef_firing firing = {0};
    watched w = {model,
                 generation,
                 layer,
                 expert,
                 calloc(model->stride, sizeof *w.scores),
                 calloc(model->stride, sizeof *w.activations)};
    reef_status status = check_expert(&model->net, generation, layer, expert, err);
    if (status == REEF_OK && (w.scores == NULL || w.activations == NULL))
        status = reef_fail(err, REEF_NO_MEMORY, "no memory to watch an expert");
    if (status == REEF_OK) status = reef_firing_init(&firing, &model->net, err);
    model->pass.on_experts = on_experts;
    model->pass.on_experts_context = &w;
    const uint8_t *fire = model->fire + generation * model->stride;
    for (size_t at = 0; status == REEF_OK && at < count; at += model->stride) {
        size_t tokens = count - at < model->stride ? count - at : model->stride;
        const uint8_t *next = at + tokens < count ? bytes + at + tokens : NULL;
        status = run(model, &firing, bytes + at, tokens, next, err);
        for (size_t t = 0; status == REEF_OK && t < tokens; t++)
            if ((generation == 0 || fire[t]) && w.scores[t] != 0.0)
                visit(context, at + t, w.scores[t], w.activations[t]);
    }
    model->pass.on_experts = NULL;
    reef_firing_release(&firing);
    free(w.scores);
    free(w.activations);
    return status;
}

// Margins along a text of a gate that reads losses: the last one of `net`.
static reef_status read_margins(reef_model *model,
                                const reef_net *net,
                                const uint8_t *bytes,
                                size_t count,
                                reef_gate_facts *facts,
                                float *margins,
                                reef_error *err) {
    const float *row = model->margins + (net->gen_count - 1) * model->stride;
    reef_firing firing = {0};
    size_t each = reef_token_bytes(&net->config), all = count / each;
    reef_status status = reef_firing_init(&firing, net, err);
    for (size_t at = 0; status == REEF_OK && at < all; at += model->stride) {
        size_t tokens = all - at < model->stride ? all - at : model->stride;
        const uint8_t *next = at + tokens < all ? bytes + (at + tokens) * each : NULL;
        reef_batch batch;
        bool answered;
        status = reef_residency_renew(&model->residency, &model->net, err);
        if (status == REEF_OK)
            status = decide(model, net, &firing, bytes + at * each, tokens, next, &batch, &answered,
                            err);
        if (status == REEF_OK) memcpy(margins + at, row, tokens * sizeof *margins);
    }
    size_t T = net->config.context;
    facts->passes = (double)firing.windows / (double)((all + T - 1) / T);
    reef_firing_release(&firing);
    return status;
}

reef_status reef_model_gate_margins(reef_model *model,
                                    uint32_t generation,
                                    const uint8_t *bytes,
                                    size_t count,
                                    reef_gate_facts *facts,
                                    float *margins,
                                    reef_error *err) {
    if (!has_stream(model))
        return reef_fail(err, REEF_INVALID, "generations of a model of %s have no gate",
                         model->vector != NULL ? "vectors" : "one layer");
    if (generation == 0 || generation >= model->net.gen_count)
        return reef_fail(err, REEF_INVALID,
                         "no gate of generation %u: generations 1 to %zu of this state have one",
                         generation, model->net.gen_count - 1);
    reef_status status = margins == NULL ? REEF_OK : check_text(model, bytes, count, err);
    if (status != REEF_OK) return status;
    const reef_gen *gen = model->net.gens[generation];
    *facts = (reef_gate_facts){.decay = gen->gate.decay,
                               .prior = gen->gate.prior,
                               .threshold = gen->gate.threshold,
                               .loss_weight = gen->gate.loss_weight,
                               .loss_reference = gen->gate.loss_reference,
                               .leak = gen->gate_leak,
                               .detect = gen->gate_detect};
    if (margins == NULL || count == 0) return REEF_OK;
    if (gen->gate.loss_weight > 0.0f) {
        reef_net net = model->net; // a view: what comes later has no say
        net.gen_count = (size_t)generation + 1;
        return read_margins(model, &net, bytes, count, facts, margins, err);
    }
    reef_gate_state state;
    reef_gate_reset(&gen->gate, &state);
    reef_gate_score(&gen->gate, &state, count / reef_token_bytes(&model->net.config), bytes,
                    margins);
    return REEF_OK;
}

reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err) {
    reef_firing firing = {0};
    reef_status status = check_text(model, bytes, count, err);
    if (status == REEF_OK) status = reef_firing_init(&firing, &model->net, err);
    size_t all = count / reef_token_bytes(&model->net.config), V = model->net.config.vocab;
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        status = run_piece(model, &firing, bytes, all, at, &tokens, err);
        if (status == REEF_OK)
            memcpy(logits + at * V, model->pass.logits, tokens * V * sizeof *logits);
    }
    reef_firing_release(&firing);
    return status;
}

// ---- generation of text --------------------------------------------------------------------------

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
    for (size_t v = 0; v < REEF_VOCAB; v++) p[v] = logits[v] / temperature;
    reef_softmax(REEF_VOCAB, p);
    for (size_t v = 0; v < REEF_VOCAB; v++) candidates[v] = (candidate){p[v], (uint8_t)v};
    qsort(candidates, REEF_VOCAB, sizeof *candidates, most_likely_first);
    if (sampling->temperature <= 0.0f) return candidates[0].byte;
    double top_p = sampling->top_p > 0.0f ? (double)sampling->top_p : 1.0, nucleus = 0.0;
    size_t kept = 0;
    while (kept < REEF_VOCAB && nucleus < top_p) nucleus += (double)candidates[kept++].p;
    double target = reef_random_unit(sampling->seed, 301, counter) * nucleus;
    for (size_t i = 0; i + 1 < kept; i++) {
        target -= (double)candidates[i].p;
        if (target < 0.0) return candidates[i].byte;
    }
    return candidates[kept - 1].byte;
}

// The window that is being continued. Its gates decide anew for every byte, from where they stood before it.
typedef struct growing {
    reef_firing firing; // at the first byte
    reef_firing moving; // scratch
    uint8_t *bytes;     // (T)
    size_t length;
} growing;

// A full window keeps its later half.
static reef_status append(reef_model *model, growing *text, uint8_t byte, reef_error *err) {
    size_t T = model->net.config.context;
    if (text->length == T) {
        size_t keep = T / 2, gone = T - keep;
        reef_batch batch;
        bool answered;
        reef_status status = decide(model, &model->net, &text->firing, text->bytes, gone,
                                    text->bytes + gone, &batch, &answered, err);
        if (status != REEF_OK) return status;
        memmove(text->bytes, text->bytes + gone, keep);
        text->length = keep;
    }
    text->bytes[text->length++] = byte;
    return REEF_OK;
}

static reef_status next_logits(reef_model *model,
                               growing *text,
                               const float **out,
                               reef_error *err) {
    *out = model->pass.logits + (text->length - 1) * REEF_VOCAB;
    reef_status status = reef_firing_copy(&text->moving, &text->firing, err);
    return status == REEF_OK ? run(model, &text->moving, text->bytes, text->length, NULL, err)
                             : status;
}

reef_status reef_model_generate(reef_model *model,
                                const uint8_t *prompt,
                                size_t prompt_bytes,
                                size_t count,
                                const reef_sampling *sampling,
                                uint8_t *out,
                                reef_error *err) {
    if (!has_stream(model)) return refuse_text(model, err);
    if (reef_token_bytes(&model->net.config) != 1)
        return reef_fail(err, REEF_INVALID,
                         "the pool's tokens are ids of a vocabulary of %u: there is no text to "
                         "continue",
                         model->net.config.vocab);
    size_t T = model->net.config.context;
    growing text = {.bytes = calloc(T, 1)};
    reef_status status = reef_firing_init(&text.firing, &model->net, err);
    if (status == REEF_OK && text.bytes == NULL)
        status = reef_fail(err, REEF_NO_MEMORY, "no memory to generate");
    if (status != REEF_OK) goto cleanup;
    if (prompt_bytes == 0) status = append(model, &text, '\n', err);
    for (size_t i = 0; status == REEF_OK && i < prompt_bytes; i++)
        status = append(model, &text, prompt[i], err);
    if (status != REEF_OK) goto cleanup;
    for (size_t i = 0; i < count; i++) {
        const float *logits;
        status = next_logits(model, &text, &logits, err);
        if (status != REEF_OK) goto cleanup;
        out[i] = draw_byte(logits, sampling, i);
        if (sampling->on_byte != NULL && !sampling->on_byte(sampling->context, out[i])) break;
        status = append(model, &text, out[i], err);
        if (status != REEF_OK) goto cleanup;
    }

cleanup:
    reef_firing_release(&text.firing);
    reef_firing_release(&text.moving);
    free(text.bytes);
    return status;
}
