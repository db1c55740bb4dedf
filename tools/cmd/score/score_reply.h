// The reply of reef score about a text: its lines or its sessions, for people or as JSON.
#ifndef REEF_SCORE_REPLY_H
#define REEF_SCORE_REPLY_H

#include "alarm.h"
#include "cli_pool.h"
#include "nearest_line.h"
#include "sessions.h"

typedef struct reef_score_reply {
    const reef_cli_file *file;
    const reef_score *score;
    const reef_scored_lines *lines;
    size_t top;                    // at most so many, the highest first; 0: all, in order
    bool by_score;                 // lines that are highest by their score, not by their surplus
    const reef_sessions *sessions; // NULL: lines are asked for
    const reef_alarm *alarm;       // NULL: there is no threshold
    bool explains;
    reef_nearest *nearest; // with `explains`
} reef_score_reply;

REEF_MUST_CHECK reef_status reef_score_reply_write(const reef_score_reply *reply,
                                                   reef_cli_call *cli,
                                                   reef_error *err);

/** Members "surprising" and "nearest" of a line of (count) bytes with their bits. */
void reef_score_explain_json(
    json_t *object, const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest);
/** The line with marks, and the nearest learned one below. */
void reef_score_explain_print(
    const uint8_t *line, const float *bits, size_t count, reef_nearest *nearest, bool colours);

#endif
