// Which of many kinds learns what comes back.
#include "lifelong_words.h"
#include "memory_internal.h"

enum { PIECE = 2048, MANY = 20, NEW = 100 };

static uint64_t held_back(const lifelong *f) {
    return f->trainer->stream.deferred_batches * reef_batch_bytes(&f->config);
}

// A kind of two pieces; one piece of a known kind, which is not enough for it; then text of none.
WORDS_TEST(a_young_kind_holds_nothing_back) {
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
WORDS_TEST(whoever_the_text_names_is_asked) {
    make_kinds(f, MANY);
    for (uint32_t i = 0; i < 3; i++) feed_words(f, 0, 33000, 2 + i);
    f->trainer->kinds.levels[0].pieces = 800;
    for (uint32_t kind = 0; kind < 6; kind++) feed_words(f, NEW + kind, PIECE, 1);
    assert_int_equal(status_of(f).generation, MANY - 1);
    // If the known one were not asked, it would be taken for more of what is new.
    feed_words(f, 4, 6 * PIECE + 500, 2);
    assert_int_equal(status_of(f).generation, MANY - 1);
}

// Kind 0 is a sequence of its words, over and over, but for one in `odd`.
static void feed_sequence(lifelong *f, uint32_t odd, size_t count, uint32_t seed) {
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t order = seed;
    for (size_t at = 0, n = 0; at < count; n++) {
        uint32_t drawn = draw(&order) % WORDS;
        at += put_word(text + at, 0, draw(&order) % odd == 0 ? drawn : (uint32_t)(n % WORDS));
    }
    feed(f, text, count);
}

// Kind 1 has words of its own, and those of kind 0 in any order.
static void feed_both(lifelong *f, size_t count) {
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t order = 1;
    for (size_t at = 0; at < count;) {
        uint32_t kind = draw(&order) % 2;
        at += put_word(text + at, kind, draw(&order) % WORDS);
    }
    feed(f, text, count);
}

// The one knows every context of it, having met all pairs of words. The other foretells more.
WORDS_TEST(of_kinds_that_know_a_text_the_one_to_which_it_costs_least_gets_it) {
    make_pool(f, 1);
    feed_sequence(f, 40, FIRST, 1);
    feed_words(f, 1, FIRST, 1);
    feed_both(f, 5 * FIRST);
    feed_words(f, 2, FIRST, 1);
    assert_int_equal(status_of(f).generation, 2);
    feed_sequence(f, 10, 6 * PIECE, 2);
    assert_int_equal(f->trainer->kinds.current, 0);
    assert_int_equal(status_of(f).generation, 2);
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
WORDS_TEST(what_a_large_kind_helps_to_foretell_is_its_own) {
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

WORDS_TEST(what_a_small_kind_helps_to_foretell_is_its_own) {
    choose(&f->config, "memory", "16M");
    make_pool(f, 1);
    feed_language(f, 200000, 0, 1);
    feed_language(f, 60000, 12, 2);
    feed_language(f, 6000, 0, 3);
    assert_int_equal(status_of(f).generation, 0);
}

// What the kind knows saves an eighth of the bits. But they are nearly twice as many as its own
// text takes.
WORDS_TEST(what_has_much_in_common_with_a_large_kind_and_costs_more_is_another) {
    choose(&f->config, "memory", "16M");
    make_pool(f, 1);
    feed_language(f, 1100000, 0, 1);
    feed_language(f, 130000, 11, 2);
    assert_int_equal(status_of(f).generation, 1);
}

WORDS_TEST(what_its_text_usually_costs_is_kept_with_a_kind) {
    make_pool(f, 1);
    feed_words(f, 0, FIRST, 1);
    must(reef_trainer_commit(f->trainer, NULL, &why));
    const reef_kind_level level = f->trainer->kinds.levels[0];
    assert_int_equal(level.batches * reef_batch_bytes(&f->config), f->trainer->stream_bytes);
    assert_true(level.bits > 0.5 && level.bits < 1.5); // 40 words of 7 bytes, drawn
    open_again(f, 1);
    assert_memory_equal(&f->trainer->kinds.levels[0], &level, sizeof(level));
}

// Blocks of zeros come before what it has.
static void lengthen(reef_text *text, size_t count) {
    size_t all = count + text->count, names = count * REEF_TEXT_NAME_BYTES;
    text->blocks = realloc(text->blocks, all * sizeof(*text->blocks));
    text->names = realloc(text->names, all * REEF_TEXT_NAME_BYTES);
    assert_true(text->blocks != NULL && text->names != NULL);
    memmove(text->blocks + count, text->blocks, text->count * sizeof(*text->blocks));
    memmove(text->names + names, text->names, text->count * REEF_TEXT_NAME_BYTES);
    text->count = text->capacity = all;
    text->end += count * REEF_TEXT_BLOCK_BYTES;
    for (size_t i = 0; i < count; i++) {
        uint8_t *own = calloc(1, REEF_TEXT_BLOCK_BYTES);
        assert_non_null(own);
        text->blocks[i] = (reef_text_block){own, own};
        reef_text_name(text, i);
    }
}

// A kind of 4 MB and more: all but the last 300 kB are a counter.
static void learn_large(lifelong *f) {
    enum { MUCH = 5 << 20 };
    make_pool(f, 1);
    feed_language(f, 300000, 0, 1);
    reef_predictor *p = &reef_open_generation(f->trainer)->memory.memory->predictor;
    p->learned_bytes += MUCH;
    lengthen(&p->text, MUCH / REEF_TEXT_BLOCK_BYTES);
}

// What is strange to it is read with 96 kB, and again with 256 kB.
WORDS_TEST(a_passage_in_a_large_kind_is_no_kind) {
    learn_large(f);
    feed_words(f, 1, 100000, 1);
    feed_language(f, 190000, 0, 2);
    assert_int_equal(held_back(f), 0);
    assert_int_equal(status_of(f).generation, 0);
}

WORDS_TEST(what_goes_on_behind_a_large_kind_is_another) {
    learn_large(f);
    feed_words(f, 1, 280000, 1);
    assert_int_equal(status_of(f).generation, 1);
}

// Letters in no order: nothing foretells them.
static void feed_letters(lifelong *f, size_t count) {
    uint8_t *text = room(count);
    uint32_t order = 7;
    for (size_t at = 0; at < count; at++) text[at] = (uint8_t)('a' + draw(&order) % 26);
    feed(f, text, count);
}

// Behind odd text contexts say nothing of it.
WORDS_TEST(what_costs_a_large_kind_far_more_than_usual_is_another) {
    learn_large(f);
    reef_kind_level *level = &f->trainer->kinds.levels[0];
    level->mean = -4000.0;
    level->deviation = 4000.0;
    level->bits = level->recent_bits = 1.5;
    level->bits_deviation = 0.1;
    level->batches = 100000; // those of 5 MB
    feed_letters(f, 400000);
    assert_int_equal(status_of(f).generation, 1);
    assert_in_range(f->trainer->kinds.levels[1].batches * reef_batch_bytes(&f->config), 280000,
                    400000);
}

RUN_TESTS
