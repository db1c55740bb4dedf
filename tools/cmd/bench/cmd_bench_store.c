// reef bench store: what commits, snapshots, opening and readers cost, beside what the disk allows.
#include "bench_store.h"
#include "bench_usage.h"
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"
#include "scratch_pool.h"

#include <inttypes.h>

static const reef_cli_option OPTIONS[] = {
    {"commit-bytes", "SIZE", "changed by a commit, such as 16M (default: 64M)"},
    {"rounds", "N", "commits and raw writes, in turns (default: 9)"},
    {"seconds", "S", "how long to train for the overhead (default: 30)"},
    {"sealed-side", "N", "side of the sealed generation (default: 1024, a million experts)"},
    {"commits", "N", "commits while readers come and go (default: 10000)"},
    {"usage-days", "N", "days of usage to simulate; reef bench usage has a year (default: 2)"},
    {"readers", "N", "that read meanwhile, each during one commit (default: 16)"},
    {0},
};

const reef_cli_manual reef_bench_store_manual = {
    .about =
        "Works on temporary pools below TMPDIR and needs about 2 GB there. Each part prints its\n"
        "figure beside the goal; the raw write is measured in turns with the commits.",
    .options = OPTIONS,
    .example = "reef bench store\n"
               "TMPDIR=/var/tmp reef bench store --json",
};

typedef struct findings {
    reef_store_commit commit;
    reef_store_training training;
    reef_store_pool pool;
    reef_store_growth growth;
    reef_usage_findings usage;
} findings;

// A commit every 10 s with 4,096 used experts, as in the year of reef bench usage.
static void plan_usage(uint64_t days, reef_usage_plan *plan) {
    *plan = (reef_usage_plan){.days = days, .experts = 65536, .used = 4096, .interval_ms = 10000};
    plan->commits = days * 8640;
}

static reef_status read_plan(const reef_cli_call *cli,
                             reef_store_plan *plan,
                             reef_usage_plan *usage,
                             reef_error *err) {
    uint64_t days = 2;
    const char *bytes = reef_cli_text(cli, "commit-bytes");
    // The defaults of the documented figures.
    *plan = (reef_store_plan){.commit_bytes = (uint64_t)64 << 20,
                              .rounds = 9,
                              .seconds = 30,
                              .sealed_side = 1024,
                              .commits = 10000,
                              .readers = 16};
    // Sizes are written as 64M or 1G.
    reef_status status =
        bytes != NULL ? reef_memory_parse(bytes, &plan->commit_bytes, err) : REEF_OK;
    // The blocks are filled with numbers of 8 bytes.
    if (status == REEF_OK &&
        (plan->commit_bytes % 8 != 0 || plan->commit_bytes > (uint64_t)4 << 30))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "--commit-bytes is %.40s: give a multiple of 8, at most 4G", bytes);
    if (status == REEF_OK) status = reef_cli_integer(cli, "rounds", 1, 1000, &plan->rounds, err);
    if (status == REEF_OK)
        status = reef_cli_number(cli, "seconds", 0.1, 86400, &plan->seconds, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "sealed-side", 8, 4096, &plan->sealed_side, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "commits", 1, 10000000, &plan->commits, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "readers", 0, 512, &plan->readers, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "usage-days", 1, 3660, &days, err);
    // The simulated usage has a plan of its own, made from the number of days.
    plan_usage(days, usage);
    return status;
}

static reef_status measure_parts(const reef_store_plan *plan,
                                 const reef_usage_plan *usage,
                                 findings *out,
                                 reef_error *err) {
    // One part after the other, as all of them use the same disk.
    reef_status status = reef_bench_store_commit(plan, &out->commit, err);
    if (status == REEF_OK) status = reef_bench_store_training(plan, &out->training, err);
    if (status == REEF_OK) status = reef_bench_store_pool(plan, &out->pool, err);
    if (status == REEF_OK) status = reef_bench_store_growth(plan, &out->growth, err);
    if (status == REEF_OK) status = reef_bench_usage_run(usage, &out->usage, err);
    // Speed without right sums would be worth nothing, so this ends the benchmark with an error.
    if (status == REEF_OK && out->usage.wrong > 0)
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "%" PRIu64 " sums of the simulated usage are wrong", out->usage.wrong);
    return status;
}

