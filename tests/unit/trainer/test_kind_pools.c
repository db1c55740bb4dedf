// Pools with layers of every kind: the same bits however training is cut, sealed generations that
// stay, restoring, moving to another pool, and everything that a boundary, a command or a baseline
// does.
#include "lifelong_process.h"
#include "reef_snapshot.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

#define TEXT_BYTES 3000
#define LOGIT_BYTES LIFELONG_LOGIT_BYTES

// Values alone, mixtures alone, and all kinds together with tables of each head.
static const char *const NETS[][4] = {
    {"k", "shared", "f32"}, {"m", "shared", "f32"}, {"pkdm", "head", "int8"}};
enum { NET_COUNT = sizeof(NETS) / sizeof(*NETS) };

static void set_net(lifelong *f, size_t network) {
    f->config.layers = NETS[network][0][1] == '\0' ? 2 : (uint32_t)strlen(NETS[network][0]);
    choose(&f->config, "ffw", NETS[network][0]);
    choose(&f->config, "subkeys", NETS[network][1]);
    choose(&f->config, "seal_dtype", NETS[network][2]);
    choose(&f->config, "boundaries", "given");
    f->config.moe_experts = 3;
    f->config.d_ffw = 24;
}

// Another pool of the same test.
static lifelong *fresh(lifelong *f, size_t network) {
    void *state;
    lifelong_setup(&state);
    lifelong *other = state;
    other->config = f->config;
    set_net(other, network);
    return other;
}

static void done_with(lifelong *f) {
    void *state = f;
    lifelong_teardown(&state);
}

static void seal(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
}

static void on_wrong_size(void *context, const reef_key *key, const char *what) {
    fail_msg("layer %u, block %u: %s", key->layer, key->block, what);
}

static void assert_sound_and_sized(const lifelong *f) {
    assert_sound(f);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_pool_check_sizes(txn, on_wrong_size, NULL, &why));
    reef_txn_abort(txn);
}

static float *logits_as_of(const lifelong *f, const char *as_of, int kind) {
    float *logits = new_logits();
    logits_of(f->store, as_of, kind, logits);
    return logits;
}

// As a model that holds no row of a sealed generation in memory computes them.
static float *logits_in_place(const lifelong *f, const char *as_of, int kind) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *logits = new_logits();
    const reef_model_options options = {.threads = 2, .memory_bytes = 1};
    lifelong_text(probe, sizeof(probe), kind, 99);
    must(reef_model_open(&model, f->store, as_of, &options, &why));
    must(reef_model_logits(model, probe, sizeof(probe), logits, &why));
    reef_model_close(model);
    return logits;
}

static void assert_same_and_free(float *one, float *other) {
    assert_memory_equal(one, other, LOGIT_BYTES);
    free(one);
    free(other);
}

static void assert_roots_are(const reef_commit *one, const reef_commit *other) {
    assert_memory_equal(one->root, other->root, REEF_HASH_BYTES);
}

// ---- training -----------------------------------------------------------------------------------

static double bits_now(const lifelong *f, int kind) {
    reef_score score = {0};
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), kind, 99);
    reef_model *model = model_of(f->store, NULL);
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return score.bits_per_byte;
}

// By thresholds, a mixture must compute about what its experts learned when they chose.
LIFELONG_TEST(every_kind_learns) {
    for (size_t network = 0; network < NET_COUNT; network++) {
        lifelong *own = fresh(f, network);
        make_pool(own, 2);
        assert_true(bits_now(own, 0) > 7.0);
        feed_kind(own, 0, 4 * TEXT_BYTES, 1);
        commit(own);
        double bits = bits_now(own, 0), trained = status_of(own).bits_per_byte;
        if (!(bits < 2.6 && bits < trained + 0.3))
            fail_msg("net %s: %f, in training %f", NETS[network][0], bits, trained);
        done_with(own);
    }
}

