// See ffw.h. Parameters are those that train; what the counts are made of stands beside each.
#include "architecture.h"

#include "generation.h"

#include <math.h>
#include <string.h>

reef_ffw reef_layer_ffw(const reef_config *config, uint32_t layer) {
    // The letters are those that config_field.c lets through.
    switch (config->ffw[config->ffw[1] == '\0' ? 0 : layer]) {
    case 'p':
        return REEF_FFW_PEER;
    case 'k':
        return REEF_FFW_PKM;
    case 'm':
        return REEF_FFW_MOE;
    default:
        return REEF_FFW_DENSE;
    }
}

const char *reef_ffw_text(reef_ffw kind) {
    static const char *const NAMES[] = {[REEF_FFW_PEER] = "peer",
                                        [REEF_FFW_DENSE] = "dense",
                                        [REEF_FFW_MOE] = "moe",
                                        [REEF_FFW_PKM] = "pkm"};
    return NAMES[kind];
}

bool reef_layer_retrieves(const reef_config *config, uint32_t layer) {
    reef_ffw kind = reef_layer_ffw(config, layer);
    return kind == REEF_FFW_PEER || kind == REEF_FFW_PKM;
}

uint32_t reef_config_retrieving_layers(const reef_config *config) {
    uint32_t count = 0;
    for (uint32_t l = 0; l < config->layers; l++) count += reef_layer_retrieves(config, l);
    return count;
}

bool reef_layer_adapts_ffw(const reef_config *config, uint32_t layer) {
    return config->adapters > 0 && config->adapt_ffw &&
           reef_layer_ffw(config, layer) == REEF_FFW_DENSE;
}

reef_status reef_ffw_check_new(const reef_config *config, reef_error *err) {
    const struct {
        const char *name, *value, *useless;
        const char *why;
    } settings[] = {
        {"growth", config->growth, "in_place", "a boundary would enlarge nothing"},
        {"boundaries", config->boundaries, "capacity", "there would never be a boundary"},
        {"strategy", config->strategy, "sparse-memory", "nothing would learn after a boundary"},
        {"strategy", config->strategy, "grid", "nothing would learn after a boundary"},
    };
    if (reef_config_is_vector(config) || reef_config_retrieving_layers(config) > 0) return REEF_OK;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].value, settings[i].useless) == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "%s %s is for layers that retrieve experts, and ffw %s has none: %s; "
                             "give a block the letter p or k",
                             settings[i].name, settings[i].useless, config->ffw, settings[i].why);
    return REEF_OK;
}

size_t reef_moe_capacity(const reef_config *config) {
    // In floats, so that 1.1 of 100 tokens for each of 10 experts are 11.
    float context = (float)config->context;
    float share = config->moe_capacity * context / (float)config->moe_experts;
    return (size_t)fminf(fmaxf(ceilf(share), 1.0f), context);
}

// ---- parameters ----------------------------------------------------------------------------------

// Queries: w_query (D, Q), and with batch norm a scale and a shift of each of the Q.
static uint64_t query_parameters(const reef_config *config) {
    uint64_t width = (uint64_t)config->heads * config->d_key;
    return width * config->d_model + (config->batch_norm ? 2 * width : 0);
}

// Both tables of sub-keys, of which every row meets every query (of its head).
static uint64_t key_parameters(const reef_config *config, uint32_t side) {
    reef_router_shape shape = reef_gen_shape(config, side);
    return 2 * (uint64_t)side * reef_router_key_row(&shape);
}

static uint64_t row_parameters(const reef_config *config, uint32_t layer) {
    reef_expert_shape shape = reef_gen_expert_shape(config, layer);
    return reef_expert_row_values(&shape);
}

// One dense network, or one expert of a mixture: w_in (D, F), w_out (F, D).
static uint64_t dense_parameters(const reef_config *config) {
    return 2 * (uint64_t)config->d_model * config->d_ffw;
}

uint64_t reef_layer_parameters(const reef_config *config, uint32_t layer, uint32_t side) {
    switch (reef_layer_ffw(config, layer)) {
    case REEF_FFW_DENSE:
        return dense_parameters(config);
    case REEF_FFW_MOE: // the router (D, E), and E networks
        return config->moe_experts * (config->d_model + dense_parameters(config));
    default: // queries, sub-keys, and S * S rows
        return query_parameters(config) + key_parameters(config, side) +
               (uint64_t)side * side * row_parameters(config, layer);
    }
}

double reef_layer_parameters_active(const reef_config *config, uint32_t layer, uint32_t side) {
    double taken = (double)reef_moe_capacity(config) * config->moe_experts / config->context;
    switch (reef_layer_ffw(config, layer)) {
    case REEF_FFW_DENSE:
        return (double)dense_parameters(config);
    case REEF_FFW_MOE: // the router, and as many networks as take a token on average
        return (double)config->moe_experts * config->d_model +
               taken * (double)dense_parameters(config);
    default: // queries, sub-keys, and the H * K rows that a token retrieves
        return (double)(query_parameters(config) + key_parameters(config, side) +
                        (uint64_t)config->heads * config->topk * row_parameters(config, layer));
    }
}
