// Gates inside the trainer: memories are chosen for each gate, the newest that fires goes first,
// and the stream alone decides the bits.
#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

// On what share of a text of one kind generation 1 fires, as who asks for a score is told.
static double share_fired(reef_store *store, int kind) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    double shares[2];
    reef_score score = {.fire_share = shares};
    lifelong_text(probe, sizeof(probe), kind, 99);
    reef_model *model = model_of(store, "now");
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return shares[1];
}

// Two generations: kind 0, sealed, then kind 1.
static void learn_two(lifelong *f, size_t threads) {
    forget_memories(f); // gates choose among nets
    make_pool(f, threads);
    feed_kind(f, 0, 12000, 1);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 1, 12000, 1);
    commit(f);
}

// The root after two generations, thrown away and taken up again after each part when `reopen`.
static void root_of_run(size_t threads, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    reef_commit last;
    lifelong_setup(&state);
    lifelong *f = state;
    make_pool(f, threads);
    for (int part = 0; part < 9; part++) {
        if (part == 3 || part == 6) must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        feed_kind(f, part / 3, 2001, (uint32_t)part);
        last = commit(f);
        if (!reopen) continue;
        open_again(f, threads);
    }
    memcpy(root, last.root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

LIFELONG_TEST(threads_and_restarts_change_nothing) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(1, false, expected);
    root_of_run(3, false, root);
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(2, true, root);
    assert_memory_equal(expected, root, sizeof(root));
}

LIFELONG_TEST(the_shortest_memory_that_will_do_is_chosen) {
    learn_two(f, 1); // alphabets without a letter in common
    assert_true(f->trainer->network.generations[1]->gate.decay == 0.98f);
    assert_true(share_fired(f->store, 1) > 0.95);
    assert_true(share_fired(f->store, 0) == 0);
}

// Four generations, three tokens.
PLAIN_TEST(the_newest_of_those_that_fire_goes_first) {
    uint8_t fire[4][3] = {{9, 9, 9}, {1, 1, 0}, {1, 0, 0}, {0, 1, 0}};
    static const uint8_t kept[4][3] = {{9, 9, 9}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}};
    reef_gating_keep_newest(4, 3, fire[0], 3);
    assert_memory_equal(fire, kept, sizeof(fire));
}

RUN_TESTS
