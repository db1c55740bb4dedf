// Which kind is a text of? Fixed share over the predictions of a few kinds.
//
// A byte's probability is the mean of what the running kinds give it, each weighed by how well it
// predicted before; with every byte a small share of all weight is dealt out again, so that another
// kind can take over within some bytes (Herbster and Warmuth 1998, "Tracking the best expert"). A
// change costs about log2(kinds / share) bits; there is nothing to calibrate.
//
// While one kind predicts as usual it runs alone. A surprise wakes others: they read the last bytes
// again, so that their weights are as if they had run all the time.
//
// Few are asked while a text is of one kind, and many where it changes: where all that it lately
// cost beyond what is usual has added up, whoever was asked in between.
//
// All of it is a function of the bytes and their order, however a text is cut into calls.
#ifndef REEF_POSTERIOR_H
#define REEF_POSTERIOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_RUNNING_MAX 8 // kinds at a time
#define REEF_REPLAY 16     // bytes that a kind reads again when it begins to run

/** Zeros: a text begins. */
typedef struct reef_posterior {
    size_t running;
    uint32_t kinds[REEF_RUNNING_MAX];
    double weights[REEF_RUNNING_MAX]; // before the next byte; their sum is 1
    size_t began;                     // kinds that ran from the first byte on
    uint64_t length;                  // of the text so far
    float bits[REEF_REPLAY];          // surprise of byte i of the text at i % REEF_REPLAY
    // When others are asked:
    double usual;    // surprise of a byte of the text
    double excess;   // of the last bytes, all beyond what is usual
    double patience; // excess that wakes others, beyond the least: it grows when that was in vain
    uint64_t woken;  // where others were woken last
    double change;   // excess that goes on where others are woken
    uint64_t change_from;  // byte where it began to rise
    bool changes;          // when others were woken last the text was changing,
    uint64_t changed_at;   // which was found there,
    uint64_t changed_from; // from this byte on
    size_t ran;            // then already: those in `before`
    uint32_t before[REEF_RUNNING_MAX];
} reef_posterior;

/**
 * Begin the next byte: drop kinds that had their chance and stay unlikely. Returns whether the last
 * bytes were so surprising that more kinds are to be tried from now on, for some time.
 */
bool reef_posterior_begin_byte(reef_posterior *posterior);

/** Bytes since that time, or since the text began. */
uint64_t reef_posterior_awake(const reef_posterior *posterior);

bool reef_posterior_runs(const reef_posterior *posterior, uint32_t kind);

/**
 * One more kind runs. After the last one that joins comes reef_posterior_joined. Where it is one
 * too many, the least likely of the others ends.
 *
 * bits  (count <= REEF_REPLAY) its surprise of each of the last `count` bytes
 */
void reef_posterior_join(reef_posterior *posterior, uint32_t kind, const float *bits, size_t count);

void reef_posterior_joined(reef_posterior *posterior);

/** Index in `kinds` of the likeliest kind of those that run. */
size_t reef_posterior_likeliest(const reef_posterior *posterior);

/**
 * A byte came. Returns its surprise, in bits.
 *
 * bits  (running) that of each kind
 */
double reef_posterior_read(reef_posterior *posterior, const float *bits);

#endif
