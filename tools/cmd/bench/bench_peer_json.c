// The findings of `reef bench peer` for programs; see bench_peer.h.
#include "bench_peer.h"

static const char *const STAGE_KEYS[PEER_STAGE_COUNT] = {
#define STAGE_KEY(field, text) #field,
    PEER_STAGE_LIST(STAGE_KEY)
#undef STAGE_KEY
};

static json_t *stages_json(const reef_peer_plan *plan, const double stages[PEER_STAGE_COUNT]) {
    json_t *object = json_object();
    for (size_t i = 0; i < PEER_STAGE_COUNT; i++)
        if (stages[i] > 0)
            json_object_set_new(object, STAGE_KEYS[i],
                                reef_cli_real(reef_peer_microseconds(plan, stages[i])));
    return object;
}

static json_t *limits_json(const reef_peer_plan *plan, const reef_peer_sample *s) {
    json_t *limits = reef_bench_rates_json(&s->rates);
    json_object_set_new(limits, "forward_tokens_per_s",
                        reef_cli_real(reef_peer_tokens_per_s(plan, s->limit)));
    return limits;
}

static json_t *run_json(const reef_peer_plan *plan, const reef_peer_run *run) {
    // The medians over all rounds; the single samples are not part of the answer.
    const reef_peer_sample *m = &run->median;
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "threads", (json_int_t)run->threads,
        "retrieval_tokens_per_s",
        reef_cli_real(reef_peer_tokens_per_s(plan, m->pass[PASS_RETRIEVE])), "forward_tokens_per_s",
        reef_cli_real(reef_peer_tokens_per_s(plan, m->pass[PASS_FORWARD])),
        "forward_backward_tokens_per_s",
        reef_cli_real(reef_peer_tokens_per_s(plan, m->pass[PASS_BACKWARD])), "step_tokens_per_s",
        reef_cli_real(reef_peer_tokens_per_s(plan, m->pass[PASS_STEP])), "forward_us_per_token",
        stages_json(plan, m->forward_stage), "step_us_per_token", stages_json(plan, m->step_stage),
        "limits", limits_json(plan, m), "forward_limit_share", reef_cli_real(m->limit_share));
}

static json_t *baseline_json(const reef_peer_plan *plan, const reef_peer_layer *layer) {
    // No baseline was asked for, or the part it belongs to was not run.
    if (plan->baseline == NULL || !(plan->parts & PEER_LAYER)) return json_null();
    json_t *baseline = json_pack("{s:o, s:I}", "script", reef_cli_path(plan->baseline), "rounds",
                                 (json_int_t)layer->baseline_count);
    // The error stands beside the script's name, to distinguish a missing baseline from a slow one.
    if (layer->baseline_error.status != REEF_OK)
        json_object_set_new(baseline, "error", reef_cli_path(layer->baseline_error.message));
    static const char *const KEYS[BASELINE_ROW_COUNT] = {
        "retrieval_tokens_per_s", "forward_tokens_per_s", "forward_backward_tokens_per_s",
        "step_tokens_per_s"};
    // No figure is better than a figure of zero.
    for (size_t row = 0; layer->baseline_count > 0 && row < BASELINE_ROW_COUNT; row++)
        json_object_set_new(baseline, KEYS[row],
                            reef_cli_real(layer->baseline_median.tokens_per_s[row]));
    return baseline;
}

static void add_layer(json_t *document, const reef_peer_plan *plan, const reef_peer_findings *f) {
    const reef_peer_sample *all = &reef_peer_run_all(f)->median;
    const reef_peer_layer *layer = &f->layer;
    json_t *runs = json_array();
    // One entry for each number of threads.
    for (size_t r = 0; r < f->run_count; r++)
        json_array_append_new(runs, run_json(plan, &f->runs[r]));
    json_t *figures = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "experts_touched", (json_int_t)layer->touched,
        "huge_page_bytes", reef_cli_real(layer->huge_bytes), "loss_before",
        reef_cli_real(layer->loss_before), "loss_after", reef_cli_real(layer->loss_after), "limits",
        limits_json(plan, all), "by_threads", runs, "rival", baseline_json(plan, layer));
    // The figures are put beside the shape in the same object, so that readers need one level only.
    json_object_update(document, figures);
    json_decref(figures);
}

