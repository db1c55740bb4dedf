// The shards of a pool, read as one: every record of the pool once, in order; each read of one
// epoch, however the ranks commit meanwhile; and what is not one pool ends in one message that
// names the shard.
#include "reef_shard.h"
#include "reef_store.h"

#include <pthread.h>
#include <time.h>

#include "damaged_record.h"
#include "pool.h"
#include "test.h"

enum { RANKS = 3, LAYERS = 2, BLOCKS = 5, PAYLOAD = 700, DATABASES = 8, PAUSE_MS = 60 };

typedef struct fixture {
    pool_fixture *whole;
    char many[TEMP_DIR_BYTES]; // holds rank-0 and so on
} fixture;

static const reef_db databases[DATABASES] = {REEF_DB_META,    REEF_DB_TENSORS,     REEF_DB_EXPERTS,
                                             REEF_DB_MOMENTS, REEF_DB_GENERATIONS, REEF_DB_MEMORY,
                                             REEF_DB_VISITS,  REEF_DB_BLOCKS};

static void fill_pool(reef_store *store) {
    uint8_t payload[PAYLOAD];
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t block = 0; block < BLOCKS; block++) {
            fill(payload, sizeof(payload), 10 * layer + block);
            pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .layer = layer, .block = block},
                     payload, sizeof(payload));
            payload[0]++;
            pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .layer = layer, .block = block},
                     payload, sizeof(payload));
        }
    }
    for (uint32_t block = 0; block < BLOCKS; block++) {
        payload[1]++;
        const reef_key number = reef_block_key(block + 1);
        pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .name = "mixer", .block = block}, payload,
                 300);
        pool_put(txn, &number, payload, 300);
        pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .name = "tail", .block = block}, payload,
                 40);
        pool_put(txn,
                 &(reef_key){.db = REEF_DB_VISITS, .layer = 1, .name = "mixer", .block = block},
                 payload, 200);
    }
    pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .name = "embedding"}, payload, 50);
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "embedding"}, payload, 90);
    pool_put(txn, &(reef_key){.db = REEF_DB_META, .name = "config"}, "{}", 2);
    (void)pool_commit(txn, 1);
}

static void divide_to(fixture *f, const char *to) {
    reef_shard_making made[RANKS];
    must(reef_shards_make(&f->whole->store, 1, RANKS, to, false, made, &why));
}

static int setup(void **state) {
    fixture *f = room(sizeof(*f));
    void *whole;
    (void)pool_setup(&whole);
    f->whole = whole;
    fill_pool(f->whole->store);
    temp_dir_join(f->many, f->whole->directory, "many");
    divide_to(f, f->many);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    void *whole = f->whole;
    (void)pool_teardown(&whole);
    return 0;
}

static void shard_at(const fixture *f, uint32_t rank, char out[TEMP_DIR_BYTES]) {
    char name[32];
    snprintf(name, sizeof(name), "rank-%u", rank);
    temp_dir_join(out, f->many, name);
}

static reef_store *open_rank(const fixture *f, uint32_t rank) {
    char path[TEMP_DIR_BYTES];
    shard_at(f, rank, path);
    return pool_open(path, false, true);
}

// The next epoch of one rank: a tensor, which every shard has, takes this value.
static void commit_epoch(reef_store *store, uint8_t value) {
    reef_shard shard;
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_shard_read(txn, &shard, &why));
    shard.epoch++;
    must(reef_shard_put(txn, &shard, &why));
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "embedding"}, &value, 1);
    (void)pool_commit(txn, 2);
}

static void commit_ranks(const fixture *f, uint32_t first, uint32_t end, uint8_t value) {
    for (uint32_t rank = first; rank < end; rank++) {
        reef_store *store = open_rank(f, rank);
        commit_epoch(store, value);
        reef_store_close(store);
    }
}

// ---- what is read -------------------------------------------------------------------------------

typedef struct comparison {
    reef_txn *other;
    reef_key last;
    size_t count;
} comparison;

