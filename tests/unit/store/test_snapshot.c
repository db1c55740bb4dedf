// Going back to snapshots, letting go of them, and finding them by the beginning of their names.
#include "reef_store.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "damaged_record.h"
#include "pool.h"
#include "reef_byte_order.h"
#include "reef_snapshot.h"
#include "small_disk.h"
#include "store_internal.h"
#include "test.h"

#define BLOCKS 4
#define BLOCK_BYTES 6000

// ---- content that follows from a seed -----------------------------------------------------------

// Write or compare one record.
typedef void (*deed)(reef_txn *txn, const reef_key *key, const void *payload, size_t bytes);

static void compare(reef_txn *txn, const reef_key *key, const void *payload, size_t bytes) {
    uint8_t stored[BLOCK_BYTES];
    must(reef_record_read(txn, key, stored, bytes, &why));
    assert_memory_equal(stored, payload, bytes);
}

static void each_record(reef_txn *txn, uint32_t g, uint64_t seed, bool moments, deed what) {
    uint8_t payload[BLOCK_BYTES];
    for (uint32_t block = 0; block < BLOCKS; block++) {
        reef_key key = {.db = REEF_DB_EXPERTS, .generation = g, .layer = 1, .block = block};
        fill(payload, sizeof(payload), seed + block);
        what(txn, &key, payload, sizeof(payload));
        key.db = REEF_DB_FLAGS;
        what(txn, &key, payload, 5);
        key.db = REEF_DB_USAGE;
        what(txn, &key, payload, 80);
        key.db = REEF_DB_MOMENTS;
        if (moments) what(txn, &key, payload, 900);
        key = (reef_key){.db = REEF_DB_MEMORY, .generation = g, .name = "tables", .block = block};
        what(txn, &key, payload, 4000);
    }
    reef_key tensor = {.db = REEF_DB_TENSORS, .generation = g, .name = "w_q"};
    what(txn, &tensor, payload, 77);
    tensor.db = REEF_DB_MOMENTS;
    if (moments) what(txn, &tensor, payload, 154);
}

static void put_open(reef_txn *txn, uint32_t g, uint64_t seed) {
    pool_open_generation(txn, g);
    each_record(txn, g, seed, true, pool_put);
}

static void seal(reef_txn *txn, uint32_t g) {
    must(reef_generation_seal(txn, g, g + 1, 100, &why));
}

static reef_snapshot make_snapshot(reef_store *store, const char *name, uint64_t step) {
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, name, &snapshot, &why));
    pool_commit(txn, step);
    return snapshot;
}

// Generation 0 sealed, 1 open, snapshot "early"; then 1 changed and sealed, 2 sealed, 3 open.
static reef_commit make_history(reef_store *store) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    put_open(txn, 0, 10);
    seal(txn, 0);
    put_open(txn, 1, 20);
    reef_commit early = pool_commit(txn, 5);
    make_snapshot(store, "early", 5);
    txn = pool_begin(store, REEF_TXN_WRITE);
    each_record(txn, 1, 30, true, pool_put);
    seal(txn, 1);
    put_open(txn, 2, 40);
    seal(txn, 2);
    put_open(txn, 3, 50);
    pool_commit(txn, 9);
    return early;
}

static void assert_early(reef_store *store, const reef_commit *early) {
    reef_commit last;
    reef_generation_record one;
    uint32_t count = 0;
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_commit_read(txn, &last, &why));
    assert_memory_equal(last.root, early->root, REEF_HASH_BYTES);
    assert_true(last.step == 5 && last.stream_bytes == 500 && last.number > early->number);
    must(reef_generation_count(txn, &count, &why));
    assert_int_equal(count, 2);
    must(reef_generation_read(txn, 1, &one, &why));
    assert_true(!one.sealed && one.first_id == 16 && one.side == 4);
    each_record(txn, 0, 10, false, compare);
    each_record(txn, 1, 20, true, compare);
    reef_txn_abort(txn);
    pool_check(store);
}

typedef struct restoring {
    const char *name, *keep_as;
    reef_restore_plan plan;
} restoring;

