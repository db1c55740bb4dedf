// See bench_context.h.
//
// Losses are the same in every round, as a memory is a function of its stream: only times differ,
// and their medians count. Times are CPU time of this thread, which is all that a memory computes
// with, so that another program on the machine makes no difference but for its caches.
#include "bench_context.h"

#include "bench_layer.h"
#include "bench_text.h"
#include "cli_alloc.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "reef_clock.h"
#include "scratch_pool.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE_BYTES 65536 // between two updates of the progress bar
#define LINE_BYTES 64
#define LINES_A_BYTE_MAX 256 // more than a wide memory reads
#define LIMIT_BYTES 200000   // for which lines are read

typedef struct context_run {
    const reef_context_plan *plan;
    reef_context_findings *found;
    reef_bench_directory directory; // of copies for the rival
    float *bits;                    // (PIECE_BYTES)
    reef_cli_progress progress;
    uint64_t done_bytes;
} context_run;

// ---- texts --------------------------------------------------------------------------------------

// All files before the first measurement: a wrong name must not cost the time of those before it.
static reef_status read_texts(context_run *run, reef_error *err) {
    const reef_context_plan *plan = run->plan;
    for (size_t i = 0; i < plan->text_count; i++) {
        reef_context_text *text = &run->found->texts[i];
        const char *train = plan->paths[2 * i], *held = plan->paths[2 * i + 1];
        reef_status status =
            reef_bench_text_read(train, plan->train_bytes, &text->train, &text->train_bytes, err);
        if (status == REEF_OK)
            status =
                reef_bench_text_read(held, plan->held_bytes, &text->held, &text->held_bytes, err);
        if (status != REEF_OK) return status;
        text->name = reef_bench_text_name(train);
    }
    return REEF_OK;
}

// ---- copies for the rival -----------------------------------------------------------------------

// DIRECTORY/<kind>-<i>/FOLDER/FILE: a rival names a text by the end of its path, and two texts may
// have the same. *path is the caller's.
static reef_status make_folders(
    const context_run *run, const char *kind, size_t i, char **path, reef_error *err) {
    const char *name = run->found->texts[i].name;
    char *outer = reef_cli_format("%s/%s-%zu", run->directory.path, kind, i);
    char *inner = reef_cli_format("%s/%.*s", outer, (int)strcspn(name, "/"), name);
    *path = reef_cli_format("%s/%s", outer, name);
    // A name may be "./FILE": then the inner folder is the outer one.
    bool made = mkdir(outer, 0700) == 0 && (mkdir(inner, 0700) == 0 || errno == EEXIST);
    reef_status status = made ? REEF_OK : reef_cli_write_failed(inner, errno, err);
    free(outer);
    free(inner);
    return status;
}

static reef_status write_copy(const char *path,
                              const uint8_t *bytes,
                              size_t count,
                              reef_error *err) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) return reef_cli_write_failed(path, errno, err);
    bool written = fwrite(bytes, 1, count, file) == count;
    int code = errno;
    // What is buffered may fail as late as here.
    if (fclose(file) != 0 && written) {
        written = false;
        code = errno;
    }
    return written ? REEF_OK : reef_cli_write_failed(path, code, err);
}

static reef_status write_copies(context_run *run, reef_error *err) {
    reef_status status = reef_bench_directory_new(&run->directory, err);
    for (size_t i = 0; i < run->found->text_count && status == REEF_OK; i++) {
        reef_context_text *text = &run->found->texts[i];
        status = make_folders(run, "train", i, &text->rival_train, err);
        if (status == REEF_OK) status = make_folders(run, "held", i, &text->rival_held, err);
        if (status == REEF_OK)
            status = write_copy(text->rival_train, text->train, text->train_bytes, err);
        if (status == REEF_OK)
            status = write_copy(text->rival_held, text->held, text->held_bytes, err);
    }
    return status;
}

// ---- one text -----------------------------------------------------------------------------------

