// How unusual a line is, by the words of the text that context memories keep. The definition is in
// reef_model.h, its reasons are in docs/LEARNING.md.
//
// Words are counted in an open table of hashes: a word that shares its hash with another one, one
// pair in 2^64, counts as that.
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SURPRISING_BYTES 3 // of the words of a line, whose bits are averaged
#define RARE_WORDS 4       // of a line, whose rarity is averaged
#define FIRST_SLOTS 1024

typedef struct word_slot {
    uint64_t hash;  // 0: free
    uint32_t lines; // that have it
    uint32_t last;  // number of the last one of them, from 1
} word_slot;

struct reef_line_scorer {
    word_slot *slots; // (slot_count) a power of two
    size_t slot_count, used;
    uint32_t lines;
};

// ---- words --------------------------------------------------------------------------------------

static bool is_space(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool is_letter(uint8_t byte) {
    return byte >= 0x80 || (uint8_t)((byte | 0x20) - 'a') < 26;
}

/** A word of a line: (bytes) from `at` on. */
typedef struct word {
    size_t at, bytes;
} word;

// The next word from *from on: between spaces, with a letter and without a digit. Times, addresses
// and ids are none: they differ from line to line. False: there is no further one.
static bool next_word(const uint8_t *line, size_t count, size_t *from, word *out) {
    for (size_t at = *from, end; at < count; at = end) {
        bool letter = false, digit = false;
        for (end = at; end < count && !is_space(line[end]); end++) {
            letter |= is_letter(line[end]);
            digit |= (uint8_t)(line[end] - '0') < 10;
        }
        *out = (word){at, end - at};
        *from = end;
        if (letter && !digit) return true;
        if (end == at) end++;
    }
    return false;
}

// ---- counting -----------------------------------------------------------------------------------

static word_slot *find_slot(const reef_line_scorer *scorer, uint64_t hash) {
    size_t at = (size_t)hash & (scorer->slot_count - 1);
    while (scorer->slots[at].hash != 0 && scorer->slots[at].hash != hash)
        at = (at + 1) & (scorer->slot_count - 1);
    return &scorer->slots[at];
}

static uint64_t hash_of(const uint8_t *line, const word *w) {
    uint64_t hash = XXH3_64bits(line + w->at, w->bytes);
    return hash != 0 ? hash : 1;
}

// Room for a word more.
static reef_status reserve(reef_line_scorer *scorer, reef_error *err) {
    if (2 * (scorer->used + 1) <= scorer->slot_count) return REEF_OK;
    reef_line_scorer old = *scorer;
    scorer->slot_count = old.slot_count > 0 ? 2 * old.slot_count : FIRST_SLOTS;
    scorer->slots = calloc(scorer->slot_count, sizeof(*scorer->slots));
    if (scorer->slots == NULL) {
        *scorer = old;
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count %zu words", old.used);
    }
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].hash != 0) *find_slot(scorer, old.slots[i].hash) = old.slots[i];
    free(old.slots);
    return REEF_OK;
}

reef_status reef_line_scorer_new(reef_line_scorer **out, reef_error *err) {
    *out = NULL;
    reef_line_scorer *scorer = calloc(1, sizeof(*scorer));
    if (scorer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count words");
    reef_status status = reserve(scorer, err);
    if (status != REEF_OK) {
        free(scorer);
        return status;
    }
    *out = scorer;
    return REEF_OK;
}

void reef_line_scorer_free(reef_line_scorer *scorer) {
    if (scorer == NULL) return;
    free(scorer->slots);
    free(scorer);
}

// A word counts once a line.
static reef_status count_line(reef_line_scorer *scorer,
                              const uint8_t *line,
                              size_t count,
                              reef_error *err) {
    word w;
    scorer->lines++;
    for (size_t from = 0; next_word(line, count, &from, &w);) {
        reef_status status = reserve(scorer, err);
        if (status != REEF_OK) return status;
        uint64_t hash = hash_of(line, &w);
        word_slot *slot = find_slot(scorer, hash);
        scorer->used += slot->hash == 0;
        slot->hash = hash;
        slot->lines += slot->last != scorer->lines;
        slot->last = scorer->lines;
    }
    return REEF_OK;
}

reef_status reef_line_scorer_learn(reef_line_scorer *scorer,
                                   const uint8_t *text,
                                   size_t count,
                                   reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t at = 0; status == REEF_OK && at < count;) {
        const uint8_t *end = memchr(text + at, '\n', count - at);
        size_t bytes = end != NULL ? (size_t)(end - text) - at : count - at;
        status = count_line(scorer, text + at, bytes, err);
        at += bytes + 1;
    }
    return status;
}

