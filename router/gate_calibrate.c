// How long a gate remembers, and from which mean on it fires.
//
// A long memory averages odd passages away, and is slow: it takes as many bytes to notice that a
// stream has changed, and as many to notice that it has changed back. So the memory is as short as
// the two kinds of data allow, judged on data that was not fitted.
#include "gate_internal.h"

#include <math.h>
#include <string.h>

// Memories of 50, 100, 200 and 500 bytes. Three chains of domains (14 gates), held-out text; fixed
// memories were measured with windows in the order of domains, the last two rows with scattered
// ones:
//
//   decay      leak %   missed %   bytes to fire    bytes to fall silent
//                                  after a switch   after a switch back
//   0.96       0.128       3.0           21                 17
//   0.98       0.086       1.0           39                 35
//   0.99       0.016       0.55          74                 68
//   0.995      0.004       0.24         155                128
//   0.998      0.000       0.09         420                228
//   0.995      0.010       0.18         150                130
//   chosen     0.007       0.13         116                 72
//
// 0.96 is not among them: where it would do, 0.98 loses some ten bytes a switch, and keeps a
// distance.
static const float DECAYS[] = {0.98f, 0.99f, 0.995f, 0.998f};
#define DECAY_COUNT (sizeof(DECAYS) / sizeof(DECAYS[0]))
#define DECAY_DEFAULT 0.995f // where nothing can be judged

#define LEAK_SHARE 0.02 // a memory is long enough when this share of leak_max leaks, half way,
#define MISS_MAX 0.002 // and of unseen new data, once a stream has settled in it, no more is missed
#define NEW_QUANTILE 0.01 // of the settled means of new windows: where new data "is"
#define HALF_WAY 0.5

reef_gate_reading reef_gate_read(const reef_gate *gate,
                                 const reef_gate_windows *windows,
                                 bool chained,
                                 float *logits) {
    reef_recent recent = {0};
    size_t count = 0;
    for (size_t i = 0; i < windows->count; i++) {
        // Windows read apart start without context, as a stream does.
        if (!chained) recent = (reef_recent){0};
        for (size_t t = 0; t < windows->sizes[i]; t++) {
            uint32_t token = windows->bytes[i][t];
            reef_recent_push(&recent, token);
            logits[count++] = reef_gate_logit(gate, &recent);
        }
    }
    return (reef_gate_reading){.count = count, .logits = logits, .apart = chained ? NULL : windows};
}

static void stream_means(
    const reef_gate *gate, const reef_gate_reading *reading, size_t at, size_t end, float *means) {
    reef_gate_mean mean = {gate->start, 0};
    float memory = 1.0f - gate->decay;
    for (size_t t = at; t < end; t++)
        means[t] = reef_gate_mean_push(&mean, gate->prior, memory, reading->logits[t]);
}

void reef_gate_means(const reef_gate *gate, const reef_gate_reading *reading, float *means) {
    if (reading->apart == NULL) {
        stream_means(gate, reading, 0, reading->count, means);
        return;
    }
    size_t at = 0;
    for (size_t i = 0; i < reading->apart->count; i++) {
        stream_means(gate, reading, at, at + reading->apart->sizes[i], means);
        at += reading->apart->sizes[i];
    }
}

// ---- quantiles ----------------------------------------------------------------------------------

static void swap_floats(float *a, float *b) {
    float kept = *a;
    *a = *b;
    *b = kept;
}

// The value that would stand at `rank` if `values` were sorted upwards; reorders them (Hoare's
// FIND).
static float value_at_rank(size_t count, float *values, size_t rank) {
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t i = low, j = high;
        // The middle value, so that sorted input takes linear time too.
        float pivot = values[low + (high - low) / 2];
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i > j) break;
            swap_floats(&values[i++], &values[j]);
            if (j == 0) break; // i is beyond it now
            j--;
        }
        if (rank <= j)
            high = j;
        else if (rank >= i)
            low = i;
        else
            break; // between the parts: equal to the pivot
    }
    return values[rank];
}

float reef_upper_quantile(size_t count, float *values, double share) {
    // Rounded down: never more than `share` of the values lie above the result.
    size_t above = (size_t)((double)count * share);
    return value_at_rank(count, values, above < count ? count - 1 - above : 0);
}

double reef_share_above(size_t count, const float *values, float threshold) {
    size_t above = 0;
    for (size_t i = 0; i < count; i++) above += values[i] > threshold;
    return count > 0 ? (double)above / (double)count : 0;
}

// ---- calibration --------------------------------------------------------------------------------

// The threshold that old data asks for.
static float leak_threshold(const reef_gate *gate, const reef_gate_views *views, float leak_max) {
    float most = -INFINITY;
    for (size_t i = 0; i < 2; i++) {
        reef_gate_means(gate, &views->old[i], views->means);
        // Read apart and chained; the threshold must hold in both, so the higher bound counts.
        float bound = reef_upper_quantile(views->old[i].count, views->means, (double)leak_max);
        if (bound > most) most = bound;
    }
    return most;
}

