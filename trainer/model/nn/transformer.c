// The dense parts of the transformer on plain arrays: layer norm, causal attention, cross-entropy
// and the gradients of embedding and weights, forward and backward side by side.
//
// What always holds: no state, no allocation; a row's result depends on that row, in attention on
// the rows of its window up to itself. Matrix products with parameters are the model's business.
#include "transformer.h"

#include "reef_router.h"

#include <math.h>
#include <string.h>

// Sums over a row run in this many independent accumulators, so that the compiler can use vector
// registers without changing the order of any addition.
#define LANES 16

static float lanes_sum(const float lane[LANES]) {
    float sum = 0;
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

static float row_sum(size_t D, const float *x) {
    float lane[LANES] = {0};
    size_t d = 0;
    for (; d + LANES <= D; d += LANES)
        for (size_t j = 0; j < LANES; j++) lane[j] += x[d + j];
    for (; d < D; d++) lane[d % LANES] += x[d];
    return lanes_sum(lane);
}

static float row_squares(size_t D, const float *x, float mean) {
    float lane[LANES] = {0};
    size_t d = 0;
    for (; d + LANES <= D; d += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            float centred = x[d + j] - mean;
            lane[j] += centred * centred;
        }
    }
    for (; d < D; d++) lane[d % LANES] += (x[d] - mean) * (x[d] - mean);
    return lanes_sum(lane);
}

// ---- layer norm ---------------------------------------------------------------------------------

// y = (x - mean) * rstd * scale + shift
static void row_norm(size_t D,
                     float *restrict y,
                     const float *restrict x,
                     float mean,
                     float rstd,
                     const float *restrict scale,
                     const float *restrict shift) {
    for (size_t d = 0; d < D; d++) y[d] = (x[d] - mean) * rstd * scale[d] + shift[d];
}

void reef_layer_norm_forward(size_t rows,
                             size_t D,
                             float *y,
                             float *mean,
                             float *rstd,
                             const float *x,
                             const float *scale,
                             const float *shift) {
    for (size_t t = 0; t < rows; t++) {
        const float *row = x + t * D;
        mean[t] = row_sum(D, row) / (float)D;
        rstd[t] = 1.0f / sqrtf(row_squares(D, row, mean[t]) / (float)D + REEF_LAYER_NORM_EPSILON);
        row_norm(D, y + t * D, row, mean[t], rstd[t], scale, shift);
    }
}

// With n = (x - mean) * rstd and g = d_y * scale:
//   d_x = rstd * (g - mean(g) - n * mean(g * n))
static void row_norm_backward(size_t D,
                              float *restrict d_x,
                              const float *restrict d_y,
                              const float *restrict x,
                              float mean,
                              float rstd,
                              const float *restrict scale) {
    float lane_g[LANES] = {0}, lane_gn[LANES] = {0};
    size_t d = 0;
    for (; d + LANES <= D; d += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            float g = d_y[d + j] * scale[d + j];
            lane_g[j] += g;
            lane_gn[j] += g * ((x[d + j] - mean) * rstd);
        }
    }
    for (; d < D; d++) {
        float g = d_y[d] * scale[d];
        lane_g[d % LANES] += g;
        lane_gn[d % LANES] += g * ((x[d] - mean) * rstd);
    }
    float mean_g = lanes_sum(lane_g) / (float)D, mean_gn = lanes_sum(lane_gn) / (float)D;
    for (d = 0; d < D; d++)
        d_x[d] += rstd * (d_y[d] * scale[d] - mean_g - (x[d] - mean) * rstd * mean_gn);
}

static void row_scale_backward(size_t D,
                               float *restrict d_scale,
                               const float *restrict d_y,
                               const float *restrict x,
                               float mean,
                               float rstd) {
    for (size_t d = 0; d < D; d++) d_scale[d] += d_y[d] * ((x[d] - mean) * rstd);
}

void reef_layer_norm_backward(size_t rows,
                              size_t D,
                              float *d_x,
                              float *d_scale,
                              float *d_shift,
                              const float *d_y,
                              const float *x,
                              const float *mean,
                              const float *rstd,
                              const float *scale) {
    for (size_t t = 0; t < rows; t++) {
        size_t row = t * D;
        row_norm_backward(D, d_x + row, d_y + row, x + row, mean[t], rstd[t], scale);
        if (d_scale != NULL) row_scale_backward(D, d_scale, d_y + row, x + row, mean[t], rstd[t]);
        if (d_shift != NULL) reef_axpy(D, d_shift, 1.0f, d_y + row);
    }
}

// ---- gradients of weights -----------------------------------------------------------------------

typedef struct tile_job {
    size_t rows, first;
    const reef_weight_product *products;
} tile_job;

typedef struct tile_size {
    size_t rows, columns;
} tile_size;

static size_t cuts(size_t size, size_t each) {
    return (size + each - 1) / each;
}

static size_t tile_count(const reef_weight_product *product, tile_size size) {
    return cuts(product->in, size.rows) * cuts(product->out, size.columns);
}

