// The formulas of flops.c against what the kernels are asked for: forwards and backwards, every
// kind of layer. They are equal but for terms that are not counted, and those are known to the last
// FLOP as well.
#include "activations.h"
#include "checked.h"
#include "flop_count.h"
#include "flops.h"
#include "generation.h"
#include "reef_random.h"
#include "router_internal.h"

enum { WINDOWS = 3, CONTEXT = 70 }; // two blocks of attention, the second one short

typedef struct world {
    reef_config config;
    reef_network network;
    reef_activations acts;
    uint8_t *tokens, *targets;
    float *weight;
} world;

static void set(reef_config *config, const char *field, const char *value) {
    if (reef_config_set(config, field, value, &why) != REEF_OK) fail_msg("%s", why.message);
}

// `settings` are pairs of field and value, up to a NULL.
static void build(world *w, const char *const *settings) {
    static const char *const SIZES[] = {
        "layers",      "3", "d_model", "12", "attention_heads", "3", "context", "70", "d_ffw", "10",
        "heads",       "2", "topk",    "3",  "d_key",           "6", "side",    "5",  "batch", "3",
        "moe_experts", "4", NULL};
    *w = (world){0};
    reef_config_default(&w->config);
    for (size_t i = 0; SIZES[i] != NULL; i += 2) set(&w->config, SIZES[i], SIZES[i + 1]);
    for (size_t i = 0; settings[i] != NULL; i += 2) set(&w->config, settings[i], settings[i + 1]);
    if (reef_config_check(&w->config, &why) != REEF_OK) fail_msg("%s", why.message);
    w->network.config = w->config;
    must(reef_activations_init(&w->acts, &w->network.config, WINDOWS, true, &why));
    reef_generation *generation = NULL;
    reef_generation_record info = {.side = w->config.side, .dtype = REEF_F32};
    must(reef_generation_new(&generation, &w->config, &info, (reef_row_division){0}, &why));
    reef_generation_initialise(generation, &w->config, NULL);
    must(reef_network_append(&w->network, generation, &why));
    size_t rows = (size_t)WINDOWS * w->config.context;
    w->tokens = calloc(rows, 1);
    w->targets = calloc(rows, 1);
    w->weight = calloc(rows, sizeof(*w->weight));
    assert_true(w->tokens && w->targets && w->weight);
    for (size_t i = 0; i < rows; i++) {
        w->tokens[i] = (uint8_t)reef_random_bits(5, 1, i);
        w->targets[i] = (uint8_t)reef_random_bits(5, 2, i);
        w->weight[i] = 1.0f / (float)rows;
    }
}

static void release(world *w) {
    reef_activations_release(&w->acts);
    reef_network_release(&w->network);
    free(w->tokens);
    free(w->targets);
    free(w->weight);
}

static uint64_t sum(const flop_count *count) {
    return count->gemm + count->dot + count->axpy + count->dot_rows + count->axpy_rows;
}

// Gradients of norms, their sum over windows, and the softmax of attention: no products of two
// sizes.
static uint64_t norms_and_softmax(const reef_config *config) {
    uint64_t D = config->d_model, T = config->context, norms = 2 * (uint64_t)config->layers + 1;
    uint64_t shifts = norms * WINDOWS * (T + 2) * 2 * D;
    uint64_t softmax = (uint64_t)config->layers * WINDOWS * config->attention_heads * T * (T + 1);
    return shifts + softmax;
}

// The softmax of a mixture's router, backwards.
static uint64_t mixture_softmax(const reef_config *config) {
    uint64_t layers = 0;
    for (uint32_t l = 0; l < config->layers; l++)
        layers += config->ffw[config->ffw[1] == '\0' ? 0 : l] == 'm';
    return layers * WINDOWS * config->context * 2 * config->moe_experts;
}

