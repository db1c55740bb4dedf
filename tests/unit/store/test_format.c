// The formats of a pool: format 1 has no database `memory` and no `visits`, format 2 no `visits`.
// All else is the same in all.
#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"
#include "store_internal.h"

#include <lmdb.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "first_format.h"
#include "pool.h"
#include "pool_version.h"

#define BLOCKS 30
#define BLOCK_BYTES 5000
#define NO_MEMORY "has format 1, which has no context memory: make a new pool"

static const reef_key memory_key = {.db = REEF_DB_MEMORY, .generation = 1, .name = "tables"};

// A pool of format 1 that is open for writing.
static int setup(void **state) {
    pool_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    first_format_make(f->path);
    f->store = pool_open(f->path, false, true);
    *state = f;
    return 0;
}

static void close_pool(pool_fixture *f) {
    reef_store_close(f->store);
    f->store = NULL;
}

static void put_generation(reef_txn *txn, uint32_t g) {
    uint8_t payload[BLOCK_BYTES];
    pool_open_generation(txn, g);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        fill(payload, sizeof(payload), 100 * g + block);
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .generation = g, .block = block}, payload,
                 sizeof(payload));
        pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .generation = g, .block = block}, payload,
                 3);
        pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .generation = g, .block = block}, payload,
                 90);
    }
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .generation = g, .name = "w_q"}, payload, 77);
    pool_put(txn, &(reef_key){.db = REEF_DB_USAGE, .generation = g}, payload, 64);
    pool_put(txn, &(reef_key){.db = REEF_DB_RESERVOIR, .block = g}, payload, 300);
}

static void seal(reef_txn *txn, uint32_t g) {
    reef_error err;
    must(reef_generation_seal(txn, g, g + 1, 100, &err), &err);
}

// Generation 0 sealed, 1 open, snapshot "early"; then 1 sealed and 2 open. The root of each commit.
static void make_history(reef_store *store, uint8_t roots[3][REEF_HASH_BYTES]) {
    reef_error err;
    reef_snapshot snapshot;
    reef_commit commits[3];
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    put_generation(txn, 0);
    seal(txn, 0);
    put_generation(txn, 1);
    commits[0] = pool_commit(txn, 5);
    txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "early", &snapshot, &err), &err);
    commits[1] = pool_commit(txn, 5);
    txn = pool_begin(store, REEF_TXN_WRITE);
    seal(txn, 1);
    put_generation(txn, 2);
    commits[2] = pool_commit(txn, 9);
    for (size_t i = 0; i < 3; i++) memcpy(roots[i], commits[i].root, REEF_HASH_BYTES);
}

static reef_status count_record(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    (void)key, (void)view, (void)err;
    (*(size_t *)context)++;
    return REEF_OK;
}

static void assert_refused(reef_txn *txn, const reef_key *key) {
    reef_error err;
    must_fail(reef_record_put(txn, key, REEF_BYTES, "m", 1, &err), REEF_ERR_INVALID, &err,
              NO_MEMORY);
    assert_non_null(strstr(err.message, txn->store->path));
}

static void expect_sound(const char *path) {
    reef_error err;
    reef_check_report report;
    must(reef_store_verify(path, on_unexpected_damage, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.pages_lost, 0);
}

// ---- format 1 -----------------------------------------------------------------------------------

static void equal_records_have_equal_roots_in_both_formats(void **state) {
    pool_fixture *f = *state;
    char newer[TEMP_DIR_BYTES];
    uint8_t first[3][REEF_HASH_BYTES], second[3][REEF_HASH_BYTES];
    reef_generation_record one, other;
    reef_error err;
    temp_dir_join(newer, f->directory, "newer");
    reef_store *store = pool_open(newer, true, true);
    assert_int_equal(reef_store_format(f->store), 1);
    assert_int_equal(reef_store_format(store), 3);
    make_history(f->store, first);
    make_history(store, second);
    assert_memory_equal(first, second, sizeof(first));
    for (uint32_t g = 0; g < 2; g++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_generation_read(txn, g, &one, &err), &err);
        reef_txn_abort(txn);
        txn = pool_begin(store, REEF_TXN_READ);
        must(reef_generation_read(txn, g, &other, &err), &err);
        reef_txn_abort(txn);
        assert_memory_equal(one.root, other.root, REEF_HASH_BYTES);
    }
    reef_check_report report = pool_check(f->store), newer_report = pool_check(store);
    assert_int_equal(report.records, newer_report.records);
    reef_store_close(store);
    pool_reopen(f);
    assert_int_equal(reef_store_format(f->store), 1);
    close_pool(f);
    expect_sound(f->path);
    expect_sound(newer);
    assert_int_equal(databases_of(f->path), 13);
    assert_int_equal(databases_of(newer), 15);
}

