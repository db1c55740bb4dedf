// reef bench peer: one PEER layer by itself, against what the machine allows and against a rival.
//
// The layer, its limits and the rival take turns, and every figure is the median of its repetitions, so
// that other load on the machine meets all of them alike. The share of the limit is taken within each
// repetition, from measurements that follow each other.
#include "bench_limits.h"
#include "bench_rival.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_TOKENS_MAX 128 // as the windows of a model
#define SEED 1
#define REPEAT_MAX 1000
#define ROUNDS_MAX 100
#define TOKENS_MAX (1 << 20)
#define TOPK_MAX 1024
#define SIDE_MAX 16384 // of 268 million experts
#define RUNS_MAX 2     // with one thread, and with all

static const cli_option OPTIONS[] = {
    {"side", "N", "sub-keys per side; N * N experts (default: 1024)"},
    {"d-model", "N", "width of a token (default: 256)"},
    {"heads", "N", "heads (default: 8)"},
    {"topk", "N", "experts per head (default: 16)"},
    {"d-key", "N", "width of a query (default: 128)"},
    {"tokens", "N", "tokens of one pass (default: 2048)"},
    {"repeat", "N", "repetitions of each pass, of which the median counts (default: 5)"},
    {"rival", "SCRIPT", "Python script that measures the same layer otherwise"},
    {"rounds", "N", "how often the layer and the rival take turns (default: 1)"},
    {0},
};

const cli_manual bench_peer_manual = {
    .about = "Measures one PEER layer with random weights outside any pool, with one thread and "
             "with all:\n"
             "retrieval, forward, forward and backward, a whole training step, and beside them "
             "what the\n"
             "machine does at most: matrix products at the layer's shapes, reading in order, and "
             "gathering\n"
             "rows at random. The composite limit of a forward pass is its products at the "
             "measured rate\n"
             "plus its rows at the rate of gathering from huge pages.\n"
             "\n"
             "A rival is run as `/usr/bin/python3 SCRIPT SIDE D_MODEL TOKENS sparse THREADS` and "
             "prints lines\n"
             "`NAME  SECONDS s  RATE tok/s` for retrieve, forward, forward+backward and train step "
             "(+Adam);\n"
             "heads, topk and d_key are the script's own. Our gradients of experts are part of the "
             "step, not\n"
             "of forward and backward, so there is no ratio for the latter.",
    .options = OPTIONS,
    .example = "reef bench peer\n"
               "reef bench peer --side 512 --threads 2 --repeat 9 --json\n"
               "reef bench peer --rival torch_peer.py --rounds 2",
};

typedef struct plan {
    reef_router_shape shape;
    size_t tokens, piece_tokens, threads;
    uint64_t repeat, rounds;
    const char *rival; // or NULL
} plan;

// ---- what is measured ----------------------------------------------------------------------------

// The parts of a pass, in the order in which they run.
#define PART_LIST(X)                                                                               \
    X(retrieval, "retrieval")                                                                      \
    X(experts, "experts")                                                                          \
    X(loss, "loss")                                                                                \
    X(experts_backward, "experts, backward")                                                       \
    X(retrieval_backward, "retrieval, backward")                                                   \
    X(sort, "sorting by expert")                                                                   \
    X(experts_update, "experts, gradient and Adam")                                                \
    X(retrieval_update, "retrieval, Adam")

enum {
#define PART_ENUM(field, text) PART_##field,
    PART_LIST(PART_ENUM)
#undef PART_ENUM
        PART_COUNT
};

static const char *const PART_KEYS[PART_COUNT] = {
#define PART_KEY(field, text) #field,
    PART_LIST(PART_KEY)
#undef PART_KEY
};

static const char *const PART_NAMES[PART_COUNT] = {
#define PART_NAME(field, text) text,
    PART_LIST(PART_NAME)
#undef PART_NAME
};

enum { PASS_RETRIEVE, PASS_FORWARD, PASS_BACKWARD, PASS_STEP, PASS_COUNT };

static const char *const PASS_NAMES[PASS_COUNT] = {"retrieval", "forward", "forward and backward",
                                                   "training step"};

typedef reef_status (*pass_function)(reef_layer_bench *layer,
                                     reef_workers *workers,
                                     reef_layer_seconds *seconds,
                                     reef_error *err);

static const pass_function PASSES[PASS_COUNT] = {reef_layer_bench_retrieve,
                                                 reef_layer_bench_forward,
                                                 reef_layer_bench_backward, reef_layer_bench_step};

