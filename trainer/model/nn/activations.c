// The memory of one pass, and what forward.c and backward.c do alike.
//
// Tapes of a generation are made when it takes part for the first time, not per step: most generations never fire
// in a given stream.
#include "generation.h"
#include "transformer.h"

#include <stdlib.h>
#include <string.h>

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t reef_pass_scratch_width(const reef_config *config) {
    size_t widest = max_size(max_size(config->vocab, 3 * (size_t)config->d_model), config->d_ffw);
    return widest + reef_adapter_rank_max(config);
}

static bool floats(float **out, size_t count) {
    *out = calloc(count > 0 ? count : 1, sizeof **out);
    return *out != NULL;
}

// Does a set of activations serve a mixture? In training set l is layer l's, in evaluation the one is all layers'.
static bool serves_mixture(const reef_config *config, size_t set, bool training) {
    if (training) return reef_layer_ffw(config, (uint32_t)set) == REEF_FFW_MOE;
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_MOE) return true;
    return false;
}

static bool allocate_layer(reef_pass_layer *layer,
                           const reef_config *config,
                           size_t windows,
                           bool training,
                           bool mixture) {
    size_t D = config->d_model, T = config->context, n = windows * T;
    bool ok = floats(&layer->x_in, n * D) && floats(&layer->norm1, n * D) &&
              floats(&layer->norm1_mean, n) && floats(&layer->norm1_rstd, n) &&
              floats(&layer->qkv, n * 3 * D) && floats(&layer->attended, n * D) &&
              floats(&layer->probs, windows * config->attention_heads * T * T) &&
              floats(&layer->x_mid, n * D) && floats(&layer->norm2, n * D) &&
              floats(&layer->norm2_mean, n) && floats(&layer->norm2_rstd, n) &&
              floats(&layer->ffw_in, n * config->d_ffw) &&
              floats(&layer->ffw_act, n * config->d_ffw);
    reef_moe_shape moe = reef_gen_moe_shape(config);
    ok = ok &&
         (!mixture || reef_moe_tape_init(&layer->moe, &moe, windows, training, NULL) == REEF_OK);
    return ok && (!training || (floats(&layer->retain_d_y, n * D) && floats(&layer->older, n * D)));
}

static bool allocate_backward(reef_pass *pass, const reef_config *config) {
    size_t D = config->d_model, T = config->context, n = pass->rows_max,
           low = n * reef_adapter_rank_max(config);
    return floats(&pass->d_x, n * D) && floats(&pass->d_mid, n * D) &&
           floats(&pass->d_norm, n * D) && floats(&pass->d_qkv, n * 3 * D) &&
           floats(&pass->d_attended, n * D) &&
           floats(&pass->d_probs, pass->windows_max * REEF_ATTENTION_ROWS * T) &&
           floats(&pass->d_y, n * D) && floats(&pass->norm_grads, pass->windows_max * 4 * D) &&
           floats(&pass->low_qkv, low) && floats(&pass->d_low_qkv, low) &&
           floats(&pass->low_out, low) && floats(&pass->d_low_out, low);
}

reef_status reef_pass_init(reef_pass *pass,
                           const reef_config *config,
                           size_t windows_max,
                           bool training,
                           reef_error *err) {
    size_t D = config->d_model, T = config->context;
    *pass = (reef_pass){
        .config = config,
        .training = training,
        .windows_max = windows_max,
        .rows_max = windows_max * T,
        .layer_sets = training ? config->layers : 1,
    };
    size_t n = pass->rows_max;
    bool ok = (pass->layers = calloc(pass->layer_sets, sizeof *pass->layers)) != NULL;
    for (size_t l = 0; ok && l < pass->layer_sets; l++)
        ok = allocate_layer(&pass->layers[l], config, windows_max, training,
                            serves_mixture(config, l, training));
    ok = ok && floats(&pass->x, n * D) && floats(&pass->norm, n * D) &&
         floats(&pass->norm_mean, n) && floats(&pass->norm_rstd, n) &&
         floats(&pass->logits, n * config->vocab) &&
         floats(&pass->window_scratch, n * reef_pass_scratch_width(config)) &&
         (pass->loss = calloc(n, sizeof *pass->loss)) != NULL &&
         (pass->answers = calloc(n, sizeof *pass->answers)) != NULL &&
         (pass->several = calloc(n, 1)) != NULL &&
         (pass->piece_active = calloc(windows_max, 1)) != NULL;
    ok = ok && (!training || allocate_backward(pass, config));
    if (ok) return REEF_OK;
    reef_pass_release(pass);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pass over %zu windows of %zu tokens",
                     windows_max, T);
}

static void release_layer(reef_pass_layer *layer) {
    float *const all[] = {layer->x_in,    layer->norm1,      layer->norm1_mean, layer->norm1_rstd,
                          layer->qkv,     layer->probs,      layer->attended,   layer->x_mid,
                          layer->norm2,   layer->norm2_mean, layer->norm2_rstd, layer->ffw_in,
                          layer->ffw_act, layer->retain_d_y, layer->older};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    reef_moe_tape_release(&layer->moe);
}

static void release_peers(reef_pass_peer *peers, size_t count) {
    if (peers == NULL) return;
    for (size_t l = 0; l < count; l++) {
        reef_router_tape_release(&peers[l].tape);
        free(peers[l].hidden);
        free(peers[l].d_gate);
        free(peers[l].factors);
    }
    free(peers);
}

