// What scoring and fitting a gate share: where the weight of an n-gram lies, and one step of the
// mean.
#ifndef REEF_GATE_INTERNAL_H
#define REEF_GATE_INTERNAL_H

#include "reef_router.h"

#include <math.h>

// Where the weight of an n-gram lies is part of the pool's format: a sealed gate reads the same for
// ever. In row n - 1 of the weights, with the newest token of the n-gram in the low bits of its
// key:
//
// clang-format off
//   n=1   key
//   n=2   key
//   n=3   top32(key * 2654435769)
//   n=4   top32(key * 2246822507)
// clang-format on
//
// top32: the upper 16 bits of the product modulo 2^32.

/** The last four tokens of a stream, newest in the low bits, and how many of them are there. */
typedef struct reef_recent {
    uint32_t tokens, count;
} reef_recent;

static inline void reef_recent_push(reef_recent *recent, uint32_t token) {
    recent->tokens = recent->tokens << 8 | token;
    // Before four tokens there are fewer orders, not n-grams padded with zeros.
    if (recent->count < REEF_GATE_ORDERS) recent->count++;
}

// Keys of at most 16 bits have a bucket for every value. Of longer ones the upper bits of a product
// with an odd constant (2^32 / golden ratio; the first multiplier of MurmurHash3's finaliser),
// which every bit of the key reaches.
static inline uint32_t reef_recent_buckets(const reef_recent *recent,
                                           uint32_t bucket[REEF_GATE_ORDERS]) {
    uint32_t bytes = recent->tokens;
    bucket[0] = bytes & 0xffu;
    bucket[1] = REEF_GATE_BUCKETS + (bytes & 0xffffu);
    bucket[2] = 2 * REEF_GATE_BUCKETS + ((bytes & 0xffffffu) * 2654435769u >> 16);
    bucket[3] = 3 * REEF_GATE_BUCKETS + (bytes * 2246822507u >> 16);
    return recent->count;
}

static inline float reef_gate_logit(const reef_gate *gate, const reef_recent *recent) {
    uint32_t bucket[REEF_GATE_ORDERS];
    uint32_t orders = reef_recent_buckets(recent, bucket);
    float logit = gate->bias;
    for (uint32_t n = 0; n < orders; n++) logit += gate->weights[bucket[n]];
    return logit;
}

// The start of a stream counts like this many tokens of old data. Over 14 pairs of held-out texts,
// decay 0.995, 64, 16 and 8 let the first 72, 20 and 10 bytes of a new text pass, 4 the first 5;
// over old texts cut into pieces of 1 KiB, each read from its start, they leak 0.002, 0.005, 0.011
// and 0.03 %.
#define REEF_GATE_PRIOR 8.0f

/** The causal mean of a stream's logits on its way. */
typedef struct reef_gate_mean {
    float mean;
    uint32_t count; // tokens since the start, until the mean's memory is full
} reef_gate_mean;

/** Take one more logit in: as 1 of prior + tokens so far, later as 1 - decay. */
static inline float reef_gate_mean_push(reef_gate_mean *m, float prior, float memory, float logit) {
    // A mean over all tokens at first, later one that forgets: a stream may change.
    float share = 1.0f / (prior + (float)m->count + 1.0f);
    if (share > memory) m->count++; // still young; no need to count on
    m->mean += (share > memory ? share : memory) * (logit - m->mean);
    return m->mean;
}

// ---- from the logits of windows to a decay and a threshold: gate_calibrate.c --------------------

/**
 * Logits of windows, read in one of two ways. Apart, each from the start, as after a record
 * boundary: this is what short records see. Chained into one stream, as if each continued the one
 * before: windows are short against the memory of the mean, so only this shows the settled means
 * that long streams live with.
 */
typedef struct reef_gate_reading {
    size_t count;
    float *logits;                  // (count)
    const reef_gate_windows *apart; // the windows; NULL when they are chained
} reef_gate_reading;

/**
 * The reading that a gate sees; `logits` has room for every byte of the windows.
 */
reef_gate_reading reef_gate_read(const reef_gate *gate,
                                 const reef_gate_windows *windows,
                                 bool chained,
                                 float *logits);

/** means (count) is written: the causal mean after each byte, as reef_gate_score has it. */
void reef_gate_means(const reef_gate *gate, const reef_gate_reading *reading, float *means);

/** The data that calibration uses. */
typedef struct reef_gate_views {
    reef_gate_reading old[2];    // apart and chained; never fitted
    reef_gate_reading seen[2];   // new data that the gate was fitted to, in both readings
    reef_gate_reading unseen[2]; // and other new data; counts 0 if there is none
    float *means;                // scratch, as long as the longest
} reef_gate_views;

/** How well a gate of one decay does, with its threshold half way from old to new data. */
typedef struct reef_gate_calibration {
    float decay;
    double share;  // see reef_gate_try; 0: the new data does not stay above the old
    double leak;   // share of old bytes that fire
    double detect; // share of unseen new bytes that fire
    bool separates;
} reef_gate_calibration;

/**
 * Find the decay of a gate that was fitted to a part of the new data: the shortest memory that
 * separates old data from unseen new data. gate->decay is written.
 */
reef_gate_calibration reef_gate_try(reef_gate *gate, const reef_gate_views *views, float leak_max);

/**
 * Set the threshold of a gate that was fitted to all of the new data (views->seen) for its decay;
 * returns the share of old bytes that fire, in the reading in which more do.
 */
double reef_gate_calibrate(reef_gate *gate,
                           const reef_gate_views *views,
                           double share,
                           float leak_max);

/** The smallest value that at most `share` of the values exceed; reorders them. */
float reef_upper_quantile(size_t count, float *values, double share);
/** Share of the values above the threshold; 0 if there are none. */
double reef_share_above(size_t count, const float *values, float threshold);

#endif