/** One repetition, or the medians of many: all fields are doubles, in one order. */
typedef struct sample {
    double pass[PASS_COUNT];         // seconds
    double forward_part[PART_COUNT]; // seconds of the forward pass
    double step_part[PART_COUNT];    // seconds of the training step
    bench_rates rates;
    double limit;       // seconds of the forward pass at these rates
    double limit_share; // of the forward pass
} sample;

#define SAMPLE_FIELDS (sizeof(sample) / sizeof(double))

/** Everything measured with one number of threads. */
typedef struct run {
    size_t threads;
    reef_workers *workers;
    sample *samples;
    size_t count;
    sample median;
} run;

typedef struct findings {
    run runs[RUNS_MAX]; // with one thread first
    size_t run_count;
    size_t touched;    // experts that a pass chose
    double huge_bytes; // of memory on huge pages
    double load;       // of the machine before we began
    double loss_before, loss_after;
    bench_rival_rates *rival; // (rounds)
    size_t rival_count;
    bench_rival_rates rival_median;
    reef_error rival_error; // the first failure ends the turns of the rival
} findings;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of `count` doubles that lie `stride` doubles apart.
static double median(const double *values, size_t count, size_t stride) {
    double *sorted = cli_alloc(count, sizeof(*sorted));
    for (size_t i = 0; i < count; i++) sorted[i] = values[i * stride];
    qsort(sorted, count, sizeof(*sorted), by_size);
    double middle = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return middle;
}

static double seconds_sum(const double parts[PART_COUNT]) {
    double sum = 0;
    for (size_t i = 0; i < PART_COUNT; i++) sum += parts[i];
    return sum;
}

static void seconds_parts(const reef_layer_seconds *seconds, double parts[PART_COUNT]) {
#define PART_COPY(field, text) parts[PART_##field] = seconds->field;
    PART_LIST(PART_COPY)
#undef PART_COPY
}

// ---- measuring -----------------------------------------------------------------------------------

static reef_status run_pass(
    reef_layer_bench *layer, run *r, size_t pass, double parts[PART_COUNT], reef_error *err) {
    reef_layer_seconds seconds;
    reef_status status = PASSES[pass](layer, r->workers, &seconds, err);
    seconds_parts(&seconds, parts);
    return status;
}

static reef_status take_sample(
    reef_layer_bench *layer, bench_limits *limits, run *r, sample *out, reef_error *err) {
    *out = (sample){0};
    bench_limits_sample(limits, r->workers, &out->rates);
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        double parts[PART_COUNT];
        reef_status status = run_pass(layer, r, pass, parts, err);
        if (status != REEF_OK) return status;
        out->pass[pass] = seconds_sum(parts);
        if (pass == PASS_FORWARD) memcpy(out->forward_part, parts, sizeof(parts));
        if (pass == PASS_STEP) memcpy(out->step_part, parts, sizeof(parts));
    }
    out->limit = bench_limits_forward(limits, &out->rates);
    out->limit_share = out->limit / out->pass[PASS_FORWARD];
    return REEF_OK;
}

// One round: `repeat` repetitions, in each of which every number of threads has its turn.
static reef_status measure_round(
    const plan *p, reef_layer_bench *layer, bench_limits *limits, findings *f, reef_error *err) {
    for (uint64_t i = 0; i < p->repeat; i++)
        for (size_t r = 0; r < f->run_count; r++) {
            run *one = &f->runs[r];
            reef_status status = take_sample(layer, limits, one, &one->samples[one->count], err);
            if (status != REEF_OK) return status;
            one->count++;
        }
    return REEF_OK;
}

static void measure_rival(const plan *p, findings *f) {
    if (!p->rival || f->rival_error.status != REEF_OK) return;
    reef_status status = bench_rival_run(p->rival, p->shape.side, p->shape.d_model, p->tokens,
                                         p->threads, &f->rival[f->rival_count], &f->rival_error);
    if (status == REEF_OK) f->rival_count++;
}

// Pages, caches, OpenBLAS and the workers settle; nothing of it counts.
static reef_status warm_up(reef_layer_bench *layer,
                           bench_limits *limits,
                           findings *f,
                           reef_error *err) {
    sample ignored;
    for (size_t r = 0; r < f->run_count; r++) {
        reef_status status = take_sample(layer, limits, &f->runs[r], &ignored, err);
        if (status != REEF_OK) return status;
        if (r == 0) f->loss_before = reef_layer_bench_loss(layer);
    }
    return REEF_OK;
}

