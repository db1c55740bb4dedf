// What scoring and fitting a gate share: where the weight of an n-gram lies, and one step of the mean.
#ifndef REEF_GATE_H
#define REEF_GATE_H

#include "reef_router.h"

#include <math.h>

// Where the weight of an n-gram lies is part of the pool's format: a sealed gate reads the same for
// ever. In row n - 1 of the weights, with the newest byte of the n-gram in the low byte of its key:
//
//   n = 1, 2   bucket = key
//   n = 3      bucket = upper 16 bits of key * 2654435769 (mod 2^32)
//   n = 4      bucket = upper 16 bits of key * 2246822507 (mod 2^32)

/** The last four bytes of a stream, newest in the low byte, and how many of them are there. */
typedef struct reef_recent {
    uint32_t bytes;
    uint32_t count;
} reef_recent;

static inline void reef_recent_push(reef_recent *recent, uint8_t byte) {
    recent->bytes = recent->bytes << 8 | byte;
    if (recent->count < REEF_GATE_ORDERS) recent->count++;
}

// Orders 1 and 2 have a bucket for every value. Orders 3 and 4 take the upper half of a product with an
// odd constant (2^32 / golden ratio; the first multiplier of MurmurHash3's finaliser), which every
// byte of the key reaches.
static inline uint32_t reef_recent_buckets(const reef_recent *recent,
                                           uint32_t bucket[REEF_GATE_ORDERS]) {
    uint32_t bytes = recent->bytes;
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

// The start of a stream counts like this many tokens of old data. Over 14 pairs of held-out texts, decay
// 0.995, 64, 16 and 8 let the first 72, 20 and 10 bytes of a new text pass, 4 the first 5; over old texts cut
// into pieces of 1 KiB, each read from its start, they leak 0.002, 0.005, 0.011 and 0.03 %.
#define REEF_GATE_PRIOR 8.0f

/** What a byte says: its logit, and where the gate has a weight for it the older model's surprise. */
static inline float reef_gate_evidence(const reef_gate *gate, float logit, float surprise) {
    if (!(gate->loss_weight > 0.0f) || isnan(surprise)) return logit;
    return logit + gate->loss_weight * (surprise - gate->loss_reference);
}

/** The causal mean of a stream's logits on its way. */
typedef struct reef_gate_mean {
    float mean;
    uint32_t count; // tokens since the start, until the mean's memory is full
} reef_gate_mean;

/** Take one more logit in: as 1 of prior + tokens so far, later as 1 - decay. */
static inline float reef_gate_mean_push(reef_gate_mean *m, float prior, float memory, float logit) {
    float share = 1.0f / (prior + (float)m->count + 1.0f);
    if (share > memory) m->count++; // still young; no need to count on
    m->mean += (share > memory ? share : memory) * (logit - m->mean);
    return m->mean;
}

#endif
