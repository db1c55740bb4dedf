// What lies on disk is not what was written: every change is found, and the record is named.
#include "check.h"
#include "record.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"

#include <lmdb.h>

#include <errno.h>
#include <signal.h>

#include "data_file.h"
#include "pool.h"
#include "test.h"

static const reef_key large_key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1, .block = 2};
static const reef_key small_key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "bias"};
#define LARGE_TEXT "experts (generation 0, layer 1, block 2)"
#define SMALL_TEXT "tensors (generation 0, name bias, block 0)"
#define LARGE_BYTES 10000
#define SMALL_BYTES 40

// A pool with a record on pages of its own, a small one among others, and then some.
static void fill_pool(reef_store *store, uint64_t seed) {
    uint8_t payload[LARGE_BYTES];
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    for (uint32_t i = 0; i < 30; i++) {
        fill(payload, sizeof(payload), 1000 + i);
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = i}, payload, 5000);
        pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = i}, payload, 100);
    }
    fill(payload, sizeof(payload), seed);
    pool_put(txn, &large_key, payload, LARGE_BYTES);
    fill(payload, sizeof(payload), seed + 1);
    pool_put(txn, &small_key, payload, SMALL_BYTES);
    pool_commit(txn, 1);
}

typedef struct damage_log {
    int count;
    char last[300];
    const char *expected; // every line contains it, unless NULL
    int matching;
} damage_log;

static void on_damage(void *context, const char *what) {
    damage_log *log = context;
    log->count++;
    snprintf(log->last, sizeof(log->last), "%s", what);
    if (log->expected != NULL && strstr(what, log->expected) != NULL) log->matching++;
}

static void check_must_find(const char *path, const char *expected) {
    reef_check_report report;
    damage_log log = {.expected = expected};
    must(reef_store_verify(path, &(reef_check_options){.on_damage = on_damage, .context = &log},
                           &report, &why));
    if (log.matching == 0)
        fail_msg("%d damages, none of %s; last: %s", log.count, expected, log.last);
    assert_int_equal(report.damaged, log.count);
}

static void view_must_find(const char *path, const reef_key *key, const char *expected) {
    reef_view view;
    reef_store *store = pool_open(path, false, false);
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must_fail(reef_record_view(txn, key, &view, &why), REEF_ERR_CORRUPT, expected);
    assert_null(view.data);
    reef_txn_abort(txn);
    reef_store_close(store);
}

// ---- flipped bits -------------------------------------------------------------------------------

// Flip one bit wherever the record's bytes stand in the file (an old copy of a page may hold them
// too).
static void flip(
    const char *path, const data_bytes *file, const uint8_t *payload, ptrdiff_t byte, int bit) {
    data_bytes broken = {.data = malloc(file->bytes), .bytes = file->bytes};
    assert_non_null(broken.data);
    memcpy(broken.data, file->data, file->bytes);
    size_t found = 0;
    for (size_t at = 0; (at = data_file_find(file, at, payload, 32)) != SIZE_MAX; at++, found++)
        broken.data[(ptrdiff_t)at + byte] ^= (uint8_t)(1u << bit);
    assert_true(found > 0);
    data_file_save(path, &broken, broken.bytes);
    free(broken.data);
}

static void flipped_bits_are_found(
    pool_fixture *f, const reef_key *key, uint64_t seed, size_t bytes, const char *text) {
    uint8_t payload[LARGE_BYTES];
    uint64_t random = 3;
    fill(payload, sizeof(payload), seed);
    data_bytes file = data_file_load(f->path);
    for (ptrdiff_t byte = -REEF_RECORD_HEADER_BYTES; byte < 8; byte++) { // all of the header
        flip(f->path, &file, payload, byte, draw_int(&random, 0, 7));
        view_must_find(f->path, key, text);
        check_must_find(f->path, text);
    }
    for (int i = 0; i < 20; i++) {
        flip(f->path, &file, payload, draw_int(&random, 0, (int)bytes - 1),
             draw_int(&random, 0, 7));
        view_must_find(f->path, key, text);
        check_must_find(f->path, text);
    }
    data_file_replace(f->path, &file);
}

POOL_TEST(a_flipped_bit_is_found_and_the_record_named) {
    fill_pool(f->store, 77);
    pool_close(f);
    flipped_bits_are_found(f, &large_key, 77, LARGE_BYTES, LARGE_TEXT);
    flipped_bits_are_found(f, &small_key, 78, SMALL_BYTES, SMALL_TEXT);
    f->store = pool_open(f->path, false, true);
    pool_check(f->store);
}

