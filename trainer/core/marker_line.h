// Marker lines: lines of a stream that consist of exactly the configured text.
//
// Read byte by byte, so how the stream is cut into calls does not matter. A line that may still
// become a marker stays pending until it is complete: at most a marker's bytes.
#ifndef REEF_MARKER_LINE_H
#define REEF_MARKER_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_marker_line {
    size_t source;  // of the trainer, that the last byte came from; its number + 1, 0 for none yet
    size_t matched; // bytes of the line so far, all of them as in the marker
    bool other;     // the line is another one: nothing matters until its end
    size_t line_bytes; // of a marker that has been read and not been dealt with yet; 0 for none
} reef_marker_line;

/**
 * The next byte of the stream, which has no other marker to be dealt with. A line ends with a line
 * feed, which belongs to it.
 */
void reef_marker_line_read(reef_marker_line *marker, const char *text, uint8_t byte);

/** The next byte comes from this source. A new one ends the line of the one before. */
void reef_marker_line_source(reef_marker_line *marker, const char *text, size_t source);

/** Bytes at the end of what was read that may be the beginning of a marker. */
static inline size_t reef_marker_line_pending(const reef_marker_line *marker) {
    return marker->matched;
}

#endif
