// Coarse scores with the dot products of bytes of processors without AVX-512 (AVX-VNNI), eight keys
// at a time.
#include "coarse.h"

#include <immintrin.h>

#define DOT4_SCORES reef_coarse_scores_avxvnni

#include "coarse_vec256.h"

static inline vec vec_dot4(vec sum, vec query, vec keys) {
    return _mm256_dpbusd_avx_epi32(sum, query, keys);
}

#include "coarse_dot4.h"
