// Configurations of new pools: the defaults of the table in config_table.c, and what differs from
// them in a pool that is made.
//
// What always holds: a value that came through reef_config_set or reef_config_parse lies within its
// field's bounds, and what parse returns has passed reef_config_check as a whole. What the fields
// do is the business of the files that read them.
#include "config_internal.h"

#include <assert.h>
#include <string.h>

typedef struct choice {
    const char *name, *value;
} choice;

// What `reef init` and libreef choose for a model of bytes, where that is not the default of the
// field: the net alone is what benchmarks and comparisons have. Beside a memory a
// small net that learns much of the stream once is worth more than a large one that learns little
// of it and rehearses (docs/LEARNING.md, "The net").
static const choice MADE[] = {
    {"context_memory", "64M"},  {"net_share", "0.5"}, {"boundaries", "contexts"},
    {"return_bytes", "131072"}, {"layers", "1"},      {"d_model", "64"},
    {"attention_heads", "2"},   {"heads", "1"},       {"d_key", "32"},
    {"rehearse", "0"},          {"d_ffw", "256"},     {"adapters", "32"},
    {"learning_rate", "0.004"}, {"topk", "64"},
};

static void choose(reef_config *config, const choice *choices, size_t count) {
    for (size_t i = 0; i < count; i++) {
        reef_status status = reef_config_set(config, choices[i].name, choices[i].value, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}

const char *reef_config_field_made(const reef_config_field *field) {
    for (size_t i = 0; i < sizeof(MADE) / sizeof(MADE[0]); i++)
        if (strcmp(field->name, MADE[i].name) == 0) return MADE[i].value;
    return field->standard;
}

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

void reef_config_default_made(reef_config *config) {
    reef_config_default(config);
    choose(config, MADE, sizeof(MADE) / sizeof(MADE[0]));
}

// A memory is of bytes.
static bool takes_memory(const reef_config *config) {
    return config->model == REEF_MODEL_LM && reef_token_bytes(config) == 1;
}

// A net alone is as its fields say.
static void take_standard(reef_config *config) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        const choice standard = {fields[i].name, fields[i].standard};
        if (reef_config_field_made(&fields[i]) != standard.value) choose(config, &standard, 1);
    }
}

// Nobody asks it, but a generation stores one: the least that there can be.
static void leave_out_net(reef_config *config) {
    config->layers = 1;
    config->d_model = 2;
    config->attention_heads = 1;
    config->previous_bytes = 0;
    strcpy(config->ffw, "d");
    config->d_ffw = 1;
    config->adapters = 0;
}

void reef_config_fit_topk(reef_config *config) {
    uint32_t least = config->side < config->side_new ? config->side : config->side_new;
    if (config->context_memory > 0 && config->topk > least) config->topk = least;
}

void reef_config_fit(reef_config *config) {
    size_t window = config->context * reef_token_bytes(config);
    if (config->reservoir_window <= window) config->reservoir_window = (uint32_t)(2 * window);
    if (!takes_memory(config)) config->context_memory = 0;
    if (config->context_memory == 0) take_standard(config);
    if (config->boundaries != REEF_BOUNDARIES_CONTEXTS) config->return_bytes = 0;
    if (!(config->net_share > 0.0f)) leave_out_net(config);
    reef_config_fit_topk(config);
}