// What is one piece of work: the larger a tile, the less of x and d_y is packed twice; but a weight
// gives four pieces or more, unless it is small itself.
static tile_size tile_of(const reef_weight_product *product) {
    static const tile_size SIZES[] = {{256, 256}, {128, 256}, {64, 128}};
    size_t i = 0;
    while (i + 1 < sizeof(SIZES) / sizeof(*SIZES) && tile_count(product, SIZES[i]) < 4) i++;
    return SIZES[i];
}

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t reef_weight_tile_count(size_t count, const reef_weight_product *products) {
    size_t tiles = 0;
    for (size_t i = 0; i < count; i++) tiles += tile_count(&products[i], tile_of(&products[i]));
    return tiles;
}

reef_weight_tile reef_weight_tile_at(const reef_weight_product *products, size_t tile) {
    size_t number = 0;
    tile_size size = tile_of(products);
    for (; tile >= tile_count(products + number, size); size = tile_of(products + number))
        tile -= tile_count(products + number++, size);
    const reef_weight_product *product = products + number;
    size_t across = cuts(product->out, size.columns);
    size_t i = tile / across * size.rows, j = tile % across * size.columns;
    return (reef_weight_tile){number, i, j, min_size(size.rows, product->in - i),
                              min_size(size.columns, product->out - j)};
}

static void weight_tile(void *context, size_t piece) {
    const tile_job *job = context;
    reef_weight_tile at = reef_weight_tile_at(job->products, job->first + piece);
    const reef_weight_product *product = job->products + at.product;
    reef_gemm(true, false, at.rows, at.columns, job->rows, 1.0f, product->x + at.row, product->in,
              product->d_y + at.column, product->out, 1.0f,
              product->d_w + at.row * product->out + at.column, product->out);
}

void reef_weight_gradients_of(reef_thread_pool *workers,
                              size_t rows,
                              const reef_weight_product *products,
                              size_t first,
                              size_t end) {
    tile_job job = {.rows = rows, .first = first, .products = products};
    reef_thread_pool_run(workers, end - first, weight_tile, &job);
}

void reef_weight_gradients(reef_thread_pool *workers,
                           size_t rows,
                           size_t count,
                           const reef_weight_product *products) {
    reef_weight_gradients_of(workers, rows, products, 0, reef_weight_tile_count(count, products));
}

// ---- attention ----------------------------------------------------------------------------------

// Queries are taken in blocks of REEF_ATTENTION_ROWS rows, each against the keys up to its own end:
// a little over half of the full square. Blocks are cut by position in the window alone.

static float attention_scale(size_t head_width) {
    return 1.0f / sqrtf((float)head_width);
}

// One past the last row of the block that begins at `first`: as many keys as the block sees.
static size_t block_end(size_t T, size_t first) {
    return T - first < REEF_ATTENTION_ROWS ? T : first + REEF_ATTENTION_ROWS;
}

static void attend_block(size_t T,
                         size_t D,
                         size_t width,
                         size_t first,
                         float *out,   // (T, D), of this head
                         float *probs, // (T, T)
                         const float *qkv) {
    const float *q = qkv, *k = q + D, *v = k + D;
    size_t keys = block_end(T, first), rows = keys - first, stride = 3 * D;
    float *p = probs + first * T;
    reef_gemm(false, true, rows, keys, width, attention_scale(width), q + first * stride, stride, k,
              stride, 0.0f, p, T);
    for (size_t t = 0; t < rows; t++) {
        size_t seen = first + t + 1;
        reef_softmax(seen, p + t * T);
        memset(p + t * T + seen, 0, (keys - seen) * sizeof(*p));
    }
    reef_gemm(false, false, rows, width, keys, 1.0f, p, T, v, stride, 0.0f, out + first * D, D);
}

void reef_attention_forward(
    size_t T, size_t D, size_t A, float *out, float *probs, const float *qkv) {
    size_t width = D / A;
    for (size_t a = 0; a < A; a++)
        for (size_t first = 0; first < T; first += REEF_ATTENTION_ROWS)
            attend_block(T, D, width, first, out + a * width, probs + a * T * T, qkv + a * width);
}

// In place: gradient of the probabilities -> gradient of the scores, for the queries first .. keys
// - 1. The masked part becomes zero.
static void causal_softmax_backward(
    size_t T, size_t first, size_t keys, float *d_probs, const float *probs) {
    for (size_t t = first; t < keys; t++) {
        const float *restrict p = probs + t * T;
        float *restrict d = d_probs + (t - first) * T;
        float mean = reef_dot(t + 1, d, p);
        for (size_t s = 0; s <= t; s++) d[s] = p[s] * (d[s] - mean);
        memset(d + t + 1, 0, (keys - t - 1) * sizeof(*d));
    }
}

