// Usage of one layer of one generation: the same fields on the command line and over HTTP.
#ifndef REEF_USAGE_JSON_H
#define REEF_USAGE_JSON_H

#include "reef_store.h"
#include "reef_trainer.h"
#include "reef_usage.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_USAGE_TOP 5          // experts listed for a layer
#define REEF_USAGE_DEAD 10        // dead ones listed
#define REEF_USAGE_BUCKETS_MAX 40 // 0, 1, 2-3, 4-7, ... selections

typedef struct reef_usage_layer {
    reef_usage_summary summary;
    uint32_t top[REEF_USAGE_TOP]; // ids, most used first
    double top_share[REEF_USAGE_TOP];
    size_t top_count;
    uint32_t dead[REEF_USAGE_DEAD]; // the first ids
    size_t dead_count;
    uint64_t buckets[REEF_USAGE_BUCKETS_MAX]; // 0: never chosen; b: chosen 2^(b-1) to 2^b - 1 times
    size_t bucket_count;
    reef_usage_range range;
    uint64_t before; // selections that are known in total only
} reef_usage_layer;

/** `range`: what time to count, or NULL for since ever. */
REEF_MUST_CHECK reef_status reef_usage_layer_read(reef_txn *txn,
                                                  const reef_generation_record *generation,
                                                  uint32_t layer,
                                                  const reef_usage_range *range,
                                                  reef_usage_layer *out,
                                                  reef_error *err);
/**
 * What each expert of a layer was used in a range of time; what is known in total only counts where
 * it has no beginning.
 *
 * usage   written: (experts of the generation) on the heap, also after an error; NULL where there
 *         was no memory
 * before  written: selections that are known in total only
 */
REEF_MUST_CHECK reef_status reef_usage_range_read(reef_txn *txn,
                                                  const reef_generation_record *generation,
                                                  uint32_t layer,
                                                  reef_usage_range *range,
                                                  reef_usage **usage,
                                                  uint64_t *before,
                                                  reef_error *err);
json_t *reef_usage_layer_json(uint32_t index, const reef_usage_layer *layer, bool ranged);

#endif
