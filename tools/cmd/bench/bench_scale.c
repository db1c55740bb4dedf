// Measuring for `reef bench scale`: one layer after the other, from small to large; see
// bench_scale.h.
#include "bench_scale.h"

#include "bench_exhaustive.h"
#include "bench_roofline.h"
#include "cli_progress.h"

#include <math.h>
#include <stdlib.h>

#define MEMORY_SHARE_MAX 0.6 // of what is available, for rows
#define SUMS_SIDE_MAX 2048   // sums of sub-key scores: four million a query
#define KEYS_SIDE_MAX 512    // keys written out: 134 MB at d_key 128
#define KEYS_MEMORY_SHARE_MAX 0.1

enum { TIME_ALL, TIME_RETRIEVAL, TIME_EXPERTS, TIME_QUERY, TIME_SCORES, TIME_COUNT };

static double row_bytes(size_t side, size_t d_model, reef_dtype dtype) {
    size_t value = dtype == REEF_BF16 ? sizeof(reef_bf16) : sizeof(float);
    return (double)side * (double)side * 2 * (double)d_model * (double)value;
}

// Floats while they fit, then half their bytes, then the disk. A process that reads from there may
// hold what it was given, or else a quarter of the rows: fewer than there are.
static void choose_residency(const reef_scale_plan *plan, reef_scale_point *point) {
    double memory = reef_bench_available_bytes();
    // A smaller memory may be asked for, to see the disk at work on a machine with much of it.
    if (plan->memory_bytes > 0 && (memory == 0 || (double)plan->memory_bytes < memory))
        memory = (double)plan->memory_bytes;
    // Printed with the result, because it decides what was measured.
    point->available_bytes = memory;
    // Some memory is left to the system. If the system does not report how much it has, no limit is
    // assumed.
    double limit = memory > 0 ? MEMORY_SHARE_MAX * memory : INFINITY;
    // Half the bytes are tried before the disk, which is slower by orders of magnitude.
    if (row_bytes(point->side, point->d_model, point->dtype) > limit) point->dtype = REEF_BF16;
    point->wanted_bytes = row_bytes(point->side, point->d_model, point->dtype);
    point->measured = point->wanted_bytes <= limit;
    point->mapped = !point->measured;
    // In memory, no limit has to be set.
    if (!point->mapped) return;
    point->limit_bytes =
        plan->memory_bytes > 0 ? (double)plan->memory_bytes : fmin(limit, point->wanted_bytes / 4);
}

// ---- one layer ----------------------------------------------------------------------------------

static double microseconds(double seconds, size_t tokens) {
    return 1e6 * seconds / (double)tokens;
}

static reef_status take_times(reef_layer_bench *layer,
                              reef_bench_limits *limits,
                              reef_thread_pool *workers,
                              double times[TIME_COUNT],
                              reef_error *err) {
    reef_bench_rates rates;
    reef_layer_seconds seconds;
    // The products alone are timed with each pass, so that both saw the same clock.
    reef_bench_limits_products(limits, workers, &rates);
    reef_status status = reef_layer_bench_forward(layer, workers, &seconds, err);
    times[TIME_ALL] = reef_bench_seconds_sum(&seconds);
    times[TIME_RETRIEVAL] = seconds.retrieval;
    times[TIME_EXPERTS] = seconds.experts;
    // What the products of queries and sub-keys would take by themselves, at the rate just
    // measured.
    times[TIME_QUERY] = reef_bench_limits_project(limits, &rates);
    times[TIME_SCORES] = reef_bench_limits_score(limits, &rates);
    return status;
}

/** A point while it is measured. */
typedef struct subject {
    reef_router_shape shape;
    reef_layer_bench *layer;
    reef_bench_limits *limits;
    double (*times)[TIME_COUNT]; // (repeat + 1); the first only warms up
} subject;

// Nothing is made where the rows do not fit.
static reef_status subject_init(subject *s,
                                const reef_scale_plan *plan,
                                reef_scale_point *point,
                                reef_thread_pool *workers,
                                reef_error *err) {
    *s = (subject){.shape = plan->shape};
    s->shape.side = point->side;
    s->shape.d_model = point->d_model;
    choose_residency(plan, point);
    if (!point->measured) return REEF_OK;
    // One more than the repetitions, for the pass that warms up.
    s->times = reef_cli_alloc((size_t)plan->repeat + 1, sizeof(*s->times));
    // Sealed, as this measures reading: no gradients, no moments.
    reef_layer_bench_options options = {.shape = s->shape,
                                        .tokens = plan->tokens,
                                        .piece_tokens = plan->piece_tokens,
                                        .seed = BENCH_SEED,
                                        .sealed = true,
                                        .dtype = point->dtype};
    reef_status status = reef_layer_bench_new(&s->layer, &options, workers, err);
    if (status != REEF_OK) return status;
    // No rows are given: only products are measured here, not reading.
    return reef_bench_limits_new(&s->limits, &s->shape, plan->tokens, plan->piece_tokens, NULL,
                                 err);
}

