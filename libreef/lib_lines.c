// How surprising each line of a text is: the figures of `reef score`, and which kind answers it.
#include "lib.h"
#include "reef_scored_lines.h"

#include <stdlib.h>

struct reef_lines {
    reef_scored_line *lines; // (count)
    int64_t *kinds;          // (count) -1: none
    size_t count;
};

void reef_lines_free(reef_lines *lines) {
    if (lines == NULL) return;
    free(lines->lines);
    free(lines->kinds);
    free(lines);
}

// The kind that is the likeliest for most bytes of a line, the line end counted; of equals the
// lower one. `tally` is (kinds), zeros before and after.
static int64_t kind_of(const reef_scored_line *line, const uint32_t *likeliest, uint32_t *tally) {
    const size_t end = line->offset + line->bytes + line->ended;
    uint32_t best = likeliest[line->offset];
    for (size_t i = line->offset; i < end; i++) {
        const uint32_t kind = likeliest[i];
        tally[kind]++;
        if (tally[kind] > tally[best] || (tally[kind] == tally[best] && kind < best)) best = kind;
    }
    for (size_t i = line->offset; i < end; i++) tally[likeliest[i]] = 0;
    return (int64_t)best;
}

// `likeliest` (count) is the kind of each byte, or NULL: no kind knows the text.
static reef_status cut_lines(reef_pool *pool,
                             const uint8_t *text,
                             size_t count,
                             const float *bits,
                             const uint32_t *likeliest,
                             reef_lines *out,
                             reef_error *err) {
    const reef_line_scorer *scorer;
    out->count = reef_lines_count(text, count);
    out->lines = calloc(out->count, sizeof(*out->lines));
    out->kinds = calloc(out->count, sizeof(*out->kinds));
    uint32_t *tally = calloc(reef_model_generation_count(pool->model), sizeof(*tally));
    reef_status status =
        out->lines != NULL && out->kinds != NULL && tally != NULL
            ? reef_model_line_scorer(pool->model, &scorer, err)
            : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu lines", out->count);
    if (status == REEF_OK) reef_lines_score(scorer, text, bits, count, out->lines);
    for (size_t i = 0; status == REEF_OK && i < out->count; i++)
        out->kinds[i] = likeliest == NULL ? -1 : kind_of(&out->lines[i], likeliest, tally);
    free(tally);
    return status;
}

static reef_status score_lines(reef_pool *pool,
                               const uint8_t *text,
                               size_t count,
                               reef_lines *out,
                               reef_score *score,
                               reef_error *err) {
    reef_status status = reef_lib_catch_up(pool, err);
    if (status != REEF_OK) return status;
    const bool tells = pool->config.memory > 0;
    double cost = 1.0;
    float *bits = malloc(count * sizeof(*bits) + 1);
    uint32_t *likeliest = tells ? malloc(count * sizeof(*likeliest) + 1) : NULL;
    if (bits == NULL || (tells && likeliest == NULL))
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to score %zu bytes", count);
    if (tells) score->answers = (reef_answers){.width = 1, .kinds = likeliest};
    if (status == REEF_OK)
        status = reef_model_score(pool->model, text, count, bits, score, NULL, NULL, err);
    if (status == REEF_OK && tells) status = reef_model_cost(pool->model, text, count, &cost, err);
    if (status == REEF_OK)
        status = cut_lines(pool, text, count, bits, cost < REEF_COST_UNKNOWN ? likeliest : NULL,
                           out, err);
    free(likeliest);
    free(bits);
    return status;
}

reef_status reef_pool_score_lines(reef_pool *pool,
                                  const void *text,
                                  size_t count,
                                  reef_lines **out,
                                  reef_evaluation *total,
                                  reef_error *err) {
    reef_score score = {0};
    *out = NULL;
    reef_lines *lines = calloc(1, sizeof(*lines));
    if (lines == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for lines");
    reef_status status = reef_lib_enter(pool, err);
    if (status == REEF_OK) {
        status = score_lines(pool, text, count, lines, &score, err);
        reef_lib_unpin(pool);
        reef_lib_leave(pool);
    }
    const reef_evaluation evaluation = {
        .bytes = score.bytes, .bits = score.bits, .bits_per_byte = score.bits_per_byte};
    if (status == REEF_OK && total != NULL)
        status = reef_lib_give(total, &evaluation, sizeof(evaluation), "reef_evaluation", err);
    if (status == REEF_OK) {
        *out = lines;
        lines = NULL; // the caller owns it now
    }
    reef_lines_free(lines);
    return status;
}

reef_status reef_lines_read(const reef_lines *lines,
                            size_t index,
                            reef_line_info *out,
                            reef_error *err) {
    if (index >= lines->count)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no line %zu: the text has %zu", index,
                         lines->count);
    const reef_scored_line *l = &lines->lines[index];
    const reef_line_info info = {
        .line = l->number,
        .offset = l->offset,
        .bytes = l->bytes,
        .bits = l->bits,
        .bits_per_byte = reef_scored_line_rate(l),
        .score = l->score,
        .kind = lines->kinds[index],
    };
    return reef_lib_give(out, &info, sizeof(info), "reef_line_info", err);
}
