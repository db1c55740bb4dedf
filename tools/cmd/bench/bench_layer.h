// What the benchmarks of one PEER layer share: how its tokens are cut, medians of repetitions, and
// what memory there is.
#ifndef REEF_BENCH_LAYER_H
#define REEF_BENCH_LAYER_H

#include "cli.h"
#include "reef_layer_bench.h"

#define BENCH_SEED 1
#define BENCH_REPEAT_MAX 1000
#define BENCH_TOKENS_MAX (1 << 20)
#define BENCH_SIDE_MAX 16384 // of 268 million experts
#define BENCH_TOPK_MAX 1024

/**
 * A whole number of pieces: the largest size up to that of a model's windows that divides the
 * tokens.
 */
size_t reef_bench_piece_tokens(size_t tokens);

/**
 * The options --heads, --topk, --d-key, --d-model and --tokens over what `shape` and `tokens` hold.
 * The side is the caller's, and so is checking the whole.
 */
REEF_MUST_CHECK reef_status reef_bench_shape_read(const reef_cli_call *cli,
                                                  reef_router_shape *shape,
                                                  size_t *tokens,
                                                  reef_error *err);

/** Median of `count` doubles that lie `stride` doubles apart. */
double reef_bench_median(const double *values, size_t count, size_t stride);

/** All parts of a pass together. */
double reef_bench_seconds_sum(const reef_layer_seconds *seconds);

/** Bytes of memory that programs may still take; 0 where the system does not tell. */
double reef_bench_available_bytes(void);

/** Bytes of the third-level cache of the first core; 0 where the system does not tell. */
double reef_bench_cache_bytes(void);

#endif
