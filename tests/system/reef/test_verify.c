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

// A pool of the test's own, trained as the world's: 0 sealed, 1 open, snapshot "kept" of it.
static char *pool_new(world *w, const char *name) {
    char *pool = path_in(w->directory, name);
    make_pool(pool);
    tiny_pool_train(pool);
    return pool;
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
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(document);
    program_release(&p);
    return document;
}

static const char *text(const json_t *document, const char *name) {
    const char *value = json_string_value(json_object_get(document, name));
    if (value == NULL) fail_msg("%s is no text", name);
    return value;
}

// Run a command of a plan as it stands there.
static void run_command(const json_t *repair) {
    const char *command = text(repair, "command");
    assert_int_equal(strncmp(command, "reef ", 5), 0);
    char *line = reef_cli_format("%s %s >/dev/null", REEF_BINARY, command + 5);
    if (system(line) != 0) fail_msg("%s failed", line);
    free(line);
}

static void expect_sound(const char *pool) {
    json_t *document = verify_json(pool, RUN_OK, NULL, NULL);
    assert_true(json_is_true(json_object_get(document, "sound")));
    json_decref(document);
}

// ---- how much is looked at ----------------------------------------------------------------------

static void a_run_reports_what_it_checked(void **state) {
    world *w = *state;
    program p;
    json_t *whole = verify_json(w->pool, RUN_OK, NULL, NULL);
    assert_string_equal(text(whole, "mode"), "whole");
    assert_true(json_is_null(json_object_get(whole, "seed")));
    assert_true(integer(whole, "sealed_records") > 4);
    assert_int_equal(integer(whole, "hashed_records"), integer(whole, "sealed_records"));
    assert_int_equal(json_array_size(json_object_get(whole, "not_looked_at")), 0);
    assert_int_equal(integer(whole, "pages"),
                     integer(whole, "pages_used") + integer(whole, "pages_free"));
    assert_true(integer(whole, "reads") >= 2); // the pages, and records in one step or more
    assert_true(number(whole, "longest_read_ms") > 0.0);

    json_t *quick = verify_json(w->pool, RUN_OK, "--quick", NULL);
    assert_string_equal(text(quick, "mode"), "quick");
    assert_int_equal(integer(quick, "hashed_records"), 0);
    assert_int_equal(integer(quick, "records"), integer(whole, "records"));
    assert_string_equal(text(quick, "root"), text(whole, "root"));
    assert_int_equal(json_array_size(json_object_get(quick, "not_looked_at")), 1);
    json_decref(whole);
    json_decref(quick);

    reef(&p, "verify", w->pool, NULL);
    assert_non_null(strstr(p.out, "hashed       everything that is not sealed, and all "));
    assert_non_null(strstr(p.out, "sound: nothing is damaged"));
    assert_non_null(strstr(p.out, " the longest kept pages from reuse for "));
    program_release(&p);
    reef(&p, "verify", w->pool, "--quick", NULL);
    assert_non_null(strstr(p.out, "sealed records only the headers"));
    assert_non_null(strstr(p.out, "sound, as far as a quick check looks"));
    program_release(&p);
}

static void a_sample_can_be_taken_again(void **state) {
    world *w = *state;
    program p;
    json_t *first = verify_json(w->pool, RUN_OK, "--sample", "40");
    assert_string_equal(text(first, "mode"), "sample");
    assert_true(number(first, "sample_percent") == 40.0);
    char *seed = reef_cli_format("%lld", (long long)integer(first, "seed"));
    json_t *again = reef_json("verify", w->pool, "--sample", "40", "--seed", seed, NULL);
    assert_int_equal(integer(again, "hashed_records"), integer(first, "hashed_records"));
    assert_int_equal(integer(again, "hashed_bytes"), integer(first, "hashed_bytes"));
    assert_true(integer(first, "hashed_records") < integer(first, "sealed_records"));
    reef(&p, "verify", w->pool, "--sample", "40", "--seed", seed, NULL);
    char *expected = reef_cli_format("again with --sample 40 --seed %s", seed);
    assert_non_null(strstr(p.out, expected));
    assert_non_null(strstr(p.out, "not hashed"));
    free(expected);
    free(seed);
    program_release(&p);
    json_decref(first);
    json_decref(again);
}

static void options_that_contradict_are_refused(void **state) {
    world *w = *state;
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
        program_release(&p);
    }
}

// ---- who keeps pages from reuse -----------------------------------------------------------------

