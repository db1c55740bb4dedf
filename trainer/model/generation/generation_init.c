// The initial values of a generation, and of what it gains by growing. Every draw is a function of
// seed, generation and layer.
#include "generation_internal.h"
#include "reef_random.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// Streams of random numbers of one generation: layer l draws its own from l * STREAMS on.
enum {
    STREAM_W_DOWN,
    STREAM_W_UP,
    STREAM_KEYS_A,
    STREAM_KEYS_B,
    STREAM_QUERY,
    STREAM_DENSE,
    STREAMS = 16,
    MOE_DRAWS = 3 // of a mixture: router, w_in, w_out
};

static void fill_floats(float *out, size_t count, float value) {
    for (size_t i = 0; i < count; i++) out[i] = value;
}

// Sub-keys of an open generation; its queries too, or copied from `before` if given.
static void draw_router(reef_generation *generation,
                        const reef_config *config,
                        uint32_t layer,
                        const reef_generation *before,
                        uint64_t seed) {
    size_t D = config->d_model;
    size_t width = (size_t)config->heads * config->d_key;
    reef_router_shape shape = reef_generation_shape(config, generation->info.side);
    size_t keys = shape.side * reef_router_key_row(&shape);
    // Each tensor draws from a stream of its own, so a new tensor never shifts the others.
    uint64_t stream = (uint64_t)layer * STREAMS;
    reef_router_params *router = &generation->weights.routers[layer];
    // Keys within +-1/sqrt(d_key), so that scores of random queries have unit order.
    float bound = 1.0f / sqrtf((float)config->d_key);
    reef_random_uniform(keys, router->sub_keys_a, bound, seed, stream + STREAM_KEYS_A);
    reef_random_uniform(keys, router->sub_keys_b, bound, seed, stream + STREAM_KEYS_B);
    const reef_router_params *old = before != NULL ? &before->weights.routers[layer] : NULL;
    // The query of the generation before is a good start: it already separates the text.
    if (old != NULL) {
        reef_floats_copy(router->w_query, old->w_query, D * width);
    } else {
        reef_random_normal(D * width, router->w_query, 1.0f / sqrtf((float)D), seed,
                           stream + STREAM_QUERY);
    }
    // Without batch norm there is nothing else.
    if (!config->batch_norm) return;
    if (old != NULL) {
        reef_floats_copy(router->bn_scale, old->bn_scale, width);
        reef_floats_copy(router->bn_shift, old->bn_shift, width);
        reef_floats_copy(router->bn_mean, old->bn_mean, width);
        reef_floats_copy(router->bn_var, old->bn_var, width);
    } else {
        // The identity: scale 1 and variance 1; shift and mean are zero from the allocation.
        fill_floats(router->bn_scale, width, 1.0f);
        fill_floats(router->bn_var, width, 1.0f);
    }
}

// Rows from `from` on, with w_up of deviation `up`; 0 leaves it as it is.
// The vectors of a row alternate in memory: each is drawn from its own streams so that growing the
// grid later continues the same sequence. w_gate is drawn like w_down: a silent w_up silences both.
// A value is nothing but a w_up.
static void draw_experts(reef_expert_table *table,
                         size_t from,
                         const reef_config *config,
                         uint32_t layer,
                         float up,
                         uint64_t seed) {
    reef_expert_shape shape = reef_generation_expert_shape(config, layer);
    size_t D = config->d_model, w_up = reef_expert_up(&shape) * D;
    float down = 1.0f / sqrtf((float)D);
    uint64_t base = ((uint64_t)layer * STREAMS + STREAM_W_DOWN + 1) << 33;
    uint64_t base_gate = ((uint64_t)layer * STREAMS + STREAM_W_DOWN + 2) << 33;
    for (size_t n = from; n < table->expert_count; n++) {
        if (!reef_row_is_here(&table->share, n)) continue;
        float *row = table->experts + reef_row_place(&table->share, n) * table->row_values;
        if (w_up > 0) reef_random_normal(D, row, down, seed, base + 2 * n);
        if (up > 0.0f) reef_random_normal(D, row + w_up, up, seed, base + 2 * n + 1);
        if (table->row_values > 2 * D)
            reef_random_normal(D, row + 2 * D, down, seed, base_gate + n);
    }
}

// Experts like dense networks. Until it is measured, a threshold lets in what scores more than the
// mean.
static void initialise_mixture(reef_moe_params *moe,
                               const reef_moe_shape *shape,
                               float residual,
                               uint64_t seed,
                               uint64_t stream) {
    size_t D = shape->D, F = shape->F, E = shape->E;
    float by_width = 1.0f / sqrtf((float)D);
    reef_random_normal(D * E, moe->w_router, by_width, seed, stream);
    reef_random_normal(E * D * F, moe->w_in, by_width, seed, stream + 1);
    reef_random_normal(E * F * D, moe->w_out, residual / sqrtf((float)F), seed, stream + 2);
    fill_floats(moe->threshold, E, 1.0f / (float)E);
}

