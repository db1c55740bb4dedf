// reef bench ranks: one training by one, two and more processes of one thread each, in turns, on
// this machine: what is gained, what travels, what is waited for.
#include "bench_layer.h"
#include "bench_ranks.h"
#include "bench_text.h"
#include "cli_alloc.h"
#include "cli_daemon.h"
#include "cli_format.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "commands.h"
#include "scratch_pool.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_DEFAULT 40
#define STEPS_MAX 100000
#define REPEAT_DEFAULT 3
#define REPEAT_MAX 100
#define COMMIT_STEPS_DEFAULT 20

#ifdef REEF_MPI
#define HAS_MPI true
#else
#define HAS_MPI false
#endif

static const reef_cli_option OPTIONS[] = {
    {"ranks", "LIST", "numbers of ranks with commas between; the first is 1 (default: 1,2)"},
    {"steps", "N", "training steps of a run (default: 40)"},
    {"repeat", "N", "runs of each number of ranks, in turns; medians count (default: 3)"},
    {"commit-steps", "N", "steps from one commit to the next (default: 20)"},
    {"divided", NULL,
     "of several ranks each has a part of the rows of experts, as reef shards makes"},
    {"text", "FILE", "what is trained; generated where it is not given"},
    {0},
};

const reef_cli_manual reef_bench_ranks_manual = {
    .about =
        "Starts 'mpirun -n R reefd' on temporary pools, with one thread a rank, for each R of\n"
        "--ranks in turns, and compares the roots, which must be equal. All ranks run on this\n"
        "machine: with more ranks than cores they take turns, and only CPU time says something.\n"
        "\n"
        "Times are those of rank 0. A step is computed, packed into messages, and waits for what\n"
        "others send. CPU time is that of the rank that took most: what a step would take where\n"
        "waiting costs nothing. Bytes and exchanges are what rank 0 sends to all others in a\n"
        "step. Beside them is the least that the division of the work needs, as the chapter\n"
        "about several machines counts it where all ranks have all rows. There are no\n"
        "boundaries, no context memory, and no rehearsal, unless their options are given.",
    .options = OPTIONS,
    .example = "reef bench ranks --layers 2\n"
               "reef bench ranks --layers 1 --d-model 32 --side 16 --steps 5 --repeat 1\n"
               "reef bench ranks --ffw d --batch 8 --ranks 1,2,4 --json\n"
               "reef bench ranks --divided --side 256 --d-model 64\n"
               "reef bench ranks --text /var/log/app.log --steps 200",
};

typedef struct findings {
    reef_ranks_plan plan;
    reef_config config;
    uint64_t steps, repeat;
    size_t ranks[BENCH_RANKS_MAX], count; // as asked for; the first is 1
    reef_ranks_run *runs;                 // (count, repeat)
} findings;

// ---- options ------------------------------------------------------------------------------------

static reef_status read_ranks(const reef_cli_call *cli, findings *f, reef_error *err) {
    const char *text = reef_cli_text(cli, "ranks");
    text = text != NULL ? text : "1,2";
    for (const char *at = text;; at++) {
        char *end = NULL;
        // strtoul would accept signs and spaces, so the first character must be a digit.
        unsigned long ranks = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        size_t before = f->count > 0 ? f->ranks[f->count - 1] : 0;
        bool fits = f->count > 0 ? ranks > before : ranks == 1;
        // What follows the last one is refused with it.
        if (end == NULL || (*end != ',' && *end != '\0') || !fits || ranks > BENCH_RANKS_MAX)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--ranks is '%.64s'; choose 1 and rising numbers to %d, with commas "
                             "between, such as 1,2,4",
                             text, BENCH_RANKS_MAX);
        if (ranks > f->config.batch)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--ranks is '%.64s', and a batch has %" PRIu32
                             " windows, which ranks share: choose a larger --batch",
                             text, f->config.batch);
        f->ranks[f->count++] = ranks;
        if (*end == '\0') return REEF_OK;
        at = end;
    }
}

