// Configurations of new pools: the defaults of the table in config_table.c, and what follows from
// what is given.
//
// What always holds: a value that came through reef_config_set or reef_config_parse lies within its
// field's bounds, and what parse returns has passed reef_config_check as a whole. What the fields
// do is the business of the files that read them.
#include "config_internal.h"

#include <assert.h>
#include <string.h>

void reef_config_default(reef_config *config) {
    memset(config, 0, sizeof(*config)); // padding too: equal configurations are equal bytes
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        reef_status status = reef_config_field_set(config, &fields[i], fields[i].standard, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}

// A memory is of bytes.
static bool takes_memory(const reef_config *config) {
    return config->model == REEF_MODEL_LM;
}

// Nobody asks it, but a generation stores one: the least that there can be.
static void leave_out_net(reef_config *config) {
    config->layers = 1;
    config->d_model = 2;
    config->attention_heads = 1;
    strcpy(config->ffw, "d");
    config->d_ffw = 1;
}

static void fit_topk(reef_config *config) {
    uint32_t least = config->side < config->side_new ? config->side : config->side_new;
    if (config->topk > least) config->topk = least;
}

// It stands for the feed-forward network of somebody else's model, with nothing beside it.
static void fit_layer(reef_config *config) {
    config->heads = 8;
    config->topk = 16;
    config->d_key = 64;
    config->learning_rate = 0.002f;
}

void reef_config_fit(reef_config *config) {
    if (reef_config_is_layer(config)) fit_layer(config);
    if (!takes_memory(config)) config->context_memory = 0;
    if (config->context_memory == 0) {
        config->net_share = 1.0f;
        config->boundaries = REEF_BOUNDARIES_GIVEN;
    }
    if (!(config->net_share > 0.0f)) leave_out_net(config);
    fit_topk(config);
}