static reef_status restore(void *context, reef_store *store, reef_error *err) {
    restoring *r = context;
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = reef_snapshot_restore(txn, r->name, r->keep_as, &r->plan, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    reef_commit commit = {.step = r->plan.snapshot.step,
                          .stream_bytes = r->plan.snapshot.stream_bytes};
    return reef_txn_commit(txn, &commit, err);
}

// ---- restoring ----------------------------------------------------------------------------------

POOL_TEST(a_copy_is_restored_to_the_root_of_the_snapshot) {
    char to[TEMP_DIR_BYTES];
    temp_dir_join(to, f->directory, "copy");
    reef_commit early = make_history(f->store);
    make_snapshot(f->store, "late", 9);
    restoring r = {.name = "early"};
    must(reef_store_copy_changed(f->store, to, restore, &r, &why));
    assert_int_equal(r.plan.sealed_gone, 2);
    assert_int_equal(r.plan.needy_count, 1);
    assert_string_equal(r.plan.needy, "late");
    reef_store *copy = pool_open(to, false, true);
    assert_early(copy, &early);
    assert_int_equal(pool_check(copy).snapshots, 1); // early itself
    reef_store_close(copy);
    assert_int_equal(pool_check(f->store).snapshots, 2); // nothing changed there
    assert_int_equal(pool_check(f->store).generations, 4);
    must_fail(reef_store_copy_changed(f->store, to, restore, &r, &why), REEF_ERR_INVALID,
              "not empty");
}

POOL_TEST(in_place_the_state_before_is_kept_and_can_be_restored) {
    reef_commit early = make_history(f->store), late;
    reef_snapshot before;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &late, &why));
    reef_txn_abort(txn);
    restoring r = {.name = "early", .keep_as = "before"};
    must(restore(&r, f->store, &why));
    pool_reopen(f);
    assert_early(f->store, &early);

    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "before", &before, &why));
    assert_true(before.sealed_count == 3 && before.shared_count == 1);
    assert_memory_equal(before.root, late.root, REEF_HASH_BYTES);
    assert_int_equal(reef_snapshot_records(&before, 0), 0);
    for (uint32_t g = 1; g <= 3; g++)
        assert_true(reef_snapshot_records(&before, g) >= REEF_SNAPSHOT_GENERATION);
    reef_generation_record kept;
    must(reef_generation_read(txn, reef_snapshot_records(&before, 2), &kept, &why));
    assert_true(kept.sealed && kept.sealed_step == 3);
    reef_txn_abort(txn);

    // Forward again: what went comes back, sealed roots included.
    r = (restoring){.name = "before", .keep_as = "again"};
    must(restore(&r, f->store, &why));
    assert_int_equal(r.plan.sealed_gone, 0);
    txn = pool_begin(f->store, REEF_TXN_READ);
    reef_commit last;
    must(reef_commit_read(txn, &last, &why));
    assert_memory_equal(last.root, late.root, REEF_HASH_BYTES);
    each_record(txn, 1, 30, false, compare);
    each_record(txn, 2, 40, false, compare);
    each_record(txn, 3, 50, true, compare);
    reef_txn_abort(txn);
    assert_int_equal(pool_check(f->store).snapshots, 3);

    // All copies go with their snapshot.
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "before", &why));
    must(reef_snapshot_remove(txn, "again", &why));
    must(reef_snapshot_remove(txn, "early", &why));
    pool_commit(txn, 9);
    uint32_t number = 0;
    txn = pool_begin(f->store, REEF_TXN_READ);
    for (reef_db db = REEF_DB_TENSORS; db <= REEF_DB_FLAGS; db++) {
        must(reef_db_last_u32(txn, db, UINT32_MAX, &number, &why));
        assert_true(number < REEF_SNAPSHOT_GENERATION);
    }
    must(reef_db_last_u32(txn, REEF_DB_MEMORY, UINT32_MAX, &number, &why));
    assert_int_equal(number, 3);
    reef_txn_abort(txn);
    assert_int_equal(pool_check(f->store).snapshots, 0);
}

