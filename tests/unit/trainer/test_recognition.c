// Which of many kinds learns what comes back.
#include "lifelong.h"
#include "memory_internal.h"
#include "trainer_internal.h"

enum { PIECE = 2048, FIRST = 20000, WORDS = 40, LETTERS = 6, MANY = 20, NEW = 100, FEW = 12 };

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "memory", "4M");
    choose(&f->config, "net_share", "0");
    choose(&f->config, "boundaries", "contexts");
    return 0;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// The first `few` words of the kind's own, in letters that all have.
static void feed_few(lifelong *f, uint32_t kind, uint32_t few, size_t count, uint32_t seed) {
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t words = 2654435761u * (kind + 1), order = 2246822519u * seed + kind;
    char word[WORDS][LETTERS];
    for (size_t w = 0; w < WORDS; w++)
        for (size_t i = 0; i < LETTERS; i++) word[w][i] = (char)('a' + draw(&words) % 26);
    for (size_t at = 0; at < count;) {
        memcpy(text + at, word[draw(&order) % few], LETTERS);
        text[at + LETTERS] = ' ';
        at += LETTERS + 1;
    }
    feed(f, text, count);
}

static void feed_words(lifelong *f, uint32_t kind, size_t count, uint32_t seed) {
    feed_few(f, kind, WORDS, count, seed);
}

// A pool of so many kinds.
static void make_kinds(lifelong *f, uint32_t count) {
    make_pool(f, 1);
    for (uint32_t kind = 0; kind < count; kind++) feed_words(f, kind, FIRST, 1);
    assert_int_equal(status_of(f).generation, count - 1);
}

static uint64_t held_back(const lifelong *f) {
    return f->trainer->stream.deferred_batches * reef_batch_bytes(&f->config);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, lifelong_teardown, lifelong *f)

// A kind of two pieces; one piece of a known kind, which is not enough for it; then text of none.
FIXTURE_TEST(a_young_kind_holds_nothing_back) {
    make_kinds(f, 2);
    feed_words(f, 2, 2 * PIECE + 500, 1);
    assert_int_equal(status_of(f).generation, 2);
    feed_words(f, 0, PIECE + 500, 2);
    assert_int_equal(held_back(f), PIECE);
    for (uint32_t kind = 3; kind < 13; kind++) feed_words(f, kind, PIECE, 1);
    assert_int_equal(held_back(f), 0);
    assert_int_equal(status_of(f).generation, 2);
}

// A kind of much text, which is counted, is not left for a few pieces that are new. Behind them a
// known kind comes.
FIXTURE_TEST(whoever_the_text_names_is_asked) {
    make_kinds(f, MANY);
    for (uint32_t i = 0; i < 3; i++) feed_words(f, 0, 33000, 2 + i);
    f->trainer->kinds.levels[0].pieces = 800;
    for (uint32_t kind = 0; kind < 6; kind++) feed_words(f, NEW + kind, PIECE, 1);
    assert_int_equal(status_of(f).generation, MANY - 1);
    // If the known one were not asked, it would be taken for more of what is new.
    feed_words(f, 4, 6 * PIECE + 500, 2);
    assert_int_equal(status_of(f).generation, MANY - 1);
}

// Words of a language too large to be learned from one passage. Of every sixteen words the last
// `odd` ones are not in the language.
static void feed_language(lifelong *f, size_t count, size_t odd, uint32_t seed) {
    enum { LANGUAGE = 8000 };
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t order = seed;
    for (size_t at = 0, n = 0; at < count; n++) {
        uint32_t word = draw(&order) % LANGUAGE;
        if (n % 16 >= 16 - odd) word = LANGUAGE + draw(&order);
        for (size_t i = 0; i < LETTERS; i++) text[at++] = (uint8_t)('a' + draw(&word) % 26);
        text[at++] = ' ';
    }
    feed(f, text, count);
}

static void feed_numbers(lifelong *f, size_t count) {
    uint8_t *text = room(count);
    uint32_t order = 7;
    for (size_t at = 0; at < count; at++)
        text[at] = at % 9 == 8 ? (uint8_t)'\n' : (uint8_t)('0' + draw(&order) % 10);
    feed(f, text, count);
}

// By its contexts both is strange. What the kind knows saves a fourth of the bits of the one, and
// nothing of the other.
FIXTURE_TEST(what_a_large_kind_helps_to_foretell_is_its_own) {
    choose(&f->config, "memory", "16M");
    make_pool(f, 1);
    feed_language(f, 300000, 0, 1);
    feed_language(f, 100000, 8, 2);
    feed_language(f, 10000, 0, 3);
    assert_int_equal(held_back(f), 0);
    assert_int_equal(status_of(f).generation, 0);
    feed_numbers(f, 130000);
    assert_int_equal(status_of(f).generation, 1);
    assert_in_range(f->trainer->kinds.levels[1].pieces, 100000 / PIECE, 130000 / PIECE);
    assert_int_equal(held_back(f), 0);
}

