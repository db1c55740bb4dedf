// The kernel for dot products of bytes with instructions of AVX2 in their place, so that it is
// tested where no processor has them. Exact, because bytes of keys are at most 64 in size.
#include "emulated_dot4.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define DOT4_SCORES emulated_dot4_scores

#include "coarse_vec256.h"

static inline vec vec_dot4(vec sum, vec query, vec keys) {
    const __m256i pairs = _mm256_maddubs_epi16(query, keys);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "coarse_dot4.h"
#endif