LIFELONG_TEST(how_training_is_cut_leaves_no_trace) {
    for (size_t network = 0; network < NET_COUNT; network++) {
        lifelong *whole = fresh(f, network), *cut = fresh(f, network);
        uint8_t text[TEXT_BYTES];
        lifelong_text(text, sizeof(text), 0, 5);
        make_pool(whole, 1);
        feed(whole, text, sizeof(text));
        seal(whole);
        feed(whole, text, sizeof(text));
        reef_commit one = commit(whole);
        make_pool(cut, 3);
        for (size_t at = 0; at < sizeof(text); at += 750) {
            feed(cut, text + at, 750);
            commit(cut);
            open_again(cut, 1 + at % 4);
        }
        seal(cut);
        feed(cut, text, 1111);
        close_pool(cut); // since the last commit: lost
        open_pool(cut, 2);
        feed(cut, text, sizeof(text));
        reef_commit other = commit(cut);
        assert_roots_are(&one, &other);
        assert_sound_and_sized(cut);
        done_with(whole);
        done_with(cut);
    }
}

// ---- sealed, and back ---------------------------------------------------------------------------

LIFELONG_TEST(what_was_sealed_stays_to_the_bit) {
    for (size_t network = 0; network < NET_COUNT; network++) {
        lifelong *own = fresh(f, network);
        make_pool(own, 2);
        feed_kind(own, 0, TEXT_BYTES, 1);
        seal(own);
        float *first = logits_as_of(own, "0", 0);
        feed_kind(own, 1, TEXT_BYTES, 1);
        seal(own);
        float *second = logits_as_of(own, "1", 1);
        feed_kind(own, 2, TEXT_BYTES, 1);
        commit(own);
        assert_sound_and_sized(own);
        float *in_place = logits_in_place(own, "1", 1);
        assert_memory_equal(second, in_place, LOGIT_BYTES);
        close_pool(own);
        float *again = new_logits();
        logits_in_new_process(own, "0", 0, again);
        assert_same_and_free(first, again);
        again = new_logits();
        logits_in_new_process(own, "1", 1, again);
        assert_same_and_free(second, again);
        done_with(own);
    }
}

LIFELONG_TEST(going_back_trains_to_the_same_bits) {
    for (size_t network = 0; network < NET_COUNT; network++) {
        reef_snapshot snapshot;
        reef_restoration done;
        lifelong *own = fresh(f, network);
        make_pool(own, 1);
        feed_kind(own, 0, TEXT_BYTES, 1); // still the first generation: mixtures train
        must(reef_trainer_snapshot(own->trainer, "kept", &snapshot, &why));
        feed_kind(own, 1, 1000, 3);
        reef_commit goal = commit(own);
        seal(own);
        feed_kind(own, 2, 1000, 4);
        commit(own);
        reef_trainer_close(own->trainer);
        own->trainer = NULL;
        must(reef_pool_restore_in_place(own->store, "kept", false, &done, &why));
        open_again(own, 2);
        feed_kind(own, 1, 1000, 3);
        reef_commit reached = commit(own);
        assert_roots_are(&goal, &reached);
        assert_sound_and_sized(own);
        done_with(own);
    }
}

LIFELONG_TEST(a_generation_moves_to_another_pool) {
    for (size_t network = 0; network < NET_COUNT; network++) {
        reef_import import;
        lifelong *a = fresh(f, network), *b = fresh(f, network);
        make_pool(a, 1);
        feed_kind(a, 0, 2 * TEXT_BYTES, 1);
        seal(a);
        must(reef_store_copy(a->store, b->pool, NULL, &why));
        feed_kind(a, 1, 2 * TEXT_BYTES, 1);
        seal(a);
        open_pool(b, 1);
        must(reef_trainer_import(b->trainer, a->store, 1, NULL, &import, &why));
        assert_same_and_free(logits_as_of(a, "1", 1), logits_as_of(b, "1", 1));
        assert_sound_and_sized(b);
        done_with(a);
        done_with(b);
    }
}