POOL_TEST(writing_the_content_again_mends_a_damaged_record) {
    uint8_t payload[LARGE_BYTES];
    fill_pool(f->store, 77);
    pool_close(f);
    fill(payload, sizeof(payload), 77);
    data_bytes file = data_file_load(f->path);
    flip(f->path, &file, payload, 5000, 3);
    check_must_find(f->path, LARGE_TEXT);
    f->store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &large_key, payload, LARGE_BYTES); // its hash is the one in sums
    assert_int_equal(pool_commit(txn, 1).bytes_written, LARGE_BYTES);
    pool_check(f->store);
    free(file.data);
}

// ---- behind the store's back --------------------------------------------------------------------

typedef struct raw_pool {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
} raw_pool;

static raw_pool raw_begin(const char *path, const char *db) {
    raw_pool raw = {0};
    assert_int_equal(mdb_env_create(&raw.env), 0);
    assert_int_equal(mdb_env_set_maxdbs(raw.env, 20), 0);
    assert_int_equal(mdb_env_open(raw.env, path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(raw.env, NULL, 0, &raw.txn), 0);
    assert_int_equal(mdb_dbi_open(raw.txn, db, 0, &raw.dbi), 0);
    return raw;
}

static void raw_end(raw_pool *raw) {
    assert_int_equal(mdb_txn_commit(raw->txn), 0);
    mdb_env_close(raw->env);
}

static MDB_val raw_key(reef_key_bytes *encoded, const reef_key *key) {
    must(reef_key_encode(key, encoded, &why));
    return (MDB_val){.mv_size = encoded->bytes, .mv_data = encoded->data};
}

static MDB_val raw_copy(const raw_pool *raw, MDB_val *key) {
    MDB_val value;
    assert_int_equal(mdb_get(raw->txn, raw->dbi, key, &value), 0);
    MDB_val copy = {.mv_size = value.mv_size, .mv_data = malloc(value.mv_size)};
    assert_non_null(copy.mv_data);
    memcpy(copy.mv_data, value.mv_data, value.mv_size);
    return copy;
}

// Commit 2 rewrites the large record, and what it wrote at `key` of `db` is lost.
static void lose_a_write(pool_fixture *f, const char *db, MDB_val *key) {
    uint8_t payload[LARGE_BYTES];
    fill_pool(f->store, 77);
    reef_store_close(f->store);
    raw_pool raw = raw_begin(f->path, db);
    MDB_val old = raw_copy(&raw, key);
    raw_end(&raw);

    f->store = pool_open(f->path, false, true);
    fill(payload, sizeof(payload), 99);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &large_key, payload, LARGE_BYTES);
    pool_commit(txn, 2);
    pool_check(f->store);
    pool_close(f);

    raw = raw_begin(f->path, db);
    assert_int_equal(mdb_put(raw.txn, raw.dbi, key, &old, 0), 0);
    raw_end(&raw);
    free(old.mv_data);
}

POOL_TEST(a_stale_record_is_found_through_sums) {
    reef_key_bytes encoded;
    MDB_val key = raw_key(&encoded, &large_key);
    lose_a_write(f, "experts", &key);
    view_must_find(f->path, &large_key, LARGE_TEXT ": the record is stale");
    check_must_find(f->path, LARGE_TEXT ": the record is stale: it was written by commit 1");
}

POOL_TEST(a_stale_entry_of_sums_is_not_taken_for_a_stale_record) {
    reef_key_bytes encoded;
    uint8_t bytes[1 + sizeof(encoded.data)];
    must(reef_key_encode(&large_key, &encoded, &why));
    bytes[0] = (uint8_t)large_key.db;
    memcpy(bytes + 1, encoded.data, encoded.bytes);
    MDB_val key = {.mv_size = 1 + encoded.bytes, .mv_data = bytes};
    lose_a_write(f, "sums", &key);
    view_must_find(f->path, &large_key, LARGE_TEXT ": its entry in sums is stale");
    check_must_find(f->path, LARGE_TEXT
                    ": its entry in sums is stale: it was written by commit 1, the record by "
                    "commit 2");
}

POOL_TEST(a_lost_record_is_found_through_sums) {
    reef_key_bytes encoded;
    MDB_val key = raw_key(&encoded, &small_key);
    fill_pool(f->store, 77);
    pool_close(f);
    raw_pool raw = raw_begin(f->path, "tensors");
    assert_int_equal(mdb_del(raw.txn, raw.dbi, &key, NULL), 0);
    raw_end(&raw);
    view_must_find(f->path, &small_key,
                   SMALL_TEXT ": sums has an entry for it, but the record is lost");
    check_must_find(f->path, SMALL_TEXT ": sums has an entry for it, but the record is lost");
}