// ---- where live sources stand -------------------------------------------------------------------

static void note(
    reef_store *store, const char *name, uint64_t sequence, const char *what, uint64_t number) {
    const reef_key key = {.db = REEF_DB_JOURNAL, .name = name, .sequence = sequence};
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_record_put(txn, &key, REEF_JSON, what, strlen(what), &why));
    pool_commit(txn, number);
}

static void stand(reef_store *store, const char *source, const char *where, uint64_t number) {
    note(store, source, 0, where, number);
}

// NULL: no such record.
static void assert_noted(reef_store *store,
                         const char *name,
                         uint64_t sequence,
                         const char *where) {
    reef_view view;
    const reef_key key = {.db = REEF_DB_JOURNAL, .name = name, .sequence = sequence};
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    reef_status status = reef_record_view(txn, &key, &view, &why);
    assert_int_equal(status, where ? REEF_OK : REEF_ERR_NOT_FOUND);
    if (where != NULL) assert_int_equal(view.bytes, strlen(where));
    if (where != NULL) assert_memory_equal(view.data, where, view.bytes);
    reef_txn_abort(txn);
}

static void assert_stands(reef_store *store, const char *source, const char *where) {
    assert_noted(store, source, 0, where);
}

POOL_TEST(live_sources_stand_where_they_stood) {
    make_history(f->store);
    stand(f->store, "dir:logs", "{\"begin\":1}", 9);
    stand(f->store, "#0123456789abcdef-a/long/name", "{\"begin\":2}", 9);
    stand(f->store, "turns", "{\"total\":3}", 9);
    make_snapshot(f->store, "then", 9);
    make_snapshot(f->store, "too", 9);
    stand(f->store, "dir:logs", "{\"begin\":10}", 10);
    stand(f->store, "#0123456789abcdef-a/long/name", "{\"begin\":20}", 10);
    stand(f->store, "turns", "{\"total\":30}", 10);
    stand(f->store, "redis://host/young", "{\"begin\":40}", 10);
    for (uint64_t number = 7; number < 10; number++) // after the commit
        note(f->store, "turns", number, "{\"at\":31}", 10);

    restoring r = {.name = "then", .keep_as = "before"};
    must(restore(&r, f->store, &why));
    assert_stands(f->store, "dir:logs", "{\"begin\":1}");
    assert_stands(f->store, "#0123456789abcdef-a/long/name", "{\"begin\":2}");
    assert_stands(f->store, "turns", "{\"total\":3}");
    for (uint64_t number = 7; number < 10; number++) assert_noted(f->store, "turns", number, NULL);
    assert_stands(f->store, "redis://host/young", NULL);
    r = (restoring){.name = "before", .keep_as = "again"};
    must(restore(&r, f->store, &why));
    assert_stands(f->store, "dir:logs", "{\"begin\":10}");
    assert_stands(f->store, "redis://host/young", "{\"begin\":40}");
    assert_stands(f->store, "turns", "{\"total\":30}");

    // What was kept goes with its snapshot.
    static const char *const NAMES[] = {"then", "too", "before", "again", "early"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
        must(reef_snapshot_remove(txn, NAMES[i], &why));
    pool_commit(txn, 11);
    assert_stands(f->store, "dir:logs", "{\"begin\":10}");
    txn = pool_begin(f->store, REEF_TXN_READ);
    reef_cursor cursor;
    size_t places = 0;
    must(reef_cursor_open(&cursor, txn, REEF_DB_JOURNAL, NULL, 0, &why));
    for (; !cursor.done; places++) must(reef_cursor_next(&cursor, txn, &why));
    reef_cursor_close(&cursor);
    reef_txn_abort(txn);
    assert_int_equal(places, 4); // three sources and the scheduler's state
    pool_check(f->store);
}

POOL_TEST(in_place_nothing_goes_that_another_snapshot_needs) {
    make_history(f->store);
    make_snapshot(f->store, "late", 9);
    uint64_t records = pool_check(f->store).records;
    restoring r = {.name = "early", .keep_as = "before"};
    must_fail(restore(&r, f->store, &why), REEF_ERR_INVALID, "snapshot late needs");
    assert_int_equal(pool_check(f->store).records, records);
    // The last state does not hinder itself.
    r = (restoring){.name = "late", .keep_as = "before"};
    must(restore(&r, f->store, &why));
    pool_check(f->store);
}

POOL_TEST(a_snapshot_that_is_not_what_it_was_is_not_restored) {
    make_history(f->store);
    reef_snapshot early;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_read(txn, "early", &early, &why));
    const reef_key key = {.db = REEF_DB_MOMENTS, .generation = early.copy, .name = "w_q"};
    must(reef_record_store(txn, &key, REEF_BYTES, "something else", 14, &why));
    pool_commit(txn, 9);
    uint64_t records = pool_check(f->store).records;
    restoring r = {.name = "early", .keep_as = "before"};
    must_fail(restore(&r, f->store, &why), REEF_ERR_CORRUPT, "not the state of commit 1");
    assert_int_equal(pool_check(f->store).records, records);

    // A caller that ignores the failure cannot commit half of it.
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    reef_commit commit = {.step = 1};
    assert_int_equal(reef_snapshot_restore(txn, "early", NULL, &r.plan, &why), REEF_ERR_CORRUPT);
    must_fail(reef_txn_commit(txn, &commit, &why), REEF_ERR_CORRUPT, "was not restored");
    assert_int_equal(pool_check(f->store).records, records);
}

