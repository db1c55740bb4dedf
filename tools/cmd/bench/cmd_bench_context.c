// reef bench context: a new context memory on one's own texts: losses, speed and space, beside
// another program.
#include "bench_context.h"
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const reef_cli_option OPTIONS[] = {
    {"rival", "PROGRAM", "program that measures the same bytes otherwise"},
    {"memory", "SIZE", "what a memory takes at most, 4M to 512M (default: 64M)"},
    {"train-bytes", "N", "bytes of each TRAIN to learn at most (default: 1700000)"},
    {"held-bytes", "N", "bytes of each HELD to read at most (default: 65536)"},
    {"rounds", "N", "how often all is measured; the median of speeds counts (default: 1)"},
    {0},
};

const reef_cli_manual reef_bench_context_manual = {
    .about =
        "For every pair of files a new context memory learns the beginning of TRAIN in one pass,\n"
        "and then reads the beginning of HELD twice: in a session that adapts as it reads, and in\n"
        "one that is frozen. Printed are the bits per byte of all three passes, the speed of\n"
        "learning and reading in CPU time of one thread, how many lines of its tables, of 64\n"
        "bytes, a learned byte reads, and how fast a loop is that does nothing but write to so\n"
        "many at random (the limit that the machine's memory sets), the space that it takes, and\n"
        "what each input of its mixer was worth to the session that adapts: its share of the log\n"
        "odds, and in how many bytes it had something to say. The last row has the means.\n"
        "\n"
        "A baseline is run as `PROGRAM TRAIN HELD` for one pair after the other, in turns with\n"
        "the memory, on copies below TMPDIR that are cut to the same bytes and named FOLDER/FILE.\n"
        "It prints a table: a heading with two blanks or more between the names of its columns,\n"
        "and a row with the name of the text and a figure, or -, in each of the others. They are\n"
        "printed beside ours. Where a column is called `NAME kB/s`, it is compared with the speed\n"
        "of learning.",
    .options = OPTIONS,
    .example = "reef bench context notes.txt held.txt\n"
               "reef bench context notes.txt held.txt code.c held.c --rounds 3 --json\n"
               "reef bench context wiki.txt wiki.held --memory 32M --rival ./compressors",
};

static reef_status read_plan(const reef_cli_call *cli, reef_context_plan *plan, reef_error *err) {
    *plan = (reef_context_plan){.paths = cli->operands,
                                .text_count = cli->operand_count / 2,
                                .memory_bytes = cli->memory_bytes,
                                .train_bytes = 1700000,
                                .held_bytes = 65536,
                                .rounds = 1,
                                .rival = reef_cli_text(cli, "rival")};
    if (cli->operand_count % 2 != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu files are no pairs of TRAIN and HELD: '%.120s' is left over",
                         cli->operand_count, cli->operands[cli->operand_count - 1]);
    reef_status status =
        reef_cli_integer(cli, "train-bytes", 1, BENCH_CONTEXT_BYTES_MAX, &plan->train_bytes, err);
    if (status == REEF_OK)
        status =
            reef_cli_integer(cli, "held-bytes", 1, BENCH_CONTEXT_BYTES_MAX, &plan->held_bytes, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "rounds", 1, BENCH_CONTEXT_ROUNDS_MAX, &plan->rounds, err);
    return status;
}

// ---- for people ---------------------------------------------------------------------------------

static void number_cell(reef_cli_table *table, int decimals, double value) {
    if (isfinite(value))
        reef_cli_table_cell(table, "%.*f", decimals, value);
    else
        reef_cli_table_cell(table, "-");
}

// As many decimals as each kind of figure deserves, whatever its column is called.
static void rival_cell(reef_cli_table *table, double value) {
    number_cell(table, fabs(value) < 100 ? 3 : 0, value);
}

// "times zpaq's speed", of the column "zpaq kB/s". On the heap.
static char *ratio_heading(const reef_bench_rival_row *rival, size_t speed) {
    const char *name = rival->names[speed];
    return reef_cli_format("times %.*s's speed", (int)(strlen(name) - strlen(" kB/s")), name);
}