// Learn the bytes, or with a session only read them. The time is that of these calls alone.
static reef_status feed_bytes(context_run *run,
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
                ? reef_memory_session_read(session, bytes + at, piece, NULL, run->bits, err)
                : reef_memory_learn(memory, bytes + at, piece, NULL, run->bits, err);
        *seconds += reef_cpu_seconds() - begin;
        if (status != REEF_OK) return status;
        for (size_t i = 0; i < piece; i++) bits += (double)run->bits[i];
        run->done_bytes += piece;
        reef_cli_progress_show(&run->progress, run->done_bytes);
    }
    *bits_per_byte = bits / (double)count;
    return REEF_OK;
}

static reef_status read_held(context_run *run,
                             reef_context_text *text,
                             reef_memory *memory,
                             bool frozen,
                             double *seconds,
                             reef_error *err) {
    reef_context_figures *figures = &text->figures;
    double *bits =
        &figures->values[frozen ? CONTEXT_frozen_bits_per_byte : CONTEXT_held_out_bits_per_byte];
    reef_memory_session *session = NULL;
    reef_status status = reef_memory_session_open(&session, memory, frozen, err);
    if (status == REEF_OK)
        status = feed_bytes(run, memory, session, text->held_bytes, text->held, bits, seconds, err);
    // What inputs are worth is told of a session as users have it.
    if (status == REEF_OK && !frozen)
        reef_memory_session_inputs(session, figures->shares, figures->hits);
    reef_memory_session_close(session);
    return status;
}

static void weigh_memory(context_run *run, const reef_memory *memory, double *values) {
    reef_memory_stats stats;
    reef_memory_read_stats(memory, &stats);
    run->found->memory_bytes_max = stats.bytes_max;
    values[CONTEXT_memory_bytes] = (double)stats.bytes;
    values[CONTEXT_memory_bytes_per_byte] = (double)stats.bytes / (double)stats.learned_bytes;
    values[CONTEXT_cells_used_percent] = 100 * (double)stats.cells_used / (double)stats.cells;
    // A memory that has just begun may have no trees yet.
    values[CONTEXT_trees_used_percent] =
        stats.trees > 0 ? 100 * (double)stats.trees_used / (double)stats.trees : NAN;
}

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

// What memory alone would allow: `bytes` times, lines at random are asked for, and written to while
// those after them are on their way, as a memory does it. Returns seconds of CPU time.
static double touch_lines(uint8_t *table, size_t line_count, double lines_a_byte, size_t bytes) {
    size_t here[LINES_A_BYTE_MAX] = {0}, next[LINES_A_BYTE_MAX], count = 0;
    uint64_t seed = 88172645463325252u;
    double begin = reef_cpu_seconds(), left = 0;
    for (size_t byte = 0; byte < bytes; byte++) {
        left += lines_a_byte;
        size_t wanted = left < LINES_A_BYTE_MAX ? (size_t)left : LINES_A_BYTE_MAX;
        left -= (double)wanted;
        for (size_t i = 0; i < wanted; i++) {
            next[i] = LINE_BYTES * (next_random(&seed) % line_count);
            __builtin_prefetch(table + next[i], 1);
        }
        for (size_t i = 0; i < count; i++) table[here[i]]++;
        memcpy(here, next, wanted * sizeof(*here));
        count = wanted;
    }
    return reef_cpu_seconds() - begin;
}

static void measure_limit(const reef_memory *memory, reef_context_text *text, size_t round) {
    double *values = text->figures.values;
    size_t line_count = (size_t)values[CONTEXT_memory_bytes] / LINE_BYTES;
    uint8_t *table = reef_cli_alloc(line_count, LINE_BYTES);
    memset(table, 1, line_count * LINE_BYTES); // pages of its own
    values[CONTEXT_lines_per_byte] = reef_memory_lines_a_byte(memory);
    text->limit_seconds[round] =
        touch_lines(table, line_count, values[CONTEXT_lines_per_byte], LIMIT_BYTES);
    free(table);
}

