// What both kinds of chart need: round ticks, smoothing, boundaries.
#include "chart.h"
#include "cli_pool.h"

#include <math.h>
#include <stdlib.h>

#define SMOOTH_RADIUS 7 // points on either side of the median

double reef_chart_tick(double range, int ticks) {
    if (!(range > 0)) return 1;
    double raw = range / ticks, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double *reef_chart_smooth(const reef_point *points, size_t count) {
    double *smooth = reef_cli_alloc(count, sizeof(*smooth));
    for (size_t i = 0; i < count; i++) {
        // The neighbourhood shrinks towards the ends, so that the curve begins where the data
        // begin.
        size_t radius = i < count - 1 - i ? i : count - 1 - i;
        if (radius > SMOOTH_RADIUS) radius = SMOOTH_RADIUS;
        double near[2 * SMOOTH_RADIUS + 1];
        // A median, not a mean: one batch with a very high loss must not draw a hill of its own
        // width.
        for (size_t k = 0; k <= 2 * radius; k++)
            near[k] = (double)points[i - radius + k].bits_per_byte;
        qsort(near, 2 * radius + 1, sizeof(near[0]), by_value);
        smooth[i] = near[radius];
    }
    return smooth;
}

uint64_t *reef_chart_boundaries(const reef_cli_pool *pool, size_t *count) {
    *count = pool->generation_count - 1;
    uint64_t *positions = reef_cli_alloc(*count, sizeof(*positions));
    for (size_t g = 1; g < pool->generation_count; g++)
        positions[g - 1] = pool->generations[g].opened_at;
    return positions;
}
