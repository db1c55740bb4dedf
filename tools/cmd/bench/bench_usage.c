// See bench_usage.h.
//
// Commits come at simulated times, each with some experts chosen at random, and go through the
// store's own calls; compaction takes its steps in between, each a transaction. What is left out is
// the disk: commits share a transaction for a quarter of an hour at a time, and none waits for a
// sync, or a year would be three million of them. No power failure is survived by a pool that is
// removed at the end. The uses are remembered beside the pool as one number per commit that is
// linear in the uses (a random weight for each expert's count and score), so that every hour and
// every day can be compared with the pool's sums.
#include "bench_usage.h"

#include "cli.h"
#include "cli_format.h"
#include "cli_progress.h"
#include "reef_clock.h"
#include "reef_pool_check.h"
#include "reef_usage.h"
#include "scratch_pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS UINT64_C(86400000)
#define HOUR_MS UINT64_C(3600000)
#define START_MS (UINT64_C(19723) * DAY_MS) // 2024-01-01
#define BATCH_MS (HOUR_MS / 4)              // commits of so long share a transaction
#define BLOCK_ROWS 128u // experts of a record of totals; d_model 128 has as many
#define DELTAS_CHECKED_MAX 1000

typedef struct simulation {
    const reef_usage_plan *plan;
    reef_store *store;
    uint64_t commits;    // so far
    uint64_t *totals;    // (experts, 2)
    uint64_t *sums;      // (experts, 2) room for the comparison
    uint64_t *prints;    // (commits) what each used, as one number
    uint64_t *weights;   // (experts, 2) of a count and of a score in it
    uint64_t *pieces;    // (used + 1) first expert of each piece of the pool
    reef_usage_use *use; // (used)
    reef_usage_findings *found;
} simulation;

// ---- what is used -------------------------------------------------------------------------------

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

// A whole number below `bound` from 32 random bits, without a division: there are ten thousand
// million draws.
static uint64_t below(uint64_t bits, uint64_t bound) {
    return (bits * bound) >> 32;
}

// The experts of a commit: one from each of `used` equal pieces of the pool, so that they differ
// and rise.
static void draw_uses(simulation *s) {
    const reef_usage_plan *p = s->plan;
    uint64_t print = 0;
    for (uint64_t i = 0; i < p->used; i++) {
        // The random number follows from the number of the commit alone, so a run can be repeated.
        uint64_t random = mix(s->commits * p->used + i + 1), low = s->pieces[i];
        uint64_t expert = low + below(random >> 32, s->pieces[i + 1] - low);
        uint64_t count = 1 + below(random & UINT32_MAX, 3), score = count * (random >> 44);
        // Count and score grow together, as they do in a pool.
        s->use[i] = (reef_usage_use){.expert = (uint32_t)expert, .count = count, .score = score};
        // The true totals are kept in memory, to be compared with the store's.
        s->totals[2 * expert] += count;
        s->totals[2 * expert + 1] += score;
        print += print_of(s, expert, count, score);
    }
    // Only a checksum of the commit is kept: keeping every use would take more memory than the
    // store.
    s->prints[s->commits] = print;
}

static uint64_t commit_ms(const simulation *s, uint64_t commit) {
    return START_MS + commit * s->plan->interval_ms;
}

static uint64_t now_ms(const simulation *s) {
    return commit_ms(s, s->commits);
}

// ---- the year -----------------------------------------------------------------------------------

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
    // Read before the loop, as the clock of the simulation moves with each commit.
    uint64_t day = now_ms(s) / DAY_MS;
    reef_status status = reef_txn_begin(&txn, s->store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    // Many commits in one transaction: the records count, not the disk.
    while (status == REEF_OK && s->commits < s->plan->commits && now_ms(s) < until_ms) {
        draw_uses(s);
        status = reef_usage_add(txn, 0, 0, s->plan->used, s->use, now_ms(s), err);
        s->commits++;
    }
    // The trainer writes the totals with its commits; here once a day and at the end is enough.
    if (status == REEF_OK && (now_ms(s) / DAY_MS != day || s->commits == s->plan->commits))
        status = put_totals(s, txn, err);
    // A transaction that failed is aborted: half a batch would be a false record.
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    reef_commit commit = {.step = s->commits, .unix_ms = now_ms(s)};
    return reef_txn_commit(txn, &commit, err);
}

static reef_status compact_usage(simulation *s, reef_error *err) {
    for (;;) {
        reef_usage_compaction done;
        double begin = reef_seconds(), cpu_begin = reef_cpu_seconds();
        reef_status status = reef_store_compact(s->store, now_ms(s), &done, NULL, err);
        if (status != REEF_OK || (done.merged == 0 && done.dropped == 0)) return status;
        double ms = 1000 * (reef_seconds() - begin),
               cpu_ms = 1000 * (reef_cpu_seconds() - cpu_begin);
        if (ms > s->found->longest_ms) s->found->longest_ms = ms;
        if (cpu_ms > s->found->longest_cpu_ms) s->found->longest_cpu_ms = cpu_ms;
        s->found->steps++;
    }
}

static reef_status simulate(simulation *s, reef_error *err) {
    reef_cli_progress progress;
    reef_status status = REEF_OK;
    reef_cli_progress_start(&progress, "simulated usage", s->plan->days, "days");
    while (status == REEF_OK && s->commits < s->plan->commits) {
        // Up to the next multiple of the batch's length, so that batches align with the windows.
        uint64_t until = now_ms(s) / BATCH_MS * BATCH_MS + BATCH_MS;
        double begin = reef_seconds();
        status = commit_batch(s, until, err);
        double written = reef_seconds();
        s->found->write_seconds += written - begin;
        // Compacting follows each batch, as it follows commits in the daemon, and is timed apart.
        if (status == REEF_OK) status = compact_usage(s, err);
        s->found->compact_seconds += reef_seconds() - written;
        reef_cli_progress_show(&progress, (now_ms(s) - START_MS) / DAY_MS);
    }
    reef_cli_progress_end(&progress);
    return status;
}

