// How a generation finds the beginning that learns its data best: the copy of a sealed one where
// that is better, and itself, untouched, where it is not. The same bits for any number of threads
// and after a restart.
#include "branch_trial.h"
#include "lifelong.h"
#include "warm_start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { PART = 60 * LIFELONG_BATCH, TRIAL = 24 * LIFELONG_BATCH };

static int trial_setup(void **state) {
    lifelong_setup(state);
    choose(&((lifelong *)*state)->config, "branch_new", "trial");
    return 0;
}

// Generations 0 to 2 sealed, each with a kind of its own; 3 open and new.
static void make_sealed(lifelong *f) {
    reef_error err;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 2);
    for (int kind = 0; kind < 3; kind++) {
        feed_kind(f, kind, PART, 3);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    }
    f->said[0] = '\0';
}

static const reef_generation *open_of(const lifelong *f) {
    return reef_open_generation(f->trainer);
}

static void start(lifelong *f, int kind, size_t bytes) {
    reef_error err;
    uint8_t text[TRIAL + 1];
    assert_true(bytes <= TRIAL);
    lifelong_text(text, sizeof(text), kind, 8);
    assert_true(reef_start_is_due(f->trainer));
    ok(reef_start_generation(f->trainer, text, bytes, &err), &err);
}

static void assert_same_weights(const reef_generation *a,
                                const reef_generation *b,
                                uint32_t layers) {
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (size_t i = 0; i < a->tensor_count; i++) {
        const reef_tensor *x = &a->tensors[i], *y = reef_generation_find(b, x->name);
        assert_non_null(y);
        assert_memory_equal(x->data, y->data, x->count * sizeof(float));
        if (x->average != NULL) assert_memory_equal(x->average, y->data, x->count * sizeof(float));
    }
    for (uint32_t l = 0; l < layers; l++)
        assert_memory_equal(a->expert_tables[l].experts, b->expert_tables[l].experts,
                            a->expert_tables[l].expert_count * a->expert_tables[l].row_values *
                                sizeof(float));
}

static void assert_untrained(const reef_generation *generation, uint32_t layers) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        for (size_t n = 0; tensor->adam_m != NULL && n < tensor->count; n++)
            assert_true(tensor->adam_m[n] == 0.0f && tensor->adam_v[n] == 0.0f);
    }
    for (uint32_t l = 0; l < layers; l++)
        for (size_t n = 0; n < generation->expert_tables[l].expert_count; n++) {
            assert_int_equal(generation->expert_tables[l].moments.counts[n], 0);
            assert_int_equal(generation->expert_tables[l].usage[n].count, 0);
        }
}

static void a_generation_begins_as_the_copy_that_learns_better(void **state) {
    lifelong *f = *state;
    make_sealed(f);
    reef_gate *gate =
        &f->trainer->network.generations[3]->gate; // as a boundary fits it on what was held back
    gate->threshold = 3.5f;
    gate->weights[7] = 0.5f;
    start(f, 1, TRIAL);
    assert_int_equal(times_said(f, "\"branch\": 1"), 1);
    assert_int_equal(open_of(f)->info.parent, 1);
    assert_true(open_of(f)->gate.threshold == 3.5f && open_of(f)->gate.weights[7] == 0.5f);
    assert_true(f->trainer->branched);
    assert_int_equal(f->trainer->generation_step, 0);
    assert_untrained(open_of(f), f->config.layers);
    assert_false(reef_start_is_due(f->trainer)); // once is enough, also after a restart
    commit(f);

    // It is what `reef branch` makes.
    lifelong *twin;
    void *own = NULL;
    trial_setup(&own);
    twin = own;
    make_sealed(twin);
    reef_error err;
    reef_branch out;
    ok(reef_trainer_branch(twin->trainer, 1, false, &out, &err), &err);
    assert_same_weights(open_of(f), open_of(twin), f->config.layers);
    lifelong_teardown(&own);

    close_pool(f);
    open_pool(f, 1);
    assert_true(f->trainer->branched);
    assert_false(reef_start_is_due(f->trainer));
}

// Where nothing sealed is of use, everything is as if nothing had been tried.
static void of_what_was_tried_in_vain_nothing_stays(void **state) {
    lifelong *f = *state;
    make_sealed(f);
    const reef_generation *open = open_of(f);
    uint64_t step = f->trainer->step;
    lifelong *twin;
    void *own = NULL;
    trial_setup(&own);
    twin = own;
    choose(&twin->config, "branch_new", "never");
    make_sealed(twin);
    start(f, 0, TRIAL); // the first generation, which always answers, knows it already
    start(twin, 0, TRIAL);
    assert_int_equal(times_said(f, "\"branch\": null"), 1);
    assert_ptr_equal(open, open_of(f));
    assert_false(f->trainer->branched);
    assert_int_equal(f->trainer->step, step);
    assert_int_equal(f->trainer->generation_step, 0);
    assert_untrained(open, f->config.layers);
    for (size_t g = 0; g < 4; g++)
        assert_same_weights(f->trainer->network.generations[g],
                            twin->trainer->network.generations[g], f->config.layers);
    // And they continue alike.
    feed_kind(f, 3, PART, 5);
    feed_kind(twin, 3, PART, 5);
    assert_same_weights(f->trainer->network.generations[2], twin->trainer->network.generations[2],
                        f->config.layers);
    assert_memory_equal(open->expert_tables[0].experts, open_of(twin)->expert_tables[0].experts,
                        open->expert_tables[0].expert_count * open->expert_tables[0].row_values *
                            sizeof(float));
    lifelong_teardown(&own);
}

