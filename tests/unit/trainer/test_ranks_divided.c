// Ranks that divide the rows of experts hold together what one process alone holds, to the bit, in
// memory and on the disk. Every rank runs this program (mpirun).
#include "lifelong.h"
#include "nn_internal.h"
#include "reef_mpi.h"
#include "trainer_internal.h"

enum { PIECE = 5000, FIRST = 12000, AGAIN = 12000, DEADLINE_SECONDS = 120 };

static reef_mpi *mpi;
static reef_ranks *ranks;

// Blocks of 1,024 rows: two in each table of either generation, the second one short. Without
// memories where the settings give none.
static void begin(lifelong **f, const char *const *settings) {
    lifelong_setup((void **)f);
    (*f)->config = lifelong_config();
    forget_memories(*f);
    choose(&(*f)->config, "side", "36");
    for (; settings[0] != NULL; settings += 2) choose(&(*f)->config, settings[0], settings[1]);
}

static reef_trainer_options options_of(lifelong *f, bool divided, size_t threads) {
    reef_trainer_options options = {
        .threads = threads, .on_event = lifelong_on_event, .context = f};
    if (!divided) return options;
    options.ranks = ranks;
    options.shard = (reef_shard){.rank = (uint32_t)reef_ranks_rank(ranks),
                                 .count = (uint32_t)reef_ranks_count(ranks)};
    return options;
}

static void open_divided(lifelong *f, bool divided, size_t threads) {
    reef_txn *txn = NULL;
    reef_trainer_options options = options_of(f, divided, threads);
    f->store = pool_open(f->pool, false, true);
    if (divided) { // the epoch goes on
        txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_shard_read(txn, &options.shard, &why));
        reef_txn_abort(txn);
    }
    must(reef_trainer_open(&f->trainer, f->store, &options, &why));
    f->trainer->kinds.return_bytes = 4000;
}

// A new pool; of ranks each makes the whole one, and of that its shard.
static void begin_pool(lifelong *f, bool divided, size_t threads) {
    reef_store *store = NULL;
    reef_shard_making made;
    char whole[TEMP_DIR_BYTES];
    const reef_shard shard = options_of(f, true, 1).shard;
    temp_dir_join(whole, f->dir, "whole");
    must(reef_pool_init(divided ? whole : f->pool, &f->config, &why));
    if (divided) {
        must(reef_store_open(&store, whole, &(reef_store_options){.write = true}, &why));
        must(reef_shard_make(&store, 1, &shard, f->pool, &made, &why));
        reef_store_close(store);
    }
    open_divided(f, divided, threads);
}

// Every rank learns the roots of one alone from rank 0, which is that one.
typedef reef_commit (*story)(lifelong *f, bool divided, size_t threads);

// All shards together, in a whole pool beside that of rank 0.
static void gather(const lifelong *f, const reef_commit *one) {
    reef_store *shards[REEF_RANKS_MAX] = {0}, *whole = NULL;
    reef_shard_making made;
    reef_check_report report;
    static char pools[REEF_RANKS_MAX][TEMP_DIR_BYTES];
    char to[TEMP_DIR_BYTES];
    size_t count = reef_ranks_count(ranks), rank = reef_ranks_rank(ranks);
    memcpy(pools[rank], f->pool, sizeof(pools[rank]));
    const reef_ranks_array each = {pools, sizeof(*pools), sizeof(*pools)};
    reef_ranks_gather(ranks, count, 1, &each); // they are closed now
    if (rank == 0) {
        for (size_t r = 0; r < count; r++)
            must(reef_store_open(&shards[r], pools[r], &(reef_store_options){.write = true}, &why));
        temp_dir_join(to, f->dir, "gathered");
        must(reef_shards_check(shards, count, &why));
        must(reef_shard_make(shards, count, NULL, to, &made, &why));
        must(reef_store_open(&whole, to, NULL, &why));
        report = pool_check(whole);
        assert_memory_equal(report.root, one->root, sizeof(one->root));
        float *logits = new_logits();
        logits_of(whole, NULL, 1, logits); // all rows are there
        reef_store_close(whole);
        for (size_t r = 0; r < count; r++) reef_store_close(shards[r]);
    }
    reef_ranks_gather(ranks, count, 1, &each);
}