// ---- scoring ------------------------------------------------------------------------------------

_Static_assert(SURPRISING_BYTES <= RARE_WORDS, "both fit into `highest`");

// The highest values so far, falling.
typedef struct highest {
    double values[RARE_WORDS];
    size_t kept; // of values
} highest;

static void add_value(highest *h, double value) {
    if (value <= h->values[h->kept - 1]) return;
    size_t at = h->kept - 1;
    for (; at > 0 && h->values[at - 1] < value; at--) h->values[at] = h->values[at - 1];
    h->values[at] = value;
}

// Fewer values count as zeros: a line of one word is not rare by that word alone.
static double mean_of(const highest *h) {
    double sum = 0;
    for (size_t i = 0; i < h->kept; i++) sum += h->values[i];
    return sum / (double)h->kept;
}

static double rarity(const reef_line_scorer *scorer, uint64_t hash) {
    uint32_t lines = find_slot(scorer, hash)->lines;
    return log2(((double)scorer->lines + 1) / ((double)lines + 1));
}

// Whether the line has the word before.
static bool is_repeated(const uint8_t *line, const word *of) {
    word w;
    for (size_t from = 0; next_word(line, of->at, &from, &w);)
        if (w.bytes == of->bytes && memcmp(line + w.at, line + of->at, w.bytes) == 0) return true;
    return false;
}

double reef_line_score(const reef_line_scorer *scorer,
                       const uint8_t *line,
                       const float *bits,
                       size_t count) {
    highest bytes = {.kept = SURPRISING_BYTES}, words = {.kept = RARE_WORDS};
    double sum = 0;
    word w;
    for (size_t i = 0; i < count; i++) sum += (double)bits[i];
    for (size_t from = 0; next_word(line, count, &from, &w);) {
        for (size_t i = 0; i < w.bytes; i++) add_value(&bytes, (double)bits[w.at + i]);
        double rare = rarity(scorer, hash_of(line, &w));
        // A word counts once, but looking back is only worth it where it would count at all.
        if (rare > words.values[RARE_WORDS - 1] && !is_repeated(line, &w)) add_value(&words, rare);
    }
    double rate = count > 0 ? sum / (double)count : 0;
    return fmax(mean_of(&bytes), mean_of(&words)) + rate;
}

// ---- the text that context memories keep --------------------------------------------------------

// Layers have no generations here, and no memories.
static const reef_memory *memory_of(const reef_model *model, size_t generation) {
    if (generation >= model->network.generation_count) return NULL;
    return model->network.generations[generation]->memory.memory;
}

size_t reef_model_text(const reef_model *model, uint32_t generation, uint8_t *out, size_t count) {
    const reef_memory *memory = memory_of(model, generation);
    return memory == NULL ? 0 : reef_memory_text(memory, out, count);
}

size_t reef_model_lines(const reef_model *model, uint32_t generation, uint8_t *out, size_t most) {
    const reef_memory *memory = memory_of(model, generation);
    if (memory == NULL) return 0;
    size_t count = reef_memory_text(memory, out, most), begin = 0;
    // The first line may begin before what is kept, the last one end in what was not learned yet.
    if (count < reef_memory_learned_bytes(memory))
        while (begin < count && out[begin++] != '\n') continue;
    while (count > begin && out[count - 1] != '\n') count--;
    memmove(out, out + begin, count - begin);
    return count - begin;
}

static reef_status count_all(reef_line_scorer *scorer, const reef_model *model, reef_error *err) {
    size_t generations = model->network.generation_count, memories = 0;
    for (size_t g = 0; g < generations; g++) memories += memory_of(model, g) != NULL;
    if (memories == 0) return REEF_OK;
    // An equal share of each, however many there are.
    size_t most = REEF_SCORED_TEXT_BYTES_MAX / memories;
    uint8_t *text = malloc(most);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of text", most);
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g < generations; g++)
        status = reef_line_scorer_learn(scorer, text, reef_model_lines(model, g, text, most), err);
    free(text);
    return status;
}

reef_status reef_model_line_scorer(reef_model *model,
                                   const reef_line_scorer **out,
                                   reef_error *err) {
    reef_line_scorer *scorer = NULL;
    *out = model->scorer;
    if (model->scorer != NULL) return REEF_OK;
    reef_status status = reef_line_scorer_new(&scorer, err);
    if (status == REEF_OK) status = count_all(scorer, model, err);
    if (status != REEF_OK) {
        reef_line_scorer_free(scorer);
        return status;
    }
    *out = model->scorer = scorer;
    return REEF_OK;
}
