// reef score: how surprising each line of a text is.
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "matrix.h"
#include "score_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOP_DEFAULT 10
#define NAME_COLUMNS 96 // of a session's id

static const reef_cli_option OPTIONS[] = {
    CLI_OPTION_AS_OF,
    {"frozen", "[=alone]",
     "each line is judged by what was learned alone, not by what this text said before it"},
    {"top", "N", "show the N most surprising lines (default: 10; 0: all, in order)"},
    {"session", "REGEX", "score sessions: lines with the same match of REGEX, or of its group"},
    {"explain", NULL, "mark the bytes that were surprising, and show the nearest learned line"},
    {0},
};

const reef_cli_manual reef_score_manual = {
    .about =
        "The score of a line is its bits per byte, and the greater of these: how surprising bytes\n"
        "of its words are, and how rare its words are in the learned lines that the pool keeps.\n"
        "FILE - is standard input. Logs that are still written are for `reef watch`.\n"
        "\n"
        "REGEX is a POSIX extended regular expression. A session is all lines with the same match\n"
        "of it, or of its first group; its score is the mean of its five worst lines. Lines in\n"
        "which nothing matches are left out. --explain marks bytes that had a chance of at most 1\n"
        "in 16, and shows the learned line that is most like this one.\n"
        "\n"
        "Context memories adapt to the text, so a fault that is repeated in it becomes familiar.\n"
        "With --frozen it does not: lines are read as by `reef eval --frozen=alone`, which takes\n"
        "nothing from what the text said before. A text that no kind of the pool knows is told.",
    .options = OPTIONS,
    .example = "reef score reef.pool --top 5 server.log\n"
               "reef score reef.pool --frozen --explain server.log\n"
               "reef score reef.pool --session 'from ([0-9.]+)' server.log\n"
               "journalctl -n 500 | reef score reef.pool -",
};

// What was asked for, and what is known of the text.
typedef struct answer {
    size_t top; // at most so many, the highest first; 0: all, in order
    bool by_session, explains;
    regex_t pattern; // of sessions
    reef_cli_file file;
    reef_score score;
    double cost; // of reef_model_cost
    float *bits; // of each byte
    reef_scored_lines lines;
    reef_sessions sessions;
    reef_learned_text learned; // what `nearest` is about
    reef_nearest *nearest;
} answer;

// ---- what is shown ------------------------------------------------------------------------------

// Indices of lines or sessions, in the order in which they are shown. The caller's.
typedef struct choice {
    size_t *indices;
    size_t count;
} choice;

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

// The highest first, or with --top 0 all in the order of the text.
static choice choose_lines(const answer *a) {
    const reef_scored_lines *lines = &a->lines;
    ranked *all = reef_cli_alloc(lines->count + 1, sizeof(*all));
    size_t count = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &lines->lines[i];
        all[count++] = (ranked){l->score, i};
    }
    choice chosen = {reef_cli_alloc(count + 1, sizeof(*chosen.indices)), count};
    if (a->top > 0) qsort(all, count, sizeof(*all), by_value);
    if (a->top > 0 && a->top < count) chosen.count = a->top;
    for (size_t i = 0; i < chosen.count; i++) chosen.indices[i] = all[i].index;
    free(all);
    return chosen;
}

// Sessions come sorted by score.
static choice choose_sessions(const answer *a) {
    const reef_sessions *found = &a->sessions;
    choice chosen = {reef_cli_alloc(found->count + 1, sizeof(*chosen.indices)), 0};
    for (size_t i = 0; i < found->count; i++) {
        if (a->top > 0 && chosen.count == a->top) break;
        chosen.indices[chosen.count++] = i;
    }
    if (a->top > 0) return chosen;
    ranked *order = reef_cli_alloc(chosen.count + 1, sizeof(*order));
    for (size_t i = 0; i < chosen.count; i++)
        order[i] = (ranked){-(double)found->sessions[chosen.indices[i]].first, chosen.indices[i]};
    qsort(order, chosen.count, sizeof(*order), by_value);
    for (size_t i = 0; i < chosen.count; i++) chosen.indices[i] = order[i].index;
    free(order);
    return chosen;
}

// The lines that make the scores of sessions, each once, in the order of the text.
static choice lines_of_sessions(const answer *a, const choice *sessions) {
    choice lines = {reef_cli_alloc(sessions->count * SESSION_WORST + 1, sizeof(size_t)), 0};
    for (size_t i = 0; i < sessions->count; i++) {
        const reef_session *s = &a->sessions.sessions[sessions->indices[i]];
        for (size_t k = 0; k < s->worst_count; k++) lines.indices[lines.count++] = s->worst[k];
    }
    qsort(lines.indices, lines.count, sizeof(size_t), by_index);
    return lines;
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *line_json(const answer *a, const reef_scored_line *l) {
    const uint8_t *bytes = a->lines.text + l->offset;
    char *text = reef_cli_printable(bytes, l->bytes, false);
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "line", (json_int_t)l->number, "offset",
                  (json_int_t)l->offset, "bytes", (json_int_t)l->bytes, "bits",
                  reef_cli_real(l->bits), "bits_per_byte", reef_cli_real(reef_scored_line_rate(l)),
                  "score", reef_cli_real(l->score), "text", text);
    free(text);
    if (a->explains)
        reef_score_explain_json(object, bytes, a->lines.bits + l->offset, l->bytes, a->nearest);
    return object;
}