static reef_status measure_rounds(
    const plan *p, reef_layer_bench *layer, bench_limits *limits, findings *f, reef_error *err) {
    reef_status status = warm_up(layer, limits, f, err);
    cli_progress progress;
    cli_progress_start(&progress, "measuring", p->rounds, "rounds");
    for (uint64_t round = 0; round < p->rounds && status == REEF_OK; round++) {
        status = measure_round(p, layer, limits, f, err);
        if (status == REEF_OK) measure_rival(p, f);
        cli_progress_show(&progress, round + 1);
    }
    cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    f->loss_after = reef_layer_bench_loss(layer);
    f->touched = reef_layer_bench_touched(layer);
    f->huge_bytes = bench_huge_bytes();
    return REEF_OK;
}

static void take_medians(findings *f) {
    for (size_t r = 0; r < f->run_count; r++) {
        const double *first = (const double *)f->runs[r].samples;
        double *out = (double *)&f->runs[r].median;
        for (size_t i = 0; i < SAMPLE_FIELDS; i++)
            out[i] = median(first + i, f->runs[r].count, SAMPLE_FIELDS);
    }
    for (size_t row = 0; f->rival_count > 0 && row < RIVAL_ROW_COUNT; row++)
        f->rival_median.tokens_per_s[row] =
            median(&f->rival[0].tokens_per_s[row], f->rival_count, RIVAL_ROW_COUNT);
}

// With one thread, and with all where those are more.
static reef_status prepare_runs(plan *p, findings *f, size_t threads, reef_error *err) {
    reef_workers *all = NULL;
    reef_status status = reef_workers_new(&all, threads, err);
    if (status != REEF_OK) return status;
    p->threads = reef_workers_count(all);
    f->run_count = p->threads > 1 ? 2 : 1;
    f->runs[f->run_count - 1].workers = all;
    if (f->run_count > 1) status = reef_workers_new(&f->runs[0].workers, 1, err);
    for (size_t r = 0; r < f->run_count && status == REEF_OK; r++) {
        f->runs[r].threads = reef_workers_count(f->runs[r].workers);
        f->runs[r].samples = cli_alloc((size_t)(p->rounds * p->repeat), sizeof(sample));
    }
    f->rival = cli_alloc((size_t)p->rounds, sizeof(*f->rival));
    return status;
}

static void release(findings *f) {
    for (size_t r = 0; r < RUNS_MAX; r++) {
        reef_workers_free(f->runs[r].workers);
        free(f->runs[r].samples);
    }
    free(f->rival);
}

static reef_status measure(plan *p, size_t threads, findings *f, reef_error *err) {
    reef_layer_bench *layer = NULL;
    bench_limits *limits = NULL;
    reef_layer_bench_options options = {
        .shape = p->shape, .tokens = p->tokens, .piece_tokens = p->piece_tokens, .seed = SEED};
    f->load = bench_load();
    reef_status status = prepare_runs(p, f, threads, err);
    if (status != REEF_OK) goto cleanup;
    reef_workers *all = f->runs[f->run_count - 1].workers;
    status = reef_layer_bench_new(&layer, &options, all, err);
    if (status != REEF_OK) goto cleanup;
    status = bench_limits_new(&limits, &p->shape, p->tokens, p->piece_tokens,
                              reef_layer_bench_rows(layer), err);
    if (status != REEF_OK) goto cleanup;
    status = measure_rounds(p, layer, limits, f, err);
    if (status == REEF_OK) take_medians(f);

cleanup:
    bench_limits_free(limits);
    reef_layer_bench_free(layer);
    return status;
}

// ---- answers -------------------------------------------------------------------------------------

static double tokens_per_s(const plan *p, double seconds) {
    return (double)p->tokens / seconds;
}

static double microseconds(const plan *p, double seconds) {
    return 1e6 * seconds / (double)p->tokens;
}

static const run *all_threads(const findings *f) {
    return &f->runs[f->run_count - 1];
}

static double speedup(const findings *f, size_t pass) {
    return f->runs[0].median.pass[pass] / all_threads(f)->median.pass[pass];
}

static double rival_ratio(const plan *p, const findings *f, size_t pass, bench_rival_row row) {
    double ours = tokens_per_s(p, all_threads(f)->median.pass[pass]);
    return f->rival_count > 0 ? ours / f->rival_median.tokens_per_s[row] : NAN;
}

