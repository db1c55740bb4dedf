// reef bench scale: the time of a token as the pool of one PEER layer grows to millions of experts.
#include "bench_scale.h"
#include "commands.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SIDE_FIRST 128

static const reef_cli_option OPTIONS[] = {
    {"sides", "LIST", "sub-keys per side with commas between, such as 128,512,2048"},
    {"side-max", "N", "instead: 128, 256, ... up to N (default: 4096)"},
    {"d-model", "N", "width of a token in the first series (default: 256)"},
    {"heads", "N", "heads (default: 8)"},
    {"topk", "N", "experts per head (default: 16)"},
    {"d-key", "N", "width of a query (default: 128)"},
    {"tokens", "N", "tokens of one pass (default: 2048)"},
    {"repeat", "N", "repetitions of each size; the median counts (default: 5)"},
    {"no-narrow", NULL, "leave out the second series"},
    {"no-exhaustive", NULL, "leave out the searches through all experts"},
    {0},
};

const reef_cli_manual reef_bench_scale_manual = {
    .about = "Measures the forward pass of one PEER layer with "
             "random weights at growing numbers of experts:\n"
             "tokens a second, and microseconds per token of "
             "retrieval and of the experts. Rows are in f32\n"
             "while they take at most 60 % of the memory that is free (or of "
             "--memory), then in bf16; what does\n"
             "not fit is written to a temporary pool below TMPDIR "
             "and read in place by a process that may hold\n"
             "--memory, or else a quarter of the rows; "
             "when the disk has no room for more than twice the rows,\n"
             "the point is left out and reported. "
             "A second series has tokens of width 64 and rows in bf16,\n"
             "at the three largest sides, which lie in memory together and take turns.\n"
             "\n"
             "Beside it a search through all experts, "
             "which product keys make needless: once every expert's\n"
             "score is the sum of those of its sub-keys (up to side 2048), "
             "once it is the product with a key of\n"
             "its own (up to side 512). The former must choose exactly what product keys choose.",
    .options = OPTIONS,
    .example = "reef bench scale\n"
               "reef bench scale --sides 16,64 --d-model 32 --tokens 128 --repeat 3\n"
               "reef bench scale --sides 256,1024 --no-exhaustive --json\n"
               "reef bench scale --side-max 1024 --d-model 128 --repeat 9",
};

// ---- options ------------------------------------------------------------------------------------

// Whole numbers that rise, with commas between them.
static reef_status read_list(const char *text, reef_scale_plan *plan, reef_error *err) {
    const char *at = text;
    for (;;) {
        char *end = NULL;
        // strtoul would accept signs and spaces, so the first character must be a digit.
        unsigned long side = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        size_t before = plan->side_count > 0 ? plan->sides[plan->side_count - 1] : 0;
        if (end == NULL || (*end != ',' && *end != '\0') || side == 0 || side > BENCH_SIDE_MAX)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--sides is '%.64s'; choose numbers from 1 to %d with commas between",
                             text, BENCH_SIDE_MAX);
        // The series grows, so that a machine with too little memory has done all it can before it
        // stops.
        if (side <= before)
            return reef_fail(err, REEF_ERR_INVALID, "--sides is '%.64s', and %lu does not rise",
                             text, side);
        if (plan->side_count == SCALE_SIDES_MAX)
            return reef_fail(err, REEF_ERR_INVALID, "--sides has more than %d numbers",
                             SCALE_SIDES_MAX);
        plan->sides[plan->side_count++] = side;
        if (*end == '\0') return REEF_OK;
        // After the comma.
        at = end + 1;
    }
}

