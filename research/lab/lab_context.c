// reef-lab context: a new context memory on texts: losses, speed and space.
//
// Losses are the same in every round, as a memory is a function of its stream: only times differ,
// and their medians count. Times are CPU time of this thread, which is all that a memory computes
// with, so that another program on the machine makes no difference but for its caches.
#include "cli_format.h"
#include "cli_progress.h"
#include "lab.h"
#include "reef_context.h"
#include "reef_model.h"
#include "reef_system.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 65536 // between two updates of the progress bar
#define TEXT_BYTES_MAX (UINT64_C(1) << 30)

static const reef_cli_option OPTIONS[] = {
    {"memory", "SIZE", "what a memory takes at most (default: 1G)"},
    {"train-bytes", "N", "bytes of each TRAIN to learn at most (default: 1700000)"},
    {"held-bytes", "N", "bytes of each HELD to read at most (default: 65536)"},
    {"rounds", "N", "how often all is measured; the median of speeds counts (default: 1)"},
    {0},
};

const reef_cli_manual reef_lab_context_manual = {
    .about =
        "For every pair of files a new context memory learns the beginning of TRAIN in one pass,\n"
        "and then reads the beginning of HELD three times: in a session that adapts as it reads,\n"
        "in one that is frozen, and in one that is frozen and alone. Printed are the bits per "
        "byte\n"
        "of all passes, the speed of learning and reading in CPU time of one thread, how many\n"
        "lines of its tables, of 64 bytes, a learned byte reads, and the space that it takes. The\n"
        "last row has the means.",
    .options = OPTIONS,
    .example = "reef-lab context notes.txt held.txt\n"
               "reef-lab context notes.txt held.txt code.c held.c --rounds 3 --json",
};

#define FIGURE_LIST(X)                                                                             \
    X(first_pass_bits_per_byte) /* while it learns */                                              \
    X(held_out_bits_per_byte)   /* of a session that adapts */                                     \
    X(frozen_bits_per_byte)     /* of one that only finds again what it read */                    \
    X(alone_bits_per_byte)      /* of one that takes nothing from it */                            \
    X(learn_bytes_per_s)                                                                           \
    X(read_bytes_per_s) /* of the session that adapts */                                           \
    X(lines_per_byte)                                                                              \
    X(memory_bytes)                                                                                \
    X(cells_used_percent)

enum {
#define FIGURE_ENUM(name) name,
    FIGURE_LIST(FIGURE_ENUM)
#undef FIGURE_ENUM
        FIGURE_COUNT
};

static const char *const KEYS[FIGURE_COUNT] = {
#define FIGURE_KEY(name) #name,
    FIGURE_LIST(FIGURE_KEY)
#undef FIGURE_KEY
};

typedef struct text {
    const char *name;
    uint8_t *train, *held;
    size_t train_bytes, held_bytes;
    double *learn_seconds, *read_seconds; // (rounds)
    double figures[FIGURE_COUNT];
} text;

typedef struct context {
    text *texts;
    size_t text_count;
    uint64_t memory_bytes, train_bytes, held_bytes, rounds;
    float *bits; // (PIECE_BYTES)
    reef_cli_progress progress;
    uint64_t done_bytes;
    double mean[FIGURE_COUNT];
} context;

// The first bytes of a file, at most `limit`, into memory of that size, the caller's.
static reef_status read_file(
    const char *path, uint64_t limit, uint8_t **bytes, size_t *count, reef_error *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot open %.160s: %s", path, strerror(errno));
    *bytes = reef_cli_alloc((size_t)limit, 1);
    *count = fread(*bytes, 1, (size_t)limit, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!failed && *count > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_NOT_FOUND, "%.160s %s", path,
                     failed ? "cannot be read" : "is empty");
}

// Learn the bytes, or with a session only read them. The time is that of these calls alone.
static reef_status feed(context *c,
                        reef_memory *memory,
                        reef_memory_session *session,
                        size_t count,
                        const uint8_t *bytes,
                        double *bits_per_byte,
                        double *seconds,
                        reef_error *err) {
    double bits = 0;
    *seconds = 0;
    for (size_t at = 0; at < count; at += PIECE_BYTES) {
        size_t piece = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        double begin = reef_cpu_seconds();
        reef_status status =
            session != NULL
                ? reef_memory_session_read(session, bytes + at, piece, NULL, c->bits, err)
                : reef_memory_learn(memory, bytes + at, piece, NULL, c->bits, err);
        *seconds += reef_cpu_seconds() - begin;
        if (status != REEF_OK) return status;
        for (size_t i = 0; i < piece; i++) bits += (double)c->bits[i];
        c->done_bytes += piece;
        reef_cli_progress_show(&c->progress, c->done_bytes);
    }
    *bits_per_byte = bits / (double)count;
    return REEF_OK;
}

