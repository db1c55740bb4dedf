// A large sealed generation beside a small open one: what a snapshot and opening cost then; and the
// file after many commits while readers come and go.
#include "bench_layer.h"
#include "bench_store.h"
#include "cli_progress.h"
#include "reef_clock.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "scratch_pool.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES ((size_t)1 << 16)
#define OPEN_SIDE 64 // 4,096 experts
#define COMMITS_AFTER_SEALING 5
#define SNAPSHOTS 9
#define OPENINGS 5
#define OPEN_MEMORY_BYTES ((uint64_t)64 << 20) // so little that rows are read in place

// ---- a pool with a sealed and an open generation ------------------------------------------------

static void configure_pool(reef_config *config, uint64_t side) {
    reef_config_default(config);
    // The benchmark decides when a generation is sealed.
    config->boundaries = REEF_BOUNDARIES_GIVEN;
    // A small model with many experts: it is the number of experts that is measured, not the
    // training.
    strcpy(config->ffw, "p");
    config->layers = 1;
    config->d_model = 32;
    config->attention_heads = 2;
    config->context = 32;
    config->heads = 2;
    config->topk = 8;
    config->d_key = 16;
    config->side = (uint32_t)side;
    config->side_new = OPEN_SIDE;
}

static reef_status feed_text(reef_trainer *trainer,
                             const uint8_t *text,
                             size_t count,
                             reef_error *err) {
    size_t taken = 0;
    return reef_trainer_feed(trainer, "bench", text, count, &taken, NULL, err);
}

typedef struct tally {
    uint64_t bytes, newer; // payload; of it, in records that were written after commit `limit`
    uint64_t limit;
} tally;

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)key, (void)err;
    tally *t = context;
    t->bytes += view->bytes;
    if (view->commit > t->limit) t->newer += view->bytes;
    return REEF_OK;
}

static reef_status tally_generation(reef_txn *txn, uint32_t generation, tally *t, reef_error *err) {
    static const reef_db PARTS[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS, REEF_DB_MEMORY,
                                    REEF_DB_VISITS};
    reef_status status = REEF_OK;
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]) && status == REEF_OK; i++)
        status = reef_record_scan(txn, PARTS[i], generation, on_record, t, err);
    return status;
}

