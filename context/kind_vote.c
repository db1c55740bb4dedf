// See reef_kind_vote.h. Contexts are hashed to rows, each with one bit a kind: a bit-sliced
// signature file (Faloutsos and Christodoulakis 1984).
#include "memory_internal.h"
#include "reef_kind_vote.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t ORDERS[] = {3, 4, 6};
#define ORDER_COUNT (sizeof(ORDERS) / sizeof(*ORDERS))
#define CHUNK 4096 // of a sample, from all over the text
// Of 65,536 bytes of prose a fifth of the fewer rows has a bit.
#define ROWS_LOG2_SMALL 19
#define ROWS_LOG2 20
#define VOTERS 256  // bytes of a text
#define DECAY 0.985 // a byte
#define AHEAD 32    // bytes whose rows are fetched before they are set

struct reef_kind_vote {
    uint32_t sample; // bytes of a kind's text
    int rows_log2;
    size_t count;   // of rows
    size_t words;   // of a row
    uint64_t *rows; // (count, words)
    uint32_t *bits; // (64 * words) rows that have a kind's bit
    size_t known;   // kinds that have some
};

reef_status reef_kind_vote_new(reef_kind_vote **out, uint32_t sample, reef_error *err) {
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a vote");
    (*out)->sample = sample;
    (*out)->rows_log2 = sample <= REEF_KIND_SAMPLE_SMALL ? ROWS_LOG2_SMALL : ROWS_LOG2;
    (*out)->count = (size_t)1 << (*out)->rows_log2;
    return REEF_OK;
}

void reef_kind_vote_free(reef_kind_vote *vote) {
    if (vote == NULL) return;
    free(vote->rows);
    free(vote->bits);
    free(vote);
}

// Row of the context of `order` bytes that ends a text; `bytes` has its last eight.
static size_t row_of(const reef_kind_vote *vote, uint32_t order, uint64_t bytes) {
    uint64_t context = bytes << (64 - 8 * order);
    uint64_t hash = (context ^ order) * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93ull;
    return (size_t)(hash >> (64 - vote->rows_log2));
}

static reef_status reserve(reef_kind_vote *vote, uint32_t kind, reef_error *err) {
    if (kind < 64 * vote->words) return REEF_OK;
    size_t words = kind / 64 + 1;
    uint64_t *rows = calloc(vote->count, words * sizeof(*rows));
    uint32_t *bits = calloc(64 * words, sizeof(*bits));
    if (rows == NULL || bits == NULL) {
        free(rows);
        free(bits);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a vote of %zu kinds", 64 * words);
    }
    for (size_t r = 0; r < vote->count && vote->words > 0; r++)
        memcpy(rows + r * words, vote->rows + r * vote->words, vote->words * sizeof(*rows));
    if (vote->words > 0) memcpy(bits, vote->bits, 64 * vote->words * sizeof(*bits));
    free(vote->rows);
    free(vote->bits);
    vote->words = words;
    vote->rows = rows;
    vote->bits = bits;
    return REEF_OK;
}

static void clear(reef_kind_vote *vote, uint32_t kind) {
    if (vote->bits[kind] == 0) return; // nor has a row
    uint64_t *column = vote->rows + kind / 64, mine = 1ull << kind % 64;
    vote->known--;
    vote->bits[kind] = 0;
    for (size_t r = 0; r < vote->count; r++) column[r * vote->words] &= ~mine;
}

