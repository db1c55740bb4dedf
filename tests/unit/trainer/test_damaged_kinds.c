// A damaged record of one kind's memory: the other kinds answer as before, and what is lost is
// said; nothing is trained on top of it; and the pool goes on with what is whole.
#include "lifelong.h"
#include "reef_kinds.h"

#include "damaged_record.h"

#include <jansson.h>

enum { LONG = 16000, SHORT = 8000, KINDS = 3 };

// Kind 0 comes back while 1 is open, then kind 0 and 1 while 2 is: as of each generation and now
// its memory is another one.
static void make_visits(lifelong *f) {
    static const int TURNS[] = {0, 1, 0, 2, 0, 1, 2};
    make_pool(f, 1);
    for (size_t i = 0; i < sizeof(TURNS) / sizeof(*TURNS); i++)
        feed_kind(f, TURNS[i], i < 2 || i == 3 ? LONG : SHORT, (uint32_t)i + 1);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
}

static reef_key visit(uint32_t holder, uint32_t kind, const char *name) {
    return (reef_key){.db = REEF_DB_VISITS, .generation = holder, .layer = kind, .name = name};
}

static reef_key own(uint32_t kind, const char *name) {
    return (reef_key){.db = REEF_DB_MEMORY, .generation = kind, .name = name};
}

// While nobody trains.
static void damage(lifelong *f, const reef_key *key) {
    reef_error err;
    close_pool(f);
    record_damage(f->pool, key);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
}

// What each kind's text costs by the model as of a state, and what the model says is lost.
typedef struct answers {
    double bits[KINDS];
    size_t lost_count;
    reef_lost_kind lost[KINDS];
} answers;

static answers ask(const lifelong *f, const char *as_of) {
    reef_error err;
    reef_model *model = NULL;
    answers out = {0};
    ok(reef_model_open(&model, f->store, as_of, &(reef_model_options){.threads = 1}, &err), &err);
    for (int kind = 0; kind < KINDS; kind++) {
        uint8_t probe[LIFELONG_PROBE_BYTES];
        reef_score score = {0};
        lifelong_text(probe, sizeof(probe), kind, 99);
        ok(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &err), &err);
        out.bits[kind] = score.bits;
    }
    const reef_lost_kind *lost = reef_model_lost_kinds(model, &out.lost_count);
    for (size_t i = 0; i < out.lost_count && i < KINDS; i++) out.lost[i] = lost[i];
    reef_model_close(model);
    return out;
}

static void assert_same(const answers *a, const answers *b) {
    for (int kind = 0; kind < KINDS; kind++) assert_true(a->bits[kind] == b->bits[kind]);
    assert_int_equal(a->lost_count, b->lost_count);
}

static void assert_no_trainer(const lifelong *f, const char *words) {
    reef_error err;
    reef_trainer *trainer = NULL;
    const reef_trainer_options options = {.threads = 1};
    assert_int_equal(reef_trainer_open(&trainer, f->store, &options, &err), REEF_ERR_CORRUPT);
    if (strstr(err.message, words) == NULL) fail_msg("%s", err.message);
    assert_non_null(strstr(err.message, "reef verify"));
    assert_null(trainer);
}

// Recover all, and open the pool again. Returns how many kinds were damaged; the last one in *out.
static size_t recover(lifelong *f, bool dry_run, reef_kind_recovery *out) {
    reef_error err;
    reef_trainer *trainer = NULL;
    reef_kind_recovery *all = NULL;
    const reef_trainer_options options = {.threads = 1, .recovers_kinds = true};
    size_t count = 0;
    ok(reef_trainer_open(&trainer, f->store, &options, &err), &err);
    ok(reef_trainer_kinds_recover(trainer, dry_run, &all, &count, &err), &err);
    if (count > 0) *out = all[count - 1];
    free(all);
    reef_trainer_close(trainer);
    return count;
}

static void train_on(lifelong *f, int kind) {
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, kind, SHORT, 20);
    commit(f);
}

// ---- one visit ----------------------------------------------------------------------------------

static void a_damaged_visit_is_left_out_and_named(void **state) {
    lifelong *f = *state;
    make_visits(f);
    const answers zero = ask(f, "0"), one = ask(f, "1"), now = ask(f, "now");
    assert_int_equal(now.lost_count, 0);
    const reef_key key = visit(2, 0, "tail");
    damage(f, &key);
    const answers left = ask(f, "now");
    assert_int_equal(left.lost_count, 1);
    assert_int_equal(left.lost[0].kind, 0);
    assert_non_null(strstr(left.lost[0].what, "visits (generation 2, kind 0, name tail"));
    // It answers as it was before: that is between its second turn and its last.
    assert_in_range(left.lost[0].whole_to, 2 * LONG, 2 * LONG + SHORT + 200);
    assert_true(left.bits[0] != now.bits[0]);
    const answers first = ask(f, "0"), second = ask(f, "1");
    assert_same(&first, &zero);
    assert_same(&second, &one);
    assert_no_trainer(f, "kind 0 is damaged");
}