static json_t *findings_json(const reef_store_plan *plan,
                             const reef_usage_plan *usage,
                             const findings *f) {
    // Sizes first: no time means anything without them.
    json_t *sizes =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "commit_bytes",
                  (json_int_t)plan->commit_bytes, "open_bytes", (json_int_t)f->training.open_bytes,
                  "written_bytes", (json_int_t)f->training.written_bytes, "sealed_experts",
                  (json_int_t)f->pool.sealed_experts, "open_experts",
                  (json_int_t)f->pool.open_experts, "growth_commits", (json_int_t)f->growth.commits,
                  "growth_reads", (json_int_t)f->growth.reads, "growth_live_bytes",
                  (json_int_t)f->growth.live_bytes, "usage_days", (json_int_t)usage->days);
    // The names stay as they are; scripts compare them between versions.
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:b}",
                     "sizes", sizes, "commit_ms", reef_cli_real(f->commit.commit_ms), "raw_ms",
                     reef_cli_real(f->commit.raw_ms), "commit_rate_vs_raw",
                     reef_cli_real(f->commit.rate_vs_raw), "training_commit_ms",
                     reef_cli_real(f->training.commit_ms), "commit_p99_ms",
                     reef_cli_real(f->training.commit_p99_ms), "commit_growing_ms",
                     reef_cli_real(f->training.commit_growing_ms), "commit_overhead_share",
                     reef_cli_real(f->training.overhead_share), "sealed_bytes_rewritten",
                     (json_int_t)f->pool.sealed_bytes_rewritten, "snapshot_ms",
                     reef_cli_real(f->pool.snapshot_ms), "snapshot_bytes_vs_open",
                     reef_cli_real(f->pool.snapshot_bytes_vs_open), "open_ms",
                     reef_cli_real(f->pool.open_ms), "file_growth_vs_commit",
                     reef_cli_real(f->growth.growth_vs_commit), "usage_bytes_per_expert",
                     reef_cli_real(f->usage.bytes_per_expert), "usage_exact", f->usage.wrong == 0);
}

static void print_findings(const reef_store_plan *plan,
                           const reef_usage_plan *usage,
                           const findings *f) {
    static const char *const HEADING[] = {"", "measured", "goal"};
    char words[CLI_WORD_BYTES];
    // Each row: what was measured, its figure and the goal from the design.
    reef_cli_table *table = reef_cli_table_new("<><", HEADING);
    reef_cli_table_cell(table, "commit of %s against a raw write",
                        reef_cli_bytes(plan->commit_bytes, words));
    reef_cli_table_cell(table, "%.2f of its rate", f->commit.rate_vs_raw);
    reef_cli_table_cell(table, "at least 0.6 (%.0f and %.0f ms)", f->commit.commit_ms,
                        f->commit.raw_ms);
    // The open part's size is beside it, because the time of a commit follows from it.
    reef_cli_table_cell(table, "commits of a training, open part %s",
                        reef_cli_bytes(f->training.open_bytes, words));
    reef_cli_table_cell(table, "%.2f %%", 100 * f->training.overhead_share);
    reef_cli_table_cell(table, "at most 3.5 %% of the time, one every %.0f s",
                        f->training.interval);
    reef_cli_table_cell(table, "  99 of 100 take at most (%s each)",
                        reef_cli_bytes(f->training.written_bytes, words));
    reef_cli_table_cell(table, "%.0f ms", f->training.commit_p99_ms);
    reef_cli_table_cell(table, "at most 250 ms");
    // These are counted apart, as they happen once in the life of a file.
    reef_cli_table_cell(table, "  the first ones, which enlarge the file");
    reef_cli_table_cell(table, "%.0f ms", f->training.commit_growing_ms);
    reef_cli_table_cell(table, "once, not counted above");
    reef_cli_table_cell(table, "sealed bytes written again");
    reef_cli_table_cell(table, "%" PRIu64, f->pool.sealed_bytes_rewritten);
    reef_cli_table_cell(table, "0");
    reef_cli_table_cell(table, "snapshot beside %s sealed experts",
                        reef_cli_count(f->pool.sealed_experts, words));
    reef_cli_table_cell(table, "%.1f ms", f->pool.snapshot_ms);
    reef_cli_table_cell(table, "under 20 ms");
    // Indented: it belongs to the row above it.
    reef_cli_table_cell(table, "  its pages by the open part");
    reef_cli_table_cell(table, "%.2f", f->pool.snapshot_bytes_vs_open);
    reef_cli_table_cell(table, "under 2");
    reef_cli_table_cell(table, "open that pool in place");
    reef_cli_table_cell(table, "%.0f ms", f->pool.open_ms);
    reef_cli_table_cell(table, "under 200 ms");
    reef_cli_table_cell(table, "growth of the file in %s commits",
                        reef_cli_count(f->growth.commits, words));
    reef_cli_table_cell(table, "%.1f commits", f->growth.growth_vs_commit);
    reef_cli_table_cell(table, "at most 3, with %" PRIu64 " readers", plan->readers);
    reef_cli_table_cell(table, "usage of %" PRIu64 " simulated days, exact sums", usage->days);
    reef_cli_table_cell(table, "%.1f bytes", f->usage.bytes_per_expert);
    // The fixed part does not grow with the number of experts.
    reef_cli_table_cell(table, "at most 40 per expert beyond the fixed part");
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

reef_status reef_cmd_bench_store(reef_cli_call *cli, reef_error *err) {
    reef_store_plan plan;
    reef_usage_plan usage;
    findings found = {0};
    reef_bench_directory directory = {0};
    reef_status status = read_plan(cli, &plan, &usage, err);
    if (status == REEF_OK) status = reef_bench_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    // All parts make their files in one directory, which is removed as a whole.
    plan.directory = directory.path;
    status = measure_parts(&plan, &usage, &found, err);
    reef_bench_directory_remove(&directory);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, findings_json(&plan, &usage, &found), err);
    print_findings(&plan, &usage, &found);
    return REEF_OK;
}
