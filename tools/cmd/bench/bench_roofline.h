// What the machine allows a PEER layer: matrix products at the layer's own shapes, and memory as it
// is read in order and at random. `reef bench peer` measures these beside the layer, in the same
// moments, and prints the layer's share of them. Each is the best of some ways to do the same, so
// that the layer stays below it.
#ifndef REEF_BENCH_ROOFLINE_H
#define REEF_BENCH_ROOFLINE_H

#include "reef_error.h"
#include "reef_kernels.h"
#include "reef_router.h"

#include <stddef.h>

typedef struct reef_bench_limits reef_bench_limits;

/** Rates of all threads together. */
typedef struct reef_bench_rates {
    double project_flops; // per second: tokens times the query network
    double score_flops;   // per second: queries times the sub-keys, in tiles as the router's
    double sequential;    // bytes per second, in order
    // Bytes per second of the rows that a router with random weights chooses, a row that it chooses
    // again counted again: on small pages, on huge pages.
    double gather, gather_huge;
} reef_bench_rates;

/**
 * Memory to measure with: beside the layer's own arrays a table as large as its experts, on small
 * pages. Without rows only products can be measured. A router with random weights, drawn as the
 * layer's, chooses the rows that are gathered.
 *
 * shape  of the layer; tokens in pieces of piece_tokens, as the layer cuts them
 * rows   (side * side, 2 * d_model) floats, the layer's experts on huge pages, only read; or NULL
 */
REEF_MUST_CHECK reef_status reef_bench_limits_new(reef_bench_limits **out,
                                                  const reef_router_shape *shape,
                                                  size_t tokens,
                                                  size_t piece_tokens,
                                                  const void *rows,
                                                  reef_error *err);
void reef_bench_limits_free(reef_bench_limits *limits); // accepts NULL

/** Measure once, with these workers: the products, the memory, or both. */
void reef_bench_limits_products(reef_bench_limits *limits,
                                reef_thread_pool *workers,
                                reef_bench_rates *out);
void reef_bench_limits_memory(reef_bench_limits *limits,
                              reef_thread_pool *workers,
                              reef_bench_rates *out);
void reef_bench_limits_sample(reef_bench_limits *limits,
                              reef_thread_pool *workers,
                              reef_bench_rates *out);

/**
 * Seconds of a forward pass that is nothing but its products and its gathering at these rates: of
 * the rows of all selections, since repetitions are in the rate as well.
 */
double reef_bench_limits_forward(const reef_bench_limits *limits, const reef_bench_rates *rates);

/**
 * Seconds of the products of one pass alone: tokens times the query network, queries times
 * sub-keys.
 */
double reef_bench_limits_project(const reef_bench_limits *limits, const reef_bench_rates *rates);
double reef_bench_limits_score(const reef_bench_limits *limits, const reef_bench_rates *rates);

/** Bytes of this process that lie on huge pages now; 0 where the system does not tell. */
double reef_bench_huge_bytes(void);

/** The load average of the last minute; NaN where the system does not tell. */
double reef_bench_load(void);

#endif
