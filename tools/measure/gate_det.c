// See gate_det.h. Margins are sorted once a text and gate; every other threshold is then a search.
#include "gate_det.h"
#include "cli_pool.h"
#include "cli_progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t tokens_of(const reef_gate_texts *texts, size_t j) {
    return texts->files[j].count / texts->token_bytes;
}

static const double TARGETS[GATE_TARGETS] = {NAN, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05};
#define DET_DECADES 4.0 // from 1 down to 1e-4 of the older texts

void reef_gate_texts_release(reef_gate_texts *texts) {
    for (size_t j = 0; j < texts->count; j++) {
        free(texts->names[j]);
        reef_cli_file_release(&texts->files[j]);
    }
    free(texts->names);
    free(texts->files);
    free(texts->learned);
    free(texts->at_once);
    free(texts->too_many);
    *texts = (reef_gate_texts){0};
}

void reef_gate_curve_release(reef_gate_curve *curve) {
    for (size_t i = 0; i < GATE_TARGETS; i++) free(curve->levels[i].fired);
    free(curve->fired);
    free(curve->first);
    *curve = (reef_gate_curve){0};
}

// ---- sorted margins -----------------------------------------------------------------------------

typedef struct sorted {
    size_t count;
    float *margins; // upwards
} sorted;

