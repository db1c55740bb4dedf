// Backward of a block's experts, one generation after the other: forward_experts.c read upwards, and the update of the
// open generation's rows.
#include "backward.h"

#include <string.h>

// The gradient of what generation g adds, as generation `newer`, which weighs it, hands it down.
static void weigh_gradient(const reef_backward *b, size_t newer, size_t w) {
    const reef_config *config = b->pass->config;
    size_t D = config->d_model, T = config->context;
    const float *delta = b->net->gens[newer]->weights.delta_older[b->l];
    const uint8_t *fire = reef_batch_fire(b->batch, config, newer, w);
    float *d_y = b->pass->d_y + w * T * D;
    for (size_t t = 0; delta != NULL && t < T; t++, d_y += D)
        for (size_t d = 0; fire[t] && d < D; d++) d_y[d] += delta[d] * d_y[d];
}

// The window's share of the gradient of the open generation's weights of older experts: (D).
static void older_gradient_window(const reef_backward *b, size_t w) {
    const reef_config *config = b->pass->config;
    size_t D = config->d_model, T = config->context, at = w * T * D;
    const uint8_t *fire = reef_batch_fire(b->batch, config, b->g, w);
    float *d_delta = b->pass->norm_grads + w * 4 * D;
    memset(d_delta, 0, D * sizeof *d_delta);
    for (size_t t = 0; t < T; t++, at += D)
        for (size_t d = 0; fire[t] && d < D; d++)
            d_delta[d] += b->pass->d_y[at + d] * b->layer->older[at + d];
}

// d_y of a generation's layer output: the residual gradient as newer generations weigh it, for the open one
// plus the retain term.
static void output_gradient_window(void *context, size_t w) {
    const reef_backward *b = context;
    const reef_config *config = b->pass->config;
    size_t count = (size_t)config->context * config->d_model, at = w * count;
    memcpy(b->pass->d_y + at, b->pass->d_x + at, count * sizeof(float));
    for (size_t newer = b->net->gen_count - 1; newer > b->g; newer--) weigh_gradient(b, newer, w);
    if (b->g == 0 || !b->net->gens[b->g]->open) return;
    if (reef_batch_retains(b->batch, w))
        reef_axpy(count, b->pass->d_y + at, 1.0f, b->layer->retain_d_y + at);
    if (b->open->weights.delta_older[b->l] != NULL) older_gradient_window(b, w);
}

// In window order.
static void reduce_older(const reef_backward *b) {
    size_t D = b->pass->config->d_model;
    float *d_delta = b->open->grads.delta_older[b->l];
    for (size_t w = 0; d_delta != NULL && w < b->batch->windows; w++)
        reef_axpy(D, d_delta, 1.0f, b->pass->norm_grads + w * 4 * D);
}

static void experts_window(void *context, size_t w) {
    const reef_backward *b = context;
    const reef_config *config = b->pass->config;
    reef_expert_shape shape = reef_gen_expert_shape(config, b->l);
    size_t D = shape.D, P = shape.P, T = config->context, row = w * T,
           at = row * reef_expert_hidden_values(&shape);
    if (!b->pass->piece_active[w]) return;
    reef_pass_peer *peer = &b->pass->peers[b->g][b->l];
    bool open = b->net->gens[b->g]->open;
    reef_experts_backward(&shape, T, b->pass->d_norm + row * D, peer->d_gate + row * P,
                          open ? peer->factors + row * P * reef_expert_vectors(&shape) : NULL,
                          b->pass->d_y + row * D, peer->hidden + at, peer->tape.indices + row * P,
                          peer->tape.gate + row * P, &b->net->gens[b->g]->peers[b->l].rows,
                          reef_batch_fire(b->batch, config, b->g, w));
}

static void update_experts(reef_backward *b, const reef_pass_update *update) {
    const reef_config *config = b->pass->config;
    reef_expert_shape shape = reef_gen_expert_shape(config, b->l);
    reef_pass_peer *tape = &b->pass->peers[b->g][b->l];
    reef_peer *peer = &b->open->peers[b->l];
    const uint8_t *fire = b->g == 0 ? NULL : reef_batch_fire(b->batch, config, b->g, 0);
    double start = reef_seconds();
    reef_expert_pairs_sort(&b->pass->pairs, b->workers, b->rows, shape.P, tape->tape.indices, fire);
    reef_expert_update expert_update = {
        .adam = update->adam,
        .average_rate = update->average_rate,
        .clip = update->clip,
        .flags = update->freeze == NULL
                     ? peer->flags
                     : update->freeze(update->freeze_context, b->l, &b->pass->pairs),
        .dirty = peer->dirty,
        .usage = peer->usage,
        .squares = update->squares == NULL ? NULL : update->squares[b->l],
    };
    if (update->pulls != NULL) expert_update.pull = update->pulls[b->l];
    reef_experts_update(b->workers, &shape, peer->experts, &peer->moments, &b->pass->pairs,
                        b->layer->norm2, b->pass->d_y, tape->tape.gate, tape->factors,
                        &expert_update);
    b->pass->seconds_update += reef_seconds() - start;
}

static void generation(reef_backward *b, const reef_pass_update *update) {
    reef_pass *pass = b->pass;
    reef_gen *gen = b->net->gens[b->g];
    if (!reef_pass_activate(pass, b->batch, b->g)) return;
    if (gen->open) memset(pass->piece_active, 1, b->batch->windows);
    reef_pass_peer *tape = &pass->peers[b->g][b->l];
    reef_router_shape shape = reef_gen_shape(pass->config, gen->info.side);
    double start = reef_seconds();
    reef_workers_run(b->workers, b->batch->windows, output_gradient_window, b);
    if (gen->open) reduce_older(b);
    reef_pass_run_experts(pass, b->net, b->workers, b->batch, b->g, b->l, experts_window, b);
    double routed = reef_seconds();
    bool train = gen->open && !gen->queries_frozen;
    reef_router_backward(&shape,
                         gen->queries_frozen ? &gen->folded[b->l] : &gen->weights.routers[b->l],
                         train ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED, b->workers, b->rows,
                         b->layer->norm2, pass->piece_active, &tape->tape, tape->d_gate,
                         pass->d_norm, gen->open ? &gen->grads.routers[b->l] : NULL);
    pass->seconds_experts += routed - start;
    pass->seconds_router += reef_seconds() - routed;
    if (gen->open && !update->freeze_experts) update_experts(b, update);
}

void reef_backward_experts(reef_backward *b, const reef_pass_update *update) {
    for (b->g = 0; b->g < b->net->gen_count; b->g++) generation(b, update);
}