static void losses_row(reef_cli_table *table,
                       const char *name,
                       const reef_bench_rival_row *rival,
                       const reef_context_figures *f) {
    reef_cli_table_cell(table, "%s", name);
    number_cell(table, 3, f->values[CONTEXT_first_pass_bits_per_byte]);
    number_cell(table, 3, f->values[CONTEXT_held_out_bits_per_byte]);
    number_cell(table, 3, f->values[CONTEXT_frozen_bits_per_byte]);
    number_cell(table, 0, 1e-3 * f->values[CONTEXT_learn_bytes_per_s]);
    number_cell(table, 0, 1e-3 * f->values[CONTEXT_read_bytes_per_s]);
    number_cell(table, 1, f->values[CONTEXT_lines_per_byte]);
    number_cell(table, 0, 1e-3 * f->values[CONTEXT_limit_bytes_per_s]);
    for (size_t c = 0; c < rival->count; c++) rival_cell(table, f->rival[c]);
    if (reef_bench_rival_speed(rival) < rival->count) number_cell(table, 2, f->rival_speed_ratio);
}

// Bits per byte, speeds, and whatever the rival has printed, side by side.
static void print_losses(const reef_context_findings *f) {
    const char *heading[9 + BENCH_RIVAL_COLUMNS_MAX] = {"bits per byte", "first pass", "held out",
                                                        "frozen",        "learn kB/s", "read kB/s",
                                                        "lines a byte",  "limit kB/s"};
    char letters[] = "<>>>>>>>>>>>>>>>>>>>>>>>>";
    _Static_assert(sizeof(letters) == 10 + BENCH_RIVAL_COLUMNS_MAX, "a letter for each column");
    size_t columns = 8, speed = reef_bench_rival_speed(&f->rival);
    char *ratio = speed < f->rival.count ? ratio_heading(&f->rival, speed) : NULL;
    for (size_t c = 0; c < f->rival.count; c++) heading[columns++] = f->rival.names[c];
    if (ratio != NULL) heading[columns++] = ratio;
    letters[columns] = '\0';
    reef_cli_table *table = reef_cli_table_new(letters, heading);
    for (size_t i = 0; i < f->text_count; i++)
        losses_row(table, f->texts[i].name, &f->rival, &f->texts[i].figures);
    losses_row(table, "mean", &f->rival, &f->mean);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    free(ratio);
}

static void space_row(reef_cli_table *table, const char *name, const reef_context_figures *f) {
    char words[CLI_WORD_BYTES];
    reef_cli_table_cell(table, "%s", name);
    reef_cli_table_cell(table, "%s",
                        reef_cli_bytes((uint64_t)f->values[CONTEXT_memory_bytes], words));
    number_cell(table, 1, f->values[CONTEXT_memory_bytes_per_byte]);
    number_cell(table, 1, f->values[CONTEXT_cells_used_percent]);
    number_cell(table, 1, f->values[CONTEXT_trees_used_percent]);
}