// ---- names --------------------------------------------------------------------------------------

POOL_TEST(the_beginning_of_a_name_is_enough_where_it_is_clear) {
    reef_snapshot found;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_open(txn, 0, 1);
    pool_commit(txn, 1);
    const char *names[] = {"day", "day-1", "day-2", "night", "2024-05"};
    for (size_t i = 0; i < 5; i++) make_snapshot(f->store, names[i], 1);
    const struct {
        const char *given, *name;
    } good[] = {{"day", "day"}, {"day-2", "day-2"}, {"n", "night"}, {"20", "2024-05"}};
    txn = pool_begin(f->store, REEF_TXN_READ);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        must(reef_snapshot_find(txn, good[i].given, &found, &why));
        assert_string_equal(found.name, good[i].name);
    }
    must_fail(reef_snapshot_find(txn, "day-", &found, &why), REEF_ERR_INVALID, "day-1, day-2");
    must_fail(reef_snapshot_find(txn, "da", &found, &why), REEF_ERR_INVALID,
              "any of 3 snapshots: day, day-1, day-2");
    must_fail(reef_snapshot_find(txn, "nights", &found, &why), REEF_ERR_NOT_FOUND, "nights");
    must_fail(reef_snapshot_find(txn, "", &found, &why), REEF_ERR_NOT_FOUND, "no snapshot");
    must_fail(reef_snapshot_find(txn, NULL, &found, &why), REEF_ERR_NOT_FOUND, "no snapshot");
    reef_txn_abort(txn);

    // More candidates than a message has room for.
    for (char c = 'a'; c <= 'h'; c++) {
        char name[REEF_NAME_BYTES_MAX + 1];
        memset(name, 'x', REEF_NAME_BYTES_MAX);
        name[REEF_NAME_BYTES_MAX - 1] = c;
        name[REEF_NAME_BYTES_MAX] = '\0';
        make_snapshot(f->store, name, 1);
    }
    txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_snapshot_find(txn, "xx", &found, &why), REEF_ERR_INVALID, ", ...");
    reef_txn_abort(txn);
}

// ---- removing -----------------------------------------------------------------------------------

