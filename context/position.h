// Where in a text we are: what the last bytes, words, fields and lines were, and the contexts that
// follow from them.
#ifndef REEF_POSITION_H
#define REEF_POSITION_H

#include "text.h"

#include <stdbool.h>

// name of the context, in the order of their hashes
#define REEF_CONTEXT_LIST(X)                                                                       \
    X(ORDER_1, "order 1")                                                                          \
    X(ORDER_2, "order 2")                                                                          \
    X(ORDER_3, "order 3")                                                                          \
    X(ORDER_4, "order 4")                                                                          \
    X(ORDER_5, "order 5")                                                                          \
    X(ORDER_8, "order 8")                                                                          \
    X(WORD, "word")                                                                                \
    X(WORD_SKIP, "word, the one before the last")                                                  \
    X(SPARSE_2, "bytes 2 and 3 back")                                                              \
    X(FOLDED, "letters without case")                                                              \
    X(ABOVE, "the line above")                                                                     \
    X(FIELD, "first word and field")                                                               \
    X(FIELDS, "this and the last field")                                                           \
    X(TEMPLATE, "line without its numbers")                                                        \
    X(INDIRECT, "what followed last time")                                                         \
    X(SHAPE, "kinds of characters")                                                                \
    X(ORDER_11, "order 11")                                                                        \
    X(WORD_TRIPLE, "three words")                                                                  \
    X(WORD_GAP, "word, what parted it from the last")                                              \
    X(WORDS_GAP, "two words, what parted them")                                                    \
    X(WORD_BYTES, "the last word, three bytes")                                                    \
    X(WORD_SKIP_BYTES, "the word before the last, two bytes")                                      \
    X(COLUMN, "column, the byte above")                                                            \
    X(SHAPE_WORD, "kinds of eight characters, word")

enum {
#define REEF_CONTEXT_ENUM(name, text) REEF_CONTEXT_##name,
    REEF_CONTEXT_LIST(REEF_CONTEXT_ENUM)
#undef REEF_CONTEXT_ENUM
        REEF_CONTEXTS,
};

#define REEF_ORDERS 6 // the first of the list
#define REEF_WORDS 2

typedef struct reef_position {
    uint64_t bytes;             // the last eight, the newest lowest
    uint32_t word;              // hash of the letters and digits since the last other byte
    bool has_letter;            // the word has
    uint32_t words[REEF_WORDS]; // hashes of the last words with a letter, the newest first
    uint32_t first_word;        // of the line
    uint32_t gap;               // hash of the bytes between the last two words, or since the last
    uint32_t folded;            // hash of the last letters without case
    uint32_t shape;             // kinds of the last bytes, three bits each
    uint32_t long_shape;        // of the last eight, four bits each
    uint32_t template;          // hash of the line so far, without digits
    uint32_t field_hash, last_field_hash;
    uint64_t line, line_above; // positions of their first bytes
    uint32_t field;            // number of the field in its line
} reef_position;

/** At the beginning of a text that continues at position `at` of a ring. */
void reef_position_begin(reef_position *position, uint64_t at);

/** One byte further; `text` ends with it. */
void reef_position_step(reef_position *position, const reef_text *text, uint8_t byte);

/**
 * followers  the two bytes that came last after the present two; 0: none
 * hashes     (REEF_CONTEXTS) written
 */
void reef_contexts_hash(const reef_position *position,
                        const reef_text *text,
                        uint32_t followers,
                        uint64_t *hashes);

/** The hash of the last `order` bytes, 1 to 5 or 8; `bytes`: the newest lowest. */
uint64_t reef_order_hash(uint32_t order, uint64_t bytes);

/** The field, the kind of the last byte and whether it is in a word: 0 .. 255. */
static inline uint32_t reef_position_class(const reef_position *position) {
    uint32_t field = position->field < 15 ? position->field : 15;
    return field * 8 + (position->shape & 7) + (uint32_t)(position->word != 0) * 128;
}

const char *reef_context_name(size_t context);

#endif
