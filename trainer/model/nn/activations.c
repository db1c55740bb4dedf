// The memory of one pass, and what forward.c and backward.c do alike.
//
// Tapes of a generation are made when it takes part for the first time, not per step: most
// generations never fire in a given stream.
#include "activations.h"
#include "generation.h"
#include "nn_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t reef_activations_width(const reef_config *config) {
    return max_size(max_size(REEF_VOCAB, 3 * (size_t)config->d_model), config->d_ffw);
}

static bool floats(float **out, size_t count) {
    *out = calloc(count > 0 ? count : 1, sizeof(**out));
    return *out != NULL;
}

// Does a set of activations serve a mixture? In training set l is layer l's, in evaluation the one
// is all layers'.
static bool serves_mixture(const reef_activations *acts, size_t set) {
    if (acts->training) return acts->plans[set].ffw == REEF_FFW_MOE;
    for (uint32_t l = 0; l < acts->config->layers; l++)
        if (acts->plans[l].ffw == REEF_FFW_MOE) return true;
    return false;
}

static bool allocate_layer(reef_activations_layer *layer,
                           const reef_activations *acts,
                           bool mixture) {
    const reef_config *config = acts->config;
    size_t windows = acts->windows_max;
    size_t D = config->d_model, T = config->context, n = windows * T;
    bool ok = floats(&layer->x_in, n * D) && floats(&layer->norm1, n * D) &&
              floats(&layer->norm1_mean, n) && floats(&layer->norm1_rstd, n) &&
              floats(&layer->qkv, n * 3 * D) && floats(&layer->attended, n * D) &&
              floats(&layer->probs, windows * config->attention_heads * T * T) &&
              floats(&layer->x_mid, n * D) && floats(&layer->norm2, n * D) &&
              floats(&layer->norm2_mean, n) && floats(&layer->norm2_rstd, n) &&
              floats(&layer->ffw_in, n * config->d_ffw) &&
              floats(&layer->ffw_act, n * config->d_ffw);
    ok = ok && (!mixture || reef_moe_tape_init(&layer->moe, &acts->plans[0].moe, windows,
                                               acts->training, NULL) == REEF_OK);
    return ok;
}

static bool allocate_backward(reef_activations *acts, const reef_config *config) {
    size_t D = config->d_model, T = config->context, n = acts->rows_max;
    return floats(&acts->d_x, n * D) && floats(&acts->d_mid, n * D) &&
           floats(&acts->d_norm, n * D) && floats(&acts->d_qkv, n * 3 * D) &&
           floats(&acts->d_attended, n * D) &&
           floats(&acts->d_probs, acts->windows_max * REEF_ATTENTION_ROWS * T) &&
           floats(&acts->d_y, n * D) && floats(&acts->norm_grads, acts->windows_max * 4 * D);
}

reef_status reef_activations_init(reef_activations *acts,
                                  const reef_config *config,
                                  size_t windows_max,
                                  bool training,
                                  reef_error *err) {
    size_t D = config->d_model, T = config->context;
    *acts = (reef_activations){
        .config = config,
        .training = training,
        .windows_max = windows_max,
        .rows_max = windows_max * T,
        .layer_sets = training ? config->layers : 1, // without training one serves all layers
    };
    size_t n = acts->rows_max;
    bool ok = (acts->layers = calloc(acts->layer_sets, sizeof(*acts->layers))) != NULL &&
              (acts->plans = calloc(config->layers, sizeof(*acts->plans))) != NULL;
    // Made once per pass memory, so that no step asks the configuration again.
    for (uint32_t l = 0; ok && l < config->layers; l++)
        acts->plans[l] = reef_layer_plan_make(config, l);
    // Only some layers feed the mixture, so the others need no room for it.
    for (size_t l = 0; ok && l < acts->layer_sets; l++)
        ok = allocate_layer(&acts->layers[l], acts, serves_mixture(acts, l));
    ok = ok && floats(&acts->x, n * D) && floats(&acts->norm, n * D) &&
         floats(&acts->norm_mean, n) && floats(&acts->norm_rstd, n) &&
         floats(&acts->logits, n * REEF_VOCAB) &&
         floats(&acts->window_scratch, n * reef_activations_width(config)) &&
         (acts->loss = calloc(n, sizeof(*acts->loss))) != NULL &&
         (config->memory == 0 ||
          (acts->predictions = calloc(n, sizeof(*acts->predictions))) != NULL) &&
         (acts->window_active = calloc(windows_max, 1)) != NULL;
    ok = ok && (!training || allocate_backward(acts, config));
    if (ok) return REEF_OK;
    // Everything that was allocated so far.
    reef_activations_release(acts);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pass over %zu windows of %zu tokens",
                     windows_max, T);
}

static void release_layer(reef_activations_layer *layer) {
    float *const all[] = {layer->x_in,   layer->norm1,      layer->norm1_mean, layer->norm1_rstd,
                          layer->qkv,    layer->probs,      layer->attended,   layer->x_mid,
                          layer->norm2,  layer->norm2_mean, layer->norm2_rstd, layer->ffw_in,
                          layer->ffw_act};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) free(all[i]);
    reef_moe_tape_release(&layer->moe);
}

static void release_tables(reef_activations_table *expert_tables, size_t count) {
    if (expert_tables == NULL) return;
    for (size_t l = 0; l < count; l++) {
        reef_router_tape_release(&expert_tables[l].tape);
        free(expert_tables[l].hidden);
        free(expert_tables[l].d_gate);
        free(expert_tables[l].factors);
        free(expert_tables[l].fetched.places);
        free(expert_tables[l].fetched.ids);
        free(expert_tables[l].fetched.rows);
    }
    free(expert_tables);
}

