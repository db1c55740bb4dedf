// The findings of `reef bench scale` for people: tables, and a picture of bars; see bench_scale.h.
#include "bench_scale.h"
#include "cli_format.h"
#include "cli_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define BAR_CELLS 48

const char *reef_scale_dtype_name(reef_dtype dtype) {
    return dtype == REEF_BF16 ? "bf16" : "f32";
}

static void print_points(const reef_scale_findings *f) {
    static const char *const HEADING[] = {
        "side",     "experts",   "width", "rows",   "bytes",  "on huge pages", "tokens/s",
        "us/token", "retrieval", "query", "scores", "choice", "experts"};
    char experts[CLI_WORD_BYTES], bytes[CLI_WORD_BYTES], rate[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new(">>><>>>>>>>>>", HEADING);
    for (size_t i = 0; i < f->point_count; i++) {
        const reef_scale_point *p = &f->points[i];
        // What was not measured is listed below the table, with the reason.
        if (!p->measured) continue;
        reef_cli_table_cell(table, "%zu", p->side);
        reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)p->side * p->side, experts));
        reef_cli_table_cell(table, "%zu", p->d_model);
        reef_cli_table_cell(table, "%s%s", reef_scale_dtype_name(p->dtype),
                            p->mapped ? ", disk" : "");
        reef_cli_table_cell(table, "%s", reef_cli_bytes((uint64_t)p->wanted_bytes, bytes));
        reef_cli_table_cell(table, "%s", reef_cli_bytes((uint64_t)p->huge_bytes, bytes));
        reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)p->tokens_per_s, rate));
        // Choosing has no clock of its own: it is what retrieval takes beyond its two products, of
        // which a first pass does not compute the second.
        const double times[] = {p->us,
                                p->us_retrieval,
                                p->us_query,
                                p->us_scores,
                                p->us_retrieval - p->us_query - p->us_scores,
                                p->us_experts};
        // On disk the products are not measured by themselves, and three columns stay empty.
        bool products = p->us_scores > 0;
        for (size_t t = 0; t < sizeof(times) / sizeof(times[0]); t++) {
            bool known = t < 2 || t == 5 || (products && (t != 4 || !p->first_pass));
            reef_cli_table_cell(table, known ? "%.1f" : "-", times[t]);
        }
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_mapped(const reef_scale_findings *f) {
    char limit[CLI_WORD_BYTES], peak[CLI_WORD_BYTES];
    for (size_t i = 0; i < f->point_count; i++) {
        const reef_scale_point *p = &f->points[i];
        // Only pools on disk have a cold and a warm figure.
        if (!p->measured || !p->mapped) continue;
        printf("%zu x %zu on disk: %.0f tokens/s with nothing in the system's cache, then %.0f; a "
               "process that may\n"
               "hold %s held %s at most and dropped all rows %" PRIu64 " times (written in %.0f "
               "s)\n",
               p->side, p->side, 1e6 / p->us_cold, p->tokens_per_s,
               reef_cli_bytes((uint64_t)p->limit_bytes, limit),
               reef_cli_bytes((uint64_t)p->peak_bytes, peak), p->drops, p->write_seconds);
    }
}

static void print_missing(const reef_scale_findings *f) {
    char need[CLI_WORD_BYTES], memory[CLI_WORD_BYTES], disk[CLI_WORD_BYTES];
    for (size_t i = 0; i < f->point_count; i++) {
        const reef_scale_point *p = &f->points[i];
        if (p->measured) continue;
        printf("skipped: %zu x %zu experts of width %zu take %s in %s; "
               "%s of memory is too little, and\n"
               "%s free on the disk as well (set TMPDIR to a larger one)\n",
               p->side, p->side, p->d_model, reef_cli_bytes((uint64_t)p->wanted_bytes, need),
               reef_scale_dtype_name(p->dtype),
               reef_cli_bytes((uint64_t)p->available_bytes, memory),
               reef_cli_bytes((uint64_t)p->free_bytes, disk));
    }
}

