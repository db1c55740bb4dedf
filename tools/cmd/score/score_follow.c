// reef score --follow: a log watcher. Lines are read, scored and printed as soon as they are there;
// a signal ends that with a summary.
#include "score_parts.h"

#include "cli_progress.h"
#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX 10000 // lines that make up what is usual
#define LAST_DEFAULT 10
#define WINDOW_DEFAULT 200
#define THRESHOLD_DEFAULT 5.0
#define RED "\033[1;31m"
#define FAINT "\033[2m"
#define PLAIN "\033[0m"

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
    if (all) out->last = UINT64_MAX;
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "window", USUAL_LINES_MIN, WINDOW_MAX, &out->window, err);
    if (status == REEF_OK)
        status = reef_cli_number(cli, "threshold", 0.1, 1000, &out->threshold, err);
    return status;
}

// ---- scores of a stream -------------------------------------------------------------------------

#define RECENT_BYTES 16384 // that the memories of a later commit read first
#define REOPEN_SHARE 10.0  // of the time at most one part in so many goes to reading commits

// The model of a pool, and the last bytes of a stream. Every byte is predicted from at least half
// of the model's context before it (in the stream's first half of a context, from all there is):
// the stream is cut into pieces of that size, and each is scored together with the piece before it.
// So what a line scores depends on the stream and the state of the pool, not on when it came or how
// it was read.
typedef struct stream_scorer {
    const reef_cli_call *cli;
    reef_store *store;
    char as_of[REEF_NAME_BYTES_MAX + 1]; // "now" or a state
    reef_model *model;
    double opened, took; // when it was opened, and how long that took
    size_t piece;        // half of the context
    uint8_t *text;       // (2 * piece) the piece before, and what there is of this one
    float *bits;         // (2 * piece)
    size_t used;
    uint8_t *recent;    // (RECENT_BYTES) the last bytes scored, for a model that is opened again
    float *recent_bits; // scratch of the same size
    size_t recent_count;
    uint64_t renewed; // how often a later commit was read
} stream_scorer;

static reef_status open_model(stream_scorer *scorer, reef_error *err) {
    double begin = reef_seconds();
    reef_status status =
        reef_score_model_open(&scorer->model, scorer->cli, scorer->store, scorer->as_of, err);
    scorer->opened = reef_seconds();
    scorer->took = scorer->opened - begin;
    return status;
}

static reef_status scorer_open(stream_scorer *scorer,
                               const reef_cli_call *cli,
                               reef_store *store,
                               reef_error *err) {
    *scorer = (stream_scorer){.cli = cli, .store = store};
    reef_status status = reef_cli_as_of(cli, store, scorer->as_of, err);
    if (status == REEF_OK) status = open_model(scorer, err);
    if (status != REEF_OK) return status;
    // A piece is half a window, so that each byte has at least half a window before it.
    scorer->piece = reef_model_config(scorer->model)->context / 2;
    scorer->text = reef_cli_alloc(2 * scorer->piece, 1);
    scorer->bits = reef_cli_alloc(2 * scorer->piece, sizeof(*scorer->bits));
    scorer->recent = reef_cli_alloc(RECENT_BYTES, 1);
    scorer->recent_bits = reef_cli_alloc(RECENT_BYTES, sizeof(*scorer->recent_bits));
    return REEF_OK;
}

static void scorer_close(stream_scorer *scorer) {
    reef_model_close(scorer->model);
    free(scorer->text);
    free(scorer->bits);
    free(scorer->recent);
    free(scorer->recent_bits);
    *scorer = (stream_scorer){0};
}

// A model that was just opened reads the last bytes again, so that its memories know what the
// stream was about.
static reef_status read_again(stream_scorer *scorer, reef_error *err) {
    if (scorer->recent_count == 0) return REEF_OK;
    return reef_model_score_next(scorer->model, scorer->recent, 0, scorer->recent_count,
                                 scorer->recent_bits, err);
}

static void keep_recent(stream_scorer *scorer, const uint8_t *bytes, size_t count) {
    size_t room = RECENT_BYTES;
    if (count > room) {
        bytes += count - room;
        count = room;
    }
    size_t kept = scorer->recent_count + count > room ? room - count : scorer->recent_count;
    memmove(scorer->recent, scorer->recent + scorer->recent_count - kept, kept);
    memcpy(scorer->recent + kept, bytes, count);
    scorer->recent_count = kept + count;
}