static void subject_release(subject *s) {
    reef_bench_limits_free(s->limits);
    reef_layer_bench_free(s->layer);
    free(s->times);
}

static void take_medians(const reef_scale_plan *plan, const subject *s, reef_scale_point *point) {
    double *const out[TIME_COUNT] = {
        [TIME_ALL] = &point->us,
        [TIME_RETRIEVAL] = &point->us_retrieval,
        [TIME_EXPERTS] = &point->us_experts,
        [TIME_QUERY] = &point->us_query,
        [TIME_SCORES] = &point->us_scores,
    };
    // Row 0 was the warm-up, so the medians begin at row 1.
    for (size_t t = 0; t < TIME_COUNT; t++)
        *out[t] = microseconds(reef_bench_median(&s->times[1][t], (size_t)plan->repeat, TIME_COUNT),
                               plan->tokens);
    point->tokens_per_s = 1e6 / point->us;
}

// As many whole pieces as there are threads, when the layer has so many.
static size_t search_tokens(const reef_scale_plan *plan, size_t threads) {
    size_t tokens = plan->piece_tokens * threads;
    return tokens < plan->tokens ? tokens : plan->tokens;
}

// The first repetition only warms up.
static void measure_search(const reef_scale_plan *plan,
                           const reef_scale_point *point,
                           const reef_router_shape *shape,
                           const reef_layer_bench *layer,
                           reef_thread_pool *workers,
                           reef_scale_search *out) {
    // An exhaustive search takes long, so it gets fewer tokens than the product keys.
    size_t threads = reef_thread_pool_count(workers), tokens = search_tokens(plan, threads);
    double *seconds = reef_cli_alloc((size_t)plan->repeat + 1, sizeof(*seconds));
    // The exhaustive search uses the queries of the layer's own pass, and compares its choice with
    // the layer's.
    reef_bench_exhaustive *search =
        reef_bench_exhaustive_new(shape, reef_layer_bench_router(layer),
                                  reef_layer_bench_tape(layer), tokens, out->keys, threads);
    for (uint64_t i = 0; i <= plan->repeat; i++)
        seconds[i] = reef_bench_exhaustive_run(search, workers);
    double median = reef_bench_median(seconds + 1, (size_t)plan->repeat, 1);
    out->side = shape->side;
    out->tokens = tokens;
    // The query is projected in both searches, so its time is added here; the product keys' time
    // has it already.
    out->us = point->us_query + microseconds(median, tokens);
    out->us_product_keys = point->us_retrieval;
    // Product keys find the exact best pairs (PEER, section 2.2); the share shows it, up to ties of
    // floats.
    out->agreement = reef_bench_exhaustive_agreement(search);
    reef_bench_exhaustive_free(search);
    free(seconds);
}

static void measure_searches(const reef_scale_plan *plan,
                             const reef_scale_point *point,
                             const reef_router_shape *shape,
                             const reef_layer_bench *layer,
                             reef_thread_pool *workers,
                             reef_scale_findings *out) {
    double limit = KEYS_MEMORY_SHARE_MAX * point->available_bytes;
    // All sums of sub-key scores first, then full keys, as if the keys had no product structure.
    for (int keys = 0; keys < 2; keys++) {
        // Above these sizes one search would take minutes.
        if (shape->side > (keys ? KEYS_SIDE_MAX : SUMS_SIDE_MAX)) continue;
        // The keys of all experts are as large as the pool itself.
        if (keys && limit > 0 && reef_bench_exhaustive_key_bytes(shape) > limit) continue;
        reef_scale_search *search = &out->searches[out->search_count++];
        search->keys = keys == 1;
        measure_search(plan, point, shape, layer, workers, search);
    }
}