static void print_searches(const reef_scale_findings *f) {
    static const char *const HEADING[] = {"side",          "experts",      "exhaustive search",
                                          "us/token",      "product keys", "times",
                                          "same choice, %"};
    char experts[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new(">><>>>>", HEADING);
    for (size_t i = 0; i < f->search_count; i++) {
        const reef_scale_search *s = &f->searches[i];
        reef_cli_table_cell(table, "%zu", s->side);
        reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)s->side * s->side, experts));
        reef_cli_table_cell(table, "%s", s->keys ? "all keys" : "all sums of sub-key scores");
        // The cost per token, beside that of product keys at the same size.
        reef_cli_table_cell(table, "%.1f", s->us);
        reef_cli_table_cell(table, "%.1f", s->us_product_keys);
        reef_cli_table_cell(table, "%.1f", s->us / s->us_product_keys);
        // Product keys are exact, so this should be 100 up to equal scores.
        reef_cli_table_cell(table, "%.2f", 100 * s->agreement);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

/** One bar of the picture. */
typedef struct bar {
    size_t side;
    const char *name;
    double us;
} bar;

static void print_bar(const bar *b, double low, double high) {
    double share = high > low ? log(b->us / low) / log(high / low) : 1;
    int cells = 1 + (int)(share * (BAR_CELLS - 1) + 0.5);
    printf("%6zu  %-14s ", b->side, b->name);
    for (int c = 0; c < cells; c++) fputs("\xe2\x96\x88", stdout); // a full block
    printf(" %.1f\n", b->us);
}

// Retrieval at each side: product keys, and the searches through all experts.
static void print_picture(const reef_scale_plan *plan, const reef_scale_findings *f) {
    bar bars[3 * SCALE_SIDES_MAX];
    size_t count = 0;
    double low = INFINITY, high = 0;
    // One group of bars per side: product keys first, then what they replace.
    for (size_t i = 0; i < plan->side_count; i++) {
        const reef_scale_point *p = &f->points[i];
        if (p->measured) bars[count++] = (bar){p->side, "product keys", p->us_retrieval};
        for (size_t s = 0; s < f->search_count; s++)
            if (f->searches[s].side == p->side)
                bars[count++] = (bar){p->side, f->searches[s].keys ? "all keys" : "all sums",
                                      f->searches[s].us};
    }
    // The limits of the logarithmic scale.
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, bars[i].us);
        high = fmax(high, bars[i].us);
    }
    // Nothing fitted into memory, so there is nothing to draw.
    if (count == 0) return;
    printf("\nretrieval, microseconds per token, logarithmic from %.1f to %.1f\n", low, high);
    for (size_t i = 0; i < count; i++) print_bar(&bars[i], low, high);
}

void reef_scale_print(const reef_scale_plan *plan, const reef_scale_findings *findings) {
    const reef_router_shape *shape = &plan->shape;
    printf("layer     %zu heads of %zu, d_key %zu; forward passes of %zu tokens\n",
           shape->head_count, shape->topk, shape->d_key, plan->tokens);
    printf("machine   %s kernels, OpenBLAS for %s, %zu threads, load %.1f before\n\n",
           reef_kernels_name(), reef_gemm_name(), findings->threads, findings->load);
    print_points(findings);
    print_mapped(findings);
    print_missing(findings);
    // Searches are optional: they take longer than everything else together.
    if (findings->search_count > 0) {
        putchar('\n');
        print_searches(findings);
    }
    putchar('\n');
    reef_bench_machine_print(&findings->machine);
    print_picture(plan, findings);
    double ratio = reef_scale_ratio(findings);
    if (isfinite(ratio))
        printf("\n"
               "width %d in bf16: a token takes %.2f times as "
               "long with 4096 x 4096 experts as with 1024 x 1024\n",
               SCALE_NARROW_D_MODEL, ratio);
}