static void same_root(const char *const *settings, story tell, size_t threads) {
    lifelong *f = NULL;
    reef_commit one = {0};
    if (reef_ranks_rank(ranks) == 0) {
        begin(&f, settings);
        one = tell(f, false, 1);
        lifelong_teardown((void **)&f);
    }
    reef_ranks_tell(ranks, one.root, sizeof(one.root));
    begin(&f, settings);
    reef_commit many = tell(f, true, threads);
    assert_memory_equal(many.root, one.root, sizeof(one.root));
    assert_sound(f);
    close_pool(f);
    gather(f, &one);
    lifelong_teardown((void **)&f);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

// Two boundaries, and the first kind again.
static reef_commit three_kinds(lifelong *f, bool divided, size_t threads) {
    begin_pool(f, divided, threads);
    feed_kind(f, 0, PIECE, 3);
    next_kind(f);
    feed_kind(f, 1, PIECE, 4);
    (void)commit(f);
    next_kind(f);
    feed_kind(f, 2, PIECE, 5);
    feed_kind(f, 0, PIECE, 6);
    assert_int_equal(status_of(f).generation, 2);
    return commit(f);
}

PLAIN_TEST(boundaries_and_a_kind_that_returns) {
    same_root(SETTINGS("ffw", "pp"), three_kinds, 1);
    same_root(SETTINGS("ffw", "dp", "seal_dtype", "int8"), three_kinds, 2);
    if (reef_ranks_count(ranks) == 2)
        same_root(SETTINGS("ffw", "kp", "seal_dtype", "int8"), three_kinds, 1);
}

// Three ranks stand for others where one setting after another is tried.
static void only_of_three(void) {
    if (reef_ranks_count(ranks) != 3) skip();
}

PLAIN_TEST(other_experts_and_weights) {
    only_of_three();
    same_root(SETTINGS("ffw", "mp"), three_kinds, 2);
    same_root(SETTINGS("ffw", "kp"), three_kinds, 1);
}

// By command: the grid grows, rows are frozen, a state gets a name, one is given up; and all ranks
// begin again from the disk.
static reef_commit by_command(lifelong *f, bool divided, size_t threads) {
    reef_snapshot snapshot;
    uint64_t changed;
    char names[1][REEF_NAME_BYTES_MAX + 1] = {"before"};
    reef_freeze freeze = {.layer = -1, .first = 500, .last = 1100};
    begin_pool(f, divided, threads);
    feed_kind(f, 0, PIECE, 3);
    must(reef_trainer_snapshot(f->trainer, "before", &snapshot, &why));
    must(reef_trainer_grow(f->trainer, 47, &why));
    must(reef_trainer_freeze(f->trainer, &freeze, &changed, &why));
    feed_kind(f, 0, PIECE, 4);
    must(reef_trainer_snapshot(f->trainer, "after", &snapshot, &why));
    close_pool(f);
    open_divided(f, divided, threads);
    feed_kind(f, 0, PIECE, 5);
    must(reef_trainer_seal(f->trainer, "int8", NULL, &why));
    must(reef_trainer_snapshots_remove(f->trainer, names, 1, &why));
    feed_kind(f, 0, PIECE, 6);
    (void)commit(f);
    close_pool(f);
    open_divided(f, divided, threads);
    feed_kind(f, 1, PIECE, 7);
    return commit(f);
}

PLAIN_TEST(commands_and_another_start) {
    same_root(SETTINGS("ffw", "pp"), by_command, 1);
}

// Sealed rows that do not fit in memory stay in the map.
static reef_commit in_the_map(lifelong *f, bool divided, size_t threads) {
    reef_trainer_options options = options_of(f, divided, threads);
    begin_pool(f, divided, threads);
    feed_kind(f, 0, PIECE, 3);
    next_kind(f);
    feed_kind(f, 1, PIECE, 4);
    (void)commit(f);
    options.shard.epoch = reef_trainer_epoch(f->trainer);
    close_pool(f);
    options.memory_bytes = 1;
    f->store = pool_open(f->pool, false, true);
    must(reef_trainer_open(&f->trainer, f->store, &options, &why));
    feed_kind(f, 2, PIECE, 5);
    return commit(f);
}

PLAIN_TEST(rows_in_the_map) {
    same_root(SETTINGS("ffw", "pp"), in_the_map, 1);
}

// A kind, another, and the first again until its net goes on learning: a copy of sealed rows. Then
// all ranks begin again from the disk, where each has some blocks of every memory.
static reef_commit kinds_that_return(lifelong *f, bool divided, size_t threads) {
    reef_snapshot snapshot;
    begin_pool(f, divided, threads);
    feed_kind(f, 0, FIRST, 1);
    (void)commit(f);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 0, AGAIN, 3);
    must(reef_trainer_snapshot(f->trainer, "kept", &snapshot, &why));
    close_pool(f);
    open_divided(f, divided, threads);
    feed_kind(f, 1, PIECE, 4);
    feed_kind(f, 0, PIECE, 5);
    assert_int_equal(times_said(f, "\"event\": \"return\""), 1);
    for (int kind = 2; kind < 4; kind++) feed_kind(f, kind, FIRST, 6);
    (void)commit(f);
    for (int kind = 0; kind < 4; kind++) {
        feed_kind(f, kind, PIECE, 7);
        (void)commit(f);
    }
    return commit(f);
}

