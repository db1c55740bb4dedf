// The parts of reef score: lines of a text and how surprising each is, sessions of lines, what a
// pool has learned, and the threshold that follows from it.
#ifndef REEF_SCORE_PARTS_H
#define REEF_SCORE_PARTS_H

#include "cli_pool.h"
#include "cli_progress.h"
#include "reef_scored_lines.h"

#include <regex.h>
#include <stdio.h>
#include <sys/types.h>

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
 * mean        bits a byte that a surplus is measured from
 */
void reef_scored_lines_init(reef_scored_lines *out,
                            const reef_line_scorer *scorer,
                            const uint8_t *text,
                            const float *bits,
                            size_t count,
                            double mean);
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

/**
 * Open a state whose memories read as --frozen says: alone, since a fault that is repeated must not
 * become familiar by what the text said before.
 */
REEF_MUST_CHECK reef_status reef_score_model_open(reef_model **out,
                                                  const reef_cli_call *cli,
                                                  reef_store *store,
                                                  const char *as_of,
                                                  reef_error *err);

// ---- learned_text.c: what a pool has learned ----------------------------------------------------
//
// The text that a pool keeps of what it has learned, and how surprising it was.
//
// A context memory keeps the end of its stream. At most REEF_SCORED_TEXT_BYTES_MAX are read.

/** Whole lines, part by part: of a memory each. */
typedef struct reef_learned_text {
    uint8_t *bytes; // (count)
    size_t count;
    size_t *ends; // (part_count) where each part ends, behind a newline
    size_t part_count, part_capacity;
} reef_learned_text;

/** What the state keeps; with no part where that is nothing. */
void reef_learned_text_read(reef_learned_text *out, const reef_model *model);
void reef_learned_text_release(reef_learned_text *text); // accepts zeros

// ---- learned_text.c: alarms ---------------------------------------------------------------------
//
// The threshold above which lines or sessions are alarms, set by what a pool has learned.

typedef struct reef_alarm {
    double percent;   // of what was learned that may lie above the threshold
    double threshold; // an alarm has a higher score
    size_t learned;   // lines or sessions that it was set on
} reef_alarm;

/**
 * Read --alarms: above 0 % and below 100 %. *given is whether it was; the rest of `out` is 0.
 */
REEF_MUST_CHECK reef_status reef_alarm_read(reef_alarm *out,
                                            bool *given,
                                            const reef_cli_call *cli,
                                            reef_error *err);
/**
 * Set the threshold on the learned lines, as if they were not known yet, or on their sessions. The
 * lowest one that at most `percent` of them exceed.
 *
 * sessions  NULL: lines
 *
 * Errors: INVALID the pool keeps no line of what it learned, or none in which `sessions` matches.
 */
REEF_MUST_CHECK reef_status reef_alarm_set(reef_alarm *alarm,
                                           const reef_cli_call *cli,
                                           const reef_model *model,
                                           const regex_t *sessions,
                                           reef_error *err);
/** The threshold, and how many alarms there were, as JSON. */
json_t *reef_alarm_json(const reef_alarm *alarm, uint64_t count);

// ---- line_reader.c: lines of a text that is still being written ---------------------------------
//
// Standard input, or a file as it grows, is cut or gives way to another one of its name.

#define LINE_BYTES_MAX 65536u // a longer line is taken in pieces
#define LINES_BYTES 2048u     // lines that are at hand are taken together up to here, or one

typedef enum reef_line_event {
    LINES_READ,      // a line, or some
    LINES_NONE_NOW,  // none now: reef_line_reader_wait
    LINES_END,       // none ever again
    LINES_ROTATED,   // from here on another file of that name, from its beginning
    LINES_TRUNCATED, // the file was cut; from here on from its beginning
} reef_line_event;

typedef struct reef_line_reader {
    const char *path; // NULL: standard input
    int fd;
    bool regular; // otherwise it has an end, and no file replaces it
    // nothing can be added to what is read: it has an end, or another file took its name
    bool ended;
    bool cut; // it was cut: what was read of it is handed out, then it is read from its beginning
    dev_t device;
    ino_t inode;
    uint64_t offset; // of the next read
    uint8_t *bytes;  // (LINE_BYTES_MAX) read and not handed out: taken .. used
    size_t taken, used;
} reef_line_reader;

/**
 * Open `path` ("-": standard input). Only a regular file has last lines.
 *
 * lines  how many of its last lines to begin with (SIZE_MAX: at its beginning); written: how many
 *        of them there are, 0 where that is not known
 *
 * Errors: NOT_FOUND; IO.
 */
REEF_MUST_CHECK reef_status reef_line_reader_open(reef_line_reader *reader,
                                                  const char *path,
                                                  size_t *lines,
                                                  reef_error *err);
void reef_line_reader_close(reef_line_reader *reader); // accepts the zeroed one

/**
 * What comes next. A line ends with its newline: a partial line is handed out only when nothing can
 * follow it any more.
 *
 * lines  LINES_READ: valid until the next call
 */
REEF_MUST_CHECK reef_status reef_line_reader_next(reef_line_reader *reader,
                                                  reef_line_event *state,
                                                  const uint8_t **lines,
                                                  size_t *bytes,
                                                  reef_error *err);
/** Wait a moment for more. A signal that is handled ends the wait. */
void reef_line_reader_wait(const reef_line_reader *reader);

// ---- score_follow.c: --follow -------------------------------------------------------------------
//
// reef score --follow: a log watcher.

/** The command with --follow. */
reef_status reef_score_follow(reef_cli_call *cli, reef_error *err);
/** INVALID when options of one way were given that only the other has. */
REEF_MUST_CHECK reef_status reef_score_follow_check(const reef_cli_call *cli, reef_error *err);

/** The surprise of a line is unusual beside fewer lines than these: they are not known yet. */
#define USUAL_LINES_MIN 10

/** What is usual: the surprise of the last lines. */
typedef struct reef_usual {
    double *values, *sorted; // (window)
    size_t window, count;    // the oldest gives way
    size_t next;
    double threshold;
} reef_usual;

void reef_usual_init(reef_usual *usual, size_t window, double threshold);
void reef_usual_release(reef_usual *usual);
/**
 * How far a surprise lies above what is usual: in robust standard deviations (1.4826 times the
 * median distance from the median, at least 0.05 bits per byte). NaN while fewer than
 * USUAL_LINES_MIN lines are known.
 */
double reef_usual_distance(reef_usual *usual, double surprise);
/** It is one of the last lines now. */
void reef_usual_add(reef_usual *usual, double surprise);

#endif
