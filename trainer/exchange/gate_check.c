// See gate_check.h.
#include "gate_check.h"

#include <stdlib.h>

// Margins over the windows of the reservoir that one generation was trained on, in the order of
// their slots: chained, since evidence takes longer to add up than a window is long.
static size_t score_generation(const reef_reservoir *reservoir,
                               const reef_gate *gate,
                               uint32_t generation,
                               float *margins) {
    size_t count = 0;
    reef_gate_state state;
    reef_gate_reset(gate, &state);
    for (size_t slot = 0; slot < reservoir->old_slots; slot++) {
        size_t size = reservoir->sizes[slot] / reservoir->token_bytes;
        // Slots of other generations are skipped without resetting the gate: text of the same
        // generation is read as one stream.
        if (size == 0 || reservoir->generations[slot] != generation) continue;
        reef_gate_score(gate, &state, size, reservoir->bytes + slot * reservoir->window_bytes,
                        margins + count);
        count += size;
    }
    return count;
}

static size_t score_all(const reef_reservoir *reservoir,
                        const reef_generation *generation,
                        float *margins) {
    size_t count = 0;
    for (uint32_t g = 0; g < generation->info.generation; g++)
        count += score_generation(reservoir, &generation->gate, g, margins + count);
    return count;
}

static double share_above(size_t count, const float *margins, float bound) {
    size_t fired = 0;
    for (size_t t = 0; t < count; t++) fired += margins[t] > bound;
    return (double)fired / (double)count; // NaN without a measurement
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

reef_status reef_import_gate(const reef_reservoir *reservoir,
                             reef_generation *generation,
                             double leak_max,
                             double *before,
                             double *after,
                             reef_error *err) {
    float *margins = calloc(reservoir->old_slots * reservoir->window_bytes + 1, sizeof(*margins));
    if (margins == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to measure the gate of a generation");
    size_t count = score_all(reservoir, generation, margins);
    *before = *after = share_above(count, margins, 0.0f);
    if (leak_max > 0.0 && *before > leak_max) {
        // The threshold is raised to the margin that a share of `leak_max` exceeds. Sorted in
        // descending order, that margin stands at index leak_max * count.
        qsort(margins, count, sizeof(*margins), descending);
        float raise = margins[(size_t)(leak_max * (double)count)];
        *after = share_above(count, margins, raise);
        // Margins are measured from the old threshold, so the raise is added to it. Detection falls
        // as leaking does; the caller reports both.
        generation->gate.threshold += raise;
        generation->gate_leak = (float)*after;
    }
    free(margins);
    return REEF_OK;
}
