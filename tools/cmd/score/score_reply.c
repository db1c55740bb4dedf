// See score_parts.h.
#include "cli_format.h"
#include "score_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EXPLAIN_COLUMNS 96 // of a row of a line that is explained, and of a session's name

// ---- what is shown ------------------------------------------------------------------------------

// Indices of lines or sessions, in the order in which they are shown. The caller's.
typedef struct choice {
    size_t *indices;
    size_t count;
} choice;

static bool is_alarm(const reef_score_reply *reply, double score) {
    return reply->alarm != NULL && score > reply->alarm->threshold;
}

static size_t count_alarms(const reef_score_reply *reply) {
    size_t count = 0;
    if (reply->sessions != NULL)
        for (size_t i = 0; i < reply->sessions->count; i++)
            count += is_alarm(reply, reply->sessions->sessions[i].score);
    else
        for (size_t i = 0; i < reply->lines->count; i++)
            count += is_alarm(reply, reply->lines->lines[i].score);
    return count;
}

typedef struct ranked {
    double value;
    size_t index;
} ranked;

static int by_value(const void *a, const void *b) {
    const ranked *left = a, *right = b;
    if (left->value != right->value) return left->value < right->value ? 1 : -1;
    return (left->index > right->index) - (left->index < right->index);
}

static int by_index(const void *a, const void *b) {
    size_t left = *(const size_t *)a, right = *(const size_t *)b;
    return (left > right) - (left < right);
}

// With a threshold, the alarms alone. Of all of them, or with --top 0, in the order of the text.
static choice choose_lines(const reef_score_reply *reply) {
    const reef_scored_lines *lines = reply->lines;
    ranked *all = reef_cli_alloc(lines->count + 1, sizeof(*all));
    size_t count = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &lines->lines[i];
        if (reply->alarm != NULL && !is_alarm(reply, l->score)) continue;
        all[count++] = (ranked){reply->by_score ? l->score : l->surplus, i};
    }
    choice chosen = {reef_cli_alloc(count + 1, sizeof(*chosen.indices)), count};
    if (reply->top > 0) qsort(all, count, sizeof(*all), by_value);
    if (reply->top > 0 && reply->top < count) chosen.count = reply->top;
    for (size_t i = 0; i < chosen.count; i++) chosen.indices[i] = all[i].index;
    free(all);
    return chosen;
}

// Sessions come sorted by score.
static choice choose_sessions(const reef_score_reply *reply) {
    const reef_sessions *found = reply->sessions;
    choice chosen = {reef_cli_alloc(found->count + 1, sizeof(*chosen.indices)), 0};
    for (size_t i = 0; i < found->count; i++) {
        if (reply->top > 0 && chosen.count == reply->top) break;
        if (reply->alarm != NULL && !is_alarm(reply, found->sessions[i].score)) break;
        chosen.indices[chosen.count++] = i;
    }
    if (reply->top > 0) return chosen;
    // In the order of their first lines.
    ranked *order = reef_cli_alloc(chosen.count + 1, sizeof(*order));
    for (size_t i = 0; i < chosen.count; i++)
        order[i] = (ranked){-(double)found->sessions[chosen.indices[i]].first, chosen.indices[i]};
    qsort(order, chosen.count, sizeof(*order), by_value);
    for (size_t i = 0; i < chosen.count; i++) chosen.indices[i] = order[i].index;
    free(order);
    return chosen;
}

// The lines that make the scores of sessions, each once, in the order of the text.
static choice lines_of_sessions(const reef_score_reply *reply, const choice *sessions) {
    choice lines = {reef_cli_alloc(sessions->count * SESSION_WORST + 1, sizeof(size_t)), 0};
    for (size_t i = 0; i < sessions->count; i++) {
        const reef_session *s = &reply->sessions->sessions[sessions->indices[i]];
        for (size_t k = 0; k < s->worst_count; k++) lines.indices[lines.count++] = s->worst[k];
    }
    qsort(lines.indices, lines.count, sizeof(size_t), by_index);
    return lines;
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *nearest_json(const uint8_t *line, size_t count, reef_nearest *nearest) {
    const reef_nearest_found found = reef_nearest_find(nearest, line, count);
    if (found.line == NULL) return json_null();
    char *text = reef_cli_printable(found.line, found.bytes, false);
    json_t *object =
        json_pack("{s:o, s:s}", "likeness", reef_cli_real(found.likeness), "text", text);
    free(text);
    return object;
}

void reef_score_explain_json(
    json_t *object, const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest) {
    reef_surprise_span *spans = reef_cli_alloc(count + 1, sizeof(*spans));
    size_t found = reef_surprise_spans(bits, count, spans);
    json_t *list = json_array();
    for (size_t i = 0; i < found; i++) {
        char *text = reef_cli_printable(line + spans[i].offset, spans[i].bytes, false);
        json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:s}", "offset",
                                              (json_int_t)spans[i].offset, "bytes",
                                              (json_int_t)spans[i].bytes, "bits",
                                              reef_cli_real(spans[i].bits), "text", text));
        free(text);
    }
    json_object_set_new(object, "surprising", list);
    json_object_set_new(object, "nearest", nearest_json(line, count, nearest));
    free(spans);
}