// In both pools, equal, and in order.
static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    comparison *c = context;
    reef_view there;
    const void *at = NULL;
    // A pool's own commit and shard are not those of the other.
    bool own = key->db == REEF_DB_META && strcmp(key->name, "config") != 0;
    if (own) return REEF_OK;
    reef_status status = reef_record_view(c->other, key, &there, err);
    if (status != REEF_OK) return status;
    assert_int_equal(there.bytes, view->bytes);
    assert_int_equal(there.commit, view->commit);
    assert_memory_equal(there.data, view->data, view->bytes);
    must(reef_record_locate(c->other, key, view->bytes, &at, &why));
    assert_memory_equal(at, view->data, view->bytes);
    if (key->db == REEF_DB_BLOCKS)
        assert_true(key->sequence > c->last.sequence);
    else if (c->count > 0 && key->name == NULL && key->db != REEF_DB_GENERATIONS)
        assert_true(key->layer > c->last.layer ||
                    (key->layer == c->last.layer && key->block > c->last.block));
    c->last = *key;
    c->count++;
    return REEF_OK;
}

static size_t compare(reef_store *one, reef_store *other, reef_db db) {
    reef_txn *txn = pool_begin(one, REEF_TXN_READ);
    comparison c = {.other = pool_begin(other, REEF_TXN_READ)};
    must(reef_record_scan(txn, db, UINT32_MAX, on_record, &c, &why));
    reef_txn_abort(c.other);
    reef_txn_abort(txn);
    return c.count;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, fixture *f)

FIXTURE_TEST(every_record_is_read_once) {
    reef_store *view = pool_open(f->many, false, false);
    assert_int_equal(reef_store_part_count(view), RANKS);
    assert_int_equal(reef_store_part_count(f->whole->store), 1);
    assert_string_equal(reef_store_path(view), f->many);
    for (size_t d = 0; d < DATABASES; d++) {
        size_t count = compare(f->whole->store, view, databases[d]);
        assert_true(count > 0);
        assert_int_equal(compare(view, f->whole->store, databases[d]), count);
    }
    reef_txn *txn = pool_begin(view, REEF_TXN_READ);
    reef_view none;
    reef_file_stat file;
    reef_readers readers;
    const reef_key absent = {.db = REEF_DB_EXPERTS, .layer = 1, .block = BLOCKS};
    must_fail(reef_record_view(txn, &absent, &none, &why), REEF_ERR_NOT_FOUND, "is not in");
    must(reef_shard_check_whole(txn, &why));
    must(reef_file_stat_read(txn, &file, &why));
    assert_true(file.file_bytes > 3 * 4096 && file.free_bytes < file.file_bytes);
    must(reef_store_readers(view, &readers, &why));
    assert_int_equal(readers.count, RANKS); // `txn`, in each shard
    reef_txn_abort(txn);
    reef_store_close(view);
}

// Every rank holds the memories.
FIXTURE_TEST(all_of_a_memory_lies_in_every_shard) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        reef_store *shard = open_rank(f, rank);
        reef_txn *txn = pool_begin(shard, REEF_TXN_READ);
        for (uint32_t block = 0; block < BLOCKS; block++) {
            const reef_key keys[] = {
                {.db = REEF_DB_MEMORY, .name = "mixer", .block = block},
                {.db = REEF_DB_MEMORY, .name = "tail", .block = block},
                {.db = REEF_DB_VISITS, .layer = 1, .name = "mixer", .block = block},
                reef_block_key(block + 1)};
            for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
                reef_view one;
                assert_false(reef_shard_is_elsewhere(txn, &keys[i]));
                must(reef_record_view(txn, &keys[i], &one, &why));
            }
        }
        reef_txn_abort(txn);
        reef_store_close(shard);
    }
}

static void on_damaged_row(void *context, const char *what) {
    if (strstr(what, "rank-1: experts (generation 0, layer 0, block 1)") != NULL)
        ++*(size_t *)context;
}

