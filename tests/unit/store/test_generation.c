// Generations, sealing, root hashes and snapshots.
#include "reef_snapshot.h"
#include "reef_store.h"

#include "pool.h"
#include "store_internal.h"
#include "test.h"

#define BLOCKS 5
#define BLOCK_BYTES 5000

// A generation's records, all of their content following from `seed`.
static void put_content(reef_txn *txn, uint32_t generation, uint64_t seed) {
    uint8_t payload[BLOCK_BYTES];
    for (uint32_t block = 0; block < BLOCKS; block++) {
        fill(payload, sizeof(payload), seed + block);
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .generation = generation, .block = block},
                 payload, sizeof(payload));
        pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .generation = generation, .block = block},
                 payload, 100);
        pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .generation = generation, .block = block},
                 payload, 3);
    }
    pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .generation = generation, .name = "tables"},
             payload, 2000);
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .generation = generation, .name = "w_q"},
             payload, 77);
    pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .generation = generation, .name = "w_q"},
             payload, 9);
}

static void assert_content(reef_txn *txn, uint32_t generation, uint64_t seed) {
    uint8_t expected[BLOCK_BYTES];
    uint8_t payload[BLOCK_BYTES];
    for (uint32_t block = 0; block < BLOCKS; block++) {
        const reef_key experts = {.db = REEF_DB_EXPERTS, .generation = generation, .block = block};
        const reef_key flags = {.db = REEF_DB_FLAGS, .generation = generation, .block = block};
        fill(expected, sizeof(expected), seed + block);
        must(reef_record_read(txn, &experts, payload, sizeof(payload), &why));
        assert_memory_equal(payload, expected, sizeof(expected));
        must(reef_record_read(txn, &flags, payload, 3, &why));
        assert_memory_equal(payload, expected, 3);
    }
    const reef_key tensor = {.db = REEF_DB_TENSORS, .generation = generation, .name = "w_q"};
    must(reef_record_read(txn, &tensor, payload, 77, &why));
    assert_memory_equal(payload, expected, 77);
    const reef_key memory = {.db = REEF_DB_MEMORY, .generation = generation, .name = "tables"};
    must(reef_record_read(txn, &memory, payload, 2000, &why));
    assert_memory_equal(payload, expected, 2000);
}

static reef_status count_record(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    (void)key, (void)view, (void)err;
    (*(size_t *)context)++;
    return REEF_OK;
}

static size_t count_records(reef_txn *txn, reef_db db, uint32_t generation) {
    size_t count = 0;
    must(reef_record_scan(txn, db, generation, count_record, &count, &why));
    return count;
}

static void seal(reef_txn *txn, uint32_t generation) {
    must(reef_generation_seal(txn, generation, 7, 700, &why));
}

// ---- generations --------------------------------------------------------------------------------

POOL_TEST(generations_come_back_as_they_were_put) {
    uint32_t count = 9;
    reef_generation_record back;
    const reef_generation_record generation = {.side = 48,
                                               .first_id = UINT64_C(1) << 40,
                                               .dtype = REEF_I8,
                                               .opened_step = 11,
                                               .opened_at = UINT64_C(1) << 50};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_generation_count(txn, &count, &why));
    assert_int_equal(count, 0);
    must_fail(reef_generation_read(txn, 0, &back, &why), REEF_ERR_NOT_FOUND, "no generation 0");
    must(reef_generation_put(txn, &generation, &why));
    pool_commit(txn, 1);
    pool_reopen(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_generation_count(txn, &count, &why));
    assert_int_equal(count, 1);
    must(reef_generation_read(txn, 0, &back, &why));
    assert_int_equal(back.side, 48);
    assert_int_equal(back.dtype, REEF_I8);
    assert_int_equal(back.opened_step, 11);
    assert_true(back.first_id == generation.first_id && back.opened_at == generation.opened_at);
    assert_false(back.sealed);
    reef_txn_abort(txn);
}

