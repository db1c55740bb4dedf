// Lines of a text that is still being written: standard input, or a file as it grows, is cut or
// gives way to another one of its name.
#ifndef REEF_LINE_READER_H
#define REEF_LINE_READER_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FOLLOW_LINE_BYTES_MAX 65536u // a longer line is taken in pieces
#define FOLLOW_LINES_BYTES 2048u     // lines that are at hand are taken together up to here, or one

typedef enum reef_follow_state {
    FOLLOW_LINES,     // a line, or some
    FOLLOW_NOTHING,   // none now: reef_follow_wait
    FOLLOW_END,       // none ever again
    FOLLOW_ROTATED,   // from here on another file of that name, from its beginning
    FOLLOW_TRUNCATED, // the file was cut; from here on from its beginning
} reef_follow_state;

typedef struct reef_follow_input {
    const char *path; // NULL: standard input
    int fd;
    bool regular; // otherwise it has an end, and no file replaces it
    // nothing can be added to what is read: it has an end, or another file took its name
    bool ended;
    bool cut; // it was cut: what was read of it is handed out, then it is read from its beginning
    dev_t device;
    ino_t inode;
    uint64_t offset; // of the next read
    uint8_t *bytes;  // (FOLLOW_LINE_BYTES_MAX) read and not handed out: taken .. used
    size_t taken, used;
} reef_follow_input;

/**
 * Open `path` ("-": standard input). Only a regular file has last lines.
 *
 * lines  how many of its last lines to begin with (SIZE_MAX: at its beginning); written: how many
 *        of them there are, 0 where that is not known
 *
 * Errors: NOT_FOUND; IO.
 */
REEF_MUST_CHECK reef_status reef_follow_open(reef_follow_input *input,
                                             const char *path,
                                             size_t *lines,
                                             reef_error *err);
void reef_follow_close(reef_follow_input *input); // accepts the zeroed one

/**
 * What comes next. A line ends with its newline: a partial line is handed out only when nothing can
 * follow it any more.
 *
 * lines  FOLLOW_LINES: valid until the next call
 */
REEF_MUST_CHECK reef_status reef_follow_next(reef_follow_input *input,
                                             reef_follow_state *state,
                                             const uint8_t **lines,
                                             size_t *bytes,
                                             reef_error *err);
/** Wait a moment for more. A signal that is handled ends the wait. */
void reef_follow_wait(const reef_follow_input *input);

#endif
