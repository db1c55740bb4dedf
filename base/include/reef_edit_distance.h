// Words that were typed: what a misspelt one was meant to be. Shared by all that take words: names
// of settings, options, commands.
#ifndef REEF_EDIT_DISTANCE_H
#define REEF_EDIT_DISTANCE_H

#include "reef_error.h"

#include <stddef.h>

/**
 * Letters to insert, remove, replace or swap to get from one word to the other; of long words the
 * first 64.
 */
REEF_API size_t reef_edit_distance(const char *word, const char *other);

#endif
