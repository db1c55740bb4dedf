// The shapes of a generation's parts, as the configuration has them.
#include "architecture.h"
#include "reef_config.h"
#include "reef_model.h"

#include <inttypes.h>

reef_router_shape reef_generation_shape(const reef_config *config, uint32_t side) {
    return (reef_router_shape){
        .d_model = config->d_model,
        .head_count = config->heads,
        .topk = config->topk,
        .d_key = config->d_key,
        .side = side,
        .batch_norm = config->batch_norm,
        .head_keys = config->subkeys == REEF_SUBKEYS_HEAD,
        .score = config->score,
    };
}

static reef_expert_shape shape_of_kind(const reef_config *config, reef_expert_kind kind) {
    return (reef_expert_shape){
        .kind = kind,
        .P = (size_t)config->heads * config->topk,
        .D = config->d_model,
    };
}

reef_expert_shape reef_generation_expert_shape(const reef_config *config, uint32_t layer) {
    bool values = reef_layer_ffw(config, layer) == REEF_FFW_PKM;
    return shape_of_kind(config, values ? REEF_EXPERT_VALUE : config->expert);
}

reef_expert_shape reef_generation_expert_shape_largest(const reef_config *config) {
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_PEER)
            return reef_generation_expert_shape(config, l);
    return shape_of_kind(config, REEF_EXPERT_VALUE);
}

reef_moe_shape reef_generation_moe_shape(const reef_config *config) {
    return (reef_moe_shape){
        .T = config->context,
        .D = config->d_model,
        .F = config->d_ffw,
        .E = config->moe_experts,
        .C = reef_moe_capacity(config),
    };
}

reef_dtype reef_generation_seal_dtype(const reef_config *config) {
    return config->seal_dtype == REEF_SEAL_I8 ? REEF_I8 : REEF_F32;
}

reef_status reef_seal_dtype_parse(const reef_config *config,
                                  const char *word,
                                  reef_dtype *out,
                                  reef_error *err) {
    reef_config own = *config; // the pool's stays as it is
    reef_status status = word != NULL ? reef_config_set(&own, "seal_dtype", word, err) : REEF_OK;
    *out = reef_generation_seal_dtype(&own);
    return status;
}

const char *reef_rows_dtype_text(reef_dtype dtype) {
    return dtype == REEF_I8 ? "int8" : "f32";
}

// ---- ffw ----------------------------------------------------------------------------------------

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

size_t reef_moe_capacity(const reef_config *config) {
    // A token is taken by one expert on average.
    return ((size_t)config->context + config->moe_experts - 1) / config->moe_experts;
}

reef_layer_plan reef_layer_plan_make(const reef_config *config, uint32_t layer) {
    // Every shape is filled in, whatever the kind: an unused one costs a few words, and no reader
    // has to ask which are valid.
    return (reef_layer_plan){
        .ffw = reef_layer_ffw(config, layer),
        .retrieves = reef_layer_retrieves(config, layer),
        .router = reef_generation_shape(config, 0),
        .experts = reef_generation_expert_shape(config, layer),
        .moe = reef_generation_moe_shape(config),
    };
}
