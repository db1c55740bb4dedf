// Two kernels of AVX2 that AVX-512 has as well: their vectors are short, and gathering is slow.
#ifndef REEF_MIX_AVX2_H
#define REEF_MIX_AVX2_H

#include <stddef.h>
#include <stdint.h>

void reef_mix_inputs_avx2(size_t N,
                          int16_t *odds,
                          int16_t *distance,
                          const uint32_t *chance,
                          const uint8_t *history,
                          const int16_t *stretch);
void reef_mix_update_avx2(size_t N, uint32_t *chance, int bit, const int32_t *rates);

#endif
