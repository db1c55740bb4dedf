// Figures of a text by its words: how many there are, and whether the last one of each line is
// foreseen.
#ifndef REEF_EVAL_WORDS_H
#define REEF_EVAL_WORDS_H

#include "cli.h"
#include "cli_pool.h"
#include "cli_progress.h"

/** Words of a text: runs of bytes other than ASCII white space. */
uint64_t reef_eval_word_count(const uint8_t *bytes, size_t count);
/** 2 to the power of bits per word; NaN without words. */
double reef_eval_word_perplexity(double bits, uint64_t words);

/** Passages whose last word was asked for, as in LAMBADA (Paperno et al. 2016). */
typedef struct reef_eval_last_words {
    uint64_t passages; // lines of two words or more
    uint64_t skipped;  // other lines, empty ones not counted; and words that fill the context
    uint64_t right;    // every byte of the word is the most likely one after those before it
    uint64_t ended;    // and white space is the most likely thing after it
    double bits;       // of the words' bytes
} reef_eval_last_words;

/**
 * Ask for the last word of every line, with as much of the line before it as the model's context
 * holds. The most likely byte at each position, given the bytes before it, is what greedy
 * generation would write as long as it is right.
 *
 * Errors: INVALID no line has two words; those of reef_model_logits.
 */
REEF_MUST_CHECK reef_status reef_eval_last_words_measure(reef_model *model,
                                                         const reef_cli_file *file,
                                                         reef_cli_progress *progress,
                                                         reef_eval_last_words *out,
                                                         reef_error *err);

#endif
