// The parts of `reef bench peer`: what it was asked for, what it found, and who measures and shows
// what.
#ifndef REEF_BENCH_PEER_H
#define REEF_BENCH_PEER_H

#include "bench_baseline.h"
#include "bench_layer.h"
#include "bench_machine.h"
#include "bench_roofline.h"

#define PEER_RUNS_MAX 2          // with one thread, and with all
#define PEER_GENERATION_COUNT 10 // of the pool that is sealed up to the last

// What can be measured, in this order; each word of --only chooses one.
typedef enum reef_peer_section {
    PEER_LAYER = 1,      // the passes of one layer, the machine's limits, the baseline
    PEER_SEALED = 2,     // a pool of generations, all open or all sealed but one
    PEER_BF16 = 4,       // rows of half the bytes
    PEER_AVX2 = 8,       // the same layer with the kernels of an older processor
    PEER_INT8 = 32,      // rows of a quarter
    PEER_RETRIEVAL = 16, // the first pass against scores of all sub-keys
} reef_peer_section;

typedef struct reef_peer_plan {
    reef_router_shape shape;
    size_t tokens, piece_tokens, threads;
    uint64_t repeat, rounds;
    const char *baseline; // or NULL
    unsigned parts;       // reef_peer_section
} reef_peer_plan;

// ---- bench_peer_layer.c: one layer, the limits of the machine, a baseline -----------------------

// The parts of a pass, in the order in which they run.
#define PEER_STAGE_LIST(X)                                                                         \
    X(retrieval, "retrieval")                                                                      \
    X(experts, "experts")                                                                          \
    X(loss, "loss")                                                                                \
    X(experts_backward, "experts, backward")                                                       \
    X(retrieval_backward, "retrieval, backward")                                                   \
    X(sort, "sorting by expert")                                                                   \
    X(experts_update, "experts, gradient and Adam")                                                \
    X(retrieval_update, "retrieval, Adam")

enum {
#define PEER_STAGE_ENUM(field, text) PEER_STAGE_##field,
    PEER_STAGE_LIST(PEER_STAGE_ENUM)
#undef PEER_STAGE_ENUM
        PEER_STAGE_COUNT
};

enum { PASS_RETRIEVE, PASS_FORWARD, PASS_BACKWARD, PASS_STEP, PASS_COUNT };

/** One repetition, or the medians of many: all fields are doubles, in one order. */
typedef struct reef_peer_sample {
    double pass[PASS_COUNT];                // seconds
    double forward_stage[PEER_STAGE_COUNT]; // seconds of the forward pass
    double step_stage[PEER_STAGE_COUNT];    // seconds of the training step
    reef_bench_rates rates;
    double limit;       // seconds of the forward pass at these rates
    double limit_share; // of the forward pass
} reef_peer_sample;

/** Everything measured with one number of threads. */
typedef struct reef_peer_run {
    size_t threads;
    reef_thread_pool *workers;
    reef_peer_sample *samples;
    size_t count;
    reef_peer_sample median;
} reef_peer_run;

typedef struct reef_peer_layer {
    size_t touched;    // experts that a pass chose
    double huge_bytes; // of memory on huge pages
    double loss_before, loss_after;
    reef_bench_baseline_rates *baseline; // (rounds)
    size_t baseline_count;
    reef_bench_baseline_rates baseline_median;
    reef_error baseline_error; // the first failure ends the rounds of the baseline
} reef_peer_layer;

// The pools of ten generations that are measured.
typedef enum reef_peer_pool {
    POOL_OPEN,   // all learn
    POOL_SEALED, // nine are sealed, their rows in float
    POOL_BF16,   // nine are sealed, their rows in bf16
    POOL_COUNT
} reef_peer_pool;

/** What a training step costs when nine of ten generations are sealed. */
typedef struct reef_peer_sealed {
    reef_error missing;              // why figures are missing; OK if they are there
    size_t side;                     // of each generation
    double seconds[POOL_COUNT];      // of a step
    double moment_bytes[POOL_COUNT]; // of all generations
    double sealed_stage[POOL_COUNT][PEER_STAGE_COUNT]; // seconds of one sealed generation; open: 0
} reef_peer_sealed;

