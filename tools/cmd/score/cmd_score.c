// reef score: how surprising each line of a text is, and which lines stand out.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "cli_vectors.h"
#include "commands.h"
#include "matrix.h"
#include "score_follow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOP_DEFAULT 10
#define TEXT_COLUMNS 60 // of a line that is shown

static const reef_cli_option OPTIONS[] = {
    {"as-of", "STATE",
     "a generation, a snapshot, a moment such as yesterday, or now (default: now)"},
    CLI_OPTION_FROZEN,
    {"top", "N", "show the N most surprising lines (default: 10; 0: all, in order)"},
    {"follow", NULL,
     "print each line as it is written, across rotation of FILE; until interrupted"},
    {"outliers", NULL, "with --follow: only lines that stand out"},
    {"threshold", "X", "with --follow: how far above the usual a line stands out (default: 5)"},
    {"window", "N", "with --follow: reference lines, which show what is usual (default: 200)"},
    {"last", "N", "with --follow: begin with the last N lines of FILE, or with all (default: 10)"},
    {0},
};

const reef_cli_manual reef_score_manual = {
    .about =
        "The most surprising lines are those with the most bits above what a line of their length\n"
        "has on average in this text. FILE - is standard input.\n"
        "\n"
        "With --follow every line is printed as it comes, "
        "with its bits per byte, each byte predicted from\n"
        "what came before it, and how far that lies above the median of the last lines, in robust\n"
        "standard deviations (1.4826 times the median distance from the median); "
        "! marks those that stand\n"
        "out. A file is followed by its name, as by tail "
        "-F. Commits of a daemon are read as they come.\n"
        "--json writes a document a line. SIGINT ends it with a summary.",
    .options = OPTIONS,
    .example = "reef score reef.pool --top 5 server.log\n"
               "journalctl -n 500 | reef score reef.pool -\n"
               "reef score reef.pool --follow --frozen --outliers /var/log/syslog",
};

typedef struct line {
    size_t number;        // from 1
    size_t offset, bytes; // without the line end
    bool ended;           // the last one may lack its end
    double bits;          // with the line end: it is predicted too
    double surplus;       // bits above the text's mean for as many bytes
} line;

static size_t count_lines(const reef_cli_file *file) {
    size_t count = 0;
    for (size_t i = 0; i < file->count; i++) count += file->bytes[i] == '\n';
    return count + (file->bytes[file->count - 1] != '\n');
}

static line *cut_lines(const reef_cli_file *file, const float *bits, double mean, size_t *count) {
    *count = count_lines(file);
    line *lines = reef_cli_alloc(*count, sizeof(*lines));
    size_t at = 0;
    // The newline belongs to the bits of its line, but not to its bytes.
    for (size_t i = 0; i < *count; i++) {
        line *l = &lines[i];
        *l = (line){.number = i + 1, .offset = at};
        while (at < file->count && file->bytes[at] != '\n') l->bits += (double)bits[at++];
        l->bytes = at - l->offset;
        l->ended = at < file->count;
        if (l->ended) l->bits += (double)bits[at++];
        // How much more a line costs than the mean of the file: long normal lines do not stand out.
        l->surplus = l->bits - mean * (double)(at - l->offset);
    }
    return lines;
}

static int by_surplus(const void *a, const void *b) {
    const line *left = a, *right = b;
    if (left->surplus != right->surplus) return left->surplus < right->surplus ? 1 : -1;
    return left->number < right->number ? -1 : 1;
}

static double line_rate(const line *l) {
    return l->bits / (double)(l->bytes + l->ended);
}

static json_t *line_json(const reef_cli_file *file, const line *l) {
    char *text = reef_cli_printable(file->bytes + l->offset, l->bytes, false);
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "line", (json_int_t)l->number, "offset",
                  (json_int_t)l->offset, "bytes", (json_int_t)l->bytes, "bits",
                  reef_cli_real(l->bits), "bits_per_byte", reef_cli_real(line_rate(l)),
                  "surplus_bits", reef_cli_real(l->surplus), "text", text);
    free(text);
    return object;
}

