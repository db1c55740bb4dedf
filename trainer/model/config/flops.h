// How often what is counted happens in a window; private to flops.c and its test.
#ifndef REEF_FLOPS_H
#define REEF_FLOPS_H

#include "reef_config.h"

/** (query, key) pairs whose products attention computes in one head over a window of T tokens. */
uint64_t reef_flops_attended(size_t T);
/** Embedding rows that are added up in one window: a token has fewer before it at its beginning. */
uint64_t reef_flops_embedded(const reef_config *config);

#endif
