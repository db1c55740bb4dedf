// Text for tests, as cheap as it is repetitive: words of a vocabulary that the seed makes, lines of
// a log with fields and numbers, and, now and then, bytes of any kind.
#ifndef DRAW_TEXT_H
#define DRAW_TEXT_H

#include "draw.h"

#include <stdbool.h>
#include <stdint.h>

enum { DRAW_WORDS = 512, DRAW_WORD_BYTES = 12 };

typedef struct draw_words {
    char letters[DRAW_WORDS][DRAW_WORD_BYTES];
    uint8_t length[DRAW_WORDS];
} draw_words;

static inline void draw_vocabulary(uint64_t *seed, draw_words *words) {
    for (int w = 0; w < DRAW_WORDS; w++) {
        words->length[w] = (uint8_t)draw_int(seed, 1, DRAW_WORD_BYTES);
        for (int i = 0; i < words->length[w]; i++)
            words->letters[w][i] = (char)('a' + draw_int(seed, 0, draw_int(seed, 3, 25)));
    }
}

static inline size_t draw_word(uint64_t *seed,
                               const draw_words *words,
                               size_t room,
                               uint8_t *text) {
    // Half of the words are one of a few, a quarter one of some more, as in any language.
    int kinds = DRAW_WORDS >> (draw_bits(seed) % 4) * 2;
    int w = draw_int(seed, 0, kinds - 1);
    size_t count = 0;
    while (count < words->length[w] && count < room) {
        text[count] = (uint8_t)words->letters[w][count];
        count++;
    }
    return count;
}

/** count bytes; the same for the same seed. */
static inline void draw_text(uint64_t *seed, size_t count, uint8_t *text) {
    draw_words words;
    draw_vocabulary(seed, &words);
    bool log = false;
    for (size_t at = 0; at < count;) {
        at += draw_word(seed, &words, count - at, text + at);
        if (at == count) break;
        uint64_t kind = draw_bits(seed) % 64;
        if (kind < 4) log = !log;
        text[at++] = (uint8_t)(kind < 6 ? '\n' : log && kind < 24 ? ',' : ' ');
        if (log && kind < 40)
            for (int digits = 0; digits < 4 && at < count; digits++)
                text[at++] = (uint8_t)('0' + draw_int(seed, 0, 9));
        if (kind == 63)
            for (int bytes = 0; bytes < 8 && at < count; bytes++)
                text[at++] = (uint8_t)draw_bits(seed);
    }
}

#endif