// Sub-key gradients of groups of windows are added up, once a step.
static uint64_t sub_key_sums(const reef_config *config) {
    uint64_t tables = config->subkeys == REEF_SUBKEYS_HEAD ? config->heads : 1, layers = 0;
    for (uint32_t l = 0; l < config->layers; l++)
        layers += strchr("pk", config->ffw[config->ffw[1] == '\0' ? 0 : l]) != NULL;
    return layers * reef_tape_group_count(WINDOWS) * tables * 2 * config->side * config->d_key;
}

static void compare(const char *const *settings) {
    world w;
    build(&w, settings);
    reef_flops flops;
    reef_flops_count(&w.config, &flops);
    reef_batch batch = {
        .windows = WINDOWS, .tokens = w.tokens, .targets = w.targets, .weight = w.weight};
    (void)flop_count_take();
    reef_status status =
        reef_network_forward(&w.acts, &w.network, NULL, &batch, REEF_PASS_TRAIN, &why);
    if (status != REEF_OK) fail_msg("%s", why.message);
    flop_count forward = flop_count_take();
    assert_int_equal(sum(&forward), WINDOWS * flops.forward_window);

    reef_network_update update = {.adam = {1e-3f, 0.9f, 0.98f, 1e-8f}};
    reef_network_backward(&w.acts, &w.network, NULL, &batch, &update);
    flop_count backward = flop_count_take();
    assert_int_equal(sum(&backward), WINDOWS * flops.backward_window +
                                         norms_and_softmax(&w.config) + mixture_softmax(&w.config) +
                                         sub_key_sums(&w.config));
    // Running statistics of a batch norm are kept, and not trained.
    uint64_t kept = 0;
    for (size_t i = 0; i < w.network.generations[0]->tensor_count; i++) {
        const reef_tensor *tensor = &w.network.generations[0]->tensors[i];
        if (tensor->grad == NULL) kept += tensor->count;
    }
    assert_int_equal(reef_network_parameter_count(&w.network), flops.parameters + kept);
    release(&w);
}

PLAIN_TEST(kernels_are_asked_for_what_the_formulas_say) {
    compare((const char *const[]){"ffw", "d", NULL});
    compare((const char *const[]){"ffw", "p", NULL});
    compare((const char *const[]){"ffw", "dpd", "batch_norm", "false", NULL});
    compare((const char *const[]){"ffw", "pdp", "expert", "glu", NULL});
    compare((const char *const[]){"ffw", "dkp", "subkeys", "head", NULL});
    compare((const char *const[]){"ffw", "k", "expert", "glu", NULL});
    compare((const char *const[]){"ffw", "dmd", NULL});
    compare((const char *const[]){"ffw", "mpk", "moe_experts", "5", NULL});
    compare((const char *const[]){"ffw", "p", "score", "relu", NULL});
}

PLAIN_TEST(products_are_matrix_products) {
    world w;
    build(&w, (const char *const[]){"ffw", "dpd", NULL});
    reef_flops flops;
    reef_flops_count(&w.config, &flops);
    reef_batch batch = {.windows = WINDOWS, .tokens = w.tokens};
    (void)flop_count_take();
    must(reef_network_forward(&w.acts, &w.network, NULL, &batch, REEF_PASS_TRAIN, &why));
    flop_count count = flop_count_take();
    uint64_t experts = flops.forward[REEF_FLOPS_PEER];
    assert_int_equal(count.gemm, WINDOWS * (flops.forward_window - experts -
                                            flops.forward[REEF_FLOPS_EMBEDDING]));
    assert_int_equal(count.dot_rows + count.axpy_rows, WINDOWS * experts);
    assert_int_equal(count.axpy, WINDOWS * flops.forward[REEF_FLOPS_EMBEDDING]);
    assert_int_equal(count.dot, 0);
    release(&w);
}