static json_t *session_json(const answer *a, const reef_session *s) {
    char *id = reef_cli_printable(s->id, s->id_bytes, false);
    json_t *worst = json_array();
    for (size_t i = 0; i < s->worst_count; i++)
        json_array_append_new(worst, json_integer((json_int_t)a->lines.lines[s->worst[i]].number));
    json_t *object = json_pack("{s:s, s:I, s:I, s:o, s:o}", "session", id, "line_count",
                               (json_int_t)s->line_count, "first_line",
                               (json_int_t)a->lines.lines[s->first].number, "score",
                               reef_cli_real(s->score), "worst_lines", worst);
    free(id);
    return object;
}

static json_t *reply_json(const answer *a, const choice *lines, const choice *sessions) {
    json_t *array = json_array();
    for (size_t i = 0; i < lines->count; i++)
        json_array_append_new(array, line_json(a, &a->lines.lines[lines->indices[i]]));
    json_t *object =
        json_pack("{s:I, s:I, s:o, s:o, s:b, s:o}", "bytes", (json_int_t)a->score.bytes,
                  "line_count", (json_int_t)a->lines.count, "bits", reef_cli_real(a->score.bits),
                  "bits_per_byte", reef_cli_real(a->score.bits_per_byte), "known",
                  a->cost < REEF_COST_UNKNOWN, "lines", array);
    if (a->by_session) {
        json_t *list = json_array();
        for (size_t i = 0; i < sessions->count; i++)
            json_array_append_new(list,
                                  session_json(a, &a->sessions.sessions[sessions->indices[i]]));
        json_object_set_new(object, "session_count", json_integer((json_int_t)a->sessions.count));
        json_object_set_new(object, "lines_left_out",
                            json_integer((json_int_t)a->sessions.left_out));
        json_object_set_new(object, "sessions", list);
    }
    return object;
}

// ---- for people ---------------------------------------------------------------------------------

static void explain_lines(const answer *a, const choice *lines) {
    bool colours = reef_cli_colours();
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &a->lines.lines[lines->indices[i]];
        printf("\nline %zu: score %.2f, %.1f bits, %.2f a byte\n", l->number, l->score, l->bits,
               reef_scored_line_rate(l));
        reef_score_explain_print(a->lines.text + l->offset, a->lines.bits + l->offset, l->bytes,
                                 a->nearest, colours);
    }
}

static void put_name_cell(reef_cli_table *table, const reef_session *s) {
    char *text = reef_cli_printable(s->id, s->id_bytes, false);
    char *shown = reef_cli_cut(text, NAME_COLUMNS);
    reef_cli_table_cell(table, "%s", shown);
    free(shown);
    free(text);
}

static void print_lines(const answer *a, const choice *lines) {
    static const char *const HEADING[] = {"line", "bytes", "bits", "bits/byte", "score", "text"};
    reef_cli_table *table = reef_cli_table_new(">>>>><", HEADING);
    for (size_t i = 0; i < lines->count; i++) {
        const reef_scored_line *l = &a->lines.lines[lines->indices[i]];
        reef_cli_table_cells(table, "%zu\t%zu\t%.1f\t%.2f\t%.2f", l->number, l->bytes, l->bits,
                             reef_scored_line_rate(l), l->score);
        reef_cli_table_text(table, a->lines.text + l->offset, l->bytes);
    }
    reef_cli_table_show(table);
}

static void print_sessions(const answer *a, const choice *sessions) {
    static const char *const HEADING[] = {"session", "lines", "first",
                                          "score",   "worst", "worst line"};
    reef_cli_table *table = reef_cli_table_new("<>>>><", HEADING);
    for (size_t i = 0; i < sessions->count; i++) {
        const reef_session *s = &a->sessions.sessions[sessions->indices[i]];
        const reef_scored_line *worst = &a->lines.lines[s->worst[0]];
        put_name_cell(table, s);
        reef_cli_table_cells(table, "%zu\t%zu\t%.2f\t%zu", s->line_count,
                             a->lines.lines[s->first].number, s->score, worst->number);
        reef_cli_table_text(table, a->lines.text + worst->offset, worst->bytes);
    }
    reef_cli_table_show(table);
}

static const char *plural(size_t count) {
    return count == 1 ? "" : "s";
}