static reef_status read_options(const reef_cli_call *cli, findings *f, reef_error *err) {
    *f = (findings){.steps = STEPS_DEFAULT, .repeat = REPEAT_DEFAULT};
    f->plan.commit_steps = COMMIT_STEPS_DEFAULT;
    reef_status status = reef_cli_integer(cli, "steps", 1, STEPS_MAX, &f->steps, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "repeat", 1, REPEAT_MAX, &f->repeat, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "commit-steps", 1, STEPS_MAX, &f->plan.commit_steps, err);
    if (status == REEF_OK) status = reef_cli_config(cli, &f->config, err);
    if (status == REEF_OK) status = reef_bench_wants_text(&f->config, err);
    if (status != REEF_OK) return status;
    // What every rank does as a whole, or only later, would hide what they share.
    if (reef_cli_text(cli, "boundaries") == NULL) f->config.boundaries = REEF_BOUNDARIES_GIVEN;
    if (reef_cli_text(cli, "rehearse") == NULL) f->config.rehearse = 0;
    if (reef_cli_text(cli, "context-memory") == NULL) f->config.context_memory = 0;
    if (reef_cli_text(cli, "net-share") == NULL) f->config.net_share = 1.0f;
    f->plan.config = &f->config;
    f->plan.divided = reef_cli_text(cli, "divided") != NULL;
    f->plan.step_tokens = (uint64_t)f->config.batch * f->config.context;
    return read_ranks(cli, f, err);
}

// ---- measuring ----------------------------------------------------------------------------------

// The stream of all runs, in a file of the directory: the first bytes of FILE, or generated ones.
static reef_status write_text(const reef_cli_call *cli, const findings *f, reef_error *err) {
    size_t count = (size_t)(f->steps * f->plan.step_tokens) + f->config.batch;
    const char *path = reef_cli_text(cli, "text");
    uint8_t *text = NULL;
    reef_status status = REEF_OK;
    if (path != NULL)
        status = reef_bench_text_read(path, count, &text, &count, err);
    else
        text = reef_bench_text(count);
    // The last byte of a step is followed by the one that it predicts.
    if (status == REEF_OK && count <= f->plan.step_tokens)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.160s has %zu bytes, and a step takes %" PRIu64 " and one more", path,
                           count, f->plan.step_tokens);
    FILE *file = status == REEF_OK ? fopen(f->plan.text, "wb") : NULL;
    if (status == REEF_OK && (file == NULL || fwrite(text, 1, count, file) != count))
        status = reef_fail(err, REEF_ERR_IO, "cannot write %.160s", f->plan.text);
    if (file != NULL && fclose(file) != 0 && status == REEF_OK)
        status = reef_fail(err, REEF_ERR_IO, "cannot write %.160s", f->plan.text);
    free(text);
    return status;
}

static reef_status measure(findings *f, reef_error *err) {
    reef_cli_progress progress;
    reef_status status = REEF_OK;
    reef_cli_progress_start(&progress, "ranks", f->repeat * f->count, "runs");
    // In turns: other load on the machine meets all numbers of ranks alike.
    for (uint64_t round = 0; round < f->repeat && status == REEF_OK; round++)
        for (size_t i = 0; i < f->count && status == REEF_OK; i++) {
            status =
                reef_bench_ranks_run(&f->plan, f->ranks[i], &f->runs[i * f->repeat + round], err);
            reef_cli_progress_show(&progress, round * f->count + i + 1);
        }
    reef_cli_progress_end(&progress);
    return status;
}

static bool roots_are_equal(const findings *f) {
    for (size_t i = 1; i < f->count * f->repeat; i++)
        if (strcmp(f->runs[i].root, f->runs[0].root) != 0) return false;
    return true;
}

// ---- answers ------------------------------------------------------------------------------------

// Of a figure, at this offset of a run; for a number of ranks.
static double median_of(const findings *f, size_t i, size_t offset) {
    double values[REPEAT_MAX];
    for (uint64_t round = 0; round < f->repeat; round++)
        memcpy(&values[round], (const char *)&f->runs[i * f->repeat + round] + offset,
               sizeof(values[round]));
    return reef_bench_median(values, (size_t)f->repeat, 1);
}

