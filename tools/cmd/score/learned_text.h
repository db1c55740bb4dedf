// The text that a pool keeps of what it has learned, and how surprising it was.
//
// A context memory keeps the end of its stream. A pool without memories has its reservoir, a sample
// of windows of the stream. Of either at most REEF_SCORED_TEXT_BYTES_MAX are read.
#ifndef REEF_LEARNED_TEXT_H
#define REEF_LEARNED_TEXT_H

#include "cli_pool.h"
#include "cli_progress.h"

/** Whole lines, part by part: of a memory each, or of a window of the reservoir. */
typedef struct reef_learned_text {
    uint8_t *bytes; // (count)
    size_t count;
    size_t *ends; // (part_count) where each part ends, behind a newline
    size_t part_count;
    bool is_sampled; // windows of the reservoir
} reef_learned_text;

/**
 * What the state keeps; with no part where that is nothing. Release with
 * reef_learned_text_release, on failure too.
 */
REEF_MUST_CHECK reef_status reef_learned_text_read(reef_learned_text *out,
                                                   const reef_model *model,
                                                   reef_store *store,
                                                   reef_error *err);
void reef_learned_text_release(reef_learned_text *text); // accepts zeros

/**
 * The last fifth of each memory's text, scored by a new memory that learned what lies before it: as
 * if it were not known yet. What a memory has learned is no surprise to it. Windows of the
 * reservoir are scored by the model itself, all of them.
 *
 * frozen  as of reef score
 * out     written: what was scored, as parts of its own; release it, on failure too
 * bits    written: (out->count) of each byte; free() it, NULL after an error
 * scorer  lines that were not scored are added: they are what scores of the others go by
 * progress  shows bytes of `text`
 */
REEF_MUST_CHECK reef_status reef_learned_text_score(const reef_learned_text *text,
                                                    reef_model *model,
                                                    bool frozen,
                                                    reef_learned_text *out,
                                                    float **bits,
                                                    reef_line_scorer *scorer,
                                                    reef_cli_progress *progress,
                                                    reef_error *err);

#endif