POOL_TEST(a_chain_of_kinds_is_one_step) {
    reef_generation_record back;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    seal(txn, 0);
    must_fail(reef_generation_put(
                  txn, &(reef_generation_record){.side = 1, .generation = 1, .continues = 2}, &why),
              REEF_ERR_INVALID, "generation 1, which it continues, begins no kind");
    must(reef_generation_put(
        txn, &(reef_generation_record){.side = 1, .generation = 1, .continues = 1}, &why));
    seal(txn, 1);
    const reef_generation_record deeper = {.side = 1, .generation = 2, .continues = 2};
    must_fail(reef_generation_put(txn, &deeper, &why), REEF_ERR_INVALID,
              "generation 1, which it continues, begins no kind");
    // As if it had been written all the same.
    must(reef_generation_store(txn, &deeper, &why));
    must_fail(reef_generation_read(txn, 2, &back, &why), REEF_ERR_CORRUPT,
              "generation 2 continues generation 1, which continues another");
    must(reef_generation_read(txn, 1, &back, &why));
    assert_int_equal(back.continues, 1);
    reef_txn_abort(txn);
}

POOL_TEST(only_the_last_generation_may_be_open) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_generation_put(txn, &(reef_generation_record){.side = 1, .generation = 1}, &why),
              REEF_ERR_INVALID, "only generation 0 can be open");
    pool_open_generation(txn, 0);
    pool_open_generation(txn, 0); // changing the open one is fine
    must_fail(reef_generation_put(txn, &(reef_generation_record){.side = 1, .generation = 1}, &why),
              REEF_ERR_INVALID, "only generation 0 can be open");
    must_fail(reef_generation_put(txn, &(reef_generation_record){.side = 1, .sealed = true}, &why),
              REEF_ERR_INVALID, "as sealed");
    seal(txn, 0);
    must_fail(reef_generation_put(txn, &(reef_generation_record){.side = 1}, &why),
              REEF_ERR_INVALID, "is sealed");
    must_fail(reef_generation_seal(txn, 0, 1, 1, &why), REEF_ERR_INVALID, "sealed already");
    must_fail(reef_generation_put(
                  txn, &(reef_generation_record){.side = 1, .generation = 1, .parent = 1}, &why),
              REEF_ERR_INVALID, "its parent is 1");
    must_fail(reef_generation_put(
                  txn, &(reef_generation_record){.side = 1, .generation = REEF_SNAPSHOT_GENERATION},
                  &why),
              REEF_ERR_INVALID, "at most 65536");
    pool_open_generation(txn, 1);
    pool_commit(txn, 1);
    assert_int_equal(pool_check(f->store).generations, 2);
}

POOL_TEST(sealed_records_refuse_writes) {
    static const reef_db sealed_dbs[] = {REEF_DB_EXPERTS, REEF_DB_FLAGS, REEF_DB_MOMENTS,
                                         REEF_DB_TENSORS, REEF_DB_MEMORY};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_content(txn, 0, 100);
    seal(txn, 0);
    for (int again = 0; again < 2; again++) { // in the transaction that sealed, and in a later one
        for (size_t i = 0; i < 5; i++) {
            const char *name = sealed_dbs[i] == REEF_DB_TENSORS  ? "w_q"
                               : sealed_dbs[i] == REEF_DB_MEMORY ? "tables"
                                                                 : NULL;
            const reef_key key = {.db = sealed_dbs[i], .name = name};
            must_fail(reef_record_put(txn, &key, REEF_BYTES, "x", 1, &why), REEF_ERR_INVALID,
                      "generation 0 is sealed");
            must_fail(reef_record_delete(txn, &key, &why), REEF_ERR_INVALID,
                      "generation 0 is sealed");
        }
        // Usage is still counted: experts of a sealed generation are still chosen.
        pool_put(txn, &(reef_key){.db = REEF_DB_USAGE, .generation = 0}, "usage",
                 4 + (size_t)again);
        pool_commit(txn, 1 + (uint64_t)again);
        txn = pool_begin(f->store, REEF_TXN_WRITE);
    }
    pool_open_generation(txn, 1);
    put_content(txn, 1, 200);
    pool_commit(txn, 3);
    txn = pool_begin(f->store, REEF_TXN_READ);
    assert_content(txn, 0, 100);
    assert_content(txn, 1, 200);
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(sealing_drops_the_moments_of_that_generation_only) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_content(txn, 0, 1);
    put_content(txn, 1, 2); // written before its generation is opened
    assert_int_equal(count_records(txn, REEF_DB_MOMENTS, 0), BLOCKS + 1);
    seal(txn, 0);
    assert_int_equal(count_records(txn, REEF_DB_MOMENTS, 0), 0);
    assert_int_equal(count_records(txn, REEF_DB_MOMENTS, 1), BLOCKS + 1);
    assert_int_equal(count_records(txn, REEF_DB_EXPERTS, 0), BLOCKS);
    pool_commit(txn, 1);
    pool_check(f->store);
}