static json_t *parts_json(const plan *p, const double parts[PART_COUNT]) {
    json_t *object = json_object();
    for (size_t i = 0; i < PART_COUNT; i++)
        if (parts[i] > 0)
            json_object_set_new(object, PART_KEYS[i], cli_real(microseconds(p, parts[i])));
    return object;
}

static json_t *limits_json(const plan *p, const sample *s) {
    const bench_rates *r = &s->rates;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "gemm_query_gflops",
                     cli_real(1e-9 * r->project_flops), "gemm_scores_gflops",
                     cli_real(1e-9 * r->score_flops), "sequential_gb_per_s",
                     cli_real(1e-9 * r->sequential), "gather_gb_per_s", cli_real(1e-9 * r->gather),
                     "gather_huge_gb_per_s", cli_real(1e-9 * r->gather_huge),
                     "forward_tokens_per_s", cli_real(tokens_per_s(p, s->limit)));
}

static json_t *run_json(const plan *p, const run *r) {
    const sample *m = &r->median;
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "threads", (json_int_t)r->threads,
        "retrieval_tokens_per_s", cli_real(tokens_per_s(p, m->pass[PASS_RETRIEVE])),
        "forward_tokens_per_s", cli_real(tokens_per_s(p, m->pass[PASS_FORWARD])),
        "forward_backward_tokens_per_s", cli_real(tokens_per_s(p, m->pass[PASS_BACKWARD])),
        "step_tokens_per_s", cli_real(tokens_per_s(p, m->pass[PASS_STEP])), "forward_us_per_token",
        parts_json(p, m->forward_part), "step_us_per_token", parts_json(p, m->step_part), "limits",
        limits_json(p, m), "forward_limit_share", cli_real(m->limit_share));
}

static void add_rival(json_t *document, const plan *p, const findings *f) {
    if (!p->rival) return;
    json_object_set_new(document, "rival_forward_ratio",
                        cli_real(rival_ratio(p, f, PASS_FORWARD, RIVAL_FORWARD)));
    json_object_set_new(document, "rival_step_ratio",
                        cli_real(rival_ratio(p, f, PASS_STEP, RIVAL_STEP)));
    json_t *rival =
        json_pack("{s:o, s:I}", "script", cli_path(p->rival), "rounds", (json_int_t)f->rival_count);
    if (f->rival_error.status != REEF_OK)
        json_object_set_new(rival, "error", cli_path(f->rival_error.message));
    static const char *const KEYS[RIVAL_ROW_COUNT] = {
        "retrieval_tokens_per_s", "forward_tokens_per_s", "forward_backward_tokens_per_s",
        "step_tokens_per_s"};
    for (size_t row = 0; f->rival_count > 0 && row < RIVAL_ROW_COUNT; row++)
        json_object_set_new(rival, KEYS[row], cli_real(f->rival_median.tokens_per_s[row]));
    json_object_set_new(document, "rival", rival);
}

static json_t *findings_json(const plan *p, const findings *f) {
    const run *all = all_threads(f);
    json_t *runs = json_array();
    for (size_t r = 0; r < f->run_count; r++) json_array_append_new(runs, run_json(p, &f->runs[r]));
    json_t *document =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "side",
                  (json_int_t)p->shape.side, "d_model", (json_int_t)p->shape.d_model, "heads",
                  (json_int_t)p->shape.head_count, "topk", (json_int_t)p->shape.topk, "d_key",
                  (json_int_t)p->shape.d_key, "tokens", (json_int_t)p->tokens, "repeat",
                  (json_int_t)p->repeat, "rounds", (json_int_t)p->rounds, "threads",
                  (json_int_t)p->threads, "experts_touched", (json_int_t)f->touched, "kernels",
                  reef_kernels_name(), "blas", reef_gemm_name());
    json_t *figures = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "forward_tokens_per_s",
        cli_real(tokens_per_s(p, all->median.pass[PASS_FORWARD])), "step_tokens_per_s",
        cli_real(tokens_per_s(p, all->median.pass[PASS_STEP])), "forward_limit_share",
        cli_real(all->median.limit_share), "thread_speedup", cli_real(speedup(f, PASS_STEP)),
        "forward_thread_speedup", cli_real(speedup(f, PASS_FORWARD)), "huge_page_bytes",
        cli_real(f->huge_bytes), "load_before", cli_real(f->load), "loss_before",
        cli_real(f->loss_before), "loss_after", cli_real(f->loss_after), "limits",
        limits_json(p, &all->median), "by_threads", runs);
    json_object_update(document, figures);
    json_decref(figures);
    add_rival(document, p, f);
    return document;
}

