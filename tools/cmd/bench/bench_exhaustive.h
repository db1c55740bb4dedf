// Retrieval without product keys: every expert is scored for every query and the best are kept,
// once with scores from the two tables of sub-keys and once with a key of each expert written out.
#ifndef REEF_BENCH_EXHAUSTIVE_H
#define REEF_BENCH_EXHAUSTIVE_H

#include "reef_kernels.h"
#include "reef_router.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct reef_bench_exhaustive reef_bench_exhaustive;

/**
 * Search for the queries that a folded forward left in `tape`, which with `router` outlives this.
 *
 * tokens  how many of them, a whole number of the tape's pieces
 * keys    false: an expert's score is the sum of those of its two sub-keys, from tables of `side`
 *         scores; true: it is the product with its own key of d_key floats, for which there is then
 *         memory of reef_bench_exhaustive_key_bytes
 */
reef_bench_exhaustive *reef_bench_exhaustive_new(const reef_router_shape *shape,
                                                 const reef_router_params *router,
                                                 const reef_router_tape *tape,
                                                 size_t tokens,
                                                 bool keys,
                                                 size_t threads);
void reef_bench_exhaustive_free(reef_bench_exhaustive *search); // accepts NULL

double reef_bench_exhaustive_key_bytes(const reef_router_shape *shape);

/** Search once with as many workers as threads were given; seconds. */
double reef_bench_exhaustive_run(reef_bench_exhaustive *search, reef_thread_pool *workers);

/**
 * Share of the choices of the last search that equal those of product keys: 1 without keys. With
 * keys the sums are rounded elsewhere, so that near ties may come out in another order.
 */
double reef_bench_exhaustive_agreement(const reef_bench_exhaustive *search);

#endif
