// What is usual to a kind: how familiar its own text was to it before it was learned, and what that
// text costs it. Both are counted as it learns, and are part of the trainer's state.
#ifndef REEF_KIND_LEVEL_H
#define REEF_KIND_LEVEL_H

#include "trainer_internal.h"

#include <jansson.h>

// Units of familiarity: a nat of them is a factor of e in the part of a text's contexts that is
// known, in one order of contexts.
#define REEF_FAMILIARITY_PER_NAT 369.0 // 256 / ln 2, rounded

/** Room for the levels of all kinds. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kind_levels_reserve(reef_trainer *trainer, reef_error *err);

/** Deviation of a piece of text from a kind's level, in spreads; negative: less familiar than its
 * own text. */
double reef_kind_level_deviation(const reef_kind_level *level, double familiarity);

/** A piece of the kind's own text was so familiar. */
void reef_kind_level_count(reef_kind_level *level, double familiarity);

/**
 * A batch of a kind's text was learned, at `bits` a byte: what costs far more may be of another
 * kind. Does nothing where contexts do not decide. Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_kind_level_count_bits(reef_trainer *trainer,
                                                       uint32_t kind,
                                                       double bits,
                                                       reef_error *err);

/** Bytes that a kind has learned, by what was counted. */
uint64_t reef_kind_level_learned(const reef_trainer *trainer, uint32_t kind);

/** The level of a kind that another pool has counted. NO_MEMORY. Nothing where contexts do not
 * decide. */
REEF_MUST_CHECK reef_status reef_kind_level_set(reef_trainer *trainer,
                                                uint32_t kind,
                                                const reef_kind_level *level,
                                                reef_error *err);
void reef_kind_level_forget(reef_trainer *trainer, uint32_t kind);

/** All levels: [[kind, pieces, mean, deviation, batches, bits, deviation of bits, recent bits],
 * ...]. */
json_t *reef_kind_levels_to_json(const reef_trainer *trainer);

/** Errors: NO_MEMORY, CORRUPT. */
REEF_MUST_CHECK reef_status reef_kind_levels_from_json(reef_trainer *trainer,
                                                       const json_t *levels,
                                                       reef_error *err);

void reef_kind_levels_release(reef_trainer *trainer);

#endif