static void initialise_backbone(reef_generation *generation,
                                const reef_config *config,
                                uint64_t seed) {
    size_t D = config->d_model, F = config->d_ffw, L = config->layers;
    float by_width = 1.0f / sqrtf((float)D);
    // Output projections are scaled down by the number of residual additions (Radford et al. 2019).
    float residual = 1.0f / sqrtf(2.0f * (float)L);
    uint64_t stream = (uint64_t)REEF_LAYER_COUNT_MAX * STREAMS;
    reef_weights *weights = &generation->weights;
    reef_random_normal((size_t)reef_embedding_tables(config) * REEF_VOCAB * D, weights->embedding,
                       0.1f, seed, stream++);
    reef_random_normal((size_t)config->context * D, weights->position, 0.02f, seed, stream++);
    reef_random_normal(D * REEF_VOCAB, weights->head, 0.5f * by_width, seed, stream++);
    fill_floats(weights->norm_scale, D, 1.0f);
    for (uint32_t l = 0; l < L; l++) {
        reef_block *block = &weights->blocks[l];
        fill_floats(block->norm1_scale, D, 1.0f);
        fill_floats(block->norm2_scale, D, 1.0f);
        reef_random_normal(D * 3 * D, block->w_qkv, by_width, seed, stream++);
        reef_random_normal(D * D, block->w_out, by_width * residual, seed, stream++);
        if (reef_layer_ffw(config, l) == REEF_FFW_MOE) {
            reef_moe_shape moe = reef_generation_moe_shape(config);
            initialise_mixture(&block->moe, &moe, residual, seed, stream);
            stream += MOE_DRAWS;
        }
        if (reef_layer_ffw(config, l) != REEF_FFW_DENSE) continue;
        reef_random_normal(D * F, block->w_ffw_in, by_width, seed, stream++);
        reef_random_normal(F * D, block->w_ffw_out, residual / sqrtf((float)F), seed, stream++);
    }
}

void reef_generation_initialise(reef_generation *generation,
                                const reef_config *config,
                                const reef_generation *before) {
    uint64_t seed = reef_random_bits(config->seed, 1, generation->info.generation);
    bool first = generation->info.generation == 0;
    assert(generation->open && (first || before != NULL));
    if (first && !reef_config_is_layer(config)) initialise_backbone(generation, config, seed);
    // N(0, 1/(h k)) makes the sum over h heads and k experts unit scale; zero makes opening exact.
    float up = first ? 1.0f / sqrtf((float)config->heads * (float)config->topk) : 0.0f;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        draw_router(generation, config, l, first ? NULL : before, seed);
        draw_experts(&generation->expert_tables[l], 0, config, l, up, seed);
        memset(generation->expert_tables[l].dirty, 1, generation->expert_tables[l].expert_count);
    }
    reef_generation_average_reset(generation);
}

// ---- growth -------------------------------------------------------------------------------------

static void copy_row_averages(reef_generation *to, const reef_generation *from) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *old = &from->expert_tables[l];
        if (old->moments.average == NULL) continue;
        reef_floats_copy(to->expert_tables[l].moments.average, old->moments.average,
                         old->row_count * old->row_values);
    }
}

reef_status reef_generation_grow(reef_generation **out,
                                 const reef_generation *open,
                                 const reef_config *config,
                                 uint32_t side,
                                 reef_error *err) {
    *out = NULL;
    if (side <= open->info.side)
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %u is not larger than the open generation's %u", side,
                         open->info.side);
    reef_generation_record info = open->info;
    info.side = side;
    reef_generation *grown = NULL;
    reef_status status = reef_generation_new(&grown, config, &info, open->division, err);
    if (status != REEF_OK) return status;
    uint64_t seed = reef_random_bits(config->seed, 1, info.generation);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        draw_router(grown, config, l, open,
                    seed); // fresh sub-keys; the old ones are copied below
        reef_expert_table *table = &grown->expert_tables[l];
        const reef_expert_table *old = &open->expert_tables[l];
        // New rows come behind those that are here: of both tables a rank has every so many blocks.
        size_t N = old->expert_count, here = old->row_count, row = old->row_values;
        reef_floats_copy(table->experts, old->experts, here * row);
        reef_floats_copy(table->moments.adam_m, old->moments.adam_m, here * row);
        reef_floats_copy(table->moments.adam_v, old->moments.adam_v, here * row);
        memcpy(table->moments.counts, old->moments.counts, here * sizeof(*old->moments.counts));
        memcpy(table->flags, old->flags, N);
        memcpy(table->usage, old->usage, N * sizeof(*old->usage));
        draw_experts(table, N, config, l, 0.0f, seed);
        memset(table->dirty, 1, table->expert_count);
    }
    reef_generation_average_reset(grown); // of new rows and sub-keys
    copy_row_averages(grown, open);
    reef_generation_copy_tensors(grown, open, true);
    *out = grown;
    return REEF_OK;
}
