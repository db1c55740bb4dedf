// What trainings that learn apart give each other: generations with a name and a level, and the
// text of kinds that came back. And what a pool remembers of it.
#include "lifelong.h"
#include "reef_exchange.h"
#include "reef_join.h"
#include "reef_kinds.h"
#include "trainer_internal.h"

enum { LONG = 16000, TABLES = 120000 };

typedef struct pair {
    lifelong *a, *b; // one until generation 0 was sealed
} pair;

static void make_kinds(lifelong *f) {
    lifelong *made = NULL;
    (void)lifelong_setup_kinds((void **)&made);
    *f = *made;
    free(made);
}

// Both know kind 0, which is sealed.
static int setup(void **state) {
    pair *p = room(sizeof(*p));
    p->a = calloc(1, sizeof(*p->a));
    p->b = calloc(1, sizeof(*p->b));
    assert_true(p->a != NULL && p->b != NULL);
    make_kinds(p->a);
    make_kinds(p->b);
    make_pool(p->a, 1);
    feed_kind(p->a, 0, LONG, 1);
    must(reef_trainer_exchange_seal(p->a->trainer, &why));
    must(reef_store_copy(p->a->store, p->b->pool, NULL, &why));
    open_pool(p->b, 1);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    pair *p = *state;
    lifelong_teardown((void **)&p->a);
    lifelong_teardown((void **)&p->b);
    return 0;
}

static uint64_t learned_of(const lifelong *f, uint32_t kind) {
    reef_kind_list list = kinds_of(f->store);
    const reef_kind_facts *found = reef_kind_list_find(&list, kind);
    assert_non_null(found);
    uint64_t bytes = found->learned_bytes;
    return bytes;
}

static void seal(lifelong *f) {
    must(reef_trainer_exchange_seal(f->trainer, &why));
}

// Of pool a into pool b.
static void import(pair *p, uint32_t generation, const reef_import_options *options) {
    must(reef_trainer_import(p->b->trainer, p->a->store, generation, options, NULL, &why));
}

// a learns kind 1, as generation 1.
static void give_kind(pair *p) {
    feed_kind(p->a, 1, LONG, 2);
    seal(p->a);
}

// ---- a kind that came back ----------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, pair *p)

FIXTURE_TEST(a_kind_comes_with_all_that_it_learned) {
    static const reef_import_options as_sealed = {.dry_run = true, .as_sealed = true},
                                     plan = {.dry_run = true};
    reef_import first, sealed, whole, joined;
    give_kind(p);
    must(reef_trainer_import(p->b->trainer, p->a->store, 1, &plan, &first, &why));
    feed_kind(p->a, 1, LONG, 3);
    commit(p->a);
    const uint64_t learned = learned_of(p->a, 1);
    assert_true(learned > first.trained_bytes + LONG / 2);
    must(reef_trainer_import(p->b->trainer, p->a->store, 1, &as_sealed, &sealed, &why));
    assert_int_equal(sealed.trained_bytes, first.trained_bytes);
    must(reef_trainer_import(p->b->trainer, p->a->store, 1, &plan, &whole, &why));
    assert_int_equal(whole.trained_bytes, learned);
    // Its own pool knows it again.
    seal(p->a);
    must_fail(reef_trainer_import(p->a->trainer, p->a->store, 1, NULL, NULL, &why),
              REEF_ERR_INVALID, "of this very pool");
    must(reef_trainer_import(p->b->trainer, p->a->store, 1, NULL, &joined, &why));
    assert_int_equal(joined.trained_bytes, learned);
    assert_int_equal(learned_of(p->b, joined.generation), learned);
    assert_sound(p->b);
    assert_sound(p->a);
}

// ---- sealing ------------------------------------------------------------------------------------

