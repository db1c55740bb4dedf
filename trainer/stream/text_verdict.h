// Whose is a text? Contexts say which kinds may know it; what it costs them says which do. The
// deferred pieces are read (text_cost.h) before a kind switches and before one begins.
#ifndef REEF_TEXT_VERDICT_H
#define REEF_TEXT_VERDICT_H

#include "recognition.h"

#define REEF_KIND_SMALL ((uint64_t)256 << 10) // bytes; a kind that learned less is small
#define REEF_KIND_LARGE ((uint64_t)4 << 20)   // and one that learned so much large

/** So many deferred bytes are read first, where the current kind has learned so much. */
size_t reef_text_first_read(uint64_t learned);

/**
 * What contexts say is one thing, what is saved another: a switch is confirmed by reading, unless
 * one candidate alone leads, and by its contexts the text is its own. Candidates that save too
 * little are refused.
 *
 * decision   a switch; its kind becomes that to which the text costs least, its verdict CURRENT
 *            where it costs that one more than is usual, and the current kind less so
 * confirmed  written; false: there is no such switch
 *
 * Errors: NO_MEMORY, IO, CORRUPT a kind's memory cannot be read.
 */
REEF_MUST_CHECK reef_status reef_text_confirm_switch(reef_trainer *trainer,
                                                     size_t pieces,
                                                     reef_kind_decision *decision,
                                                     bool *confirmed,
                                                     reef_error *err);

/**
 * What is strange to the current kind begins a new one, or waits for more of it, or is known.
 *
 * decision  NEW; becomes DEFER, CURRENT or SWITCH where the text says so
 *
 * Errors: as above.
 */
REEF_MUST_CHECK reef_status reef_text_judge_new(reef_trainer *trainer,
                                                size_t pieces,
                                                reef_kind_decision *decision,
                                                reef_error *err);

/**
 * Is a text that a small kind learned of a much larger one? Of one to which it costs no more than
 * its own usually does, and least of those that learned last.
 *
 * kind  that learned it, other than the current one
 * text  (count) at least a byte
 * into  written where `found`
 *
 * Candidates of what is deferred are forgotten. Errors: NO_MEMORY, IO, CORRUPT a kind's memory
 * cannot be read.
 */
REEF_MUST_CHECK reef_status reef_text_find_larger(reef_trainer *trainer,
                                                  uint32_t kind,
                                                  const uint8_t *text,
                                                  size_t count,
                                                  uint32_t *into,
                                                  bool *found,
                                                  reef_error *err);

#endif
