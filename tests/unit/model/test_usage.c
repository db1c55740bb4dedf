// Usage over time as training leaves it: windows that add up to the totals, and no trace in the
// root hash.
#include "lifelong.h"
#include "reef_usage.h"
#include "test.h"

#include <time.h>

#define DAY_MS UINT64_C(86400000)
#define EXPERTS_MAX 64

static uint64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static size_t experts_of(lifelong *f, reef_txn *txn, uint32_t g) {
    reef_generation_record info;
    must(reef_generation_read(txn, g, &info, &why));
    assert_in_range(info.side * info.side, 1, EXPERTS_MAX);
    return (size_t)info.side * info.side;
}

// The windows of every layer of a generation add up to its totals; returns how many there are of
// them.
static uint64_t assert_windows_add_up(lifelong *f, uint32_t g) {
    uint64_t windows = 0;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    size_t experts = experts_of(f, txn, g);
    for (uint32_t layer = 0; layer < f->config.layers; layer++) {
        uint64_t sums[EXPERTS_MAX][2] = {{0}}, selections = 0;
        uint64_t totals[EXPERTS_MAX][2] = {{0}};
        reef_usage_range range = {.until_ms = UINT64_MAX};
        const reef_key key = {.db = REEF_DB_USAGE, .generation = g, .layer = layer};
        must(reef_record_read(txn, &key, totals, experts * 16, &why));
        must(reef_usage_sum(txn, g, layer, experts, &range, sums[0], &why));
        for (size_t i = 0; i < experts; i++) selections += totals[i][0];
        assert_true(selections > 0);
        assert_memory_equal(sums, totals, sizeof(sums));
        windows += range.windows;
    }
    reef_txn_abort(txn);
    return windows;
}

// Every batch is the net's, so that it uses experts between any two commits.
static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "net_share", "1");
    give_boundaries(f);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, lifelong_teardown, lifelong *f)

FIXTURE_TEST(windows_add_up_over_commits_and_boundaries) {
    make_pool(f, 1);
    for (uint32_t n = 0; n < 5; n++) {
        feed_kind(f, 0, (size_t)LIFELONG_BATCH * 4, n);
        commit(f);
    }
    assert_int_equal(assert_windows_add_up(f, 0), 2 * 5); // a delta for each layer and commit
    commit(f);
    assert_int_equal(assert_windows_add_up(f, 0), 2 * 5); // none where nothing was used
    feed_kind(f, 0, (size_t)LIFELONG_BATCH * 4, 9);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 1, (size_t)LIFELONG_BATCH * 4, 1);
    commit(f);
    close_pool(f);
    open_pool(f, 1); // what was counted is read back: the next delta is from there
    feed_kind(f, 1, (size_t)LIFELONG_BATCH * 4, 2);
    must(reef_trainer_grow(f->trainer, 8, &why));
    feed_kind(f, 1, (size_t)LIFELONG_BATCH * 4, 3);
    commit(f);
    assert_windows_add_up(f, 0);
    assert_windows_add_up(f, 1);
}

// Train a stream with commits of one's own choice; the last commit.
static reef_commit train(lifelong *f, size_t commit_every, bool compacting) {
    make_pool(f, 1);
    reef_commit last = {0};
    for (uint32_t n = 0; n < 12; n++) {
        feed_kind(f, 0, LIFELONG_BATCH, n);
        if (n % commit_every == commit_every - 1) last = commit(f);
        reef_usage_compaction done = {.merged = 1};
        // As if days had passed, so that there is something to do.
        while (compacting && (done.merged > 0 || done.dropped > 0))
            must(reef_store_compact(f->store, wall_ms() + 10 * DAY_MS, &done, NULL, &why));
    }
    return last;
}

FIXTURE_TEST(the_root_hash_knows_nothing_of_windows) {
    static const struct {
        size_t commit_every;
        bool compacting;
    } ways[] = {{12, false}, {1, false}, {3, true}, {1, true}};
    reef_commit first = {0};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        reef_commit last = train(f, ways[i].commit_every, ways[i].compacting);
        assert_windows_add_up(f, 0);
        if (i == 0) first = last;
        assert_memory_equal(last.root, first.root, REEF_HASH_BYTES);
        remove_pool(f);
    }
}

FIXTURE_TEST(a_trainer_compacts_what_is_old_and_trains_on) {
    reef_usage_compaction done;
    const reef_usage_use use = {.expert = 3, .count = 2, .score = 9};
    make_pool(f, 1);
    feed_kind(f, 0, (size_t)LIFELONG_BATCH * 2, 1);
    reef_commit before = commit(f);
    must(reef_trainer_compact(f->trainer, &done, &why));
    assert_int_equal(done.merged + done.dropped, 0); // all is of this moment
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (uint64_t n = 0; n < 3; n++)
        must(reef_usage_add(txn, 0, 0, 1, &use, wall_ms() - DAY_MS + n, &why));
    reef_commit aside = {.step = before.step, .stream_bytes = before.stream_bytes};
    must(reef_txn_commit(txn, &aside, &why));
    feed_kind(f, 0, (size_t)LIFELONG_BATCH * 2, 2); // not committed yet, and stays so
    uint64_t dirty = status_of(f).dirty_since_step;
    assert_true(dirty > 0);
    must(reef_trainer_compact(f->trainer, &done, &why));
    assert_int_equal(done.merged, 3);
    must(reef_trainer_compact(f->trainer, &done, &why));
    assert_int_equal(done.merged, 0);
    assert_int_equal(status_of(f).dirty_since_step, dirty);
    txn = pool_begin(f->store, REEF_TXN_READ);
    reef_commit after;
    must(reef_commit_read(txn, &after, &why));
    reef_txn_abort(txn);
    assert_true(after.step == before.step);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
    assert_true(commit(f).step == before.step + dirty);
}

RUN_TESTS