PLAIN_TEST(nets_that_follow_their_kinds) {
    only_of_three();
    same_root(SETTINGS("memory", "4194304", "boundaries", "contexts", "net_share", "0.5"),
              kinds_that_return, 1);
}

// ---- what is refused ----------------------------------------------------------------------------

// Rows change by a commit of all ranks only, and who reads them all is told how.
PLAIN_TEST(a_shard_alone) {
    lifelong *f = NULL;
    reef_model *model = NULL;
    reef_commit last;
    uint32_t own = 0, other = 0;
    static const float row[32] = {1};
    begin(&f, SETTINGS("ffw", "pp"));
    begin_pool(f, true, 1);
    feed_kind(f, 0, PIECE, 3);
    last = commit(f);
    close_trainer(f);
    must_fail(reef_model_open(&model, f->store, NULL, NULL, &why), REEF_ERR_INVALID,
              "has only the rows that this rank owns");
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    uint32_t count = (uint32_t)reef_ranks_count(ranks), rank = (uint32_t)reef_ranks_rank(ranks);
    while (reef_shard_owner(1, own, count) != rank) own++;
    while (reef_shard_owner(1, other, count) == rank) other++;
    reef_key key = {.db = REEF_DB_EXPERTS, .layer = 1, .block = other};
    must_fail(reef_record_put(txn, &key, REEF_F32, row, sizeof(row), &why), REEF_ERR_INVALID,
              "lies in that of rank");
    key.block = own;
    must(reef_record_put(txn, &key, REEF_F32, row, sizeof(row), &why));
    must_fail(reef_txn_commit(txn, &last, &why), REEF_ERR_INVALID,
              "can be changed only by all ranks together");
    assert_sound(f);
    lifelong_teardown((void **)&f);
}

// A rank that fails in its share of a step must not leave the others waiting for it.
PLAIN_TEST(a_failure_of_one_rank_is_that_of_all) {
    reef_status own = REEF_OK;
    char named[32];
    size_t last = reef_ranks_count(ranks) - 1, rank = reef_ranks_rank(ranks);
    snprintf(named, sizeof(named), "rank %zu failed", last);
    if (rank == last) own = reef_fail(&why, REEF_ERR_NO_MEMORY, "its own words");
    must_fail(reef_split_agree(ranks, own, &why), REEF_ERR_NO_MEMORY,
              rank == last ? "its own words" : named);
    must(reef_split_agree(ranks, REEF_OK, &why));
}

static void say(void *context, const char *words) {
    (void)context;
    print_error("%s\n", words);
}

int main(void) {
    reef_ranks_link link;
    if (reef_mpi_begin(&mpi, DEADLINE_SECONDS, say, NULL, &why) != REEF_OK) {
        print_error("%s\n", why.message);
        return EXIT_FAILURE;
    }
    reef_mpi_link(mpi, &link);
    if (reef_ranks_new(&ranks, &link, &why) != REEF_OK) return EXIT_FAILURE;
    int failed = test_run(NULL, NULL);
    // The others would wait for a rank that gave up half way.
    if (failed > 0) reef_ranks_end(ranks, "a test failed on a rank");
    reef_ranks_free(ranks);
    reef_mpi_end(mpi);
    return failed;
}