void reef_activations_release(reef_activations *acts) {
    for (size_t l = 0; acts->layers != NULL && l < acts->layer_sets; l++)
        release_layer(&acts->layers[l]);
    for (size_t g = 0; g < acts->generation_capacity; g++)
        release_tables(acts->expert_tables[g], acts->layer_sets);
    float *const all[] = {acts->x,          acts->norm,          acts->norm_mean,  acts->norm_rstd,
                          acts->logits,     acts->d_x,           acts->d_mid,      acts->d_norm,
                          acts->d_qkv,      acts->d_probs,       acts->d_attended, acts->d_y,
                          acts->norm_grads, acts->window_scratch};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) free(all[i]);
    reef_expert_pairs_release(&acts->pairs);
    free(acts->layers);
    free(acts->plans);
    free(acts->expert_tables);
    free(acts->loss);
    free(acts->predictions);
    free(acts->window_active);
    *acts = (reef_activations){0};
}

static reef_status allocate_table(reef_activations_table *table,
                                  const reef_activations *acts,
                                  const reef_generation *generation,
                                  reef_expert_shape experts,
                                  reef_error *err) {
    const reef_config *config = acts->config;
    reef_router_shape shape = reef_plan_router(&acts->plans[0], generation->info.side);
    size_t pairs = acts->rows_max * experts.P;
    size_t hidden = acts->rows_max * reef_expert_hidden_values(&experts);
    reef_status status = reef_router_tape_init(&table->tape, &shape, acts->rows_max,
                                               config->context, acts->training, err);
    if (status != REEF_OK) return status;
    bool ok = floats(&table->hidden, hidden);
    if (acts->training) ok = ok && floats(&table->d_gate, pairs);
    if (acts->training && generation->open)
        ok = ok && floats(&table->factors, pairs * reef_expert_vectors(&experts));
    return ok ? REEF_OK
              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the routing of %zu pairs", pairs);
}

reef_status reef_activations_prepare_generation(reef_activations *acts,
                                                const reef_generation *generation,
                                                size_t g,
                                                reef_error *err) {
    if (g >= acts->generation_capacity) {
        reef_activations_table **expert_tables =
            realloc(acts->expert_tables, (g + 1) * sizeof(*expert_tables));
        if (expert_tables == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generation %zu", g);
        acts->expert_tables = expert_tables;
        while (acts->generation_capacity <= g)
            acts->expert_tables[acts->generation_capacity++] = NULL;
    }
    if (acts->expert_tables[g] != NULL) return REEF_OK;
    reef_activations_table *sets = calloc(acts->layer_sets, sizeof(*sets));
    if (sets == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generation %zu", g);
    reef_expert_shape largest = reef_generation_expert_shape_largest(acts->config);
    for (size_t l = 0; l < acts->layer_sets; l++) {
        // In evaluation the one set serves all layers.
        if (acts->training && !acts->plans[l].retrieves) continue;
        reef_expert_shape experts = acts->training ? acts->plans[l].experts : largest;
        reef_status status = allocate_table(&sets[l], acts, generation, experts, err);
        if (status == REEF_OK) continue;
        release_tables(sets, acts->layer_sets);
        return status;
    }
    if (acts->training && generation->open) {
        size_t pairs = acts->rows_max * acts->config->heads * acts->config->topk;
        reef_expert_pairs_release(&acts->pairs);
        reef_status status = reef_expert_pairs_init(
            &acts->pairs, pairs, (size_t)generation->info.side * generation->info.side,
            reef_expert_row_values(&largest), err);
        if (status != REEF_OK) {
            release_tables(sets, acts->layer_sets);
            return status;
        }
    }
    acts->expert_tables[g] = sets; // last: what is there has all that it needs
    return REEF_OK;
}

void reef_activations_forget_generation(reef_activations *acts, size_t g) {
    if (g >= acts->generation_capacity) return;
    release_tables(acts->expert_tables[g], acts->layer_sets);
    acts->expert_tables[g] = NULL;
}

size_t reef_batch_firing(const reef_batch *batch, size_t generations[REEF_FIRING_MAX]) {
    generations[0] = 0;
    generations[1] = batch->fires;
    return batch->fires > 0 ? 2 : 1;
}

reef_expert_rows reef_activations_rows(const reef_activations *acts,
                                       const reef_network *network,
                                       size_t g,
                                       uint32_t l) {
    reef_expert_rows rows = network->generations[g]->expert_tables[l].rows;
    rows.fetched = &acts->expert_tables[g][acts->layer_sets == 1 ? 0 : l].fetched;
    return rows;
}

void reef_activations_run_experts(reef_activations *acts,
                                  reef_ranks *ranks,
                                  const reef_network *network,
                                  reef_thread_pool *workers,
                                  const reef_batch *batch,
                                  size_t g,
                                  uint32_t l,
                                  void (*work)(void *context, size_t window),
                                  void *context) {
    const reef_expert_table *table = &network->generations[g]->expert_tables[l];
    bool in_place = acts->prefetch != NULL && table->memory == NULL;
    size_t T = acts->config->context, P = acts->plans[l].experts.P, first, end;
    reef_ranks_share(ranks, reef_ranks_rank(ranks), batch->windows, &first, &end);
    const reef_row_prefetch_request request = {
        .rows = &table->rows,
        .row_bytes = reef_row_bytes(table->rows.dtype, table->row_values),
        .tokens = (end - first) * T,
        .P = P,
        .indices =
            acts->expert_tables[g][acts->layer_sets == 1 ? 0 : l].tape.indices + first * T * P,
    };
    if (in_place) reef_row_prefetch_start(acts->prefetch, &request);
    reef_split_run(ranks, workers, batch->windows, work, context);
    if (in_place) reef_row_prefetch_finish(acts->prefetch);
}
