// What training a configuration costs, counted by formula: see PAPER.md, "What a FLOP is here".
//
// A multiply and an add are 2 FLOPs. Counted is what grows with a product of two sizes: matrix
// products, inner products of scores and experts, weighted sums of rows. Not counted: norms,
// softmax, activations, the choice of the best, the loss and the optimiser, which are a small share
// and no two papers count alike. test_lab_flops compares every term with the calls of the
// kernels.
//
// What always holds: counts are of generation 0 alone, per window, in integers, so that they are
// exact.
#include "flops.h"

#include "architecture.h"

const char *reef_flops_part_text(reef_flops_part part) {
    static const char *const NAMES[] = {
#define REEF_FLOPS_NAME(upper, name) name,
        REEF_FLOPS_PART_LIST(REEF_FLOPS_NAME)
#undef REEF_FLOPS_NAME
    };
    return NAMES[part];
}

// Blocks of queries, each against the keys up to its own end.
uint64_t reef_flops_attended(size_t T) {
    uint64_t pairs = 0;
    for (size_t first = 0; first < T; first += REEF_ATTENTION_ROWS) {
        size_t keys = T - first < REEF_ATTENTION_ROWS ? T : first + REEF_ATTENTION_ROWS;
        pairs += (uint64_t)(keys - first) * keys;
    }
    return pairs;
}

uint64_t reef_flops_embedded(const reef_config *config) {
    uint64_t T = config->context, rows = 0;
    for (uint64_t back = 0; back < reef_embedding_tables(config) && back < T; back++)
        rows += T - back;
    return rows;
}

static void add_part(reef_flops *out, reef_flops_part part, uint64_t forward, uint64_t backward) {
    out->forward[part] += forward;
    out->backward[part] += backward;
}

// A product forwards is two backwards: the gradient of its input, and that of its weight.
static void add_product(
    reef_flops *out, reef_flops_part part, uint64_t rows, uint64_t in, uint64_t width) {
    add_part(out, part, 2 * rows * in * width, 4 * rows * in * width);
}

static void add_parameters(reef_flops *out, uint64_t total, uint64_t active) {
    out->parameters += total;
    out->parameters_active += active;
}

// ---- parameters ---------------------------------------------------------------------------------

// Queries: w_query (D, Q), and with batch norm a scale and a shift of each of the Q.
static uint64_t query_parameters(const reef_config *config) {
    uint64_t width = (uint64_t)config->heads * config->d_key;
    return width * config->d_model + (config->batch_norm ? 2 * width : 0);
}

// Both tables of sub-keys; each row is scored with every query (of its head).
static uint64_t key_parameters(const reef_config *config, uint32_t side) {
    reef_router_shape shape = reef_generation_shape(config, side);
    return 2 * (uint64_t)side * reef_router_key_row(&shape);
}

static uint64_t row_parameters(const reef_config *config, uint32_t layer) {
    reef_expert_shape shape = reef_generation_expert_shape(config, layer);
    return reef_expert_row_values(&shape);
}

// One dense network, or one expert of a mixture: w_in (D, F), w_out (F, D).
static uint64_t dense_parameters(const reef_config *config) {
    return 2 * (uint64_t)config->d_model * config->d_ffw;
}

