// See match_model.h.
#include "match_model.h"

#define LENGTH_COMPARED_MAX 400

// How many bytes before `at` agree with the last bytes of the text.
static uint32_t agreement(const reef_text *text, uint64_t at) {
    uint32_t length = 0;
    for (; length < LENGTH_COMPARED_MAX; length++) {
        int known = 0, also = 0;
        uint8_t a = reef_text_at(text, at - 1 - length, &known);
        uint8_t b = reef_text_at(text, text->end - 1 - length, &also);
        if (!known || !also || a != b) break;
    }
    return length;
}

static void follow(reef_match *match, const reef_text *text, uint8_t byte, bool remembers) {
    int known = 0;
    bool right = reef_text_at(text, match->at, &known) == byte && known;
    match->at++;
    // At the end of the memory's text it would go on in what this session read first.
    if (!remembers && text->base != NULL && match->at == text->base_end) {
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
static size_t entry_of(uint64_t hash, const reef_lines *index) {
    int log2 = __builtin_ctzll(index->count * REEF_MATCH_ENTRIES);
    return (size_t)(hash * 0x9E3779B97F4A7C15ull >> (64 - log2));
}

// A long match goes through many places, and is found at any that is in the index. Which are is
// decided by the bytes there, so that both occurrences agree.
static bool is_sampled(uint64_t hash, uint32_t shortest, uint64_t every) {
    return shortest < REEF_MATCH_LONG || ((hash * 0xBF58476D1CE4E5B9ull >> 40) & (every - 1)) == 0;
}

// One of so many places is entered. In a text that has become longer than its index fewer are, so
// that most of what was entered before stays.
static uint64_t entered_of(const reef_lines *index, uint64_t end) {
    uint64_t every = REEF_MATCH_SAMPLED;
    while (every * index->count * REEF_MATCH_ENTRIES < end) every *= 2;
    return every;
}

bool reef_match_entry(
    const reef_lines *index, uint64_t hash, uint32_t shortest, uint64_t end, size_t *entry) {
    if (!is_sampled(hash, shortest, entered_of(index, end))) return false;
    *entry = entry_of(hash, index);
    return true;
}

void reef_match_step(reef_match *match,
                     const reef_lines *index,
                     const reef_text *text,
                     uint32_t shortest,
                     uint8_t byte,
                     bool remembers) {
    if (match->follows) follow(match, text, byte, remembers);
    match->hash = reef_match_hash(match->hash, shortest, byte);
    if (is_sampled(match->hash, shortest, REEF_MATCH_SAMPLED))
        __builtin_prefetch(
            reef_lines_peek(index, entry_of(match->hash, index) / REEF_MATCH_ENTRIES));
}

void reef_match_look_up(reef_match *match,
                        reef_lines *index,
                        const reef_text *text,
                        uint32_t shortest,
                        bool remembers) {
    match->found = 0;
    if (!is_sampled(match->hash, shortest, REEF_MATCH_SAMPLED)) return;
    size_t entry = entry_of(match->hash, index), line = entry / REEF_MATCH_ENTRIES;
    const uint32_t *seen = (const uint32_t *)(const void *)reef_lines_peek(index, line);
    uint32_t end = (uint32_t)text->end, position = seen[entry % REEF_MATCH_ENTRIES];
    // One that is 2^32 bytes old looks like the end itself.
    if (position != 0 && position != end) match->found = text->end - (uint32_t)(end - position);
    if (match->found != 0) reef_text_prefetch(text, match->found - 1);
    if (!remembers || !is_sampled(match->hash, shortest, entered_of(index, text->end))) return;
    uint32_t *positions = (uint32_t *)(void *)reef_lines_at(index, line);
    positions[entry % REEF_MATCH_ENTRIES] = end;
}

void reef_match_take(reef_match *match, const reef_text *text, uint32_t shortest) {
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
    for (size_t entry = 0; entry < to->count * REEF_MATCH_ENTRIES; entry++) {
        size_t old = entry / 2;
        const uint32_t *line =
            (const uint32_t *)(const void *)reef_lines_peek(from, old / REEF_MATCH_ENTRIES);
        uint32_t *larger = (uint32_t *)(void *)reef_lines_at(to, entry / REEF_MATCH_ENTRIES);
        larger[entry % REEF_MATCH_ENTRIES] = line[old % REEF_MATCH_ENTRIES];
    }
}

int reef_match_expected(const reef_match *match, const reef_text *text) {
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
