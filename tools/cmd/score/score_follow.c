// See score_parts.h. Lines are read, scored and printed as soon as they are there; a signal ends
// that with a summary.
#include "score_parts.h"

#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "line_reader.h"
#include "outliers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAST_DEFAULT 10
#define WINDOW_DEFAULT 200
#define THRESHOLD_DEFAULT 5.0
#define RED "\033[1;31m"
#define FAINT "\033[2m"
#define PLAIN "\033[0m"

typedef struct watch {
    reef_cli_call *cli;
    reef_follow_input input;
    reef_follow_scorer scorer;
    reef_follow_usual usual;
    bool by_alarm;    // outliers are lines above a threshold that was learned, not above the usual
    reef_alarm alarm; // that threshold
    bool explains;
    reef_learned_text learned; // with `explains`: the text that `nearest` is about
    reef_nearest *nearest;
    bool outliers_only, colour;
    uint64_t lines, bytes, outliers;
    double bits;
    float *surprise; // (FOLLOW_LINE_BYTES_MAX) of the bytes at hand
    size_t silent;   // lines before the first one that is shown: they establish the usual range
} watch;

/** A line that was read, with its end, and what is known of it. */
typedef struct scored_line {
    const uint8_t *text; // (bytes)
    size_t bytes;
    const float *surprise; // (bytes)
    double bits, score, distance;
    bool outlier;
} scored_line;

// ---- options ------------------------------------------------------------------------------------