FIXTURE_TEST(the_stream_goes_on_in_its_kind) {
    lifelong *f = ((pair *)p)->a;
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).kind, 0);
    reef_commit before = commit(f);
    seal(f); // nothing was learned since: the same again
    assert_memory_equal(commit(f).root, before.root, REEF_HASH_BYTES);
    open_again(f, 1);
    assert_int_equal(status_of(f).kind, 0);
    feed_kind(f, 0, LONG, 3);
    commit(f);
    assert_in_range(learned_of(f, 0), 2 * LONG - 2 * 2048, 2 * LONG);
    assert_int_equal(status_of(f).generation, 1);
    // The next kind takes the generation that is open and unused: none is sealed empty.
    feed_kind(f, 2, LONG, 4);
    commit(f);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).kind, 1);
    assert_true(learned_of(f, 1) > LONG / 2);
    feed_kind(f, 3, LONG, 5);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    assert_sound(f);
}

FIXTURE_TEST(some_pools_have_nothing_to_exchange) {
    lifelong *f = NULL;
    lifelong_setup((void **)&f);
    make_pool(f, 1);
    must_fail(reef_trainer_exchange_check(f->trainer, &why), REEF_ERR_INVALID,
              "generation 0 is open");
    lifelong_teardown((void **)&f);
    must(reef_trainer_exchange_check(p->a->trainer, &why));
}

// ---- generations --------------------------------------------------------------------------------

FIXTURE_TEST(an_imported_kind_has_a_name_and_a_level) {
    reef_kind_level level, here;
    give_kind(p);
    assert_true(reef_trainer_kind_level(p->a->trainer, 1, &level));
    const reef_import_options options = {.name = "rank-1.1", .level = &level};
    import(p, 1, &options);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(reef_trainer_kind_name_of(p->b->trainer, 1), "rank-1.1");
        assert_true(reef_trainer_kind_level(p->b->trainer, 1, &here));
        assert_int_equal(here.pieces, level.pieces);
        assert_true(here.mean == level.mean && here.deviation == level.deviation);
        open_again(p->b, 1);
    }
    assert_int_equal(status_of(p->b).kind, 0);
    feed_kind(p->b, 1, LONG, 9);
    commit(p->b);
    assert_true(learned_of(p->b, 1) > LONG + LONG / 2);
    assert_int_equal(status_of(p->b).generation, 2);
    // A name that another kind has is not given twice.
    reef_trainer *b = p->b->trainer;
    feed_kind(p->a, 2, LONG, 4);
    seal(p->a);
    import(p, 2, &options);
    assert_string_equal(reef_trainer_kind_name_of(b, 1), "rank-1.1");
    assert_string_equal(reef_trainer_kind_name_of(b, 2), "");
    assert_sound(p->b);
}

// What an older kind learned is held by the open generation, which gets another number.
FIXTURE_TEST(visits_go_with_the_open_generation) {
    give_kind(p);
    feed_kind(p->b, 0, TABLES, 5); // so long that the pool has tables of it
    commit(p->b);
    uint64_t learned = learned_of(p->b, 0);
    double bits = bits_as_of(p->b, "now", 0);
    assert_true(learned > TABLES);
    // With the memory at hand, and read for it.
    open_again(p->b, 1);
    import(p, 1, NULL);
    open_again(p->b, 1);
    assert_int_equal(learned_of(p->b, 0), learned);
    // The imported memory has a say as well, and a small one.
    assert_true(bits_as_of(p->b, "now", 0) < 1.05 * bits);
    assert_sound(p->b);
    feed_kind(p->b, 0, LONG, 6);
    commit(p->b);
    assert_in_range(learned_of(p->b, 0), learned + LONG - 4096, learned + LONG + 4096);
    open_again(p->b, 1);
    assert_sound(p->b);
}

// ---- text ---------------------------------------------------------------------------------------