FIXTURE_TEST(what_a_small_kind_helps_to_foretell_is_its_own) {
    choose(&f->config, "memory", "16M");
    make_pool(f, 1);
    feed_language(f, 200000, 0, 1);
    feed_language(f, 60000, 12, 2);
    feed_language(f, 6000, 0, 3);
    assert_int_equal(status_of(f).generation, 0);
}

// What the kind knows saves an eighth of the bits. But they are nearly twice as many as its own
// text takes.
FIXTURE_TEST(what_has_much_in_common_with_a_large_kind_and_costs_more_is_another) {
    choose(&f->config, "memory", "16M");
    make_pool(f, 1);
    feed_language(f, 1100000, 0, 1);
    feed_language(f, 130000, 11, 2);
    assert_int_equal(status_of(f).generation, 1);
}

FIXTURE_TEST(what_its_text_usually_costs_is_kept_with_a_kind) {
    make_pool(f, 1);
    feed_words(f, 0, FIRST, 1);
    must(reef_trainer_commit(f->trainer, NULL, &why));
    const reef_kind_level level = f->trainer->kinds.levels[0];
    assert_int_equal(level.batches * reef_batch_bytes(&f->config), f->trainer->stream_bytes);
    assert_true(level.bits > 0.5 && level.bits < 1.5); // 40 words of 7 bytes, drawn
    open_again(f, 1);
    assert_memory_equal(&f->trainer->kinds.levels[0], &level, sizeof(level));
}

// A kind of 4 MB and more: all but the last 300 kB are a counter.
static void learn_large(lifelong *f) {
    enum { MUCH = 5 << 20 };
    make_pool(f, 1);
    feed_language(f, 300000, 0, 1);
    reef_predictor *p = &reef_open_generation(f->trainer)->memory.memory->predictor;
    p->learned_bytes += MUCH;
    p->text.end += MUCH;
    p->text.kept = p->text.capacity;
}

// What is strange to it is read with 96 kB, and again with 256 kB.
FIXTURE_TEST(a_passage_in_a_large_kind_is_no_kind) {
    learn_large(f);
    feed_words(f, 1, 100000, 1);
    feed_language(f, 190000, 0, 2);
    assert_int_equal(held_back(f), 0);
    assert_int_equal(status_of(f).generation, 0);
}

FIXTURE_TEST(what_goes_on_behind_a_large_kind_is_another) {
    learn_large(f);
    feed_words(f, 1, 280000, 1);
    assert_int_equal(status_of(f).generation, 1);
}

// A kind of few words, behind one that has learned much, for so many times its bits, and then a
// third one. Returns where the second one is.
static uint32_t learn_passage(lifelong *f, uint32_t few, double usual, bool in_steps) {
    enum { MUCH = 1 << 20 };
    make_kinds(f, 1);
    feed_words(f, 0, 40000, 2);
    f->trainer->kinds.levels[0].batches = MUCH / reef_batch_bytes(&f->config);
    f->trainer->kinds.levels[0].bits *= usual;
    feed_few(f, 1, few, 12000, 1);
    assert_int_equal(status_of(f).generation, 1);
    if (in_steps) {
        commit(f);
        open_again(f, 1);
    }
    feed_words(f, 2, FIRST, 1);
    assert_int_equal(status_of(f).generation, 2);
    commit(f);
    assert_sound(f);
    return kinds_of(f->store).kinds[1].merged_into;
}

// Of what costs a much larger kind no more than its own text it would save little to keep apart.
FIXTURE_TEST(an_odd_passage_is_merged_into_a_much_larger_kind) {
    reef_commit first = {0};
    for (int i = 0; i < 2; i++) {
        temp_dir_join(f->pool, f->dir, i == 0 ? "one" : "two");
        assert_int_equal(learn_passage(f, FEW, 1.0, i == 1), 0);
        reef_commit end = commit(f);
        if (i == 0) first = end;
        assert_memory_equal(end.root, first.root, sizeof(end.root));
        // It is as it was in the state of its own generation, and comes back as the larger one.
        reef_kind_list then;
        reef_txn *txn = NULL;
        must(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &why));
        must(reef_kind_list_read_as_of(txn, "1", &then, &why));
        assert_int_equal(then.kinds[1].merged_into, REEF_KIND_NONE);
        reef_kind_list_release(&then);
        reef_txn_abort(txn);
        feed_words(f, 0, FIRST, 3);
        feed_few(f, 1, FEW, 8000, 3);
        assert_int_equal(f->trainer->kinds.current, 0);
        assert_int_equal(status_of(f).generation, 2);
        close_pool(f);
    }
}

FIXTURE_TEST(a_kind_that_costs_a_larger_one_much_stays) {
    assert_int_equal(learn_passage(f, FEW, 0.3, false), REEF_KIND_NONE);
}

RUN_TESTS
