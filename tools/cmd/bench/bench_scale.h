// The parts of `reef bench scale`: what it was asked for, what it found, and who measures and shows
// what.
#ifndef REEF_BENCH_SCALE_H
#define REEF_BENCH_SCALE_H

#include "bench_layer.h"
#include "bench_machine.h"

#define SCALE_SIDES_MAX 32
#define SCALE_NARROW_D_MODEL 64 // of the second series, in bf16
#define SCALE_NARROW_SIDES 3    // the largest sides have a point in the second series

typedef struct reef_scale_plan {
    reef_router_shape shape; // all but the side
    size_t sides[SCALE_SIDES_MAX];
    size_t side_count; // rising
    size_t tokens, piece_tokens;
    uint64_t repeat;
    uint64_t memory_bytes;   // that the process may hold; 0: what is free
    bool narrow, exhaustive; // the second series; the searches
} reef_scale_plan;

/** One size of the layer; times are microseconds per token, medians of repetitions. */
typedef struct reef_scale_point {
    size_t side, d_model;
    reef_dtype dtype;    // of the rows
    double wanted_bytes; // of the rows, in this type
    bool mapped;         // they do not fit into memory, and are read in place from a pool on disk
    bool measured;       // false: they do not fit on the disk either, and figures are missing
    double available_bytes; // of memory, before
    double free_bytes;      // of the disk, before; mapped only, as all that follows here
    double limit_bytes;     // what the process may hold while it reads
    double peak_bytes;      // what it held at most
    uint64_t drops;         // how often it released all rows
    double write_seconds;   // of the pool
    double us_cold;         // with nothing in the system's cache; `us` is that of the passes after
    double huge_bytes;      // of the process on huge pages, while this was measured
    double us, us_retrieval, us_experts;
    bool first_pass;            // most sub-keys are not scored
    double us_query, us_scores; // products by themselves: query network, scores of all sub-keys
    double tokens_per_s;
} reef_scale_point;

/** A search through all experts at one size. */
typedef struct reef_scale_search {
    size_t side;
    bool keys;              // with a key of each expert written out
    size_t tokens;          // that it was measured with
    double us;              // per token: the query network, all scores, the best of them
    double us_product_keys; // retrieval of the layer of this size
    double agreement;       // share of choices in which both chose the same expert
} reef_scale_search;

typedef struct reef_scale_findings {
    reef_scale_point points[2 * SCALE_SIDES_MAX];
    size_t point_count;
    reef_scale_search searches[2 * SCALE_SIDES_MAX];
    size_t search_count;
    size_t threads;
    reef_bench_machine machine; // at the first series' width
    double load;                // of the machine before we began
} reef_scale_findings;

// ---- bench_scale.c ------------------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_scale_measure(const reef_scale_plan *plan,
                                               reef_thread_pool *workers,
                                               reef_scale_findings *out,
                                               reef_error *err);

/** Microseconds per token at side 4096 over those at 1024, d_model 64 in bf16; NaN without both. */
double reef_scale_ratio(const reef_scale_findings *findings);

// ---- bench_scale_disk.c -------------------------------------------------------------------------

/**
 * Measure a mapped point with a temporary pool; where the disk has too little room it stays
 * unmeasured.
 */
REEF_MUST_CHECK reef_status reef_scale_measure_disk(const reef_scale_plan *plan,
                                                    reef_scale_point *point,
                                                    reef_thread_pool *workers,
                                                    reef_error *err);

// ---- bench_scale_table.c ------------------------------------------------------------------------

const char *reef_scale_dtype_name(reef_dtype dtype);
void reef_scale_print(const reef_scale_plan *plan, const reef_scale_findings *findings);

#endif
