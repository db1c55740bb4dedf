// See reef_program.h. The environment is read here, by programs, never by libraries.
#include "reef_program.h"

#include "reef_kernels.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Kernels of OpenBLAS for CPUs that have AVX2 and no AVX-512.
static bool is_narrow(const char *core) {
    return strcmp(core, "Haswell") == 0 || strcmp(core, "Zen") == 0;
}

static const char *wanted_isa(void) {
    const char *isa = getenv("REEF_ISA");
    return isa != NULL && *isa != '\0' ? isa : NULL;
}

void reef_program_prefer_fast_blas(char **argv) {
    const char *isa = wanted_isa();
    if (isa != NULL && strcmp(isa, "avx512") != 0) return;
    if (getenv("OPENBLAS_CORETYPE") != NULL || !is_narrow(reef_gemm_name())) return;
    if (strcmp(reef_kernels_name(), "avx512") != 0)
        return; // the CPU's best, as nothing was chosen yet
    if (setenv("OPENBLAS_CORETYPE", "SkylakeX", 1) != 0) return;
    execv("/proc/self/exe", argv);
    // Without /proc we go on with what there is.
}

reef_status reef_program_choose_kernels(reef_error *err) {
    return reef_kernels_choose(wanted_isa(), err);
}
