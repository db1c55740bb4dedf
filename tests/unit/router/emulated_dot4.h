// See emulated_dot4.c.
#ifndef EMULATED_DOT4_H
#define EMULATED_DOT4_H

#include "coarse.h"

void emulated_dot4_scores(const coarse_table *table,
                          size_t count,
                          const uint32_t *groups,
                          int16_t *scores,
                          size_t stride);

#endif