FIXTURE_TEST(another_pool_learns_the_text_of_a_kind) {
    uint8_t *text = NULL;
    size_t got = 0;
    uint64_t sealed = 0;
    bool empty = true;
    must(reef_trainer_kind_sealed_bytes(p->a->trainer, 0, &sealed, &why));
    must(reef_trainer_kind_is_empty(p->a->trainer, 0, &empty, &why));
    assert_false(empty);
    assert_int_equal(reef_trainer_kind_returned(p->a->trainer, 0), 0);
    feed_kind(p->a, 0, LONG, 7);
    commit(p->a);
    uint64_t now = reef_trainer_kind_returned(p->a->trainer, 0);
    assert_int_equal(now, learned_of(p->a, 0));
    assert_in_range(now - sealed, LONG - 4096, LONG + 4096);
    must(reef_trainer_kind_text(p->a->trainer, 0, now - sealed, &text, &got, &why));
    assert_int_equal(got, now - sealed);
    double sealed_bits = bits_as_of(p->b, "0", 0);
    must(reef_trainer_kind_learn(p->b->trainer, 0, text, got, "rank-0", &why));
    free(text);
    assert_int_equal(learned_of(p->b, 0), now);
    // The same text in the same order: the same memory.
    assert_true(bits_as_of(p->b, "now", 0) == bits_as_of(p->a, "now", 0));
    assert_true(bits_as_of(p->b, "0", 0) == sealed_bits);
    assert_int_equal(times_said(p->b, "\"event\": \"kind_text\""), 1);
    open_again(p->b, 1);
    assert_int_equal(learned_of(p->b, 0), now);
    assert_sound(p->b);
    // No more than a memory keeps.
    must(reef_trainer_kind_text(p->a->trainer, 0, UINT64_MAX, &text, &got, &why));
    assert_int_equal(got, now);
    free(text);
}

FIXTURE_TEST(a_sealed_kind_goes_on) {
    lifelong *f = p->a;
    uint32_t kind = 9;
    feed_kind(f, 1, LONG, 2);
    seal(f);
    assert_true(reef_trainer_kind_goes_on(f->trainer, 1, &kind));
    assert_int_equal(kind, 1);
    assert_false(reef_trainer_kind_goes_on(f->trainer, 2, &kind)); // open
    assert_false(reef_trainer_kind_goes_on(f->trainer, 7, &kind));
}

// ---- what a pool remembers ----------------------------------------------------------------------

FIXTURE_TEST(records_are_read_as_they_were_written) {
    lifelong *f = ((pair *)p)->a;
    const reef_join join = {.training = {1, 2, 3},
                            .rank = 4,
                            .count = 5,
                            .every = UINT64_C(6) << 33,
                            .joins = 7,
                            .since = 8,
                            .accepted = 9,
                            .step = 10,
                            .own_from = 11,
                            .joined_ms = 12,
                            .sent_bytes = 13,
                            .received_bytes = 14,
                            .left_out_bytes = 15,
                            .kinds = 16};
    const reef_join_kind kinds[] = {{1, REEF_JOIN_NOBODY, 1, 0}, {2, 3, 4, UINT64_C(5) << 34}};
    const reef_key key = {.db = REEF_DB_META, .name = "join_kinds"};
    reef_join found;
    reef_join_kind *read = NULL;
    size_t count = 9;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    assert_int_equal(reef_join_read(txn, &found, &why), REEF_ERR_NOT_FOUND);
    must(reef_join_kinds_read(txn, &read, &count, &why));
    assert_int_equal(count, 0);
    free(read);
    must(reef_join_put(txn, &join, &why));
    must(reef_join_kinds_put(txn, kinds, 2, &why));
    must(reef_join_read(txn, &found, &why));
    assert_memory_equal(&found, &join, sizeof(join));
    must(reef_join_kinds_read(txn, &read, &count, &why));
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(read[i].kind, kinds[i].kind);
        assert_int_equal(read[i].owner, kinds[i].owner);
        assert_int_equal(read[i].owner_kind, kinds[i].owner_kind);
        assert_int_equal(read[i].returned, kinds[i].returned);
    }
    free(read);
    must(reef_record_put(txn, &key, REEF_BYTES, "short", 5, &why));
    assert_int_equal(reef_join_kinds_read(txn, &read, &count, &why), REEF_ERR_CORRUPT);
    reef_txn_abort(txn);
}

RUN_TESTS