FIXTURE_TEST(a_damaged_row_is_found_in_its_shard) {
    const reef_key key = {.db = REEF_DB_EXPERTS, .block = 1};
    char shard[TEMP_DIR_BYTES];
    reef_view none;
    size_t found = 0;
    reef_check_report report;
    must(reef_store_verify(f->many, &(reef_check_options){.on_damage = on_unexpected_damage},
                           &report, &why));
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.generations, 1);
    // Every shard has all but rows, which lie in one each.
    const size_t rows = 2 * LAYERS * BLOCKS, others = report.records - rows;
    assert_true(others % RANKS == 0 && others > 0);
    shard_at(f, 1, shard);
    record_damage(shard, &key);
    must(reef_store_verify(f->many,
                           &(reef_check_options){.on_damage = on_damaged_row, .context = &found},
                           &report, &why));
    assert_true(found > 0 && report.damaged == found);
    reef_store *view = pool_open(f->many, false, false);
    reef_txn *txn = pool_begin(view, REEF_TXN_READ);
    must_fail(reef_record_view(txn, &key, &none, &why), REEF_ERR_CORRUPT, "block 1");
    reef_txn_abort(txn);
    reef_store_close(view);
}

// ---- what is refused ----------------------------------------------------------------------------

static void must_not_open(const fixture *f, bool write, reef_status status, const char *part) {
    reef_store *store = NULL;
    must_fail(reef_store_open(&store, f->many, &(reef_store_options){.write = write}, &why), status,
              part);
    assert_null(store);
}

static void move(const char *directory, const char *from, const char *to) {
    char a[TEMP_DIR_BYTES], b[TEMP_DIR_BYTES];
    temp_dir_join(a, directory, from);
    temp_dir_join(b, directory, to);
    assert_int_equal(rename(a, b), 0);
}

FIXTURE_TEST(a_missing_shard_is_named) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char name[16], expected[64];
        snprintf(name, sizeof(name), "rank-%u", rank);
        snprintf(expected, sizeof(expected), "the shard of rank %u is missing", rank);
        move(f->many, name, "away");
        must_not_open(f, false, REEF_ERR_NOT_FOUND, expected);
        move(f->many, "away", name);
    }
    reef_store_close(pool_open(f->many, false, false));
}

static void link_shard(const fixture *f, const char *target, const char *name) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, f->many, name);
    assert_int_equal(symlink(target, path), 0);
}

FIXTURE_TEST(a_shard_in_anothers_place_is_named) {
    char again[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    // Twice: rank 1's stands where rank 2's is needed.
    move(f->many, "rank-2", "away");
    link_shard(f, "rank-1", "rank-2");
    must_not_open(f, false, REEF_ERR_INVALID,
                  "rank-2 is the shard of rank 1, and stands where that of rank 2 is needed");
    // Of another division of the same pool.
    temp_dir_join(again, f->whole->directory, "again");
    divide_to(f, again);
    temp_dir_join(path, f->many, "rank-2");
    assert_int_equal(unlink(path), 0);
    link_shard(f, "../again/rank-2", "rank-2");
    must_not_open(f, false, REEF_ERR_INVALID, "rank-2 is a shard of another pool than the first");
    // A whole pool.
    assert_int_equal(unlink(path), 0);
    link_shard(f, "../pool", "rank-2");
    must_not_open(f, false, REEF_ERR_INVALID, "rank-2 is not a shard with a part of the rows");
    assert_int_equal(unlink(path), 0);
    move(f->many, "away", "rank-2");
    link_shard(f, "rank-1", "rank-3");
    must_not_open(f, false, REEF_ERR_INVALID, "rank-3 is none of the 3 shards that rank-0 is one");
}

FIXTURE_TEST(what_would_change_shards_is_refused) {
    must_not_open(f, true, REEF_ERR_INVALID, "or a whole pool (reef shards DIR NEW --to 1)");
    reef_store *view = pool_open(f->many, false, false);
    reef_txn *txn = NULL;
    must_fail(reef_txn_begin(&txn, view, REEF_TXN_WRITE, &why), REEF_ERR_INVALID,
              "open for reading only");
    must_fail(reef_store_copy(view, f->whole->directory, NULL, &why), REEF_ERR_INVALID,
              "NEW --to 1 makes a whole pool of them");
    reef_store_close(view);
}

FIXTURE_TEST(pools_that_each_have_all_rows_are_not_read_so) {
    char path[TEMP_DIR_BYTES], shard[TEMP_DIR_BYTES];
    temp_dir_join(path, f->whole->directory, "copies");
    assert_int_equal(mkdir(path, 0700), 0);
    temp_dir_join(shard, path, "rank-0");
    assert_int_equal(symlink("../pool", shard), 0);
    snprintf(f->many, sizeof(f->many), "%s", path);
    must_not_open(f, false, REEF_ERR_INVALID,
                  "holds whole pools of several ranks: give one of them");
}

// ---- epochs -------------------------------------------------------------------------------------

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static uint8_t value_of(reef_store *view, uint64_t *epoch) {
    reef_shard shard;
    uint8_t value;
    reef_txn *txn = pool_begin(view, REEF_TXN_READ);
    must(reef_shard_read(txn, &shard, &why));
    must(reef_record_read(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "embedding"}, &value, 1,
                          &why));
    reef_txn_abort(txn);
    *epoch = shard.epoch;
    return value;
}

