// A read-only copy of some state of the pool: how it is read, and what there is in it.
//
// The copy is made in short read transactions and lives without the pool afterwards, so evaluation
// does not keep the writer from reusing pages. The open generation is copied in one, sealed ones,
// which do not change, in steps. Of a pool larger than memory rows are read in place; then the
// transaction is renewed between two passes.
#include "as_of.h"
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

#define PASS_WINDOWS 16
#define PASS_LOGITS_MAX ((size_t)1 << 24) // of one pass, where a context is long
#define LOAD_ATTEMPTS_MAX 3               // nobody restores more often
#define WARM_BYTES 1024                   // touch most pages of a session's tables of lines

// ---- kinds that could not be read whole --------------------------------------------------------

reef_status reef_model_note_lost(reef_model *model, const reef_lost_kind *lost, reef_error *err) {
    reef_lost_kind *more = realloc(model->lost, (model->lost_count + 1) * sizeof(*more));
    if (more == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of lost kinds");
    model->lost = more;
    model->lost[model->lost_count++] = *lost;
    return REEF_OK;
}

void reef_model_forget_lost(reef_model *model) {
    free(model->lost);
    model->lost = NULL;
    model->lost_count = 0;
}

const reef_lost_kind *reef_model_lost_kinds(const reef_model *model, size_t *count) {
    *count = model->lost_count;
    return model->lost;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status load_once(reef_model *model, const char *as_of, reef_error *err) {
    reef_network *network = &model->network;
    reef_txn *txn = NULL;
    reef_as_of chosen = {0};
    // This kind of transaction may be renewed between blocks; see reef_txn_renew.
    reef_status status = reef_txn_begin(&txn, model->residency.store, REEF_TXN_READ_RENEWED, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &network->config, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &model->commit, err);
    if (status == REEF_OK) status = reef_as_of_find(&chosen, txn, as_of, err);
    if (status == REEF_OK) status = reef_model_read_state(model, txn, &chosen, err);
    reef_txn_abort(txn);
    // The first transaction has ended: pinning begins its own, and finds the same sealed
    // generations or says BUSY.
    return status == REEF_OK ? reef_residency_pin(&model->residency, network, true, err) : status;
}

// Shared generations stay with the older copy.
static void give_shared_back(reef_model *model) {
    for (size_t g = 0; model->shared != NULL && g < model->network.generation_count; g++)
        if (model->shared[g]) model->network.generations[g] = NULL;
    free(model->shared);
    model->shared = NULL;
}

// Start again if a restore gave a generation up halfway: another one is there by then.
static reef_status load_network(reef_model *model, const char *as_of, reef_error *err) {
    reef_status status = REEF_ERR_BUSY;
    for (int i = 0; i < LOAD_ATTEMPTS_MAX && status == REEF_ERR_BUSY; i++) {
        reef_residency_unpin(&model->residency);
        give_shared_back(model);
        reef_network_release(&model->network);
        reef_model_forget_lost(model);
        status = load_once(model, as_of, err);
    }
    return status;
}

// Not in the transaction that read them: it may take a second.
static reef_status learn_tails(reef_model *model, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t g = 0; status == REEF_OK && g < model->network.generation_count; g++) {
        reef_generation_memory *memory = &model->network.generations[g]->memory;
        if (model->shared != NULL && model->shared[g]) continue; // another thread may read it
        status = reef_generation_memory_catch_up(memory, model->network.config.memory,
                                                 model->workers, err);
        // A kind of which nothing was left begins anew: what is empty has nothing to say.
        if (status == REEF_OK && memory->memory != NULL &&
            reef_memory_learned_bytes(memory->memory) == 0)
            reef_generation_memory_release(memory);
    }
    return status;
}

// Where a tail is not what it is said to be, kind by kind what is whole.
static reef_status load(reef_model *model, const char *as_of, reef_error *err) {
    reef_status status = load_network(model, as_of, err);
    if (status == REEF_OK) status = learn_tails(model, err);
    if (status != REEF_ERR_CORRUPT) return status;
    model->careful = true;
    status = load_network(model, as_of, err);
    return status == REEF_OK ? learn_tails(model, err) : status;
}

// Of one pass: which windows are read at once changes no bit.
static size_t pass_windows(const reef_config *config) {
    size_t most = PASS_LOGITS_MAX / ((size_t)config->context * REEF_VOCAB);
    if (most < 1) return 1;
    return most < PASS_WINDOWS ? most : PASS_WINDOWS;
}

static reef_status prepare_language(reef_model *model, reef_error *err) {
    const reef_config *config = &model->network.config;
    // Several windows per pass keep all threads busy; their number changes no bit.
    size_t windows = pass_windows(config);
    reef_status status = reef_activations_init(&model->acts, config, windows, false, err);
    if (status != REEF_OK) return status;
    model->acts.prefetch = model->residency.prefetch;
    model->stride = windows * config->context;
    model->tokens = calloc(model->stride, 1);
    model->targets = calloc(model->stride, 1);
    if (model->tokens != NULL && model->targets != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for windows of %u tokens",
                     config->context);
}

// Memory for passes.
static reef_status prepare(reef_model *model, reef_error *err) {
    return reef_config_is_layer(&model->network.config) ? reef_layer_new(&model->layer, err)
                                                        : prepare_language(model, err);
}

static reef_status open_model(reef_model **out,
                              reef_store *store,
                              const char *as_of,
                              const reef_model_options *options,
                              reef_network *known,
                              bool shares,
                              reef_error *err) {
    *out = NULL;
    reef_model *model = calloc(1, sizeof(*model));
    if (model == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    const reef_model_options defaults = {0};
    if (options == NULL) options = &defaults;
    // A reader that asked for no limit gets that of the machine.
    reef_residency_init(&model->residency, store, options->memory_bytes);
    model->recall.reading = options->reading;
    // Borrowed while loading; what is taken from it is moved, not copied.
    model->known = known;
    model->shares = shares && known != NULL;
    reef_status status = reef_thread_pool_new(&model->workers, options->threads, err);
    if (status == REEF_OK) status = load(model, as_of, err);
    model->known = NULL;
    if (status == REEF_OK) status = prepare(model, err);
    if (status == REEF_OK) *out = model;
    // Also a model that was loaded in part.
    else
        reef_model_close(model);
    return status;
}

reef_status reef_model_open(reef_model **out,
                            reef_store *store,
                            const char *as_of,
                            const reef_model_options *options,
                            reef_error *err) {
    return open_model(out, store, as_of, options, NULL, false, err);
}

bool reef_model_is_shared(const reef_model *model) {
    return !model->residency.in_place;
}

reef_status reef_model_open_beside(reef_model **out,
                                   reef_store *store,
                                   const char *as_of,
                                   const reef_model_options *options,
                                   const reef_model *older,
                                   reef_error *err) {
    // Only read: nothing is taken from it.
    reef_network *known = reef_model_is_shared(older) ? (reef_network *)&older->network : NULL;
    return open_model(out, store, as_of, options, known, true, err);
}

reef_status reef_model_open_twin(reef_model **out, const reef_model *of, reef_error *err) {
    *out = NULL;
    if (!reef_model_is_shared(of))
        return reef_fail(err, REEF_ERR_INVALID, "this model is not shared with another reader");
    reef_model *twin = calloc(1, sizeof(*twin));
    if (twin == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    size_t count = of->network.generation_count;
    twin->commit = of->commit;
    twin->network.config = of->network.config;
    reef_residency_init(&twin->residency, of->residency.store, of->residency.memory_bytes);
    twin->recall.reading = of->recall.reading;
    // Counting words takes longer than a score.
    twin->scorer = of->scorer;
    twin->scorer_is_lent = of->scorer != NULL;
    reef_status status = reef_network_reserve(&twin->network, count, err);
    for (size_t i = 0; status == REEF_OK && i < of->lost_count; i++)
        status = reef_model_note_lost(twin, &of->lost[i], err);
    if (status == REEF_OK && (twin->shared = malloc(count * sizeof(*twin->shared))) == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    if (status == REEF_OK) {
        memcpy(twin->network.generations, of->network.generations,
               count * sizeof(*twin->network.generations));
        memset(twin->shared, true, count * sizeof(*twin->shared));
        twin->network.generation_count = count;
        status = reef_thread_pool_new(&twin->workers, 1, err);
    }
    if (status == REEF_OK) status = prepare(twin, err);
    if (status == REEF_OK)
        *out = twin;
    else
        reef_model_close(twin);
    return status;
}

void reef_model_inherit(reef_model *newer, reef_model *older) {
    for (size_t g = 0; newer->shared != NULL && g < newer->network.generation_count; g++)
        if (newer->shared[g]) older->network.generations[g] = NULL;
    free(newer->shared);
    newer->shared = NULL;
}

reef_status reef_model_reopen(reef_model **model,
                              reef_store *store,
                              const char *as_of,
                              const reef_model_options *options,
                              reef_error *err) {
    reef_model *older = *model;
    // Rows that are read in place belong to the transaction, which ends with the older copy.
    bool copied = older != NULL && reef_model_is_shared(older);
    if (!copied) {
        reef_model_close(older);
        return open_model(model, store, as_of, options, NULL, false, err);
    }
    // What is not taken over gives way before the rest is read: there need not be memory for both.
    // The open generation has changed by definition; its memory is free for the new one.
    size_t open = older->network.generation_count;
    while (open > 0 && older->network.generations[open - 1]->open) {
        reef_generation_free(older->network.generations[--open]);
        older->network.generations[open] = NULL;
    }
    // After a failure there is neither the old model nor a new one; *model is NULL.
    reef_status status = open_model(model, store, as_of, options, &older->network, false, err);
    reef_model_close(older);
    return status;
}

void reef_model_close(reef_model *model) {
    if (model == NULL) return;
    reef_model_forget_lost(model);
    reef_layer_free(model->layer);
    reef_recall_release(&model->recall);
    if (!model->scorer_is_lent) reef_line_scorer_free(model->scorer);
    give_shared_back(model);
    reef_activations_release(&model->acts);
    reef_residency_release(&model->residency);
    reef_network_release(&model->network);
    reef_thread_pool_free(model->workers);
    free(model->tokens);
    free(model->targets);
    free(model);
}

// A new session has memory that no page is behind yet: the first text would wait for thousands of
// page faults, and for the words of megabytes of text. A reader that is opened beside one that
// answers has the time for both.
reef_status reef_model_warm(reef_model *model, reef_error *err) {
    const reef_line_scorer *words;
    uint8_t text[WARM_BYTES];
    size_t count = 0;
    reef_score ignored = {0};
    if (!reef_recall_answers(&model->network)) return REEF_OK;
    reef_status status = reef_model_line_scorer(model, &words, err);
    // The newest that learned something: an open generation may have a memory of nothing yet.
    for (uint32_t g = reef_model_generation_count(model); count < 2 && g-- > 0;)
        count = reef_model_text(model, g, text, sizeof(text));
    if (status != REEF_OK || count < 2) return status;
    return reef_model_score(model, text, count, NULL, &ignored, NULL, NULL, err);
}

// ---- what there is ------------------------------------------------------------------------------

void reef_model_set_reading(reef_model *model, reef_memory_reading reading) {
    reef_recall_set_reading(&model->recall, reading);
}

bool reef_model_inputs(const reef_model *model, double *shares, double *hits) {
    return reef_recall_inputs(&model->recall, shares, hits);
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
    return (uint32_t)model->network.generation_count;
}

uint64_t reef_model_parameter_count(const reef_model *model) {
    return reef_network_parameter_count(&model->network);
}

const reef_generation_record *reef_model_generation(const reef_model *model, size_t g) {
    const reef_network *network = &model->network;
    return g < network->generation_count ? &network->generations[g]->info : NULL;
}
