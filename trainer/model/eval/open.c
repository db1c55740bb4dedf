// A read-only copy of some state of the pool: how it is read, and what there is in it.
//
// The copy is made in short read transactions and lives without the pool afterwards, so evaluation
// does not keep the writer from reusing pages: the open generation in one, sealed ones, which do
// not change, in turns. Of a pool larger than memory rows are read in place; then the transaction
// is begun anew between two passes.
#include "as_of.h"
#include "checkpoint.h"
#include "model_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PASS_WINDOWS 16
#define PASS_LOGITS_MAX ((size_t)1 << 24) // of one pass, where a vocabulary is large
#define LOAD_ATTEMPTS_MAX 3               // consolidating takes minutes, more often than loading

static reef_status load_vector(reef_model *model,
                               reef_txn *txn,
                               const reef_as_of *chosen,
                               reef_error *err) {
    size_t count = (size_t)chosen->last + 1;
    uint32_t *records = calloc(count, sizeof *records);
    model->infos = calloc(count, sizeof *model->infos);
    reef_status status = REEF_OK;
    if (records == NULL || model->infos == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        records[g] = reef_as_of_records(chosen, g);
        status = reef_generation_read(txn, records[g], &model->infos[g], err);
        model->infos[g].generation = g; // a snapshot's copy carries its own number
    }
    if (status == REEF_OK)
        status = reef_vector_network_load(&model->vector, txn, &model->network.config, count,
                                          records, err);
    free(records);
    return status;
}

static bool is_known(const reef_network *known,
                     const reef_generation_record *expected,
                     uint32_t g) {
    if (known == NULL || g >= known->generation_count || known->generations[g] == NULL)
        return false;
    const reef_generation_record *info = &known->generations[g]->info;
    return memcmp(info->root, expected->root, sizeof expected->root) == 0;
}

// A sealed generation does not change, and no open one has a root. What was merged with it stays
// right where the backbone, which is generation 0, is the same as well.
static bool take_known(reef_model *model,
                       const reef_generation_record *base,
                       const reef_generation_record *expected,
                       uint32_t g) {
    reef_network *known = model->residency.in_place ? NULL : model->known;
    if (!expected->sealed || !is_known(known, expected, g)) return false;
    if (g > 0 && !is_known(known, base, 0)) return false;
    model->network.generations[g] = known->generations[g];
    known->generations[g] = NULL;
    return true;
}

// One generation, which must still be what it was when the state was chosen.
static reef_status load_generation(reef_model *model,
                                   reef_txn *txn,
                                   const reef_as_of *chosen,
                                   const reef_generation_record *expected,
                                   uint32_t g,
                                   reef_error *err) {
    reef_generation **gen = &model->network.generations[g];
    reef_status status =
        reef_checkpoint_load(gen, txn, &model->network.config, g, reef_as_of_records(chosen, g),
                             false, model->residency.in_place, NULL, err);
    if (status != REEF_OK || memcmp((*gen)->info.root, expected->root, sizeof expected->root) == 0)
        return status;
    return reef_fail(err, REEF_ERR_BUSY,
                     "generation %" PRIu32 " was given up while the model was read; try again", g);
}

