// A small kind that was an odd passage of a much larger one is merged into it, which then learns
// and answers for both. Earlier states stay.
#include "lifelong_restore.h"
#include "lifelong_words.h"
#include "reef_exchange.h"

enum { FEW = 12, PASSAGE = 12000 };

// A kind of few words, behind one that has learned much, for so many times its bits.
static void learn_passage(lifelong *f, uint32_t few, double usual, size_t bytes) {
    enum { MUCH = 1 << 20 };
    make_kinds(f, 1);
    feed_words(f, 0, 40000, 2);
    f->trainer->kinds.levels[0].batches = MUCH / reef_batch_bytes(&f->config);
    f->trainer->kinds.levels[0].bits *= usual;
    feed_few(f, 1, few, bytes, 1);
    assert_int_equal(status_of(f).generation, 1);
}

// And then a third kind, which seals the second one. Returns where that is.
static uint32_t learn_next(lifelong *f) {
    feed_words(f, 2, FIRST, 1);
    assert_int_equal(status_of(f).generation, 2);
    commit(f);
    assert_sound(f);
    return kinds_of(f->store).kinds[1].merged_into;
}

static uint32_t merged_as_of(const lifelong *f, const char *as_of) {
    reef_kind_list list;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_kind_list_read_as_of(txn, as_of, &list, &why));
    reef_txn_abort(txn);
    keep_kinds(&list);
    return list.kinds[1].merged_into;
}

// Of what costs a much larger kind no more than its own text it would save little to keep apart.
WORDS_TEST(the_larger_one_goes_on_for_both) {
    reef_commit first = {0};
    for (int i = 0; i < 2; i++) {
        temp_dir_join(f->pool, f->dir, i == 0 ? "one" : "two");
        f->said[0] = '\0';
        learn_passage(f, FEW, 1.0, PASSAGE);
        if (i == 1) {
            commit(f);
            open_again(f, 1);
        }
        assert_int_equal(learn_next(f), 0);
        reef_commit end = commit(f);
        if (i == 0) first = end;
        assert_memory_equal(end.root, first.root, sizeof(end.root));
        assert_int_equal(times_said(f, "\"event\": \"kind_merge\""), 1);
        // It is as it was in the state of its own generation, and comes back as the larger one.
        assert_int_equal(merged_as_of(f, "1"), REEF_KIND_NONE);
        feed_words(f, 0, FIRST, 3);
        feed_few(f, 1, FEW, 8000, 3);
        assert_int_equal(f->trainer->kinds.current, 0);
        assert_int_equal(status_of(f).generation, 2);
        close_pool(f);
    }
}

WORDS_TEST(a_kind_that_costs_a_larger_one_much_stays) {
    learn_passage(f, FEW, 0.3, PASSAGE);
    assert_int_equal(learn_next(f), REEF_KIND_NONE);
}

WORDS_TEST(a_kind_with_a_name_stays) {
    learn_passage(f, FEW, 1.0, PASSAGE);
    must(reef_trainer_kind_name(f->trainer, 1, "few", false, &why));
    assert_int_equal(learn_next(f), REEF_KIND_NONE);
}

WORDS_TEST(earlier_states_stay) {
    learn_passage(f, FEW, 1.0, PASSAGE);
    take(f, "before");
    const double before = bits_as_of(f, "before", 1);
    assert_int_equal(learn_next(f), 0);
    const double then = bits_as_of(f, "1", 1);
    // Sealed, the state as of the next generation is without it.
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    const double sealed = bits_as_of(f, "2", 1);
    feed_words(f, 0, FIRST, 3);
    commit(f);
    open_again(f, 1);
    assert_true(bits_as_of(f, "before", 1) == before);
    assert_true(bits_as_of(f, "1", 1) == then);
    assert_true(bits_as_of(f, "2", 1) == sealed);
    assert_int_equal(merged_as_of(f, "2"), 0);
    assert_sound(f);
    // And back to when there were both.
    go_back(f, "before");
    assert_true(bits_as_of(f, "now", 1) == before);
    assert_int_equal(kinds_of(f->store).kinds[1].merged_into, REEF_KIND_NONE);
    assert_sound(f);
}

// A reader that is reopened gives up the memory, or takes it again for an earlier state.
WORDS_TEST(a_reader_that_is_reopened_hears_of_it) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), 1, 99);
    learn_passage(f, FEW, 1.0, PASSAGE);
    commit(f);
    for (int i = 0; i < 4; i++) {
        if (i == 1) assert_int_equal(learn_next(f), 0);
        const char *as_of = i == 2 ? "1" : "now";
        reef_score score = {0};
        const reef_model_options options = {.threads = 1};
        must(reef_model_reopen(&model, f->store, as_of, &options, &why));
        must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
        assert_true(score.bits == bits_as_of(f, as_of, 1));
    }
    reef_model_close(model);
}

WORDS_TEST(prune_after_it) {
    reef_pruning pruned;
    learn_passage(f, FEW, 1.0, PASSAGE);
    assert_int_equal(learn_next(f), 0);
    const double now = bits_as_of(f, "now", 0);
    must(reef_trainer_prune(f->trainer, 1, false, &pruned, &why));
    assert_true(bits_as_of(f, "now", 0) == now);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_words(f, 0, FIRST, 3);
    commit(f);
    open_again(f, 1);
    assert_int_equal(f->trainer->kinds.current, 0);
    assert_sound(f);
}

WORDS_TEST(for_others_it_goes_on_as_the_larger_one) {
    uint32_t kind = 9;
    learn_passage(f, FEW, 1.0, PASSAGE);
    assert_int_equal(learn_next(f), 0);
    assert_true(reef_trainer_kind_goes_on(f->trainer, 1, &kind));
    assert_int_equal(kind, 0);
    assert_int_equal(reef_trainer_kind_returned(f->trainer, 1), 0);
    assert_true(reef_trainer_kind_returned(f->trainer, 0) > 0);
}

// What a merged kind knows is given with the other one; its own generation as it was sealed.
WORDS_TEST(it_is_given_as_it_was_sealed_alone) {
    lifelong other = *f;
    learn_passage(f, FEW, 1.0, PASSAGE);
    assert_int_equal(learn_next(f), 0);
    temp_dir_join(other.pool, f->dir, "other");
    learn_passage(&other, FEW, 1.0, PASSAGE - 2048); // another generation 1
    must(reef_trainer_seal(other.trainer, NULL, NULL, &why));
    reef_import_options options = {.dry_run = true};
    must_fail(reef_trainer_import(other.trainer, f->store, 1, &options, NULL, &why),
              REEF_ERR_INVALID, "was merged into another one: take that one");
    options.as_sealed = true;
    must(reef_trainer_import(other.trainer, f->store, 1, &options, NULL, &why));
    close_pool(&other);
}

RUN_TESTS
