// See nn_internal.h. A product runs over the whole window: so its shape is fixed.
#include "nn_internal.h"

// The backbone's own weights, or its copies with a generation's corrections.
static const reef_weights *weights_of(const reef_network *network, size_t fires) {
    const reef_generation *generation = network->generations[fires];
    return fires == 0 ? &generation->weights : &generation->merged;
}

typedef struct product {
    size_t T, in, out;
    bool back; // (T, out) to (T, in)
    bool add;
} product;

static const float *matrix_of(const reef_weights *weights, reef_net_matrix which, uint32_t l) {
    switch (which) {
    case REEF_W_QKV:
        return weights->blocks[l].w_qkv;
    case REEF_W_OUT:
        return weights->blocks[l].w_out;
    case REEF_W_FFW_IN:
        return weights->blocks[l].w_ffw_in;
    case REEF_W_FFW_OUT:
        return weights->blocks[l].w_ffw_out;
    default:
        return weights->head;
    }
}

static product product_of(const reef_config *config, reef_net_matrix which) {
    size_t D = config->d_model, F = config->d_ffw, T = config->context;
    switch (which) {
    case REEF_W_QKV:
        return (product){.T = T, .in = D, .out = 3 * D};
    case REEF_W_OUT:
        return (product){.T = T, .in = D, .out = D};
    case REEF_W_FFW_IN:
        return (product){.T = T, .in = D, .out = F};
    case REEF_W_FFW_OUT:
        return (product){.T = T, .in = F, .out = D};
    default:
        return (product){.T = T, .in = D, .out = REEF_VOCAB};
    }
}

static void multiply(const product *p, const float *matrix, float *y, const float *x) {
    size_t from = p->back ? p->out : p->in, to = p->back ? p->in : p->out;
    reef_gemm(false, p->back, p->T, to, from, 1.0f, x, from, matrix, p->out, p->add ? 1.0f : 0.0f,
              y, to);
}

static void run(
    const reef_projection *at, reef_net_matrix which, const product *p, float *y, const float *x) {
    multiply(p, matrix_of(weights_of(at->network, at->fires), which, at->l), y, x);
}

void reef_project(
    const reef_projection *at, reef_net_matrix which, float *y, const float *x, bool add) {
    product p = product_of(&at->network->config, which);
    p.add = add;
    run(at, which, &p, y, x);
}

void reef_project_back(
    const reef_projection *at, reef_net_matrix which, float *d_x, const float *d_y, bool add) {
    product p = product_of(&at->network->config, which);
    p.back = true;
    p.add = add;
    run(at, which, &p, d_x, d_y);
}