static int upwards(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double share_above(const sorted *s, double offset) {
    size_t low = 0, high = s->count; // margins before `low` are not above
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((double)s->margins[middle] > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return s->count ? (double)(s->count - low) / (double)s->count : 0;
}

// The smallest offset that at most `share` of the margins exceed.
static double offset_at(const sorted *s, double share) {
    size_t above = (size_t)((double)s->count * share);
    return (double)s->margins[above < s->count ? s->count - 1 - above : 0];
}

// Joins the texts of one side: those older than the generation, or its own.
static sorted pool(const reef_gate_texts *texts,
                   const sorted *each,
                   uint32_t generation,
                   bool older) {
    sorted all = {.margins = reef_cli_alloc(texts->tokens, sizeof(float))};
    for (size_t j = 0; j < texts->count; j++) {
        // A text without --learned belongs to neither side.
        bool wanted = texts->learned[j] != METRICS_UNKNOWN &&
                      (older ? texts->learned[j] < generation : texts->learned[j] == generation);
        if (!wanted) continue;
        memcpy(all.margins + all.count, each[j].margins, each[j].count * sizeof(float));
        all.count += each[j].count;
    }
    // Sorted once: every threshold is then a binary search.
    qsort(all.margins, all.count, sizeof(float), upwards);
    return all;
}

// ---- one gate -----------------------------------------------------------------------------------

static void measure_levels(reef_gate_curve *curve,
                           const reef_gate_texts *texts,
                           const sorted *each,
                           const sorted *older,
                           const sorted *own) {
    for (size_t i = 0; i < GATE_TARGETS; i++) {
        reef_gate_level *level = &curve->levels[i];
        // The first target is not a number: the gate's own threshold.
        level->target = TARGETS[i];
        level->offset = isnan(TARGETS[i]) ? 0 : offset_at(older, TARGETS[i]);
        level->leak = share_above(older, level->offset);
        level->fired = reef_cli_alloc(texts->count, sizeof(double));
        // Each text at this threshold, to see which one leaks.
        for (size_t j = 0; j < texts->count; j++)
            level->fired[j] = share_above(&each[j], level->offset);
    }
    for (size_t i = 0; i < GATE_DET_POINTS; i++) {
        // Shares fall by powers of ten, as DET curves are drawn.
        double share = pow(10, -DET_DECADES * (double)i / (GATE_DET_POINTS - 1));
        double offset = offset_at(older, share);
        curve->leak[i] = share_above(older, offset);
        // Missed is its own text on which it does not fire.
        curve->missed[i] = 1 - share_above(own, offset);
    }
    // The threshold in use is one point of the curve.
    curve->own_leak = share_above(older, 0);
    curve->own_missed = 1 - share_above(own, 0);
}

static void measure_text(reef_gate_curve *curve, size_t j, const float *margins, size_t count) {
    size_t fired = 0;
    curve->first[j] = GATE_NEVER;
    for (size_t t = 0; t < count; t++) {
        if (!(margins[t] > 0)) continue;
        if (curve->first[j] == GATE_NEVER) curve->first[j] = t;
        fired++;
    }
    curve->fired[j] = (double)fired / (double)count;
}

// `gating` counts the gates that fire on each token of all texts, one after the other.
static reef_status measure_gate(reef_gate_curve *curve,
                                reef_model *model,
                                const reef_gate_texts *texts,
                                sorted *each,
                                uint16_t *gating,
                                reef_error *err) {
    curve->fired = reef_cli_alloc(texts->count, sizeof(double));
    curve->first = reef_cli_alloc(texts->count, sizeof(size_t));
    for (size_t j = 0, at = 0; j < texts->count; at += tokens_of(texts, j++)) {
        const reef_cli_file *file = &texts->files[j];
        size_t count = tokens_of(texts, j);
        reef_status status =
            reef_model_gate_margins(model, curve->generation, file->bytes, file->count,
                                    &curve->stats, each[j].margins, err);
        if (status != REEF_OK) return status;
        measure_text(curve, j, each[j].margins, count);
        // Weighted by length, as texts differ.
        curve->passes += curve->stats.passes * (double)count / (double)texts->tokens;
        for (size_t t = 0; t < count; t++)
            // A positive margin is above the threshold.
            gating[at + t] = (uint16_t)(gating[at + t] + (each[j].margins[t] > 0));
        // After counting: sorting loses the positions.
        qsort(each[j].margins, count, sizeof(float), upwards);
    }
    sorted older = pool(texts, each, curve->generation, true);
    sorted own = pool(texts, each, curve->generation, false);
    // Without both sides there is no curve.
    curve->known = older.count > 0 && own.count > 0 && isfinite(curve->stats.threshold);
    if (curve->known) measure_levels(curve, texts, each, &older, &own);
    free(older.margins);
    free(own.margins);
    return REEF_OK;
}

static void count_together(reef_gate_texts *texts, const uint16_t *gating, uint32_t fire_max) {
    for (size_t j = 0, at = 0; j < texts->count; at += tokens_of(texts, j++)) {
        uint64_t sum = 0, more = 0;
        size_t count = tokens_of(texts, j);
        for (size_t t = 0; t < count; t++) {
            sum += gating[at + t];
            more += gating[at + t] > fire_max;
        }
        texts->at_once[j] = (double)sum / (double)count;
        texts->too_many[j] = (double)more / (double)count;
    }
}

reef_status reef_gate_curves_measure(reef_gate_curve *curves,
                                     size_t *curve_count,
                                     reef_model *model,
                                     const reef_generation_record *all,
                                     reef_gate_texts *texts,
                                     reef_error *err) {
    uint32_t generations = reef_model_generation_count(model);
    reef_status status = REEF_OK;
    *curve_count = 0;
    sorted *each = reef_cli_alloc(texts->count, sizeof(*each));
    uint16_t *gating = reef_cli_alloc(texts->tokens, sizeof(*gating));
    // Buffers are made once and used for every gate.
    for (size_t j = 0; j < texts->count; j++)
        each[j] = (sorted){tokens_of(texts, j), reef_cli_alloc(tokens_of(texts, j), sizeof(float))};
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "reading gates", generations - 1, "gates");
    for (uint32_t g = 1; g < generations && status == REEF_OK; g++) {
        reef_cli_progress_show(&progress, g - 1);
        // Consolidated generations have no gate.
        if (reef_generation_is_empty(&all[g])) continue;
        reef_gate_curve *curve = &curves[(*curve_count)++];
        curve->generation = g;
        status = measure_gate(curve, model, texts, each, gating, err);
    }
    reef_cli_progress_end(&progress);
    // Only after all gates: they are counted together.
    if (status == REEF_OK) count_together(texts, gating, reef_model_config(model)->fire_max);
    for (size_t j = 0; j < texts->count; j++) free(each[j].margins);
    free(each);
    free(gating);
    return status;
}
