// How rare something is, in bits, the same on every machine: the library's logarithms differ in
// their last bit, and what is judged is part of a pool's state.
#ifndef REEF_RARE_BITS_H
#define REEF_RARE_BITS_H

#include <math.h>

/** Logarithm to the base 2, rounded down to 1/4096, of a number above 0. */
static inline double reef_log2_down(double x) {
    int whole;
    // From 1 to below 2. Squaring doubles the logarithm: its next bit is whether 2 was reached.
    double part = 2.0 * frexp(x, &whole), log = (double)(whole - 1);
    for (double bit = 0.5; bit >= 1.0 / 4096.0; bit /= 2.0) {
        part *= part;
        if (part < 2.0) continue;
        part /= 2.0;
        log += bit;
    }
    return log;
}

#endif
