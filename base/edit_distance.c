// How far apart two words are; see reef_edit_distance.h. A pure function.
#include "reef_edit_distance.h"

#include <stdbool.h>
#include <string.h>

#define WORD_MAX 64 // letters that are compared

static size_t edit_distance_least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Optimal string alignment: as Levenshtein, and a swap of two neighbours counts as one.
size_t reef_edit_distance(const char *word, const char *other) {
    size_t row[3][WORD_MAX + 1];
    size_t rows = edit_distance_least(strlen(word), WORD_MAX),
           columns = edit_distance_least(strlen(other), WORD_MAX);
    for (size_t j = 0; j <= columns; j++) row[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *now = row[i % 3], *above = row[(i + 2) % 3], *two_above = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t differs = word[i - 1] == other[j - 1] ? 0 : 1;
            now[j] = edit_distance_least(above[j - 1] + differs,
                                         edit_distance_least(above[j], now[j - 1]) + 1);
            bool swapped =
                i > 1 && j > 1 && word[i - 1] == other[j - 2] && word[i - 2] == other[j - 1];
            if (swapped) now[j] = edit_distance_least(now[j], two_above[j - 2] + 1);
        }
    }
    return row[rows % 3][columns];
}
