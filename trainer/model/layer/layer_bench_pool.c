// A pool with only the rows of one sealed layer, drawn at random, for `reef bench scale`: more
// experts than fit memory, read in place the way a model reads its sealed generations.
#include "checkpoint.h"
#include "generation.h"
#include "reef_layer_bench.h"
#include "reef_random.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

// Blocks that are drawn together by the workers, and that one transaction takes.
enum { BLOCKS_PER_DRAW = 64, BLOCKS_PER_COMMIT = 4096 };

struct reef_layer_pool {
    reef_config config;
    reef_store *store;
    reef_txn *txn;
    reef_generation *generation;
    reef_row_prefetch *prefetch;
    reef_row_prefetch_request request;
};

// The configuration of a model of one block with this layer.
static reef_status config_of(reef_config *config, const reef_router_shape *shape, reef_error *err) {
    reef_config_default(config);
    config->layers = 1;
    config->d_model = (uint32_t)shape->d_model;
    config->heads = (uint32_t)shape->head_count;
    config->topk = (uint32_t)shape->topk;
    config->d_key = (uint32_t)shape->d_key;
    config->side = config->side_new = (uint32_t)shape->side;
    return reef_config_check(config, err);
}

static reef_generation_record generation_of(const reef_router_shape *shape) {
    return (reef_generation_record){.side = (uint32_t)shape->side, .dtype = REEF_BF16};
}

// ---- writing ------------------------------------------------------------------------------------

typedef struct writer {
    const reef_router_shape *shape;
    uint64_t seed;
    size_t row_values, block_rows, expert_count, block_count;
    size_t first;                              // block of the draw
    float *drawn;                              // (BLOCKS_PER_DRAW, block_rows, row_values)
    reef_bf16 *rows;                           // the same, rounded
    void (*progress)(void *context, uint64_t); // or NULL
    void *context;
} writer;

static size_t rows_of_block(const writer *w, size_t block) {
    size_t left = w->expert_count - block * w->block_rows;
    return left < w->block_rows ? left : w->block_rows;
}

// Variances as those of a model's first generation.
static void draw_block(void *context, size_t piece) {
    const writer *w = context;
    const size_t D = w->shape->d_model, rows = rows_of_block(w, w->first + piece);
    const float down = sqrtf(3.0f / (float)D);
    const float up = sqrtf(3.0f / (float)(w->shape->head_count * w->shape->topk));
    float *drawn = w->drawn + piece * w->block_rows * w->row_values;
    reef_random_uniform(rows * w->row_values, drawn, 1.0f, w->seed, w->first + piece);
    for (size_t i = 0; i < rows * w->row_values; i++) drawn[i] *= i / D % 2 == 0 ? down : up;
    reef_bf16_round(rows * w->row_values, w->rows + piece * w->block_rows * w->row_values, drawn);
}

static reef_status put_blocks(
    writer *w, reef_thread_pool *workers, reef_txn *txn, size_t end, reef_error *err) {
    while (w->first < end) {
        size_t count = end - w->first < BLOCKS_PER_DRAW ? end - w->first : BLOCKS_PER_DRAW;
        reef_thread_pool_run(workers, count, draw_block, w);
        for (size_t b = 0; b < count; b++) {
            reef_key key = {.db = REEF_DB_EXPERTS, .block = (uint32_t)(w->first + b)};
            size_t values = rows_of_block(w, w->first + b) * w->row_values;
            reef_status status =
                reef_record_put(txn, &key, REEF_BF16, w->rows + b * w->block_rows * w->row_values,
                                values * sizeof(reef_bf16), err);
            if (status != REEF_OK) return status;
        }
        w->first += count;
    }
    return REEF_OK;
}

