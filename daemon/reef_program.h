// What both programs do before anything else.
#ifndef REEF_PROGRAM_H
#define REEF_PROGRAM_H

#include "reef_error.h"

/**
 * Start the program again with faster matrix products, where OpenBLAS did not recognise the CPU.
 *
 * OpenBLAS chooses its kernels when it is loaded, by a list of CPUs; one that is newer than the library
 * gets AVX2 kernels although it has AVX-512. Only OPENBLAS_CORETYPE in the environment of a new process
 * changes that. Does nothing when the variable is set already, when REEF_ISA asks for less than AVX-512,
 * or when it cannot be done; then the program is right, but slower. Call first in main: the process
 * keeps its id and descriptors and begins anew.
 */
REEF_API void reef_program_prefer_fast_blas(char **argv);

/** Choose the kernels that REEF_ISA names; empty or unset: the best that this CPU runs. */
REEF_API REEF_MUST_CHECK reef_status reef_program_choose_kernels(reef_error *err);

#endif