static void of_several_the_best_is_taken_unless_there_is_no_trial(void **state) {
    lifelong *f = *state;
    make_sealed(f);
    start(f, 1, (REEF_BRANCH_TRIAL_BATCHES_MIN - 1) * LIFELONG_BATCH);
    assert_int_equal(times_said(f, "\"branch\": null"), 1);
    start(f, 1, REEF_BRANCH_TRIAL_BATCHES_MIN * LIFELONG_BATCH);
    assert_int_equal(times_said(f, "\"branch\": 1"), 1);

    void *own = NULL;
    trial_setup(&own);
    lifelong *second = own; // another one learns better than nothing, and is not the best
    make_sealed(second);
    start(second, 2, TRIAL);
    assert_int_equal(times_said(second, "\"branch\": 2"), 1);
    lifelong_teardown(&own);

    trial_setup(&own);
    lifelong *never = own;
    choose(&never->config, "branch_new", "never");
    make_sealed(never);
    start(never, 1, TRIAL);
    assert_int_equal(times_said(never, "\"branch\": null"), 1);
    lifelong_teardown(&own);
}

// A copy has its origin's side, and answers alone.
static void what_cannot_be_copied_as_a_whole_is_not_tried(void **state) {
    (void)state;
    static const char *const FIELDS[][2] = {{"side_new", "5"}, {"fire_max", "2"}, {"gate", "off"}};
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        void *own = NULL;
        trial_setup(&own);
        lifelong *f = own;
        reef_error err;
        if (i > 0) choose(&f->config, FIELDS[i][0], FIELDS[i][1]);
        make_sealed(f);
        if (i == 0) { // the open one only
            uint32_t side = open_of(f)->info.side + 1;
            ok(reef_trainer_grow(f->trainer, side, &err), &err);
        }
        start(f, 1, TRIAL);
        assert_int_equal(times_said(f, "\"branch\": null"), 1);
        lifelong_teardown(&own);
    }
}

// ---- in a stream --------------------------------------------------------------------------------

// Words in the letters of kind 1, put together in another way.
static void other_words(uint8_t *out, size_t count) {
    uint32_t state = 77;
    for (size_t i = 0; i < count; i++) {
        if (i % 6 == 0) state = state * 1664525u + 1013904223u;
        size_t word = state >> 26;
        out[i] = i % 6 == 5 ? ' ' : (uint8_t)("01234567"[(word * 5 + i % 6 * (3 + word % 4)) % 8]);
    }
}

static void root_of_stream(size_t threads, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    void *own = NULL;
    trial_setup(&own);
    lifelong *f = own;
    choose(&f->config, "drift_confirm", "20");
    make_pool(f, threads);
    for (int kind = 0; kind < 3; kind++) feed_kind(f, kind, 2 * PART, 3);
    uint8_t *text = malloc(PART);
    assert_non_null(text);
    other_words(text, PART);
    feed(f, text, 8 * LIFELONG_BATCH); // anomalous, and deferred
    commit(f);
    if (reopen) {
        close_pool(f);
        open_pool(f, threads);
    }
    feed(f, text + 8 * LIFELONG_BATCH, PART - 8 * LIFELONG_BATCH);
    free(text);
    assert_int_equal(times_said(f, "\"branch\": 1"), 1);
    assert_int_equal(status_of(f).generation, 3);
    assert_true(status_of(f).generation_step > 20);
    memcpy(root, commit(f).root, REEF_HASH_BYTES);
    lifelong_teardown(&own);
}

static void a_trial_ends_the_same_for_any_threads_and_after_a_restart(void **state) {
    (void)state;
    uint8_t one[REEF_HASH_BYTES], other[REEF_HASH_BYTES];
    root_of_stream(1, false, one);
    root_of_stream(3, false, other);
    assert_memory_equal(one, other, sizeof(one));
    root_of_stream(2, true, other);
    assert_memory_equal(one, other, sizeof(one));
}

// ---- with context memories ----------------------------------------------------------------------

static void expect_memory_of_its_origin(lifelong *f, const char *share) {
    remember(f);
    choose(&f->config, "net_share", share);
    make_sealed(f);
    start(f, 1, TRIAL);
    assert_int_equal(times_said(f, "\"branch\": 1"), 1);
    uint64_t learned = reef_memory_learned_bytes(open_of(f)->memory.memory);
    assert_in_range(learned, PART - 2 * LIFELONG_BATCH, PART + LIFELONG_BATCH); // and no trial's
    assert_int_equal(open_of(f)->memory.tail_bytes, 0);
    commit(f);
    close_pool(f);
    open_pool(f, 1);
    assert_int_equal(reef_memory_learned_bytes(open_of(f)->memory.memory), learned);
    assert_sound(f);
}

static void memories_have_their_say_in_a_trial(void **state) {
    expect_memory_of_its_origin(*state, "1");
}

static void and_decide_alone_where_there_is_no_net(void **state) {
    expect_memory_of_its_origin(*state, "0");
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, trial_setup, lifelong_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(a_generation_begins_as_the_copy_that_learns_better),
        EACH(of_what_was_tried_in_vain_nothing_stays),
        EACH(of_several_the_best_is_taken_unless_there_is_no_trial),
        cmocka_unit_test(what_cannot_be_copied_as_a_whole_is_not_tried),
        cmocka_unit_test(a_trial_ends_the_same_for_any_threads_and_after_a_restart),
        EACH(memories_have_their_say_in_a_trial),
        EACH(and_decide_alone_where_there_is_no_net),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
