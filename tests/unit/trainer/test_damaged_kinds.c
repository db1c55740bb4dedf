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
    close_pool(f);
    record_damage(f->pool, key);
    f->store = pool_open(f->pool, false, true);
}

// What each kind's text costs by the model as of a state, and what the model says is lost.
typedef struct answers {
    double bits[KINDS];
    size_t lost_count;
    reef_lost_kind lost[KINDS];
} answers;

static answers ask(const lifelong *f, const char *as_of) {
    answers out = {0};
    reef_model *model = model_of(f->store, as_of);
    for (int kind = 0; kind < KINDS; kind++) {
        uint8_t probe[LIFELONG_PROBE_BYTES];
        reef_score score = {0};
        lifelong_text(probe, sizeof(probe), kind, 99);
        must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
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
    reef_trainer *trainer = NULL;
    const reef_trainer_options options = {.threads = 1};
    must_fail(reef_trainer_open(&trainer, f->store, &options, &why), REEF_ERR_CORRUPT, words);
    assert_non_null(strstr(why.message, "reef verify"));
    assert_null(trainer);
}

// Recover all, and open the pool again. Returns how many kinds were damaged; the last one in *out.
static size_t recover(lifelong *f, bool dry_run, reef_kind_recovery *out) {
    reef_trainer *trainer = NULL;
    reef_kind_recovery *all = NULL;
    const reef_trainer_options options = {.threads = 1, .recovers_kinds = true};
    size_t count = 0;
    must(reef_trainer_open(&trainer, f->store, &options, &why));
    must(reef_trainer_kinds_recover(trainer, dry_run, &all, &count, &why));
    if (count > 0) *out = all[count - 1];
    free(all);
    reef_trainer_close(trainer);
    return count;
}

static void train_on(lifelong *f, int kind) {
    open_again(f, 1);
    feed_kind(f, kind, SHORT, 20);
    commit(f);
}

// ---- one visit ----------------------------------------------------------------------------------

KINDS_TEST(a_damaged_visit_is_left_out_and_named) {
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

KINDS_TEST(a_pool_goes_on_with_what_is_whole) {
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

KINDS_TEST(of_a_name_the_error_speaks) {
    make_visits(f);
    must(reef_trainer_kind_name(f->trainer, 0, "letters", false, &why));
    const reef_key key = visit(2, 0, "tail");
    damage(f, &key);
    assert_no_trainer(f, "kind 0 (letters) is damaged");
}

// ---- other records ------------------------------------------------------------------------------

KINDS_TEST(damaged_tables_of_a_kind_that_never_came_back) {
    reef_kind_recovery found = {0};
    make_pool(f, 1);
    for (int kind = 0; kind < KINDS; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    commit(f);
    const answers zero = ask(f, "0");
    const reef_key key = own(1, "mixer");
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

KINDS_TEST(a_damaged_mark_of_a_kind_that_came_back) {
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

KINDS_TEST(a_damaged_list_of_visits) {
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

KINDS_TEST(the_damaged_memory_of_the_open_generation) {
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
KINDS_TEST(a_damaged_visit_goes_with_the_states_of_its_time) {
    reef_kind_recovery found = {0};
    reef_pruning pruned;
    reef_check_report report;
    make_visits(f);
    const reef_key key = visit(1, 0, "tail");
    damage(f, &key);
    assert_int_equal(recover(f, false, &found), 1);
    train_on(f, 0);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    commit(f);
    const answers now = ask(f, "now");
    must(reef_store_check(f->store, &(reef_check_options){.on_damage = on_unexpected_damage},
                          &report, &why));
    assert_int_equal(report.damaged, 1);
    must(reef_trainer_prune(f->trainer, 1, false, &pruned, &why));
    assert_sound(f);
    const answers after = ask(f, "now");
    assert_same(&after, &now);
}

// ---- other pools --------------------------------------------------------------------------------

// A pool that was this one until generation 0 was sealed.
static void make_other(const lifelong *f, lifelong *other) {
    *other = *f;
    temp_dir_join(other->pool, f->dir, "other");
    make_pool(other, 1);
    feed_kind(other, 0, LONG, 1);
    feed_kind(other, 1, LONG - 2048, 2); // another generation 1
    must(reef_trainer_seal(other->trainer, NULL, NULL, &why));
    assert_int_equal(status_of(other).generation, 2);
}

static reef_status give_kind(const lifelong *f, lifelong *other, bool as_sealed, reef_error *err) {
    const reef_import_options options = {.dry_run = true, .as_sealed = as_sealed};
    return reef_trainer_import(other->trainer, f->store, 1, &options, NULL, err);
}

KINDS_TEST(a_kind_is_given_beside_a_damaged_one) {
    lifelong other;
    char path[TEMP_DIR_BYTES];
    make_visits(f);
    make_other(f, &other);
    const reef_key of_0 = visit(2, 0, "tail"), of_1 = visit(2, 1, "tail");
    damage(f, &of_0);
    must(give_kind(f, &other, false, &why));
    temp_dir_join(path, f->dir, "model");
    must_fail(reef_model_export(f->store, "now", path, NULL, NULL, &why), REEF_ERR_CORRUPT,
              "kind 0 is damaged");
    must(reef_model_export(f->store, "1", path, NULL, NULL, &why));
    damage(f, &of_1);
    must_fail(give_kind(f, &other, false, &why), REEF_ERR_CORRUPT,
              "kind 1 is damaged; reef verify");
    must(give_kind(f, &other, true, &why));
    close_pool(&other);
}

KINDS_TEST(where_a_list_is_damaged_no_older_kind_is_given_as_it_was) {
    lifelong other;
    make_visits(f);
    make_other(f, &other);
    const reef_key key = visit(2, 0, REEF_VISIT_LIST);
    damage(f, &key);
    must_fail(give_kind(f, &other, false, &why), REEF_ERR_CORRUPT, "name kinds");
    must(give_kind(f, &other, true, &why));
    close_pool(&other);
}

// ---- chains -------------------------------------------------------------------------------------

// The kinds of the state that were merged, as if the trainer had written them.
static void write_mergings(lifelong *f, const char *text) {
    reef_view view;
    reef_commit last;
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = 2, .name = "state"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_commit_read(txn, &last, &why));
    must(reef_record_view(txn, &key, &view, &why));
    json_t *state = json_loadb(view.data, view.bytes, 0, NULL);
    assert_non_null(state);
    json_object_set_new(state, "merged_kinds", json_loads(text, 0, NULL));
    char *written = json_dumps(state, JSON_COMPACT);
    must(reef_record_put(txn, &key, REEF_JSON, written, strlen(written), &why));
    last.step++;
    must(reef_txn_commit(txn, &last, &why));
    free(written);
    json_decref(state);
}

KINDS_TEST(a_chain_of_mergings_ends) {
    make_visits(f);
    close_pool(f);
    f->store = pool_open(f->pool, false, true);
    write_mergings(f, "[[0, 1], [1, 0]]");
    assert_no_trainer(f, "kind 0 was merged by way of more kinds than there are");
    write_mergings(f, "[[0, 2], [1, 0]]");
    open_again(f, 1); // by way of another one to the open kind
    assert_int_equal(status_of(f).generation, 2);
}

RUN_TESTS
