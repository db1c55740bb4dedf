// A generation in memory: made, freed, looked into.
#include "generation.h"
#include "generation_internal.h"
#include "reef_huge_page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(REEF_SIDE_MAX == REEF_GENERATION_SIDE_MAX, "router and store agree");

// Memory for all rows, as one block.
static bool allocate_rows(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    peer->memory = reef_huge_new(values, reef_rows_value_bytes(peer->rows.dtype));
    peer->experts = peer->rows.dtype == REEF_F32 ? peer->memory : NULL;
    peer->blocks = calloc(1, sizeof *peer->blocks);
    if (peer->memory == NULL || peer->blocks == NULL) return false;
    peer->block_count = 1;
    peer->blocks[0] = peer->memory;
    peer->rows = (reef_expert_rows){peer->rows.dtype, REEF_EXPERT_ONE_BLOCK, peer->blocks};
    return true;
}

static void release_rows(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    reef_huge_free(peer->memory, values, reef_rows_value_bytes(peer->rows.dtype));
    free(peer->blocks);
    free(peer->last_block);
    peer->memory = peer->last_block = NULL;
    peer->experts = NULL;
    peer->blocks = NULL;
    peer->block_count = 0;
    peer->rows.blocks = NULL;
}

reef_status reef_gen_hold_rows(reef_gen *gen, reef_error *err) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->expert_count == 0 || peer->memory != NULL || allocate_rows(peer)) continue;
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the rows of %zu experts",
                         peer->expert_count);
    }
    return REEF_OK;
}

void reef_gen_drop_rows(reef_gen *gen) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        if (gen->peers[l].expert_count > 0) release_rows(&gen->peers[l]);
}

static reef_status allocate_peer(reef_peer *peer,
                                 const reef_gen *gen,
                                 const reef_expert_shape *shape,
                                 bool averages,
                                 bool recycles,
                                 reef_error *err) {
    size_t N = (size_t)gen->info.side * gen->info.side, values = N * reef_expert_row_values(shape);
    reef_dtype dtype = gen->info.dtype;
    assert(dtype == REEF_F32 || (dtype == REEF_BF16 && !gen->open));
    peer->expert_count = N;
    peer->row_values = reef_expert_row_values(shape);
    peer->rows.dtype = dtype;
    bool ok = true;
    if (gen->open) {
        ok = allocate_rows(peer);
        peer->flags = calloc(N, 1);
        peer->dirty = calloc(N, 1);
        peer->usage = calloc(N, sizeof(reef_usage));
        peer->moments.adam_m = reef_huge_new(values, sizeof(float));
        peer->moments.adam_v = reef_huge_new(values, sizeof(float));
        if (recycles) peer->used_before = calloc(N, sizeof *peer->used_before);
        if (averages) peer->moments.average = reef_huge_new(values, sizeof(float));
        peer->moments.counts = calloc(N, sizeof(uint32_t));
        ok = ok && peer->flags && peer->dirty && peer->usage && peer->moments.adam_m &&
             peer->moments.adam_v && (peer->moments.average || !averages) && peer->moments.counts &&
             (peer->used_before || !recycles);
    }
    if (!ok)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu experts of width %zu", N,
                         shape->D);
    return REEF_OK;
}

static reef_status allocate_folded(reef_gen *gen, const reef_config *config, reef_error *err) {
    size_t width = (size_t)config->heads * config->d_key;
    size_t each = (config->d_model + 1) * width;
    gen->folded_values = calloc(config->layers * each, sizeof(float));
    if (gen->folded_values == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for folded queries");
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_params *folded = &gen->folded[l];
        folded->w_query = gen->folded_values + l * each;
        folded->query_bias = folded->w_query + config->d_model * width;
        folded->sub_keys_a = gen->weights.routers[l].sub_keys_a;
        folded->sub_keys_b = gen->weights.routers[l].sub_keys_b;
    }
    return REEF_OK;
}