// A record that goes missing together with its sum changes the roots.
static void delete_with_sum(const char *path, const char *db, const reef_key *which) {
    reef_key_bytes encoded;
    MDB_val key = raw_key(&encoded, which);
    uint8_t sum[REEF_SUM_KEY_BYTES_MAX] = {(uint8_t)which->db};
    memcpy(sum + 1, encoded.data, encoded.bytes);
    MDB_val sum_key = {.mv_size = 1 + encoded.bytes, .mv_data = sum};
    raw_pool raw = raw_begin(path, db);
    assert_int_equal(mdb_del(raw.txn, raw.dbi, &key, NULL), 0);
    raw_end(&raw);
    raw = raw_begin(path, "sums");
    assert_int_equal(mdb_del(raw.txn, raw.dbi, &sum_key, NULL), 0);
    raw_end(&raw);
}

POOL_TEST(a_record_lost_with_its_sum_is_found_through_the_roots) {
    reef_snapshot snapshot;
    fill_pool(f->store, 77);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "s", &snapshot, &why));
    must(reef_generation_seal(txn, 0, 1, 1, &why));
    pool_open_generation(txn, 1);
    pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .generation = 1}, "flags", 5);
    pool_commit(txn, 2);
    pool_close(f);
    const reef_key of_copy = {
        .db = REEF_DB_EXPERTS, .generation = snapshot.copy, .layer = 1, .block = 2};
    delete_with_sum(f->path, "experts", &of_copy);
    check_must_find(f->path, "generation 2147483648: its records differ from the root");
    delete_with_sum(f->path, "experts", &large_key);
    check_must_find(f->path, "generation 0: its records differ from the root");
    delete_with_sum(f->path, "flags", &(reef_key){.db = REEF_DB_FLAGS, .generation = 1});
    check_must_find(f->path, "the root hash is");
    delete_with_sum(f->path, "generations",
                    &(reef_key){.db = REEF_DB_GENERATIONS, .generation = snapshot.copy});
    check_must_find(f->path, "snapshot s: pool");
}

// A search in such a tree may land before what was walked already.
POOL_TEST(a_check_in_steps_ends_where_pages_stand_in_place_of_others) {
    enum { COUNT = 200, BYTES = 100, PAGE = 4096 };
    static const uint32_t RECORDS[] = {10, 150};
    uint8_t payload[BYTES], *pages[2];
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        fill(payload, sizeof(payload), i);
        pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = i}, payload, BYTES);
    }
    pool_commit(txn, 1);
    pool_close(f);
    data_bytes file = data_file_load(f->path);
    for (size_t i = 0; i < 2; i++) {
        fill(payload, sizeof(payload), RECORDS[i]);
        const size_t at = data_file_find(&file, 0, payload, sizeof(payload));
        assert_true(at != SIZE_MAX);
        pages[i] = file.data + at / PAGE * PAGE + 8; // behind its number
    }
    memcpy(pages[1], pages[0], PAGE - 8); // as if it were an old one
    data_file_replace(f->path, &file);

    reef_store *store = NULL;
    reef_check_report report;
    damage_log log = {.expected = "its keys are out of order"};
    must(reef_store_open(&store, f->path, &(reef_store_options){.damaged = true, .renew_us = 1},
                         &why));
    must(reef_store_check(store, &(reef_check_options){.on_damage = on_damage, .context = &log},
                          &report, &why));
    assert_int_equal(log.matching, 1);
    reef_store_close(store);
}

POOL_TEST(the_check_goes_on_after_damage) {
    reef_check_report report;
    reef_check_report whole;
    damage_log log = {0};
    fill_pool(f->store, 77);
    whole = pool_check(f->store);
    pool_close(f);
    raw_pool raw = raw_begin(f->path, "flags");
    for (uint32_t i = 0; i < 30; i += 3) {
        reef_key_bytes encoded;
        MDB_val key = raw_key(&encoded, &(reef_key){.db = REEF_DB_FLAGS, .block = i});
        MDB_val value = {.mv_size = i, .mv_data = (uint8_t[30]){0}}; // shorter than a header
        assert_int_equal(mdb_put(raw.txn, raw.dbi, &key, &value, 0), 0);
    }
    raw_end(&raw);
    must(reef_store_verify(f->path, &(reef_check_options){.on_damage = on_damage, .context = &log},
                           &report, &why));
    assert_int_equal(report.damaged, 10);
    assert_int_equal(log.count, 10);
    assert_int_equal(report.records, whole.records);
    assert_true(report.file_bytes >= report.used_bytes && report.used_bytes > 30 * 5000);
    assert_memory_equal(report.root, whole.root, REEF_HASH_BYTES);
}