// ---- is it exact? -------------------------------------------------------------------------------

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
static reef_status compare_spans(simulation *s,
                                 reef_txn *txn,
                                 uint64_t first_ms,
                                 uint64_t span,
                                 uint64_t *checked,
                                 reef_error *err) {
    for (uint64_t at = first_ms; at < now_ms(s); at += span) {
        // Summed by the store, as `reef experts` would ask for it.
        reef_usage_range range;
        reef_status status = sum_range(s, txn, at, at + span, &range, err);
        if (status != REEF_OK) return status;
        // A window that reaches beyond the piece cannot be compared with it alone.
        bool whole = range.windows > 0 && range.from_ms >= at && range.to_ms < at + span;
        if (!whole) continue; // dropped, or part of something coarser
        ++*checked;
        // The checksum is linear in counts and scores, so sums can be compared with sums.
        s->found->wrong += print_all(s, s->sums) != expected(s, at, at + span);
    }
    return REEF_OK;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// All days, the hours and the commits of the end, and what is left for the time before the windows.
static reef_status compare_all(simulation *s, reef_txn *txn, reef_error *err) {
    reef_usage_findings *f = s->found;
    reef_usage_range all;
    uint64_t now = now_ms(s), interval = s->plan->interval_ms;
    // Only windows that must still be there in full are compared at this resolution.
    uint64_t hours = later(START_MS, now - now % DAY_MS - 4 * DAY_MS);
    uint64_t deltas =
        later(START_MS,
              commit_ms(s, s->commits > DELTAS_CHECKED_MAX ? s->commits - DELTAS_CHECKED_MAX : 0));
    // Days are kept longest, then hours, then single commits.
    reef_status status = compare_spans(s, txn, START_MS, DAY_MS, &f->days_checked, err);
    if (status == REEF_OK) status = compare_spans(s, txn, hours, HOUR_MS, &f->hours_checked, err);
    if (status == REEF_OK)
        status = compare_spans(s, txn, deltas, interval, &f->commits_checked, err);
    if (status == REEF_OK) status = sum_range(s, txn, 0, UINT64_MAX, &all, err);
    if (status != REEF_OK) return status;
    // What the store no longer has as windows must still be in the totals.
    uint64_t before = print_all(s, s->totals) - print_all(s, s->sums);
    f->wrong += before != expected(s, START_MS, all.known_ms);
    // No window can hold more uses of an expert than its total.
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

// ---- how large is it? ---------------------------------------------------------------------------

static void weigh_records(const reef_usage_plan *p, reef_usage_findings *f) {
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
    // A read transaction of its own: what is compared is what was committed.
    reef_status status = reef_txn_begin(&txn, s->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_usage_survey(txn, &s->found->stat, err);
    if (status == REEF_OK) status = check_totals(s, txn, err);
    if (status == REEF_OK) status = compare_all(s, txn, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) status = reef_store_check(s->store, NULL, NULL, &report, err);
    // The whole file is checked too: right sums in a damaged file would be luck.
    if (status != REEF_OK) return status;
    s->found->used_bytes = report.used_bytes;
    s->found->wrong += report.damaged;
    weigh_records(s->plan, s->found);
    return REEF_OK;
}

reef_status reef_bench_usage_run(const reef_usage_plan *p,
                                 reef_usage_findings *f,
                                 reef_error *err) {
    reef_bench_directory directory = {0};
    char *path = NULL;
    simulation s = {.plan = p, .found = f};
    // Two numbers of 8 bytes for each expert: its uses and its scores.
    s.totals = reef_cli_alloc(p->experts, 16);
    s.sums = reef_cli_alloc(p->experts, 16);
    s.prints = reef_cli_alloc(p->commits, sizeof(*s.prints));
    s.use = reef_cli_alloc(p->used, sizeof(*s.use));
    s.weights = reef_cli_alloc(p->experts, 16);
    s.pieces = reef_cli_alloc(p->used + 1, sizeof(*s.pieces));
    // Even pieces of the pool, one draw from each in every commit.
    for (uint64_t i = 0; i <= p->used; i++) s.pieces[i] = i * p->experts / p->used;
    // The checksum's weights, one for each number.
    for (uint64_t i = 0; i < 2 * p->experts; i++) s.weights[i] = mix(i);
    double begin = reef_seconds();
    reef_status status = reef_bench_directory_new(&directory, err);
    if (status != REEF_OK) goto cleanup;
    path = reef_cli_format("%s/pool", directory.path);
    // Without fsync: this measures the records and their compaction, not the disk.
    status = reef_store_open(
        &s.store, path, &(reef_store_options){.create = true, .write = true, .no_sync = true}, err);
    if (status == REEF_OK) status = simulate(&s, err);
    if (status == REEF_OK) status = examine(&s, err);
    f->seconds = reef_seconds() - begin;

cleanup:
    if (s.store != NULL) reef_store_close(s.store);
    reef_bench_directory_remove(&directory);
    free(path);
    free(s.totals);
    free(s.sums);
    free(s.prints);
    free(s.weights);
    free(s.pieces);
    free(s.use);
    return status;
}