POOL_TEST(a_sealed_root_depends_on_every_record) {
    uint8_t roots[6][REEF_HASH_BYTES];
    for (int variant = 0; variant < 6; variant++) {
        reef_generation_record generation;
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_open_generation(txn, 0);
        put_content(txn, 0, 1);
        if (variant == 1) pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = 4}, "fff", 3);
        if (variant == 2) pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "x"}, "", 0);
        if (variant == 3)
            must(reef_record_delete(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = 2}, &why));
        if (variant == 4) pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .name = "mark"}, "m", 1);
        if (variant == 5)
            pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .name = "mark", .block = 1}, "m", 1);
        seal(txn, 0);
        must(reef_generation_read(txn, 0, &generation, &why));
        assert_true(generation.sealed && generation.sealed_step == 7 &&
                    generation.sealed_at == 700);
        memcpy(roots[variant], generation.root, REEF_HASH_BYTES);
        for (int other = 0; other < variant; other++)
            assert_memory_not_equal(roots[variant], roots[other], REEF_HASH_BYTES);
        reef_txn_abort(txn);
    }
}

POOL_TEST(many_sealed_generations_check_clean) {
    enum { MANY = 40 };
    for (uint32_t i = 0; i < MANY; i++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_open_generation(txn, i);
        put_content(txn, i, 100 * i);
        if (i + 1 < MANY) seal(txn, i);
        pool_commit(txn, i);
    }
    assert_int_equal(pool_check(f->store).generations, MANY);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    for (uint32_t i = 0; i < MANY; i++) assert_content(txn, i, 100 * i);
    reef_txn_abort(txn);
}

// ---- the root hash ------------------------------------------------------------------------------

static void put_usage(reef_txn *txn, uint32_t level, uint64_t window, const char *text) {
    pool_put(txn, &(reef_key){.db = REEF_DB_USAGE, .level = level, .window = window}, text, 4);
}

// One and the same state of the pool, reached in `patterns` different ways.
static reef_commit reach_state(const char *path, int pattern) {
    reef_store *store = pool_open(path, true, true);
    reef_snapshot snapshot;
    reef_commit last = {0};
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    if (pattern == 1) { // wrong content first, in commits of its own
        put_content(txn, 0, 999);
        pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "spare"}, "spare", 5);
        pool_commit(txn, 1);
        txn = pool_begin(store, REEF_TXN_WRITE);
        must(reef_record_delete(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "spare"}, &why));
    }
    put_content(txn, 0, 1);
    put_usage(txn, 0, 0, "sum0");
    if (pattern == 2) { // everything in a commit of its own, with things that do not count
        pool_commit(txn, 2);
        txn = pool_begin(store, REEF_TXN_WRITE);
        must(reef_snapshot_create(txn, "early", &snapshot, &why));
        must(reef_timeline_append(txn, "{\"event\": \"grow\"}", &why));
        pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "stdin"}, "input", 5);
        pool_put(txn, &(reef_key){.db = REEF_DB_SERIES, .name = "loss"}, "1.0", 3);
        pool_put(txn, &(reef_key){.db = REEF_DB_META, .name = "config"}, "{}", 2);
        put_usage(txn, 1, 0, "hour");
        put_usage(txn, 0, 5, "part");
        pool_commit(txn, 3);
        txn = pool_begin(store, REEF_TXN_WRITE);
    }
    seal(txn, 0);
    if (pattern == 1) {
        pool_commit(txn, 2);
        reef_store_close(store);
        store = pool_open(path, false, true);
        txn = pool_begin(store, REEF_TXN_WRITE);
    }
    pool_open_generation(txn, 1);
    put_content(txn, 1, 2);
    last = pool_commit(txn, 50);
    pool_check(store);
    reef_store_close(store);
    return last;
}

