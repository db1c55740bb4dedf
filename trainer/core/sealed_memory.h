// The context memory of a sealed generation, for what a trainer makes of it. The trainer itself
// reads no text by it, and keeps none once the generation is stored.
#ifndef REEF_SEALED_MEMORY_H
#define REEF_SEALED_MEMORY_H

#include "trainer_internal.h"

/**
 * A copy into `out`, which has none, from the store or from the generation; nothing where it has no
 * memory. Errors: CORRUPT; NO_MEMORY; IO. Release `out`, after an error too.
 */
REEF_MUST_CHECK reef_status reef_sealed_memory_copy(reef_generation_memory *out,
                                                    const reef_trainer *trainer,
                                                    const reef_generation *sealed,
                                                    reef_error *err);

/** Bytes of its records, without a copy. Errors: IO. */
REEF_MUST_CHECK reef_status reef_sealed_memory_bytes(const reef_trainer *trainer,
                                                     const reef_generation *sealed,
                                                     uint64_t *out,
                                                     reef_error *err);

#endif