static void format_1_reads_as_without_memory_and_refuses_to_write_it(void **state) {
    pool_fixture *f = *state;
    uint8_t roots[3][REEF_HASH_BYTES];
    const reef_key sealed = {.db = REEF_DB_MEMORY, .name = "tables"};
    reef_error err;
    reef_view view;
    const void *place = NULL;
    size_t count = 0;
    make_history(f->store, roots);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_record_view(txn, &memory_key, &view, &err), REEF_ERR_NOT_FOUND, &err,
              "memory (generation 1, name tables, block 0) is not in pool");
    must_fail(reef_record_locate(txn, &memory_key, 1, &place, &err), REEF_ERR_NOT_FOUND, &err,
              "is not in pool");
    must(reef_record_scan(txn, REEF_DB_MEMORY, UINT32_MAX, count_record, &count, &err), &err);
    must(reef_record_scan(txn, REEF_DB_MEMORY, 2, count_record, &count, &err), &err);
    assert_int_equal(count, 0);
    assert_refused(txn, &(reef_key){.db = REEF_DB_MEMORY, .generation = 2, .name = "tables"});
    assert_refused(txn, &sealed);
    must(reef_record_delete(txn, // absent is fine
                            &(reef_key){.db = REEF_DB_MEMORY, .generation = 2, .name = "tables"},
                            &err),
         &err);
    must(reef_generation_clear(txn, 2, &err), &err);
    pool_commit(txn, 10); // what was refused spoils nothing
    pool_check(f->store);
}

static void a_copy_of_format_1_has_format_1(void **state) {
    pool_fixture *f = *state;
    char to[TEMP_DIR_BYTES];
    uint8_t roots[3][REEF_HASH_BYTES];
    reef_commit copied;
    reef_error err;
    temp_dir_join(to, f->directory, "copy");
    make_history(f->store, roots);
    must(reef_store_copy(f->store, to, &copied, &err), &err);
    assert_memory_equal(copied.root, roots[2], REEF_HASH_BYTES);
    reef_store *copy = pool_open(to, false, true);
    assert_int_equal(reef_store_format(copy), 1);
    reef_txn *txn = pool_begin(copy, REEF_TXN_WRITE);
    assert_refused(txn, &(reef_key){.db = REEF_DB_MEMORY, .generation = 2, .name = "tables"});
    pool_commit(txn, 9);
    pool_check(copy);
    reef_store_close(copy);
    expect_sound(to);
    assert_int_equal(databases_of(to), 13);
}

static void format_1_goes_back_to_a_snapshot(void **state) {
    pool_fixture *f = *state;
    uint8_t roots[3][REEF_HASH_BYTES];
    reef_error err;
    make_history(f->store, roots);
    // There, and from there forth again to the state before.
    static const char *const NAMES[] = {"early", "before"}, *const KEPT[] = {"before", "again"};
    for (size_t i = 0; i < 2; i++) {
        reef_restore_plan plan;
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_snapshot_restore(txn, NAMES[i], KEPT[i], &plan, &err), &err);
        reef_commit commit = {.step = plan.snapshot.step,
                              .stream_bytes = plan.snapshot.stream_bytes};
        must(reef_txn_commit(txn, &commit, &err), &err);
        assert_memory_equal(commit.root, roots[i == 0 ? 0 : 2], REEF_HASH_BYTES);
        pool_check(f->store);
    }
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "before", &err), &err);
    pool_commit(txn, 9);
    close_pool(f);
    expect_sound(f->path);
}

static void on_damage(void *context, const reef_key *key, const char *what) {
    (void)key;
    print_error("damage: %s\n", what);
    (*(size_t *)context)++;
}

static void a_scrub_of_format_1_ends(void **state) {
    pool_fixture *f = *state;
    uint8_t roots[3][REEF_HASH_BYTES];
    reef_scrub scrub = {0};
    reef_error err;
    uint64_t bytes = 0;
    size_t found = 0;
    make_history(f->store, roots);
    for (size_t i = 0; i < 1000 && scrub.passes == 0; i++)
        must(reef_store_scrub(f->store, &scrub, 50000, 1, on_damage, &found, &bytes, &err), &err);
    assert_int_equal(scrub.passes, 1);
    assert_int_equal(found, 0);
    // Rows, flags and a tensor of two sealed generations and of the copy, which has moments, usage
    // and reservoir too.
    assert_int_equal(scrub.last_records, 3 * (2 * BLOCKS + 1) + BLOCKS + 1 + 2);
}