// The parts of one sealed generation's step; the loss is the pool's.
static json_t *sealed_stages_json(const reef_peer_plan *plan,
                                  const double stages[PEER_STAGE_COUNT]) {
    json_t *object = stages_json(plan, stages);
    json_object_del(object, STAGE_KEYS[PEER_STAGE_loss]);
    return object;
}

static json_t *sealed_json(const reef_peer_plan *plan, const reef_peer_sealed *sealed) {
    // When the part could not be measured, the reason stands where its figures would be.
    if (sealed->missing.status != REEF_OK)
        return json_pack("{s:I, s:s}", "side", (json_int_t)sealed->side, "missing",
                         sealed->missing.message);
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "generations",
                     (json_int_t)PEER_GENERATION_COUNT, "side", (json_int_t)sealed->side,
                     "all_open_s", reef_cli_real(sealed->seconds[POOL_OPEN]), "one_open_s",
                     reef_cli_real(sealed->seconds[POOL_SEALED]), "one_open_bf16_s",
                     reef_cli_real(sealed->seconds[POOL_BF16]), "all_open_moment_bytes",
                     reef_cli_real(sealed->moment_bytes[POOL_OPEN]), "one_open_moment_bytes",
                     reef_cli_real(sealed->moment_bytes[POOL_SEALED]), "sealed_us_per_token",
                     sealed_stages_json(plan, sealed->sealed_stage[POOL_SEALED]),
                     "sealed_bf16_us_per_token",
                     sealed_stages_json(plan, sealed->sealed_stage[POOL_BF16]));
}

static json_t *rounded_json(const reef_peer_plan *plan,
                            const char *rate,
                            const char *bytes,
                            const reef_peer_rounded *b) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "f32_tokens_per_s",
                     reef_cli_real(reef_peer_tokens_per_s(plan, b->f32_seconds)), rate,
                     reef_cli_real(reef_peer_tokens_per_s(plan, b->seconds)), "f32_bytes",
                     reef_cli_real(b->f32_bytes), bytes, reef_cli_real(b->bytes),
                     "largest_difference", reef_cli_real(b->difference));
}

static json_t *retrieval_json(const reef_peer_plan *plan, const reef_peer_retrieval *r) {
    return json_pack(
        "{s:b, s:b, s:o, s:o, s:o, s:o}", "first_pass", r->first_pass, "same_bits", r->same,
        "us_per_token", reef_cli_real(reef_peer_microseconds(plan, r->seconds)),
        "all_scores_us_per_token",
        reef_cli_real(reef_peer_microseconds(plan, r->all_scores_seconds)),
        "query_product_us_per_token", reef_cli_real(reef_peer_microseconds(plan, r->query_seconds)),
        "scores_product_us_per_token",
        reef_cli_real(reef_peer_microseconds(plan, r->scores_seconds)));
}

static json_t *avx2_json(const reef_peer_avx2 *avx2) {
    if (avx2->missing.status != REEF_OK)
        return json_pack("{s:s}", "missing", avx2->missing.message);
    return json_pack("{s:o, s:o, s:s}", "forward_tokens_per_s",
                     reef_cli_real(avx2->forward_tokens_per_s), "step_tokens_per_s",
                     reef_cli_real(avx2->step_tokens_per_s), "blas", avx2->blas);
}

