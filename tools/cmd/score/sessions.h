// Lines of a text that belong together: a session is all lines that share an id, such as that of a
// request or of a block.
#ifndef REEF_SESSIONS_H
#define REEF_SESSIONS_H

#include "scored_lines.h"

#include <regex.h>

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

#endif