// ---- signals ------------------------------------------------------------------------------------

static const reef_check_options plain = {0};

static reef_status truncate_while_mapped(const char *path,
                                         const reef_check_options *options,
                                         reef_check_report *report,
                                         reef_error *err) {
    reef_store *store = NULL;
    char file[TEMP_DIR_BYTES];
    data_file_path(file, path);
    reef_status status = reef_store_open(&store, path, &(reef_store_options){0}, err);
    if (status != REEF_OK || truncate(file, 3 * 4096) != 0) return REEF_ERR_IO;
    status = reef_store_check(store, options, report, err);
    reef_store_close(store);
    return status;
}

POOL_TEST(a_file_truncated_under_the_map_costs_the_child_only) {
    reef_check_report report;
    fill_pool(f->store, 77);
    pool_close(f);
    must_fail(reef_verify_in_child(f->path, truncate_while_mapped, &plain, &report, &why),
              REEF_ERR_CORRUPT, "SIGBUS");
    must_fail(reef_store_verify(f->path, NULL, &report, &why), REEF_ERR_CORRUPT, "truncated");
}

static reef_status stopped_by_signal(const char *path,
                                     const reef_check_options *options,
                                     reef_check_report *report,
                                     reef_error *err) {
    (void)path, (void)report, (void)err;
    options->on_damage(options->context, "one line before the end");
    (void)raise(*path == 's' ? SIGSEGV : SIGKILL);
    return REEF_OK;
}

PLAIN_TEST(what_a_child_said_before_its_end_is_not_lost) {
    reef_check_report report;
    damage_log log = {.expected = "one line before the end"};
    const reef_check_options options = {.on_damage = on_damage, .context = &log};
    must_fail(reef_verify_in_child("segv", stopped_by_signal, &options, &report, &why),
              REEF_ERR_CORRUPT, "SIGSEGV");
    assert_int_equal(log.matching, 1);
    assert_int_equal(report.damaged, 1);
    must_fail(reef_verify_in_child("kill", stopped_by_signal, &options, &report, &why), REEF_ERR_IO,
              "was stopped");
}

POOL_TEST(a_pool_open_for_writing_can_be_verified) {
    reef_check_report report;
    reef_store *second = NULL;
    fill_pool(f->store, 77);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &small_key, "not committed", 13);
    must(reef_store_verify(f->path, &(reef_check_options){.on_damage = on_unexpected_damage},
                           &report, &why));
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.commits, 1);
    pool_commit(txn, 2);
    // The child has not taken the lock with it.
    must_fail(reef_store_open(&second, f->path, &(reef_store_options){.write = true}, &why),
              REEF_ERR_BUSY, "already open for writing");
    pool_check(f->store);
}

// Whatever a page holds, the check answers: damage, or an error, or (for a page not in use)
// nothing.
POOL_TEST(every_broken_page_gets_an_answer) {
    enum { ROUNDS = 150 };
    uint64_t random = 11;
    int answered = 0;
    fill_pool(f->store, 77);
    pool_close(f);
    data_bytes file = data_file_load(f->path);
    data_bytes broken = {.data = malloc(file.bytes), .bytes = file.bytes};
    assert_non_null(broken.data);
    for (int round = 0; round < ROUNDS; round++) {
        reef_check_report report;
        memcpy(broken.data, file.data, file.bytes);
        size_t page = (size_t)draw_int(&random, 2, (int)(file.bytes / 4096) - 1);
        size_t count = draw_int(&random, 0, 1) ? 24 : 4096; // its header and first offsets, or all
        fill(broken.data + 4096 * page, count, draw_bits(&random));
        data_file_save(f->path, &broken, broken.bytes);
        reef_status status = reef_store_verify(f->path, NULL, &report, &why);
        assert_true(status == REEF_OK || status == REEF_ERR_CORRUPT || status == REEF_ERR_INVALID);
        if (status != REEF_OK || report.damaged > 0) answered++;
    }
    assert_true(answered > ROUNDS / 2);
    free(broken.data);
    free(file.data);
}

RUN_TESTS
