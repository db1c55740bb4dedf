// The findings of `reef bench peer` for people; see bench_peer.h.
#include "bench_peer.h"
#include "cli_format.h"
#include "cli_table.h"

static const char *const STAGE_NAMES[PEER_STAGE_COUNT] = {
#define STAGE_NAME(field, text) text,
    PEER_STAGE_LIST(STAGE_NAME)
#undef STAGE_NAME
};

static const char *const PASS_NAMES[PASS_COUNT] = {"retrieval", "forward", "forward and backward",
                                                   "training step"};

static void print_passes(const reef_peer_plan *plan, const reef_peer_findings *f) {
    char words[CLI_WORD_BYTES];
    static const char *const HEADING[] = {"tokens/s", "1 thread", "all threads", "speed-up"};
    reef_cli_table *table = reef_cli_table_new("<>>>", HEADING);
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        reef_cli_table_cell(table, "%s", PASS_NAMES[pass]);
        // Two columns: one thread and all of them; the runs between stand in the JSON.
        for (size_t r = 0; r < PEER_RUNS_MAX; r++) {
            const reef_peer_run *run = r == 0 ? &f->runs[0] : reef_peer_run_all(f);
            double rate = reef_peer_tokens_per_s(plan, run->median.pass[pass]);
            reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)rate, words));
        }
        // The speed-up is the ratio of the two columns to its left.
        reef_cli_table_cell(table, "%.2f", reef_peer_speedup(f, pass));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_stages(const reef_peer_plan *plan, const reef_peer_findings *f) {
    static const char *const HEADING[] = {"microseconds per token", "forward, 1 thread", "all",
                                          "step, 1 thread", "all"};
    const reef_peer_sample *one = &f->runs[0].median, *all = &reef_peer_run_all(f)->median;
    reef_cli_table *table = reef_cli_table_new("<>>>>", HEADING);
    for (size_t i = 0; i < PEER_STAGE_COUNT; i++) {
        reef_cli_table_cell(table, "%s", STAGE_NAMES[i]);
        const double seconds[] = {one->forward_stage[i], all->forward_stage[i], one->step_stage[i],
                                  all->step_stage[i]};
        // A stage without time does not exist in this pass, for example the gradient in a forward
        // pass.
        for (size_t c = 0; c < sizeof(seconds) / sizeof(seconds[0]); c++)
            if (seconds[c] > 0)
                reef_cli_table_cell(table, "%.2f", reef_peer_microseconds(plan, seconds[c]));
            else
                reef_cli_table_cell(table, "-");
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_limit(reef_cli_table *table, const char *name, double one, double all) {
    reef_cli_table_cell(table, "%s", name);
    reef_cli_table_cell(table, "%.1f", one);
    reef_cli_table_cell(table, "%.1f", all);
}

static void print_limits(const reef_peer_plan *plan, const reef_peer_findings *f) {
    const reef_peer_sample *one = &f->runs[0].median, *all = &reef_peer_run_all(f)->median;
    static const char *const HEADING[] = {"what the machine does", "1 thread", "all threads"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    // First what was measured of the machine, then what follows from it for the layer.
    reef_bench_rates_rows(table, &one->rates, &all->rates);
    print_limit(table, "composite limit of forward, thousand tokens/s",
                1e-3 * reef_peer_tokens_per_s(plan, one->limit),
                1e-3 * reef_peer_tokens_per_s(plan, all->limit));
    print_limit(table, "share of it that forward reaches, %", 100 * one->limit_share,
                100 * all->limit_share);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_baseline(const reef_peer_plan *plan, const reef_peer_findings *f) {
    const reef_peer_layer *layer = &f->layer;
    // The error is printed even when some rounds were measured, as the medians are then of fewer.
    if (layer->baseline_error.status != REEF_OK)
        printf("\nbaseline  not measured%s: %s\n", layer->baseline_count > 0 ? " to the end" : "",
               layer->baseline_error.message);
    if (layer->baseline_count == 0) return;
    char words[CLI_WORD_BYTES];
    static const char *const HEADING[] = {"baseline", "tokens/s", "reef / baseline"};
    // The names of the baseline's rows and ours differ; this table pairs the same work.
    static const int PASS_OF[BASELINE_ROW_COUNT] = {PASS_RETRIEVE, PASS_FORWARD, PASS_BACKWARD,
                                                    PASS_STEP};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (reef_bench_baseline_row row = 0; row < BASELINE_ROW_COUNT; row++) {
        reef_cli_table_cell(table, "%s", PASS_NAMES[PASS_OF[row]]);
        double rate = layer->baseline_median.tokens_per_s[row];
        reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)rate, words));
        if (row == BASELINE_BACKWARD)
            reef_cli_table_cell(table, "-"); // theirs has the gradients of experts in it
        else
            reef_cli_table_cell(table, "%.1f",
                                reef_peer_baseline_ratio(plan, f, (size_t)PASS_OF[row], row));
    }
    putchar('\n');
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_layer(const reef_peer_plan *plan, const reef_peer_findings *f) {
    char touched[CLI_WORD_BYTES], huge[CLI_WORD_BYTES];
    printf("pass      %zu tokens choose %s experts; %s on huge pages\n\n", plan->tokens,
           reef_cli_count(f->layer.touched, touched),
           reef_cli_bytes((uint64_t)f->layer.huge_bytes, huge));
    print_passes(plan, f);
    putchar('\n');
    print_stages(plan, f);
    putchar('\n');
    print_limits(plan, f);
    if (plan->baseline != NULL) print_baseline(plan, f);
}

// A sealed generation by itself; the loss is the pool's.
static void print_sealed_stages(const reef_peer_plan *plan, const reef_peer_sealed *sealed) {
    static const char *const HEADING[] = {"one sealed generation, us per token", "f32", "bf16"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < PEER_STAGE_COUNT; i++) {
        double f32 = sealed->sealed_stage[POOL_SEALED][i],
               bf16 = sealed->sealed_stage[POOL_BF16][i];
        if (i == PEER_STAGE_loss || f32 <= 0) continue; // not part of it
        reef_cli_table_cell(table, "%s", STAGE_NAMES[i]);
        reef_cli_table_cell(table, "%.2f", reef_peer_microseconds(plan, f32));
        reef_cli_table_cell(table, "%.2f", reef_peer_microseconds(plan, bf16));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_sealed(const reef_peer_plan *plan, const reef_peer_sealed *sealed) {
    char all[CLI_WORD_BYTES], one[CLI_WORD_BYTES];
    // The reason is printed instead of the figures.
    if (sealed->missing.status != REEF_OK) {
        printf("\nsealing   not measured: %s\n", sealed->missing.message);
        return;
    }
    printf("\n"
           "sealing   %d generations of %zu x %zu experts, "
           "all on every token; a training step takes\n"
           "          %.1f us a token when all are open (moments of %s), and\n"
           "          %.1f us when one is and the others "
           "are sealed (moments of %s): %.2f times as fast;\n"
           "          %.1f us when the sealed rows are in bf16: %.2f times as fast\n"
           "\n",
           PEER_GENERATION_COUNT, sealed->side, sealed->side,
           reef_peer_microseconds(plan, sealed->seconds[POOL_OPEN]),
           reef_cli_bytes((uint64_t)sealed->moment_bytes[POOL_OPEN], all),
           reef_peer_microseconds(plan, sealed->seconds[POOL_SEALED]),
           reef_cli_bytes((uint64_t)sealed->moment_bytes[POOL_SEALED], one),
           reef_peer_sealed_ratio(sealed, POOL_SEALED),
           reef_peer_microseconds(plan, sealed->seconds[POOL_BF16]),
           reef_peer_sealed_ratio(sealed, POOL_BF16));
    print_sealed_stages(plan, sealed);
}

static void print_rounded(const reef_peer_plan *plan,
                          const char *name,
                          const reef_peer_rounded *b) {
    char f32[CLI_WORD_BYTES], bytes[CLI_WORD_BYTES], cache[CLI_WORD_BYTES], rate[CLI_WORD_BYTES];
    printf("\n"
           "%-9s forward %s tokens/s with rows in %s (%s; "
           "f32 %s; last cache %s): %.2f times as fast\n"
           "          as with f32, its experts alone %.2f times; "
           "outputs differ by at most %.2g of their length\n",
           name, reef_cli_count((uint64_t)reef_peer_tokens_per_s(plan, b->seconds), rate), name,
           reef_cli_bytes((uint64_t)b->bytes, bytes), reef_cli_bytes((uint64_t)b->f32_bytes, f32),
           reef_cli_bytes((uint64_t)reef_bench_cache_bytes(), cache), b->f32_seconds / b->seconds,
           b->f32_experts_seconds / b->experts_seconds, b->difference);
}

static void print_retrieval(const reef_peer_plan *plan, const reef_peer_retrieval *r) {
    const char *first = r->first_pass ? "with a first pass in bytes" : "without a first pass here";
    printf(
        "\n"
        "retrieval %.2f us a token %s, %.2f with all sub-keys scored: %.2f times as fast\n"
        "          (products alone: query network %.2f, all scores %.2f); ids and weights are %s\n",
        reef_peer_microseconds(plan, r->seconds), first,
        reef_peer_microseconds(plan, r->all_scores_seconds), reef_peer_retrieval_ratio(r),
        reef_peer_microseconds(plan, r->query_seconds),
        reef_peer_microseconds(plan, r->scores_seconds),
        r->same ? "the same to the bit" : "NOT the same");
}

static void print_avx2(const reef_peer_plan *plan, const reef_peer_findings *f) {
    const reef_peer_avx2 *avx2 = &f->avx2;
    const reef_peer_sample *all = &reef_peer_run_all(f)->median;
    char forward[CLI_WORD_BYTES], step[CLI_WORD_BYTES];
    // The same for the kernels: the reason instead of the figures.
    if (avx2->missing.status != REEF_OK) {
        printf("\navx2      not measured: %s\n", avx2->missing.message);
        return;
    }
    printf("\n"
           "avx2      forward %s tokens/s, training step %s, "
           "with OpenBLAS for %s: avx512 is %.2f and %.2f\n"
           "          times as fast\n",
           reef_cli_count((uint64_t)avx2->forward_tokens_per_s, forward),
           reef_cli_count((uint64_t)avx2->step_tokens_per_s, step), avx2->blas,
           reef_peer_tokens_per_s(plan, all->pass[PASS_FORWARD]) / avx2->forward_tokens_per_s,
           reef_peer_tokens_per_s(plan, all->pass[PASS_STEP]) / avx2->step_tokens_per_s);
}

void reef_peer_print(const reef_peer_plan *plan, const reef_peer_findings *findings) {
    const reef_router_shape *shape = &plan->shape;
    char experts[CLI_WORD_BYTES];
    printf("layer     %s experts of width %zu, %zu heads of %zu, d_key %zu\n",
           reef_cli_count((uint64_t)shape->side * shape->side, experts), shape->d_model,
           shape->head_count, shape->topk, shape->d_key);
    printf("machine   %s kernels, OpenBLAS for %s, %zu threads, load %.1f before\n",
           reef_kernels_name(), reef_gemm_name(), plan->threads, findings->load);
    // Only what was asked for: each part is a section of its own.
    if (plan->parts & PEER_LAYER) print_layer(plan, findings);
    if (plan->parts & PEER_RETRIEVAL) print_retrieval(plan, &findings->retrieval);
    if (plan->parts & PEER_SEALED) print_sealed(plan, &findings->sealed);
    if (plan->parts & PEER_BF16) print_rounded(plan, "bf16", &findings->bf16);
    if (plan->parts & PEER_INT8) print_rounded(plan, "int8", &findings->int8);
    if (plan->parts & PEER_AVX2) print_avx2(plan, findings);
}