static json_t *line_json(const reef_score_reply *reply, const reef_scored_line *l) {
    const uint8_t *bytes = reply->lines->text + l->offset;
    char *text = reef_cli_printable(bytes, l->bytes, false);
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s}", "line", (json_int_t)l->number, "offset",
        (json_int_t)l->offset, "bytes", (json_int_t)l->bytes, "bits", reef_cli_real(l->bits),
        "bits_per_byte", reef_cli_real(reef_scored_line_rate(l)), "surplus_bits",
        reef_cli_real(l->surplus), "score", reef_cli_real(l->score), "text", text);
    free(text);
    if (reply->alarm != NULL && reply->sessions == NULL)
        json_object_set_new(object, "alarm", json_boolean(is_alarm(reply, l->score)));
    if (reply->explains)
        reef_score_explain_json(object, bytes, reply->lines->bits + l->offset, l->bytes,
                                reply->nearest);
    return object;
}

static json_t *session_json(const reef_score_reply *reply, const reef_session *s) {
    char *id = reef_cli_printable(s->id, s->id_bytes, false);
    json_t *worst = json_array();
    for (size_t i = 0; i < s->worst_count; i++)
        json_array_append_new(worst,
                              json_integer((json_int_t)reply->lines->lines[s->worst[i]].number));
    json_t *object = json_pack("{s:s, s:I, s:I, s:o, s:o}", "session", id, "line_count",
                               (json_int_t)s->line_count, "first_line",
                               (json_int_t)reply->lines->lines[s->first].number, "score",
                               reef_cli_real(s->score), "worst_lines", worst);
    free(id);
    if (reply->alarm != NULL)
        json_object_set_new(object, "alarm", json_boolean(is_alarm(reply, s->score)));
    return object;
}

static json_t *reply_json(const reef_score_reply *reply,
                          const choice *lines,
                          const choice *sessions) {
    json_t *array = json_array();
    for (size_t i = 0; i < lines->count; i++)
        json_array_append_new(array, line_json(reply, &reply->lines->lines[lines->indices[i]]));
    json_t *object = json_pack(
        "{s:I, s:I, s:o, s:o, s:o}", "bytes", (json_int_t)reply->score->bytes, "line_count",
        (json_int_t)reply->lines->count, "bits", reef_cli_real(reply->score->bits), "bits_per_byte",
        reef_cli_real(reply->score->bits_per_byte), "lines", array);
    if (reply->sessions != NULL) {
        json_t *list = json_array();
        for (size_t i = 0; i < sessions->count; i++)
            json_array_append_new(
                list, session_json(reply, &reply->sessions->sessions[sessions->indices[i]]));
        json_object_set_new(object, "session_count",
                            json_integer((json_int_t)reply->sessions->count));
        json_object_set_new(object, "lines_left_out",
                            json_integer((json_int_t)reply->sessions->left_out));
        json_object_set_new(object, "sessions", list);
    }
    if (reply->alarm != NULL)
        json_object_set_new(object, "alarms", reef_alarm_json(reply->alarm, count_alarms(reply)));
    return object;
}

// ---- for people ---------------------------------------------------------------------------------

void reef_score_explain_print(
    const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest, bool colours) {
    reef_surprise_print(line, bits, count, "  ", EXPLAIN_COLUMNS, colours, stdout);
    const reef_nearest_found found = reef_nearest_find(nearest, line, count);
    if (found.line == NULL) {
        printf("  no learned line that the pool keeps has anything in common with it\n");
        return;
    }
    char *text = reef_cli_printable(found.line, found.bytes, false);
    char *shown = reef_cli_cut(text, EXPLAIN_COLUMNS);
    printf("  nearest learned line, %.0f %% alike:\n  %s\n", 100 * found.likeness, shown);
    free(shown);
    free(text);
}

static void explain_lines(const reef_score_reply *reply, const choice *lines) {
    bool colours = reef_cli_colours();
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &reply->lines->lines[lines->indices[i]];
        printf("\nline %zu: score %.2f, %.1f bits, %.2f a byte\n", l->number, l->score, l->bits,
               reef_scored_line_rate(l));
        reef_score_explain_print(reply->lines->text + l->offset, reply->lines->bits + l->offset,
                                 l->bytes, reply->nearest, colours);
    }
}