PLAIN_TEST(equal_content_has_equal_roots_however_it_was_committed) {
    char directory[TEMP_DIR_BYTES];
    reef_commit commits[3];
    temp_dir_new(directory);
    for (int pattern = 0; pattern < 3; pattern++) {
        char path[TEMP_DIR_BYTES];
        temp_dir_join(path, directory, (const char *[]){"once", "twice", "often"}[pattern]);
        commits[pattern] = reach_state(path, pattern);
    }
    assert_memory_equal(commits[0].root, commits[1].root, REEF_HASH_BYTES);
    assert_memory_equal(commits[0].root, commits[2].root, REEF_HASH_BYTES);
    assert_int_not_equal(commits[0].number, commits[2].number);
    temp_dir_remove(directory);
}

static reef_commit put_and_commit(reef_store *store,
                                  const reef_key *key,
                                  const char *text,
                                  uint64_t step) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    if (key != NULL) pool_put(txn, key, text, strlen(text));
    return pool_commit(txn, step);
}

POOL_TEST(every_hashed_record_and_the_step_change_the_root) {
    const reef_key hashed[] = {
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "t"},
        {.db = REEF_DB_EXPERTS, .generation = 1},
        {.db = REEF_DB_MOMENTS, .generation = 1},
        {.db = REEF_DB_MOMENTS, .generation = 1, .name = "t"},
        {.db = REEF_DB_FLAGS, .generation = 1},
        {.db = REEF_DB_USAGE, .generation = 0},
    };
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    seal(txn, 0);
    pool_open_generation(txn, 1);
    reef_commit before = pool_commit(txn, 1);
    for (size_t i = 0; i < sizeof(hashed) / sizeof(hashed[0]); i++) {
        reef_commit written = put_and_commit(f->store, &hashed[i], "a", 1);
        reef_commit changed = put_and_commit(f->store, &hashed[i], "b", 1);
        assert_memory_not_equal(before.root, written.root, REEF_HASH_BYTES);
        assert_memory_not_equal(written.root, changed.root, REEF_HASH_BYTES);
        before = changed;
    }
    reef_commit stepped = put_and_commit(f->store, NULL, NULL, 2);
    assert_memory_not_equal(before.root, stepped.root, REEF_HASH_BYTES);
    pool_check(f->store);
}

POOL_TEST(memory_of_the_open_generation_is_in_no_root) {
    const reef_key memory = {.db = REEF_DB_MEMORY, .generation = 1, .name = "tables"};
    reef_snapshot snapshots[2];
    reef_generation_record copies[2];
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    seal(txn, 0);
    pool_open_generation(txn, 1);
    reef_commit before = pool_commit(txn, 1);
    for (size_t i = 0; i < 2; i++) {
        reef_commit written = put_and_commit(f->store, &memory, i == 0 ? "a" : "b", 1);
        assert_memory_equal(before.root, written.root, REEF_HASH_BYTES);
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_snapshot_create(txn, i == 0 ? "a" : "b", &snapshots[i], &why));
        must(reef_generation_read(txn, snapshots[i].copy, &copies[i], &why));
        assert_int_equal(count_records(txn, REEF_DB_MEMORY, snapshots[i].copy), 1);
        pool_commit(txn, 1);
    }
    // No record but that is in the copies: both have the root of nothing.
    assert_memory_equal(copies[0].root, copies[1].root, REEF_HASH_BYTES);
    pool_check(f->store);
}

// ---- giving generations up ----------------------------------------------------------------------