reef_status reef_gen_new(reef_gen **out,
                         const reef_config *config,
                         const reef_generation *info,
                         reef_error *err) {
    *out = NULL;
    reef_status status = REEF_ERR_NO_MEMORY;
    reef_gen *gen = calloc(1, sizeof *gen);
    if (gen == NULL) return reef_fail(err, status, "no memory for generation %u", info->generation);
    gen->info = *info;
    gen->open = !info->sealed;
    if (reef_generation_is_empty(info)) { // nothing but its number; its gate never fires
        *out = gen;
        return REEF_OK;
    }

    reef_gen_count_tensors(gen, config);
    gen->tensors = calloc(gen->tensor_count, sizeof *gen->tensors);
    gen->values = calloc(gen->value_count, sizeof *gen->values);
    bool averages = config->average > 0.0f;
    if (gen->open)
        gen->training = calloc((averages ? 4 : 3) * gen->value_count, sizeof *gen->training);
    if (gen->tensors == NULL || gen->values == NULL || (gen->open && gen->training == NULL)) {
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu parameters", gen->value_count);
        goto cleanup;
    }
    reef_gen_lay_out(gen, config);

    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_expert_shape experts = reef_gen_expert_shape(config, l);
        status =
            allocate_peer(&gen->peers[l], gen, &experts, averages, config->recycle_after > 0, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (gen->open) {
        status = allocate_folded(gen, config, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (!reef_config_is_layer(config)) status = reef_gate_init(&gen->gate, err);
    if (status != REEF_OK) goto cleanup;
    gen->gate.token_bytes = (uint32_t)reef_token_bytes(config);
    *out = gen;
    gen = NULL; // the caller owns it now

cleanup:
    reef_gen_free(gen);
    return status;
}

static void release_peer(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    release_rows(peer);
    free(peer->flags);
    free(peer->dirty);
    free(peer->usage);
    free(peer->used_before);
    reef_huge_free(peer->moments.adam_m, values, sizeof(float));
    reef_huge_free(peer->moments.adam_v, values, sizeof(float));
    reef_huge_free(peer->moments.average, values, sizeof(float));
    free(peer->moments.counts);
    *peer = (reef_peer){0};
}

void reef_gen_free(reef_gen *gen) {
    if (gen == NULL) return;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) release_peer(&gen->peers[l]);
    reef_gate_release(&gen->gate);
    reef_merged_release(&gen->merged);
    free(gen->folded_values);
    free(gen->training);
    free(gen->values);
    free(gen->tensors);
    free(gen);
}

const reef_tensor *reef_gen_find(const reef_gen *gen, const char *name) {
    for (size_t i = 0; i < gen->tensor_count; i++)
        if (strcmp(gen->tensors[i].name, name) == 0) return &gen->tensors[i];
    return NULL;
}

// ---- gen copy -----------------------------------------------------------------------------------
//
// What one generation takes over from another: tensors, gate.

void reef_gen_copy_tensors(reef_gen *to, const reef_gen *from, bool moments) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        reef_tensor *tensor = &to->tensors[i];
        const reef_tensor *old = reef_gen_find(from, tensor->name);
        if (old == NULL) continue;
        size_t count = old->count < tensor->count ? old->count : tensor->count;
        reef_floats_copy(tensor->data, old->data, count);
        if (!moments || tensor->adam_m == NULL) continue;
        reef_floats_copy(tensor->adam_m, old->adam_m, count);
        reef_floats_copy(tensor->adam_v, old->adam_v, count);
        if (tensor->average != NULL) reef_floats_copy(tensor->average, old->average, count);
    }
}

void reef_gen_gate_copy(reef_gen *to, const reef_gen *from) {
    to->gate_leak = from->gate_leak;
    to->gate_detect = from->gate_detect;
    if (from->gate.weights == NULL) return;
    float *weights = to->gate.weights;
    reef_floats_copy(weights, from->gate.weights, REEF_GATE_WEIGHTS);
    to->gate = from->gate;
    to->gate.weights = weights;
}

// ---- net ----------------------------------------------------------------------------------------
//
// The list of generations that make up a net.

reef_status reef_net_reserve(reef_net *net, size_t count, reef_error *err) {
    if (count <= net->gen_capacity) return REEF_OK;
    reef_gen **gens = realloc(net->gens, count * sizeof *gens);
    if (gens == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", count);
    net->gens = gens;
    net->gen_capacity = count;
    return REEF_OK;
}

reef_status reef_net_append(reef_net *net, reef_gen *gen, reef_error *err) {
    reef_status status = reef_net_reserve(net, net->gen_count + 1, err);
    if (status == REEF_OK)
        net->gens[net->gen_count++] = gen;
    else
        reef_gen_free(gen);
    return status;
}

void reef_net_release(reef_net *net) {
    for (size_t g = 0; g < net->gen_count; g++) reef_gen_free(net->gens[g]);
    free(net->gens);
    *net = (reef_net){0};
}

uint64_t reef_net_parameter_count(const reef_net *net) {
    uint64_t count = 0;
    for (size_t g = 0; g < net->gen_count; g++) {
        count += net->gens[g]->value_count;
        for (uint32_t l = 0; l < net->config.layers; l++)
            count +=
                (uint64_t)net->gens[g]->peers[l].expert_count * net->gens[g]->peers[l].row_values;
    }
    return count;
}