// The last one first, which may be open: it belongs to the same commit as the list of generations.
static reef_status load_generations(reef_model *model,
                                    reef_txn *txn,
                                    const reef_as_of *chosen,
                                    reef_error *err) {
    reef_network *network = &model->network;
    size_t count = (size_t)chosen->last + 1;
    reef_generation_record *expected = calloc(count, sizeof *expected);
    if (expected == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    reef_status status = reef_network_reserve(network, count, err);
    if (status == REEF_OK) {
        memset(network->generations, 0, count * sizeof *network->generations); // NULL can be freed
        network->generation_count = count;
    }
    for (uint32_t g = 0; status == REEF_OK && g < count; g++)
        status = reef_generation_read(txn, reef_as_of_records(chosen, g), &expected[g], err);
    // Only generations between the backbone's and the last one may have given way to a later one.
    if (status == REEF_OK &&
        (reef_generation_is_empty(&expected[0]) || reef_generation_is_empty(&expected[count - 1])))
        status = reef_fail(err, REEF_ERR_CORRUPT, "generation %u is empty, and none stands for it",
                           reef_generation_is_empty(&expected[0]) ? 0 : chosen->last);
    for (uint32_t g = (uint32_t)count; status == REEF_OK && g-- > 0;)
        if (!take_known(model, &expected[0], &expected[g], g))
            status = load_generation(model, txn, chosen, &expected[g], g, err);
    free(expected);
    return status;
}

static reef_status load_once(reef_model *model, const char *as_of, reef_error *err) {
    reef_network *network = &model->network;
    reef_txn *txn = NULL;
    reef_as_of chosen = {0};
    reef_status status = reef_txn_begin(&txn, model->residency.store, REEF_TXN_READ_IN_TURNS, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &network->config, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &model->commit, err);
    if (status == REEF_OK) status = reef_as_of_find(&chosen, txn, as_of, err);
    if (status == REEF_OK && reef_config_is_vector(&network->config)) {
        status = load_vector(model, txn, &chosen, err);
        reef_txn_abort(txn);
        return status;
    }
    if (status == REEF_OK)
        status = reef_residency_decide(&model->residency, txn, &network->config, chosen.own, err);
    if (status == REEF_OK) status = load_generations(model, txn, &chosen, err);
    reef_txn_abort(txn);
    // Sealed generations do not change any more: those of the next transaction are the same, or
    // given up.
    return status == REEF_OK ? reef_residency_pin(&model->residency, network, true, err) : status;
}

// Again from the start when a generation was given up halfway: what it gave way to is there by
// then.
static reef_status load_network(reef_model *model, const char *as_of, reef_error *err) {
    reef_status status = REEF_ERR_BUSY;
    for (int i = 0; i < LOAD_ATTEMPTS_MAX && status == REEF_ERR_BUSY; i++) {
        reef_residency_unpin(&model->residency);
        reef_network_release(&model->network);
        free(model->infos);
        model->infos = NULL;
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
                              reef_network *known,
                              reef_error *err) {
    *out = NULL;
    reef_model *model = calloc(1, sizeof *model);
    if (model == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    const reef_model_options defaults = {0};
    if (options == NULL) options = &defaults;
    reef_residency_init(&model->residency, store, options->memory_bytes);
    model->known = known;
    reef_status status = load_network(model, as_of, err);
    model->known = NULL;
    if (status == REEF_OK) status = reef_thread_pool_new(&model->workers, options->threads, err);
    if (status == REEF_OK && reef_config_is_layer(&model->network.config))
        status = reef_layer_new(&model->layer, err);
    if (status == REEF_OK && (model->vector != NULL || model->layer != NULL)) {
        *out = model;
        return REEF_OK;
    }
    const reef_config *config = &model->network.config;
    size_t windows = status == REEF_OK ? pass_windows(config) : 0;
    if (status == REEF_OK)
        status = reef_activations_init(&model->acts, config, windows, false, err);
    if (status != REEF_OK) goto cleanup;
    model->acts.prefetch = model->residency.prefetch;
    model->stride = windows * config->context;
    model->tokens = calloc(model->stride, reef_token_bytes(config));
    model->targets = calloc(model->stride, reef_token_bytes(config));
    model->fire = calloc(model->network.generation_count, model->stride);
    model->margins =
        calloc(model->network.generation_count * model->stride, sizeof *model->margins);
    if (model->tokens && model->targets && model->fire && model->margins) {
        *out = model;
        return REEF_OK;
    }
    status =
        reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for windows of %u tokens", config->context);

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
    size_t open = older->network.generation_count;
    while (open > 0 && older->network.generations[open - 1]->open) {
        reef_generation_free(older->network.generations[--open]);
        older->network.generations[open] = NULL;
    }
    reef_status status = open_model(model, store, as_of, options, &older->network, err);
    reef_model_close(older);
    return status;
}

void reef_model_close(reef_model *model) {
    if (model == NULL) return;
    reef_vector_network_free(model->vector);
    free(model->infos);
    reef_layer_free(model->layer);
    reef_activations_release(&model->acts);
    reef_residency_release(&model->residency);
    reef_network_release(&model->network);
    reef_thread_pool_free(model->workers);
    free(model->tokens);
    free(model->targets);
    free(model->fire);
    free(model->margins);
    free(model);
}

void reef_model_unpin(reef_model *model) {
    reef_residency_unpin(&model->residency);
}

const reef_config *reef_model_config(const reef_model *model) {
    return &model->network.config;
}

const reef_commit *reef_model_commit(const reef_model *model) {
    return &model->commit;
}

uint32_t reef_model_generation_count(const reef_model *model) {
    if (model->vector != NULL) return (uint32_t)model->vector->generation_count;
    return (uint32_t)model->network.generation_count;
}

uint64_t reef_model_parameter_count(const reef_model *model) {
    if (model->vector != NULL) return reef_vector_parameter_count(model->vector);
    return reef_network_parameter_count(&model->network);
}

const reef_generation_record *reef_model_generation(const reef_model *model, size_t g) {
    if (model->vector != NULL) return g < model->vector->generation_count ? &model->infos[g] : NULL;
    return g < model->network.generation_count ? &model->network.generations[g]->info : NULL;
}