// A memory of its own for every text and round: none knows what another has read.
static reef_status measure_text(context_run *run,
                                reef_context_text *text,
                                size_t round,
                                reef_error *err) {
    double *values = text->figures.values, frozen_seconds;
    reef_memory *memory = NULL;
    reef_status status =
        reef_memory_new(&memory, &(reef_memory_options){.bytes_max = run->plan->memory_bytes}, err);
    if (status == REEF_OK)
        status =
            feed_bytes(run, memory, NULL, text->train_bytes, text->train,
                       &values[CONTEXT_first_pass_bits_per_byte], &text->learn_seconds[round], err);
    if (status == REEF_OK) weigh_memory(run, memory, values);
    if (status == REEF_OK) measure_limit(memory, text, round);
    if (status == REEF_OK)
        status = read_held(run, text, memory, false, &text->read_seconds[round], err);
    if (status == REEF_OK) status = read_held(run, text, memory, true, &frozen_seconds, err);
    reef_memory_free(memory);
    return status;
}

// ---- the rival ----------------------------------------------------------------------------------

static reef_status measure_rival(context_run *run,
                                 reef_context_text *text,
                                 size_t round,
                                 reef_error *err) {
    const char *program = run->plan->rival;
    reef_bench_rival_row *row = &text->rows[round], *names = &run->found->rival;
    reef_status status =
        reef_bench_rival_run(program, text->rival_train, text->rival_held, row, err);
    if (status != REEF_OK) return status;
    if (names->count == 0) *names = *row;
    // Its bytes count too, or the bar would take the rival's time for ours.
    run->done_bytes += text->train_bytes + text->held_bytes;
    reef_cli_progress_show(&run->progress, run->done_bytes);
    if (reef_bench_rival_alike(names, row)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%.100s printed other columns for %.80s than before",
                     program, text->name);
}

static uint64_t all_bytes(const context_run *run) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < run->found->text_count; i++) {
        const reef_context_text *text = &run->found->texts[i];
        bytes += text->train_bytes + 2 * text->held_bytes;
        if (run->plan->rival != NULL) bytes += text->train_bytes + text->held_bytes;
    }
    return run->plan->rounds * bytes;
}

// Ours and the rival's in turns, so that a machine that becomes slower does so for both.
static reef_status measure_rounds(context_run *run, reef_error *err) {
    reef_status status = REEF_OK;
    reef_cli_progress_start(&run->progress, "context memory", all_bytes(run), "B");
    for (size_t round = 0; round < run->plan->rounds; round++)
        for (size_t i = 0; i < run->found->text_count && status == REEF_OK; i++) {
            reef_context_text *text = &run->found->texts[i];
            status = measure_text(run, text, round, err);
            if (status == REEF_OK && run->plan->rival != NULL)
                status = measure_rival(run, text, round, err);
        }
    reef_cli_progress_end(&run->progress);
    return status;
}

// ---- medians and means --------------------------------------------------------------------------

// Not a number as soon as one round has none: the others would be medians of fewer.
static double rival_median(const reef_context_text *text, size_t rounds, size_t column) {
    for (size_t r = 0; r < rounds; r++)
        if (isnan(text->rows[r].values[column])) return NAN;
    return reef_bench_median(&text->rows[0].values[column], rounds,
                             sizeof(text->rows[0]) / sizeof(double));
}

static void summarise_text(const reef_context_plan *plan,
                           const reef_bench_rival_row *rival,
                           reef_context_text *text) {
    reef_context_figures *figures = &text->figures;
    double learn = reef_bench_median(text->learn_seconds, plan->rounds, 1);
    double read = reef_bench_median(text->read_seconds, plan->rounds, 1);
    figures->values[CONTEXT_learn_bytes_per_s] = (double)text->train_bytes / learn;
    figures->values[CONTEXT_read_bytes_per_s] = (double)text->held_bytes / read;
    figures->values[CONTEXT_limit_bytes_per_s] =
        LIMIT_BYTES / reef_bench_median(text->limit_seconds, plan->rounds, 1);
    for (size_t c = 0; c < rival->count; c++)
        figures->rival[c] = rival_median(text, plan->rounds, c);
    size_t speed = reef_bench_rival_speed(rival);
    figures->rival_speed_ratio =
        speed < rival->count
            ? 1e-3 * figures->values[CONTEXT_learn_bytes_per_s] / figures->rival[speed]
            : NAN;
}

