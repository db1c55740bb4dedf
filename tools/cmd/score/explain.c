// See score_parts.h: why a line is surprising.
#include "score_parts.h"

#include "reef_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- surprising bytes ---------------------------------------------------------------------------

#define EXPLAIN_COLUMNS 96 // of a row
#define RED "\033[1;31m"
#define PLAIN "\033[0m"

enum {
    PLAIN_ROWS = 2,      // so many without a surprise are shown; of more, how many bytes they have
    SURPRISING_ROWS = 8, // so many are shown
};

size_t reef_surprise_spans(const float *bits, size_t count, reef_surprise_span *spans) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(bits[i] >= SURPRISE_BITS)) continue;
        reef_surprise_span *last = found > 0 ? &spans[found - 1] : NULL;
        if (last == NULL || i - (last->offset + last->bytes) > SURPRISE_GAP)
            spans[found++] = (reef_surprise_span){.offset = i, .bytes = 1};
        else
            last->bytes = i + 1 - last->offset;
    }
    for (size_t s = 0; s < found; s++)
        for (size_t i = 0; i < spans[s].bytes; i++)
            spans[s].bits += (double)bits[spans[s].offset + i];
    return found;
}

// One character of the line as it is shown.
typedef struct shown_character {
    char *text; // on the heap
    size_t bytes, columns;
    bool surprising;
} shown_character;

static shown_character show(const uint8_t *line, size_t at, size_t count, const bool *marked) {
    size_t bytes = reef_character_bytes(line + at, count - at);
    shown_character c = {.bytes = bytes > 0 ? bytes : 1};
    c.text = reef_cli_printable(line + at, c.bytes, false);
    c.columns = reef_cli_width(c.text);
    for (size_t i = 0; i < c.bytes; i++) c.surprising |= marked[at + i];
    return c;
}

typedef struct shown_row {
    const shown_character *characters; // (count)
    size_t count, bytes;
    bool surprising; // one of them is
} shown_row;

// The first characters of `rest` (count) that have room in so many columns; at least one.
static shown_row row_of(const shown_character *rest, size_t count, size_t columns) {
    shown_row row = {.characters = rest};
    size_t width = 0;
    while (row.count < count) {
        const shown_character *next = &rest[row.count];
        width += next->columns;
        if (row.count > 0 && width > columns) break;
        row.count++;
        row.bytes += next->bytes;
        row.surprising |= next->surprising;
    }
    return row;
}

static void print_row(const shown_row *row, const char *indent, bool colours, FILE *out) {
    bool red = false;
    fputs(indent, out);
    for (size_t i = 0; i < row->count; i++) {
        const shown_character *c = &row->characters[i];
        if (colours && c->surprising != red) fputs(red ? PLAIN : RED, out);
        red = c->surprising;
        fputs(c->text, out);
    }
    fputs(colours && red ? PLAIN "\n" : "\n", out);
    if (!row->surprising) return;
    fputs(indent, out);
    size_t last = row->count; // nothing behind the last mark
    while (!row->characters[last - 1].surprising) last--;
    for (size_t i = 0; i < last; i++)
        for (size_t k = 0; k < row->characters[i].columns; k++)
            fputc(row->characters[i].surprising ? '^' : ' ', out);
    fputc('\n', out);
}

static size_t bytes_of(const shown_row *rows, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += rows[i].bytes;
    return bytes;
}

static size_t plain_rows(const shown_row *rows, size_t count) {
    size_t plain = 0;
    while (plain < count && !rows[plain].surprising) plain++;
    return plain;
}

static void print_rows(
    const shown_row *rows, size_t count, const char *indent, bool colours, FILE *out) {
    size_t surprising = 0;
    for (size_t r = 0; r < count;) {
        size_t plain = plain_rows(rows + r, count - r);
        if (r > 0 && plain > PLAIN_ROWS) {
            fprintf(out, "%s... %zu bytes without a surprise ...\n", indent,
                    bytes_of(rows + r, plain));
            r += plain;
        } else if (surprising == SURPRISING_ROWS) {
            fprintf(out, "%s... and %zu bytes more\n", indent, bytes_of(rows + r, count - r));
            return;
        } else {
            surprising += rows[r].surprising;
            print_row(&rows[r++], indent, colours, out);
        }
    }
}

void reef_surprise_print(const uint8_t *line,
                         const float *bits,
                         size_t count,
                         const char *indent,
                         size_t columns,
                         bool colours,
                         FILE *out) {
    reef_surprise_span *spans = reef_cli_alloc(count + 1, sizeof(*spans));
    bool *marked = reef_cli_alloc(count + 1, sizeof(*marked));
    shown_character *characters = reef_cli_alloc(count + 1, sizeof(*characters));
    shown_row *rows = reef_cli_alloc(count + 1, sizeof(*rows));
    size_t found = reef_surprise_spans(bits, count, spans), shown = 0, row_count = 0;
    for (size_t s = 0; s < found; s++) memset(marked + spans[s].offset, true, spans[s].bytes);
    for (size_t at = 0; at < count; at += characters[shown++].bytes)
        characters[shown] = show(line, at, count, marked);
    for (size_t at = 0; at < shown || row_count == 0; at += rows[row_count++].count)
        rows[row_count] = row_of(characters + at, shown - at, columns);
    print_rows(rows, row_count, indent, colours, out);
    while (shown > 0) free(characters[--shown].text);
    free(rows);
    free(characters);
    free(marked);
    free(spans);
}

// ---- the nearest learned line -------------------------------------------------------------------
//
// The index is one sorted list of pairs (sequence, line).

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

// ---- both of a line -----------------------------------------------------------------------------

static json_t *nearest_json(const uint8_t *line, size_t count, reef_nearest *nearest) {
    const reef_nearest_found found = reef_nearest_find(nearest, line, count);
    if (found.line == NULL) return json_null();
    char *text = reef_cli_printable(found.line, found.bytes, false);
    json_t *object =
        json_pack("{s:o, s:s}", "likeness", reef_cli_real(found.likeness), "text", text);
    free(text);
    return object;
}

void reef_score_explain_json(
    json_t *object, const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest) {
    reef_surprise_span *spans = reef_cli_alloc(count + 1, sizeof(*spans));
    size_t found = reef_surprise_spans(bits, count, spans);
    json_t *list = json_array();
    for (size_t i = 0; i < found; i++) {
        char *text = reef_cli_printable(line + spans[i].offset, spans[i].bytes, false);
        json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:s}", "offset",
                                              (json_int_t)spans[i].offset, "bytes",
                                              (json_int_t)spans[i].bytes, "bits",
                                              reef_cli_real(spans[i].bits), "text", text));
        free(text);
    }
    json_object_set_new(object, "surprising", list);
    json_object_set_new(object, "nearest", nearest_json(line, count, nearest));
    free(spans);
}

void reef_score_explain_print(
    const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest, bool colours) {
    reef_surprise_print(line, bits, count, "  ", EXPLAIN_COLUMNS, colours, stdout);
    const reef_nearest_found found = reef_nearest_find(nearest, line, count);
    if (found.line == NULL) {
        printf("  no learned line that the pool keeps has anything in common with it\n");
        return;
    }
    char *text = reef_cli_printable(found.line, found.bytes, false);
    char *shown = reef_cli_cut(text, EXPLAIN_COLUMNS);
    printf("  nearest learned line, %.0f %% alike:\n  %s\n", 100 * found.likeness, shown);
    free(shown);
    free(text);
}
