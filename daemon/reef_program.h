// What both programs do before they compute anything.
#ifndef REEF_PROGRAM_H
#define REEF_PROGRAM_H

#include "reef_error.h"

/** Choose the kernels that REEF_ISA names; empty or unset: the best that this CPU runs. */
REEF_API REEF_MUST_CHECK reef_status reef_program_choose_kernels(reef_error *err);

#endif