POOL_TEST(several_go_in_one_transaction_or_none) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_open(txn, 0, 1);
    reef_commit made = pool_commit(txn, 1);
    make_snapshot(f->store, "a", 1);
    make_snapshot(f->store, "b", 1);
    make_snapshot(f->store, "c", 1);
    uint64_t records = pool_check(f->store).records;
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "a", &why));
    must_fail(reef_snapshot_remove(txn, "missing", &why), REEF_ERR_NOT_FOUND, "missing");
    reef_txn_abort(txn);
    assert_int_equal(pool_check(f->store).records, records);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "a", &why));
    must(reef_snapshot_remove(txn, "c", &why));
    reef_commit after = pool_commit(txn, 1);
    assert_memory_equal(after.root, made.root, REEF_HASH_BYTES);
    assert_int_equal(pool_check(f->store).snapshots, 1);
    // a generation's record, its content, and the snapshot's
    uint64_t each = 1 + BLOCKS * 5 + 2 + 1;
    assert_int_equal(pool_check(f->store).records, records - 2 * each);
}

// ---- damaged ------------------------------------------------------------------------------------

static void damage_snapshot(pool_fixture *f, const char *name) {
    pool_close(f);
    record_damage(f->path, &(reef_key){.db = REEF_DB_SNAPSHOTS, .name = name});
    f->store = pool_open(f->path, false, true);
}

// Of each that is scanned its name, and "!" where it is damaged.
static reef_status write_name(void *context, const reef_snapshot *snapshot, reef_error *err) {
    char *names = context;
    strcat(names, snapshot->name);
    strcat(names, snapshot->damaged ? "! " : " ");
    return REEF_OK;
}

static void expect_scan(reef_store *store, const char *expected) {
    char names[200] = "";
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_snapshot_scan(txn, write_name, names, &why));
    reef_txn_abort(txn);
    assert_string_equal(names, expected);
}

static void remove_one(reef_store *store, const char *name, uint64_t step) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, name, &why));
    pool_commit(txn, step);
}

POOL_TEST(a_damaged_snapshot_is_passed_over_and_goes_with_what_no_other_holds) {
    reef_snapshot found;
    const reef_key place = {.db = REEF_DB_JOURNAL, .name = "file:a"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_open(txn, 0, 1);
    pool_put(txn, &place, "place", 5);
    pool_commit(txn, 1);
    uint64_t without = pool_check(f->store).records;
    make_snapshot(f->store, "a1", 1);
    uint64_t each = pool_check(f->store).records - without;
    make_snapshot(f->store, "a2", 1);
    make_snapshot(f->store, "b", 1);
    damage_snapshot(f, "a1");
    expect_scan(f->store, "a1! a2 b ");
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_find(txn, "b", &found, &why));
    must_fail(reef_snapshot_find(txn, "a", &found, &why), REEF_ERR_INVALID, "a1, a2");
    must_fail(reef_snapshot_find(txn, "a1", &found, &why), REEF_ERR_CORRUPT, "checksum");
    reef_txn_abort(txn);

    // One that is made of the commit to come gets its number, though another cannot be read.
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .name = "w_q"}, "new", 3);
    must(reef_snapshot_create(txn, "changed", &found, &why));
    reef_commit changed = pool_commit(txn, 2);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "changed", &found, &why));
    assert_memory_equal(found.root, changed.root, REEF_HASH_BYTES);
    reef_txn_abort(txn);
    remove_one(f->store, "changed", 2);

    remove_one(f->store, "a1", 2);
    expect_scan(f->store, "a2 b ");
    assert_int_equal(pool_check(f->store).records, without + 2 * each);

    // While two are damaged it is not known whose copies are whose.
    damage_snapshot(f, "a2");
    make_snapshot(f->store, "c", 2);
    damage_snapshot(f, "b");
    remove_one(f->store, "b", 2);
    expect_scan(f->store, "a2! c ");
    remove_one(f->store, "a2", 2);
    expect_scan(f->store, "c ");
    assert_int_equal(pool_check(f->store).records, without + each);
}

