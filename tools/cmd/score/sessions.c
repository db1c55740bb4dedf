// See score_parts.h. Ids are sorted and cut into runs, so the cost in memory is some words a line,
// whatever the pattern finds.
#include "score_parts.h"

#include <stdlib.h>
#include <string.h>

// ---- lines --------------------------------------------------------------------------------------

void reef_scored_lines_init(reef_scored_lines *out,
                            const reef_line_scorer *scorer,
                            const uint8_t *text,
                            const float *bits,
                            size_t count) {
    *out = (reef_scored_lines){.text = text, .bits = bits, .count = reef_lines_count(text, count)};
    out->lines = reef_cli_alloc(out->count + 1, sizeof(*out->lines));
    reef_lines_score(scorer, text, bits, count, out->lines);
}

void reef_scored_lines_release(reef_scored_lines *lines) {
    free(lines->lines);
    *lines = (reef_scored_lines){0};
}

// ---- sessions -----------------------------------------------------------------------------------

typedef struct member {
    const uint8_t *id;
    size_t id_bytes, line;
} member;

reef_status reef_session_pattern_read(regex_t *out, const char *text, reef_error *err) {
    int code = regcomp(out, text, REG_EXTENDED);
    if (code == 0) return REEF_OK;
    char why[128];
    regerror(code, out, why, sizeof(why));
    return reef_fail(err, code == REG_ESPACE ? REEF_ERR_NO_MEMORY : REEF_ERR_INVALID,
                     "--session '%.80s' is no POSIX extended regular expression: %s", text, why);
}

// Where the id lies in a line; *bytes is 0 where it has none.
static reef_status match_id(
    const regex_t *pattern, const char *line, size_t *at, size_t *bytes, reef_error *err) {
    regmatch_t found[2];
    *bytes = 0;
    int code = regexec(pattern, line, 2, found, 0);
    if (code == REG_NOMATCH) return REEF_OK;
    if (code != 0)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to match --session in a line");
    // A group that took no part in the match is no id either.
    const regmatch_t *id = &found[pattern->re_nsub > 0 ? 1 : 0];
    if (id->rm_so < 0) return REEF_OK;
    *at = (size_t)id->rm_so;
    *bytes = (size_t)(id->rm_eo - id->rm_so);
    return REEF_OK;
}

// The lines that have an id, in their order.
static reef_status find_members(member *out,
                                size_t *count,
                                const regex_t *pattern,
                                const reef_scored_lines *lines,
                                reef_error *err) {
    size_t longest = 0;
    for (size_t i = 0; i < lines->count; i++)
        if (lines->lines[i].bytes > longest) longest = lines->lines[i].bytes;
    char *line = reef_cli_alloc(longest + 1, 1);
    reef_status status = REEF_OK;
    *count = 0;
    for (size_t i = 0; status == REEF_OK && i < lines->count; i++) {
        const uint8_t *bytes = lines->text + lines->lines[i].offset;
        size_t length = lines->lines[i].bytes, at = 0, id_bytes;
        memcpy(line, bytes, length);
        line[length] = '\0';
        // A text ends at a zero byte, a line does not.
        for (size_t k = 0; k < length; k++)
            if (line[k] == '\0') line[k] = '\1';
        status = match_id(pattern, line, &at, &id_bytes, err);
        if (status == REEF_OK && id_bytes > 0)
            out[(*count)++] = (member){.id = bytes + at, .id_bytes = id_bytes, .line = i};
    }
    free(line);
    return status;
}

static int compare_ids(const member *a, const member *b) {
    size_t both = a->id_bytes < b->id_bytes ? a->id_bytes : b->id_bytes;
    int order = memcmp(a->id, b->id, both);
    return order != 0 ? order : (a->id_bytes > b->id_bytes) - (a->id_bytes < b->id_bytes);
}

static int by_id(const void *a, const void *b) {
    const member *left = a, *right = b;
    int order = compare_ids(left, right);
    return order != 0 ? order : (left->line > right->line) - (left->line < right->line);
}

static int by_score(const void *a, const void *b) {
    const reef_session *left = a, *right = b;
    if (left->score != right->score) return left->score < right->score ? 1 : -1;
    return (left->first > right->first) - (left->first < right->first);
}

// Keeps the lines with the highest scores, in order; of equals the earlier one stays.
static void add_line(reef_session *session, const reef_scored_lines *lines, size_t line) {
    size_t at = session->worst_count;
    while (at > 0 && lines->lines[session->worst[at - 1]].score < lines->lines[line].score) at--;
    session->line_count++;
    if (at == SESSION_WORST) return;
    if (session->worst_count < SESSION_WORST) session->worst_count++;
    memmove(session->worst + at + 1, session->worst + at,
            (session->worst_count - at - 1) * sizeof(*session->worst));
    session->worst[at] = line;
}

static void set_score(reef_session *session, const reef_scored_lines *lines) {
    double sum = 0;
    for (size_t i = 0; i < session->worst_count; i++) sum += lines->lines[session->worst[i]].score;
    session->score = sum / (double)session->worst_count;
}

reef_status reef_sessions_find(reef_sessions *out,
                               const regex_t *pattern,
                               const reef_scored_lines *lines,
                               reef_error *err) {
    *out = (reef_sessions){0};
    member *members = reef_cli_alloc(lines->count + 1, sizeof(*members));
    size_t count;
    reef_status status = find_members(members, &count, pattern, lines, err);
    if (status == REEF_OK) {
        qsort(members, count, sizeof(*members), by_id);
        out->left_out = lines->count - count;
        for (size_t i = 0; i < count; i++)
            out->count += i == 0 || compare_ids(&members[i - 1], &members[i]) != 0;
        out->sessions = reef_cli_alloc(out->count + 1, sizeof(*out->sessions));
        for (size_t i = 0, next = 0; i < count; i++) {
            if (i == 0 || compare_ids(&members[i - 1], &members[i]) != 0)
                out->sessions[next++] = (reef_session){
                    .id = members[i].id, .id_bytes = members[i].id_bytes, .first = members[i].line};
            add_line(&out->sessions[next - 1], lines, members[i].line);
        }
        for (size_t i = 0; i < out->count; i++) set_score(&out->sessions[i], lines);
        qsort(out->sessions, out->count, sizeof(*out->sessions), by_score);
    }
    free(members);
    return status;
}

void reef_sessions_release(reef_sessions *sessions) {
    free(sessions->sessions);
    *sessions = (reef_sessions){0};
}