static reef_status read_sides(const reef_cli_call *cli, reef_scale_plan *plan, reef_error *err) {
    const char *list = reef_cli_text(cli, "sides");
    uint64_t last = 4096;
    if (list != NULL && reef_cli_text(cli, "side-max") != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--sides and --side-max exclude each other");
    if (list != NULL) return read_list(list, plan, err);
    reef_status status = reef_cli_integer(cli, "side-max", 1, BENCH_SIDE_MAX, &last, err);
    if (status != REEF_OK) return status;
    for (size_t side = SIDE_FIRST; side <= last; side *= 2) plan->sides[plan->side_count++] = side;
    if (plan->side_count == 0) plan->sides[plan->side_count++] = (size_t)last;
    return REEF_OK;
}

static reef_status read_plan(const reef_cli_call *cli, reef_scale_plan *plan, reef_error *err) {
    *plan = (reef_scale_plan){
        .shape = {.d_model = 256, .head_count = 8, .topk = 16, .d_key = 128, .batch_norm = true},
        .tokens = 2048,
        .repeat = 5,
        .narrow = reef_cli_text(cli, "no-narrow") == NULL,
        .exhaustive = reef_cli_text(cli, "no-exhaustive") == NULL};
    reef_status status = reef_bench_shape_read(cli, &plan->shape, &plan->tokens, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "repeat", 1, BENCH_REPEAT_MAX, &plan->repeat, err);
    // A limit of memory makes the larger points run from disk.
    plan->memory_bytes = cli->memory_bytes;
    if (status == REEF_OK) status = read_sides(cli, plan, err);
    if (status != REEF_OK) return status;
    plan->piece_tokens = reef_bench_piece_tokens(plan->tokens);
    plan->shape.side = plan->sides[0]; // the smallest is the one that may have too few experts
    // One check for the whole series: only the smallest side can be too small.
    return reef_router_shape_check(&plan->shape, err);
}

// ---- answers ------------------------------------------------------------------------------------

static json_t *point_json(const reef_scale_point *p) {
    // What every point has, in memory or on disk.
    // "us_query_product" is null for pools on disk, where the products are not measured.
    json_t *document = json_pack(
        "{s:I, s:I, s:I, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "side",
        (json_int_t)p->side, "experts", (json_int_t)p->side * (json_int_t)p->side, "d_model",
        (json_int_t)p->d_model, "dtype", reef_scale_dtype_name(p->dtype), "residency",
        p->mapped ? "mapped" : "resident", "first_pass", p->first_pass, "us_per_token",
        reef_cli_real(p->us), "us_retrieval", reef_cli_real(p->us_retrieval), "us_query_product",
        reef_cli_real(p->mapped ? NAN : p->us_query), "us_score_product",
        reef_cli_real(p->mapped ? NAN : p->us_scores), "us_experts", reef_cli_real(p->us_experts),
        "tokens_per_s", reef_cli_real(p->tokens_per_s), "resident_bytes",
        reef_cli_real(p->mapped ? p->peak_bytes : p->wanted_bytes), "huge_page_bytes",
        reef_cli_real(p->huge_bytes));
    // The members below exist for points on disk only.
    if (!p->mapped) return document;
    json_object_set_new(document, "row_bytes", reef_cli_real(p->wanted_bytes));
    json_object_set_new(document, "limit_bytes", reef_cli_real(p->limit_bytes));
    json_object_set_new(document, "drops", json_integer((json_int_t)p->drops));
    json_object_set_new(document, "us_per_token_cold", reef_cli_real(p->us_cold));
    json_object_set_new(document, "write_seconds", reef_cli_real(p->write_seconds));
    return document;
}

static json_t *missing_json(const reef_scale_point *p) {
    return json_pack("{s:I, s:I, s:s, s:o, s:o, s:o}", "side", (json_int_t)p->side, "d_model",
                     (json_int_t)p->d_model, "dtype", reef_scale_dtype_name(p->dtype),
                     "wanted_bytes", reef_cli_real(p->wanted_bytes), "available_bytes",
                     reef_cli_real(p->available_bytes), "disk_free_bytes",
                     reef_cli_real(p->free_bytes));
}

static json_t *search_json(const reef_scale_search *s) {
    return json_pack("{s:I, s:I, s:s, s:I, s:o, s:o, s:o}", "side", (json_int_t)s->side, "experts",
                     (json_int_t)s->side * (json_int_t)s->side, "scores", s->keys ? "keys" : "sums",
                     "tokens", (json_int_t)s->tokens, "us_per_token", reef_cli_real(s->us),
                     "us_per_token_product_keys", reef_cli_real(s->us_product_keys), "same_choice",
                     reef_cli_real(s->agreement));
}

static json_t *findings_json(const reef_scale_plan *plan, const reef_scale_findings *f) {
    json_t *points = json_array(), *missing = json_array(), *searches = json_array();
    for (size_t i = 0; i < f->point_count; i++) {
        const reef_scale_point *p = &f->points[i];
        // What did not fit is listed apart, so that no reader takes its zeros for figures.
        if (p->measured)
            json_array_append_new(points, point_json(p));
        else
            json_array_append_new(missing, missing_json(p));
    }
    for (size_t i = 0; i < f->search_count; i++)
        json_array_append_new(searches, search_json(&f->searches[i]));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "heads",
        (json_int_t)plan->shape.head_count, "topk", (json_int_t)plan->shape.topk, "d_key",
        (json_int_t)plan->shape.d_key, "tokens", (json_int_t)plan->tokens, "repeat",
        (json_int_t)plan->repeat, "threads", (json_int_t)f->threads, "kernels", reef_kernels_name(),
        "blas", reef_gemm_name(), "load_before", reef_cli_real(f->load), "limits",
        reef_bench_machine_json(&f->machine), "points", points, "does_not_fit", missing,
        "exhaustive", searches, "scale_ratio", reef_cli_real(reef_scale_ratio(f)));
}

reef_status reef_cmd_bench_scale(reef_cli_call *cli, reef_error *err) {
    reef_scale_plan plan;
    reef_scale_findings *f = reef_cli_alloc(1, sizeof(*f));
    reef_thread_pool *workers = NULL;
    reef_status status = read_plan(cli, &plan, err);
    // All threads of the machine without the option.
    if (status == REEF_OK) status = reef_thread_pool_new(&workers, cli->threads, err);
    if (status == REEF_OK) status = reef_scale_measure(&plan, workers, f, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, findings_json(&plan, f), err);
    else if (status == REEF_OK)
        reef_scale_print(&plan, f);
    reef_thread_pool_free(workers);
    // The findings are too large for the stack, as they hold all points.
    free(f);
    return status;
}