static reef_status write_part(writer *w,
                              reef_thread_pool *workers,
                              reef_store *store,
                              reef_error *err) {
    reef_txn *txn = NULL;
    size_t end = w->first + BLOCKS_PER_COMMIT;
    if (end > w->block_count) end = w->block_count;
    reef_generation_record info = generation_of(w->shape);
    reef_commit commit = {0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK && w->first == 0) status = reef_generation_put(txn, &info, err);
    if (status == REEF_OK) status = put_blocks(w, workers, txn, end, err);
    if (status == REEF_OK && end == w->block_count)
        status = reef_generation_seal(txn, 0, 0, 0, err);
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_layer_pool_write(const char *path,
                                  const reef_router_shape *shape,
                                  uint64_t seed,
                                  reef_thread_pool *workers,
                                  void (*progress)(void *context, uint64_t bytes),
                                  void *context,
                                  reef_error *err) {
    // Rows of an expert are w_down and w_up.
    const size_t row_values = 2 * shape->d_model;
    const size_t block_rows = reef_block_rows(row_values * sizeof(float));
    // Some blocks are drawn at once: the pool may be larger than memory.
    const size_t values = BLOCKS_PER_DRAW * block_rows * row_values;
    const size_t expert_count = shape->side * shape->side;
    // Rows are drawn in 32 bits and stored in 16, as a sealed generation is.
    writer w = {.shape = shape,
                .seed = seed,
                .row_values = row_values,
                .block_rows = block_rows,
                .expert_count = expert_count,
                .block_count = (expert_count + block_rows - 1) / block_rows,
                .drawn = malloc(values * sizeof(float)),
                .rows = malloc(values * sizeof(reef_bf16)),
                .progress = progress,
                .context = context};
    reef_store *store = NULL;
    reef_config config;
    reef_status status = config_of(&config, shape, err);
    if (status == REEF_OK && (w.drawn == NULL || w.rows == NULL))
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %d blocks of rows", BLOCKS_PER_DRAW);
    if (status == REEF_OK)
        status = reef_store_open(&store, path, &(reef_store_options){.create = true, .write = true},
                                 err);
    // One commit for each part, so that a transaction stays small.
    while (status == REEF_OK && w.first < w.block_count) {
        status = write_part(&w, workers, store, err);
        if (status == REEF_OK && progress != NULL)
            progress(context, (uint64_t)w.first * block_rows * row_values * sizeof(reef_bf16));
    }
    // Takes NULL, so one path releases everything.
    reef_store_close(store);
    free(w.drawn);
    free(w.rows);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status cover(reef_layer_pool *pool, reef_error *err) {
    reef_map_span all = {0};
    reef_map_span_widen(&all, 1, 0, &pool->generation->expert_tables[0]);
    return reef_row_prefetch_cover(pool->prefetch, &all, 1, err);
}

reef_status reef_layer_pool_open(reef_layer_pool **out,
                                 const char *path,
                                 const reef_router_shape *shape,
                                 uint64_t memory_bytes,
                                 reef_error *err) {
    *out = NULL;
    reef_layer_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pool of rows");
    reef_generation_record info = generation_of(shape);
    // Sealed, because rows of an open generation are not read in place.
    info.sealed = true;
    reef_status status = config_of(&pool->config, shape, err);
    if (status == REEF_OK)
        status = reef_store_open(&pool->store, path, &(reef_store_options){0}, err);
    // The transaction stays open as long as the pool: rows are used where they lie in the map.
    if (status == REEF_OK) status = reef_txn_begin(&pool->txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK)
        status = reef_generation_new(&pool->generation, &pool->config, &info, err);
    if (status == REEF_OK)
        // Finds where the rows are, without reading them.
        status = reef_checkpoint_locate(pool->generation, pool->txn, &pool->config, err);
    if (status == REEF_OK) status = reef_row_prefetch_new(&pool->prefetch, memory_bytes, err);
    if (status == REEF_OK) status = cover(pool, err);
    // Closing takes a pool that is only partly open.
    if (status != REEF_OK) {
        reef_layer_pool_close(pool);
        return status;
    }
    // P rows are asked for per token: heads times k.
    pool->request = (reef_row_prefetch_request){.rows = &pool->generation->expert_tables[0].rows,
                                                .row_bytes = 2 * shape->d_model * sizeof(reef_bf16),
                                                .P = shape->head_count * shape->topk};
    *out = pool;
    return REEF_OK;
}

void reef_layer_pool_close(reef_layer_pool *pool) {
    if (pool == NULL) return;
    reef_row_prefetch_free(pool->prefetch);
    reef_generation_free(pool->generation);
    reef_txn_abort(pool->txn);
    if (pool->store != NULL) reef_store_close(pool->store);
    free(pool);
}

const void *const *reef_layer_pool_blocks(const reef_layer_pool *pool, uint32_t *block_shift) {
    *block_shift = pool->generation->expert_tables[0].rows.block_shift;
    return pool->generation->expert_tables[0].rows.blocks;
}

void reef_layer_pool_chosen(void *context, size_t count, const reef_expert_id *indices) {
    reef_layer_pool *pool = context;
    pool->request.tokens = count / pool->request.P;
    pool->request.indices = indices;
    reef_row_prefetch_start(pool->prefetch, &pool->request);
}

void reef_layer_pool_finish(reef_layer_pool *pool) {
    reef_row_prefetch_finish(pool->prefetch);
}

uint64_t reef_layer_pool_drops(const reef_layer_pool *pool) {
    return reef_row_prefetch_drops(pool->prefetch);
}
