// See scored_lines.h.
#include "scored_lines.h"

#include <stdlib.h>

static size_t count_lines(const uint8_t *text, size_t count) {
    size_t lines = count > 0 && text[count - 1] != '\n';
    for (size_t i = 0; i < count; i++) lines += text[i] == '\n';
    return lines;
}

void reef_scored_lines_init(reef_scored_lines *out,
                            const reef_line_scorer *scorer,
                            const uint8_t *text,
                            const float *bits,
                            size_t count,
                            double mean) {
    *out = (reef_scored_lines){.text = text, .bits = bits, .count = count_lines(text, count)};
    out->lines = reef_cli_alloc(out->count + 1, sizeof(*out->lines));
    size_t at = 0;
    // The newline belongs to the bits of its line, but not to its bytes.
    for (size_t i = 0; i < out->count; i++) {
        reef_scored_line *l = &out->lines[i];
        *l = (reef_scored_line){.number = i + 1, .offset = at};
        while (at < count && text[at] != '\n') l->bits += (double)bits[at++];
        l->bytes = at - l->offset;
        l->ended = at < count;
        if (l->ended) l->bits += (double)bits[at++];
        // How much more a line costs than the mean of the file: long normal lines do not stand out.
        l->surplus = l->bits - mean * (double)(at - l->offset);
        l->score = reef_line_score(scorer, text + l->offset, bits + l->offset, at - l->offset);
    }
}

void reef_scored_lines_release(reef_scored_lines *lines) {
    free(lines->lines);
    *lines = (reef_scored_lines){0};
}

double reef_scored_line_rate(const reef_scored_line *line) {
    return line->bits / (double)(line->bytes + line->ended);
}
