// A test program computes with the kernels that REEF_ISA names, as our programs do: numerics/run
// tries them all.
#include "reef_kernels.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose_kernels(void) {
    const char *isa = getenv("REEF_ISA");
    reef_error err;
    if (isa == NULL || *isa == '\0' || reef_kernels_choose(isa, &err) == REEF_OK) return;
    fprintf(stderr, "REEF_ISA: %s\n", err.message);
    exit(1);
}
