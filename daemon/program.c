// See reef_program.h. The environment is read here, by programs, never by libraries.
#include "reef_program.h"

#include "reef_kernels.h"

#include <stdlib.h>

reef_status reef_program_choose_kernels(reef_error *err) {
    const char *isa = getenv("REEF_ISA");
    return reef_kernels_choose(isa != NULL && *isa != '\0' ? isa : NULL, err);
}
