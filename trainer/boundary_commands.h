// Sealing of a language model by command: functions of trainer_ops.h.
#ifndef REEF_BOUNDARY_COMMANDS_H
#define REEF_BOUNDARY_COMMANDS_H

#include "trainer_internal.h"

REEF_MUST_CHECK reef_status reef_language_seal_check(reef_trainer *trainer,
                                                     const char *seal_dtype,
                                                     uint32_t *side,
                                                     reef_error *err);
REEF_MUST_CHECK reef_status reef_language_seal(reef_trainer *trainer,
                                               const char *seal_dtype,
                                               reef_sealing *out,
                                               reef_error *err);

#endif