// Whether it needs what goes is not known.
POOL_TEST(a_damaged_snapshot_is_in_the_way_of_what_it_may_need) {
    char to[TEMP_DIR_BYTES];
    restoring in_place = {.name = "early", .keep_as = "before"}, elsewhere = {.name = "early"};
    reef_commit early = make_history(f->store);
    make_snapshot(f->store, "late", 9);
    damage_snapshot(f, "late");
    must_fail(restore(&in_place, f->store, &why), REEF_ERR_INVALID, "late may need");

    // What a new pool does not need is not in it.
    temp_dir_join(to, f->directory, "copy");
    must(reef_store_copy_changed(f->store, to, restore, &elsewhere, &why));
    assert_int_equal(elsewhere.plan.needy_count, 1);
    reef_store *copy = pool_open(to, false, true);
    assert_early(copy, &early);
    expect_scan(copy, "early ");
    reef_store_close(copy);

    // Where nothing is removed it does not matter.
    make_snapshot(f->store, "later", 9);
    in_place.name = "later";
    must(restore(&in_place, f->store, &why));
    expect_scan(f->store, "before early late! later ");
}

// A new pool has the snapshot's, and nothing else is written meanwhile.
POOL_TEST(without_the_last_generations_record_only_a_restore_writes) {
    char to[TEMP_DIR_BYTES];
    restoring in_place = {.name = "early", .keep_as = "before"}, elsewhere = {.name = "early"};
    restoring missing = {.name = "missing"};
    reef_commit early = make_history(f->store);
    pool_close(f);
    record_damage(f->path, &(reef_key){.db = REEF_DB_GENERATIONS, .generation = 3});
    f->store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    const reef_key slot = {.db = REEF_DB_USAGE};
    reef_commit commit = {.step = 9};
    must_fail(reef_record_put(txn, &slot, REEF_BYTES, "x", 1, &why), REEF_ERR_CORRUPT,
              "generation 3");
    must_fail(reef_snapshot_restore(txn, "missing", NULL, &missing.plan, &why), REEF_ERR_NOT_FOUND,
              "missing");
    must_fail(reef_txn_commit(txn, &commit, &why), REEF_ERR_CORRUPT, "generation 3");
    must_fail(restore(&in_place, f->store, &why), REEF_ERR_CORRUPT, "generation 3");

    temp_dir_join(to, f->directory, "copy");
    must_fail(reef_store_copy(f->store, to, NULL, &why), REEF_ERR_CORRUPT, "generation 3");
    must(reef_store_copy_changed(f->store, to, restore, &elsewhere, &why));
    assert_int_equal(elsewhere.plan.sealed_gone, 2);
    reef_store *copy = pool_open(to, false, true);
    assert_early(copy, &early);
    reef_store_close(copy);
}

// ---- cost ---------------------------------------------------------------------------------------

// Payload bytes of a snapshot in a pool with so many sealed generations.
static uint64_t snapshot_cost(reef_store *store, uint32_t sealed, uint64_t *open_bytes) {
    reef_snapshot snapshot;
    for (uint32_t g = 0; g <= sealed; g++) {
        reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
        put_open(txn, g, g);
        if (g < sealed) seal(txn, g);
        reef_commit commit = pool_commit(txn, g);
        *open_bytes = commit.bytes_written;
    }
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "cost", &snapshot, &why));
    return pool_commit(txn, sealed).bytes_written;
}

POOL_TEST(a_snapshot_costs_the_open_part_whatever_the_pool) {
    char path[TEMP_DIR_BYTES];
    uint64_t open_small, open_large;
    temp_dir_join(path, f->directory, "large");
    reef_store *large = pool_open(path, true, true);
    uint64_t cost_small = snapshot_cost(f->store, 1, &open_small);
    uint64_t cost_large = snapshot_cost(large, 40, &open_large);
    reef_store_close(large);
    assert_int_equal(cost_small, cost_large);
    assert_true(cost_small < 2 * open_small && open_small > BLOCKS * BLOCK_BYTES);
}

// ---- killed -------------------------------------------------------------------------------------

// Kill a child that restores after so long. Returns whether it was killed before it was done.
static bool restore_and_kill(const char *path, const char *to, restoring r, long microseconds) {
    int how = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        reef_store *store = NULL;
        const reef_store_options options = {.write = to == NULL};
        if (reef_store_open(&store, path, &options, &why) != REEF_OK) _exit(1);
        reef_status status = to != NULL ? reef_store_copy_changed(store, to, restore, &r, &why)
                                        : restore(&r, store, &why);
        _exit(status == REEF_OK ? 0 : 2);
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000 * microseconds}, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) return true;
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

