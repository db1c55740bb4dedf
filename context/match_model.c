// See match_model.h.
#include "match_model.h"

#define LENGTH_COMPARED_MAX 400
#define POSITIONS_A_LINE (REEF_LINE_BYTES / sizeof(uint32_t))

// How many bytes before `at` agree with the last bytes of the text.
static uint32_t agreement(const reef_text_ring *text, uint64_t at) {
    uint32_t length = 0;
    for (; length < LENGTH_COMPARED_MAX; length++) {
        int known = 0, also = 0;
        uint8_t a = reef_text_at(text, at - 1 - length, &known);
        uint8_t b = reef_text_at(text, text->end - 1 - length, &also);
        if (!known || !also || a != b) break;
    }
    return length;
}

static void follow(reef_match *match, const reef_text_ring *text, uint8_t byte, bool remembers) {
    int known = 0;
    bool right = reef_text_at(text, match->at, &known) == byte && known;
    match->at++;
    // At the end of the memory's text it would go on in what this session read first.
    if (!remembers && text->base != NULL && match->at == text->begin) {
        match->follows = false;
        match->length = 0;
        return;
    }
    if (right) {
        if (match->length < REEF_MATCH_LENGTH_MAX) match->length++;
        return;
    }
    match->length = 0;
    if (++match->misses > REEF_MATCH_MISSES || !known) match->follows = false;
}

// The highest bits of the product, which all bytes of the hash reach; lower ones miss the oldest.
static size_t entry_of(const reef_match *match, const reef_lines *index) {
    int log2 = __builtin_ctzll(index->count * POSITIONS_A_LINE);
    return (size_t)(match->hash * 0x9E3779B97F4A7C15ull >> (64 - log2));
}

// A long match goes through many places, and is found at any that is in the index. Which are is
// decided by the bytes there, so that both occurrences agree.
static bool is_indexed(const reef_match *match, uint32_t shortest) {
    if (shortest < REEF_MATCH_LONG) return true;
    return (match->hash * 0xBF58476D1CE4E5B9ull >> 40) % REEF_MATCH_SAMPLED == 0;
}

void reef_match_step(reef_match *match,
                     const reef_lines *index,
                     const reef_text_ring *text,
                     uint32_t shortest,
                     uint8_t byte,
                     bool remembers) {
    if (match->follows) follow(match, text, byte, remembers);
    // Every byte is shifted by 64 / shortest bits a step, so it is gone after `shortest` of them.
    match->hash = match->hash * (0x2F0B4C47ull << 64 / shortest) + byte + 1;
    if (is_indexed(match, shortest))
        __builtin_prefetch(reef_lines_peek(index, entry_of(match, index) / POSITIONS_A_LINE));
}

void reef_match_look_up(reef_match *match,
                        reef_lines *index,
                        const reef_text_ring *text,
                        uint32_t shortest,
                        bool remembers) {
    match->found = 0;
    if (!is_indexed(match, shortest)) return;
    size_t entry = entry_of(match, index), line = entry / POSITIONS_A_LINE;
    const uint32_t *seen = (const uint32_t *)(const void *)reef_lines_peek(index, line);
    uint32_t end = (uint32_t)text->end, position = seen[entry % POSITIONS_A_LINE];
    if (position != 0) match->found = text->end - (uint32_t)(end - position);
    if (match->found != 0) reef_text_prefetch(text, match->found - 1);
    if (!remembers) return;
    uint32_t *positions = (uint32_t *)(void *)reef_lines_at(index, line);
    positions[entry % POSITIONS_A_LINE] = end;
}

void reef_match_take(reef_match *match, const reef_text_ring *text, uint32_t shortest) {
    if (match->found == 0 || match->length >= shortest) return;
    uint32_t length = agreement(text, match->found);
    if (length < shortest) return;
    match->follows = true;
    match->at = match->found;
    match->length = length;
    match->misses = 0;
}

// Which of the two an entry becomes is not known, since its hash is gone: both have it, and the
// text is compared before it is believed.
void reef_match_index_double(reef_lines *to, const reef_lines *from) {
    for (size_t entry = 0; entry < to->count * POSITIONS_A_LINE; entry++) {
        size_t old = entry / 2;
        const uint32_t *line =
            (const uint32_t *)(const void *)reef_lines_peek(from, old / POSITIONS_A_LINE);
        uint32_t *larger = (uint32_t *)(void *)reef_lines_at(to, entry / POSITIONS_A_LINE);
        larger[entry % POSITIONS_A_LINE] = line[old % POSITIONS_A_LINE];
    }
}

int reef_match_expected(const reef_match *match, const reef_text_ring *text) {
    int known = 0;
    if (!match->follows) return -1;
    uint8_t byte = reef_text_at(text, match->at, &known);
    return known ? byte : -1;
}

uint32_t reef_match_length_class(uint32_t length) {
    if (length < 16) return length;
    if (length < 32) return 16 + (length - 16) / 2;
    if (length < 64) return 24 + (length - 32) / 8;
    return length < 512 ? 28 + (length - 64) / 192 : 31;
}

uint32_t reef_match_state(const reef_match *match) {
    uint32_t misses = match->misses < 3 ? match->misses : 3;
    return reef_match_length_class(match->length) * 4 + misses;
}