static void a_pool_goes_on_with_what_is_whole(void **state) {
    lifelong *f = *state;
    reef_kind_recovery found = {0};
    make_visits(f);
    const answers one = ask(f, "1");
    const reef_key key = visit(2, 0, "tail");
    damage(f, &key);
    const answers left = ask(f, "now");
    assert_int_equal(recover(f, true, &found), 1);
    assert_no_trainer(f, "kind 0 is damaged"); // a dry run changed nothing
    assert_int_equal(recover(f, false, &found), 1);
    assert_int_equal(found.lost.kind, 0);
    assert_true(found.lost.whole_to == left.lost[0].whole_to);
    assert_in_range(found.learned, LONG, LONG + SHORT);
    assert_int_equal(recover(f, false, &found), 0);
    // The same bits as while it was damaged, and nothing is lost any more.
    const answers now = ask(f, "now"), earlier = ask(f, "1");
    for (int kind = 0; kind < KINDS; kind++) assert_true(now.bits[kind] == left.bits[kind]);
    assert_int_equal(now.lost_count, 0);
    assert_same(&earlier, &one);
    train_on(f, 0);
    assert_true(ask(f, "now").bits[0] != now.bits[0]);
    assert_non_null(f->trainer);
    assert_int_equal(status_of(f).generation, 2);
}

static void of_a_name_the_error_speaks(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_visits(f);
    ok(reef_trainer_kind_name(f->trainer, 0, "letters", false, &err), &err);
    const reef_key key = visit(2, 0, "tail");
    damage(f, &key);
    assert_no_trainer(f, "kind 0 (letters) is damaged");
}

// ---- other records ------------------------------------------------------------------------------

