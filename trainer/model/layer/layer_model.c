// A read-only copy of some state of a layer by itself: forward, backward and parameters.
#include "model_internal.h"

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