static double leak_of(const reef_gate *gate, const reef_gate_views *views) {
    double most = 0;
    for (size_t i = 0; i < 2; i++) {
        reef_gate_means(gate, &views->old[i], views->means);
        double leak = reef_share_above(views->old[i].count, views->means, gate->threshold);
        if (leak > most) most = leak;
    }
    return most;
}

// The means of a reading where the stream has settled in it: after two time constants of the mean,
// or in the later half of a window that is shorter. Moved to the front of `means`; returns how many
// they are.
static size_t settled_means(const reef_gate *gate, const reef_gate_reading *reading, float *means) {
    size_t settling = (size_t)ceil(2.0 / (1.0 - (double)gate->decay)), kept = 0, at = 0;
    reef_gate_means(gate, reading, means);
    if (reading->apart == NULL) {
        kept = reading->count > settling ? reading->count - settling : 0;
        // A chained reading settles once, at its start.
        memmove(means, means + (reading->count - kept), kept * sizeof(*means));
        return kept;
    }
    for (size_t i = 0; i < reading->apart->count; i++) {
        size_t size = reading->apart->sizes[i], first = size / 2 < settling ? size / 2 : settling;
        memmove(means + kept, means + at + first, (size - first) * sizeof(*means));
        kept += size - first;
        at += size;
    }
    return kept;
}

// The mean that all but 1 % of the tokens of new data exceed, once a stream has settled in it, in
// the reading in which it is lower. -INFINITY when the windows do not reach so far.
static float settled_mean(const reef_gate *gate, const reef_gate_reading new[2], float *means) {
    float least = INFINITY;
    for (size_t i = 0; i < 2; i++) {
        size_t count = settled_means(gate, &new[i], means);
        float low = count > 0 ? reef_upper_quantile(count, means, 1.0 - NEW_QUANTILE) : -INFINITY;
        if (low < least) least = low;
    }
    return least;
}

// The share of new data that the gate misses once a stream has settled in it.
static double missed_share(const reef_gate *gate, const reef_gate_reading new[2], float *means) {
    double most = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t count = settled_means(gate, &new[i], means);
        double missed = 1.0 - reef_share_above(count, means, gate->threshold);
        if (missed > most) most = missed;
    }
    return most;
}

// The share is how far new data that was not fitted stays above old data, of what the fitted
// windows show. Fitted windows flatter: with 24 KiB of Python after Wikipedia the distance on other
// Python files is 0.29 of it. One pass over the first half, judged on the second, comes out at 0.6
// there, and between 0.4 and 1 for other pairs.
static reef_gate_calibration try_decay(reef_gate *gate,
                                       const reef_gate_views *views,
                                       float decay,
                                       float leak_max) {
    reef_gate_calibration calibration = {.decay = decay};
    gate->decay = decay;
    // Old data bounds the threshold from below; the rest of this function looks for room above it.
    float old = leak_threshold(gate, views, leak_max);
    float seen = settled_mean(gate, views->seen, views->means);
    float unseen = settled_mean(gate, views->unseen, views->means);
    // No room: new data does not stay above old data. The share stays 0.
    if (!(unseen > old) || !(seen > old)) return calibration;
    calibration.share =
        unseen < seen ? ((double)unseen - (double)old) / ((double)seen - (double)old) : 1;
    gate->threshold = old + (float)(HALF_WAY * calibration.share * ((double)seen - (double)old));
    calibration.leak = leak_of(gate, views);
    double missed = missed_share(gate, views->unseen, views->means);
    calibration.separates = calibration.leak <= LEAK_SHARE * (double)leak_max && missed <= MISS_MAX;
    reef_gate_means(gate, &views->unseen[1], views->means);
    calibration.detect = reef_share_above(views->unseen[1].count, views->means, gate->threshold);
    return calibration;
}

reef_gate_calibration reef_gate_try(reef_gate *gate, const reef_gate_views *views, float leak_max) {
    reef_gate_calibration best = {.decay = DECAY_DEFAULT};
    // Ascending, so the first that separates is the shortest memory.
    for (size_t i = 0; i < DECAY_COUNT && !best.separates; i++) {
        reef_gate_calibration calibration = try_decay(gate, views, DECAYS[i], leak_max);
        if (calibration.share > 0) best = calibration; // the longest, when none of them will do
    }
    gate->decay = best.decay;
    return best;
}

double reef_gate_calibrate(reef_gate *gate,
                           const reef_gate_views *views,
                           double share,
                           float leak_max) {
    gate->threshold = leak_threshold(gate, views, leak_max);
    float settled = settled_mean(gate, views->seen, views->means);
    // Half way to where new data really is. What the reservoir did not sample scores a little
    // higher than what it did: a domain that is 8 KiB of a reservoir of 1 MiB leaks 0.1 % half way,
    // 1.2 % a quarter of the way (Python beside Wikipedia, the gate of Shakespeare, leak_max 0.5
    // %).
    if (share > 0 && settled > gate->threshold)
        gate->threshold += (float)(HALF_WAY * share * ((double)settled - (double)gate->threshold));
    return leak_of(gate, views);
}