// Each round by itself: both were measured one after the other.
static double speedup_of(const findings *f, size_t i, size_t offset) {
    double values[REPEAT_MAX], one, many;
    for (uint64_t round = 0; round < f->repeat; round++) {
        memcpy(&one, (const char *)&f->runs[round] + offset, sizeof(one));
        memcpy(&many, (const char *)&f->runs[i * f->repeat + round] + offset, sizeof(many));
        values[round] = one / many;
    }
    return reef_bench_median(values, (size_t)f->repeat, 1);
}

#define MEDIAN(f, i, field) median_of(f, i, offsetof(reef_ranks_run, field))
#define SPEEDUP(f, i, field) speedup_of(f, i, offsetof(reef_ranks_run, field))

static double memory_of(const findings *f, size_t i, size_t rank) {
    return median_of(f, i, offsetof(reef_ranks_run, memory_peak_bytes) + rank * sizeof(double));
}

// Where rows are divided, what has to travel depends on which were chosen.
static double least_of(const findings *f, size_t i) {
    if (f->plan.divided && f->ranks[i] > 1) return (double)NAN;
    return reef_bench_ranks_least_bytes(&f->config, f->ranks[i]);
}

static json_t *run_json(const findings *f, size_t i) {
    size_t ranks = f->ranks[i];
    json_t *memory = json_array(), *seconds = json_object();
    for (size_t r = 0; r < ranks; r++)
        json_array_append_new(memory, reef_cli_real(memory_of(f, i, r)));
#define SET_TIME(name)                                                                             \
    json_object_set_new(seconds, #name, reef_cli_real(MEDIAN(f, i, seconds.name)));
    REEF_RANKS_TIME_LIST(SET_TIME)
#undef SET_TIME
    double step = MEDIAN(f, i, step_seconds);
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "ranks",
                     (json_int_t)ranks, "step_seconds", reef_cli_real(step), "tokens_per_s",
                     reef_cli_real((double)f->plan.step_tokens / step), "speedup",
                     reef_cli_real(SPEEDUP(f, i, step_seconds)), "cpu_step_seconds",
                     reef_cli_real(MEDIAN(f, i, cpu_seconds)), "cpu_speedup",
                     reef_cli_real(SPEEDUP(f, i, cpu_seconds)), "sent_bytes_per_step",
                     reef_cli_real(MEDIAN(f, i, sent_bytes)), "least_bytes_per_step",
                     reef_cli_real(least_of(f, i)), "exchanges_per_step",
                     reef_cli_real(MEDIAN(f, i, exchanges)), "seconds_in", seconds,
                     "memory_peak_bytes", memory);
}

static json_t *findings_json(const findings *f) {
    json_t *runs = json_array();
    for (size_t i = 0; i < f->count; i++) json_array_append_new(runs, run_json(f, i));
    return json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:b, s:s, s:o}", "ffw", f->config.ffw,
                     "tokens_per_step", (json_int_t)f->plan.step_tokens, "steps",
                     (json_int_t)f->runs[0].steps, "repeat", (json_int_t)f->repeat, "kernels",
                     reef_kernels_name(), "blas", reef_gemm_name(), "same_roots",
                     roots_are_equal(f), "root", f->runs[0].root, "runs", runs);
}