static void format_1_stays_so_in_a_larger_map_and_when_opened_again(void **state) {
    pool_fixture *f = *state;
    static uint8_t payload[400000];
    const reef_store_options small = {.write = true, .map_bytes = UINT64_C(1) << 20};
    reef_error err;
    reef_status status = REEF_OK;
    close_pool(f);
    must(reef_store_open(&f->store, f->path, &small, &err), &err);
    for (uint32_t i = 0; i < 12; i++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        fill(payload, sizeof(payload), i);
        status = reef_record_put(txn, &(reef_key){.db = REEF_DB_RESERVOIR, .block = i}, REEF_BYTES,
                                 payload, sizeof(payload), &err);
        assert_true(status == REEF_OK || status == REEF_ERR_FULL);
        if (status == REEF_OK)
            pool_commit(txn, i);
        else
            reef_txn_abort(txn);
        if (i == 8) reef_environment_break(f->store->environment); // as after a failed commit
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        assert_refused(txn, &memory_key);
        reef_txn_abort(txn);
        assert_int_equal(reef_store_format(f->store), 1);
    }
    assert_int_equal(status, REEF_OK);
    pool_check(f->store);
}

// A process that died between two writes cannot leave that; a stray entry of sums is damage all the
// same.
static void a_sum_of_a_record_that_format_1_cannot_have_is_a_lost_record(void **state) {
    pool_fixture *f = *state;
    uint8_t roots[3][REEF_HASH_BYTES];
    uint8_t name[REEF_SUM_KEY_BYTES_MAX] = {REEF_DB_MEMORY}, entry[REEF_SUM_BYTES] = {1};
    reef_key_bytes encoded;
    reef_check_report report;
    reef_view view;
    reef_error err;
    make_history(f->store, roots);
    close_pool(f);
    must(reef_key_encode(&memory_key, &encoded, &err), &err);
    memcpy(name + 1, encoded.data, encoded.bytes);
    MDB_env *env = raw_open(f->path);
    raw_put(env, "sums", name, 1 + encoded.bytes, entry, sizeof(entry));
    mdb_env_close(env);
    f->store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_record_view(txn, &memory_key, &view, &err), REEF_ERR_CORRUPT, &err, "is lost");
    reef_txn_abort(txn);
    must(reef_store_check(f->store, NULL, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 2); // and the root of generation 1
}

// ---- which databases a format has ---------------------------------------------------------------

static void must_not_open(const char *path, reef_status expected, const char *part) {
    reef_error err;
    reef_store *store = NULL;
    must_fail(reef_store_open(&store, path, &(reef_store_options){0}, &err), expected, &err, part);
    assert_null(store);
}

static void format_2_without_memory_has_lost_it(void **state) {
    pool_fixture *f = *state;
    close_pool(f);
    put_format(f->path, 2, true);
    must_not_open(f->path, REEF_ERR_CORRUPT, "has format 2, but its database memory is missing");
}

static void format_2_has_a_memory_and_no_visits(void **state) {
    pool_fixture *f = *state;
    char path[TEMP_DIR_BYTES];
    reef_view view;
    reef_error err;
    const reef_key visit = {.db = REEF_DB_VISITS, .generation = 1, .name = "kinds"};
    temp_dir_join(path, f->directory, "second");
    older_format_make(path, 2, REEF_DB_VISITS);
    reef_store *store = pool_open(path, false, true);
    assert_int_equal(reef_store_format(store), 2);
    uint8_t roots[3][REEF_HASH_BYTES];
    make_history(store, roots);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must_fail(reef_record_view(txn, &visit, &view, &err), REEF_ERR_NOT_FOUND, &err,
              "visits (generation 1, kind 0, name kinds, block 0) is not in pool");
    must_fail(reef_record_put(txn, &visit, REEF_BYTES, "v", 1, &err), REEF_ERR_INVALID, &err,
              "has format 2, which has no visits: make a new pool");
    reef_txn_abort(txn);
    reef_store_close(store);
    expect_sound(path);
    assert_int_equal(databases_of(path), 14);
}

static void format_1_with_memory_is_none(void **state) {
    pool_fixture *f = *state;
    close_pool(f);
    MDB_env *env = raw_open(f->path);
    raw_put(env, "memory", "key", 3, "value", 5);
    mdb_env_close(env);
    must_not_open(f->path, REEF_ERR_CORRUPT, "has format 1, but a database memory");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, pool_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(equal_records_have_equal_roots_in_both_formats),
        TEST(format_1_reads_as_without_memory_and_refuses_to_write_it),
        TEST(a_copy_of_format_1_has_format_1),
        TEST(format_1_goes_back_to_a_snapshot),
        TEST(a_scrub_of_format_1_ends),
        TEST(format_1_stays_so_in_a_larger_map_and_when_opened_again),
        TEST(a_sum_of_a_record_that_format_1_cannot_have_is_a_lost_record),
        TEST(format_2_without_memory_has_lost_it),
        TEST(format_2_has_a_memory_and_no_visits),
        TEST(format_1_with_memory_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