// Writes d_q of the block; adds to d_k and d_v of the keys that it sees, or writes them with `beta`
// 0.
static void attend_block_backward(size_t T,
                                  size_t D,
                                  size_t width,
                                  size_t first,
                                  float beta,
                                  float *d_qkv,   // (T, 3*D), of this head
                                  float *d_probs, // (REEF_ATTENTION_ROWS, T)
                                  const float *d_out,
                                  const float *qkv,
                                  const float *probs) {
    const float *q = qkv, *k = q + D, *v = k + D;
    float *d_q = d_qkv, *d_k = d_q + D, *d_v = d_k + D;
    size_t keys = block_end(T, first), rows = keys - first, stride = 3 * D;
    const float *p = probs + first * T, *d_o = d_out + first * D;
    float scale = attention_scale(width);
    reef_gemm(true, false, keys, width, rows, 1.0f, p, T, d_o, D, beta, d_v, stride);
    reef_gemm(false, true, rows, keys, width, 1.0f, d_o, D, v, stride, 0.0f, d_probs, T);
    causal_softmax_backward(T, first, keys, d_probs, probs);
    reef_gemm(false, false, rows, width, keys, scale, d_probs, T, k, stride, 0.0f,
              d_q + first * stride, stride);
    reef_gemm(true, false, keys, width, rows, scale, d_probs, T, q + first * stride, stride, beta,
              d_k, stride);
}

void reef_attention_backward(size_t T,
                             size_t D,
                             size_t A,
                             float *d_qkv,
                             float *d_probs,
                             const float *d_out,
                             const float *qkv,
                             const float *probs) {
    size_t width = D / A, blocks = (T + REEF_ATTENTION_ROWS - 1) / REEF_ATTENTION_ROWS;
    for (size_t a = 0; a < A; a++) {
        size_t at = a * width;
        // Downwards: the last block sees every key, so it is the one that writes.
        for (size_t i = blocks; i-- > 0;)
            attend_block_backward(T, D, width, i * REEF_ATTENTION_ROWS,
                                  i + 1 == blocks ? 0.0f : 1.0f, d_qkv + at, d_probs, d_out + at,
                                  qkv + at, probs + a * T * T);
    }
}

// ---- cross-entropy ------------------------------------------------------------------------------

#define EXP_CHUNK 256 // bytes have 256 classes: one chunk

static float row_max(size_t V, const float *row) {
    float lane[LANES];
    size_t v = 0;
    for (size_t j = 0; j < LANES; j++) lane[j] = row[0];
    for (; v + LANES <= V; v += LANES)
        for (size_t j = 0; j < LANES; j++) lane[j] = row[v + j] > lane[j] ? row[v + j] : lane[j];
    for (; v < V; v++) lane[0] = row[v] > lane[0] ? row[v] : lane[0];
    for (size_t j = 1; j < LANES; j++) lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

static double double_sum(size_t V, const float *x) {
    double lane[LANES] = {0};
    size_t v = 0;
    for (; v + LANES <= V; v += LANES)
        for (size_t j = 0; j < LANES; j++) lane[j] += (double)x[v + j];
    for (; v < V; v++) lane[v % LANES] += (double)x[v];
    for (size_t j = 1; j < LANES; j++) lane[0] += lane[j];
    return lane[0];
}

// Sum of exp(row - max), in double. The terms go to `terms` (V) when it is given, which
// may be the row itself.
static double exp_sum(size_t V, const float *row, float max, float *terms) {
    float chunk[EXP_CHUNK];
    double sum = 0;
    for (size_t begin = 0; begin < V; begin += EXP_CHUNK) {
        size_t count = V - begin < EXP_CHUNK ? V - begin : EXP_CHUNK;
        for (size_t v = 0; v < count; v++) chunk[v] = row[begin + v] - max;
        reef_exp(count, chunk, chunk);
        sum += double_sum(count, chunk);
        if (terms != NULL) memcpy(terms + begin, chunk, count * sizeof(*chunk));
    }
    return sum;
}

void reef_cross_entropy(size_t rows,
                        size_t V,
                        double *loss,
                        float *logits,
                        const uint8_t *targets,
                        const float *weight,
                        bool gradient) {
    for (size_t t = 0; t < rows; t++) {
        float *row = logits + t * V;
        size_t target_id = targets[t];
        float max = row_max(V, row), target = row[target_id];
        double sum = exp_sum(V, row, max, gradient ? row : NULL);
        loss[t] = log(sum) - ((double)target - (double)max);
        if (!gradient) continue;
        float scale = weight != NULL ? weight[t] : 1.0f;
        float share = (float)((double)scale / sum);
        for (size_t v = 0; v < V; v++) row[v] *= share;
        row[target_id] -= scale;
    }
}

// ---- embedding ----------------------------------------------------------------------------------

void reef_embedding_backward(
    size_t rows, size_t D, float *d_table, const float *d_x, const uint8_t *tokens) {
    for (size_t t = 0; t < rows; t++) reef_axpy(D, d_table + tokens[t] * D, 1.0f, d_x + t * D);
}