// Points that lie in memory alternate, so that other load affects them alike.
static reef_status measure_group(const reef_scale_plan *plan,
                                 reef_scale_point *points,
                                 size_t count,
                                 bool searches,
                                 reef_thread_pool *workers,
                                 reef_scale_findings *out,
                                 reef_error *err) {
    subject subjects[SCALE_SIDES_MAX] = {0};
    reef_status status = REEF_OK;
    // All layers of the group are made before the first is measured, so that each round can visit
    // all of them.
    for (size_t i = 0; i < count && status == REEF_OK; i++)
        status = subject_init(&subjects[i], plan, &points[i], workers, err);
    double huge_bytes = reef_bench_huge_bytes();
    for (uint64_t r = 0; r <= plan->repeat; r++)
        for (size_t i = 0; i < count && status == REEF_OK; i++)
            // Points on disk are measured alone, below: their reading would disturb the others.
            if (!points[i].mapped)
                status = take_times(subjects[i].layer, subjects[i].limits, workers,
                                    subjects[i].times[r], err);
    for (size_t i = 0; i < count && status == REEF_OK; i++) {
        if (points[i].mapped) continue;
        // Huge pages are counted for the whole process, so the figure is the same for all of the
        // group.
        points[i].huge_bytes = huge_bytes;
        points[i].first_pass = reef_layer_bench_tape(subjects[i].layer)->coarse != NULL;
        take_medians(plan, &subjects[i], &points[i]);
        if (searches)
            measure_searches(plan, &points[i], &subjects[i].shape, subjects[i].layer, workers, out);
    }
    // Memory is given back before the disk is measured, as its page cache needs the room.
    for (size_t i = 0; i < count; i++) subject_release(&subjects[i]);
    for (size_t i = 0; i < count && status == REEF_OK; i++)
        if (points[i].mapped) status = reef_scale_measure_disk(plan, &points[i], workers, err);
    return status;
}

// ---- all of them --------------------------------------------------------------------------------

static void list_points(const reef_scale_plan *plan, reef_scale_findings *out) {
    for (size_t i = 0; i < plan->side_count; i++)
        out->points[out->point_count++] = (reef_scale_point){
            .side = plan->sides[i], .d_model = plan->shape.d_model, .dtype = REEF_F32};
    size_t from = plan->side_count > SCALE_NARROW_SIDES ? plan->side_count - SCALE_NARROW_SIDES : 0;
    for (size_t i = from; plan->narrow && i < plan->side_count; i++)
        out->points[out->point_count++] = (reef_scale_point){
            .side = plan->sides[i], .d_model = SCALE_NARROW_D_MODEL, .dtype = REEF_BF16};
}

// Rows take the time, so the bar counts their values.
static uint64_t values_of(const reef_scale_point *point) {
    return (uint64_t)point->side * point->side * 2 * point->d_model;
}

reef_status reef_scale_measure(const reef_scale_plan *plan,
                               reef_thread_pool *workers,
                               reef_scale_findings *out,
                               reef_error *err) {
    uint64_t total = 0, done = 0;
    *out = (reef_scale_findings){.threads = reef_thread_pool_count(workers),
                                 .load = reef_bench_load()};
    list_points(plan, out);
    // Progress is counted in values of rows: points differ in size by factors of a thousand.
    for (size_t i = 0; i < out->point_count; i++) total += values_of(&out->points[i]);
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "measuring", total, "values");
    reef_status status = REEF_OK;
    for (size_t i = 0; i < out->point_count && status == REEF_OK;) {
        // The first series one by one, as large as memory allows; the second one as a group.
        size_t count = i < plan->side_count ? 1 : out->point_count - i;
        bool searches = plan->exhaustive && i < plan->side_count;
        status = measure_group(plan, &out->points[i], count, searches, workers, out, err);
        for (size_t end = i + count; i < end; i++) done += values_of(&out->points[i]);
        reef_cli_progress_show(&progress, done);
    }
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    // The machine's own rates are measured last, with the largest pool of the first series.
    reef_router_shape shape = plan->shape;
    shape.side = plan->sides[plan->side_count - 1];
    return reef_bench_machine_measure(&shape, plan->tokens, out->threads, &out->machine, err);
}

static double narrow_us(const reef_scale_findings *findings, size_t side) {
    for (size_t i = 0; i < findings->point_count; i++) {
        const reef_scale_point *p = &findings->points[i];
        if (p->measured && p->side == side && p->d_model == SCALE_NARROW_D_MODEL &&
            p->dtype == REEF_BF16)
            return p->us;
    }
    return NAN;
}

double reef_scale_ratio(const reef_scale_findings *findings) {
    return narrow_us(findings, 4096) / narrow_us(findings, 1024);
}