static reef_status read_held(context *c,
                             const text *one,
                             reef_memory *memory,
                             reef_memory_reading reading,
                             double *bits_per_byte,
                             double *seconds,
                             reef_error *err) {
    reef_memory_session *session = NULL;
    reef_status status = reef_memory_session_open(&session, memory, reading, err);
    if (status == REEF_OK)
        status = feed(c, memory, session, one->held_bytes, one->held, bits_per_byte, seconds, err);
    reef_memory_session_close(session);
    return status;
}

static void weigh(const reef_memory *memory, double *figures) {
    reef_memory_stats stats;
    reef_memory_read_stats(memory, &stats);
    figures[memory_bytes] = (double)stats.bytes;
    figures[cells_used_percent] = 100 * (double)stats.cells_used / (double)stats.cells;
    figures[lines_per_byte] = reef_memory_lines_a_byte(memory);
}

// A memory of its own for every text and round: none knows what another has read.
static reef_status measure_text(context *c, text *one, size_t round, reef_error *err) {
    double *figures = one->figures, ignored;
    reef_memory *memory = NULL;
    reef_status status =
        reef_memory_new(&memory, &(reef_memory_options){.bytes_max = c->memory_bytes}, err);
    if (status == REEF_OK)
        status = feed(c, memory, NULL, one->train_bytes, one->train,
                      &figures[first_pass_bits_per_byte], &one->learn_seconds[round], err);
    if (status == REEF_OK) weigh(memory, figures);
    if (status == REEF_OK)
        status = read_held(c, one, memory, REEF_READ_ADAPTING, &figures[held_out_bits_per_byte],
                           &one->read_seconds[round], err);
    if (status == REEF_OK)
        status = read_held(c, one, memory, REEF_READ_FROZEN, &figures[frozen_bits_per_byte],
                           &ignored, err);
    if (status == REEF_OK)
        status = read_held(c, one, memory, REEF_READ_ALONE, &figures[alone_bits_per_byte], &ignored,
                           err);
    reef_memory_free(memory);
    return status;
}

