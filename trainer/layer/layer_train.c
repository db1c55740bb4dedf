// How a layer by itself learns: backward collects what the update of experts needs, a step applies
// it, a boundary seals. Gradients of the router lie in the open generation as in every model; those
// of experts are never formed, but what they are sums of is kept until the step, so that many
// batches give the step of one.
#include "boundary.h"
#include "events.h"
#include "layer_internal.h"
#include "optimiser.h"
#include "reef_layer_trainer.h"
#include "room.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- the step -----------------------------------------------------------------------------------

static reef_status reserve_pairs(reef_layer *layer,
                                 const reef_generation *generation,
                                 size_t P,
                                 reef_error *err) {
    const reef_expert_table *table = &generation->expert_tables[0];
    size_t needed = layer->collected.rows_max * P;
    if (layer->pairs.pair_count_max >= needed && layer->pairs.expert_count == table->expert_count)
        return REEF_OK;
    reef_expert_pairs_release(&layer->pairs);
    return reef_expert_pairs_init(&layer->pairs, needed, table->expert_count, table->row_values,
                                  err);
}

// Beyond it squares of gradients, which the moments are made of, would be no floats. NaN is not a
// bound either.
static const double GRADIENT_MAX = 1e19;

static double norm_of(size_t count, const float *values) {
    return sqrt((double)reef_dot(count, values, values));
}

// At least the norm of each expert's gradient, which is only formed when it is applied.
static double bound_experts(const reef_layer_collected *c, const reef_expert_shape *shape) {
    size_t D = shape->D, vectors = reef_expert_vectors(shape), each = shape->P * vectors;
    double bound = 0.0;
    for (size_t t = 0; t < c->rows; t++) {
        if (!c->active[t]) continue;
        // |sum of f_i x| <= sum |f_i| |x|: a bound, since experts that are chosen by several rows
        // add up.
        double x = norm_of(D, c->x + t * D), d_y = norm_of(D, c->d_y + t * D);
        const float *factors = c->factors + t * each;
        for (size_t v = 0; v < vectors; v++) {
            double sum = 0.0;
            for (size_t i = v; i < each; i += vectors) sum += fabs((double)factors[i]);
            // d_w_down and d_w_gate are multiples of the row, d_w_up of its gradient.
            bound += sum * (v == reef_expert_up(shape) ? d_y : x);
        }
    }
    return bound;
}

static reef_status check_gradients(const reef_trainer *trainer,
                                   double dense_norm,
                                   reef_error *err) {
    const reef_layer_collected *c = &trainer->layer->collected;
    reef_expert_shape shape = reef_generation_expert_shape(&trainer->network.config, 0);
    if (dense_norm < GRADIENT_MAX && bound_experts(c, &shape) < GRADIENT_MAX) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "the gradient of the %zu rows that are collected is not finite, or too large "
                     "for a step; discard it",
                     c->rows);
}

static void update_experts(reef_trainer *trainer, reef_generation *generation) {
    const reef_config *config = &trainer->network.config;
    reef_layer *layer = trainer->layer;
    const reef_layer_collected *c = &layer->collected;
    reef_expert_shape shape = reef_generation_expert_shape(config, 0);
    reef_expert_table *table = &generation->expert_tables[0];
    // Rows and factors of all collected batches are applied as if they had been one batch.
    const reef_expert_update update = {
        .adam = {trainer->net.learning_rate * config->expert_rate, config->beta1, config->beta2,
                 config->epsilon},
        .clip = config->clip,
        .flags = table->flags,
        .dirty = table->dirty,
        .usage = table->usage,
    };
    // Sorted by expert: each row is read, updated and written once, by one worker.
    reef_expert_pairs_sort(&layer->pairs, trainer->workers, c->rows, shape.P, c->indices,
                           c->active);
    reef_experts_update(trainer->workers, &shape, table->experts, &table->moments, &layer->pairs,
                        c->x, c->d_y, c->gate, c->factors, &update);
}

// The running statistics move by those of every batch, in the order of the backwards.
static void update_statistics(reef_trainer *trainer, reef_generation *generation) {
    const reef_config *config = &trainer->network.config;
    reef_layer_collected *c = &trainer->layer->collected;
    reef_router_shape router = reef_generation_shape(config, generation->info.side);
    size_t width = reef_layer_statistics_width(config) / 2;
    for (size_t i = 0; i < c->batches; i++) {
        float *statistics = c->statistics + 2 * width * i;
        const reef_router_tape tape = {.batch_mean = statistics, .batch_var = statistics + width};
        reef_router_update_stats(&router, &generation->weights.routers[0], &tape, REEF_BN_MOMENTUM);
    }
}