static uint64_t layer_parameters(const reef_config *config, uint32_t layer, uint32_t side) {
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

static double layer_parameters_active(const reef_config *config, uint32_t layer, uint32_t side) {
    // Experts of a mixture choose tokens, so a token meets capacity * experts / context of them on
    // average.
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

// ---- parts --------------------------------------------------------------------------------------

static void embedding(reef_flops *out, const reef_config *config) {
    uint64_t D = config->d_model, T = config->context, tables = reef_embedding_tables(config);
    uint64_t sums = 2 * D * (reef_flops_embedded(config) + T); // the position's row as well
    add_part(out, REEF_FLOPS_EMBEDDING, sums, sums);
    add_parameters(out, tables * REEF_VOCAB * D + T * D, tables * D + D);
}

static void attention(reef_flops *out, const reef_config *config) {
    uint64_t D = config->d_model, T = config->context;
    add_product(out, REEF_FLOPS_ATTENTION, T, D, 3 * D);
    add_product(out, REEF_FLOPS_ATTENTION, T, D, D);
    // Scores and the weighted sum of values: of all heads together D wide.
    uint64_t pairs = 2 * reef_flops_attended(config->context) * D;
    add_part(out, REEF_FLOPS_ATTENTION, 2 * pairs, 4 * pairs);
    add_parameters(out, 4 * D * D + 4 * D, 4 * D * D + 4 * D); // with the norms of a block
}

static void dense(reef_flops *out, const reef_config *config) {
    uint64_t D = config->d_model, F = config->d_ffw;
    add_product(out, REEF_FLOPS_DENSE, config->context, D, F);
    add_product(out, REEF_FLOPS_DENSE, config->context, F, D);
}

// Every expert is a dense network over the tokens that it takes, whose outputs are weighted.
static void mixture(reef_flops *out, const reef_config *config) {
    uint64_t D = config->d_model, F = config->d_ffw, T = config->context, E = config->moe_experts;
    uint64_t taken = E * reef_moe_capacity(config), sums = 2 * taken * D;
    add_product(out, REEF_FLOPS_ROUTER, T, D, E);
    add_product(out, REEF_FLOPS_MOE, taken, D, F);
    add_product(out, REEF_FLOPS_MOE, taken, F, D);
    // Backwards the gradients of the weight, of the output, and of the token, to which all experts
    // add.
    add_part(out, REEF_FLOPS_MOE, sums, 3 * sums);
}

// Queries, and the scores of both halves against a table of sub-keys each.
static void product_keys(reef_flops *out, const reef_config *config) {
    uint64_t D = config->d_model, T = config->context, H = config->heads, K = config->topk;
    uint64_t width = H * config->d_key, S = config->side;
    add_product(out, REEF_FLOPS_ROUTER, T, D, width);
    // Backwards only the sub-keys of what was chosen: the gradient of the query, and their own.
    add_part(out, REEF_FLOPS_ROUTER, 2 * T * width * S, 4 * T * width * K);
}

// A row of `read` vectors that meet the token and one that is added up, or of that one alone.
static void retrieved(reef_flops *out,
                      const reef_config *config,
                      reef_flops_part part,
                      uint64_t read) {
    uint64_t D = config->d_model, pairs = (uint64_t)config->heads * config->topk;
    uint64_t each = 2 * (uint64_t)config->context * pairs * D, vectors = read + 1;
    // Backwards the gradient of the gate, of the token through each vector that met it, and of
    // every vector.
    add_part(out, part, vectors * each, (1 + read + vectors) * each);
}

static void feed_forward(reef_flops *out, const reef_config *config, uint32_t layer) {
    switch (reef_layer_ffw(config, layer)) {
    case REEF_FFW_DENSE:
        dense(out, config);
        break;
    case REEF_FFW_MOE:
        mixture(out, config);
        break;
    // A product-key memory retrieves values: no w_down, so no hidden units.
    case REEF_FFW_PKM:
        product_keys(out, config);
        retrieved(out, config, REEF_FLOPS_PKM, 0);
        break;
    case REEF_FFW_PEER:
        product_keys(out, config);
        // Each retrieved expert costs a dot product, a gated one two, and an axpy.
        retrieved(out, config, REEF_FLOPS_PEER, config->expert == REEF_EXPERT_GLU ? 2 : 1);
        break;
    }
    add_parameters(out, layer_parameters(config, layer, config->side),
                   (uint64_t)layer_parameters_active(config, layer, config->side));
}

void reef_flops_count(const reef_config *config, reef_flops *out) {
    *out = (reef_flops){.window_tokens = config->context};
    embedding(out, config);
    for (uint32_t l = 0; l < config->layers; l++) {
        attention(out, config);
        feed_forward(out, config, l);
    }
    add_product(out, REEF_FLOPS_HEAD, config->context, config->d_model, REEF_VOCAB);
    // The final norm has a scale and a shift.
    uint64_t output = (uint64_t)config->d_model * REEF_VOCAB + 2 * (uint64_t)config->d_model;
    add_parameters(out, output, output); // the output head, with the norm before it
    for (size_t part = 0; part < REEF_FLOPS_PART_COUNT; part++) {
        out->forward_window += out->forward[part];
        out->backward_window += out->backward[part];
    }
    out->token = (double)(out->forward_window + out->backward_window) / config->context;
    out->step = (double)(out->forward_window + out->backward_window) * (double)config->batch;
}