void reef_pass_release(reef_pass *pass) {
    for (size_t l = 0; pass->layers != NULL && l < pass->layer_sets; l++)
        release_layer(&pass->layers[l]);
    for (size_t g = 0; g < pass->gen_capacity; g++) release_peers(pass->peers[g], pass->layer_sets);
    float *const all[] = {
        pass->x,          pass->norm,    pass->norm_mean,  pass->norm_rstd,      pass->logits,
        pass->d_x,        pass->d_mid,   pass->d_norm,     pass->d_qkv,          pass->d_probs,
        pass->d_attended, pass->d_y,     pass->norm_grads, pass->window_scratch, pass->low_qkv,
        pass->d_low_qkv,  pass->low_out, pass->d_low_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    reef_expert_pairs_release(&pass->pairs);
    free(pass->layers);
    free(pass->peers);
    free(pass->loss);
    free(pass->piece_active);
    free(pass->answers);
    free(pass->several);
    *pass = (reef_pass){0};
}

static reef_status allocate_peer(reef_pass_peer *peer,
                                 const reef_pass *pass,
                                 const reef_gen *gen,
                                 reef_expert_shape experts,
                                 reef_error *err) {
    const reef_config *config = pass->config;
    reef_router_shape shape = reef_gen_shape(config, gen->info.side);
    size_t pairs = pass->rows_max * experts.P;
    size_t hidden = pass->rows_max * reef_expert_hidden_values(&experts);
    reef_status status = reef_router_tape_init(&peer->tape, &shape, pass->rows_max, config->context,
                                               pass->training, err);
    if (status != REEF_OK) return status;
    bool ok = floats(&peer->hidden, hidden);
    if (pass->training) ok = ok && floats(&peer->d_gate, pairs);
    if (pass->training && gen->open)
        ok = ok && floats(&peer->factors, pairs * reef_expert_vectors(&experts));
    return ok ? REEF_OK
              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the routing of %zu pairs", pairs);
}

reef_status reef_pass_prepare_generation(reef_pass *pass,
                                         const reef_gen *gen,
                                         size_t g,
                                         reef_error *err) {
    if (g >= pass->gen_capacity) {
        reef_pass_peer **peers = realloc(pass->peers, (g + 1) * sizeof *peers);
        if (peers == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generation %zu", g);
        pass->peers = peers;
        while (pass->gen_capacity <= g) pass->peers[pass->gen_capacity++] = NULL;
    }
    if (pass->peers[g] != NULL) return REEF_OK;
    reef_pass_peer *sets = calloc(pass->layer_sets, sizeof *sets);
    if (sets == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generation %zu", g);
    reef_expert_shape largest = reef_gen_expert_shape_largest(pass->config);
    for (size_t l = 0; l < pass->layer_sets; l++) {
        // In evaluation the one set serves all layers.
        if (pass->training && !reef_layer_retrieves(pass->config, (uint32_t)l)) continue;
        reef_expert_shape experts =
            pass->training ? reef_gen_expert_shape(pass->config, (uint32_t)l) : largest;
        reef_status status = allocate_peer(&sets[l], pass, gen, experts, err);
        if (status == REEF_OK) continue;
        release_peers(sets, pass->layer_sets);
        return status;
    }
    if (pass->training && gen->open) {
        size_t pairs = pass->rows_max * pass->config->heads * pass->config->topk;
        reef_expert_pairs_release(&pass->pairs);
        reef_status status =
            reef_expert_pairs_init(&pass->pairs, pairs, (size_t)gen->info.side * gen->info.side,
                                   reef_expert_row_values(&largest), err);
        if (status != REEF_OK) {
            release_peers(sets, pass->layer_sets);
            return status;
        }
    }
    pass->peers[g] = sets; // last: what is there has all that it needs
    return REEF_OK;
}

void reef_pass_forget_generation(reef_pass *pass, size_t g) {
    if (g >= pass->gen_capacity) return;
    release_peers(pass->peers[g], pass->layer_sets);
    pass->peers[g] = NULL;
}

const uint8_t *reef_batch_fire(const reef_batch *batch,
                               const reef_config *config,
                               size_t g,
                               size_t window) {
    return g == 0 ? NULL : batch->fire + g * batch->fire_stride + window * config->context;
}

bool reef_batch_retains(const reef_batch *batch, size_t window) {
    return window >= batch->windows - batch->retain_windows;
}

// Does generation g fire for any, or for every, token of a window?
static bool fires_any(const uint8_t *fire, size_t T) {
    return fire == NULL || memchr(fire, 1, T) != NULL;
}

bool reef_pass_activate(reef_pass *pass, const reef_batch *batch, size_t g) {
    bool any = false;
    for (size_t w = 0; w < batch->windows; w++) {
        pass->piece_active[w] =
            fires_any(reef_batch_fire(batch, pass->config, g, w), pass->config->context);
        any = any || pass->piece_active[w];
    }
    return any;
}

void reef_pass_run_experts(reef_pass *pass,
                           const reef_net *net,
                           reef_workers *workers,
                           const reef_batch *batch,
                           size_t g,
                           uint32_t l,
                           void (*work)(void *context, size_t window),
                           void *context) {
    const reef_peer *peer = &net->gens[g]->peers[l];
    const reef_expert_shape shape = reef_gen_expert_shape(pass->config, l);
    bool in_place = pass->pager != NULL && peer->memory == NULL;
    const reef_pager_request request = {
        .rows = &peer->rows,
        .row_bytes = peer->row_values * reef_rows_value_bytes(peer->rows.dtype),
        .tokens = batch->windows * pass->config->context,
        .P = shape.P,
        .indices = pass->peers[g][pass->layer_sets == 1 ? 0 : l].tape.indices,
        .active = reef_batch_fire(batch, pass->config, g, 0),
    };
    if (in_place) reef_pager_start(pass->pager, &request);
    reef_workers_run(workers, batch->windows, work, context);
    if (in_place) reef_pager_finish(pass->pager);
}
