// Gates inside the trainer: without a gate a generation takes part everywhere, memories are chosen
// for each gate, and the stream alone decides the bits.
#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

#define LOGIT_BYTES (LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float))

// On what share of a text of one kind generation 1 fires, as who asks for a score is told.
static double share_fired(reef_store *store, int kind) {
    reef_error err;
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    double shares[2];
    reef_score score = {.fire_share = shares};
    lifelong_text(probe, sizeof(probe), kind, 99);
    ok(reef_model_open(&model, store, "now", &(reef_model_options){.threads = 1}, &err), &err);
    ok(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &err), &err);
    reef_model_close(model);
    return shares[1];
}

static float decay_of(const lifelong *f) {
    return f->trainer->network.generations[1]->gate.decay;
}

// Two generations: kind 0, sealed, then kind 1.
static void learn_two(lifelong *f, size_t threads) {
    reef_error err;
    forget_memories(f); // gates choose among nets
    make_pool(f, threads);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_kind(f, 1, 12000, 1);
    commit(f);
}

// ---- off ----------------------------------------------------------------------------------------

static void without_a_gate_a_generation_fires_on_everything(void **state) {
    lifelong *f = *state;
    ok(reef_config_set(&f->config, "gate", "off", NULL), NULL);
    learn_two(f, 1);
    for (int kind = 0; kind < 3; kind++) assert_true(share_fired(f->store, kind) == 1.0);
}

static void without_a_gate_old_text_is_changed_but_as_of_is_exact(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *sealed = new_logits(), *later = new_logits();
    ok(reef_config_set(&f->config, "gate", "off", &err), &err);
    make_pool(f, 2);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    logits_of(f->store, "0", 0, sealed);
    logits_of(f->store, "now", 0, later);
    assert_memory_equal(sealed, later,
                        LOGIT_BYTES); // fires, and is silent as long as it knows nothing
    feed_kind(f, 1, 12000, 1);
    commit(f);
    logits_of(f->store, "0", 0, later);
    assert_memory_equal(sealed, later, LOGIT_BYTES);
    logits_of(f->store, "now", 0, later);
    assert_memory_not_equal(sealed, later, LOGIT_BYTES);
}

// The root after two generations, thrown away and taken up again after each part when `reopen`.
static void root_of_run(const char *gate,
                        size_t threads,
                        bool reopen,
                        uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    reef_error err;
    reef_commit last;
    lifelong_setup(&state);
    lifelong *f = state;
    ok(reef_config_set(&f->config, "gate", gate, &err), &err);
    make_pool(f, threads);
    for (int part = 0; part < 9; part++) {
        if (part == 3 || part == 6) ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        feed_kind(f, part / 3, 2001, (uint32_t)part);
        last = commit(f);
        if (!reopen) continue;
        close_pool(f);
        open_pool(f, threads);
    }
    memcpy(root, last.root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

static void the_stream_alone_decides(const char *gate) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(gate, 1, false, expected);
    root_of_run(gate, 3, false, root);
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(gate, 2, true, root);
    assert_memory_equal(expected, root, sizeof(root));
}

static void threads_and_restarts_change_nothing(void **state) {
    (void)state;
    the_stream_alone_decides("off");
    the_stream_alone_decides("ngram");
}

// ---- what is stored -----------------------------------------------------------------------------

static void a_memory_that_is_given_is_used_and_one_that_is_not_is_chosen(void **state) {
    lifelong *f = *state;
    f->config.gate_decay = 0.9f;
    learn_two(f, 1);
    assert_true(decay_of(f) == 0.9f);

    void *other = NULL;
    lifelong_setup(&other);
    f = other;
    learn_two(f, 1); // alphabets without a letter in common: the shortest memory will do
    assert_true(decay_of(f) == 0.98f);
    assert_true(share_fired(f->store, 1) > 0.95);
    assert_true(share_fired(f->store, 0) == 0);
    lifelong_teardown(&other);
}

static void settings_of_gates_have_bounds(void **state) {
    lifelong *f = *state;
    reef_error err;
    assert_int_equal(reef_config_set(&f->config, "gate", "on", &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "must be ngram or off"));
    assert_int_equal(reef_config_set(&f->config, "gate-negatives", "65", &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "0 to 64"));
    assert_int_equal(reef_config_set(&f->config, "gate-decay", "1", &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "gate_decay"));
}

// Four generations, three tokens; what may fire of them, by fire_max.
static void the_newest_of_those_that_fire_go_first(void **state) {
    (void)state;
    static const uint8_t fired[4][3] = {{9, 9, 9}, {1, 1, 0}, {1, 0, 0}, {1, 1, 0}};
    static const uint8_t kept[3][4][3] = {
        {{9, 9, 9}, {0, 0, 0}, {0, 0, 0}, {1, 1, 0}},
        {{9, 9, 9}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}},
        {{9, 9, 9}, {1, 1, 0}, {1, 0, 0}, {1, 1, 0}},
    };
    for (size_t most = 1; most <= 3; most++) {
        uint8_t fire[4][3];
        memcpy(fire, fired, sizeof(fire));
        reef_gating_limit(4, 3, fire[0], 3, most);
        assert_memory_equal(fire, kept[most - 1], sizeof(fire));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_of_those_that_fire_go_first),
#define TEST(name) cmocka_unit_test_setup_teardown(name, lifelong_setup, lifelong_teardown)
        TEST(without_a_gate_a_generation_fires_on_everything),
        TEST(without_a_gate_old_text_is_changed_but_as_of_is_exact),
        TEST(threads_and_restarts_change_nothing),
        TEST(a_memory_that_is_given_is_used_and_one_that_is_not_is_chosen),
        TEST(settings_of_gates_have_bounds),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