// Scores what was added behind `before` bytes of the two pieces in memory. A generation that is
// read in place can be given up by a restore: the model is then opened again, at the present state.
static reef_status score_text(stream_scorer *scorer, size_t before, reef_error *err) {
    size_t count = scorer->used - before;
    reef_status status = reef_model_score_next(scorer->model, scorer->text, before, count,
                                               scorer->bits + before, err);
    if (status != REEF_ERR_BUSY) return status;
    reef_model_close(scorer->model);
    scorer->model = NULL;
    status = open_model(scorer, err);
    if (status == REEF_OK) status = read_again(scorer, err);
    return status != REEF_OK ? status
                             : reef_model_score_next(scorer->model, scorer->text, before, count,
                                                     scorer->bits + before, err);
}

// The next bytes of the stream; `bits` (count) is written: the surprise of each, 8 of the very
// first one, which nothing came before. A call costs a pass over each piece that it touches.
static reef_status score_next(
    stream_scorer *scorer, const uint8_t *bytes, size_t count, float *bits, reef_error *err) {
    size_t piece = scorer->piece;
    while (count > 0) {
        if (scorer->used == 2 * piece) {
            memcpy(scorer->text, scorer->text + piece, piece);
            scorer->used = piece;
        }
        // The first piece of the stream has none before it.
        size_t end = scorer->used < piece ? piece : 2 * piece, first = scorer->used;
        // Never across a piece, so that the scores do not depend on how the bytes arrive.
        size_t taken = end - first < count ? end - first : count;
        memcpy(scorer->text + first, bytes, taken);
        scorer->used += taken;
        bytes += taken;
        count -= taken;
        reef_status status = score_text(scorer, first, err);
        if (status != REEF_OK) return status;
        keep_recent(scorer, scorer->text + first, taken);
        memcpy(bits, scorer->bits + first, taken * sizeof(*bits));
        bits += taken;
    }
    return REEF_OK;
}

// Read the last commit, when there has been one and the model is of the present.
static reef_status scorer_renew(stream_scorer *scorer, reef_error *err) {
    reef_commit commit;
    if (strcmp(scorer->as_of, "now") != 0) return REEF_OK;
    // Opening takes time: it is repeated only after a multiple of it, so that it stays a small
    // share.
    if (reef_seconds() - scorer->opened < REOPEN_SHARE * scorer->took) return REEF_OK;
    reef_status status = reef_store_read_commit(scorer->store, &commit, err);
    if (status != REEF_OK || commit.number == reef_model_commit(scorer->model)->number)
        return status;
    reef_model_close(scorer->model);
    scorer->model = NULL;
    scorer->renewed++;
    status = open_model(scorer, err);
    return status == REEF_OK ? read_again(scorer, err) : status;
}

// ---- what is usual ------------------------------------------------------------------------------

#define MAD_TO_SIGMA 1.4826
// bits per byte: a stream of equal lines has no spread, and rounding must not stand out
#define SIGMA_MIN 0.05

void reef_usual_init(reef_usual *usual, size_t window, double threshold) {
    *usual = (reef_usual){.window = window, .threshold = threshold};
    usual->values = reef_cli_alloc(window, sizeof(*usual->values));
    usual->sorted = reef_cli_alloc(window, sizeof(*usual->sorted));
}