// A model small enough to count by hand: T 2, D 2, one head, one layer, dense of width 3.
PLAIN_TEST(a_dense_model_by_hand) {
    reef_config config;
    reef_config_default(&config);
    static const char *const SETTINGS[] = {
        "layers", "1", "d_model", "2", "attention_heads", "1", "context", "2",
        "d_ffw",  "3", "ffw",     "d", "batch",           "5", NULL};
    for (size_t i = 0; SETTINGS[i] != NULL; i += 2) set(&config, SETTINGS[i], SETTINGS[i + 1]);
    reef_flops flops;
    reef_flops_count(&config, &flops);
    // Of four tables the first token has one row, the second two, and each has its position's; 2
    // adds of a value count 2 FLOPs each.
    assert_int_equal(flops.forward[REEF_FLOPS_EMBEDDING], 5 * 2 * 2);
    assert_int_equal(flops.backward[REEF_FLOPS_EMBEDDING], 5 * 2 * 2);
    // (2 x 2)(2 x 6), (2 x 2)(2 x 2); all four pairs of the one block, for scores and for values.
    assert_int_equal(flops.forward[REEF_FLOPS_ATTENTION], 48 + 16 + 16 + 16);
    assert_int_equal(flops.backward[REEF_FLOPS_ATTENTION], 96 + 32 + 32 + 32);
    assert_int_equal(flops.forward[REEF_FLOPS_DENSE], 2 * 2 * 2 * 3 * 2);
    assert_int_equal(flops.forward[REEF_FLOPS_HEAD], 2 * 2 * 2 * 256);
    assert_int_equal(flops.forward_window, 20 + 96 + 48 + 2048);
    assert_int_equal(flops.backward_window, 20 + 192 + 96 + 4096);
    assert_true(flops.token == (2212 + 4404) / 2.0);
    assert_true(flops.step == (2212 + 4404) * 5.0);
    assert_int_equal(flops.parameters, 4 * 256 * 2 + 2 * 2 + 4 * 4 + 8 + 12 + 512 + 4);
    assert_int_equal(flops.parameters_active, 4 * 2 + 2 + 4 * 4 + 8 + 12 + 512 + 4);
}

PLAIN_TEST(a_token_meets_its_experts_only) {
    reef_config config;
    reef_config_default(&config);
    set(&config, "layers", "4");
    set(&config, "ffw", "dpdd");
    set(&config, "side", "64");
    reef_flops small, large;
    reef_flops_count(&config, &small);
    set(&config, "side", "128");
    reef_flops_count(&config, &large);
    uint64_t D = config.d_model, H = config.heads, keys = 64 * (uint64_t)config.d_key;
    assert_int_equal(large.parameters - small.parameters, (128 * 128 - 64 * 64) * 2 * D + keys);
    assert_int_equal(large.parameters_active - small.parameters_active, keys);
    assert_int_equal(large.forward[REEF_FLOPS_PEER], small.forward[REEF_FLOPS_PEER]);
    assert_int_equal(large.forward[REEF_FLOPS_ROUTER] - small.forward[REEF_FLOPS_ROUTER],
                     2 * (uint64_t)config.context * H * keys);
    assert_int_equal(small.forward[REEF_FLOPS_PEER],
                     4 * (uint64_t)config.context * H * config.topk * D);
}

// Of a mixture those of as many networks as take a token on average.
PLAIN_TEST(a_token_meets_a_share_of_a_mixture) {
    reef_config config;
    reef_flops mixture, dense;
    reef_config_default(&config);
    set(&config, "layers", "1");
    set(&config, "ffw", "m");
    reef_flops_count(&config, &mixture);
    set(&config, "ffw", "d");
    reef_flops_count(&config, &dense);
    uint64_t D = config.d_model, network = 2 * D * config.d_ffw;
    assert_int_equal(mixture.parameters - dense.parameters, 8 * D + 7 * network);
    // 16 tokens of a window of 128 are taken by each of 8.
    assert_int_equal(mixture.parameters_active + network - dense.parameters_active,
                     8 * D + network);
}

RUN_TESTS
