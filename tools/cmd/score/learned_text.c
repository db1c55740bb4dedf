// See score_parts.h.
#include "score_parts.h"

#include "reef_context.h"

#include <stdlib.h>
#include <string.h>

#define SCORED_SHARE 5        // one part in so many
#define LEARNED_AT_ONCE 65536 // bytes, between two updates of the progress

// ---- text ---------------------------------------------------------------------------------------

// Add whole lines, of which there may be none. `begins`: the first byte begins a line.
static void add_part(reef_learned_text *out, const uint8_t *bytes, size_t count, bool begins) {
    const uint8_t *first = begins ? bytes : memchr(bytes, '\n', count);
    if (first == NULL) return;
    if (!begins) first++;
    size_t left = count - (size_t)(first - bytes);
    // The last line may continue in what was not kept, or was not learned yet.
    while (left > 0 && first[left - 1] != '\n') left--;
    if (left == 0) return;
    memcpy(out->bytes + out->count, first, left);
    out->count += left;
    out->ends = reef_cli_grown(out->ends, out->part_count, &out->part_capacity, sizeof(*out->ends));
    out->ends[out->part_count++] = out->count;
}

static void take_memories(reef_learned_text *out, const reef_model *model, size_t memories) {
    size_t most = REEF_SCORED_TEXT_BYTES_MAX / memories;
    uint8_t *bytes = reef_cli_alloc(most, 1);
    for (uint32_t g = 0; g < reef_model_generation_count(model); g++) {
        size_t count = reef_model_text(model, g, bytes, most);
        bool all = count == reef_model_memory_learned(model, g);
        add_part(out, bytes, count, all);
    }
    free(bytes);
}

void reef_learned_text_read(reef_learned_text *out, const reef_model *model) {
    size_t memories = 0, generations = reef_model_generation_count(model);
    *out = (reef_learned_text){.bytes = reef_cli_alloc(REEF_SCORED_TEXT_BYTES_MAX, 1)};
    for (uint32_t g = 0; g < generations; g++) memories += reef_model_text(model, g, NULL, 0) > 0;
    if (memories > 0) take_memories(out, model, memories);
}

void reef_learned_text_release(reef_learned_text *text) {
    free(text->bytes);
    free(text->ends);
    *text = (reef_learned_text){0};
}

// ---- surprise -----------------------------------------------------------------------------------

static reef_memory_reading reading_of(const reef_cli_call *cli) {
    return reef_cli_text(cli, "frozen") != NULL ? REEF_READ_ALONE : REEF_READ_ADAPTING;
}

reef_status reef_score_model_open(reef_model **out,
                                  const reef_cli_call *cli,
                                  reef_store *store,
                                  const char *as_of,
                                  reef_error *err) {
    reef_status status = reef_cli_model_open(out, cli, store, as_of, err);
    if (status == REEF_OK) reef_model_set_reading(*out, reading_of(cli));
    return status;
}

// Score the last fifth of some lines by a memory that learned those before them.
static reef_status score_by_new_memory(const reef_model *model,
                                       const uint8_t *bytes,
                                       size_t count,
                                       reef_memory_reading reading,
                                       reef_learned_text *out,
                                       float *bits,
                                       reef_line_scorer *scorer,
                                       reef_cli_progress *progress,
                                       reef_error *err) {
    reef_memory *memory = NULL;
    reef_memory_session *session = NULL;
    size_t learned = count - count / SCORED_SHARE;
    while (learned > 0 && bytes[learned - 1] != '\n') learned--;
    const reef_memory_options options = {.bytes_max = reef_model_config(model)->memory};
    reef_status status = reef_memory_new(&memory, &options, err);
    for (size_t at = 0, some; status == REEF_OK && at < learned; at += some) {
        some = learned - at < LEARNED_AT_ONCE ? learned - at : LEARNED_AT_ONCE;
        status = reef_memory_learn(memory, bytes + at, some, NULL, NULL, err);
        reef_cli_progress_show(progress, at + some);
    }
    if (status == REEF_OK) status = reef_line_scorer_learn(scorer, bytes, learned, err);
    if (status == REEF_OK) status = reef_memory_session_open(&session, memory, reading, err);
    if (status == REEF_OK)
        status = reef_memory_session_read(session, bytes + learned, count - learned, NULL,
                                          bits + out->count, err);
    if (status == REEF_OK) add_part(out, bytes + learned, count - learned, true);
    reef_memory_session_close(session);
    reef_memory_free(memory);
    return status;
}

// The last fifth of each memory's text, scored by a new memory that learned what lies before it:
// what a memory has learned is no surprise to it. `out` is what was scored, as parts of its own,
// also after an error, with the `bits` of each byte; lines that were not scored are added to the
// scorer: scores of the others go by them.
static reef_status score_text(const reef_learned_text *text,
                              const reef_model *model,
                              reef_memory_reading reading,
                              reef_learned_text *out,
                              float **bits,
                              reef_line_scorer *scorer,
                              reef_cli_progress *progress,
                              reef_error *err) {
    *out = (reef_learned_text){.bytes = reef_cli_alloc(text->count + 1, 1)};
    *bits = reef_cli_alloc(text->count + 1, sizeof(**bits));
    reef_status status = REEF_OK;
    for (size_t p = 0, begin = 0; status == REEF_OK && p < text->part_count; p++) {
        const uint8_t *bytes = text->bytes + begin;
        size_t count = text->ends[p] - begin;
        status =
            score_by_new_memory(model, bytes, count, reading, out, *bits, scorer, progress, err);
        begin = text->ends[p];
        progress->done_before = begin;
        reef_cli_progress_show(progress, 0);
    }
    if (status == REEF_OK) return REEF_OK;
    free(*bits);
    *bits = NULL;
    return status;
}

// ---- alarms -------------------------------------------------------------------------------------

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
                           const reef_model *model,
                           const regex_t *sessions,
                           reef_error *err) {
    reef_learned_text text, scored = {0};
    reef_line_scorer *scorer = NULL;
    float *bits = NULL;
    double *scores = NULL;
    reef_scored_lines lines = {0};
    reef_learned_text_read(&text, model);
    reef_status status = reef_line_scorer_new(&scorer, err);
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "setting the threshold", text.count, "B");
    if (status == REEF_OK)
        status = score_text(&text, model, reading_of(cli), &scored, &bits, scorer, &progress, err);
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
