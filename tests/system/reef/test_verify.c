// `reef verify` in whole, quickly and by sample, and its plan for what is damaged: the commands of
// a plan work.
#include "tools_world.h"

#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"

#include "damaged_record.h"
#include "data_file.h"

#define RUN_OK 0
#define RUN_DAMAGED 65

static void check(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

static uint32_t copy_number(const char *pool) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_snapshot snapshot;
    check(reef_store_open(&store, pool, NULL, &err), &err);
    check(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    check(reef_snapshot_read(txn, "kept", &snapshot, &err), &err);
    reef_txn_abort(txn);
    reef_store_close(store);
    return snapshot.copy;
}

// The one JSON document of a run that ends with `code`.
static json_t *verify_json(const char *pool, int code, const char *option, const char *value) {
    const char *argv[] = {REEF_BINARY, "verify", pool, "--json", option, value, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != code) fail_msg("exit %d: %s", p.code, p.err);
    return json_of_text(p.out);
}

// Run the command with which a remedy begins, and --yes.
static void run_remedy(const json_t *document, const char *restored) {
    const char *remedy = string(document, "remedy");
    assert_int_equal(strncmp(remedy, "reef ", 5), 0);
    int length = (int)strcspn(remedy + 5, ";");
    const char *gap = strstr(remedy, " NEW;");
    if (gap != NULL) length = (int)(gap + 1 - (remedy + 5));
    char *line = formatted("%s %.*s %s --yes >/dev/null", REEF_BINARY, length, remedy + 5,
                           gap != NULL ? restored : "");
    if (system(line) != 0) fail_msg("%s failed", line);
}

static void expect_sound(const char *pool) {
    assert_true(is_sound(pool));
}

// ---- how much is looked at ----------------------------------------------------------------------

WORLD_TEST(a_run_reports_what_it_checked) {
    json_t *whole = verify_json(w->pool, RUN_OK, NULL, NULL);
    assert_string_equal(string(whole, "mode"), "whole");
    assert_true(is_null(whole, "seed"));
    assert_true(integer(whole, "sealed_records") > 4);
    assert_int_equal(integer(whole, "hashed_records"), integer(whole, "sealed_records"));
    assert_int_equal(length(whole, "not_looked_at"), 0);
    assert_int_equal(integer(whole, "pages"),
                     integer(whole, "pages_used") + integer(whole, "pages_free"));
    assert_true(integer(whole, "reads") >= 2); // the pages, and records in one step or more
    assert_true(number(whole, "longest_read_ms") > 0.0);

    json_t *quick = verify_json(w->pool, RUN_OK, "--quick", NULL);
    assert_string_equal(string(quick, "mode"), "quick");
    assert_int_equal(integer(quick, "hashed_records"), 0);
    assert_int_equal(integer(quick, "records"), integer(whole, "records"));
    assert_string_equal(string(quick, "root"), string(whole, "root"));
    assert_int_equal(length(quick, "not_looked_at"), 1);

    program p =
        answers(0, "hashed       everything that is not sealed, and all ", "verify", w->pool, NULL);
    assert_non_null(strstr(p.out, "sound: nothing is damaged"));
    assert_non_null(strstr(p.out, " the longest kept pages from reuse for "));
    p = answers(0, "sealed records only the headers", "verify", w->pool, "--quick", NULL);
    assert_non_null(strstr(p.out, "sound, as far as a quick check looks"));
}

WORLD_TEST(a_sample_can_be_taken_again) {
    json_t *first = verify_json(w->pool, RUN_OK, "--sample", "40");
    assert_string_equal(string(first, "mode"), "sample");
    assert_true(number(first, "sample_percent") == 40.0);
    char *seed = formatted("%lld", (long long)integer(first, "seed"));
    json_t *again = reef_json("verify", w->pool, "--sample", "40", "--seed", seed, NULL);
    assert_int_equal(integer(again, "hashed_records"), integer(first, "hashed_records"));
    assert_int_equal(integer(again, "hashed_bytes"), integer(first, "hashed_bytes"));
    assert_true(integer(first, "hashed_records") < integer(first, "sealed_records"));
    program p = reef("verify", w->pool, "--sample", "40", "--seed", seed, NULL);
    char *expected = formatted("again with --sample 40 --seed %s", seed);
    assert_non_null(strstr(p.out, expected));
    assert_non_null(strstr(p.out, "not hashed"));
}

WORLD_TEST(options_that_contradict_are_refused) {
    static const char *const CASES[][5] = {
        {"--quick", "--sample", "5"}, {"--seed", "1"}, {"--sample", "101"}, {"--sample", "0"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        program p;
        const char *argv[9] = {REEF_BINARY, "verify", w->pool};
        memcpy(argv + 3, CASES[i], sizeof(CASES[i]));
        program_run(&p, argv, NULL);
        assert_int_equal(p.code, 64);
        assert_int_equal(line_count(p.err), 1);
        assert_string_equal(p.out, "");
    }
}

// ---- who keeps pages from reuse -----------------------------------------------------------------

WORLD_TEST(status_names_the_reader_that_keeps_pages_from_reuse) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *held = NULL;
    char *pool = trained_pool(w, "held");
    check(reef_store_open(&store, pool, NULL, &err), &err);
    check(reef_txn_begin(&held, store, REEF_TXN_READ, &err), &err);
    program p = reef("status", pool, NULL);
    assert_null(strstr(p.out, "reads what was"));
    p = reef("snapshot", "create", pool, "while-held", NULL);
    json_t *status = reef_json("status", pool, NULL);
    const json_t *readers = json_at(status, "readers");
    assert_int_equal(integer(readers, "count"), 1);
    assert_true(integer(readers, "commits_behind") >= 1);
    assert_int_equal(integer(readers, "oldest_pid"), getpid());
    p = reef("status", pool, NULL);
    char *expected = formatted("readers       1; process %d reads what was", (int)getpid());
    assert_non_null(strstr(p.out, expected));
    reef_txn_abort(held);
    reef_store_close(store);
}

// ---- when it was last looked at -----------------------------------------------------------------

WORLD_TEST(status_tells_the_last_scrub) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    char *pool = trained_pool(w, "scrubbed");
    json_t *status = reef_json("status", pool, NULL);
    assert_true(is_null(status, "scrub.last_scrub"));
    program p = reef("status", pool, NULL);
    assert_null(strstr(p.out, "scrub"));

    const reef_scrub scrub = {.passes = 2,
                              .last_ms = 1700000000000,
                              .last_records = 1234,
                              .last_bytes = 5000,
                              .began_ms = 1,
                              .records = 7,
                              .bytes = 8};
    check(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
    check(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    check(reef_commit_read(txn, &commit, &err), &err);
    check(reef_scrub_put(txn, &scrub, &err), &err);
    check(reef_txn_commit(txn, &commit, &err), &err);
    reef_store_close(store);
    status = reef_json("status", pool, NULL);
    const json_t *told = json_at(status, "scrub");
    assert_int_equal(integer(told, "last_scrub"), 1700000000000);
    assert_int_equal(integer(told, "last_records"), 1234);
    assert_int_equal(integer(told, "records"), 7);
    p = answers(0, "last scrub    2023-11-1", "status", pool, NULL);
    assert_non_null(strstr(p.out, "1,234 sealed records, "));
    assert_non_null(strstr(p.out, "all sound"));
    assert_non_null(strstr(p.out, "scrub so far  7 records, "));
    expect_sound(pool);
}

// ---- sizes --------------------------------------------------------------------------------------

WORLD_TEST(a_record_of_a_wrong_size_is_found_although_its_checksum_is_right) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    char *pool = trained_pool(w, "sizes");
    check(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
    check(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    reef_commit commit;
    check(reef_commit_read(txn, &commit, &err), &err);
    const reef_key flags = {.db = REEF_DB_FLAGS, .generation = 1};
    check(reef_record_put(txn, &flags, REEF_BYTES, "12345", 5, &err), &err);
    check(reef_txn_commit(txn, &commit, &err), &err);
    reef_store_close(store);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--quick", NULL);
    assert_int_equal(integer(found, "damaged"), 1);
    const char *line = string(found, "damage.0");
    assert_non_null(
        strstr(line, "flags (generation 1, layer 0, block 0) has 5 bytes instead of 16"));
}

// ---- what helps ---------------------------------------------------------------------------------

static void expect_remedy(const char *pool, const reef_key *lost, const char *restored) {
    record_damage(pool, lost);
    json_t *found = verify_json(pool, RUN_DAMAGED, NULL, NULL);
    assert_int_equal(integer(found, "damaged"), 1);
    run_remedy(found, restored);
    expect_sound(restored != NULL ? restored : pool);
}

WORLD_TEST(the_state_before_is_restored_by_the_command_that_is_named) {
    const reef_key keys[] = {{.db = REEF_DB_EXPERTS, .generation = 1},
                             {.db = REEF_DB_GENERATIONS, .generation = 1}};
    for (size_t i = 0; i < 3; i++) { // the last one sealed since the snapshot
        char name[] = "remedy-0";
        name[7] = (char)('0' + i);
        char *pool = trained_pool(w, name), *restored = formatted("%s.restored", pool);
        if (i == 2) (void)reef_json("seal", pool, NULL);
        expect_remedy(pool, &keys[i > 0], restored);
    }
}

WORLD_TEST(people_read_it_as_well) {
    char *pool = trained_pool(w, "remedy-text");
    record_damage(pool, &(reef_key){.db = REEF_DB_EXPERTS, .generation = 1});
    program p = reef("verify", pool, NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    char *line = formatted("remedy       reef snapshot restore %s kept NEW; it trains on "
                           "from byte",
                           pool);
    assert_non_null(strstr(p.out, line));
}

WORLD_TEST(what_it_was_trained_with_is_written_again) {
    char *pool = trained_pool(w, "remedy-kernels");
    record_damage(pool, &(reef_key){.db = REEF_DB_META, .name = "kernels"});
    json_t *found = verify_json(pool, RUN_DAMAGED, NULL, NULL);
    assert_non_null(strstr(string(found, "remedy"), "none is needed"));
    (void)reef_json("seal", pool, NULL);
    expect_sound(pool);
}

// Nothing else is written to such a pool.
WORLD_TEST(a_damaged_last_generation_is_not_trained_on) {
    char *pool = trained_pool(w, "last-trained");
    record_damage(pool, &(reef_key){.db = REEF_DB_GENERATIONS, .generation = 1});
    data_bytes before = data_file_load(pool);
    program p = reef("seal", pool, NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    p = reef("snapshot", "create", pool, "another", NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    p = reef("snapshot", "restore", pool, "kept", "--in-place", "--yes", NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    data_bytes after = data_file_load(pool);
    assert_true(before.bytes == after.bytes && memcmp(before.data, after.data, after.bytes) == 0);
    free(before.data);
    free(after.data);
}

WORLD_TEST(a_snapshot_that_is_damaged_is_let_go_by_the_command_that_is_named) {
    char *pool = trained_pool(w, "remedy-copy");
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = copy_number(pool), .name = "state"};
    expect_remedy(pool, &key, NULL);
    pool = trained_pool(w, "remedy-record");
    (void)reef("snapshot", "create", pool, "other", NULL);
    expect_remedy(pool, &(reef_key){.db = REEF_DB_SNAPSHOTS, .name = "kept"}, NULL);
}

WORLD_TEST(what_is_kept_nowhere_has_no_command) {
    char *pool = trained_pool(w, "remedy-sealed");
    record_damage(pool, &(reef_key){.db = REEF_DB_EXPERTS, .generation = 0});
    json_t *found = verify_json(pool, RUN_DAMAGED, NULL, NULL);
    assert_non_null(strstr(string(found, "remedy"), "a copy of the pool"));
    // What is not hashed is not found, and the run reports that it was not checked.
    found = verify_json(pool, RUN_OK, "--quick", NULL);
    assert_int_equal(integer(found, "damaged"), 0);
    assert_true(is_null(found, "remedy"));
}

RUN_TESTS_IN(world_make, world_remove)
