// The shapes of a generation's parts, as the configuration has them.
#include "generation.h"

#include <string.h>

// The words are those that config_field.c lets through.
static reef_router_score score_of(const reef_config *config) {
    if (strcmp(config->score, "sigmoid") == 0) return REEF_SCORE_SIGMOID;
    return strcmp(config->score, "relu") == 0 ? REEF_SCORE_RELU : REEF_SCORE_SOFTMAX;
}

static reef_expert_kind expert_kind(const reef_config *config) {
    if (strcmp(config->expert, "glu") == 0) return REEF_EXPERT_GLU;
    return strcmp(config->expert, "relu") == 0 ? REEF_EXPERT_RELU : REEF_EXPERT_GELU;
}

reef_router_shape reef_gen_shape(const reef_config *config, uint32_t side) {
    return (reef_router_shape){
        .d_model = config->d_model,
        .head_count = config->heads,
        .topk = config->topk,
        .d_key = config->d_key,
        .side = side,
        .batch_norm = config->batch_norm,
        .head_keys = strcmp(config->subkeys, "head") == 0,
        .score = score_of(config),
    };
}

static reef_expert_shape shape_of_kind(const reef_config *config, reef_expert_kind kind) {
    return (reef_expert_shape){
        .kind = kind,
        .P = (size_t)config->heads * config->topk,
        .D = config->d_model,
    };
}

reef_expert_shape reef_gen_expert_shape(const reef_config *config, uint32_t layer) {
    bool values = reef_layer_ffw(config, layer) == REEF_FFW_PKM;
    return shape_of_kind(config, values ? REEF_EXPERT_VALUE : expert_kind(config));
}

reef_expert_shape reef_gen_expert_shape_largest(const reef_config *config) {
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_PEER) return reef_gen_expert_shape(config, l);
    return shape_of_kind(config, REEF_EXPERT_VALUE);
}

reef_moe_shape reef_gen_moe_shape(const reef_config *config) {
    return (reef_moe_shape){
        .T = config->context,
        .D = config->d_model,
        .F = config->d_ffw,
        .E = config->moe_experts,
        .C = reef_moe_capacity(config),
    };
}

reef_dtype reef_gen_seal_dtype(const reef_config *config) {
    return strcmp(config->seal_dtype, "bf16") == 0 ? REEF_BF16 : REEF_F32;
}

const char *reef_rows_dtype_text(reef_dtype dtype) {
    return dtype == REEF_BF16 ? "bf16" : "f32";
}

// A whole matrix where it has no more values than the two of rank `adapters` that would correct it.
static reef_adapter_shape adapter_shape(const reef_config *config, size_t in, size_t out) {
    size_t rank = config->adapters;
    bool whole = config->adapt_whole && rank * (in + out) >= in * out;
    return (reef_adapter_shape){in, out, whole ? in : rank, whole};
}

reef_adapter_shape reef_adapter_shape_qkv(const reef_config *config) {
    return adapter_shape(config, config->d_model, 3 * (size_t)config->d_model);
}

reef_adapter_shape reef_adapter_shape_out(const reef_config *config) {
    return adapter_shape(config, config->d_model, config->d_model);
}

reef_adapter_shape reef_adapter_shape_ffw_in(const reef_config *config) {
    return adapter_shape(config, config->d_model, config->d_ffw);
}

reef_adapter_shape reef_adapter_shape_ffw_out(const reef_config *config) {
    return adapter_shape(config, config->d_ffw, config->d_model);
}

size_t reef_adapter_rank_max(const reef_config *config) {
    size_t qkv = reef_adapter_shape_qkv(config).rank, out = reef_adapter_shape_out(config).rank;
    size_t rank = config->adapters == 0 ? 0 : qkv > out ? qkv : out;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_adapts_ffw(config, l)) continue;
        size_t in = reef_adapter_shape_ffw_in(config).rank;
        size_t up = reef_adapter_shape_ffw_out(config).rank;
        rank = rank > in ? rank : in;
        rank = rank > up ? rank : up;
    }
    return rank;
}