static void print_passes(const plan *p, const findings *f) {
    char words[CLI_WORD_BYTES];
    static const char *const HEADING[] = {"tokens/s", "1 thread", "all threads", "speed-up"};
    cli_table *table = cli_table_new("<>>>", HEADING);
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        cli_table_cell(table, "%s", PASS_NAMES[pass]);
        for (size_t r = 0; r < RUNS_MAX; r++) {
            const run *one = r == 0 ? &f->runs[0] : all_threads(f);
            double rate = tokens_per_s(p, one->median.pass[pass]);
            cli_table_cell(table, "%s", cli_count((uint64_t)rate, words));
        }
        cli_table_cell(table, "%.2f", speedup(f, pass));
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static void print_parts(const plan *p, const findings *f) {
    static const char *const HEADING[] = {"microseconds per token", "forward, 1 thread", "all",
                                          "step, 1 thread", "all"};
    const run *one = &f->runs[0], *all = all_threads(f);
    cli_table *table = cli_table_new("<>>>>", HEADING);
    for (size_t i = 0; i < PART_COUNT; i++) {
        cli_table_cell(table, "%s", PART_NAMES[i]);
        const double seconds[] = {one->median.forward_part[i], all->median.forward_part[i],
                                  one->median.step_part[i], all->median.step_part[i]};
        for (size_t c = 0; c < sizeof(seconds) / sizeof(seconds[0]); c++)
            if (seconds[c] > 0)
                cli_table_cell(table, "%.2f", microseconds(p, seconds[c]));
            else
                cli_table_cell(table, "-");
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static void print_limit(cli_table *table, const char *name, double one, double all) {
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%.1f", one);
    cli_table_cell(table, "%.1f", all);
}

static void print_limits(const plan *p, const findings *f) {
    const sample *one = &f->runs[0].median, *all = &all_threads(f)->median;
    const bench_rates *a = &one->rates, *b = &all->rates;
    static const char *const HEADING[] = {"what the machine does", "1 thread", "all threads"};
    cli_table *table = cli_table_new("<>>", HEADING);
    print_limit(table, "products, query network, GFLOP/s", 1e-9 * a->project_flops,
                1e-9 * b->project_flops);
    print_limit(table, "products, scores, GFLOP/s", 1e-9 * a->score_flops, 1e-9 * b->score_flops);
    print_limit(table, "reading in order, GB/s", 1e-9 * a->sequential, 1e-9 * b->sequential);
    print_limit(table, "random rows, small pages, GB/s", 1e-9 * a->gather, 1e-9 * b->gather);
    print_limit(table, "random rows, huge pages, GB/s", 1e-9 * a->gather_huge,
                1e-9 * b->gather_huge);
    print_limit(table, "composite limit of forward, thousand tokens/s",
                1e-3 * tokens_per_s(p, one->limit), 1e-3 * tokens_per_s(p, all->limit));
    print_limit(table, "share of it that forward reaches, %", 100 * one->limit_share,
                100 * all->limit_share);
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static void print_rival(const plan *p, const findings *f) {
    if (f->rival_error.status != REEF_OK)
        printf("\nrival     not measured%s: %s\n", f->rival_count > 0 ? " to the end" : "",
               f->rival_error.message);
    if (f->rival_count == 0) return;
    char words[CLI_WORD_BYTES];
    static const char *const HEADING[] = {"rival", "tokens/s", "reef / rival"};
    static const int PASS_OF[RIVAL_ROW_COUNT] = {PASS_RETRIEVE, PASS_FORWARD, PASS_BACKWARD,
                                                 PASS_STEP};
    cli_table *table = cli_table_new("<>>", HEADING);
    for (size_t row = 0; row < RIVAL_ROW_COUNT; row++) {
        cli_table_cell(table, "%s", PASS_NAMES[PASS_OF[row]]);
        double rate = f->rival_median.tokens_per_s[row];
        cli_table_cell(table, "%s", cli_count((uint64_t)rate, words));
        if (row == RIVAL_BACKWARD)
            cli_table_cell(table, "-"); // theirs has the gradients of experts in it
        else
            cli_table_cell(table, "%.1f", rival_ratio(p, f, (size_t)PASS_OF[row], row));
    }
    putchar('\n');
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static void print_findings(const plan *p, const findings *f) {
    char experts[CLI_WORD_BYTES], touched[CLI_WORD_BYTES], huge[CLI_WORD_BYTES];
    printf(
        "layer     %s experts of width %zu, %zu heads of %zu, d_key %zu; %zu tokens a pass choose "
        "%s experts\n",
        cli_count((uint64_t)p->shape.side * p->shape.side, experts), p->shape.d_model,
        p->shape.head_count, p->shape.topk, p->shape.d_key, p->tokens,
        cli_count(f->touched, touched));
    printf("machine   %s kernels, OpenBLAS for %s, %zu threads, %s on huge pages, load %.1f "
           "before\n\n",
           reef_kernels_name(), reef_gemm_name(), p->threads,
           cli_bytes((uint64_t)f->huge_bytes, huge), f->load);
    print_passes(p, f);
    putchar('\n');
    print_parts(p, f);
    putchar('\n');
    print_limits(p, f);
    if (p->rival) print_rival(p, f);
}

// ---- the command ---------------------------------------------------------------------------------

// Whole pieces: the largest size up to that of a model's windows that divides the tokens.
static size_t piece_of(size_t tokens) {
    size_t piece = tokens < PIECE_TOKENS_MAX ? tokens : PIECE_TOKENS_MAX;
    while (tokens % piece != 0) piece--;
    return piece;
}

// Rows, two moments and the table on small pages; better refused than ended by the system half way.
static reef_status check_memory(const plan *p, reef_error *err) {
#ifdef _SC_PHYS_PAGES
    double rows = (double)p->shape.side * (double)p->shape.side;
    double wanted = 4 * rows * 2 * (double)p->shape.d_model * sizeof(float);
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char need[CLI_WORD_BYTES], there[CLI_WORD_BYTES];
    if (have > 0 && wanted > have)
        return reef_fail(
            err, REEF_INVALID,
            "--side %zu and --d-model %zu take %s, and this machine has %s; choose less",
            p->shape.side, p->shape.d_model, cli_bytes((uint64_t)wanted, need),
            cli_bytes((uint64_t)have, there));
#else
    (void)p;
    (void)err;
#endif
    return REEF_OK;
}

static reef_status read_plan(const cli_call *cli, plan *p, reef_error *err) {
    uint64_t side = 1024, d_model = 256, heads = 8, topk = 16, d_key = 128, tokens = 2048;
    *p = (plan){.repeat = 5, .rounds = 1, .rival = cli_text(cli, "rival")};
    const struct {
        const char *name;
        uint64_t high, *value;
    } numbers[] = {
        {"side", SIDE_MAX, &side},
        {"d-model", REEF_WIDTH_MAX, &d_model},
        {"heads", REEF_HEAD_COUNT_MAX, &heads},
        {"topk", TOPK_MAX, &topk},
        {"d-key", REEF_WIDTH_MAX, &d_key},
        {"tokens", TOKENS_MAX, &tokens},
        {"repeat", REPEAT_MAX, &p->repeat},
        {"rounds", ROUNDS_MAX, &p->rounds},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        reef_status status =
            cli_integer(cli, numbers[i].name, 1, numbers[i].high, numbers[i].value, err);
        if (status != REEF_OK) return status;
    }
    p->shape = (reef_router_shape){.d_model = d_model,
                                   .head_count = heads,
                                   .topk = topk,
                                   .d_key = d_key,
                                   .side = side,
                                   .batch_norm = true};
    p->tokens = tokens;
    p->piece_tokens = piece_of(p->tokens);
    if (p->rival && access(p->rival, R_OK) != 0)
        return reef_fail(err, REEF_NOT_FOUND, "cannot read %.160s", p->rival);
    reef_status status = reef_router_shape_check(&p->shape, err);
    return status == REEF_OK ? check_memory(p, err) : status;
}

reef_status cmd_bench_peer(cli_call *cli, reef_error *err) {
    plan p;
    findings f = {0};
    reef_status status = read_plan(cli, &p, err);
    if (status == REEF_OK) status = measure(&p, cli->threads, &f, err);
    if (status == REEF_OK && cli->json)
        status = cli_answer(cli, findings_json(&p, &f), err);
    else if (status == REEF_OK)
        print_findings(&p, &f);
    release(&f);
    return status;
}