// Control characters of a log must not reach the terminal.
static void put_text_cell(reef_cli_table *table, const uint8_t *bytes, size_t count) {
    char *text = reef_cli_printable(bytes, count, false);
    reef_cli_table_cell(table, "%s", text);
    free(text);
}

static void put_name_cell(reef_cli_table *table, const reef_session *s) {
    char *text = reef_cli_printable(s->id, s->id_bytes, false);
    char *shown = reef_cli_cut(text, EXPLAIN_COLUMNS);
    reef_cli_table_cell(table, "%s", shown);
    free(shown);
    free(text);
}

static void print_lines(const reef_score_reply *reply, const choice *lines) {
    static const char *const HEADING[] = {"line",    "bytes", "bits", "bits/byte",
                                          "surplus", "score", "text"};
    reef_cli_table *table = reef_cli_table_new(">>>>>><", HEADING);
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &reply->lines->lines[lines->indices[i]];
        reef_cli_table_cell(table, "%zu", l->number);
        reef_cli_table_cell(table, "%zu", l->bytes);
        reef_cli_table_cell(table, "%.1f", l->bits);
        reef_cli_table_cell(table, "%.2f", reef_scored_line_rate(l));
        reef_cli_table_cell(table, "%+.1f", l->surplus);
        reef_cli_table_cell(table, "%.2f", l->score);
        put_text_cell(table, reply->lines->text + l->offset, l->bytes);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_sessions(const reef_score_reply *reply, const choice *sessions) {
    static const char *const HEADING[] = {"session", "lines", "first",
                                          "score",   "worst", "worst line"};
    reef_cli_table *table = reef_cli_table_new("<>>>><", HEADING);
    for (size_t i = 0; i < sessions->count; i++) {
        const reef_session *s = &reply->sessions->sessions[sessions->indices[i]];
        const reef_scored_line *worst = &reply->lines->lines[s->worst[0]];
        put_name_cell(table, s);
        reef_cli_table_cell(table, "%zu", s->line_count);
        reef_cli_table_cell(table, "%zu", reply->lines->lines[s->first].number);
        reef_cli_table_cell(table, "%.2f", s->score);
        reef_cli_table_cell(table, "%zu", worst->number);
        put_text_cell(table, reply->lines->text + worst->offset, worst->bytes);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static const char *plural(size_t count) {
    return count == 1 ? "" : "s";
}

static void print_summary(const reef_score_reply *reply, size_t shown) {
    const char *path = reply->file->path;
    size_t count = reply->lines->count, all = count;
    const char *what = "line";
    char *name = reef_cli_printable((const uint8_t *)path, strlen(path), false);
    printf("%s: %zu line%s, %" PRIu64 " bytes scored, %.4f bits per byte\n", name, count,
           plural(count), reply->score->bytes, reply->score->bits_per_byte);
    free(name);
    if (reply->sessions != NULL) {
        what = "session";
        all = reply->sessions->count;
        printf("%zu session%s; %zu line%s left out, in which nothing matches\n", all, plural(all),
               reply->sessions->left_out, plural(reply->sessions->left_out));
    }
    if (reply->alarm != NULL) {
        size_t alarms = count_alarms(reply);
        printf("%zu alarm%s, above the score %.2f: at most %g %% of %zu learned %s%s exceed it\n",
               alarms, plural(alarms), reply->alarm->threshold, reply->alarm->percent,
               reply->alarm->learned, what, plural(reply->alarm->learned));
        all = alarms;
    }
    // Printed only if some were left out.
    if (shown < all) printf("the %zu most surprising %ss:\n", shown, what);
}

reef_status reef_score_reply_write(const reef_score_reply *reply,
                                   reef_cli_call *cli,
                                   reef_error *err) {
    choice sessions = {0}, lines = {0};
    if (reply->sessions != NULL) {
        sessions = choose_sessions(reply);
        lines = lines_of_sessions(reply, &sessions);
    } else {
        lines = choose_lines(reply);
    }
    reef_status status = REEF_OK;
    if (cli->json) {
        status = reef_cli_reply(cli, reply_json(reply, &lines, &sessions), err);
    } else {
        print_summary(reply, reply->sessions != NULL ? sessions.count : lines.count);
        if (reply->sessions != NULL)
            print_sessions(reply, &sessions);
        else if (!reply->explains)
            print_lines(reply, &lines);
        if (reply->explains) explain_lines(reply, &lines);
    }
    free(sessions.indices);
    free(lines.indices);
    return status;
}
