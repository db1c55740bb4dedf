// See boundary_mark.h.
#include "boundary_mark.h"

#include <assert.h>
#include <string.h>

static void begin_line(reef_marker_line *mark) {
    mark->matched = 0;
    mark->other = false;
}

void reef_marker_line_read(reef_marker_line *mark, const char *text, uint8_t byte) {
    assert(mark->line_bytes == 0 && text[0] != '\0');
    if (byte == '\n') {
        // The line is the marker only if all of it matched and nothing is left of the text.
        bool whole = !mark->other && text[mark->matched] == '\0';
        if (whole) mark->line_bytes = mark->matched + 1;
        begin_line(mark);
    } else if (!mark->other && (uint8_t)text[mark->matched] == byte) {
        mark->matched++;
    // One wrong byte makes it another line; the rest of it is skipped until its newline.
    } else {
        mark->other = true;
        mark->matched = 0;
    }
}

void reef_marker_line_source(reef_marker_line *mark, const char *text, size_t source) {
    if (text[0] == '\0' || mark->source == source + 1) return;
    mark->source = source + 1;
    if (!mark->other && mark->matched > 0 && text[mark->matched] == '\0')
        mark->line_bytes = mark->matched;
    begin_line(mark);
}