// Of every figure by itself, ratios too; not a number as soon as one text has none, as means over
// different texts cannot be compared.
static void add_to_mean(const reef_context_findings *f,
                        const reef_context_figures *from,
                        reef_context_figures *mean) {
    double part = 1 / (double)f->text_count;
    for (size_t i = 0; i < CONTEXT_FIGURE_COUNT; i++) mean->values[i] += part * from->values[i];
    for (size_t i = 0; i < reef_memory_input_count(); i++) {
        mean->shares[i] += part * from->shares[i];
        mean->hits[i] += part * from->hits[i];
    }
    for (size_t c = 0; c < f->rival.count; c++) mean->rival[c] += part * from->rival[c];
    mean->rival_speed_ratio += part * from->rival_speed_ratio;
}

static void summarise(const reef_context_plan *plan, reef_context_findings *f) {
    for (size_t i = 0; i < f->text_count; i++) {
        summarise_text(plan, &f->rival, &f->texts[i]);
        add_to_mean(f, &f->texts[i].figures, &f->mean);
    }
}

// ---- the whole ----------------------------------------------------------------------------------

static void figures_init(reef_context_figures *figures) {
    figures->shares = reef_cli_alloc(reef_memory_input_count(), sizeof(double));
    figures->hits = reef_cli_alloc(reef_memory_input_count(), sizeof(double));
}

static void figures_release(reef_context_figures *figures) {
    free(figures->shares);
    free(figures->hits);
}

static void findings_init(const reef_context_plan *plan, reef_context_findings *f) {
    *f = (reef_context_findings){.text_count = plan->text_count};
    f->texts = reef_cli_alloc(plan->text_count, sizeof(*f->texts));
    figures_init(&f->mean);
    for (size_t i = 0; i < plan->text_count; i++) {
        reef_context_text *text = &f->texts[i];
        figures_init(&text->figures);
        text->learn_seconds = reef_cli_alloc(plan->rounds, sizeof(double));
        text->read_seconds = reef_cli_alloc(plan->rounds, sizeof(double));
        text->limit_seconds = reef_cli_alloc(plan->rounds, sizeof(double));
        if (plan->rival != NULL) text->rows = reef_cli_alloc(plan->rounds, sizeof(*text->rows));
    }
}

void reef_bench_context_release(reef_context_findings *found) {
    for (size_t i = 0; i < found->text_count; i++) {
        reef_context_text *text = &found->texts[i];
        free(text->name);
        free(text->rival_train);
        free(text->rival_held);
        free(text->train);
        free(text->held);
        free(text->learn_seconds);
        free(text->read_seconds);
        free(text->limit_seconds);
        free(text->rows);
        figures_release(&text->figures);
    }
    free(found->texts);
    figures_release(&found->mean);
    *found = (reef_context_findings){0};
}

reef_status reef_bench_context_run(const reef_context_plan *plan,
                                   reef_context_findings *found,
                                   reef_error *err) {
    context_run run = {.plan = plan, .found = found};
    findings_init(plan, found);
    run.bits = reef_cli_alloc(PIECE_BYTES, sizeof(*run.bits));
    reef_status status = read_texts(&run, err);
    if (status == REEF_OK && plan->rival != NULL) status = write_copies(&run, err);
    if (status == REEF_OK) status = measure_rounds(&run, err);
    if (status == REEF_OK) summarise(plan, found);
    reef_bench_directory_remove(&run.directory);
    free(run.bits);
    return status;
}
