// What users type and no program takes: commands, options and settings that are gone, each with
// what does its work now; and misspelt ones, with what they were meant to be. Shared by all that
// take words, so that `reef`, `reefd` and libreef answer alike.
#ifndef REEF_GONE_H
#define REEF_GONE_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>

/** One name that was taken once. */
typedef struct reef_gone {
    const char *name; // "snapshot diff", "train --flops", or for every program "--ridge"
    const char *now;  // what does it now, a clause; NULL: nothing does
} reef_gone;

REEF_API const reef_gone *reef_gone_all(size_t *count);
/**
 * Report that `option` of `command` is gone, and what does its work now.
 *
 * command  of `reef` ("snapshot diff"), "reefd", or NULL: a field of a configuration
 * option   without its dashes, '_' is '-'; NULL: the command itself, or its first word, is gone
 * err      filled only if it is: status INVALID
 *
 * Returns whether it is gone.
 */
REEF_API bool reef_gone_report(const char *command, const char *option, reef_error *err);

/**
 * Letters to insert, remove, replace or swap to get from one word to the other; of long words the
 * first 64.
 */
REEF_API size_t reef_edit_distance(const char *word, const char *other);

/**
 * Names are offered one after the other: *guess, NULL at first, becomes the nearest that differs in
 * at most half of the word's letters.
 */
REEF_API void reef_guess(const char *word, const char *name, const char **guess);

#endif
