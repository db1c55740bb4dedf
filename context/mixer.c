// See mixer.h.
#include "mixer.h"

#include "reef_kernels.h"

#include <string.h>

const reef_mix_kernels *reef_mix_kernels_chosen(void) {
#if defined(__x86_64__)
    // One choice for the whole program: that of the router's kernels.
    if (strcmp(reef_kernels_name(), "avx512") == 0) return &reef_mix_avx512;
    if (strcmp(reef_kernels_name(), "avx2") == 0) return &reef_mix_avx2;
#endif
    return &reef_mix_scalar;
}