static reef_status measure(context *c, reef_error *err) {
    uint64_t all = 0;
    reef_status status = REEF_OK;
    for (size_t i = 0; i < c->text_count; i++)
        all += c->texts[i].train_bytes + 3 * c->texts[i].held_bytes;
    reef_cli_progress_start(&c->progress, "context memory", c->rounds * all, "B");
    for (size_t round = 0; round < c->rounds; round++)
        for (size_t i = 0; i < c->text_count && status == REEF_OK; i++)
            status = measure_text(c, &c->texts[i], round, err);
    reef_cli_progress_end(&c->progress);
    for (size_t i = 0; i < c->text_count && status == REEF_OK; i++) {
        text *one = &c->texts[i];
        one->figures[learn_bytes_per_s] =
            (double)one->train_bytes / reef_lab_median(one->learn_seconds, c->rounds, 1);
        one->figures[read_bytes_per_s] =
            (double)one->held_bytes / reef_lab_median(one->read_seconds, c->rounds, 1);
        for (size_t f = 0; f < FIGURE_COUNT; f++)
            c->mean[f] += one->figures[f] / (double)c->text_count;
    }
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static void print_row(reef_cli_table *table, const char *name, const double *figures) {
    char words[CLI_WORD_BYTES];
    reef_cli_table_cell(table, "%s", name);
    reef_cli_table_cell(table, "%.3f", figures[first_pass_bits_per_byte]);
    reef_cli_table_cell(table, "%.3f", figures[held_out_bits_per_byte]);
    reef_cli_table_cell(table, "%.3f", figures[frozen_bits_per_byte]);
    reef_cli_table_cell(table, "%.3f", figures[alone_bits_per_byte]);
    reef_cli_table_cell(table, "%.0f", 1e-3 * figures[learn_bytes_per_s]);
    reef_cli_table_cell(table, "%.0f", 1e-3 * figures[read_bytes_per_s]);
    reef_cli_table_cell(table, "%.1f", figures[lines_per_byte]);
    reef_cli_table_cell(table, "%s", reef_cli_bytes((uint64_t)figures[memory_bytes], words));
    reef_cli_table_cell(table, "%.1f", figures[cells_used_percent]);
}

static void print(const context *c) {
    static const char *const HEADING[] = {
        "bits per byte", "first pass", "held out",     "frozen", "alone",
        "learn kB/s",    "read kB/s",  "lines a byte", "memory", "cells used, %"};
    reef_cli_table *table = reef_cli_table_new("<>>>>>>>>>", HEADING);
    for (size_t i = 0; i < c->text_count; i++)
        print_row(table, c->texts[i].name, c->texts[i].figures);
    print_row(table, "mean", c->mean);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void add_figures(json_t *object, const double *figures) {
    for (size_t f = 0; f < FIGURE_COUNT; f++)
        json_object_set_new(object, KEYS[f], reef_cli_real(figures[f]));
}

static json_t *document(const context *c) {
    json_t *texts = json_array(), *mean = json_object();
    for (size_t i = 0; i < c->text_count; i++) {
        const text *one = &c->texts[i];
        json_t *object =
            json_pack("{s:o, s:I, s:I}", "train", reef_cli_path(one->name), "train_bytes",
                      (json_int_t)one->train_bytes, "held_bytes", (json_int_t)one->held_bytes);
        add_figures(object, one->figures);
        json_array_append_new(texts, object);
    }
    add_figures(mean, c->mean);
    json_t *found =
        json_pack("{s:I, s:o, s:o}", "rounds", (json_int_t)c->rounds, "texts", texts, "mean", mean);
    reef_lab_machine_json(found, 1);
    return found;
}

// ---- the command --------------------------------------------------------------------------------

static reef_status read_options(const reef_cli_call *cli, context *c, reef_error *err) {
    if (cli->operand_count % 2 != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu files are no pairs of TRAIN and HELD: '%.120s' is left over",
                         cli->operand_count, cli->operands[cli->operand_count - 1]);
    const char *memory = reef_cli_text(cli, "memory");
    reef_status status =
        memory != NULL ? reef_memory_parse(memory, &c->memory_bytes, err) : REEF_OK;
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "train-bytes", 1, TEXT_BYTES_MAX, &c->train_bytes, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "held-bytes", 1, TEXT_BYTES_MAX, &c->held_bytes, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "rounds", 1, LAB_REPEAT_MAX, &c->rounds, err);
    return status;
}

// All files before the first measurement: a wrong name must not cost the time of those before it.
static reef_status read_texts(const reef_cli_call *cli, context *c, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < c->text_count && status == REEF_OK; i++) {
        text *one = &c->texts[i];
        one->name = cli->operands[2 * i];
        one->learn_seconds = reef_cli_alloc(c->rounds, sizeof(double));
        one->read_seconds = reef_cli_alloc(c->rounds, sizeof(double));
        status = read_file(one->name, c->train_bytes, &one->train, &one->train_bytes, err);
        if (status == REEF_OK)
            status = read_file(cli->operands[2 * i + 1], c->held_bytes, &one->held,
                               &one->held_bytes, err);
    }
    return status;
}

reef_status reef_lab_context(reef_cli_call *cli, reef_error *err) {
    context c = {.train_bytes = 1700000,
                 .held_bytes = 65536,
                 .rounds = 1,
                 .text_count = cli->operand_count / 2};
    reef_status status = read_options(cli, &c, err);
    if (status != REEF_OK) return status;
    c.texts = reef_cli_alloc(c.text_count, sizeof(*c.texts));
    c.bits = reef_cli_alloc(PIECE_BYTES, sizeof(*c.bits));
    status = read_texts(cli, &c, err);
    if (status == REEF_OK) status = measure(&c, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, document(&c), err);
    else if (status == REEF_OK)
        print(&c);
    for (size_t i = 0; i < c.text_count; i++) {
        free(c.texts[i].train);
        free(c.texts[i].held);
        free(c.texts[i].learn_seconds);
        free(c.texts[i].read_seconds);
    }
    free(c.texts);
    free(c.bits);
    return status;
}