// Generations 0 to 3 sealed with content and usage, 4 open.
static void put_five(reef_txn *txn) {
    for (uint32_t g = 0; g < 5; g++) {
        const reef_key usage = {.db = REEF_DB_USAGE, .generation = g};
        pool_open_generation(txn, g);
        put_content(txn, g, g);
        pool_put(txn, &usage, "12345678", 8);
        if (g < 4) seal(txn, g);
    }
}

POOL_TEST(removing_a_snapshot_changes_no_root) {
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_five(txn);
    reef_commit before = pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "kept", &snapshot, &why));
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "kept", &why));
    reef_commit after = pool_commit(txn, 1);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
    assert_int_equal(pool_check(f->store).snapshots, 0);
}

// ---- snapshots ----------------------------------------------------------------------------------

POOL_TEST(a_snapshot_keeps_the_open_generation_and_shares_the_sealed) {
    reef_snapshot snapshot;
    reef_generation_record copy;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_content(txn, 0, 1);
    seal(txn, 0);
    pool_open_generation(txn, 1);
    put_content(txn, 1, 2);
    reef_commit before = pool_commit(txn, 5);
    uint64_t sealed_records = pool_check(f->store).records;

    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "v1.0", &snapshot, &why));
    reef_commit after = pool_commit(txn, 5);
    assert_memory_equal(before.root, after.root, REEF_HASH_BYTES);
    assert_memory_equal(snapshot.root, before.root, REEF_HASH_BYTES);
    assert_true(snapshot.commit == before.number && snapshot.step == 5 &&
                snapshot.stream_bytes == 500);
    assert_int_equal(snapshot.sealed_count, 1);
    assert_int_equal(snapshot.open_generation, 1);
    assert_true(snapshot.copy >= REEF_SNAPSHOT_GENERATION);
    // experts, flags, moments, the tensor and its moments, the generation's record and the
    // snapshot's: nothing of generation 0
    assert_int_equal(pool_check(f->store).records, sealed_records + 3 * BLOCKS + 5);

    txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_content(txn, 1, 3); // training continues
    pool_commit(txn, 6);
    pool_reopen(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "v1.0", &snapshot, &why));
    assert_content(txn, snapshot.copy, 2);
    assert_content(txn, 1, 3);
    assert_content(txn, 0, 1);
    assert_int_equal(count_records(txn, REEF_DB_MOMENTS, snapshot.copy), BLOCKS + 1);
    must(reef_generation_read(txn, snapshot.copy, &copy, &why));
    assert_true(copy.side == 4 && copy.first_id == 16 && copy.opened_step == 10 && !copy.sealed);
    uint32_t count = 0;
    must(reef_generation_count(txn, &count, &why));
    assert_int_equal(count, 2);
    reef_txn_abort(txn);
    assert_int_equal(pool_check(f->store).snapshots, 1);
}

POOL_TEST(a_snapshot_made_with_changes_belongs_to_their_commit) {
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_content(txn, 0, 1);
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "clean", &snapshot, &why));
    put_content(txn, 0, 2);
    must(reef_snapshot_create(txn, "changed", &snapshot, &why));
    assert_int_equal(snapshot.commit, 2);
    reef_commit commit = pool_commit(txn, 9);

    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "changed", &snapshot, &why));
    assert_true(snapshot.commit == commit.number && snapshot.step == 9 && snapshot.unix_ms == 1);
    assert_memory_equal(snapshot.root, commit.root, REEF_HASH_BYTES);
    assert_content(txn, snapshot.copy, 2);
    must(reef_snapshot_read(txn, "clean", &snapshot, &why));
    assert_true(snapshot.commit == 1 && snapshot.step == 1);
    assert_content(txn, snapshot.copy, 1);
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(snapshot_names_follow_the_rules) {
    static const char *const bad[] = {
        "",
        ".a",
        "-a",
        "_a",
        "a b",
        "a/b",
        "a\n",
        "12",
        "007",
        "now",
        "\xc3\xa4",
        NULL,
        "12345678901234567890123456789012345678901234567890123456789012345"};
    static const char *const good[] = {
        "a", "1a", "A-1._z", "0x1",
        "a234567890123456789012345678901234567890123456789012345678901234"};
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_snapshot_create(txn, "a", &snapshot, &why), REEF_ERR_NOT_FOUND, "no commit yet");
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        must_fail(reef_snapshot_create(txn, bad[i], &snapshot, &why), REEF_ERR_INVALID,
                  "is not a name");
        must_fail(reef_snapshot_read(txn, bad[i], &snapshot, &why), REEF_ERR_NOT_FOUND,
                  "no snapshot");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        must(reef_snapshot_create(txn, good[i], &snapshot, &why));
        assert_int_equal(snapshot.copy, 0); // nothing was open
        must_fail(reef_snapshot_create(txn, good[i], &snapshot, &why), REEF_ERR_INVALID,
                  "already has");
    }
    pool_commit(txn, 1);
    assert_int_equal(pool_check(f->store).snapshots, sizeof(good) / sizeof(good[0]));
}