// ---- growing ------------------------------------------------------------------------------------

LIFELONG_TEST(values_grow_and_what_has_none_says_so) {
    lifelong *values = fresh(f, 0);
    make_pool(values, 1);
    feed_kind(values, 0, 1000, 1);
    commit(values);
    float *before = logits_as_of(values, "now", 0);
    uint64_t experts = status_of(values).experts;
    must(reef_trainer_grow(values->trainer, 8, &why));
    assert_int_equal(experts, 2 * 36);
    assert_int_equal(status_of(values).experts, 2 * 64);
    feed_kind(values, 0, 1000, 1);
    commit(values);
    float *after = logits_as_of(values, "now", 0);
    assert_memory_not_equal(before, after, LOGIT_BYTES);
    assert_sound_and_sized(values);
    done_with(values);

    lifelong *mixtures = fresh(f, 1);
    make_pool(mixtures, 1);
    feed_kind(mixtures, 0, 1000, 1);
    reef_commit kept = commit(mixtures);
    must_fail(reef_trainer_grow(mixtures->trainer, 8, &why), REEF_ERR_INVALID,
              "only those of kind p and k have experts that grow");
    reef_commit same = commit(mixtures);
    assert_roots_are(&kept, &same);
    reef_freeze freeze = {.layer = 0, .last = 5};
    uint64_t changed;
    must_fail(reef_trainer_freeze(mixtures->trainer, &freeze, &changed, &why), REEF_ERR_INVALID,
              "layer 0 is of kind moe");
    done_with(mixtures);
}

// ---- what else can be done with a pool ----------------------------------------------------------

// All that initialises experts: of a model with both kinds of rows, for any threads.
static reef_commit live_through_everything(lifelong *own, size_t threads) {
    make_pool(own, threads);
    for (int kind = 0; kind < 3; kind++) {
        feed_kind(own, kind, 2 * TEXT_BYTES, 1);
        seal(own);
    }
    feed_kind(own, 1, TEXT_BYTES, 6);
    return commit(own);
}

LIFELONG_TEST(rows_of_both_kinds_are_begun) {
    lifelong *one = fresh(f, 2), *other = fresh(f, 2);
    reef_commit first = live_through_everything(one, 1);
    reef_commit second = live_through_everything(other, 3);
    assert_roots_are(&first, &second);
    assert_sound_and_sized(one);
    done_with(one);
    done_with(other);
}

// Thresholds depend on nothing later: the prediction of a byte by a trained model stays, whatever
// follows.
LIFELONG_TEST(later_bytes_change_no_earlier_loss) {
    for (size_t network = 1; network < NET_COUNT; network++) {
        reef_model *model = NULL;
        lifelong *own = fresh(f, network);
        uint8_t probe[64];
        float before[64], after[64];
        make_pool(own, 1);
        feed_kind(own, 0, TEXT_BYTES, 1);
        commit(own);
        must(reef_model_open(&model, own->store, NULL, NULL, &why));
        for (size_t from = 1; from < sizeof(probe); from += 2) {
            reef_score score = {0};
            lifelong_text(probe, sizeof(probe), 0, 99);
            must(reef_model_score(model, probe, sizeof(probe), before, &score, NULL, NULL, &why));
            for (size_t t = from; t < sizeof(probe); t++) probe[t] = (uint8_t)(3 * t + from);
            must(reef_model_score(model, probe, sizeof(probe), after, &score, NULL, NULL, &why));
            assert_memory_equal(before, after, from * sizeof(*before));
            assert_memory_not_equal(before + from, after + from,
                                    (sizeof(probe) - from) * sizeof(*before));
        }
        reef_model_close(model);
        done_with(own);
    }
}

int main(int argc, char **argv) {
    int result;
    if (lifelong_is_other_process(argc, argv, &result)) return result;
    return test_run(NULL, NULL);
}
