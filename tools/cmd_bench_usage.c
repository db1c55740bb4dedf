// reef bench usage: usage over time of a simulated year, how large it becomes, and whether every sum is exact.
//
// Commits come at simulated times, each with some experts chosen at random, and go through the store's own
// calls; compaction takes its steps in between, each a transaction. Many commits share one transaction,
// or a year of them would be three million syncs of the disk. What was used is remembered beside the pool
// as one number a commit that is linear in the uses (a random weight for each expert's count and score),
// so that every hour and every day can be compared with what the pool says of it.
#include "bench.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_MS UINT64_C(86400000)
#define HOUR_MS UINT64_C(3600000)
#define START_MS (UINT64_C(19723) * DAY_MS) // 2024-01-01
#define BATCH_MS (HOUR_MS / 4)              // commits of so long share a transaction
#define BLOCK_ROWS 128u // experts of a record of totals; d_model 128 has as many
#define EXPERTS_MAX (UINT64_C(1) << 24)
#define DELTAS_CHECKED_MAX 1000

static const cli_option OPTIONS[] = {
    {"days", "N", "days to simulate (default: 365)"},
    {"experts", "N", "experts of the pool (default: 65536)"},
    {"used", "N", "different experts used by a commit (default: 4096)"},
    {"interval", "S", "seconds from one commit to the next (default: 10)"},
    {0},
};

const cli_manual bench_usage_manual = {
    .about =
        "Writes the usage of a simulated year to a temporary pool below TMPDIR, one commit every "
        "10 "
        "s with\n"
        "4,096 used experts each, and lets compaction run as a daemon does. Afterwards every day "
        "and "
        "every\n"
        "hour that the pool still knows is compared with what was used then, and the rest with the "
        "totals.\n"
        "Bytes an expert are those of all records of usage, totals included, beyond the fixed "
        "part, "
        "which is\n"
        "what windows may take in a pool of any size.",
    .options = OPTIONS,
    .example = "reef bench usage\n"
               "reef bench usage --days 10 --json\n"
               "reef bench usage --days 3 --experts 1048576",
};

typedef struct plan {
    uint64_t days, experts, used, interval; // interval in seconds
    uint64_t commits, interval_ms;
} plan;

typedef struct findings {
    reef_usage_stat stat;
    uint64_t bytes, bytes_fixed, used_bytes; // records; of them the fixed part; pages of the pool
    double bytes_per_expert;
    uint64_t steps;
    double longest_ms, longest_cpu_ms; // of a step; the former waits for the disk
    double seconds;
    uint64_t days_checked, hours_checked, commits_checked, wrong;
} findings;

typedef struct simulation {
    const plan *plan;
    reef_store *store;
    uint64_t commits;    // so far
    uint64_t *totals;    // (experts, 2)
    uint64_t *sums;      // (experts, 2) room for the comparison
    uint64_t *prints;    // (commits) what each used, as one number
    uint64_t *weights;   // (experts, 2) of a count and of a score in it
    reef_usage_use *use; // (used)
    findings *found;
} simulation;

// ---- what is used --------------------------------------------------------------------------------

// SplitMix64 (Steele et al. 2014).
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t print_of(const simulation *s, uint64_t expert, uint64_t count, uint64_t score) {
    return count * s->weights[2 * expert] + score * s->weights[2 * expert + 1];
}

// The experts of a commit: one from each of `used` equal pieces of the pool, so that they differ and rise.
static void draw_uses(simulation *s) {
    const plan *p = s->plan;
    uint64_t print = 0;
    for (uint64_t i = 0; i < p->used; i++) {
        uint64_t random = mix(s->commits * p->used + i + 1);
        uint64_t low = i * p->experts / p->used, high = (i + 1) * p->experts / p->used;
        uint64_t expert = low + (random >> 32) % (high - low);
        uint64_t count = 1 + random % 3, score = count * (random >> 44);
        s->use[i] = (reef_usage_use){.expert = (uint32_t)expert, .count = count, .score = score};
        s->totals[2 * expert] += count;
        s->totals[2 * expert + 1] += score;
        print += print_of(s, expert, count, score);
    }
    s->prints[s->commits] = print;
}

static uint64_t commit_ms(const simulation *s, uint64_t commit) {
    return START_MS + commit * s->plan->interval_ms;
}

static uint64_t now_ms(const simulation *s) {
    return commit_ms(s, s->commits);
}

// ---- the year ------------------------------------------------------------------------------------

