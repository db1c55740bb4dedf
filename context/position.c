// See position.h.
#include "position.h"

#include <string.h>

// Odd numbers whose bits are spread.
#define FACTOR 0x2F0B4C47u
#define FACTOR_2 0x3D4D51CBu
#define SPREAD 0x9E3779B97F4A7C15ull

static const char *const NAMES[] = {
#define REEF_CONTEXT_NAME(name, text) text,
    REEF_CONTEXT_LIST(REEF_CONTEXT_NAME)
#undef REEF_CONTEXT_NAME
};

const char *reef_context_name(size_t context) {
    return NAMES[context];
}

static bool is_letter(uint8_t byte) {
    uint8_t lower = byte | 32;
    // Bytes of other alphabets are letters of a word as well: UTF-8 has no byte below 128 in them.
    return (lower >= 'a' && lower <= 'z') || byte >= 128;
}

static bool is_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9';
}

static bool ends_field(uint8_t byte) {
    return byte == ' ' || byte == ',' || byte == '\t' || byte == ';' || byte == '|';
}

// Kind of a character: 0 .. 7.
static uint32_t character_kind(uint8_t byte) {
    if (byte == ' ') return 0;
    if (byte == '\n') return 1;
    if (is_digit(byte)) return 2;
    if (byte >= 128) return 5;
    if (is_letter(byte)) return byte & 32 ? 3 : 4;
    return byte == '.' || byte == ',' || byte == ';' || byte == ':' ? 6 : 7;
}

void reef_position_begin(reef_position *position, uint64_t at) {
    *position = (reef_position){.line = at, .line_above = at};
}

static void end_word(reef_position *p) {
    if (p->word == 0) return;
    if (p->has_letter) {
        memmove(p->words + 1, p->words, (REEF_WORDS - 1) * sizeof(*p->words));
        p->words[0] = p->word;
    }
    if (p->first_word == 0) p->first_word = p->word;
    p->word = 0;
    p->has_letter = false;
}

static void begin_line(reef_position *p, uint64_t at) {
    p->line_above = p->line;
    p->line = at;
    p->field = 0;
    p->template = p->first_word = p->field_hash = p->last_field_hash = 0;
}

static void begin_field(reef_position *p, uint8_t byte) {
    p->field++;
    p->last_field_hash = p->field_hash;
    p->field_hash = 0;
    p->template = (p->template + byte) * FACTOR_2;
}

void reef_position_step(reef_position *p, const reef_text *text, uint8_t byte) {
    bool letter = is_letter(byte), digit = is_digit(byte);
    uint8_t lower = byte >= 128 ? byte : (uint8_t)(byte | 32);
    p->bytes = p->bytes << 8 | byte;
    if (letter || digit) {
        p->word = (p->word + lower + 1) * FACTOR;
        p->has_letter |= letter;
    } else {
        if (p->word != 0) p->gap = 0;
        p->gap = p->gap * FACTOR_2 + byte + 1;
        end_word(p);
    }
    // Six characters of five bits each: older ones are shifted out.
    p->folded = (p->folded << 5) + (letter ? (uint32_t)(byte | 32) : digit ? 1 : byte * 3u);
    p->shape = p->shape << 3 | character_kind(byte);
    p->long_shape = p->long_shape << 4 | character_kind(byte);
    if (byte == '\n') {
        begin_line(p, text->end);
    } else if (ends_field(byte)) {
        begin_field(p, byte);
    } else {
        p->field_hash = (p->field_hash + byte + 1) * FACTOR;
        // Numbers differ from line to line where everything else is the same.
        if (!digit) p->template = (p->template + byte + 1) * FACTOR;
    }
}

static inline uint64_t hash(uint32_t context, uint64_t x) {
    uint64_t h = (x * 64 + context + 1) * SPREAD;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ull;
    return h ^ h >> 31;
}

uint64_t reef_order_hash(uint32_t order, uint64_t bytes) {
    if (order == 8) return hash(REEF_CONTEXT_ORDER_8, bytes);
    return hash(order - 1, bytes & ((UINT64_C(1) << 8 * order) - 1));
}

// The byte at an offset of a stretch of text; 0 behind its end and where it is forgotten. Of a
// stretch beyond half of what is kept nothing is read: then what is read of a text is still there
// when as much again has been learned, and can be replayed.
static uint32_t byte_within(const reef_text *text, uint64_t begin, uint64_t end, uint64_t offset) {
    int known = 0;
    if (offset >= end - begin || end - begin > text->bound / 2) return 0;
    uint8_t byte = reef_text_at(text, begin + offset, &known);
    return known ? byte : 0;
}

// The bytes before the last eight, the newest lowest.
static uint64_t older_bytes(const reef_text *text, uint32_t count) {
    uint64_t bytes = 0;
    int known = 0;
    for (uint32_t i = count; i > 0; i--)
        bytes = bytes << 8 | reef_text_at(text, text->end - 8 - i, &known);
    return bytes;
}

#define CONTEXT(name, x) hashes[REEF_CONTEXT_##name] = hash(REEF_CONTEXT_##name, x)

void reef_contexts_hash(const reef_position *p,
                        const reef_text *text,
                        uint32_t followers,
                        uint64_t *hashes) {
    const uint64_t b = p->bytes, word = (uint64_t)p->word * FACTOR;
    const uint64_t last_word = p->words[0], second = p->words[1];
    const uint32_t last = b & 0xFF;
    uint64_t column = text->end - p->line;
    uint32_t above = byte_within(text, p->line_above, p->line, column);
    uint32_t next_above = byte_within(text, p->line_above, p->line, column + 1);
    for (uint32_t order = 1; order <= 5; order++)
        hashes[order - 1] = hash(order - 1, b & ((UINT64_C(1) << 8 * order) - 1));
    CONTEXT(ORDER_8, b);
    CONTEXT(WORD, word);
    CONTEXT(WORD_SKIP, word + (uint32_t)(second * 3));
    CONTEXT(SPARSE_2, b & 0xFFFF00);
    CONTEXT(FOLDED, p->folded);
    CONTEXT(ABOVE, above << 16 | last << 8 | next_above);
    CONTEXT(FIELD, ((uint64_t)p->first_word * FACTOR_2 + p->field) * FACTOR_2 + p->word);
    CONTEXT(FIELDS, (uint64_t)p->last_field_hash * FACTOR_2 + p->field_hash);
    CONTEXT(TEMPLATE, (uint64_t)p->template * FACTOR_2 + p->field_hash);
    CONTEXT(INDIRECT, (uint64_t)followers << 8 | last);
    CONTEXT(SHAPE, (uint64_t)p->shape << 8 | last);
    CONTEXT(ORDER_11, b + older_bytes(text, 3) * SPREAD);
    CONTEXT(WORD_TRIPLE, word + last_word * 5 + second * FACTOR_2);
    CONTEXT(WORD_GAP, last_word * FACTOR_2 + (p->word != 0 ? (uint64_t)p->word * 3 + 1 : p->gap));
    CONTEXT(WORDS_GAP, (last_word * FACTOR_2 + p->gap) * FACTOR + p->word + second * 77);
    CONTEXT(WORD_BYTES, last_word << 32 | (b & 0xFFFFFF));
    CONTEXT(WORD_SKIP_BYTES, second << 32 | (b & 0xFFFF));
    CONTEXT(COLUMN, (column < 255 ? column : 255) << 16 | last << 8 | above);
    CONTEXT(SHAPE_WORD, p->long_shape * SPREAD + word);
}