static reef_status count_payload(reef_store *store,
                                 uint64_t sealed_at,
                                 reef_store_pool *out,
                                 reef_error *err) {
    reef_txn *txn = NULL;
    tally sealed = {.limit = sealed_at}, open = {0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    // Blocks of the sealed generation written after sealing are counted: there should be none.
    if (status == REEF_OK) status = tally_generation(txn, 0, &sealed, err);
    if (status == REEF_OK) status = tally_generation(txn, 1, &open, err);
    if (status == REEF_OK)
        // The optimiser's moments belong to the open generation only.
        status = reef_record_scan(txn, REEF_DB_MOMENTS, 1, on_record, &open, err);
    reef_txn_abort(txn);
    out->pool_bytes = sealed.bytes + open.bytes;
    out->open_bytes = open.bytes;
    out->sealed_bytes_rewritten = sealed.newer;
    return status;
}

// Train, seal, train on and commit several times.
static reef_status make_history(reef_store *store, uint64_t *sealed_at, reef_error *err) {
    reef_trainer *trainer = NULL;
    reef_sealing sealing;
    reef_commit commit = {0};
    // The text is split evenly, so that every commit has new training in it.
    uint8_t *text = reef_bench_text(TEXT_BYTES);
    size_t part = TEXT_BYTES / (COMMITS_AFTER_SEALING + 1);
    reef_status status = reef_trainer_open(&trainer, store, &(reef_trainer_options){0}, err);
    if (status == REEF_OK) status = feed_text(trainer, text, part, err);
    if (status == REEF_OK) status = reef_trainer_seal(trainer, NULL, &sealing, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, &commit, err);
    // What is written later than this commit number has been written after sealing.
    *sealed_at = commit.number;
    // Commits after sealing would show whether the sealed generation is written again.
    for (size_t i = 1; i <= COMMITS_AFTER_SEALING && status == REEF_OK; i++) {
        status = feed_text(trainer, text + i * part, part, err);
        if (status == REEF_OK) status = reef_trainer_commit(trainer, &commit, err);
    }
    reef_trainer_close(trainer);
    free(text);
    return status;
}

static reef_status snapshot_once(reef_store *store, size_t number, reef_error *err) {
    reef_txn *txn = NULL;
    reef_snapshot snapshot;
    char *name = reef_cli_format("bench-%zu", number);
    reef_commit commit = {0};
    // A snapshot belongs to a commit, so the last commit is read in the same transaction.
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_snapshot_create(txn, name, &snapshot, err);
    free(name);
    // Committed with the same number: no training has happened.
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status take_snapshots(reef_store *store, reef_store_pool *out, reef_error *err) {
    reef_check_report before, after;
    double seconds[SNAPSHOTS];
    // Bytes in use before and after: what the snapshots cost on disk.
    reef_status status = reef_store_check(store, NULL, NULL, &before, err);
    // Several snapshots, because one is too small to be measured in pages.
    for (size_t i = 0; i < SNAPSHOTS && status == REEF_OK; i++) {
        double begin = reef_seconds();
        status = snapshot_once(store, i, err);
        seconds[i] = reef_seconds() - begin;
    }
    if (status == REEF_OK) status = reef_store_check(store, NULL, NULL, &after, err);
    if (status != REEF_OK) return status;
    // The size is given in units of the open generation, because a copy would cost one whole unit.
    out->snapshot_ms = 1e3 * reef_bench_median(seconds, SNAPSHOTS, 1);
    out->snapshot_bytes_vs_open = ((double)after.used_bytes - (double)before.used_bytes) /
                                  SNAPSHOTS / (double)out->open_bytes;
    return REEF_OK;
}

static reef_status open_in_place(const char *path, double *ms, reef_error *err) {
    double seconds[OPENINGS];
    reef_status status = REEF_OK;
    // Opened again each time, as a reader does after a commit.
    for (size_t i = 0; i < OPENINGS && status == REEF_OK; i++) {
        reef_store *store = NULL;
        reef_model *model = NULL;
        // Both parts count: the user waits for the environment and for the model.
        double begin = reef_seconds();
        status = reef_store_open(&store, path, &(reef_store_options){0}, err);
        // A memory limit makes the model read its experts in place instead of copying them.
        if (status == REEF_OK)
            status = reef_model_open(&model, store, NULL,
                                     &(reef_model_options){.memory_bytes = OPEN_MEMORY_BYTES}, err);
        seconds[i] = reef_seconds() - begin;
        reef_model_close(model);
        reef_store_close(store);
    }
    if (status == REEF_OK) *ms = 1e3 * reef_bench_median(seconds, OPENINGS, 1);
    return status;
}

reef_status reef_bench_store_pool(const reef_store_plan *plan,
                                  reef_store_pool *out,
                                  reef_error *err) {
    char *path = reef_cli_format("%s/pool", plan->directory);
    reef_config config;
    reef_store *store = NULL;
    uint64_t sealed_at = 0;
    // The pool's own seal, commit and snapshot are used; nothing is imitated.
    configure_pool(&config, plan->sealed_side);
    *out = (reef_store_pool){.sealed_experts = plan->sealed_side * plan->sealed_side,
                             .open_experts = OPEN_SIDE * OPEN_SIDE};
    reef_status status = reef_pool_init(path, &config, err);
    if (status == REEF_OK)
        status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK) status = make_history(store, &sealed_at, err);
    if (status == REEF_OK) status = count_payload(store, sealed_at, out, err);
    if (status == REEF_OK) status = take_snapshots(store, out, err);
    // Closed before the readers open it, as a process must not open one LMDB environment twice.
    reef_store_close(store);
    if (status == REEF_OK) status = open_in_place(path, &out->open_ms, err);
    free(path);
    return status;
}

// ---- growth of the file -------------------------------------------------------------------------

#define GROWTH_BLOCKS 128u
#define GROWTH_CHANGED 8u // of them in a commit
#define GROWTH_BLOCK_BYTES REEF_BLOCK_BYTES_MAX

static reef_status put_some(reef_txn *txn, uint64_t round, uint32_t count, reef_error *err) {
    uint64_t words[GROWTH_BLOCK_BYTES / sizeof(uint64_t)];
    reef_status status = REEF_OK;
    for (uint32_t i = 0; i < count && status == REEF_OK; i++) {
        // An odd multiplier reaches every block, in runs that lie apart as those of training do.
        const reef_key key = {.db = REEF_DB_EXPERTS,
                              .block = (uint32_t)((round * count + i) * 77u % GROWTH_BLOCKS)};
        // Values that differ in every round: an equal block would not be written.
        for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
            words[k] = (round + 1) * 0x9E3779B97F4A7C15u + k * 0xBF58476D1CE4E5B9u;
        status = reef_record_put(txn, &key, REEF_F32, words, sizeof(words), err);
    }
    return status;
}

static reef_status commit_some(reef_store *store, uint64_t round, uint32_t count, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit = {.step = round};
    const reef_generation_record open = {.dtype = REEF_F32, .side = 1};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = reef_generation_put(txn, &open, err);
    if (status == REEF_OK) status = put_some(txn, round, count, err);
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

// Every reader lives through one commit: an evaluation, which copies what it needs and then
// releases the pool, may hold its transaction that long beside a writer that never rests.
static reef_status renew_readers(reef_store *store,
                                 uint64_t round,
                                 size_t count,
                                 reef_txn **readers,
                                 uint64_t *reads,
                                 reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < count && status == REEF_OK; i++) {
        reef_commit seen;
        // A reader that held an old transaction for ever would keep all its pages in use.
        reef_txn_abort(readers[i]);
        readers[i] = NULL;
        status = reef_txn_begin(&readers[i], store, REEF_TXN_READ, err);
        if (status == REEF_OK) status = reef_commit_read(readers[i], &seen, err);
        // Each reader must see the commit just made; anything else is a fault, not a measurement.
        if (status == REEF_OK && seen.step != round)
            status =
                reef_fail(err, REEF_ERR_CORRUPT, "a reader sees a commit that is not the last");
        ++*reads;
    }
    return status;
}

static reef_status run_commits(const reef_store_plan *plan,
                               reef_store *store,
                               reef_store_growth *out,
                               reef_error *err) {
    reef_cli_progress progress;
    reef_txn **readers = reef_cli_alloc((size_t)plan->readers + 1, sizeof(*readers));
    reef_status status = REEF_OK;
    reef_cli_progress_start(&progress, "committing", plan->commits, "commits");
    // One commit, then all readers renew their transaction.
    for (uint64_t i = 1; i <= plan->commits && status == REEF_OK; i++) {
        status = commit_some(store, i, GROWTH_CHANGED, err);
        if (status == REEF_OK)
            status = renew_readers(store, i, (size_t)plan->readers, readers, &out->reads, err);
        reef_cli_progress_show(&progress, i);
    }
    reef_cli_progress_end(&progress);
    // Aborting NULL is allowed: some readers may not have begun.
    for (size_t i = 0; i < plan->readers; i++) reef_txn_abort(readers[i]);
    free(readers);
    return status;
}

reef_status reef_bench_store_growth(const reef_store_plan *plan,
                                    reef_store_growth *out,
                                    reef_error *err) {
    char *path = reef_cli_format("%s/growth", plan->directory);
    reef_store *store = NULL;
    reef_check_report report = {0};
    *out = (reef_store_growth){.commits = plan->commits,
                               .commit_bytes = (uint64_t)GROWTH_CHANGED * GROWTH_BLOCK_BYTES};
    reef_status status =
        reef_store_open(&store, path, &(reef_store_options){.create = true, .write = true}, err);
    // All blocks once, so that later rounds change blocks and add none.
    if (status == REEF_OK) status = commit_some(store, 0, GROWTH_BLOCKS, err);
    if (status == REEF_OK) status = run_commits(plan, store, out, err);
    if (status == REEF_OK) status = reef_store_check(store, NULL, NULL, &report, err);
    reef_store_close(store);
    out->live_bytes = report.used_bytes;
    out->file_bytes = report.file_bytes;
    // Free pages in units of one commit: a bound that holds for ever shows that they are reused.
    out->growth_vs_commit =
        ((double)out->file_bytes - (double)out->live_bytes) / (double)out->commit_bytes;
    free(path);
    return status;
}
