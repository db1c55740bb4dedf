// reef bench usage: usage over time of a simulated year, how large it becomes, and whether every
// sum is exact.
#include "bench_usage.h"
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_usage.h"

#include <inttypes.h>

#define DAY_SECONDS 86400u

static const reef_cli_option OPTIONS[] = {
    {"days", "N", "days to simulate (default: 365)"},
    {"experts", "N", "experts of the pool (default: 65536)"},
    {"used", "N", "different experts used by a commit (default: 4096)"},
    {"interval", "S", "seconds from one commit to the next (default: 10)"},
    {0},
};

const reef_cli_manual reef_bench_usage_manual = {
    .about = "Writes the usage of a simulated year to a temporary "
             "pool below TMPDIR, one commit every 10 s with\n"
             "4,096 used experts each, and lets compaction run as a daemon does. "
             "Afterwards every day and every\n"
             "hour that the pool still knows is compared with "
             "what was used then, and the rest with the totals.\n"
             "Commits and compaction are the store's own, "
             "but do not wait for the disk, and those of a quarter of\n"
             "an hour share a transaction.\n"
             "Bytes an expert are those of all records of usage, "
             "totals included, beyond the fixed part, which is\n"
             "what windows may take in a pool of any size.",
    .options = OPTIONS,
    .example = "reef bench usage\n"
               "reef bench usage --days 2 --experts 1024\n"
               "reef bench usage --days 10 --json\n"
               "reef bench usage --days 3 --experts 1048576",
};

static reef_status read_plan(const reef_cli_call *cli, reef_usage_plan *p, reef_error *err) {
    // Ten seconds is the default commit interval of reefd.
    uint64_t interval = 10;
    *p = (reef_usage_plan){.days = 365, .experts = 65536, .used = 4096};
    // Ten years at most: beyond that the levels stop growing and only the time to run does.
    reef_status status = reef_cli_integer(cli, "days", 1, 3660, &p->days, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "experts", 1, BENCH_USAGE_EXPERTS_MAX, &p->experts, err);
    // A small pool uses all its experts in each commit unless --used says less.
    if (status == REEF_OK && reef_cli_text(cli, "used") == NULL && p->used > p->experts)
        p->used = p->experts;
    if (status == REEF_OK) status = reef_cli_integer(cli, "used", 1, p->experts, &p->used, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "interval", 1, 3600, &interval, err);
    // The usage records count milliseconds; people think in seconds.
    p->interval_ms = 1000 * interval;
    p->commits = p->days * DAY_SECONDS / interval;
    return status;
}

static void print_findings(const reef_usage_plan *p, const reef_usage_findings *f) {
    static const char *const LEVELS[] = {"totals", "commits", "hours", "days"};
    static const char *const HEADING[] = {"level", "windows", "records", "bytes"};
    char words[CLI_WORD_BYTES];
    // The workload comes first, so that every figure below it can be read against it.
    printf("%" PRIu64 " days, ", p->days);
    printf("%s commits, ", reef_cli_count(p->commits, words));
    printf("%s used experts each, of ", reef_cli_count(p->used, words));
    printf("%s\n", reef_cli_count(p->experts, words));
    reef_cli_table *table = reef_cli_table_new("<>>>", HEADING);
    // One row for each level, from finest to coarsest, as compaction moves the records.
    for (uint32_t l = 0; l < REEF_USAGE_LEVELS; l++) {
        const reef_usage_level_stat *level = &f->stat.levels[l];
        reef_cli_table_cell(table, "%s", LEVELS[l]);
        reef_cli_table_cell(table, "%s", reef_cli_count(level->windows, words));
        reef_cli_table_cell(table, "%s", reef_cli_count(level->records, words));
        reef_cli_table_cell(table, "%s", reef_cli_bytes(level->bytes, words));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    // The fixed part is what an empty pool has: it is subtracted before dividing by experts.
    printf("in all       %s, ", reef_cli_bytes(f->bytes, words));
    printf("%s of it the fixed part;", reef_cli_bytes(f->bytes_fixed, words));
    printf(" %s of pages\n", reef_cli_bytes(f->used_bytes, words));
    printf("per expert   %.1f bytes beyond the fixed part\n", f->bytes_per_expert);
    // The longest step is a commit's delay when compaction runs in the daemon. CPU time shows how
    // much of it was waiting for the disk.
    printf("compaction   %s steps, the longest ", reef_cli_count(f->steps, words));
    printf("%.1f ms with the disk, %.1f ms of CPU\n", f->longest_ms, f->longest_cpu_ms);
    // The sums of windows chosen at random are compared with what was put in.
    printf("sums         %s: %" PRIu64 " days, %" PRIu64 " hours, %" PRIu64
           " commits, totals and the time before compared\n",
           f->wrong == 0 ? "exact" : "WRONG", f->days_checked, f->hours_checked,
           f->commits_checked);
    printf("took         %s, ", reef_cli_duration(f->seconds, words));
    printf("%s of it to write ", reef_cli_duration(f->write_seconds, words));
    printf("and %s to compact\n", reef_cli_duration(f->compact_seconds, words));
}

static json_t *findings_json(const reef_usage_plan *p, const reef_usage_findings *f) {
    const reef_usage_level_stat *levels = f->stat.levels;
    // The plan is repeated in the reply, so that a stored document can be repeated.
    // Windows left at each level show whether compaction kept to its schedule.
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
        "days", (json_int_t)p->days, "commits", (json_int_t)p->commits, "experts",
        (json_int_t)p->experts, "used", (json_int_t)p->used, "interval_seconds",
        (json_int_t)(p->interval_ms / 1000), "usage_bytes_per_expert",
        reef_cli_real(f->bytes_per_expert), "usage_bytes", (json_int_t)f->bytes,
        "usage_bytes_fixed", (json_int_t)f->bytes_fixed, "page_bytes", (json_int_t)f->used_bytes,
        "totals_exact", f->wrong == 0, "days_checked", (json_int_t)f->days_checked, "hours_checked",
        (json_int_t)f->hours_checked, "commits_checked", (json_int_t)f->commits_checked,
        "windows_commits", (json_int_t)levels[REEF_USAGE_DELTAS].windows, "windows_hours",
        (json_int_t)levels[REEF_USAGE_HOURS].windows, "windows_days",
        (json_int_t)levels[REEF_USAGE_DAYS].windows, "steps", (json_int_t)f->steps,
        "longest_step_ms", reef_cli_real(f->longest_ms), "longest_step_cpu_ms",
        reef_cli_real(f->longest_cpu_ms), "seconds", reef_cli_real(f->seconds), "write_seconds",
        reef_cli_real(f->write_seconds), "compact_seconds", reef_cli_real(f->compact_seconds));
}

reef_status reef_cmd_bench_usage(reef_cli_call *cli, reef_error *err) {
    reef_usage_plan p;
    reef_usage_findings f = {0};
    reef_status status = read_plan(cli, &p, err);
    if (status == REEF_OK) status = reef_bench_usage_run(&p, &f, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, findings_json(&p, &f), err);
    else if (status == REEF_OK)
        print_findings(&p, &f);
    // Printed first and then failed: the figures help to find what is wrong.
    if (status == REEF_OK && f.wrong > 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "%" PRIu64 " sums of the simulated year are wrong",
                         f.wrong);
    return status;
}
