// See recent_losses.h. Sorting a copy costs microseconds beside a training step.
#include "recent_losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void reef_recent_losses_add(reef_recent_losses *recent, double bits) {
    recent->bits[recent->next] = bits;
    recent->next = (recent->next + 1) % REEF_RECENT_BATCHES;
    if (recent->count < REEF_RECENT_BATCHES) recent->count++;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double reef_recent_losses_median(const reef_recent_losses *recent) {
    double sorted[REEF_RECENT_BATCHES];
    uint32_t count = recent->count;
    if (count == 0) return (double)NAN;
    memcpy(sorted, recent->bits, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), ascending);
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}