static void print_speed(const findings *f) {
    static const char *const HEADING[] = {"ranks", "tokens/s", "step ms", "gain",     "CPU ms",
                                          "gain",  "MB sent",  "least",   "exchanges"};
    char words[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new(">>>>>>>>>", HEADING);
    for (size_t i = 0; i < f->count; i++) {
        double step = MEDIAN(f, i, step_seconds);
        reef_cli_table_cell(table, "%zu", f->ranks[i]);
        reef_cli_table_cell(table, "%s",
                            reef_cli_count((uint64_t)((double)f->plan.step_tokens / step), words));
        reef_cli_table_cell(table, "%.2f", 1e3 * step);
        reef_cli_table_cell(table, "%.2f", SPEEDUP(f, i, step_seconds));
        reef_cli_table_cell(table, "%.2f", 1e3 * MEDIAN(f, i, cpu_seconds));
        reef_cli_table_cell(table, "%.2f", SPEEDUP(f, i, cpu_seconds));
        reef_cli_table_cell(table, "%.3f", 1e-6 * MEDIAN(f, i, sent_bytes));
        double least = least_of(f, i);
        if (isnan(least))
            reef_cli_table_cell(table, "-");
        else
            reef_cli_table_cell(table, "%.3f", 1e-6 * least);
        reef_cli_table_cell(table, "%.1f", MEDIAN(f, i, exchanges));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_shares(const findings *f) {
#define TIME_HEADING(name) #name " %",
    static const char *const HEADING[] = {"ranks",
                                          REEF_RANKS_TIME_LIST(TIME_HEADING) "memory of each rank"};
#undef TIME_HEADING
    char words[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new(">>>>>><", HEADING);
    for (size_t i = 0; i < f->count; i++) {
        double all = 0;
        reef_cli_table_cell(table, "%zu", f->ranks[i]);
        // Shares of the parts' own sum: medians of parts need not add up to the median step.
#define ADD_TIME(name) all += MEDIAN(f, i, seconds.name);
        REEF_RANKS_TIME_LIST(ADD_TIME)
#undef ADD_TIME
#define TIME_CELL(name) reef_cli_table_cell(table, "%.1f", 100 * MEDIAN(f, i, seconds.name) / all);
        REEF_RANKS_TIME_LIST(TIME_CELL)
#undef TIME_CELL
        // One cell for all ranks: how many there are differs from row to row.
        char *memory = reef_cli_format("%s", "");
        for (size_t r = 0; r < f->ranks[i]; r++) {
            char *longer = reef_cli_format("%s%s%s", memory, r > 0 ? ", " : "",
                                           reef_cli_bytes((uint64_t)memory_of(f, i, r), words));
            free(memory);
            memory = longer;
        }
        reef_cli_table_cell(table, "%s", memory);
        free(memory);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_findings(const findings *f) {
    printf("%" PRIu64 " steps of %" PRIu64 " tokens (--ffw %s), %" PRIu64
           " times each; %s kernels, one thread a rank\n\n",
           f->runs[0].steps, f->plan.step_tokens, f->config.ffw, f->repeat, reef_kernels_name());
    print_speed(f);
    putchar('\n');
    print_shares(f);
    printf("\nroots     %s\n", roots_are_equal(f) ? "all equal" : "DIFFER: this is a bug");
}

// ---- the command --------------------------------------------------------------------------------

static reef_status run_in(const reef_cli_call *cli,
                          findings *f,
                          const reef_bench_directory *directory,
                          reef_error *err) {
    char *reefd = reef_cli_daemon_path(), *text = reef_cli_format("%s/text", directory->path);
    f->plan.directory = directory->path;
    f->plan.text = text;
    f->plan.reefd = reefd;
    f->runs = reef_cli_alloc(f->count * f->repeat, sizeof(*f->runs));
    reef_status status = REEF_OK;
    if (reefd == NULL)
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "there is no program " CLI_DAEMON_NAME
                           ", neither beside this one nor in PATH");
    if (status == REEF_OK) status = write_text(cli, f, err);
    if (status == REEF_OK) status = measure(f, err);
    free(reefd);
    free(text);
    return status;
}

reef_status reef_cmd_bench_ranks(reef_cli_call *cli, reef_error *err) {
    findings f;
    reef_bench_directory directory = {0};
    if (!HAS_MPI)
        return reef_fail(err, REEF_ERR_INVALID,
                         "this Reef was built without MPI, so it has no ranks: install "
                         "libopenmpi-dev and build it with REEF_MPI=ON");
    reef_status status = read_options(cli, &f, err);
    if (status != REEF_OK) return status;
    status = reef_bench_directory_new(&directory, err);
    if (status == REEF_OK) status = run_in(cli, &f, &directory, err);
    reef_bench_directory_remove(&directory);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, findings_json(&f), err);
    else if (status == REEF_OK)
        print_findings(&f);
    // Printed first and then failed: the figures help to find what is wrong.
    if (status == REEF_OK && !roots_are_equal(&f))
        status = reef_fail(err, REEF_ERR_CORRUPT, "the roots of some ranks differ");
    free(f.runs);
    return status;
}
