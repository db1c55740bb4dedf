// A small kind that was an odd passage of a much larger one is merged by itself once it is sealed:
// the larger one learns its text, and answers for both.
#ifndef REEF_MERGE_SMALL_H
#define REEF_MERGE_SMALL_H

#include "trainer_internal.h"

/**
 * A generation was sealed. If it began a small kind without a name, whose text is of a much larger
 * one (reef_text_find_larger), that one learns it and answers for both from here on. The
 * state as of the generation stays as it is. Does nothing where contexts do not decide.
 *
 * Errors: NO_MEMORY, IO, CORRUPT: nothing was merged, or the trainer is broken.
 */
REEF_MUST_CHECK reef_status reef_kind_merge_small(reef_trainer *trainer,
                                                  uint32_t kind,
                                                  reef_error *err);

#endif
