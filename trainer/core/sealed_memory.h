// The size of a sealed generation's context memory.
#ifndef REEF_SEALED_MEMORY_H
#define REEF_SEALED_MEMORY_H

#include "trainer_internal.h"

/** Bytes of its records, without a copy. Errors: IO. */
REEF_MUST_CHECK reef_status reef_sealed_memory_bytes(const reef_trainer *trainer,
                                                     const reef_generation *sealed,
                                                     uint64_t *out,
                                                     reef_error *err);

#endif