static void damaged_tables_of_a_kind_that_never_came_back(void **state) {
    lifelong *f = *state;
    reef_kind_recovery found = {0};
    make_pool(f, 1);
    for (int kind = 0; kind < KINDS; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    commit(f);
    const answers zero = ask(f, "0");
    const reef_key key = own(1, "index");
    damage(f, &key);
    const answers left = ask(f, "now"), first = ask(f, "0");
    assert_int_equal(left.lost_count, 1);
    assert_int_equal(left.lost[0].kind, 1);
    assert_int_equal(left.lost[0].whole_to, 0);
    assert_same(&first, &zero);
    assert_no_trainer(f, "kind 1 is damaged");
    assert_int_equal(recover(f, false, &found), 1);
    assert_int_equal(found.learned, 0);
    const answers now = ask(f, "now");
    for (int kind = 0; kind < KINDS; kind++) assert_true(now.bits[kind] == left.bits[kind]);
    assert_int_equal(now.lost_count, 0);
    train_on(f, 0);
}

static void a_damaged_mark_of_a_kind_that_came_back(void **state) {
    lifelong *f = *state;
    reef_kind_recovery found = {0};
    make_visits(f);
    const reef_key key = own(0, "mark");
    damage(f, &key);
    const answers left = ask(f, "now");
    assert_int_equal(left.lost_count, 1);
    assert_int_equal(left.lost[0].kind, 0);
    assert_no_trainer(f, "kind 0 is damaged");
    assert_int_equal(recover(f, false, &found), 1);
    assert_int_equal(ask(f, "now").lost_count, 0);
    train_on(f, 1);
}

static void a_damaged_list_of_visits(void **state) {
    lifelong *f = *state;
    reef_kind_recovery found = {0};
    make_visits(f);
    const answers one = ask(f, "1");
    const reef_key key = visit(2, 0, REEF_VISIT_LIST);
    damage(f, &key);
    const answers left = ask(f, "now"), earlier = ask(f, "1");
    assert_int_equal(left.lost_count, 2); // all that may have come back then
    assert_non_null(strstr(left.lost[0].what, "name kinds"));
    assert_same(&earlier, &one);
    assert_no_trainer(f, "kind 0 is damaged");
    assert_int_equal(recover(f, false, &found), 2);
    assert_int_equal(ask(f, "now").lost_count, 0);
    train_on(f, 1);
    assert_int_equal(ask(f, "now").lost_count, 0);
}

static void the_damaged_memory_of_the_open_generation(void **state) {
    lifelong *f = *state;
    reef_kind_recovery found = {0};
    make_visits(f);
    const answers one = ask(f, "1");
    const reef_key key = own(2, "tail");
    damage(f, &key);
    const answers left = ask(f, "now"), earlier = ask(f, "1");
    assert_int_equal(left.lost_count, 1);
    assert_int_equal(left.lost[0].kind, 2);
    assert_same(&earlier, &one);
    assert_no_trainer(f, "kind 2 is damaged");
    assert_int_equal(recover(f, false, &found), 1);
    const answers now = ask(f, "now");
    assert_int_equal(now.lost_count, 0);
    assert_true(now.bits[0] == left.bits[0]);
    train_on(f, 2);
    assert_sound(f); // what was damaged has been written over
}

// What is damaged of an older state stays in the file until that state is given up.
static void a_damaged_visit_goes_with_the_states_of_its_time(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_kind_recovery found = {0};
    reef_pruning pruned;
    reef_check_report report;
    make_visits(f);
    const reef_key key = visit(1, 0, "tail");
    damage(f, &key);
    assert_int_equal(recover(f, false, &found), 1);
    train_on(f, 0);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    commit(f);
    const answers now = ask(f, "now");
    ok(reef_store_check(f->store, lifelong_on_damage, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 1);
    ok(reef_trainer_prune(f->trainer, 1, false, &pruned, &err), &err);
    assert_sound(f);
    const answers after = ask(f, "now");
    assert_same(&after, &now);
}

// ---- other pools --------------------------------------------------------------------------------

// A pool that was this one until generation 0 was sealed.
static void make_other(const lifelong *f, lifelong *other) {
    reef_error err;
    *other = *f;
    temp_dir_join(other->pool, f->dir, "other");
    make_pool(other, 1);
    feed_kind(other, 0, LONG, 1);
    feed_kind(other, 1, LONG - 2048, 2); // another generation 1
    ok(reef_trainer_seal(other->trainer, NULL, NULL, &err), &err);
    assert_int_equal(status_of(other).generation, 2);
}

static reef_status give_kind(const lifelong *f, lifelong *other, bool as_sealed, reef_error *err) {
    const reef_import_options options = {.dry_run = true, .as_sealed = as_sealed};
    return reef_trainer_import(other->trainer, f->store, 1, &options, NULL, err);
}

static void a_kind_is_given_beside_a_damaged_one(void **state) {
    lifelong *f = *state, other;
    reef_error err;
    char path[TEMP_DIR_BYTES];
    make_visits(f);
    make_other(f, &other);
    const reef_key of_0 = visit(2, 0, "tail"), of_1 = visit(2, 1, "tail");
    damage(f, &of_0);
    ok(give_kind(f, &other, false, &err), &err);
    temp_dir_join(path, f->dir, "model");
    assert_int_equal(reef_model_export(f->store, "now", path, NULL, NULL, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "kind 0 is damaged"));
    ok(reef_model_export(f->store, "1", path, NULL, NULL, &err), &err);
    damage(f, &of_1);
    assert_int_equal(give_kind(f, &other, false, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "kind 1 is damaged; reef verify"));
    ok(give_kind(f, &other, true, &err), &err);
    close_pool(&other);
}

static void where_a_list_is_damaged_no_older_kind_is_given_as_it_was(void **state) {
    lifelong *f = *state, other;
    reef_error err;
    make_visits(f);
    make_other(f, &other);
    const reef_key key = visit(2, 0, REEF_VISIT_LIST);
    damage(f, &key);
    assert_int_equal(give_kind(f, &other, false, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "name kinds"));
    ok(give_kind(f, &other, true, &err), &err);
    close_pool(&other);
}

// ---- chains -------------------------------------------------------------------------------------

// The kinds of the state that were merged, as if the trainer had written them.
static void write_mergings(lifelong *f, const char *text) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_view view;
    reef_commit last;
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = 2, .name = "state"};
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_WRITE, &err), &err);
    ok(reef_commit_read(txn, &last, &err), &err);
    ok(reef_record_view(txn, &key, &view, &err), &err);
    json_t *state = json_loadb(view.data, view.bytes, 0, NULL);
    assert_non_null(state);
    json_object_set_new(state, "merged_kinds", json_loads(text, 0, NULL));
    char *written = json_dumps(state, JSON_COMPACT);
    ok(reef_record_put(txn, &key, REEF_JSON, written, strlen(written), &err), &err);
    last.step++;
    ok(reef_txn_commit(txn, &last, &err), &err);
    free(written);
    json_decref(state);
}

static void a_chain_of_mergings_ends(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_visits(f);
    close_pool(f);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
    write_mergings(f, "[[0, 1], [1, 0]]");
    assert_no_trainer(f, "kind 0 was merged by way of more kinds than there are");
    write_mergings(f, "[[0, 2], [1, 0]]");
    reef_store_close(f->store);
    f->store = NULL;
    open_pool(f, 1); // by way of another one to the open kind
    assert_int_equal(status_of(f).generation, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, lifelong_setup_kinds, lifelong_teardown)

TESTS(TEST(a_damaged_visit_is_left_out_and_named),
      TEST(a_pool_goes_on_with_what_is_whole),
      TEST(of_a_name_the_error_speaks),
      TEST(damaged_tables_of_a_kind_that_never_came_back),
      TEST(a_damaged_mark_of_a_kind_that_came_back),
      TEST(a_damaged_list_of_visits),
      TEST(the_damaged_memory_of_the_open_generation),
      TEST(a_damaged_visit_goes_with_the_states_of_its_time),
      TEST(a_kind_is_given_beside_a_damaged_one),
      TEST(a_chain_of_mergings_ends),
      TEST(where_a_list_is_damaged_no_older_kind_is_given_as_it_was))
