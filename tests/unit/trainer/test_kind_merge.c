// A kind is merged into another one, which then learns and answers for both. Earlier states stay.
#include "lifelong_restore.h"
#include "reef_kinds.h"
#include "test.h"

enum { LONG = 16000, KINDS = 4 };

// Four kinds. Kind 1 came back; the generation of the last one is open.
static void learn_all(lifelong *f) {
    make_pool(f, 1);
    for (int kind = 0; kind < KINDS; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    feed_kind(f, 1, LONG, 10);
    feed_kind(f, 3, LONG, 11);
    commit(f);
    assert_int_equal(status_of(f).generation, KINDS - 1);
}

static lifelong_mould four; // made when it is first asked for

static void learn(lifelong *f) {
    if (four.dir[0] != '\0') {
        lifelong_copy(f, &four, 1);
        return;
    }
    learn_all(f);
    lifelong_keep(f, &four);
}

static int discard_four(void **state) {
    lifelong_discard(&four);
    return 0;
}

static reef_kind_merging merge(lifelong *f, uint32_t from, uint32_t into, bool dry_run) {
    reef_kind_merging m;
    must(reef_trainer_kind_merge(f->trainer, from, into, dry_run, &m, &why));
    return m;
}

// Who answers a text of a kind now?
static uint32_t answers(const lifelong *f, int kind) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    uint32_t answered[LIFELONG_PROBE_BYTES];
    reef_score score = {.answers = {.width = 1, .kinds = answered}};
    lifelong_text(probe, sizeof(probe), kind, 99);
    must(reef_model_open(&model, f->store, "now", NULL, &why));
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return answered[LIFELONG_PROBE_BYTES - 1];
}

KINDS_TEST(the_other_one_goes_on_for_both) {
    learn(f);
    take(f, "before");
    double then = bits_as_of(f, "2", 1), before = bits_as_of(f, "before", 1);
    assert_int_equal(answers(f, 1), 1);
    reef_kind_merging m = merge(f, 1, 2, false);
    assert_in_range(m.from_bytes, 2 * LONG - 4096, 2 * LONG + 4096);
    assert_in_range(m.text_bytes, LONG, m.from_bytes);
    assert_true(m.from_apart > 0.0 && m.into_together > 0.0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(answers(f, 1), 2);
        assert_int_equal(answers(f, 2), 2);
        assert_true(bits_as_of(f, "2", 1) == then);
        assert_true(bits_as_of(f, "before", 1) == before);
        assert_sound(f);
        open_again(f, 1);
    }
    // What comes of either is learned by the one that is left.
    reef_kind_list list = kinds_of(f->store);
    uint64_t learned = list.kinds[2].learned_bytes;
    assert_int_equal(list.kinds[1].merged_into, 2);
    assert_int_equal(list.kinds[2].merged_into, REEF_KIND_NONE);
    feed_kind(f, 1, LONG, 20);
    feed_kind(f, 2, LONG, 21);
    commit(f);
    assert_int_equal(status_of(f).generation, KINDS - 1);
    list = kinds_of(f->store);
    assert_in_range(list.kinds[2].learned_bytes, learned + 2 * LONG - 8192,
                    learned + 2 * LONG + 4096);
    assert_true(bits_as_of(f, "2", 1) == then);
    // Sealed, the state as of that generation is without it, and the one before with it.
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    double sealed = bits_as_of(f, "3", 1);
    feed_kind(f, 0, LONG, 22);
    commit(f);
    open_again(f, 1);
    assert_true(bits_as_of(f, "3", 1) == sealed);
    assert_true(bits_as_of(f, "2", 1) == then);
    assert_sound(f);
    // And back to when there were both.
    go_back(f, "before");
    assert_true(bits_as_of(f, "now", 1) == before);
    assert_int_equal(answers(f, 1), 1);
    list = kinds_of(f->store);
    assert_int_equal(list.kinds[1].merged_into, REEF_KIND_NONE);
    assert_sound(f);
}

// A reader that is reopened gives up the memory, or takes it again for an earlier state.
KINDS_TEST(a_reader_that_is_reopened_hears_of_it) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), 1, 99);
    learn(f);
    for (int i = 0; i < 4; i++) {
        if (i == 1) merge(f, 1, 2, false);
        const char *as_of = i == 2 ? "2" : "now";
        reef_score score = {0};
        const reef_model_options options = {.threads = 1};
        must(reef_model_reopen(&model, f->store, as_of, &options, &why));
        must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
        assert_true(score.bits == bits_as_of(f, as_of, 1));
    }
    reef_model_close(model);
}

KINDS_TEST(the_same_bits_whenever_it_was_committed) {
    reef_commit first = {0};
    for (int i = 0; i < 2; i++) {
        temp_dir_join(f->pool, f->dir, i == 0 ? "one" : "two");
        if (i == 0)
            learn_all(f); // and goes on, without a restart
        else
            learn(f);
        merge(f, 2, 0, false);
        if (i == 1) open_again(f, 1);
        feed_kind(f, 2, LONG, 20);
        if (i == 1) commit(f);
        feed_kind(f, 0, LONG, 21);
        reef_commit end = commit(f);
        if (i == 0) first = end;
        assert_memory_equal(end.root, first.root, sizeof(end.root));
        assert_sound(f);
        close_pool(f);
    }
}

