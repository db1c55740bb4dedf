// Logistic mixing: many predictions of one bit become one (Mahoney 2005).
//
// An input is the log odds of a prediction. A set of weights gives the log odds sum(w * input); it
// is chosen among many by a small context, and learns from its own error: w += rate * error *
// input. Several sets, each chosen by another context, run side by side, and a second, smaller
// mixer weighs what they say.
//
// Weights have 16 bits, 14 of them behind the point. All sums are of whole numbers, so that plain
// C, AVX2 and AVX-512 give the same bits in whatever order they add.
#ifndef REEF_MIXER_H
#define REEF_MIXER_H

#include <stddef.h>
#include <stdint.h>

#define REEF_INPUT_BLOCK 8 // predictions are padded with zeros to a multiple: half a vector
#define REEF_WEIGHT_ONE (1 << 14)

typedef struct reef_mix_kernels {
    const char *name;
    /** out[k] = sum over i of w[k][i] * in[i], rounded down pair by pair, in units of `in`. N is
     *  a multiple of 16 here and in train. */
    void (*dot)(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w);
    /** w[k][i] += in[i] * rate[k] / 2^15, rounded, saturating; rate is above -32768. */
    void (*train)(size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate);
} reef_mix_kernels;

extern const reef_mix_kernels reef_mix_scalar;
#if defined(__x86_64__)
extern const reef_mix_kernels reef_mix_avx2;
extern const reef_mix_kernels reef_mix_avx512;
#endif

/** Those of the instruction set that reef_kernels_choose has chosen. */
const reef_mix_kernels *reef_mix_kernels_chosen(void);

#endif