void reef_usual_release(reef_usual *usual) {
    free(usual->values);
    free(usual->sorted);
    *usual = (reef_usual){0};
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median_of_sorted(const reef_usual *usual) {
    size_t half = usual->count / 2;
    return usual->count % 2 ? usual->sorted[half]
                            : (usual->sorted[half - 1] + usual->sorted[half]) / 2;
}

double reef_usual_distance(reef_usual *usual, double surprise) {
    if (usual->count < USUAL_LINES_MIN) return NAN;
    memcpy(usual->sorted, usual->values, usual->count * sizeof(*usual->sorted));
    qsort(usual->sorted, usual->count, sizeof(*usual->sorted), by_value);
    double median = median_of_sorted(usual);
    for (size_t i = 0; i < usual->count; i++) usual->sorted[i] = fabs(usual->sorted[i] - median);
    qsort(usual->sorted, usual->count, sizeof(*usual->sorted), by_value);
    return (surprise - median) / fmax(MAD_TO_SIGMA * median_of_sorted(usual), SIGMA_MIN);
}

void reef_usual_add(reef_usual *usual, double surprise) {
    usual->values[usual->next] = surprise;
    usual->next = (usual->next + 1) % usual->window;
    if (usual->count < usual->window) usual->count++;
}

// ---- output -------------------------------------------------------------------------------------

typedef struct watch {
    reef_cli_call *cli;
    reef_line_reader input;
    stream_scorer scorer;
    reef_usual usual;
    bool by_alarm;    // outliers are lines above a threshold that was learned, not above the usual
    reef_alarm alarm; // that threshold
    bool explains;
    reef_learned_text learned; // with `explains`: the text that `nearest` is about
    reef_nearest *nearest;
    bool outliers_only, colour;
    uint64_t lines, bytes, outliers;
    double bits;
    float *surprise; // (LINE_BYTES_MAX) of the bytes at hand
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
    // On standard error: standard output holds lines only.
    fprintf(stderr, "%s line%s", CLI_COUNT(w->lines), w->lines == 1 ? "" : "s");
    if (w->bytes) fprintf(stderr, ", %.4f bits per byte", mean);
    fprintf(stderr, "; %s outlier%s, ", CLI_COUNT(w->outliers), w->outliers == 1 ? "" : "s");
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
    l.distance = reef_usual_distance(&w->usual, mean);
    // Not a number while too few lines were seen: the comparison is false.
    l.outlier = w->by_alarm ? l.score > w->alarm.threshold : l.distance > w->usual.threshold;
    reef_usual_add(&w->usual, mean);
    if (w->silent == 0) return put_scored_line(w, &l, err);
    w->silent--;
    return REEF_OK;
}

static reef_status on_lines(watch *w, const uint8_t *lines, size_t bytes, reef_error *err) {
    reef_status status = scorer_renew(&w->scorer, err);
    if (status == REEF_OK) status = score_next(&w->scorer, lines, bytes, w->surprise, err);
    for (size_t at = 0; status == REEF_OK && at < bytes && !reef_cli_is_stopped();) {
        const uint8_t *end = memchr(lines + at, '\n', bytes - at);
        size_t count = end != NULL ? (size_t)(end - lines) + 1 - at : bytes - at;
        status = on_line(w, lines + at, count, w->surprise + at, err);
        at += count;
    }
    return status;
}

static void report_state(const watch *w, reef_line_event state) {
    if (state == LINES_ROTATED)
        fprintf(stderr, "reef score: another file is %s now; reading it from its beginning\n",
                w->input.path);
    if (state == LINES_TRUNCATED)
        fprintf(stderr, "reef score: %s was cut; reading it from its beginning\n", w->input.path);
}

static reef_status follow_lines(watch *w, reef_error *err) {
    reef_status status = REEF_OK;
    reef_line_event state = LINES_NONE_NOW;
    while (status == REEF_OK && !reef_cli_is_stopped() && state != LINES_END) {
        const uint8_t *lines;
        size_t bytes;
        status = reef_line_reader_next(&w->input, &state, &lines, &bytes, err);
        if (status != REEF_OK) return status;
        if (state == LINES_READ) status = on_lines(w, lines, bytes, err);
        report_state(w, state);
        if (state != LINES_NONE_NOW) continue;
        w->silent = 0;
        // While waiting, the read transaction is released, so that the daemon can reuse pages.
        reef_model_unpin(w->scorer.model);
        reef_line_reader_wait(&w->input);
    }
    return status;
}

// The lines before the first one that is shown establish the usual range.
static reef_status open_input(watch *w, const settings *given, reef_error *err) {
    bool all = given->last == UINT64_MAX;
    size_t lines = all ? SIZE_MAX : (size_t)(given->last + given->window);
    reef_status status = reef_line_reader_open(&w->input, w->cli->operands[0], &lines, err);
    if (status == REEF_OK && lines > given->last) w->silent = lines - (size_t)given->last;
    return status;
}

// What the pool has learned, where it is asked for.
static reef_status read_learned(watch *w, reef_error *err) {
    reef_status status = REEF_OK;
    if (w->by_alarm) status = reef_alarm_set(&w->alarm, w->cli, w->scorer.model, NULL, err);
    if (status != REEF_OK || !w->explains) return status;
    reef_learned_text_read(&w->learned, w->scorer.model);
    w->nearest = reef_nearest_new(w->learned.bytes, w->learned.count);
    return REEF_OK;
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
    if (status == REEF_OK) status = scorer_open(&w.scorer, cli, pool.store, err);
    if (status == REEF_OK) status = read_learned(&w, err);
    if (status == REEF_OK) {
        reef_usual_init(&w.usual, (size_t)given.window, given.threshold);
        w.surprise = reef_cli_alloc(LINE_BYTES_MAX, sizeof(*w.surprise));
        reef_cli_catch_signals(false);
        status = follow_lines(&w, err);
    }
    if (status == REEF_OK) status = summary(&w, err);
    reef_usual_release(&w.usual);
    free(w.surprise);
    reef_nearest_free(w.nearest);
    reef_learned_text_release(&w.learned);
    scorer_close(&w.scorer);
    reef_line_reader_close(&w.input);
    reef_cli_pool_close(&pool);
    return status;
}
