// What backward collects for the step of a layer by itself: the pairs of token and expert, and what
// their gradients are sums of. Any number of batches, one after the other.
#include "layer_internal.h"

#include <stdlib.h>
#include <string.h>

#define COLLECTED_ROWS_MAX REEF_ROUTER_ROWS_MAX

void reef_layer_collected_release(reef_layer_collected *collected) {
    free(collected->x);
    free(collected->d_y);
    free(collected->indices);
    free(collected->gate);
    free(collected->factors);
    free(collected->active);
    free(collected->statistics);
    *collected = (reef_layer_collected){0};
}

static bool grow_array(void *array, size_t count, size_t each) {
    void *wide = realloc(*(void **)array, count * each);
    if (wide != NULL) *(void **)array = wide;
    return wide != NULL;
}

// Values of one batch.
size_t reef_layer_statistics_width(const reef_config *config) {
    return config->batch_norm ? 2 * (size_t)config->heads * config->d_key : 0;
}

static bool reserve_statistics(const reef_layer_view *view, reef_layer_collected *c) {
    size_t width = reef_layer_statistics_width(&view->network->config),
           most = 2 * c->batches_max + 4;
    if (width == 0 || c->batches < c->batches_max) return true;
    if (!grow_array(&c->statistics, most * width, sizeof(*c->statistics))) return false;
    c->batches_max = most;
    return true;
}

reef_status reef_layer_collect_reserve(const reef_layer_view *view, size_t rows, reef_error *err) {
    reef_layer_collected *c = &view->layer->collected;
    reef_expert_shape shape = reef_generation_expert_shape(&view->network->config, 0);
    size_t needed = c->rows + rows, most = 2 * c->rows_max;
    if (needed > COLLECTED_ROWS_MAX || needed > UINT32_MAX / shape.P)
        return reef_fail(err, REEF_ERR_FULL,
                         "gradients of %zu rows are collected and %zu more do not fit; take a step "
                         "after each batch, or discard them",
                         c->rows, rows);
    if (!reserve_statistics(view, c))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the statistics of another batch");
    if (needed <= c->rows_max) return REEF_OK;
    if (most < needed) most = needed;
    bool ok = grow_array(&c->x, most, shape.D * sizeof(*c->x)) &&
              grow_array(&c->d_y, most, shape.D * sizeof(*c->d_y)) &&
              grow_array(&c->indices, most, shape.P * sizeof(*c->indices)) &&
              grow_array(&c->gate, most, shape.P * sizeof(*c->gate)) &&
              grow_array(&c->factors, most,
                         shape.P * reef_expert_vectors(&shape) * sizeof(*c->factors)) &&
              grow_array(&c->active, most, 1);
    if (!ok)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the gradients of %zu rows", most);
    c->rows_max = most;
    return REEF_OK;
}

void reef_layer_collect(const reef_layer_view *view,
                        const reef_layer_tape *tape,
                        const float *x,
                        const float *d_y) {
    const reef_config *config = &view->network->config;
    reef_layer_collected *c = &view->layer->collected;
    size_t g = view->network->generation_count - 1, rows = tape->rows, at = c->rows;
    if (tape->generations <= g || !tape->traces[g].ran) return; // the open one took no part
    const reef_layer_trace *trace = &tape->traces[g];
    reef_expert_shape shape = reef_generation_expert_shape(config, 0);
    size_t P = shape.P, D = shape.D, each = P * reef_expert_vectors(&shape);
    memcpy(c->x + at * D, x, rows * D * sizeof(*x));
    memcpy(c->d_y + at * D, d_y, rows * D * sizeof(*d_y));
    memcpy(c->indices + at * P, trace->tape.indices, rows * P * sizeof(*c->indices));
    memcpy(c->gate + at * P, trace->tape.gate, rows * P * sizeof(*c->gate));
    memcpy(c->factors + at * each, trace->factors, rows * each * sizeof(*c->factors));
    if (tape->mask == NULL)
        memset(c->active + at, 1, rows);
    else
        memcpy(c->active + at, tape->mask + g * rows, rows);
    c->rows += rows;
    size_t width = reef_layer_statistics_width(config) / 2;
    if (width == 0) return;
    float *statistics = c->statistics + 2 * width * c->batches++;
    memcpy(statistics, trace->tape.batch_mean, width * sizeof(*statistics));
    memcpy(statistics + width, trace->tape.batch_var, width * sizeof(*statistics));
}