static void status_names_the_reader_that_keeps_pages_from_reuse(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_txn *held = NULL;
    program p;
    char *pool = pool_new(w, "held");
    check(reef_store_open(&store, pool, NULL, &err), &err);
    check(reef_txn_begin(&held, store, REEF_TXN_READ, &err), &err);
    reef(&p, "status", pool, NULL);
    assert_null(strstr(p.out, "reads what was"));
    program_release(&p);
    reef(&p, "snapshot", "create", pool, "while-held", NULL);
    program_release(&p);
    json_t *status = reef_json("status", pool, NULL);
    const json_t *readers = json_object_get(status, "readers");
    assert_int_equal(integer(readers, "count"), 1);
    assert_true(integer(readers, "commits_behind") >= 1);
    assert_int_equal(integer(readers, "oldest_pid"), getpid());
    json_decref(status);
    reef(&p, "status", pool, NULL);
    char *expected = reef_cli_format("readers       1; process %d reads what was", (int)getpid());
    assert_non_null(strstr(p.out, expected));
    free(expected);
    program_release(&p);
    reef_txn_abort(held);
    reef_store_close(store);
    free(pool);
}

// ---- when it was last looked at -----------------------------------------------------------------

static void status_tells_the_last_scrub(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    program p;
    char *pool = pool_new(w, "scrubbed");
    json_t *status = reef_json("status", pool, NULL);
    assert_true(json_is_null(json_object_get(json_object_get(status, "scrub"), "last_scrub")));
    json_decref(status);
    reef(&p, "status", pool, NULL);
    assert_null(strstr(p.out, "scrub"));
    program_release(&p);

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
    const json_t *told = json_object_get(status, "scrub");
    assert_int_equal(integer(told, "last_scrub"), 1700000000000);
    assert_int_equal(integer(told, "last_records"), 1234);
    assert_int_equal(integer(told, "records"), 7);
    json_decref(status);
    reef(&p, "status", pool, NULL);
    assert_non_null(strstr(p.out, "last scrub    2023-11-1"));
    assert_non_null(strstr(p.out, "1,234 sealed records, "));
    assert_non_null(strstr(p.out, "all sound"));
    assert_non_null(strstr(p.out, "scrub so far  7 records, "));
    program_release(&p);
    expect_sound(pool);
    free(pool);
}

// ---- sizes --------------------------------------------------------------------------------------

static void a_record_of_a_wrong_size_is_found_although_its_checksum_is_right(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    char *pool = pool_new(w, "sizes");
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
    const char *line = json_string_value(json_array_get(json_object_get(found, "damage"), 0));
    assert_non_null(
        strstr(line, "flags (generation 1, layer 0, block 0) has 5 bytes instead of 9"));
    json_decref(found);
    free(pool);
}

// ---- the plan -----------------------------------------------------------------------------------

static const json_t *only_repair(const json_t *document) {
    const json_t *plan = json_object_get(document, "plan");
    assert_int_equal(json_array_size(plan), 1);
    return json_array_get(plan, 0);
}

// Also where the pool itself cannot be opened for more than that.
static void a_damaged_generation_is_restored_by_the_plans_command(void **state) {
    world *w = *state;
    char *pool = pool_new(w, "plan-generation"), *restored = reef_cli_format("%s.restored", pool);
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = 1};
    record_damage(pool, &key);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    run_command(json_array_get(json_object_get(found, "plan"), 0));
    expect_sound(restored);
    json_decref(found);
    free(restored);
    free(pool);
}

static void what_it_was_trained_with_is_written_again(void **state) {
    world *w = *state;
    program p;
    char *pool = pool_new(w, "plan-kernels");
    const reef_key key = {.db = REEF_DB_META, .name = "kernels"};
    record_damage(pool, &key);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    assert_int_equal(json_array_size(json_object_get(found, "whole")), 1);
    json_decref(found);
    reef(&p, "verify", pool, "--repair-plan", NULL);
    assert_non_null(strstr(p.out, "the next commit writes it again"));
    program_release(&p);
    json_decref(reef_json("seal", pool, NULL));
    expect_sound(pool);
    free(pool);
}