// As a trainer writes them; without deltas, which are written commit by commit.
static reef_status put_totals(simulation *s, reef_txn *txn, reef_error *err) {
    for (uint64_t first = 0; first < s->plan->experts; first += BLOCK_ROWS) {
        uint64_t left = s->plan->experts - first, rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        const reef_key key = {.db = REEF_DB_USAGE, .block = (uint32_t)(first / BLOCK_ROWS)};
        reef_status status =
            reef_record_put(txn, &key, REEF_U64, s->totals + 2 * first, 16 * rows, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// The commits until `until_ms` in one transaction, with the totals when a day has ended.
static reef_status commit_batch(simulation *s, uint64_t until_ms, reef_error *err) {
    reef_txn *txn = NULL;
    uint64_t day = now_ms(s) / DAY_MS;
    reef_status status = reef_txn_begin(&txn, s->store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    while (status == REEF_OK && s->commits < s->plan->commits && now_ms(s) < until_ms) {
        draw_uses(s);
        status = reef_usage_add(txn, 0, 0, s->plan->used, s->use, now_ms(s), err);
        s->commits++;
    }
    if (status == REEF_OK && (now_ms(s) / DAY_MS != day || s->commits == s->plan->commits))
        status = put_totals(s, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    reef_commit commit = {.step = s->commits, .unix_ms = now_ms(s)};
    return reef_txn_commit(txn, &commit, err);
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static reef_status compact(simulation *s, reef_error *err) {
    for (;;) {
        reef_usage_compaction done;
        double begin = cli_clock(), cpu_begin = cpu_seconds();
        reef_status status = reef_store_compact(s->store, now_ms(s), &done, NULL, err);
        if (status != REEF_OK || (done.merged == 0 && done.dropped == 0)) return status;
        double ms = 1000 * (cli_clock() - begin), cpu_ms = 1000 * (cpu_seconds() - cpu_begin);
        if (ms > s->found->longest_ms) s->found->longest_ms = ms;
        if (cpu_ms > s->found->longest_cpu_ms) s->found->longest_cpu_ms = cpu_ms;
        s->found->steps++;
    }
}

static reef_status simulate(simulation *s, reef_error *err) {
    cli_progress progress;
    reef_status status = REEF_OK;
    cli_progress_start(&progress, "a simulated year", s->plan->days, "days");
    while (status == REEF_OK && s->commits < s->plan->commits) {
        uint64_t until = now_ms(s) / BATCH_MS * BATCH_MS + BATCH_MS;
        status = commit_batch(s, until, err);
        if (status == REEF_OK) status = compact(s, err);
        cli_progress_show(&progress, (now_ms(s) - START_MS) / DAY_MS);
    }
    cli_progress_end(&progress);
    return status;
}

// ---- is it exact? --------------------------------------------------------------------------------

static uint64_t expected(const simulation *s, uint64_t from_ms, uint64_t to_ms) {
    uint64_t print = 0;
    uint64_t first = (from_ms - START_MS + s->plan->interval_ms - 1) / s->plan->interval_ms;
    for (uint64_t c = first; c < s->plan->commits && commit_ms(s, c) < to_ms; c++)
        print += s->prints[c];
    return print;
}

static uint64_t print_all(const simulation *s, const uint64_t *sums) {
    uint64_t print = 0;
    for (uint64_t e = 0; e < s->plan->experts; e++)
        print += print_of(s, e, sums[2 * e], sums[2 * e + 1]);
    return print;
}

static reef_status sum_range(simulation *s,
                             reef_txn *txn,
                             uint64_t since_ms,
                             uint64_t until_ms,
                             reef_usage_range *range,
                             reef_error *err) {
    *range = (reef_usage_range){.since_ms = since_ms, .until_ms = until_ms};
    memset(s->sums, 0, 16 * s->plan->experts);
    return reef_usage_sum(txn, 0, 0, s->plan->experts, range, s->sums, err);
}

// Compare each piece of `span` that the pool still knows as such.
static reef_status compare(simulation *s,
                           reef_txn *txn,
                           uint64_t first_ms,
                           uint64_t span,
                           uint64_t *checked,
                           reef_error *err) {
    for (uint64_t at = first_ms; at < now_ms(s); at += span) {
        reef_usage_range range;
        reef_status status = sum_range(s, txn, at, at + span, &range, err);
        if (status != REEF_OK) return status;
        bool whole = range.windows > 0 && range.from_ms >= at && range.to_ms < at + span;
        if (!whole) continue; // dropped, or part of something coarser
        ++*checked;
        s->found->wrong += print_all(s, s->sums) != expected(s, at, at + span);
    }
    return REEF_OK;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// All days, the hours and the commits of the end, and what is left for the time before the windows.
static reef_status compare_all(simulation *s, reef_txn *txn, reef_error *err) {
    findings *f = s->found;
    reef_usage_range all;
    uint64_t now = now_ms(s), interval = s->plan->interval_ms;
    uint64_t hours = later(START_MS, now - now % DAY_MS - 4 * DAY_MS);
    uint64_t deltas =
        later(START_MS,
              commit_ms(s, s->commits > DELTAS_CHECKED_MAX ? s->commits - DELTAS_CHECKED_MAX : 0));
    reef_status status = compare(s, txn, START_MS, DAY_MS, &f->days_checked, err);
    if (status == REEF_OK) status = compare(s, txn, hours, HOUR_MS, &f->hours_checked, err);
    if (status == REEF_OK) status = compare(s, txn, deltas, interval, &f->commits_checked, err);
    if (status == REEF_OK) status = sum_range(s, txn, 0, UINT64_MAX, &all, err);
    if (status != REEF_OK) return status;
    uint64_t before = print_all(s, s->totals) - print_all(s, s->sums);
    f->wrong += before != expected(s, START_MS, all.known_ms);
    for (uint64_t i = 0; i < 2 * s->plan->experts; i++) f->wrong += s->sums[i] > s->totals[i];
    return REEF_OK;
}

static reef_status check_totals(simulation *s, reef_txn *txn, reef_error *err) {
    for (uint64_t first = 0; first < s->plan->experts; first += BLOCK_ROWS) {
        uint64_t left = s->plan->experts - first, rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        uint64_t stored[2 * BLOCK_ROWS];
        const reef_key key = {.db = REEF_DB_USAGE, .block = (uint32_t)(first / BLOCK_ROWS)};
        reef_status status = reef_record_read(txn, &key, stored, 16 * rows, err);
        if (status != REEF_OK) return status;
        s->found->wrong += memcmp(stored, s->totals + 2 * first, 16 * rows) != 0;
    }
    return REEF_OK;
}

// ---- how large is it? ----------------------------------------------------------------------------

static void weigh(const plan *p, findings *f) {
    uint64_t windows = 0, fixed = 0;
    for (uint32_t l = REEF_USAGE_DELTAS; l < REEF_USAGE_LEVELS; l++) {
        windows += f->stat.levels[l].bytes;
        fixed += reef_usage_bytes_max(l, 0);
    }
    f->bytes = windows + f->stat.levels[REEF_USAGE_TOTALS].bytes;
    f->bytes_fixed = windows < fixed ? windows : fixed;
    f->bytes_per_expert = (double)(f->bytes - f->bytes_fixed) / (double)p->experts;
}

static reef_status examine(simulation *s, reef_error *err) {
    reef_txn *txn = NULL;
    reef_check_report report;
    reef_status status = reef_txn_begin(&txn, s->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_usage_survey(txn, &s->found->stat, err);
    if (status == REEF_OK) status = check_totals(s, txn, err);
    if (status == REEF_OK) status = compare_all(s, txn, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) status = reef_store_check(s->store, NULL, NULL, &report, err);
    if (status != REEF_OK) return status;
    s->found->used_bytes = report.used_bytes;
    s->found->wrong += report.damaged;
    weigh(s->plan, s->found);
    return REEF_OK;
}

static reef_status run(const plan *p, findings *f, reef_error *err) {
    char *directory = NULL, *path = NULL;
    simulation s = {.plan = p, .found = f};
    s.totals = cli_alloc(p->experts, 16);
    s.sums = cli_alloc(p->experts, 16);
    s.prints = cli_alloc(p->commits, sizeof(*s.prints));
    s.use = cli_alloc(p->used, sizeof(*s.use));
    s.weights = cli_alloc(p->experts, 16);
    for (uint64_t i = 0; i < 2 * p->experts; i++) s.weights[i] = mix(i);
    double begin = cli_clock();
    reef_status status = bench_directory_new(&directory, err);
    if (status != REEF_OK) goto cleanup;
    path = cli_format("%s/pool", directory);
    status =
        reef_store_open(&s.store, path, &(reef_store_options){.create = true, .write = true}, err);
    if (status == REEF_OK) status = simulate(&s, err);
    if (status == REEF_OK) status = examine(&s, err);
    f->seconds = cli_clock() - begin;

cleanup:
    if (s.store) reef_store_close(s.store);
    bench_directory_remove(directory);
    free(path);
    free(s.totals);
    free(s.sums);
    free(s.prints);
    free(s.weights);
    free(s.use);
    return status;
}

// ---- the command ---------------------------------------------------------------------------------

static reef_status read_plan(const cli_call *cli, plan *p, reef_error *err) {
    *p = (plan){.days = 365, .experts = 65536, .used = 4096, .interval = 10};
    reef_status status = cli_integer(cli, "days", 1, 3660, &p->days, err);
    if (status == REEF_OK) status = cli_integer(cli, "experts", 1, EXPERTS_MAX, &p->experts, err);
    if (status == REEF_OK && !cli_text(cli, "used") && p->used > p->experts) p->used = p->experts;
    if (status == REEF_OK) status = cli_integer(cli, "used", 1, p->experts, &p->used, err);
    if (status == REEF_OK) status = cli_integer(cli, "interval", 1, 3600, &p->interval, err);
    p->interval_ms = 1000 * p->interval;
    p->commits = p->days * DAY_MS / p->interval_ms;
    return status;
}

static void print_findings(const plan *p, const findings *f) {
    static const char *const LEVELS[] = {"totals", "commits", "hours", "days"};
    static const char *const HEADING[] = {"level", "windows", "records", "bytes"};
    char words[CLI_WORD_BYTES];
    printf("%" PRIu64 " days, ", p->days);
    printf("%s commits, ", cli_count(p->commits, words));
    printf("%s used experts each, of ", cli_count(p->used, words));
    printf("%s\n", cli_count(p->experts, words));
    cli_table *table = cli_table_new("<>>>", HEADING);
    for (uint32_t l = 0; l < REEF_USAGE_LEVELS; l++) {
        const reef_usage_level_stat *level = &f->stat.levels[l];
        cli_table_cell(table, "%s", LEVELS[l]);
        cli_table_cell(table, "%s", cli_count(level->windows, words));
        cli_table_cell(table, "%s", cli_count(level->records, words));
        cli_table_cell(table, "%s", cli_bytes(level->bytes, words));
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
    printf("in all       %s, ", cli_bytes(f->bytes, words));
    printf("of which %s are the fixed part;", cli_bytes(f->bytes_fixed, words));
    printf(" %s of pages\n", cli_bytes(f->used_bytes, words));
    printf("per expert   %.1f bytes beyond the fixed part\n", f->bytes_per_expert);
    printf("compaction   %s steps, the longest ", cli_count(f->steps, words));
    printf("%.1f ms with the disk, %.1f ms of CPU\n", f->longest_ms, f->longest_cpu_ms);
    printf("sums         %s: %" PRIu64 " days, %" PRIu64 " hours, %" PRIu64
           " commits, totals and the time before compared\n",
           f->wrong == 0 ? "exact" : "WRONG", f->days_checked, f->hours_checked,
           f->commits_checked);
    printf("took         %s\n", cli_duration(f->seconds, words));
}

static json_t *findings_json(const plan *p, const findings *f) {
    const reef_usage_level_stat *levels = f->stat.levels;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, "
                     "s:I, s:I, s:o, s:o, s:o}",
                     "days", (json_int_t)p->days, "commits", (json_int_t)p->commits, "experts",
                     (json_int_t)p->experts, "used", (json_int_t)p->used, "interval_seconds",
                     (json_int_t)p->interval, "usage_bytes_per_expert",
                     cli_real(f->bytes_per_expert), "usage_bytes", (json_int_t)f->bytes,
                     "usage_bytes_fixed", (json_int_t)f->bytes_fixed, "page_bytes",
                     (json_int_t)f->used_bytes, "totals_exact", f->wrong == 0, "days_checked",
                     (json_int_t)f->days_checked, "hours_checked", (json_int_t)f->hours_checked,
                     "commits_checked", (json_int_t)f->commits_checked, "windows_commits",
                     (json_int_t)levels[REEF_USAGE_DELTAS].windows, "windows_hours",
                     (json_int_t)levels[REEF_USAGE_HOURS].windows, "windows_days",
                     (json_int_t)levels[REEF_USAGE_DAYS].windows, "steps", (json_int_t)f->steps,
                     "longest_step_ms", cli_real(f->longest_ms), "longest_step_cpu_ms",
                     cli_real(f->longest_cpu_ms), "seconds", cli_real(f->seconds));
}

reef_status cmd_bench_usage(cli_call *cli, reef_error *err) {
    plan p;
    findings f = {0};
    reef_status status = read_plan(cli, &p, err);
    if (status == REEF_OK) status = run(&p, &f, err);
    if (status == REEF_OK && cli->json)
        status = cli_answer(cli, findings_json(&p, &f), err);
    else if (status == REEF_OK)
        print_findings(&p, &f);
    if (status == REEF_OK && f.wrong > 0)
        return reef_fail(err, REEF_CORRUPT, "%" PRIu64 " sums of the simulated year are wrong",
                         f.wrong);
    return status;
}