static reef_status collect_name(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    strcat(context, snapshot->name);
    return REEF_OK;
}

POOL_TEST(snapshots_are_scanned_by_name_and_have_copies_of_their_own) {
    static const char *const names[] = {"c", "a", "b"};
    reef_snapshot snapshots[3];
    for (uint32_t i = 0; i < 3; i++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_open_generation(txn, 0);
        put_content(txn, 0, 10 * i);
        pool_commit(txn, i);
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_snapshot_create(txn, names[i], &snapshots[i], &why));
        pool_commit(txn, i);
    }
    char scanned[16] = "";
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_scan(txn, collect_name, scanned, &why));
    assert_string_equal(scanned, "abc");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(snapshots[i].copy, REEF_SNAPSHOT_GENERATION + i);
        assert_content(txn, snapshots[i].copy, 10 * i);
    }
    reef_txn_abort(txn);
    pool_check(f->store);
}

// ---- timeline -----------------------------------------------------------------------------------

static reef_status collect_event(void *context,
                                 const reef_key *key,
                                 const reef_view *view,
                                 reef_error *err) {
    (void)err;
    char *text = context;
    size_t used = strlen(text);
    snprintf(text + used, 100 - used, "%d%.*s", (int)key->sequence, (int)view->bytes,
             (const char *)view->data);
    return view->dtype == REEF_JSON ? REEF_OK : REEF_ERR_INVALID;
}

POOL_TEST(the_timeline_keeps_json_objects_in_order) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_timeline_append(txn, "{\"a\":1}", &why));
    must_fail(reef_timeline_append(txn, "[1]", &why), REEF_ERR_INVALID, "not a JSON object");
    must_fail(reef_timeline_append(txn, "{\"a\":", &why), REEF_ERR_INVALID, "not JSON");
    must_fail(reef_timeline_append(txn, NULL, &why), REEF_ERR_INVALID, "not JSON");
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_timeline_append(txn, "{\"b\":2}", &why));
    pool_commit(txn, 2);
    char text[100] = "";
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, collect_event, text, &why));
    reef_txn_abort(txn);
    assert_string_equal(text, "1{\"a\":1}2{\"b\":2}");
}

POOL_TEST(only_the_open_generation_can_be_cleared) {
    reef_generation_record generation;
    const reef_key usage = {.db = REEF_DB_USAGE, .generation = 1};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_content(txn, 0, 1);
    must(reef_generation_seal(txn, 0, 5, 500, &why));
    pool_open_generation(txn, 1);
    const reef_commit empty = pool_commit(txn, 1);

    txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_content(txn, 1, 50);
    pool_put(txn, &usage, "used", 4);
    pool_commit(txn, 1);
    pool_check(f->store);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_generation_clear(txn, 0, &why), REEF_ERR_INVALID, "not the open one");
    must_fail(reef_generation_clear(txn, 2, &why), REEF_ERR_INVALID, "not the open one");
    must(reef_generation_clear(txn, 1, &why));
    assert_int_equal(count_records(txn, REEF_DB_MEMORY, 1), 0);
    must(reef_generation_read(txn, 1, &generation, &why));
    assert_content(txn, 0, 1);
    assert_memory_equal(pool_commit(txn, 1).root, empty.root, sizeof(empty.root));
    pool_check(f->store);
}

RUN_TESTS
