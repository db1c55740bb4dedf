// See score_parts.h. The index is one sorted list of pairs (sequence, line).
#include "cli_format.h"
#include "score_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct learned_line {
    const uint8_t *line;
    size_t bytes;
    double weight; // of its sequences
    double shared; // scratch: with the line that is compared; 0 between calls
} learned_line;

struct reef_nearest {
    learned_line *lines; // (count) each once
    size_t count;
    uint64_t *pairs; // (pair_count) sequence * 2^32 + line, each once, sorted
    size_t pair_count;
};

static int by_bytes(const void *a, const void *b) {
    const learned_line *left = a, *right = b;
    size_t both = left->bytes < right->bytes ? left->bytes : right->bytes;
    int order = memcmp(left->line, right->line, both);
    return order != 0 ? order : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static int by_pair(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static size_t sort_once(uint64_t *pairs, size_t count) {
    size_t kept = 0;
    qsort(pairs, count, sizeof(*pairs), by_pair);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || pairs[i] != pairs[i - 1]) pairs[kept++] = pairs[i];
    return kept;
}

// A line of n bytes has n - 1 sequences with both line ends, and at least one.
static size_t sequences_max(size_t bytes) {
    return bytes > 2 ? bytes - 1 : 1;
}

// Its sequences with the line's number; a shorter line is one sequence by itself.
static size_t list_sequences(const uint8_t *line, size_t bytes, uint32_t number, uint64_t *out) {
    uint32_t last = '\n';
    size_t count = 0;
    for (size_t i = 0; i <= bytes; i++) {
        last = last << 8 | (i < bytes ? line[i] : '\n');
        if (i >= 2 || i == bytes) out[count++] = (uint64_t)last << 32 | number;
    }
    return count;
}

static double weight_of(const reef_nearest *nearest, size_t having) {
    return log1p((double)nearest->count / (double)(having > 0 ? having : 1));
}

// Pairs from `first` on with the sequence of the first one.
static size_t run_length(const reef_nearest *nearest, size_t first) {
    size_t end = first;
    while (end < nearest->pair_count && nearest->pairs[end] >> 32 == nearest->pairs[first] >> 32)
        end++;
    return end - first;
}

static void cut_lines(reef_nearest *nearest, const uint8_t *text, size_t count) {
    size_t found = 1;
    for (size_t i = 0; i < count; i++) found += text[i] == '\n';
    nearest->lines = reef_cli_alloc(found, sizeof(*nearest->lines));
    for (size_t at = 0; at < count;) {
        const uint8_t *end = memchr(text + at, '\n', count - at);
        size_t bytes = end != NULL ? (size_t)(end - text) - at : count - at;
        if (bytes > 0)
            nearest->lines[nearest->count++] = (learned_line){.line = text + at, .bytes = bytes};
        at += bytes + 1;
    }
    qsort(nearest->lines, nearest->count, sizeof(*nearest->lines), by_bytes);
    found = nearest->count;
    nearest->count = 0;
    for (size_t i = 0; i < found; i++)
        if (i == 0 || by_bytes(&nearest->lines[nearest->count - 1], &nearest->lines[i]) != 0)
            nearest->lines[nearest->count++] = nearest->lines[i];
}

reef_nearest *reef_nearest_new(const uint8_t *text, size_t count) {
    reef_nearest *nearest = reef_cli_alloc(1, sizeof(*nearest));
    cut_lines(nearest, text, count);
    size_t all = 0;
    for (size_t i = 0; i < nearest->count; i++) all += sequences_max(nearest->lines[i].bytes);
    nearest->pairs = reef_cli_alloc(all + 1, sizeof(*nearest->pairs));
    for (size_t i = 0; i < nearest->count; i++)
        nearest->pair_count += list_sequences(nearest->lines[i].line, nearest->lines[i].bytes,
                                              (uint32_t)i, nearest->pairs + nearest->pair_count);
    nearest->pair_count = sort_once(nearest->pairs, nearest->pair_count);
    for (size_t at = 0, length; at < nearest->pair_count; at += length) {
        length = run_length(nearest, at);
        for (size_t i = at; i < at + length; i++)
            nearest->lines[(uint32_t)nearest->pairs[i]].weight += weight_of(nearest, length);
    }
    return nearest;
}

void reef_nearest_free(reef_nearest *nearest) {
    if (nearest == NULL) return;
    free(nearest->lines);
    free(nearest->pairs);
    free(nearest);
}

// The first pair that is not less.
static size_t find_pair(const reef_nearest *nearest, uint64_t pair) {
    size_t low = 0, high = nearest->pair_count;
    while (low < high) {
        size_t half = low + (high - low) / 2;
        if (nearest->pairs[half] < pair)
            low = half + 1;
        else
            high = half;
    }
    return low;
}

reef_nearest_found reef_nearest_find(reef_nearest *nearest, const uint8_t *line, size_t bytes) {
    reef_nearest_found best = {0};
    uint64_t *own = reef_cli_alloc(sequences_max(bytes), sizeof(*own));
    size_t count = sort_once(own, list_sequences(line, bytes, 0, own));
    double weight = 0;
    for (size_t i = 0; i < count; i++) {
        size_t first = find_pair(nearest, own[i]), length = 0;
        if (first < nearest->pair_count && nearest->pairs[first] >> 32 == own[i] >> 32)
            length = run_length(nearest, first);
        double each = weight_of(nearest, length);
        weight += each;
        for (size_t k = first; k < first + length; k++)
            nearest->lines[(uint32_t)nearest->pairs[k]].shared += each;
    }
    for (size_t i = 0; i < nearest->count; i++) {
        learned_line *other = &nearest->lines[i];
        double likeness = 2 * other->shared / (weight + other->weight);
        if (likeness > best.likeness)
            best = (reef_nearest_found){other->line, other->bytes, likeness};
        other->shared = 0;
    }
    free(own);
    return best;
}
