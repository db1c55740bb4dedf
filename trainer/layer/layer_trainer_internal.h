// What the files of trainer/layer share with boundary_commands.c. Private to the trainer.
#ifndef REEF_LAYER_TRAINER_INTERNAL_H
#define REEF_LAYER_TRAINER_INTERNAL_H

#include "layer_internal.h"
#include "reef_layer_trainer.h"
#include "trainer_internal.h"

/** May the next generation have this side? INVALID a side that is none, FULL beyond experts_max. */
REEF_MUST_CHECK reef_status reef_layer_check_room(const reef_trainer *trainer,
                                                  uint64_t side,
                                                  reef_error *err);

/** INVALID: the pool's model is not a layer by itself. */
REEF_MUST_CHECK reef_status reef_layer_fail_other_model(const reef_trainer *trainer,
                                                        reef_error *err);

#endif
