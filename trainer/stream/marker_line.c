// Marker lines: lines of a stream that consist of exactly the configured text.
//
// Read byte by byte, so how the stream is cut into calls does not matter. A line that may still
// become a marker stays pending until it is complete: at most a marker's bytes.
#include "stream.h"

#include <assert.h>

static void begin_line(reef_marker_line *marker) {
    marker->matched = 0;
    marker->other = false;
}

void reef_marker_line_read(reef_marker_line *marker, const char *text, uint8_t byte) {
    assert(marker->line_bytes == 0 && text[0] != '\0');
    if (byte == '\n') {
        // The line is the marker only if all of it matched and nothing is left of the text.
        bool whole = !marker->other && text[marker->matched] == '\0';
        if (whole) marker->line_bytes = marker->matched + 1;
        begin_line(marker);
    } else if (!marker->other && (uint8_t)text[marker->matched] == byte) {
        marker->matched++;
    } else {
        // One wrong byte makes it another line; the rest of it is skipped until its newline.
        marker->other = true;
        marker->matched = 0;
    }
}

void reef_marker_line_source(reef_marker_line *marker, const char *text, size_t source) {
    if (text[0] == '\0' || marker->source == source + 1) return;
    marker->source = source + 1;
    if (!marker->other && marker->matched > 0 && text[marker->matched] == '\0')
        marker->line_bytes = marker->matched;
    begin_line(marker);
}
