// Generations that leave one pool and join another: what they compute stays the same to
// the bit, and training continues from there as from any commit.
#include "transfer.h"

#include "old_pool.h"
#include "trainer_internal.h"

// Share of a kind's bytes on which a generation fires.
static double fires(lifelong *f, uint32_t generation, int kind) {
    uint8_t text[2000];
    double shares[16] = {0};
    reef_score score = {.fire_share = shares};
    lifelong_text(text, sizeof(text), kind, 77);
    reef_model *model = model_of(f->store, NULL);
    assert_true(reef_model_generation_count(model) <= 16);
    must(reef_model_score(model, text, sizeof(text), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return shares[generation];
}

static void assert_imports_to_the_bit(pair *p) {
    start(p);
    assert_false(same_logits(p->a->store, "1", p->b->store, "0", 1));
    float *before = new_logits(), *after = new_logits();
    logits_of(p->b->store, "0", 0, before);
    const reef_generation_record open = generation_of(p->b, 1);
    assert_false(open.sealed);
    assert_true(times_said(p->b, "\"event\": \"import\"") == 0);

    reef_import import = import_one(p->b, p->one);
    assert_int_equal(import.generation, 1);
    assert_int_equal(import.open, 2);
    assert_int_equal(import.info.generation, 1);
    assert_true(times_said(p->b, "\"event\": \"import\"") == 1);
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    for (int kind = 0; kind < 2; kind++)
        assert_true(bits_as_of(p->b, NULL, kind) == bits_as_of(p->a, NULL, kind));
    assert_true(fires(p->b, 1, 1) > 0.9);
    logits_of(p->b->store, "0", 0, after);
    assert_memory_equal(before, after, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*before));

    const reef_generation_record theirs = generation_of(p->a, 1), ours = generation_of(p->b, 1);
    assert_memory_equal(ours.root, theirs.root, REEF_HASH_BYTES);
    assert_true(ours.sealed);
    assert_int_equal(ours.dtype, theirs.dtype);
    assert_int_equal(ours.side, theirs.side);
    assert_int_equal(ours.first_id, open.first_id);
    assert_int_equal(import.first_id, open.first_id);
    const reef_generation_record next = generation_of(p->b, 2);
    assert_false(next.sealed);
    assert_int_equal(next.parent, 1);
    assert_int_equal(next.side, open.side);
    assert_int_equal(next.first_id, ours.first_id + (uint64_t)ours.side * ours.side);
    assert_sound(p->b);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, pair *p)

FIXTURE_TEST(another_pool_computes_the_same_bits) {
    assert_imports_to_the_bit(p);
}

// Rows of int8 with a third vector, dense blocks with corrections of their own.
FIXTURE_TEST(and_with_every_kind_of_tensor) {
    choose(&p->a->config, "ffw", "pd");
    choose(&p->a->config, "d_ffw", "24");
    choose(&p->a->config, "expert", "glu");
    choose(&p->a->config, "seal_dtype", "int8");
    assert_imports_to_the_bit(p);
}

FIXTURE_TEST(and_with_rows_of_int8) {
    choose(&p->a->config, "seal_dtype", "int8");
    assert_imports_to_the_bit(p);
}

// A grid that is smaller than that of the open generation leaves no block of it behind.
FIXTURE_TEST(an_imported_generation_may_be_smaller_than_the_open_one) {
    start(p);
    open_again(p->b, 1);
    must(reef_trainer_grow(p->b->trainer, 70, &why)); // of several blocks
    reef_import import = import_one(p->b, p->one);
    assert_int_equal(import.info.side, 6);
    assert_int_equal(generation_of(p->b, 2).side, 70);
    assert_memory_equal(generation_of(p->b, 1).root, import.info.root, REEF_HASH_BYTES);
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    assert_sound(p->b);
}

// Where the pool has learned something itself: another number, the same content.
FIXTURE_TEST(under_another_number_it_is_the_same_generation) {
    start(p);
    learn(p->b, 2);
    reef_import import = import_one(p->b, p->one);
    assert_int_equal(import.generation, 2);
    assert_int_equal(import.open, 3);
    assert_true(fires(p->b, 2, 1) > 0.9);
    assert_true(same_records(p->a->store, 1, p->b->store, 2));
    assert_sound(p->b);
    // And so it comes home again: to the pool that it was made in, as another one.
    must_fail(import_of(p->a, p->one, &DRY, &import, &why), REEF_ERR_INVALID, "of this very pool");
}

// One whose tables were sealed in slices of different times, with text in blocks: all of it is in
// the other pool's file.
FIXTURE_TEST(a_large_memory_comes_whole) {
    enum { MUCH = 150000, PIECE = 15000 };
    choose(&p->a->config, "net_share", "0"); // nets would have learned other batches
    make_pool(p->a, 1);
    learn(p->a, 0);
    must(reef_store_copy(p->a->store, p->b->pool, NULL, &why));
    for (uint32_t at = 0; at < MUCH; at += PIECE) {
        feed_kind(p->a, 1, PIECE, at);
        commit(p->a);
    }
    assert_true(reef_memory_slices_in_turns(reef_open_generation(p->a->trainer)->memory.slices));
    seal(p->a);
    extract(p->a, 1, p->one);
    open_pool(p->b, 1);
    import_one(p->b, p->one);
    double bits = bits_as_of(p->a, "1", 1);
    assert_true(bits_as_of(p->b, "1", 1) == bits);
    open_again(p->b, 1);
    assert_true(bits_as_of(p->b, "1", 1) == bits && bits_as_of(p->b, NULL, 1) == bits);
    feed_kind(p->b, 1, MUCH, MUCH);
    commit(p->b);
    assert_true(bits_as_of(p->b, "1", 1) == bits);
    assert_sound(p->b);
}

FIXTURE_TEST(it_may_stay_where_it_lies_in_the_map) {
    forget_memories(p->a); // they have to be in memory
    start(p);
    close_pool(p->b);
    must(reef_store_open(&p->b->store, p->b->pool, &(reef_store_options){.write = true}, &why));
    const reef_trainer_options small = {.threads = 1, .memory_bytes = 1};
    must(reef_trainer_open(&p->b->trainer, p->b->store, &small, &why));
    import_one(p->b, p->one);
    feed_kind(p->b, 2, TEXT_BYTES, 1);
    reef_commit in_place = commit(p->b);

    reef_trainer_close(p->b->trainer);
    p->b->trainer = NULL;
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    reef_store_close(p->b->store);
    p->b->store = NULL;
    temp_dir_remove(p->b->pool);
    // The same again, all in memory.
    close_pool(p->a);
    temp_dir_remove(p->a->pool);
    p->a->said[0] = '\0';
    make_pool(p->a, 1);
    learn(p->a, 0);
    import_one(p->a, p->one);
    feed_kind(p->a, 2, TEXT_BYTES, 1);
    assert_memory_equal(commit(p->a).root, in_place.root, REEF_HASH_BYTES);
}

FIXTURE_TEST(training_goes_on_as_from_any_commit) {
    start(p);
    close_pool(p->a);
    temp_dir_remove(p->a->pool);
    must(reef_store_copy(p->b->store, p->a->pool, NULL, &why)); // two that import
    p->a->said[0] = '\0';
    open_pool(p->a, 1);
    import_one(p->a, p->one);
    import_one(p->b, p->one);
    assert_memory_equal(last_commit(p->a).root, last_commit(p->b).root, REEF_HASH_BYTES);
    feed_kind(p->a, 2, TEXT_BYTES, 1);
    seal(p->a);
    feed_kind(p->a, 3, 1000, 1);

    close_pool(p->b); // this one with a restart after each, and other threads
    open_pool(p->b, 2);
    feed_kind(p->b, 2, TEXT_BYTES, 1);
    commit(p->b);
    open_again(p->b, 1);
    seal(p->b);
    feed_kind(p->b, 3, 1000, 1);
    assert_memory_equal(commit(p->a).root, commit(p->b).root, REEF_HASH_BYTES);
    assert_int_equal(status_of(p->b).generation, 3);
    assert_sound(p->b);
}

// ---- with context memories ----------------------------------------------------------------------

static void assert_memory_travels(pair *p, const char *share) {
    choose(&p->a->config, "net_share", share);
    start(p);
    double without = bits_as_of(p->b, NULL, 1);
    import_one(p->b, p->one);
    const reef_generation_record theirs = generation_of(p->a, 1), ours = generation_of(p->b, 1);
    assert_memory_equal(ours.root, theirs.root, REEF_HASH_BYTES);
    assert_true(bits_as_of(p->b, NULL, 1) < without);
    for (int kind = 0; kind < 2; kind++)
        assert_true(bits_as_of(p->b, NULL, kind) == bits_as_of(p->a, NULL, kind));
    assert_sound(p->b);
    assert_true(same_records(p->a->store, 1, p->b->store, 1));
    // What comes next has a memory of its own.
    learn(p->b, 2);
    assert_true(bits_as_of(p->b, "1", 1) == bits_as_of(p->a, NULL, 1));
    open_again(p->b, 1);
    assert_true(bits_as_of(p->b, "1", 1) == bits_as_of(p->a, NULL, 1));
    assert_sound(p->b);
}

FIXTURE_TEST(a_memory_travels_with_its_generation) {
    assert_memory_travels(p, "1");
}

FIXTURE_TEST(and_where_there_is_no_net) {
    assert_memory_travels(p, "0");
}

static void copy_pool(const char *from, const char *to) {
    reef_store *store = pool_open(from, false, false);
    must(reef_store_copy(store, to, NULL, &why));
    reef_store_close(store);
}

// A copy of a pool whose generation 0 has no memory, which makes memories of this bound from now
// on.
static void begin_with(lifelong *f, const char *base, const char *memory, const char *share) {
    if (f->store != NULL) {
        remove_pool(f);
    }
    copy_pool(base, f->pool);
    old_pool_set(f->pool, "memory", memory);
    old_pool_set(f->pool, "net_share", share);
    open_pool(f, 1);
}

// Copies a pool with generation 0, which has no memory, to p->other; pool a is then one with
// memories, which has learned kind 1, as in p->one.
static void begin_without(pair *p) {
    forget_memories(p->a);
    make_pool(p->a, 1);
    learn(p->a, 0);
    copy_pool(p->a->pool, p->other);
    begin_with(p->a, p->other, "4194304", "1");
    learn(p->a, 1);
    extract(p->a, 1, p->one);
}

static void refuses_it(pair *p, const char *words) {
    reef_import import;
    must_fail(import_of(p->b, p->one, NULL, &import, &why), REEF_ERR_INVALID, words);
}

FIXTURE_TEST(a_pool_that_cannot_ask_a_memory_refuses_it) {
    begin_without(p);
    begin_with(p->b, p->other, "0", "1");
    refuses_it(p, "memory 0");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);
    p->b->config = p->a->config;
    p->b->config.memory = REEF_MEMORY_BYTES_MIN;
    p->b->config.net_share = 0.0f;
    make_pool(p->b, 1);
    learn(p->b, 0);
    refuses_it(p, "net_share 1, this one was made with 0");
    begin_with(p->b, p->other, "8388608", "0.5"); // another bound is accepted
    import_one(p->b, p->one);
    assert_true(bits_as_of(p->b, NULL, 1) == bits_as_of(p->a, NULL, 1));
}

// Nobody but the others' memories can say whose a text is: it answers as of its own state alone.
FIXTURE_TEST(a_generation_without_a_memory_joins_a_pool_with_memories) {
    forget_memories(p->a);
    start(p);
    copy_pool(p->b->pool, p->other);
    begin_with(p->b, p->other, "4194304", "1");
    import_one(p->b, p->one);
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    learn(p->b, 2);
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    assert_sound(p->b);
}

RUN_TESTS