static void print_lines(const reef_cli_file *file, const line *lines, size_t count) {
    static const char *const HEADING[] = {"line", "bytes", "bits", "bits/byte", "surplus", "text"};
    reef_cli_table *table = reef_cli_table_new(">>>>><", HEADING);
    for (size_t i = 0; i < count; i++) {
        const line *l = &lines[i];
        // Control characters of a log must not reach the terminal.
        char *text = reef_cli_printable(file->bytes + l->offset, l->bytes, false);
        // Cut by columns, so that wide characters keep the table aligned.
        char *shown = reef_cli_cut(text, TEXT_COLUMNS);
        reef_cli_table_cell(table, "%zu", l->number);
        reef_cli_table_cell(table, "%zu", l->bytes);
        reef_cli_table_cell(table, "%.1f", l->bits);
        reef_cli_table_cell(table, "%.2f", line_rate(l));
        reef_cli_table_cell(table, "%+.1f", l->surplus);
        reef_cli_table_cell(table, "%s", shown);
        free(shown);
        free(text);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static reef_status reply_score(reef_cli_call *cli,
                               const reef_cli_file *file,
                               const reef_score *score,
                               const float *bits,
                               size_t top,
                               reef_error *err) {
    size_t count;
    // Cut with the mean of this very text: a surplus compares lines of one file.
    line *lines = cut_lines(file, bits, score->bits_per_byte, &count);
    // Zero shows all lines, in the order of the file.
    size_t shown = top > 0 && top < count ? top : count;
    // Sorted only if some are left out.
    if (top > 0) qsort(lines, count, sizeof(*lines), by_surplus);
    reef_status status = REEF_OK;
    if (cli->json) {
        json_t *array = json_array();
        for (size_t i = 0; i < shown; i++) json_array_append_new(array, line_json(file, &lines[i]));
        status = reef_cli_reply(cli,
                                json_pack("{s:I, s:I, s:o, s:o, s:o}", "bytes",
                                          (json_int_t)score->bytes, "line_count", (json_int_t)count,
                                          "bits", reef_cli_real(score->bits), "bits_per_byte",
                                          reef_cli_real(score->bits_per_byte), "lines", array),
                                err);
    } else {
        char *name = reef_cli_printable((const uint8_t *)file->path, strlen(file->path), false);
        printf("%s: %zu line%s, %" PRIu64 " bytes scored, %.4f bits per byte\n", name, count,
               count == 1 ? "" : "s", score->bytes, score->bits_per_byte);
        free(name);
        // Printed only if lines were left out.
        if (shown < count) printf("the %zu most surprising lines:\n", shown);
        print_lines(file, lines, shown);
    }
    free(lines);
    return status;
}

reef_status reef_cmd_score(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_cli_file file = {0};
    reef_model *model = NULL;
    const reef_model_options options = reef_cli_model_options(cli);
    float *bits = NULL;
    reef_score score = {0};
    uint64_t top = TOP_DEFAULT;
    char as_of[REEF_NAME_BYTES_MAX + 1];

    reef_status status = reef_score_follow_check(cli, err);
    if (status != REEF_OK) return status;
    // Following is another program: it has no end and keeps a session.
    if (reef_cli_text(cli, "follow") != NULL) return reef_score_follow(cli, err);
    status = reef_cli_integer(cli, "top", 0, UINT32_MAX, &top, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    // Bits a byte need a model of bytes.
    if (status == REEF_OK)
        status =
            reef_cli_pool_wants_bytes(&pool, "reef predict names the class of each vector", err);
    if (status == REEF_OK) status = reef_cli_text_read(&file, cli->operands[0], err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool.store, as_of, err);
    if (status == REEF_OK) status = reef_model_open(&model, pool.store, as_of, &options, err);
    if (status != REEF_OK) goto cleanup;

    // One value per byte: lines are cut afterwards, so that windows do not depend on them.
    bits = reef_cli_alloc(file.count, sizeof(*bits));
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "scoring", file.count, "B");
    status = reef_score_file(model, &file, &progress, bits, &score, err);
    reef_cli_progress_end(&progress);
    if (status == REEF_OK) status = reply_score(cli, &file, &score, bits, (size_t)top, err);

cleanup:
    free(bits);
    reef_model_close(model);
    reef_cli_file_release(&file);
    reef_cli_pool_close(&pool);
    return status;
}