KINDS_TEST(a_dry_run_changes_nothing) {
    learn(f);
    reef_commit before = commit(f);
    reef_kind_merging would = merge(f, 1, 2, true);
    reef_commit after = commit(f);
    assert_memory_equal(after.root, before.root, sizeof(after.root));
    reef_kind_merging done = merge(f, 1, 2, false);
    assert_memory_equal(&done, &would, sizeof(done));
    // Kinds that have no context in common do not help each other.
    assert_true(would.from_together > would.from_apart - 0.02);
    assert_true(would.into_together > would.into_apart - 0.02);
}

KINDS_TEST(prune_after_it) {
    reef_pruning pruned;
    learn(f);
    merge(f, 1, 0, false);
    double now = bits_as_of(f, "now", 0);
    must(reef_trainer_prune(f->trainer, 1, false, &pruned, &why));
    assert_true(bits_as_of(f, "now", 0) == now);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 0, LONG, 20);
    commit(f);
    assert_int_equal(answers(f, 1), 0);
    open_again(f, 1);
    assert_int_equal(answers(f, 1), 0);
    assert_sound(f);
    feed_kind(f, 1, LONG, 21);
    commit(f);
    assert_sound(f);
}

// What a merged kind knows is given with the other one; its own generation as it was sealed.
KINDS_TEST(a_merged_kind_is_given_as_it_was_sealed_alone) {
    lifelong other = *f;
    learn(f);
    merge(f, 1, 2, false);
    temp_dir_join(other.pool, f->dir, "other");
    make_pool(&other, 1);
    feed_kind(&other, 0, LONG, 1);
    feed_kind(&other, 1, LONG - 2048, 2); // another generation 1
    must(reef_trainer_seal(other.trainer, NULL, NULL, &why));
    reef_import_options options = {.dry_run = true};
    must_fail(reef_trainer_import(other.trainer, f->store, 1, &options, NULL, &why),
              REEF_ERR_INVALID, "was merged into another one: take that one");
    must(reef_trainer_import(other.trainer, f->store, 2, &options, NULL, &why));
    options.as_sealed = true;
    must(reef_trainer_import(other.trainer, f->store, 1, &options, NULL, &why));
    close_pool(&other);
}

KINDS_TEST(what_cannot_be_merged) {
    reef_kind_merging m;
    learn(f);
    merge(f, 1, 2, false);
    static const struct {
        uint32_t from, into;
        reef_status status;
        const char *said;
    } REFUSED[] = {
        {0, 0, REEF_ERR_INVALID, "kind 0 is the same kind"},
        {0, 3, REEF_ERR_INVALID, "the generation of kind 3 is open: seal it first"},
        {3, 0, REEF_ERR_INVALID, "the generation of kind 3 is open: seal it first"},
        {1, 0, REEF_ERR_INVALID, "kind 1 was merged into kind 2 already"},
        {0, 1, REEF_ERR_INVALID, "kind 1 was merged into kind 2 already"},
        {9, 0, REEF_ERR_NOT_FOUND, "there is no kind 9"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        assert_int_equal(
            reef_trainer_kind_merge(f->trainer, REFUSED[i].from, REFUSED[i].into, false, &m, &why),
            REFUSED[i].status);
        assert_string_equal(why.message, REFUSED[i].said);
    }
    assert_sound(f);
}

KINDS_TEST(kinds_that_were_given_are_not_merged) {
    reef_kind_merging m;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    must_fail(reef_trainer_kind_merge(f->trainer, 0, 1, false, &m, &why), REEF_ERR_INVALID,
              "--boundaries contexts");
}

// Words of two kinds in turns: every other one is kind `a`'s.
static void feed_mixed(lifelong *f, int a, int b) {
    uint8_t bytes[LONG], other[LONG];
    lifelong_text(bytes, LONG, a, 20);
    lifelong_text(other, LONG, b, 21);
    for (size_t at = 0; at + 24 <= LONG; at += 24) memcpy(bytes + at, other + at, 12);
    feed(f, bytes, LONG);
}

static size_t find_near(const lifelong *f, reef_near_kinds *near, size_t max) {
    size_t count;
    must(reef_trainer_near_kinds(f->trainer, near, max, &count, &why));
    return count;
}

KINDS_TEST(those_with_words_in_common_are_near) {
    reef_near_kinds near[8];
    make_pool(f, 1);
    for (int kind = 0; kind < 2; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    feed_mixed(f, 0, 2);
    feed_kind(f, 3, LONG, 4);
    commit(f);
    assert_int_equal(status_of(f).generation, 3);
    size_t count = find_near(f, near, 8);
    assert_in_range(count, 1, 2); // the open kind is none of them
    assert_int_equal(near[0].from + near[0].into, 2);
    assert_int_equal(near[0].from * near[0].into, 0);
    assert_true(near[0].distance > 0.0 && near[0].distance < 5.7); // which is that of no context
    if (count == 2) assert_true(near[0].distance <= near[1].distance);
    assert_int_equal(find_near(f, near, 0), 0);
    (void)merge(f, 2, 0, false);
    count = find_near(f, near, 8);
    for (size_t i = 0; i < count; i++) assert_true(near[i].from != 2 && near[i].into != 2);
}

RUN_TESTS_IN(NULL, discard_four)