// A quotient of what was not measured is not a number, and null in the answer.
static json_t *ratios_json(const reef_peer_plan *plan, const reef_peer_findings *f) {
    // Ratios are of the run with all threads, which is what a user would run.
    const reef_peer_sample *all = &reef_peer_run_all(f)->median;
    double forward = reef_peer_tokens_per_s(plan, all->pass[PASS_FORWARD]);
    double step = reef_peer_tokens_per_s(plan, all->pass[PASS_STEP]);
    // The names with "rival" and "avx2" are null if that side was not measured: NaN becomes null in
    // reef_cli_real.
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "forward_tokens_per_s", reef_cli_real(forward), "step_tokens_per_s", reef_cli_real(step),
        "forward_limit_share", reef_cli_real(all->limit_share), "thread_speedup",
        reef_cli_real(reef_peer_speedup(f, PASS_STEP)), "forward_thread_speedup",
        reef_cli_real(reef_peer_speedup(f, PASS_FORWARD)), "sealed90_step_ratio",
        reef_cli_real(reef_peer_sealed_ratio(&f->sealed, POOL_SEALED)), "sealed90_bf16_step_ratio",
        reef_cli_real(reef_peer_sealed_ratio(&f->sealed, POOL_BF16)), "bf16_forward_ratio",
        reef_cli_real(f->bf16.f32_seconds / f->bf16.seconds), "bf16_experts_ratio",
        reef_cli_real(f->bf16.f32_experts_seconds / f->bf16.experts_seconds), "int8_forward_ratio",
        reef_cli_real(f->int8.f32_seconds / f->int8.seconds), "int8_experts_ratio",
        reef_cli_real(f->int8.f32_experts_seconds / f->int8.experts_seconds),
        "first_pass_retrieval_ratio", reef_cli_real(reef_peer_retrieval_ratio(&f->retrieval)),
        "rival_forward_ratio",
        reef_cli_real(reef_peer_baseline_ratio(plan, f, PASS_FORWARD, BASELINE_FORWARD)),
        "rival_step_ratio",
        reef_cli_real(reef_peer_baseline_ratio(plan, f, PASS_STEP, BASELINE_STEP)),
        "avx2_forward_ratio", reef_cli_real(forward / f->avx2.forward_tokens_per_s),
        "avx2_step_ratio", reef_cli_real(step / f->avx2.step_tokens_per_s));
}

json_t *reef_peer_json(const reef_peer_plan *plan, const reef_peer_findings *findings) {
    // The shape and the machine come first: figures of another shape or kernel must not be
    // compared.
    const reef_router_shape *shape = &plan->shape;
    json_t *document =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o}", "side",
                  (json_int_t)shape->side, "d_model", (json_int_t)shape->d_model, "heads",
                  (json_int_t)shape->head_count, "topk", (json_int_t)shape->topk, "d_key",
                  (json_int_t)shape->d_key, "tokens", (json_int_t)plan->tokens, "repeat",
                  (json_int_t)plan->repeat, "rounds", (json_int_t)plan->rounds, "threads",
                  (json_int_t)plan->threads, "kernels", reef_kernels_name(), "blas",
                  reef_gemm_name(), "load_before", reef_cli_real(findings->load));
    json_t *ratios = ratios_json(plan, findings);
    json_object_update(document, ratios);
    json_decref(ratios);
    // Parts that were left out have no member at all, rather than a null one.
    if (plan->parts & PEER_LAYER) add_layer(document, plan, findings);
    if (plan->parts & PEER_RETRIEVAL)
        json_object_set_new(document, "retrieval", retrieval_json(plan, &findings->retrieval));
    if (plan->parts & PEER_SEALED)
        json_object_set_new(document, "sealed90", sealed_json(plan, &findings->sealed));
    if (plan->parts & PEER_BF16)
        json_object_set_new(document, "bf16",
                            rounded_json(plan, "bf16_tokens_per_s", "bf16_bytes", &findings->bf16));
    if (plan->parts & PEER_INT8)
        json_object_set_new(document, "int8",
                            rounded_json(plan, "int8_tokens_per_s", "int8_bytes", &findings->int8));
    if (plan->parts & PEER_AVX2) json_object_set_new(document, "avx2", avx2_json(&findings->avx2));
    return document;
}
