// The kernel for dot products of bytes with instructions of AVX2 in their place, so that it is
// tested where no processor has them.
#include "emulated_dot4.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define DOT4_SCORES emulated_dot4_scores

#include "coarse_vec256.h"

// Four products of a lane, by words: those of bytes in pairs could saturate.
static inline vec vec_dot4(vec sum, vec query, vec keys) {
    __m256i half[2];
    half[0] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(query)),
                                _mm256_cvtepi8_epi16(_mm256_castsi256_si128(keys)));
    half[1] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(query, 1)),
                                _mm256_cvtepi8_epi16(_mm256_extracti128_si256(keys, 1)));
    const __m256i fours = _mm256_hadd_epi32(half[0], half[1]);
    return _mm256_add_epi32(sum, _mm256_permute4x64_epi64(fours, 0xd8));
}

#include "coarse_dot4.h"
#endif