// `count` bytes of the text, which ends `back` bytes before its end.
static void add_chunk(
    reef_kind_vote *vote, uint32_t kind, const reef_text *text, uint64_t back, uint64_t count) {
    uint64_t *column = vote->rows + kind / 64, mine = 1ull << kind % 64, bytes = 0;
    uint64_t *words[AHEAD * ORDER_COUNT];
    for (uint64_t at = 0; at < count;) {
        uint64_t end = count - at < AHEAD ? count : at + AHEAD;
        size_t ahead = 0;
        for (; at < end; at++) {
            int known;
            bytes = bytes << 8 | reef_text_at(text, text->end - back - count + at, &known);
            for (size_t k = 0; k < ORDER_COUNT; k++) {
                if (at + 1 < ORDERS[k]) continue;
                words[ahead] = &column[row_of(vote, ORDERS[k], bytes) * vote->words];
                __builtin_prefetch(words[ahead++], 1);
            }
        }
        for (size_t i = 0; i < ahead; i++) {
            vote->bits[kind] += (*words[i] & mine) == 0;
            *words[i] |= mine;
        }
    }
}

reef_status reef_kind_vote_set(reef_kind_vote *vote,
                               uint32_t kind,
                               const reef_memory *memory,
                               reef_error *err) {
    reef_status status = reserve(vote, kind, err);
    if (status != REEF_OK) return status;
    clear(vote, kind);
    if (memory == NULL) return REEF_OK;
    const reef_text *text = &memory->predictor.text;
    uint32_t chunks = vote->sample / CHUNK;
    uint64_t kept = text->end - text->begin;
    if (kept <= vote->sample) add_chunk(vote, kind, text, 0, kept);
    for (uint32_t c = 0; kept > vote->sample && c < chunks; c++) {
        uint64_t back = (kept - CHUNK) * c / (chunks - 1);
        add_chunk(vote, kind, text, back, CHUNK);
    }
    if (vote->bits[kind] > 0) vote->known++;
    return REEF_OK;
}

// One context's vote; a row that has the bit of every kind, or of none, says nothing.
static double vote_row(const reef_kind_vote *vote, size_t row, double weight, double *votes) {
    const uint64_t *words = vote->rows + row * vote->words;
    int having = 0;
    for (size_t w = 0; w < vote->words; w++) having += __builtin_popcountll(words[w]);
    if (having == 0) return 0.0;
    weight *= log2((double)vote->known / having);
    for (size_t w = 0; w < vote->words; w++)
        for (uint64_t left = words[w]; left != 0; left &= left - 1)
            votes[64 * w + (size_t)__builtin_ctzll(left)] += weight;
    return weight;
}

static size_t best_of(const reef_kind_vote *vote,
                      double *votes,
                      double all,
                      double least,
                      uint32_t *kinds,
                      size_t max) {
    size_t count = 0;
    double first = 0.0;
    // A kind of much text has many bits, and gets that part of all votes by chance.
    for (uint32_t k = 0; k < 64 * vote->words; k++)
        votes[k] -= all * vote->bits[k] / (double)vote->count;
    for (; count < max; count++) {
        double most = 0.0;
        for (uint32_t k = 0; k < 64 * vote->words; k++) {
            if (votes[k] <= most) continue;
            most = votes[k];
            kinds[count] = k;
        }
        if (count == 0) first = most;
        if (most <= 0.0 || most < least * first) break;
        votes[kinds[count]] = 0.0;
    }
    return count;
}

size_t reef_kind_vote_count(const reef_kind_vote *vote,
                            const uint8_t *text,
                            size_t count,
                            double least,
                            uint32_t *kinds,
                            size_t max) {
    double *votes = vote->words == 0 ? NULL : calloc(64 * vote->words, sizeof(*votes));
    if (votes == NULL) return 0;
    size_t first = count > VOTERS ? count - VOTERS : 0;
    uint64_t bytes = 0;
    double all = 0.0;
    for (size_t i = first > 6 ? first - 6 : 0; i < count; i++) {
        bytes = bytes << 8 | text[i];
        if (i < first) continue;
        double weight = pow(DECAY, (double)(count - 1 - i));
        for (size_t k = 0; k < ORDER_COUNT; k++)
            if (i + 1 >= ORDERS[k])
                all += vote_row(vote, row_of(vote, ORDERS[k], bytes), weight, votes);
    }
    size_t chosen = best_of(vote, votes, all, least, kinds, max);
    free(votes);
    return chosen;
}
