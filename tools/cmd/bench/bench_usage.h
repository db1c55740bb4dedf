// The usage of a simulated year, as `reef bench usage` and, shortened, `reef bench store` write it.
#ifndef REEF_BENCH_USAGE_H
#define REEF_BENCH_USAGE_H

#include "reef_store.h"
#include "reef_usage.h"

/** What is simulated. All fields are set. */
typedef struct reef_usage_plan {
    uint64_t days, experts; // at most BENCH_USAGE_EXPERTS_MAX
    uint64_t used;          // different experts that a commit uses, at most `experts`
    uint64_t interval_ms;   // from one commit to the next
    uint64_t commits;       // in all those days
} reef_usage_plan;

#define BENCH_USAGE_EXPERTS_MAX (UINT64_C(1) << 24)

typedef struct reef_usage_findings {
    reef_usage_stat stat;
    uint64_t bytes, bytes_fixed, used_bytes; // records; of them the fixed part; pages of the pool
    double bytes_per_expert;                 // beyond the fixed part
    uint64_t steps;                          // of compaction
    double longest_ms, longest_cpu_ms;       // of a step; the former waits for the machine
    double seconds, write_seconds, compact_seconds;
    uint64_t days_checked, hours_checked, commits_checked, wrong;
} reef_usage_findings;

/**
 * Write the usage of those days to a temporary pool below TMPDIR, let compaction run as a daemon
 * does, and compare the pool's sums with what was used. A progress bar on a terminal shows how long
 * it takes.
 */
REEF_MUST_CHECK reef_status reef_bench_usage_run(const reef_usage_plan *plan,
                                                 reef_usage_findings *found,
                                                 reef_error *err);

#endif
