// Pools of memories alone that learn kinds of words: letters are the same in all, words are not.
#ifndef LIFELONG_WORDS_H
#define LIFELONG_WORDS_H

#include "lifelong.h"
#include "trainer_internal.h"

enum { FIRST = 20000, WORDS = 40, LETTERS = 6 };

static inline int words_setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "memory", "4M");
    choose(&f->config, "net_share", "0");
    choose(&f->config, "boundaries", "contexts");
    return 0;
}

static inline uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/** Write word `number` of a kind's own, in letters that all have, and a space. Bytes written. */
static inline size_t put_word(uint8_t *text, uint32_t kind, uint32_t number) {
    uint32_t words = 2654435761u * (kind + 1);
    for (uint32_t i = 0; i < number * LETTERS; i++) draw(&words);
    for (size_t i = 0; i < LETTERS; i++) text[i] = (uint8_t)('a' + draw(&words) % 26);
    text[LETTERS] = ' ';
    return LETTERS + 1;
}

/** The first `few` words of a kind, in any order. */
static inline void feed_few(lifelong *f, uint32_t kind, uint32_t few, size_t count, uint32_t seed) {
    uint8_t *text = room(count + LETTERS + 1);
    uint32_t order = 2246822519u * seed + kind;
    for (size_t at = 0; at < count;) at += put_word(text + at, kind, draw(&order) % few);
    feed(f, text, count);
}

static inline void feed_words(lifelong *f, uint32_t kind, size_t count, uint32_t seed) {
    feed_few(f, kind, WORDS, count, seed);
}

/** A pool of so many kinds. */
static inline void make_kinds(lifelong *f, uint32_t count) {
    make_pool(f, 1);
    for (uint32_t kind = 0; kind < count; kind++) feed_words(f, kind, FIRST, 1);
    assert_int_equal(status_of(f).generation, count - 1);
}

/** A test with a directory of its own, in which it makes its pool. */
#define WORDS_TEST(name) TEST_WITH(name, words_setup, lifelong_teardown, lifelong *f)

#endif
