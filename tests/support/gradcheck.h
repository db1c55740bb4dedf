// Central differences against an analytic gradient: the proof that a backward belongs to its
// forward.
//
// The error of an element is |a - n| / max(1, |a|, |n|), a analytic, n numeric, with n divided by
// the step that rounding really took. On unit-scale inputs a step of 1e-2 and a limit of 1e-3 work:
// a right kernel lands near 1e-5, a wrong coefficient in one term near 1e-2.
#ifndef GRADCHECK_H
#define GRADCHECK_H

#include <math.h>
#include <stddef.h>

#define GRADCHECK_STEP 1e-2f
#define GRADCHECK_LIMIT 1e-3

/**
 * The largest error over the D elements of `x`, which `loss(context)` reads and which is left as it
 * was. d_x is the analytic gradient of the loss at `x`. NaN anywhere gives infinity.
 */
static inline double gradcheck_error_max(size_t D,
                                         float *x,
                                         const float *d_x,
                                         float step,
                                         double (*loss)(void *context),
                                         void *context) {
    double worst = 0;
    for (size_t d = 0; d < D; d++) {
        const float middle = x[d];
        volatile float above =
            middle + step; // volatile: rounded to float, whatever the registers hold
        volatile float below = middle - step;
        x[d] = above;
        double loss_above = loss(context);
        x[d] = below;
        double loss_below = loss(context);
        x[d] = middle;

        double analytic = d_x[d];
        double numeric = (loss_above - loss_below) / ((double)above - (double)below);
        double size = fmax(1, fmax(fabs(analytic), fabs(numeric)));
        double error = fabs(analytic - numeric) / size;
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}

#endif
