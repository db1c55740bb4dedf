// What trainings that learn apart give each other, beside sealed generations
// (reef_generation_extract, reef_trainer_import): the text that a kind learned when it came back.
//
// A generation that was sealed never changes, so what its kind learns later is no part of its file.
// It is a function of text, though: another pool whose copy of the kind learns the same text knows
// it too. A kind's memory keeps the end of its text, so of a long visit only the end can be given.
//
// Threads and errors: see reef_trainer.h.
#ifndef REEF_EXCHANGE_H
#define REEF_EXCHANGE_H

#include "reef_trainer.h"

/**
 * Can its generations be exported, and those of others imported?
 *
 * Errors: INVALID a layer, generations that
 * build on more than the first one, or the first one is open.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_exchange_check(const reef_trainer *trainer,
                                                                 reef_error *err);

/** Bytes that were accepted of all sources, ever. */
REEF_API uint64_t reef_trainer_accepted(const reef_trainer *trainer);

/**
 * Before an exchange: train as far as the accepted bytes reach, seal the open generation if it has
 * trained anything, and commit. Twice is as once.
 *
 * Errors: FULL experts_max leaves no room for another generation; those of training.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_exchange_seal(reef_trainer *trainer,
                                                                reef_error *err);

/**
 * The kind that goes on for this one: itself, or what it was merged into. False: it is no kind, or
 * open.
 */
REEF_API bool reef_trainer_kind_goes_on(const reef_trainer *trainer, uint32_t kind, uint32_t *out);

/** Bytes that a kind has learned in all, if it has come back; else 0. */
REEF_API uint64_t reef_trainer_kind_returned(const reef_trainer *trainer, uint32_t kind);
/** Bytes that it had learned when its generation was sealed; 0 without a context memory. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kind_sealed_bytes(const reef_trainer *trainer,
                                                                    uint32_t kind,
                                                                    uint64_t *out,
                                                                    reef_error *err);
/** Has its generation nothing that others could use: no text was learned while it was open? */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kind_is_empty(const reef_trainer *trainer,
                                                                uint32_t kind,
                                                                bool *out,
                                                                reef_error *err);
/** False: nothing was counted yet, or contexts do not decide about kinds in this pool. */
REEF_API bool reef_trainer_kind_level(const reef_trainer *trainer,
                                      uint32_t kind,
                                      reef_kind_level *out);
/** "": it has none. Good until a kind is named. */
REEF_API const char *reef_trainer_kind_name_of(const reef_trainer *trainer, uint32_t kind);

/**
 * The last `count` bytes that a kind has learned, or as many of them as its memory keeps.
 *
 * out  written; on the heap, the caller's
 * got  written; how many
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kind_text(reef_trainer *trainer,
                                                            uint32_t kind,
                                                            uint64_t count,
                                                            uint8_t **out,
                                                            size_t *got,
                                                            reef_error *err);

/**
 * A sealed kind learns a text that is not of this stream, and the trainer commits. After an error
 * but that of a commit only reef_trainer_close is allowed.
 *
 * origin  what the timeline says of it; letters, digits and punctuation without quotes
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kind_learn(reef_trainer *trainer,
                                                             uint32_t kind,
                                                             const uint8_t *bytes,
                                                             size_t count,
                                                             const char *origin,
                                                             reef_error *err);

#endif
