// The router in double, one loop per definition, with the choice of experts given: what the fast
// forward must agree with, and a smooth function to take differences of.
#ifndef PLAIN_ROUTER_H
#define PLAIN_ROUTER_H

#include "reef_router.h"

#include <assert.h>
#include <math.h>

enum { PLAIN_ROWS_MAX = 128, PLAIN_WIDTH_MAX = 64, PLAIN_TOPK_MAX = 64 };

typedef enum plain_norm {
    PLAIN_NORM_NONE,    // query = x Wq (+ bias if given)
    PLAIN_NORM_BATCH,   // statistics of the batch
    PLAIN_NORM_RUNNING, // running statistics
} plain_norm;

static inline double plain_raw(const reef_router_shape *shape,
                               const reef_router_params *params,
                               const float *x,
                               size_t row,
                               size_t c) {
    const size_t width = shape->head_count * shape->d_key;
    double sum = params->query_bias == NULL ? 0 : params->query_bias[c];
    for (size_t d = 0; d < shape->d_model; d++)
        sum += (double)x[row * shape->d_model + d] * params->w_query[d * width + c];
    return sum;
}

/** query (rows, H * d_key) written. */
static inline void plain_queries(const reef_router_shape *shape,
                                 const reef_router_params *params,
                                 plain_norm norm,
                                 size_t rows,
                                 const float *x,
                                 double *query) {
    const size_t width = shape->head_count * shape->d_key;
    for (size_t c = 0; c < width; c++) {
        double mean = 0, var = 0;
        for (size_t row = 0; row < rows; row++) {
            query[row * width + c] = plain_raw(shape, params, x, row, c);
            mean += query[row * width + c] / (double)rows;
        }
        if (norm == PLAIN_NORM_NONE) continue;
        for (size_t row = 0; row < rows; row++)
            var += pow(query[row * width + c] - mean, 2) / (double)rows;
        if (norm == PLAIN_NORM_RUNNING) {
            mean = params->bn_mean[c];
            var = params->bn_var[c];
        }
        for (size_t row = 0; row < rows; row++) {
            double *q = query + row * width + c;
            *q = (*q - mean) / sqrt(var + (double)REEF_BN_EPSILON);
            *q = *q * params->bn_scale[c] + params->bn_shift[c];
        }
    }
}

/** Score of the key pair (i, j) for the query of one head. */
static inline double plain_score(const reef_router_shape *shape,
                                 const reef_router_params *params,
                                 const double *query, // (d_key)
                                 size_t head,
                                 size_t i,
                                 size_t j) {
    const size_t half = shape->d_key / 2;
    double score = 0;
    if (shape->head_keys) { // rows (S, H, half)
        i = i * shape->head_count + head;
        j = j * shape->head_count + head;
    }
    for (size_t c = 0; c < half; c++) {
        score += query[c] * params->sub_keys_a[i * half + c];
        score += query[half + c] * params->sub_keys_b[j * half + c];
    }
    return score;
}

/** In place: the K scores of a head become its gate. */
static inline void plain_score_function(reef_router_score score, size_t K, double *gate) {
    double sum = 0;
    for (size_t k = 0; k < K; k++) sum += exp(gate[k]);
    for (size_t k = 0; k < K; k++) {
        double s = gate[k];
        if (score == REEF_SCORE_SOFTMAX) gate[k] = exp(s) / sum;
        if (score == REEF_SCORE_SIGMOID) gate[k] = 1 / (1 + exp(-s));
        if (score == REEF_SCORE_RELU) gate[k] = fmax(s, 0);
    }
}

/** gate (rows, H, K) written: the score function of the scores of the given pairs. */
static inline void plain_gate(const reef_router_shape *shape,
                              const reef_router_params *params,
                              plain_norm norm,
                              size_t rows,
                              const float *x,
                              const uint16_t *index_a,
                              const uint16_t *index_b,
                              double *gate) {
    static double query[PLAIN_ROWS_MAX * PLAIN_WIDTH_MAX];
    const size_t K = shape->topk;
    assert(rows <= PLAIN_ROWS_MAX && shape->head_count * shape->d_key <= PLAIN_WIDTH_MAX);
    plain_queries(shape, params, norm, rows, x, query);
    for (size_t n = 0; n < rows * shape->head_count; n++) {
        for (size_t k = n * K; k < (n + 1) * K; k++)
            gate[k] = plain_score(shape, params, query + n * shape->d_key, n % shape->head_count,
                                  index_a[k], index_b[k]);
        plain_score_function(shape->score, K, gate + n * K);
    }
}

#endif