static void the_state_before_is_restored_by_the_plans_command(void **state) {
    world *w = *state;
    char *pool = pool_new(w, "plan-open"), *restored = reef_cli_format("%s.restored", pool);
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1};
    record_damage(pool, &key);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    const json_t *repair = only_repair(found);
    assert_non_null(strstr(text(repair, "damage"), "experts (generation 1, layer 0, block 0)"));
    assert_string_equal(text(repair, "part_of"),
                        "open generation 1: rows of experts, layer 0, block 0");
    assert_string_equal(text(repair, "restore"), "kept");
    assert_true(json_is_false(json_object_get(repair, "sealed")));
    char *command = reef_cli_format("reef snapshot restore %s kept %s", pool, restored);
    assert_string_equal(text(repair, "command"), command);
    run_command(repair);
    expect_sound(restored);
    const json_t *whole = json_object_get(found, "whole");
    assert_int_equal(json_array_size(whole), 1); // generation 0 can still be kept as a file
    assert_int_equal(integer(json_array_get(whole, 0), "generation"), 0);

    program p;
    reef(&p, "verify", pool, "--repair-plan", NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    static const char *const SAYS[] = {"plan (nothing has been changed)",
                                       "   part of  open gen",
                                       "   lost     the present state",
                                       "   kept     ",
                                       "   remedy   a new pool as of snapshot kept",
                                       "   command  reef export generation"};
    for (size_t i = 0; i < sizeof(SAYS) / sizeof(SAYS[0]); i++)
        if (strstr(p.out, SAYS[i]) == NULL) fail_msg("'%s' is not in:\n%s", SAYS[i], p.out);
    assert_non_null(strstr(p.out, command));
    program_release(&p);
    json_decref(found);
    free(command);
    free(restored);
    free(pool);
}

// Without the record of the open generation, or of a sealed one that the snapshot does not need.
static void a_damaged_generations_state_before_is_restored_by_the_plans_command(void **state) {
    world *w = *state;
    for (uint32_t g = 0; g < 2; g++) {
        char *pool = pool_new(w, g == 0 ? "plan-last" : "plan-sealed-since");
        char *restored = reef_cli_format("%s.restored", pool);
        if (g == 1) json_decref(reef_json("seal", pool, NULL));
        record_damage(pool, &(reef_key){.db = REEF_DB_GENERATIONS, .generation = 1});
        json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
        assert_int_equal(integer(found, "damaged"), 1);
        const json_t *repair = only_repair(found);
        assert_int_equal(json_is_true(json_object_get(repair, "sealed")), g);
        run_command(repair);
        expect_sound(restored);
        json_decref(found);
        free(restored);
        free(pool);
    }
}

