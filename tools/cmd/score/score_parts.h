// The parts of reef score: lines of a text and how surprising each is, sessions of lines, and what a
// pool has learned.
#ifndef REEF_SCORE_PARTS_H
#define REEF_SCORE_PARTS_H

#include "cli_pool.h"
#include "cli_progress.h"
#include "reef_scored_lines.h"

#include <regex.h>
#include <stdio.h>

// ---- sessions.c: lines --------------------------------------------------------------------------
//
// The lines of a text, and how surprising each of them is.

typedef struct reef_scored_lines {
    const uint8_t *text; // lent
    const float *bits;   // lent: of each byte
    reef_scored_line *lines;
    size_t count;
} reef_scored_lines;

/**
 * Cut a text into lines.
 *
 * scorer      of their scores
 * text, bits  (count) of them; kept by the lines
 */
void reef_scored_lines_init(reef_scored_lines *out,
                            const reef_line_scorer *scorer,
                            const uint8_t *text,
                            const float *bits,
                            size_t count);
void reef_scored_lines_release(reef_scored_lines *lines); // accepts zeros

// ---- sessions.c: sessions -----------------------------------------------------------------------
//
// Lines of a text that belong together: a session is all lines that share an id, such as that of a
// request or of a block.

#define SESSION_WORST 5 // lines that make its score: see docs/LEARNING.md

typedef struct reef_session {
    const uint8_t *id; // (id_bytes) lies in the text
    size_t id_bytes;
    size_t first;                // its first line, as an index
    size_t line_count;           // of its lines
    size_t worst[SESSION_WORST]; // indices, the highest score first
    size_t worst_count;
    double score; // mean of those of the worst lines
} reef_session;

typedef struct reef_sessions {
    reef_session *sessions; // (count) the highest score first; of equals the earlier one
    size_t count;
    size_t left_out; // lines in which nothing matches
} reef_sessions;

/** Read --session: a POSIX extended regular expression. INVALID where it is none. */
REEF_MUST_CHECK reef_status reef_session_pattern_read(regex_t *out,
                                                      const char *text,
                                                      reef_error *err);
/**
 * The sessions of scored lines. The id is what the first group of the pattern matches first in a
 * line, or the whole match where there is no group. An empty match is none. Release with
 * reef_sessions_release.
 */
REEF_MUST_CHECK reef_status reef_sessions_find(reef_sessions *out,
                                               const regex_t *pattern,
                                               const reef_scored_lines *lines,
                                               reef_error *err);
void reef_sessions_release(reef_sessions *sessions); // accepts zeros

// ---- explain.c: surprising bytes ----------------------------------------------------------------
//
// Which bytes of a line were surprising.

#define SURPRISE_BITS 4.0f // a byte that had a chance of at most 1 in 16 is surprising
#define SURPRISE_GAP 2     // so many bytes between two surprising ones are marked with them

/** A run of bytes that begins and ends with a surprising one. */
typedef struct reef_surprise_span {
    size_t offset, bytes; // in the line
    double bits;          // of all its bytes
} reef_surprise_span;

/**
 * The surprising runs of a line, in order.
 *
 * bits   (count) of each byte
 * spans  (count) written
 *
 * Returns how many.
 */
size_t reef_surprise_spans(const float *bits, size_t count, reef_surprise_span *spans);

/**
 * Print a line, and below it ^ at what is surprising, in rows of so many columns; with colours it
 * is red as well. Bytes that no terminal shows are \xNN, as of reef_cli_printable. Of a long line
 * the stretches without a surprise, and what follows after many surprising rows, are counted.
 */
void reef_surprise_print(const uint8_t *line,
                         const float *bits,
                         size_t count,
                         const char *indent,
                         size_t columns,
                         bool colours,
                         FILE *out);

// ---- explain.c: the nearest learned line --------------------------------------------------------
//
// The learned line that is most like another one.
//
// Two lines are alike where they share sequences of four bytes, line ends counted. A sequence
// weighs log(1 + N / n) if n of the N learned lines have it, so a common date weighs little. What
// is shared counts twice, against the weight of both lines (Dice 1945): 1 for equal lines, 0 for
// lines that share nothing.

typedef struct reef_nearest reef_nearest;

typedef struct reef_nearest_found {
    const uint8_t *line; // (bytes) lies in the learned text; NULL: none has anything in common
    size_t bytes;
    double likeness; // 0 to 1
} reef_nearest_found;

/** Index the lines of `text` (count), which is kept by the index. */
reef_nearest *reef_nearest_new(const uint8_t *text, size_t count);
void reef_nearest_free(reef_nearest *nearest); // accepts NULL
/** Some milliseconds in 4 MB of text. Of equally near ones the first in the order of bytes. */
reef_nearest_found reef_nearest_find(reef_nearest *nearest, const uint8_t *line, size_t bytes);

/** Members "surprising" and "nearest" of a line of (count) bytes with their bits. */
void reef_score_explain_json(
    json_t *object, const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest);
/** The line with marks, and the nearest learned one below. */
void reef_score_explain_print(
    const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest, bool colours);

// ---- learned_text.c: what a pool has learned ----------------------------------------------------
//
// The text that a pool keeps of what it has learned.
//
// A context memory keeps the end of its stream. At most REEF_SCORED_TEXT_BYTES_MAX are read.

/** Whole lines, an equal share of each memory. */
typedef struct reef_learned_text {
    uint8_t *bytes; // (count)
    size_t count;
} reef_learned_text;

void reef_learned_text_read(reef_learned_text *out, const reef_model *model);
void reef_learned_text_release(reef_learned_text *text); // accepts zeros

#endif