static void print_summary(const answer *a, size_t shown) {
    const char *path = a->file.path;
    size_t count = a->lines.count, all = count;
    const char *what = "line";
    char *name = reef_cli_printable((const uint8_t *)path, strlen(path), false);
    printf("%s: %zu line%s, %" PRIu64 " bytes scored, %.4f bits per byte\n", name, count,
           plural(count), a->score.bytes, a->score.bits_per_byte);
    free(name);
    if (a->cost >= REEF_COST_UNKNOWN)
        printf(
            "no kind of this pool knows this text: its beginning costs %.0f %% of learning it from "
            "nothing\n",
            100 * a->cost);
    if (a->by_session) {
        what = "session";
        all = a->sessions.count;
        printf("%zu session%s; %zu line%s left out, in which nothing matches\n", all, plural(all),
               a->sessions.left_out, plural(a->sessions.left_out));
    }
    if (shown < all) printf("the %zu most surprising %ss:\n", shown, what);
}

static reef_status reply(const answer *a, reef_cli_call *cli, reef_error *err) {
    choice sessions = {0}, lines = {0};
    if (a->by_session) {
        sessions = choose_sessions(a);
        lines = lines_of_sessions(a, &sessions);
    } else {
        lines = choose_lines(a);
    }
    reef_status status = REEF_OK;
    if (cli->json) {
        status = reef_cli_reply(cli, reply_json(a, &lines, &sessions), err);
    } else {
        print_summary(a, a->by_session ? sessions.count : lines.count);
        if (a->by_session)
            print_sessions(a, &sessions);
        else if (!a->explains)
            print_lines(a, &lines);
        if (a->explains) explain_lines(a, &lines);
    }
    free(sessions.indices);
    free(lines.indices);
    return status;
}

// ---- the command --------------------------------------------------------------------------------

static reef_status read_options(answer *a, const reef_cli_call *cli, reef_error *err) {
    const char *session = reef_cli_text(cli, "session");
    a->explains = reef_cli_text(cli, "explain") != NULL;
    uint64_t top = TOP_DEFAULT;
    reef_status status = reef_cli_integer(cli, "top", 0, UINT32_MAX, &top, err);
    a->top = (size_t)top;
    if (status != REEF_OK || session == NULL) return status;
    status = reef_session_pattern_read(&a->pattern, session, err);
    a->by_session = status == REEF_OK;
    return status;
}

static reef_status score_lines(answer *a, reef_model *model, reef_error *err) {
    const reef_line_scorer *scorer;
    reef_cli_progress progress;
    a->bits = reef_cli_alloc(a->file.count, sizeof(*a->bits));
    reef_cli_progress_start(&progress, "scoring", a->file.count, "B");
    reef_status status = reef_score_file(model, &a->file, &progress, a->bits, &a->score, err);
    reef_cli_progress_end(&progress);
    if (status == REEF_OK)
        status = reef_model_cost(model, a->file.bytes, a->file.count, &a->cost, err);
    if (status == REEF_OK) status = reef_model_line_scorer(model, &scorer, err);
    // Lines are cut afterwards, so that windows do not depend on them.
    if (status == REEF_OK)
        reef_scored_lines_init(&a->lines, scorer, a->file.bytes, a->bits, a->file.count);
    return status;
}

// Sessions, and what the pool has learned, as far as it is asked for.
static reef_status find_rest(answer *a, const reef_model *model, reef_error *err) {
    reef_status status = REEF_OK;
    if (a->by_session) status = reef_sessions_find(&a->sessions, &a->pattern, &a->lines, err);
    if (status != REEF_OK || !a->explains) return status;
    reef_learned_text_read(&a->learned, model);
    a->nearest = reef_nearest_new(a->learned.bytes, a->learned.count);
    return REEF_OK;
}

static void release_answer(answer *a) {
    if (a->by_session) regfree(&a->pattern);
    reef_nearest_free(a->nearest);
    reef_learned_text_release(&a->learned);
    reef_sessions_release(&a->sessions);
    reef_scored_lines_release(&a->lines);
    free(a->bits);
    reef_cli_file_release(&a->file);
}

reef_status reef_cmd_score(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_model *model = NULL;
    answer a = {0};
    char as_of[REEF_NAME_BYTES_MAX + 1];
    reef_status status = read_options(&a, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_text_read(&a.file, cli->operands[0], err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool.store, as_of, err);
    if (status == REEF_OK) status = reef_cli_model_open(&model, cli, pool.store, as_of, err);
    // A fault that is repeated must not become familiar by what the text said before.
    if (status == REEF_OK && reef_cli_text(cli, "frozen") != NULL)
        reef_model_set_reading(model, REEF_READ_ALONE);
    if (status == REEF_OK) status = score_lines(&a, model, err);
    if (status == REEF_OK) status = find_rest(&a, model, err);
    if (status == REEF_OK) status = reply(&a, cli, err);
    release_answer(&a);
    reef_model_close(model);
    reef_cli_pool_close(&pool);
    return status;
}