// Nothing else is written to such a pool.
static void a_damaged_last_generation_is_not_trained_on(void **state) {
    world *w = *state;
    program p;
    char *pool = pool_new(w, "last-trained");
    record_damage(pool, &(reef_key){.db = REEF_DB_GENERATIONS, .generation = 1});
    data_bytes before = data_file_load(pool);
    reef(&p, "seal", pool, NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    program_release(&p);
    reef(&p, "snapshot", "create", pool, "another", NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    program_release(&p);
    reef(&p, "snapshot", "restore", pool, "kept", "--in-place", "--yes", NULL);
    assert_int_equal(p.code, RUN_DAMAGED);
    program_release(&p);
    data_bytes after = data_file_load(pool);
    assert_true(before.bytes == after.bytes && memcmp(before.data, after.data, after.bytes) == 0);
    free(before.data);
    free(after.data);
    free(pool);
}

// Names may hold any bytes, and JSON may not.
static void a_plans_command_can_be_had_for_a_pool_of_any_name(void **state) {
    world *w = *state;
    static const char *const NAMES[] = {"odd '%\xff\n\\", "line\n"};
    for (size_t i = 0; i < 2; i++) {
        char *pool = pool_new(w, NAMES[i]), *restored = reef_cli_format("%s.restored", pool);
        const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1};
        record_damage(pool, &key);
        json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
        run_command(only_repair(found));
        expect_sound(restored);
        assert_int_equal(json_array_size(json_object_get(found, "whole")), 1);
        json_decref(found);
        free(restored);
        free(pool);
    }
}

// Tensors and context memory of the open generation: the same advice, but for the part.
static void damaged_memory_has_the_advice_of_a_tensor(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    json_t *found[2];
    const reef_key keys[] = {
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "spare"},
        {.db = REEF_DB_MEMORY, .generation = 1, .name = "spare", .block = 2},
    };
    for (size_t i = 0; i < 2; i++) {
        char *pool = pool_new(w, i == 0 ? "plan-tensor" : "plan-memory");
        check(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
        check(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
        check(reef_commit_read(txn, &commit, &err), &err);
        check(reef_record_put(txn, &keys[i], REEF_BYTES, "a payload of its own", 20, &err), &err);
        check(reef_txn_commit(txn, &commit, &err), &err);
        reef_store_close(store);
        record_damage(pool, &keys[i]);
        found[i] = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
        free(pool);
    }
    const json_t *tensor = only_repair(found[0]), *memory = only_repair(found[1]);
    assert_string_equal(text(tensor, "part_of"), "open generation 1: tensor spare");
    assert_string_equal(text(memory, "part_of"),
                        "open generation 1: context memory spare, block 2");
    static const char *const SAME[] = {"lost", "kept", "restore", "remedy"};
    for (size_t i = 0; i < sizeof(SAME) / sizeof(SAME[0]); i++)
        assert_string_equal(text(tensor, SAME[i]), text(memory, SAME[i]));
    assert_string_equal(text(memory, "lost"), "the present state of the open generation");
    assert_string_equal(text(memory, "restore"), "kept");
    for (size_t i = 0; i < 2; i++) json_decref(found[i]);
}

static void a_snapshot_that_is_damaged_is_let_go_by_the_plans_command(void **state) {
    world *w = *state;
    char *pool = pool_new(w, "plan-copy");
    const reef_key key = {
        .db = REEF_DB_TENSORS, .generation = copy_number(pool), .name = "gate_weights"};
    record_damage(pool, &key);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    const json_t *repair = only_repair(found);
    assert_string_equal(text(repair, "snapshot"), "kept");
    assert_int_equal(integer(repair, "generation"), 1);
    assert_non_null(strstr(text(repair, "lost"), "the pool as it is now does not need it"));
    run_command(repair);
    expect_sound(pool);
    json_decref(found);
    free(pool);
}

static void a_snapshot_whose_record_is_damaged_is_let_go_by_the_plans_command(void **state) {
    world *w = *state;
    program p;
    char *pool = pool_new(w, "plan-record");
    reef(&p, "snapshot", "create", pool, "other", NULL);
    program_release(&p);
    record_damage(pool, &(reef_key){.db = REEF_DB_SNAPSHOTS, .name = "kept"});
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    assert_int_equal(integer(found, "damaged"), 1);
    const json_t *repair = only_repair(found);
    assert_string_equal(text(repair, "part_of"), "snapshot kept");
    run_command(repair);
    expect_sound(pool);
    json_decref(found);
    free(pool);
}

static void what_is_kept_nowhere_has_no_command(void **state) {
    world *w = *state;
    char *pool = pool_new(w, "plan-sealed");
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0};
    record_damage(pool, &key);
    json_t *found = verify_json(pool, RUN_DAMAGED, "--repair-plan", NULL);
    const json_t *repair = only_repair(found);
    assert_true(json_is_true(json_object_get(repair, "sealed")));
    assert_true(json_is_null(json_object_get(repair, "command")));
    assert_string_equal(text(repair, "kept"), "nowhere in this pool");
    assert_non_null(strstr(text(repair, "remedy"), "a file of generation 0 (reef import)"));
    json_decref(found);
    // What is not hashed is not found, and the run reports that it was not checked.
    found = verify_json(pool, RUN_OK, "--quick", NULL);
    assert_int_equal(integer(found, "damaged"), 0);
    json_decref(found);
    free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_reports_what_it_checked),
        cmocka_unit_test(a_sample_can_be_taken_again),
        cmocka_unit_test(options_that_contradict_are_refused),
        cmocka_unit_test(status_names_the_reader_that_keeps_pages_from_reuse),
        cmocka_unit_test(status_tells_the_last_scrub),
        cmocka_unit_test(a_record_of_a_wrong_size_is_found_although_its_checksum_is_right),
        cmocka_unit_test(a_damaged_generation_is_restored_by_the_plans_command),
        cmocka_unit_test(what_it_was_trained_with_is_written_again),
        cmocka_unit_test(the_state_before_is_restored_by_the_plans_command),
        cmocka_unit_test(a_damaged_generations_state_before_is_restored_by_the_plans_command),
        cmocka_unit_test(a_damaged_last_generation_is_not_trained_on),
        cmocka_unit_test(a_plans_command_can_be_had_for_a_pool_of_any_name),
        cmocka_unit_test(damaged_memory_has_the_advice_of_a_tensor),
        cmocka_unit_test(a_snapshot_that_is_damaged_is_let_go_by_the_plans_command),
        cmocka_unit_test(a_snapshot_whose_record_is_damaged_is_let_go_by_the_plans_command),
        cmocka_unit_test(what_is_kept_nowhere_has_no_command),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