static void print_space(const reef_context_findings *f) {
    static const char *const HEADING[] = {"space", "memory", "bytes per byte", "cells used, %",
                                          "trees used, %"};
    reef_cli_table *table = reef_cli_table_new("<>>>>", HEADING);
    for (size_t i = 0; i < f->text_count; i++)
        space_row(table, f->texts[i].name, &f->texts[i].figures);
    space_row(table, "mean", &f->mean);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// Inputs that never had a hit are left out: the net, or inputs that only wide memories have.
static void print_inputs(const reef_context_findings *f) {
    static const char *const HEADING[] = {"input", "share, %", "bytes with a hit, %"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < reef_memory_input_count(); i++) {
        if (f->mean.hits[i] <= 0) continue;
        reef_cli_table_cell(table, "%s", reef_memory_input_name(i));
        number_cell(table, 1, 100 * f->mean.shares[i]);
        number_cell(table, 1, 100 * f->mean.hits[i]);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_findings(const reef_context_plan *plan, const reef_context_findings *f) {
    char learned[CLI_WORD_BYTES], read[CLI_WORD_BYTES], bound[CLI_WORD_BYTES];
    // What was asked for comes first: figures of other lengths or bounds cannot be compared.
    printf("at most %s bytes learned and %s read of each text; a memory takes at most %s; ",
           reef_cli_count(plan->train_bytes, learned), reef_cli_count(plan->held_bytes, read),
           reef_cli_bytes(f->memory_bytes_max, bound));
    printf("%" PRIu64 " %s\n\n", plan->rounds, plan->rounds == 1 ? "round" : "rounds");
    print_losses(f);
    putchar('\n');
    print_space(f);
    putchar('\n');
    print_inputs(f);
}

// ---- for programs -------------------------------------------------------------------------------

static json_t *inputs_json(const reef_context_figures *figures) {
    json_t *inputs = json_array();
    for (size_t i = 0; i < reef_memory_input_count(); i++)
        json_array_append_new(inputs,
                              json_pack("{s:s, s:o, s:o}", "name", reef_memory_input_name(i),
                                        "share", reef_cli_real(figures->shares[i]), "hits",
                                        reef_cli_real(figures->hits[i])));
    return inputs;
}

// Under the names that the rival gave its columns; null without a rival.
static json_t *rival_json(const reef_bench_rival_row *rival, const reef_context_figures *figures) {
    if (rival->count == 0) return json_null();
    json_t *object = json_object();
    for (size_t c = 0; c < rival->count; c++) {
        // A name is the program's output, and JSON takes nothing but UTF-8.
        char *name =
            reef_cli_printable((const uint8_t *)rival->names[c], strlen(rival->names[c]), false);
        json_object_set_new(object, name, reef_cli_real(figures->rival[c]));
        free(name);
    }
    return object;
}

// A text and the mean have the same figures, added to what `object` says of either.
static json_t *figures_json(json_t *object,
                            const reef_bench_rival_row *rival,
                            const reef_context_figures *figures) {
    static const char *const KEYS[CONTEXT_FIGURE_COUNT] = {
#define FIGURE_KEY(name) #name,
        CONTEXT_FIGURE_LIST(FIGURE_KEY)
#undef FIGURE_KEY
    };
    for (size_t i = 0; i < CONTEXT_FIGURE_COUNT; i++)
        json_object_set_new(object, KEYS[i], reef_cli_real(figures->values[i]));
    json_object_set_new(object, "inputs", inputs_json(figures));
    json_object_set_new(object, "rival", rival_json(rival, figures));
    json_object_set_new(object, "rival_speed_ratio", reef_cli_real(figures->rival_speed_ratio));
    return object;
}

static json_t *text_json(const reef_context_plan *plan, const reef_context_findings *f, size_t i) {
    const reef_context_text *text = &f->texts[i];
    json_t *object =
        json_pack("{s:o, s:o, s:I, s:I}", "train", reef_cli_path(plan->paths[2 * i]), "held",
                  reef_cli_path(plan->paths[2 * i + 1]), "train_bytes",
                  (json_int_t)text->train_bytes, "held_bytes", (json_int_t)text->held_bytes);
    return figures_json(object, &f->rival, &text->figures);
}

static json_t *findings_json(const reef_context_plan *plan, const reef_context_findings *f) {
    json_t *texts = json_array();
    for (size_t i = 0; i < f->text_count; i++) json_array_append_new(texts, text_json(plan, f, i));
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "train_bytes_max",
                     (json_int_t)plan->train_bytes, "held_bytes_max", (json_int_t)plan->held_bytes,
                     "memory_bytes_max", (json_int_t)f->memory_bytes_max, "rounds",
                     (json_int_t)plan->rounds, "rival_program",
                     plan->rival != NULL ? reef_cli_path(plan->rival) : json_null(), "texts", texts,
                     "mean", figures_json(json_object(), &f->rival, &f->mean));
}

reef_status reef_cmd_bench_context(reef_cli_call *cli, reef_error *err) {
    reef_context_plan plan;
    reef_context_findings f = {0};
    reef_status status = read_plan(cli, &plan, err);
    if (status == REEF_OK) status = reef_bench_context_run(&plan, &f, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, findings_json(&plan, &f), err);
    else if (status == REEF_OK)
        print_findings(&plan, &f);
    reef_bench_context_release(&f);
    return status;
}
