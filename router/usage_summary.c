// Usage figures: how many experts take part, and how evenly.
//
// What always holds: sums of scores are integers (fixed point), so they are exact in any order. A
// score may round to 0 in fixed point; an expert counts as used when it was chosen at all.
#include "reef_router.h"

#include <math.h>

// He 2024 section 3.3: z = z' / |z'|_1; unevenness = KL(z, uniform) = log N + sum z_i log z_i.
void reef_usage_summarise(size_t expert_count, const reef_usage *usage, reef_usage_summary *out) {
    *out = (reef_usage_summary){.expert_count = expert_count};
    double total = 0;
    for (size_t i = 0; i < expert_count; i++) {
        out->used_count += usage[i].count > 0 || usage[i].score > 0;
        out->selections += usage[i].count;
        // Exact below 2^53; beyond, the rounding is far below what is reported.
        total += (double)usage[i].score;
    }
    if (expert_count > 0)
        out->used_percent = 100.0 * (double)out->used_count / (double)expert_count;
    if (total == 0) return; // no distribution to speak of

    double sum = 0;
    for (size_t i = 0; i < expert_count; i++) {
        double z = (double)usage[i].score / total;
        // z log z goes to 0 with z.
        if (z > 0) sum += z * log(z);
    }
    out->unevenness = fmax(0, log((double)expert_count) + sum); // rounding may end below 0
}
