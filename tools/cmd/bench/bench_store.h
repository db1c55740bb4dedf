// What `reef bench store` measures of the store, each part on a temporary pool of its own.
#ifndef REEF_BENCH_STORE_H
#define REEF_BENCH_STORE_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

/** Sizes, from the command line or its defaults. */
typedef struct reef_store_plan {
    const char *directory; // for pools and files
    uint64_t commit_bytes; // changed by a commit, in blocks of REEF_BLOCK_BYTES_MAX
    uint64_t rounds;       // commits and raw writes, alternately
    double seconds;        // to train for the overhead
    uint64_t sealed_side;  // side of the sealed generation that a snapshot shares
    uint64_t commits;      // while readers come and go
    uint64_t readers;
} reef_store_plan;

/** A commit of changed blocks against a file written with the same bytes and one fdatasync. */
typedef struct reef_store_commit {
    double commit_ms, raw_ms; // medians
    double rate_vs_raw;       // median of each round's ratio
} reef_store_commit;
REEF_MUST_CHECK reef_status reef_bench_store_commit(const reef_store_plan *plan,
                                                    reef_store_commit *out,
                                                    reef_error *err);

/** What commits cost a training whose open part is about commit_bytes large. */
typedef struct reef_store_training {
    uint64_t open_bytes, written_bytes; // open: rows and moments; written: mean payload of a commit
    uint64_t commits;
    double commit_ms, commit_p99_ms; // of those that use pages again
    double commit_growing_ms;        // the longest of the first ones, which enlarge the file
    // of the time, with a commit every `interval` seconds as reefd makes them
    double overhead_share;
    double interval;
} reef_store_training;
REEF_MUST_CHECK reef_status reef_bench_store_training(const reef_store_plan *plan,
                                                      reef_store_training *out,
                                                      reef_error *err);

/** A pool with a large sealed generation and a small open one. */
typedef struct reef_store_pool {
    uint64_t sealed_experts, open_experts;
    uint64_t pool_bytes, open_bytes; // of payload; open with its moments
    // payload of sealed records that commits after the sealing wrote
    uint64_t sealed_bytes_rewritten;
    double snapshot_ms;            // median, transaction and commit
    double snapshot_bytes_vs_open; // pages that one takes, by the open part's payload
    double open_ms;                // median: open the store and the model in place
} reef_store_pool;
REEF_MUST_CHECK reef_status reef_bench_store_pool(const reef_store_plan *plan,
                                                  reef_store_pool *out,
                                                  reef_error *err);

/** The file after many commits, while readers come and go: each lives through one. */
typedef struct reef_store_growth {
    uint64_t commits, reads;
    uint64_t live_bytes, commit_bytes, file_bytes;
    double growth_vs_commit; // (file - live) / commit
} reef_store_growth;
REEF_MUST_CHECK reef_status reef_bench_store_growth(const reef_store_plan *plan,
                                                    reef_store_growth *out,
                                                    reef_error *err);

#endif
