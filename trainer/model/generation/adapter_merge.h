// A generation's corrections of the backbone, added up with it once: what evaluation multiplies
// with on tokens that one generation answers. So corrections cost nothing per token, whatever their
// rank.
#ifndef REEF_ADAPTER_MERGE_H
#define REEF_ADAPTER_MERGE_H

#include "reef_model.h"

/** The backbone's matrices plus one generation's corrections; NULL if it has none to add. */
typedef struct reef_merged {
    float *memory;                          // owned; NULL: not made
    bool fresh;                             // made from the parameters as they are
    float *w_qkv[REEF_LAYER_COUNT_MAX];     // (D, 3*D)
    float *w_out[REEF_LAYER_COUNT_MAX];     // (D, D)
    float *w_ffw_in[REEF_LAYER_COUNT_MAX];  // (D, F)
    float *w_ffw_out[REEF_LAYER_COUNT_MAX]; // (F, D)
    float *head;                            // (D, V)
} reef_merged;

struct reef_generation;

/** Make what is not fresh. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_merged_make(struct reef_generation *generation,
                                             const struct reef_generation *base,
                                             const reef_config *config,
                                             reef_error *err);
void reef_merged_release(reef_merged *merged); // accepts the zeroed one

#endif