static void forget_collected(reef_layer *layer) {
    layer->collected.rows = layer->collected.batches = 0;
}

reef_status reef_trainer_layer_step(reef_trainer *trainer, float learning_rate, reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_layer *layer = trainer->layer;
    reef_generation *generation = reef_open_generation(trainer);
    const reef_config *config = &trainer->network.config;
    size_t P = (size_t)config->heads * config->topk;
    if (!(learning_rate >= 0.0f && learning_rate <= REEF_LEARNING_RATE_MAX))
        return reef_fail(err, REEF_ERR_INVALID, "a learning rate of %g is none; choose 0 to %g",
                         (double)learning_rate, (double)REEF_LEARNING_RATE_MAX);
    // A step without gradients is not an error: training loops call it unconditionally.
    if (layer->collected.rows == 0) return REEF_OK;
    // Every check comes before the first change, so a refused step leaves weights, moments and
    // counters as they were.
    double dense_norm = reef_step_gradient_norm(trainer->workers, generation);
    reef_status status = check_gradients(trainer, dense_norm, err);
    if (status == REEF_OK) status = reserve_pairs(layer, generation, P, err);
    if (status != REEF_OK) return status;
    trainer->net.learning_rate = learning_rate > 0.0f ? learning_rate : config->learning_rate;
    update_experts(trainer, generation);
    reef_step_update_dense(trainer, generation, dense_norm); // and clears the gradients
    update_statistics(trainer, generation);
    trainer->step++;
    trainer->generation_step++;
    // The stream of a layer is counted in rows; commits and snapshots name positions in it.
    trainer->stream_bytes += layer->collected.rows;
    forget_collected(layer);
    layer->fold_is_stale = true;
    layer->version++;
    return REEF_OK;
}

void reef_trainer_layer_discard(reef_trainer *trainer) {
    if (trainer->layer == NULL) return;
    reef_generation *generation = reef_open_generation(trainer);
    for (size_t i = 0; i < generation->tensor_count; i++)
        if (generation->tensors[i].grad != NULL)
            memset(generation->tensors[i].grad, 0, generation->tensors[i].count * sizeof(float));
    forget_collected(trainer->layer);
}

size_t reef_trainer_layer_collected(const reef_trainer *trainer) {
    return trainer->layer == NULL ? 0 : trainer->layer->collected.rows;
}

// ---- the boundary -------------------------------------------------------------------------------

// May the next generation have this side?
static reef_status check_room(const reef_trainer *trainer, uint64_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // A generation must have at least topk sub-keys per side, or a head could not choose that many.
    if (side < config->topk || side > REEF_SIDE_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %" PRIu64 " of the next generation is not %u (topk) to %u", side,
                         config->topk, REEF_SIDE_MAX);
    if (reef_room_for_experts(trainer, side * side)) return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL,
                     "the pool has %" PRIu64 " experts and was made for experts_max %" PRIu64
                     ": there is no room for %" PRIu64 " more",
                     reef_room_experts(trainer), config->experts_max, side * side);
}

// In memory; the next commit writes both generations.
static reef_status boundary(reef_trainer *trainer,
                            uint32_t side,
                            reef_dtype dtype,
                            reef_error *err) {
    reef_network *network = &trainer->network;
    // Sealed copy and next generation are both made before the open one is freed.
    reef_generation *open = reef_open_generation(trainer), *sealed = NULL, *next = NULL;
    reef_status status = reef_growth_next(&next, trainer, &open->info, open, side, err);
    if (status == REEF_OK)
        status = reef_network_reserve(network, network->generation_count + 1, err);
    open->info.sealed_step = trainer->step;
    open->info.sealed_at = trainer->stream_bytes;
    if (status == REEF_OK)
        status = reef_generation_make_sealed(&sealed, open, &network->config, dtype, err);
    if (status != REEF_OK) {
        reef_generation_free(next);
        return status;
    }
    // Nothing can fail from here to the event: two pointers are exchanged.
    reef_generation_free(open);
    network->generations[network->generation_count - 1] = sealed;
    network->generations[network->generation_count++] = next;
    trainer->generation_step = 0;
    trainer->layer->fold_is_stale = true;
    trainer->layer->version++;
    status = reef_state_event(trainer, err, "seal",
                              "\"sealed\": %u, \"reason\": \"command\", \"dtype\": \"%s\"",
                              sealed->info.generation, reef_rows_dtype_text(dtype));
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "open", "\"reason\": \"command\", \"side\": %u", side);
}

