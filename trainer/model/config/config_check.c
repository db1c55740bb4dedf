// What must hold of a configuration as a whole: sizes that fit together, and settings that mean
// something for its kind of model; and what a new pool chooses by what is given.
//
// What always holds: a value that came through reef_config_set or reef_config_parse lies within its
// field's bounds, and what parse returns has passed reef_config_check. What the fields do is the
// business of the files that read them.
#include "config_internal.h"

#include "architecture.h"
#include "reef_context.h"

#include <inttypes.h>
#include <string.h>

#define RECORD_BYTES_MAX (UINT32_C(1) << 30) // of the store

// A configuration need not have come through reef_config_set.
static reef_status bounds_check(const reef_config *config, reef_error *err) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < count; i++)
        status = reef_config_field_check(config, &fields[i], err);
    return status;
}

static reef_status model_check(const reef_config *c, reef_error *err) {
    if (c->d_model % c->attention_heads != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "d_model %" PRIu32 " is not a multiple of attention_heads %" PRIu32
                         "; make each head's width a whole number",
                         c->d_model, c->attention_heads);
    // One letter for all blocks, or one each.
    size_t letters = strlen(c->ffw);
    if (letters != 1 && letters != c->layers)
        return reef_fail(err, REEF_ERR_INVALID,
                         "ffw '%s' has %zu letters for %" PRIu32
                         " layers; give one letter for all or one per layer",
                         c->ffw, letters, c->layers);
    // One record of the store holds the moments of a tensor, and what training moves.
    double bytes = 3.0 * sizeof(float) * c->moe_experts * c->d_model * c->d_ffw;
    if (strchr(c->ffw, 'm') != NULL && bytes > (double)RECORD_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "moe_experts %" PRIu32 " * d_model %" PRIu32 " * d_ffw %" PRIu32
                         " are more values than a pool keeps of one mixture, %d; make the experts "
                         "fewer or narrower",
                         c->moe_experts, c->d_model, c->d_ffw,
                         (int)(RECORD_BYTES_MAX / (3 * sizeof(float))));
    return REEF_OK;
}

static reef_status side_check(const reef_config *c,
                              const char *name,
                              uint32_t side,
                              reef_error *err) {
    if (c->topk > side)
        return reef_fail(err, REEF_ERR_INVALID,
                         "topk %" PRIu32 " is more than the %" PRIu32
                         " sub-keys of %s; lower topk or raise %s",
                         c->topk, side, name, name);
    // The router checks its own bounds, so that they are defined once.
    reef_router_shape shape = {.d_model = c->d_model,
                               .head_count = c->heads,
                               .topk = c->topk,
                               .d_key = c->d_key,
                               .side = side,
                               .batch_norm = c->batch_norm};
    return reef_router_shape_check(&shape, err);
}

static reef_status peer_check(const reef_config *c, reef_error *err) {
    if (c->d_key % 2 != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "d_key %" PRIu32 " is odd; each half of a query meets one table of "
                         "sub-keys, so make it even",
                         c->d_key);
    reef_status status = side_check(c, "side", c->side, err);
    if (status != REEF_OK) return status;
    // The update pass numbers (token, expert) pairs with 32 bits.
    // In double: the product of four 32-bit numbers does not fit in 64 bits.
    double pairs = (double)c->batch * c->context * c->heads * c->topk;
    if (pairs > (double)UINT32_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "batch %" PRIu32 " * context %" PRIu32 " * heads %" PRIu32
                         " * topk %" PRIu32 " is more than 2^32; make the batch smaller",
                         c->batch, c->context, c->heads, c->topk);
    return REEF_OK;
}

static reef_status first_generation_check(const reef_config *c, uint32_t layers, reef_error *err) {
    uint64_t first = (uint64_t)layers * c->side * c->side;
    if (c->experts_max == 0 || c->experts_max >= first) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "experts_max %" PRIu64 " is less than the %" PRIu64
                     " experts of the first generation; raise it, or lower side",
                     c->experts_max, first);
}

// The fields that reef_config_reduce sets may be anything.
static reef_status layer_check(const reef_config *c, reef_error *err) {
    reef_status status = peer_check(c, err);
    return status == REEF_OK ? first_generation_check(c, 1, err) : status;
}

// A context memory predicts bytes.
static reef_status memory_check(const reef_config *c, reef_error *err) {
    if (c->memory == 0 && c->net_share < 1.0f)
        return reef_fail(err, REEF_ERR_INVALID,
                         "net_share %g leaves bytes to a context memory, and there is none; set "
                         "memory, or net_share 1",
                         (double)c->net_share);
    if (c->memory == 0 && c->boundaries == REEF_BOUNDARIES_CONTEXTS)
        return reef_fail(err, REEF_ERR_INVALID,
                         "boundaries contexts are found by context memories, and there are none; "
                         "set memory, or boundaries given");
    if (c->memory == 0) return REEF_OK;
    if (c->memory < REEF_MEMORY_BYTES_MIN)
        return reef_fail(err, REEF_ERR_INVALID,
                         "memory %" PRIu64 " is less than the %llu bytes that the memory of one "
                         "kind takes at least; set 4M or more, or 0 for none",
                         c->memory, REEF_MEMORY_BYTES_MIN);
    if (c->model == REEF_MODEL_LM) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "memory is for language models, and this pool has no text; leave it "
                     "at 0");
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
    if (config->topk > config->side) config->topk = config->side;
}

// It stands for the feed-forward network of somebody else's model, with nothing beside it.
static void fit_layer(reef_config *config) {
    config->heads = 8;
    config->topk = 16;
    config->d_key = 64;
    config->learning_rate = 0.002f;
    config->memory = 0; // a memory is of bytes
}

void reef_config_fit(reef_config *config) {
    if (reef_config_is_layer(config)) fit_layer(config);
    if (config->memory == 0) {
        config->net_share = 1.0f;
        config->boundaries = REEF_BOUNDARIES_GIVEN;
    }
    if (!(config->net_share > 0.0f)) leave_out_net(config);
    fit_topk(config);
}

void reef_config_reduce(reef_config *config) {
    if (!reef_config_is_layer(config)) return;
    config->memory = 0;
    config->net_share = 1.0f;
    config->boundaries = REEF_BOUNDARIES_GIVEN;
    config->layers = config->attention_heads = 1;
    config->ffw[0] = 'p';
    config->ffw[1] = '\0';
}

reef_status reef_config_check(const reef_config *config, reef_error *err) {
    // Ranges of single fields first: the checks below multiply them and must not overflow.
    reef_status status = bounds_check(config, err);
    if (status == REEF_OK) status = memory_check(config, err);
    if (status == REEF_OK && reef_config_is_layer(config)) return layer_check(config, err);
    if (status == REEF_OK) status = model_check(config, err);
    if (status == REEF_OK) status = peer_check(config, err);
    return status == REEF_OK
               ? first_generation_check(config, reef_config_retrieving_layers(config), err)
               : status;
}