// Nobody will bring the shards to one epoch: said at once.
FIXTURE_TEST(a_shard_of_another_epoch_is_named) {
    uint64_t begun = now_ms();
    commit_ranks(f, 0, 2, 7);
    must_not_open(f, false, REEF_ERR_INVALID, "rank-2 is of epoch 0, the first shard of epoch 1");
    commit_ranks(f, 2, RANKS, 7);
    commit_ranks(f, 1, 2, 8);
    must_not_open(f, false, REEF_ERR_INVALID, "rank-1 is of epoch 2, the first shard of epoch 1");
    // Of one epoch, but not of one state.
    commit_ranks(f, 0, 1, 8);
    commit_ranks(f, 2, RANKS, 9);
    must_not_open(f, false, REEF_ERR_CORRUPT, "rank-2 has another root than the first shard");
    assert_true(now_ms() - begun < 20000);
}

static void *commit_rank_0(void *context) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
    commit_epoch(context, 7);
    return NULL;
}

// Rank 0 commits last: a read that comes between waits for it, and one that runs keeps its epoch.
FIXTURE_TEST(a_read_waits_for_the_epoch_that_counts) {
    pthread_t thread;
    uint64_t epoch;
    reef_store *view = pool_open(f->many, false, false);
    reef_txn *before = pool_begin(view, REEF_TXN_READ);
    reef_store *rank_0 = open_rank(f, 0);
    commit_ranks(f, 1, RANKS, 7);
    assert_int_equal(pthread_create(&thread, NULL, commit_rank_0, rank_0), 0);
    uint64_t begun = now_ms();
    assert_int_equal(value_of(view, &epoch), 7);
    assert_int_equal(epoch, 1);
    assert_true(now_ms() - begun >= PAUSE_MS / 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    reef_shard shard;
    must(reef_shard_read(before, &shard, &why));
    assert_int_equal(shard.epoch, 0);
    reef_txn_abort(before);
    reef_store_close(view);
    // Not for ever: a rank that hangs is waited for as long as was said.
    commit_ranks(f, 1, RANKS, 8);
    must_fail(reef_store_open(&view, f->many, &(reef_store_options){.agree_ms = PAUSE_MS}, &why),
              REEF_ERR_INVALID, "rank-1 is of epoch 2, the first shard of epoch 1");
    reef_store_close(rank_0);
}

// A read in steps begins each with all shards of one epoch.
FIXTURE_TEST(each_step_of_a_read_is_of_one_epoch) {
    reef_store *view = NULL;
    reef_shard shard;
    bool renewed = false;
    must(reef_store_open(&view, f->many, &(reef_store_options){.renew_us = 1}, &why));
    reef_txn *txn = pool_begin(view, REEF_TXN_READ_RENEWED);
    commit_ranks(f, 1, RANKS, 7);
    commit_ranks(f, 0, 1, 7);
    must(reef_shard_read(txn, &shard, &why));
    assert_int_equal(shard.epoch, 0);
    must(reef_txn_renew(txn, &renewed, &why));
    assert_true(renewed);
    must(reef_shard_read(txn, &shard, &why));
    assert_int_equal(shard.epoch, 1);
    // A step that cannot begin leaves a transaction that can be ended.
    commit_ranks(f, 1, 2, 8);
    must_fail(reef_txn_renew(txn, &renewed, &why), REEF_ERR_INVALID, "rank-1 is of epoch 2");
    reef_txn_abort(txn);
    reef_store_close(view);
}

RUN_TESTS