reef_status reef_score_follow_check(const reef_cli_call *cli, reef_error *err) {
    static const char *const FOLLOWING[] = {"last", "window", "threshold", "outliers"};
    static const char *const USUAL[] = {"threshold", "window"};
    bool follow = reef_cli_text(cli, "follow") != NULL;
    if (follow && reef_cli_text(cli, "top") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--top wants a text that has an end; --follow shows --outliers");
    if (follow && reef_cli_text(cli, "by") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--by is about --top; --follow shows lines in their order");
    // What was said of a session would change with each of its lines.
    if (follow && reef_cli_text(cli, "session") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--session wants a text that has an end; --follow goes line by line");
    if (follow && reef_cli_text(cli, "alarms") != NULL)
        for (size_t i = 0; i < 2; i++)
            if (reef_cli_text(cli, USUAL[i]) != NULL)
                return reef_fail(err, REEF_ERR_INVALID,
                                 "--alarms goes by what was learned, --%s by the last lines: "
                                 "choose one",
                                 USUAL[i]);
    for (size_t i = 0; !follow && i < sizeof(FOLLOWING) / sizeof(*FOLLOWING); i++)
        if (reef_cli_text(cli, FOLLOWING[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID, "--%s goes with --follow", FOLLOWING[i]);
    return REEF_OK;
}

typedef struct settings {
    uint64_t last, window;
    double threshold;
} settings;

static reef_status read_settings(const reef_cli_call *cli, settings *out, reef_error *err) {
    *out = (settings){LAST_DEFAULT, WINDOW_DEFAULT, THRESHOLD_DEFAULT};
    // The lines before the present end are needed to know what is usual.
    const char *last = reef_cli_text(cli, "last");
    bool all = last != NULL && strcmp(last, "all") == 0;
    reef_status status =
        all ? REEF_OK : reef_cli_integer(cli, "last", 0, UINT32_MAX, &out->last, err);
    // No bound: reading begins at the top.
    if (all) out->last = UINT64_MAX;
    // A window too small has no meaningful spread.
    if (status == REEF_OK)
        status =
            reef_cli_integer(cli, "window", FOLLOW_LINES_MIN, FOLLOW_WINDOW_MAX, &out->window, err);
    if (status == REEF_OK)
        status = reef_cli_number(cli, "threshold", 0.1, 1000, &out->threshold, err);
    return status;
}

// ---- output -------------------------------------------------------------------------------------

// The newline is counted in its bytes, as in `reef score`, but not shown.
static size_t shown_bytes(const scored_line *l) {
    return l->bytes - (l->bytes > 0 && l->text[l->bytes - 1] == '\n');
}

static json_t *line_json(const watch *w, const scored_line *l) {
    char *text = reef_cli_printable(l->text, shown_bytes(l), false);
    // One object per line, so that the output can be followed itself.
    // "commit" tells which model judged the line.
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:b, s:I, s:s}", "event", "line", "line",
        (json_int_t)w->lines, "bytes", (json_int_t)l->bytes, "bits", reef_cli_real(l->bits),
        "bits_per_byte", reef_cli_real(l->bits / (double)l->bytes), "score",
        reef_cli_real(l->score), "distance", reef_cli_real(l->distance), "outlier", l->outlier,
        "commit", (json_int_t)reef_model_commit(w->scorer.model)->number, "text", text);
    free(text);
    if (w->explains)
        reef_score_explain_json(object, l->text, l->surprise, shown_bytes(l), w->nearest);
    return object;
}

// One document a line. A tool whose reader went away ends by SIGPIPE, or with the error.
static reef_status put_json(reef_cli_call *cli, json_t *object, reef_error *err) {
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    cli->answered = true; // an error later on is a message only
    if (text == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a line of JSON");
    puts(text);
    free(text);
    return REEF_OK;
}

static void put_line(const watch *w, const scored_line *l) {
    char *text = reef_cli_printable(l->text, shown_bytes(l), false), how_far[CLI_WORD_BYTES] = "";
    if (w->by_alarm)
        snprintf(how_far, sizeof(how_far), "%.2f", l->score);
    else if (isfinite(l->distance))
        snprintf(how_far, sizeof(how_far), "%+.1f", l->distance);
    const char *on = !w->colour ? "" : l->outlier ? RED : FAINT; // the whole line, or its figures
    const char *off = !w->colour ? "" : PLAIN;
    // The explanation has the line itself, with marks.
    bool explained = w->explains && l->outlier;
    printf("%s%c %5.2f %6s%s  %s%s\n", on, l->outlier ? '!' : ' ', l->bits / (double)l->bytes,
           how_far, l->outlier ? "" : off, explained ? "" : text, l->outlier ? off : "");
    free(text);
    if (explained)
        reef_score_explain_print(l->text, l->surprise, shown_bytes(l), w->nearest, w->colour);
}

static reef_status flush(reef_error *err) {
    if (fflush(stdout) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_IO, "cannot write standard output: %s", strerror(errno));
}

static reef_status summary(watch *w, reef_error *err) {
    double mean = w->bytes ? w->bits / (double)w->bytes : NAN;
    // The summary ends the stream of objects.
    if (w->cli->json) {
        json_t *object =
            json_pack("{s:s, s:I, s:I, s:o, s:o, s:I, s:I}", "event", "summary", "lines",
                      (json_int_t)w->lines, "bytes", (json_int_t)w->bytes, "bits",
                      reef_cli_real(w->bits), "bits_per_byte", reef_cli_real(mean), "outliers",
                      (json_int_t)w->outliers, "commits_read", (json_int_t)w->scorer.renewed);
        if (w->by_alarm)
            json_object_set_new(object, "alarms", reef_alarm_json(&w->alarm, w->outliers));
        if (json_array_size(w->cli->lost_kinds) > 0)
            json_object_set(object, "lost_kinds", w->cli->lost_kinds);
        return put_json(w->cli, object, err);
    }
    char lines[CLI_WORD_BYTES], outliers[CLI_WORD_BYTES];
    // On standard error: standard output holds lines only.
    fprintf(stderr, "%s line%s", reef_cli_count(w->lines, lines), w->lines == 1 ? "" : "s");
    if (w->bytes) fprintf(stderr, ", %.4f bits per byte", mean);
    // The threshold explains the number.
    fprintf(stderr, "; %s outlier%s, ", reef_cli_count(w->outliers, outliers),
            w->outliers == 1 ? "" : "s");
    if (w->by_alarm)
        fprintf(stderr, "above the score %.2f, which at most %g %% of %zu learned lines exceed\n",
                w->alarm.threshold, w->alarm.percent, w->alarm.learned);
    else
        fprintf(stderr, "more than %g above what was usual\n", w->usual.threshold);
    return REEF_OK;
}

// ---- lines --------------------------------------------------------------------------------------

static reef_status put_scored_line(watch *w, const scored_line *l, reef_error *err) {
    w->lines++;
    w->bytes += l->bytes;
    w->bits += l->bits;
    w->outliers += l->outlier;
    // Counted all the same: the summary is over all lines.
    if (w->outliers_only && !l->outlier) return REEF_OK;
    if (!w->cli->json)
        put_line(w, l);
    else {
        reef_status status = put_json(w->cli, line_json(w, l), err);
        if (status != REEF_OK) return status;
    }
    // Flushed line by line, because the reader of a pipe waits for it.
    return flush(err);
}

static reef_status on_line(
    watch *w, const uint8_t *line, size_t bytes, const float *surprise, reef_error *err) {
    scored_line l = {.text = line, .bytes = bytes, .surprise = surprise};
    for (size_t i = 0; i < bytes; i++) l.bits += (double)surprise[i];
    double mean = l.bits / (double)bytes;
    const reef_line_scorer *scorer;
    reef_status status = reef_model_line_scorer(w->scorer.model, &scorer, err);
    if (status != REEF_OK) return status;
    l.score = reef_line_score(scorer, line, surprise, bytes);
    l.distance = reef_follow_distance(&w->usual, mean);
    // Not a number while too few lines were seen: the comparison is false.
    l.outlier = w->by_alarm ? l.score > w->alarm.threshold : l.distance > w->usual.threshold;
    reef_follow_usual_add(&w->usual, mean);
    if (w->silent == 0) return put_scored_line(w, &l, err);
    w->silent--;
    return REEF_OK;
}

static reef_status on_lines(watch *w, const uint8_t *lines, size_t bytes, reef_error *err) {
    reef_status status = reef_follow_renew(&w->scorer, err);
    if (status == REEF_OK) status = reef_follow_score(&w->scorer, lines, bytes, w->surprise, err);
    for (size_t at = 0; status == REEF_OK && at < bytes && !reef_cli_is_stopped();) {
        const uint8_t *end = memchr(lines + at, '\n', bytes - at);
        size_t count = end != NULL ? (size_t)(end - lines) + 1 - at : bytes - at;
        status = on_line(w, lines + at, count, w->surprise + at, err);
        at += count;
    }
    return status;
}

static void report_state(const watch *w, reef_follow_state state) {
    if (state == FOLLOW_ROTATED)
        fprintf(stderr, "reef score: another file is %s now; reading it from its beginning\n",
                w->input.path);
    if (state == FOLLOW_TRUNCATED)
        fprintf(stderr, "reef score: %s was cut; reading it from its beginning\n", w->input.path);
}

static reef_status follow_lines(watch *w, reef_error *err) {
    reef_status status = REEF_OK;
    reef_follow_state state = FOLLOW_NOTHING;
    // Ends by a signal, or with the input, if that has an end.
    while (status == REEF_OK && !reef_cli_is_stopped() && state != FOLLOW_END) {
        const uint8_t *lines;
        size_t bytes;
        status = reef_follow_next(&w->input, &state, &lines, &bytes, err);
        if (status != REEF_OK) return status;
        if (state == FOLLOW_LINES) status = on_lines(w, lines, bytes, err);
        // Rotation and cuts are reported on standard error.
        report_state(w, state);
        if (state != FOLLOW_NOTHING) continue;
        // What was there at the beginning has been read.
        w->silent = 0;
        // While waiting, the read transaction is released, so that the daemon can reuse pages.
        reef_model_unpin(w->scorer.model);
        reef_follow_wait(&w->input);
    }
    return status;
}

// The lines before the first one that is shown establish the usual range.
static reef_status open_input(watch *w, const settings *given, reef_error *err) {
    bool all = given->last == UINT64_MAX;
    size_t lines = all ? SIZE_MAX : (size_t)(given->last + given->window);
    reef_status status = reef_follow_open(&w->input, w->cli->operands[0], &lines, err);
    if (status == REEF_OK && lines > given->last) w->silent = lines - (size_t)given->last;
    return status;
}

// What the pool has learned, where it is asked for.
static reef_status read_learned(watch *w, reef_store *store, reef_error *err) {
    reef_status status = REEF_OK;
    if (w->by_alarm) status = reef_alarm_set(&w->alarm, w->cli, w->scorer.model, store, NULL, err);
    if (status != REEF_OK || !w->explains) return status;
    status = reef_learned_text_read(&w->learned, w->scorer.model, store, err);
    if (status == REEF_OK) w->nearest = reef_nearest_new(w->learned.bytes, w->learned.count);
    return status;
}

reef_status reef_score_follow(reef_cli_call *cli, reef_error *err) {
    watch w = {.cli = cli,
               .explains = reef_cli_text(cli, "explain") != NULL,
               .outliers_only = reef_cli_text(cli, "outliers") != NULL,
               .colour = !cli->json && reef_cli_colours()};
    reef_cli_pool pool = {0};
    settings given;
    reef_status status = read_settings(cli, &given, err);
    if (status == REEF_OK) status = reef_alarm_read(&w.alarm, &w.by_alarm, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    // The input first: a missing file is found before the model is loaded.
    if (status == REEF_OK) status = open_input(&w, &given, err);
    if (status == REEF_OK) status = reef_follow_scorer_open(&w.scorer, cli, pool.store, err);
    if (status == REEF_OK) status = read_learned(&w, pool.store, err);
    if (status == REEF_OK) {
        reef_follow_usual_init(&w.usual, (size_t)given.window, given.threshold);
        // What the reader hands out at once is never more.
        w.surprise = reef_cli_alloc(FOLLOW_LINE_BYTES_MAX, sizeof(*w.surprise));
        // From here on an interrupt ends with the summary.
        reef_cli_catch_signals(false);
        status = follow_lines(&w, err);
    }
    if (status == REEF_OK) status = summary(&w, err);
    reef_follow_usual_release(&w.usual);
    free(w.surprise);
    reef_nearest_free(w.nearest);
    reef_learned_text_release(&w.learned);
    reef_follow_scorer_close(&w.scorer);
    reef_follow_close(&w.input);
    reef_cli_pool_close(&pool);
    return status;
}
