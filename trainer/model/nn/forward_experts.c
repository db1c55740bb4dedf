// Forward of a block's experts, one generation after the other: router, rows, and what a new generation must not add
// to old data.
#include "nn_internal.h"

#include <string.h>

// x += delta * y_old where the generation fires: y_old is what all older ones together have added to x_mid.
// A delta of zero changes no bit, so neither does opening a generation.
static void weigh_older(const reef_forward *f, size_t w) {
    const float *delta = f->net->gens[f->g]->weights.delta_older[f->l];
    if (delta == NULL) return;
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, at = w * T * D;
    const uint8_t *fire = reef_batch_fire(f->batch, config, f->g, w);
    bool keeps = f->train && f->net->gens[f->g]->open;
    for (size_t t = 0; t < T; t++, at += D) {
        if (!fire[t]) continue;
        float *x = f->pass->x + at;
        const float *x_mid = f->layer->x_mid + at;
        for (size_t d = 0; d < D; d++) {
            float old = x[d] - x_mid[d];
            if (keeps) f->layer->older[at + d] = old;
            x[d] += delta[d] * old;
        }
    }
}

static void experts_window(void *context, size_t w) {
    const reef_forward *f = context;
    const reef_config *config = f->pass->config;
    if (!f->pass->piece_active[w]) return;
    if (f->g > 0) weigh_older(f, w);
    reef_expert_shape shape = reef_gen_expert_shape(config, f->l);
    size_t D = shape.D, P = shape.P, T = config->context, row = w * T;
    reef_pass_peer *peer = &f->pass->peers[f->g][f->layer - f->pass->layers];
    reef_experts_forward(
        &shape, T, f->pass->x + row * D, peer->hidden + row * reef_expert_hidden_values(&shape),
        f->layer->norm2 + row * D, peer->tape.indices + row * P, peer->tape.gate + row * P,
        &f->net->gens[f->g]->peers[f->l].rows, reef_batch_fire(f->batch, config, f->g, w));
}

float reef_retain_weight(const reef_config *config, const uint8_t *fire) {
    size_t fired = 0;
    for (size_t t = 0; t < config->context; t++) fired += fire[t];
    // One part each for the layers, the embedding and the head.
    return 2.0f * config->retain_weight /
           ((float)(config->layers + 2) * (float)(fired ? fired : 1));
}

// The retain term of one layer: retain_weight * |y_g|^2 / |y_old|^2, a share of it, averaged over
// the fired tokens, on windows of old data; y_old counts as a constant. `before` is x without y_g.
static void retain_window(const reef_forward *f, size_t w, const float *before) {
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, row = w * T;
    const uint8_t *fire = reef_batch_fire(f->batch, config, f->g, w);
    float weight = reef_retain_weight(config, fire);
    for (size_t t = 0; t < T; t++) {
        const float *x = f->pass->x + (row + t) * D, *base = before + t * D;
        const float *x_mid = f->layer->x_mid + (row + t) * D;
        float *d_y = f->layer->retain_d_y + (row + t) * D;
        float old = REEF_RETAIN_FLOOR;
        for (size_t d = 0; d < D; d++) old += (base[d] - x_mid[d]) * (base[d] - x_mid[d]);
        for (size_t d = 0; d < D; d++) d_y[d] = fire[t] ? weight * (x[d] - base[d]) / old : 0.0f;
    }
}

static void experts_open_window(void *context, size_t w) {
    const reef_forward *f = context;
    if (!reef_batch_retains(f->batch, w)) {
        experts_window(context, w);
        return;
    }
    const reef_config *config = f->pass->config;
    size_t count = (size_t)config->context * config->d_model;
    float *before = f->pass->window_scratch + w * config->context * reef_pass_scratch_width(config);
    memcpy(before, f->pass->x + w * count, count * sizeof *before);
    experts_window(context, w);
    retain_window(f, w, before);
}

reef_status reef_forward_experts(reef_forward *f,
                                 reef_workers *workers,
                                 reef_pass_mode mode,
                                 reef_error *err) {
    reef_pass *pass = f->pass;
    for (size_t g = 0; g < f->net->gen_count; g++) {
        const reef_gen *gen = f->net->gens[g];
        if (!reef_pass_activate(pass, f->batch, g)) continue;
        reef_status status = reef_pass_prepare_generation(pass, gen, g, err);
        if (status != REEF_OK) return status;
        bool train = gen->open && mode == REEF_PASS_TRAIN && !gen->queries_frozen;
        reef_router_shape shape = reef_gen_shape(pass->config, gen->info.side);
        const reef_router_params *router =
            gen->open && !train ? &gen->folded[f->l] : &gen->weights.routers[f->l];
        f->g = g;
        double start = reef_seconds();
        // Batch statistics want every row; a window of old data in which the gate is silent is few.
        if (train) memset(pass->piece_active, 1, f->batch->windows);
        status = reef_router_forward(&shape, router, train ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED,
                                     workers, f->batch->windows * pass->config->context,
                                     f->layer->norm2, pass->piece_active,
                                     &pass->peers[g][f->layer - pass->layers].tape, err);
        if (status != REEF_OK) return status;
        double routed = reef_seconds();
        bool retain = train && g > 0;
        reef_pass_run_experts(pass, f->net, workers, f->batch, g, f->l,
                              retain ? experts_open_window : experts_window, f);
        pass->seconds_router += routed - start;
        pass->seconds_experts += reef_seconds() - routed;
        if (pass->on_experts != NULL) pass->on_experts(pass->on_experts_context, g, f->l);
    }
    return REEF_OK;
}
