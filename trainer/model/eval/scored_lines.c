// See reef_scored_lines.h. A text is scored as one stream and cut afterwards, so that what a line
// costs does not depend on where windows begin.
#include "reef_scored_lines.h"

size_t reef_lines_count(const uint8_t *text, size_t count) {
    size_t lines = count > 0 && text[count - 1] != '\n';
    for (size_t i = 0; i < count; i++) lines += text[i] == '\n';
    return lines;
}

void reef_lines_score(const reef_line_scorer *scorer,
                      const uint8_t *text,
                      const float *bits,
                      size_t count,
                      reef_scored_line *lines) {
    // The newline belongs to the bits of its line, but not to its bytes.
    for (size_t at = 0, i = 0; at < count; i++) {
        reef_scored_line *l = &lines[i];
        *l = (reef_scored_line){.number = i + 1, .offset = at};
        while (at < count && text[at] != '\n') l->bits += (double)bits[at++];
        l->bytes = at - l->offset;
        l->ended = at < count;
        if (l->ended) l->bits += (double)bits[at++];
        l->score = reef_line_score(scorer, text + l->offset, bits + l->offset, at - l->offset);
    }
}

double reef_scored_line_rate(const reef_scored_line *line) {
    return line->bits / (double)(line->bytes + line->ended);
}
