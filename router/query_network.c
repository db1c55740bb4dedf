// The query network: batch norm of queries, forward and backward, and its fold into a linear map.
//
// What always holds: statistics are summed in double, feature by feature and row by row from the
// first, whatever the number of threads. The matrix products around it are in router.c.
#include "router_internal.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

bool reef_query_is_finite(size_t D, const float *x) {
    uint32_t found = 0;
    for (size_t d = 0; d < D; d++) {
        uint32_t bits;
        memcpy(&bits, x + d, sizeof(bits));
        // No early exit: rows are finite almost always, and a loop without branches is vectorised.
        found |= (bits & 0x7f800000u) == 0x7f800000u; // the exponent of infinity and NaN
    }
    return found == 0;
}

static double inverse_deviation(float var) {
    return 1 / sqrt((double)var + (double)REEF_BN_EPSILON);
}

void reef_query_norm_forward(size_t B,
                             size_t count,
                             size_t stride,
                             float *query,
                             float *mean,
                             float *var,
                             const float *query_raw,
                             const float *bn_scale,
                             const float *bn_shift) {
    assert(count <= PANEL_WIDTH);
    double sum[PANEL_WIDTH] = {0};
    double square[PANEL_WIDTH] = {0};
    float factor[PANEL_WIDTH];

    for (size_t b = 0; b < B; b++)
        for (size_t c = 0; c < count; c++) sum[c] += query_raw[b * stride + c];
    for (size_t c = 0; c < count; c++) sum[c] /= (double)B;
    // Around the mean in a second pass: a difference of sums of squares would lose small variances.
    for (size_t b = 0; b < B; b++) {
        for (size_t c = 0; c < count; c++) {
            double offset = query_raw[b * stride + c] - sum[c];
            square[c] += offset * offset;
        }
    }
    for (size_t c = 0; c < count; c++) {
        mean[c] = (float)sum[c];
        var[c] = (float)(square[c] / (double)B);
        // Product and quotient in double, rounded once.
        factor[c] = (float)(bn_scale[c] * inverse_deviation(var[c]));
    }
    for (size_t b = 0; b < B; b++)
        for (size_t c = 0; c < count; c++)
            query[b * stride + c] = (query_raw[b * stride + c] - mean[c]) * factor[c] + bn_shift[c];
}

// With n = (raw - mean) / deviation, query = scale n + shift, and <> the mean over the batch:
//   d_raw = scale / deviation * (d_query - <d_query> - n <d_query n>)
void reef_query_norm_backward(size_t B,
                              size_t count,
                              size_t stride,
                              float *d_query,
                              float *d_bn_scale,
                              float *d_bn_shift,
                              const float *query_raw,
                              const float *mean,
                              const float *var,
                              const float *bn_scale) {
    assert(count <= PANEL_WIDTH);
    double sum[PANEL_WIDTH] = {0};     // of d_query
    double product[PANEL_WIDTH] = {0}; // of d_query n
    float inverse[PANEL_WIDTH];
    float mean_d[PANEL_WIDTH];
    float mean_dn[PANEL_WIDTH];

    for (size_t c = 0; c < count; c++) inverse[c] = (float)inverse_deviation(var[c]);
    for (size_t b = 0; b < B; b++) {
        for (size_t c = 0; c < count; c++) {
            double d = d_query[b * stride + c];
            // Not yet divided by the deviation: once per feature below, not once per row.
            double offset = query_raw[b * stride + c] - mean[c];
            sum[c] += d;
            product[c] += d * offset;
        }
    }
    for (size_t c = 0; c < count; c++) {
        product[c] *= inverse[c];
        d_bn_scale[c] += (float)product[c];
        d_bn_shift[c] += (float)sum[c];
        mean_d[c] = (float)(sum[c] / (double)B);
        mean_dn[c] = (float)(product[c] / (double)B);
    }
    for (size_t b = 0; b < B; b++) {
        for (size_t c = 0; c < count; c++) {
            // Both means are taken out, because mean and variance depend on every row of the batch.
            float n = (query_raw[b * stride + c] - mean[c]) * inverse[c];
            float *d = d_query + b * stride + c;
            *d = bn_scale[c] * inverse[c] * (*d - mean_d[c] - n * mean_dn[c]);
        }
    }
}

void reef_router_fold(const reef_router_shape *shape,
                      const reef_router_params *params,
                      float *w_query,
                      float *query_bias) {
    const size_t width = shape->head_count * shape->d_key;

    if (!shape->batch_norm) {
        memcpy(w_query, params->w_query, shape->d_model * width * sizeof(*w_query));
        memset(query_bias, 0, width * sizeof(*query_bias));
        return;
    }
    for (size_t c = 0; c < width; c++) {
        double factor = params->bn_scale[c] * inverse_deviation(params->bn_var[c]);
        // scale * (x w - mean) / deviation + shift, sorted by what multiplies x.
        query_bias[c] = (float)(params->bn_shift[c] - params->bn_mean[c] * factor);
        for (size_t d = 0; d < shape->d_model; d++)
            w_query[d * width + c] = (float)(params->w_query[d * width + c] * factor);
    }
}

static void move_towards(size_t D, float *running, const float *batch, float momentum) {
    for (size_t d = 0; d < D; d++) running[d] = (1 - momentum) * running[d] + momentum * batch[d];
}

void reef_router_update_stats(const reef_router_shape *shape,
                              reef_router_params *params,
                              const reef_router_tape *tape,
                              float momentum) {
    if (!shape->batch_norm) return;
    const size_t width = shape->head_count * shape->d_key;
    // The running values are what an evaluation normalises with; see reef_router_fold.
    move_towards(width, params->bn_mean, tape->batch_mean, momentum);
    move_towards(width, params->bn_var, tape->batch_var, momentum);
}