/** A forward pass with rounded rows, of bf16 or int8. */
typedef struct reef_peer_rounded {
    double f32_seconds, seconds;
    double f32_experts_seconds, experts_seconds; // without retrieval
    double f32_bytes, bytes;                     // of rows
    // largest over tokens of |y - y of f32| / |y of f32|, Euclidean norms
    double difference;
} reef_peer_rounded;

/** Retrieval with the first pass and without; seconds of a pass. */
typedef struct reef_peer_retrieval {
    bool first_pass;                      // this size has one with these kernels
    bool same;                            // ids and weights, to the bit
    double seconds, all_scores_seconds;   // the whole, with and without
    double query_seconds, scores_seconds; // products of BLAS alone: query network, all scores
} reef_peer_retrieval;

/** The same layer, measured by this program with AVX2 kernels. */
typedef struct reef_peer_avx2 {
    reef_error missing; // why figures are missing; OK if they are there
    double forward_tokens_per_s, step_tokens_per_s;
    char blas[32]; // name of the products' kernels
} reef_peer_avx2;

typedef struct reef_peer_findings {
    reef_peer_run runs[PEER_RUNS_MAX]; // with one thread first
    size_t run_count;
    double load; // of the machine before we began
    reef_peer_layer layer;
    reef_peer_sealed sealed;
    reef_peer_rounded bf16, int8;
    reef_peer_avx2 avx2;
    reef_peer_retrieval retrieval;
} reef_peer_findings;

/** The run with all threads. */
const reef_peer_run *reef_peer_run_all(const reef_peer_findings *findings);
/** How much faster all threads are than one. */
double reef_peer_speedup(const reef_peer_findings *findings, size_t pass);
/** Our rate over the baseline's; NaN without it. */
double reef_peer_baseline_ratio(const reef_peer_plan *plan,
                                const reef_peer_findings *findings,
                                size_t pass,
                                reef_bench_baseline_row row);
double reef_peer_tokens_per_s(const reef_peer_plan *plan, double seconds);
double reef_peer_microseconds(const reef_peer_plan *plan, double seconds); // per token

/** Alternate: with each number of threads all passes and the limits, then the baseline. */
REEF_MUST_CHECK reef_status reef_peer_layer_measure(const reef_peer_plan *plan,
                                                    reef_peer_findings *findings,
                                                    reef_error *err);
/** Free the samples; the workers are the caller's. */
void reef_peer_layer_release(reef_peer_findings *findings);

// ---- bench_peer_sealed.c ------------------------------------------------------------------------

/** If the pool does not fit this is not an error: `out->missing` has the reason. */
REEF_MUST_CHECK reef_status reef_peer_sealed_measure(const reef_peer_plan *plan,
                                                     reef_thread_pool *workers,
                                                     reef_peer_sealed *out,
                                                     reef_error *err);
/** How much faster a step of that pool is than with all generations open; NaN when not measured. */
double reef_peer_sealed_ratio(const reef_peer_sealed *sealed, reef_peer_pool which);

// ---- bench_peer_rounded.c -----------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_peer_rounded_measure(const reef_peer_plan *plan,
                                                      reef_dtype dtype,
                                                      reef_thread_pool *workers,
                                                      reef_peer_rounded *out,
                                                      reef_error *err);

// ---- bench_peer_retrieval.c ---------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_peer_retrieval_measure(const reef_peer_plan *plan,
                                                        reef_thread_pool *workers,
                                                        reef_peer_retrieval *out,
                                                        reef_error *err);
/** How much faster retrieval is with the first pass; NaN when not measured. */
double reef_peer_retrieval_ratio(const reef_peer_retrieval *retrieval);

// ---- bench_peer_avx2.c --------------------------------------------------------------------------

/** Run this program again with other kernels; what goes wrong is in `out->missing`. */
void reef_peer_avx2_measure(const reef_peer_plan *plan, reef_peer_avx2 *out);

// ---- bench_peer_json.c and bench_peer_table.c: answers ------------------------------------------

/** What was not measured is null. */
json_t *reef_peer_json(const reef_peer_plan *plan, const reef_peer_findings *findings);
void reef_peer_print(const reef_peer_plan *plan, const reef_peer_findings *findings);

#endif