#define KILLS 40

POOL_TEST(killed_on_the_way_there_is_no_half_pool) {
    reef_commit early = make_history(f->store);
    pool_close(f);
    int killed = 0, whole = 0;
    long pause = 200;
    for (int i = 0; i < KILLS; i++) {
        char to[TEMP_DIR_BYTES], name[32];
        snprintf(name, sizeof(name), "copy-%d", i);
        temp_dir_join(to, f->directory, name);
        bool was = restore_and_kill(f->path, to, (restoring){.name = "early"}, pause);
        killed += was;
        // Around the time that it takes, whatever the machine.
        pause = was ? pause + pause / 3 + 100 : pause * 2 / 3;
        reef_store *copy = NULL;
        reef_status status = reef_store_open(&copy, to, &(reef_store_options){.write = true}, &why);
        if (status == REEF_OK) {
            whole++;
            assert_early(copy, &early);
        } else {
            assert_true(was && (status == REEF_ERR_NOT_FOUND || status == REEF_ERR_INVALID));
        }
        reef_store_close(copy);
    }
    assert_true(killed > 0 && whole > 0);
    f->store = pool_open(f->path, false, true);
    assert_int_equal(pool_check(f->store).generations, 4);
}

POOL_TEST(killed_in_place_the_pool_is_as_before_or_restored) {
    reef_commit early = make_history(f->store), late;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &late, &why));
    reef_txn_abort(txn);
    int killed = 0, restored = 0;
    long pause = 200;
    for (int i = 0; i < KILLS; i++) {
        reef_commit last;
        pool_close(f);
        const restoring back = {.name = "early", .keep_as = "before"};
        bool was = restore_and_kill(f->path, NULL, back, pause);
        killed += was;
        // Around the time that it takes, whatever the machine.
        pause = was ? pause + pause / 3 + 100 : pause * 2 / 3;
        f->store = pool_open(f->path, false, true);
        txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_commit_read(txn, &last, &why));
        reef_txn_abort(txn);
        if (memcmp(last.root, late.root, REEF_HASH_BYTES) == 0) {
            assert_true(was);
            assert_int_equal(pool_check(f->store).snapshots, 1);
            continue;
        }
        restored++;
        assert_early(f->store, &early);
        // Forward again, for the next attempt.
        restoring forward = {.name = "before", .keep_as = "early-again"};
        must(restore(&forward, f->store, &why));
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_snapshot_remove(txn, "before", &why));
        must(reef_snapshot_remove(txn, "early-again", &why));
        pool_commit(txn, 9);
    }
    assert_true(killed > 0 && restored > 0);
    pool_check(f->store);
}

// ---- a full disk --------------------------------------------------------------------------------

POOL_TEST(on_a_full_disk_nothing_is_left) {
    enum { SIZES = 24, KIB_FIRST = 16, KIB_EACH = 48 };
    reef_commit early = make_history(f->store);
    char disk[TEMP_DIR_BYTES], to[TEMP_DIR_BYTES];
    temp_dir_join(disk, f->directory, "disk");
    temp_dir_join(to, disk, "copy");
    assert_int_equal(mkdir(disk, 0700), 0);
    int full = 0, whole = 0;
    for (int i = 0; i < SIZES; i++) {
        char size[16];
        restoring r = {.name = "early"};
        snprintf(size, sizeof(size), "%dk", KIB_FIRST + i * KIB_EACH);
        if (!small_disk_mount(disk, size)) skip();
        reef_status status = reef_store_copy_changed(f->store, to, restore, &r, &why);
        if (status == REEF_OK) {
            whole++;
            reef_store *copy = pool_open(to, false, true);
            assert_early(copy, &early);
            reef_store_close(copy);
        } else {
            full++;
            must_fail(status, REEF_ERR_FULL, "");
            assert_int_not_equal(access(to, F_OK), 0);
        }
        small_disk_unmount(disk);
    }
    assert_true(full > 0 && whole > 0);
}

RUN_TESTS
