// The check of a pool that lies in several shards: each by itself, and then whether they are one
// pool. What a shard has of others, their entries in `sums`, is under the roots that each check
// takes; so shards with one root agree about all rows.
#include "check.h"
#include "reef_pool_check.h"
#include "shard_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shard_findings {
    const reef_check_options *options; // of who asked
    uint32_t rank;
} shard_findings;

static void on_damage(void *context, const char *what) {
    const shard_findings *f = context;
    char line[sizeof(((reef_error *)0)->message) + 32];
    if (f->options->on_damage == NULL) return;
    (void)snprintf(line, sizeof(line), "rank-%" PRIu32 ": %s", f->rank, what);
    f->options->on_damage(f->options->context, line);
}

static uint64_t greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// What lies in every shard is counted in each of them, as it was checked there.
static void add_report(reef_check_report *all, const reef_check_report *one) {
    all->records += one->records;
    all->bytes += one->bytes;
    all->damaged += one->damaged;
    all->file_bytes += one->file_bytes;
    all->used_bytes += one->used_bytes;
    all->sealed_records += one->sealed_records;
    all->sealed_bytes += one->sealed_bytes;
    all->hashed_records += one->hashed_records;
    all->hashed_bytes += one->hashed_bytes;
    all->usage_windows += one->usage_windows;
    all->pages += one->pages;
    all->pages_used += one->pages_used;
    all->pages_free += one->pages_free;
    all->pages_lost += one->pages_lost;
    all->reads += one->reads;
    all->generations = greater(all->generations, one->generations);
    all->snapshots = greater(all->snapshots, one->snapshots);
    all->commits = greater(all->commits, one->commits);
    if (one->longest_read_ms > all->longest_read_ms) all->longest_read_ms = one->longest_read_ms;
    memcpy(all->root, one->root, sizeof(all->root));
    if (one->remedy.kind > all->remedy.kind) all->remedy = one->remedy;
}

static reef_status check_shard(const char *path,
                               reef_verify_work check,
                               shard_findings *findings,
                               reef_check_report *report,
                               reef_error *err) {
    reef_check_report one = {0};
    reef_check_options options = *findings->options;
    options.on_damage = on_damage;
    options.context = findings;
    char *shard = reef_view_shard_path(path, findings->rank);
    if (shard == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to check the shards of %s", path);
    reef_status status = check(shard, &options, &one, err);
    add_report(report, &one);
    free(shard);
    return status;
}

reef_status reef_shards_verify(const char *path,
                               reef_verify_work check,
                               const reef_check_options *options,
                               reef_check_report *report,
                               reef_error *err) {
    uint32_t count = 0;
    reef_store *store = NULL;
    shard_findings findings = {.options = options};
    *report = (reef_check_report){0};
    reef_status status = reef_view_count(path, &count, err);
    if (status != REEF_OK) return status;
    for (; status == REEF_OK && findings.rank < count; findings.rank++)
        status = check_shard(path, check, &findings, report, err);
    if (status == REEF_OK && report->damaged == 0)
        status = reef_store_open(&store, path, NULL, err);
    reef_store_close(store);
    return status;
}