static reef_status seal(
    reef_trainer *trainer, uint32_t side, reef_dtype dtype, reef_sealing *out, reef_error *err) {
    // Reported after the seal, when the open generation has another number.
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    // They belong to the generation that would be sealed; silently dropping them would lose
    // training.
    if (trainer->layer->collected.rows > 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "gradients of %zu rows are collected; take the step or discard them before "
            "the generation is sealed",
            trainer->layer->collected.rows);
    reef_status status = reef_trainer_pin(trainer, err);
    if (status == REEF_OK) status = check_room(trainer, side, err);
    if (status == REEF_OK) status = boundary(trainer, side, dtype, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    // A layer has no loss of its own to compare before and after.
    if (status == REEF_OK && out != NULL)
        *out = (reef_sealing){.generation = generation,
                              .dtype = dtype,
                              .loss_before = (double)NAN,
                              .loss_after = (double)NAN};
    return status;
}

reef_status reef_trainer_layer_seal(reef_trainer *trainer,
                                    uint32_t side,
                                    const char *seal_dtype,
                                    reef_sealing *out,
                                    reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_dtype dtype = REEF_F32;
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_status status = reef_seal_dtype_parse(config, seal_dtype, &dtype, err);
    if (status != REEF_OK) return status;
    return seal(trainer, side == 0 ? config->side : side, dtype, out, err);
}

// ---- the public passes --------------------------------------------------------------------------

static reef_layer_view view_of(reef_trainer *trainer) {
    return (reef_layer_view){&trainer->network, trainer->workers, trainer->net.residency.prefetch,
                             trainer->layer};
}

reef_status reef_trainer_layer_forward(reef_trainer *trainer,
                                       const reef_layer_choice *choice,
                                       size_t rows,
                                       const float *x,
                                       float *y,
                                       reef_layer_tape *tape,
                                       reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_status status = reef_trainer_pin(trainer, err);
    reef_layer_view view = view_of(trainer);
    return status == REEF_OK ? reef_layer_run(&view, choice, rows, x, y, tape, err) : status;
}

reef_status reef_trainer_layer_backward(reef_trainer *trainer,
                                        reef_layer_tape *tape,
                                        const float *x,
                                        const float *d_y,
                                        float *d_x,
                                        reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_status status = reef_trainer_pin(trainer, err);
    reef_layer_view view = view_of(trainer);
    return status == REEF_OK ? reef_layer_back(&view, tape, x, d_y, d_x, err) : status;
}

// ---- what a layer does differently --------------------------------------------------------------

static reef_status allocate_layer(reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    return status == REEF_OK ? reef_layer_new(&trainer->layer, err) : status;
}

static reef_status check_layer_seal(const reef_trainer *trainer, reef_error *err) {
    return check_room(trainer, trainer->network.config.side, err);
}

static reef_status seal_layer(reef_trainer *trainer,
                              reef_dtype dtype,
                              reef_sealing *out,
                              reef_error *err) {
    return seal(trainer, trainer->network.config.side, dtype, out, err);
}

static reef_status check_layer_grow(const reef_trainer *trainer, reef_error *err) {
    if (trainer->layer->collected.rows == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "gradients are collected; take the step or discard them before it grows");
}

static void layer_grown(reef_trainer *trainer) {
    trainer->layer->fold_is_stale = true;
    trainer->layer->version++; // tapes of before no longer fit
}

const reef_trainer_ops reef_layer_ops = {
    .allocate = allocate_layer,
    .seal_check = check_layer_seal,
    .seal = seal_layer,
    .grow_check = check_layer_grow,
    .grown = layer_grown,
    .no_stream = "the pool holds a layer by itself, which has no stream; a program that uses it "
                 "through libreef trains it",
    .no_import = "a layer by itself takes no generation of another pool: nothing would say where "
                 "it takes part",
};
