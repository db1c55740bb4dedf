// See score_parts.h.
#include "score_parts.h"

#include <stdlib.h>
#include <string.h>

reef_status reef_alarm_read(reef_alarm *out,
                            bool *given,
                            const reef_cli_call *cli,
                            reef_error *err) {
    const char *text = reef_cli_text(cli, "alarms");
    char *end;
    *out = (reef_alarm){0};
    *given = text != NULL;
    if (text == NULL) return REEF_OK;
    out->percent = strtod(text, &end);
    // A share such as 0.01 would be taken for a hundredth of a percent: so the sign is asked for.
    if (end != text && strcmp(end, "%") == 0 && out->percent > 0 && out->percent < 100)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--alarms is '%.64s', but must be a percentage between 0%% and 100%%, such as "
                     "1%%",
                     text);
}

static int falling(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left < right) - (left > right);
}

// Scores of lines, or of sessions. The caller's.
static reef_status list_scores(double **out,
                               size_t *count,
                               const reef_scored_lines *lines,
                               const regex_t *pattern,
                               reef_error *err) {
    reef_sessions found = {0};
    reef_status status = REEF_OK;
    if (pattern != NULL) status = reef_sessions_find(&found, pattern, lines, err);
    if (status != REEF_OK) return status;
    *count = pattern != NULL ? found.count : lines->count;
    *out = reef_cli_alloc(*count + 1, sizeof(**out));
    for (size_t i = 0; i < *count; i++)
        (*out)[i] = pattern != NULL ? found.sessions[i].score : lines->lines[i].score;
    reef_sessions_release(&found);
    return REEF_OK;
}

static reef_status fail_without(bool matches, const reef_cli_call *cli, reef_error *err) {
    if (matches)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--alarms goes by learned sessions, but --session matches no learned line "
                         "that %.120s keeps",
                         cli->pool);
    return reef_fail(err, REEF_ERR_INVALID,
                     "--alarms goes by learned lines, but %.160s keeps none: let it learn first",
                     cli->pool);
}

reef_status reef_alarm_set(reef_alarm *alarm,
                           const reef_cli_call *cli,
                           reef_model *model,
                           reef_store *store,
                           const regex_t *sessions,
                           reef_error *err) {
    reef_learned_text text, scored = {0};
    reef_line_scorer *scorer = NULL;
    float *bits = NULL;
    double *scores = NULL;
    reef_scored_lines lines = {0};
    const bool frozen = reef_cli_model_options(cli).frozen;
    reef_status status = reef_learned_text_read(&text, model, store, err);
    if (status == REEF_OK) status = reef_line_scorer_new(&scorer, err);
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "setting the threshold", text.count, "B");
    if (status == REEF_OK)
        status =
            reef_learned_text_score(&text, model, frozen, &scored, &bits, scorer, &progress, err);
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) goto cleanup;
    reef_scored_lines_init(&lines, scorer, scored.bytes, bits, scored.count, 0);
    status = list_scores(&scores, &alarm->learned, &lines, sessions, err);
    if (status == REEF_OK && alarm->learned == 0) status = fail_without(lines.count > 0, cli, err);
    if (status != REEF_OK) goto cleanup;
    qsort(scores, alarm->learned, sizeof(*scores), falling);
    size_t above = (size_t)(alarm->percent / 100 * (double)alarm->learned);
    // Just below 100 % rounding may lead behind the end.
    alarm->threshold = scores[above < alarm->learned ? above : alarm->learned - 1];

cleanup:
    free(scores);
    reef_scored_lines_release(&lines);
    reef_line_scorer_free(scorer);
    free(bits);
    reef_learned_text_release(&scored);
    reef_learned_text_release(&text);
    return status;
}

json_t *reef_alarm_json(const reef_alarm *alarm, uint64_t count) {
    return json_pack("{s:f, s:o, s:I, s:I}", "percent", alarm->percent, "threshold",
                     reef_cli_real(alarm->threshold), "learned", (json_int_t)alarm->learned,
                     "count", (json_int_t)count);
}
