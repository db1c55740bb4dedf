// See bench_rival.h.
//
//   text                   PPMd o12   zpaq -m5    zpaq kB/s      two blanks between names
//   text/german.txt           1.782      1.767          152      a figure has no blanks
//
// A text's name may be longer than its column, so a row is read from its end.
#include "bench_rival.h"

#include "bench_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPEED " kB/s"

// ---- one line -----------------------------------------------------------------------------------

// The length of the next name: up to two blanks, or the end of the line.
static size_t name_length(const char *line) {
    const char *gap = strstr(line, "  ");
    return gap != NULL ? (size_t)(gap - line) : strlen(line);
}

// The first column names the texts. False for a line of one column, or of too many.
static bool parse_heading(const char *line, reef_bench_rival_row *row) {
    *row = (reef_bench_rival_row){0};
    line += strspn(line, " ");
    line += name_length(line);
    line += strspn(line, " ");
    while (*line != '\0') {
        size_t length = name_length(line);
        if (row->count == BENCH_RIVAL_COLUMNS_MAX || length >= BENCH_RIVAL_NAME_BYTES) return false;
        memcpy(row->names[row->count++], line, length);
        line += length;
        line += strspn(line, " ");
    }
    return row->count > 0;
}

// The last word of the line, which is cut off it; "" when there is none.
static char *cut_word(char *line) {
    size_t end = strlen(line);
    while (end > 0 && line[end - 1] == ' ') line[--end] = '\0';
    char *blank = strrchr(line, ' ');
    if (blank == NULL) return line + end; // what is left is the text's name
    *blank = '\0';
    return blank + 1;
}

static bool parse_figure(const char *word, double *value) {
    char *end;
    *value = NAN;
    if (strcmp(word, "-") == 0) return true;
    *value = strtod(word, &end);
    return end != word && *end == '\0' && isfinite(*value);
}

// A figure under every name. Cuts the line.
static bool parse_row(char *line, reef_bench_rival_row *row) {
    for (size_t i = row->count; i > 0; i--)
        if (!parse_figure(cut_word(line), &row->values[i - 1])) return false;
    return row->count > 0;
}

// ---- the table ----------------------------------------------------------------------------------

// Cuts the text.
static bool parse_table(char *text, reef_bench_rival_row *row) {
    char *rest = NULL;
    row->count = 0;
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        reef_bench_rival_row heading;
        // Read as a heading first, as reading it as a row cuts the line.
        bool columns = parse_heading(line, &heading);
        if (parse_row(line, row)) return true;
        // Whatever was taken for the heading before has no figures below it.
        if (columns) *row = heading;
    }
    return false;
}

reef_status reef_bench_rival_run(const char *program,
                                 const char *train,
                                 const char *held,
                                 reef_bench_rival_row *out,
                                 reef_error *err) {
    char *arguments[] = {(char *)program, (char *)train, (char *)held, NULL};
    char *text;
    reef_status status = reef_bench_program_run(&text, program, arguments, err);
    if (status != REEF_OK) {
        // Who named the program chose it: its failure is a wrong argument, not one of this machine.
        if (status == REEF_ERR_IO && err != NULL) err->status = REEF_ERR_INVALID;
        return status == REEF_ERR_IO ? REEF_ERR_INVALID : status;
    }
    char *last = reef_bench_last_words(text);
    if (!parse_table(text, out))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.80s printed no table of names and figures; its last line: %.100s",
                           program, last[0] ? last : "none");
    free(last);
    free(text);
    return status;
}

size_t reef_bench_rival_speed(const reef_bench_rival_row *row) {
    size_t i = 0;
    for (; i < row->count; i++) {
        size_t length = strlen(row->names[i]);
        if (length > strlen(SPEED) && strcmp(row->names[i] + length - strlen(SPEED), SPEED) == 0)
            break;
    }
    return i;
}

bool reef_bench_rival_alike(const reef_bench_rival_row *a, const reef_bench_rival_row *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->names[i], b->names[i]) != 0) return false;
    return true;
}
