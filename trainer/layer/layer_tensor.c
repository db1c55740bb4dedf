// Parameters of a layer by itself, by name: read from any generation, written to the open one, and
// the gradients that were collected of it.
#include "layer_internal.h"
#include "reef_layer_trainer.h"
#include "trainer_internal.h"

#include <math.h>
#include <string.h>

reef_status reef_layer_fail_other_model(const reef_trainer *trainer, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "%.120s is not a pool of a layer: its model is %s",
                     reef_store_path(trainer->store),
                     reef_config_word(&trainer->network.config, "model"));
}

reef_status reef_trainer_layer_read(reef_trainer *trainer,
                                    uint32_t generation,
                                    const char *name,
                                    float *out,
                                    size_t count,
                                    reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_status status = reef_trainer_pin(trainer, err);
    if (status != REEF_OK) return status;
    return reef_layer_tensor_read(&trainer->network, generation, name, out, count, err);
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status check_values(const char *name,
                                const float *values,
                                size_t count,
                                reef_error *err) {
    // Before anything is written: a bad value must leave the layer as it was.
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return reef_fail(err, REEF_ERR_INVALID, "value %zu of %s is not finite", i, name);
    // Variances are divided by; a negative one would give NaN at the first row.
    for (size_t i = 0; strcmp(name, "bn_var") == 0 && i < count; i++)
        if (values[i] < 0.0f)
            return reef_fail(err, REEF_ERR_INVALID,
                             "value %zu of bn_var is %g: no variance is negative", i,
                             (double)values[i]);
    return REEF_OK;
}

// The vector of all experts; their moments are reset.
static void write_vector(reef_expert_table *table, size_t v, size_t D, const float *values) {
    for (size_t n = 0; n < table->expert_count; n++) {
        size_t at = n * table->row_values + v * D;
        memcpy(table->experts + at, values + n * D, D * sizeof(*values));
        memset(table->moments.adam_m + at, 0, D * sizeof(*values));
        memset(table->moments.adam_v + at, 0, D * sizeof(*values));
        table->moments.counts[n] = 0;
    }
    memset(table->dirty, 1, table->expert_count);
}

reef_status reef_trainer_layer_write(
    reef_trainer *trainer, const char *name, const float *values, size_t count, reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    reef_generation *generation = reef_open_generation(trainer);
    reef_expert_table *table = &generation->expert_tables[0];
    size_t D = trainer->network.config.d_model;
    reef_layer_parameter found;
    reef_status status = reef_layer_parameter_find(&found, generation, D, name, count, err);
    if (status == REEF_OK) status = check_values(name, values, count, err);
    // The collected factors belong to the old values; a step after the write would apply gradients
    // of a layer that is gone.
    if (status == REEF_OK && trainer->layer->collected.rows > 0)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "gradients of %zu rows are collected; take the step or discard them "
                           "before %s is written",
                           trainer->layer->collected.rows, name);
    if (status != REEF_OK) return status;
    const reef_tensor *tensor = found.tensor;
    if (found.is_vector) {
        write_vector(table, found.vector, D, values);
    } else {
        memcpy(tensor->data, values, count * sizeof(*values));
        // Adam's moments of the old values say nothing about the new ones.
        if (tensor->adam_m != NULL) {
            memset(tensor->adam_m, 0, count * sizeof(*values));
            memset(tensor->adam_v, 0, count * sizeof(*values));
        }
    }
    trainer->layer->fold_is_stale = true;
    // Tapes of earlier passes no longer fit and are refused by their version.
    trainer->layer->version++;
    return REEF_OK;
}

// ---- gradients ----------------------------------------------------------------------------------

// What the update would sum up row by row, for all experts at once.
static void sum_vector(const reef_trainer *trainer, size_t vectors, size_t v, float *out) {
    const reef_layer_collected *c = &trainer->layer->collected;
    reef_expert_shape shape = reef_generation_expert_shape(&trainer->network.config, 0);
    for (size_t t = 0; t < c->rows; t++) {
        // d_w_down and d_w_gate are multiples of x, d_w_up of d_y.
        const float *direction = (v == 1 ? c->d_y : c->x) + t * shape.D;
        for (size_t i = t * shape.P; c->active[t] && i < (t + 1) * shape.P; i++)
            reef_axpy(shape.D, out + (size_t)c->indices[i] * shape.D, c->factors[i * vectors + v],
                      direction);
    }
}

reef_status reef_trainer_layer_gradient(
    reef_trainer *trainer, const char *name, float *out, size_t count, reef_error *err) {
    if (trainer->layer == NULL) return reef_layer_fail_other_model(trainer, err);
    const reef_generation *generation = reef_open_generation(trainer);
    reef_layer_parameter found;
    reef_status status = reef_layer_parameter_find(
        &found, generation, trainer->network.config.d_model, name, count, err);
    if (status != REEF_OK) return status;
    // Dense gradients are accumulated as usual; those of experts exist only as factors and are
    // summed on demand.
    if (!found.is_vector && found.tensor->grad == NULL)
        return reef_layer_parameter_missing(generation, name, err);
    if (!found.is_vector) memcpy(out, found.tensor->grad, count * sizeof(*out));
    if (found.is_vector) memset(out, 0, count * sizeof(*out));
    if (found.is_vector) sum_vector(trainer, found.vectors, found.vector, out);
    return REEF_OK;
}

// ---- what there is ------------------------------------------------------------------------------

size_t reef_trainer_generation_count(const reef_trainer *trainer) {
    return trainer->network.generation_count;
}

const reef_generation_record *reef_trainer_generation(const reef_trainer *trainer, size_t g) {
    return g < trainer->network.generation_count ? &trainer->network.generations[g]->info : NULL;
}

const reef_config *reef_trainer_config(const reef_trainer *trainer) {
    return &trainer->network.config;
}
