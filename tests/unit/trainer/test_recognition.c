// Which of many kinds learns what comes back.
#include "lifelong.h"
#include "trainer_internal.h"

enum { PIECE = 2048, FIRST = 20000, WORDS = 40, LETTERS = 6, MANY = 20, NEW = 100 };

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "context_memory", "4M");
    choose(&f->config, "net_share", "0");
    choose(&f->config, "boundaries", "contexts");
    return 0;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Words of the kind's own, in letters that all have.
static void feed_words(lifelong *f, uint32_t kind, size_t count, uint32_t seed) {
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t words = 2654435761u * (kind + 1), order = 2246822519u * seed + kind;
    char word[WORDS][LETTERS];
    for (size_t w = 0; w < WORDS; w++)
        for (size_t i = 0; i < LETTERS; i++) word[w][i] = (char)('a' + draw(&words) % 26);
    for (size_t at = 0; at < count;) {
        memcpy(text + at, word[draw(&order) % WORDS], LETTERS);
        text[at + LETTERS] = ' ';
        at += LETTERS + 1;
    }
    feed(f, text, count);
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

RUN_TESTS
