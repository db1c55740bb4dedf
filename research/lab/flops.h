// What training a configuration costs, in FLOPs: see flops.c.
#ifndef REEF_LAB_FLOPS_H
#define REEF_LAB_FLOPS_H

#include "reef_config.h"

#include <stddef.h>
#include <stdint.h>

// name in code, name for people
#define REEF_FLOPS_PART_LIST(X)                                                                    \
    X(EMBEDDING, "embedding")                                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(DENSE, "dense")                                                                              \
    X(MOE, "moe")                                                                                  \
    X(PKM, "pkm")                                                                                  \
    X(PEER, "peer")                                                                                \
    X(ROUTER, "router")                                                                            \
    X(HEAD, "head")

typedef enum reef_flops_part {
#define REEF_FLOPS_ENUM(upper, name) REEF_FLOPS_##upper,
    REEF_FLOPS_PART_LIST(REEF_FLOPS_ENUM)
#undef REEF_FLOPS_ENUM
        REEF_FLOPS_PART_COUNT
} reef_flops_part;

/**
 * FLOPs of training on one window, all layers of a kind together; `router` is that of moe, pkm and
 * peer.
 */
typedef struct reef_flops {
    uint64_t forward[REEF_FLOPS_PART_COUNT], backward[REEF_FLOPS_PART_COUNT];
    uint64_t forward_window, backward_window; // their sums
    uint32_t window_tokens;                   // T, which they are divided by for
    double token;                             // FLOPs of training per token
    double step;                              // and per step: all windows
    uint64_t parameters;                      // that training moves
    uint64_t parameters_active; // and of those the ones that a token meets; of moe on average
} reef_flops;

/**
 * What training costs while generation 0 is open, formula by formula as in PAPER.md: a
 * multiply and an add are 2 FLOPs; norms, softmax, activations, loss and optimiser are not counted.
 * All zero for a vector model.
 */
void reef_flops_count(const reef_config *config, reef_flops *out);
const char *reef_flops_part_text(reef_flops_part part);

// How often what is counted happens in a window: for its test.

/** (query, key) pairs whose products attention computes in one head over a window of T tokens. */
uint64_t reef_flops_attended(size_t T);
/** Embedding rows that are added up in one window: a token has fewer before it at its beginning. */
uint64_t reef_flops_embedded(const reef_config *config);

#endif
