// Parameters of a layer by itself, read by name from any generation; and a read-only copy of some
// state of it.
#include "model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- parameters by name -------------------------------------------------------------------------

static const char *const VECTORS[] = {"w_down", "w_up", "w_gate"};

reef_status reef_layer_parameter_missing(const reef_generation *generation,
                                         const char *name,
                                         reef_error *err) {
    return reef_fail(err, REEF_ERR_NOT_FOUND, "generation %" PRIu32 ", which is %s, has no '%.40s'",
                     generation->info.generation, generation->open ? "open" : "sealed", name);
}

reef_status reef_layer_parameter_find(reef_layer_parameter *out,
                                      const reef_generation *generation,
                                      size_t D,
                                      const char *name,
                                      size_t count,
                                      reef_error *err) {
    const reef_expert_table *table = &generation->expert_tables[0];
    char full[REEF_NAME_BYTES_MAX + 1];
    int length = snprintf(full, sizeof(full), "block0.%s", name);
    *out = (reef_layer_parameter){.vectors = table->row_values / D};
    while (out->vector < out->vectors && strcmp(name, VECTORS[out->vector]) != 0) out->vector++;
    out->is_vector = out->vector < out->vectors;
    if (!out->is_vector && length > 0 && (size_t)length < sizeof(full))
        out->tensor = reef_generation_find(generation, full);
    if (!out->is_vector && out->tensor == NULL)
        return reef_layer_parameter_missing(generation, name, err);
    size_t has = out->is_vector ? table->expert_count * D : out->tensor->count;
    if (has == count) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%s has %zu values, but the array has %zu", name, has,
                     count);
}

reef_status reef_layer_tensor_read(const reef_network *network,
                                   uint32_t number,
                                   const char *name,
                                   float *out,
                                   size_t count,
                                   reef_error *err) {
    if (number >= network->generation_count)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "no generation %" PRIu32 ": the layer has 0 to %zu", number,
                         network->generation_count - 1);
    const reef_generation *generation = network->generations[number];
    const reef_expert_table *table = &generation->expert_tables[0];
    size_t D = network->config.d_model;
    reef_layer_parameter found;
    reef_status status = reef_layer_parameter_find(&found, generation, D, name, count, err);
    if (status != REEF_OK) return status;
    // Rows may be int8, or in the store's map, so each is read through its table.
    for (size_t n = 0; found.is_vector && n < table->expert_count; n++)
        reef_expert_table_row_read(table, n, found.vector * D, D, out + n * D);
    if (!found.is_vector) memcpy(out, found.tensor->data, count * sizeof(*out));
    return REEF_OK;
}

// ---- the copy ----------------------------------------------------------------------------------

static reef_status begin_call(reef_model *model, reef_layer_view *view, reef_error *err) {
    if (model->layer == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool is not a layer by itself: its model is %s",
                         reef_config_word(&model->network.config, "model"));
    reef_status status = reef_residency_renew(&model->residency, &model->network, err);
    *view =
        (reef_layer_view){&model->network, model->workers, model->residency.prefetch, model->layer};
    return status;
}

reef_status reef_model_layer_forward(reef_model *model,
                                     const reef_layer_choice *choice,
                                     size_t rows,
                                     const float *x,
                                     float *y,
                                     reef_layer_tape *tape,
                                     reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_call(model, &view, err);
    if (status != REEF_OK) return status;
    if (choice != NULL && choice->train)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the layer cannot learn: the pool is open for reading only");
    return reef_layer_run(&view, choice, rows, x, y, tape, err);
}

reef_status reef_model_layer_backward(reef_model *model,
                                      reef_layer_tape *tape,
                                      const float *x,
                                      const float *d_y,
                                      float *d_x,
                                      reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_call(model, &view, err);
    return status == REEF_OK ? reef_layer_back(&view, tape, x, d_y, d_x, err) : status;
}

reef_status reef_model_layer_read(reef_model *model,
                                  uint32_t generation,
                                  const char *name,
                                  float *out,
                                  size_t count,
                                  reef_error *err) {
    reef_layer_view view;
    reef_status status = begin_call(model, &view, err);
    if (status != REEF_OK) return status;
    return reef_layer_tensor_read(&model->network, generation, name, out, count, err);
}
