// Records of a pool as JSON: the same fields on the command line, the socket and HTTP.
#ifndef REEF_POOL_JSON_H
#define REEF_POOL_JSON_H

#include "reef_kinds.h"
#include "reef_snapshot.h"
#include "reef_store.h"
#include "reef_trainer.h"
#include "reef_usage.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Experts of a generation in all layers of a model with `peer_layers` of them. */
uint64_t reef_generation_experts(const reef_generation_record *generation, uint32_t peer_layers);
/** What an open generation does not have yet is null. */
json_t *reef_generation_json(const reef_generation_record *generation, uint32_t peer_layers);
/** Statistics of a context memory. */
json_t *reef_memory_stats_json(const reef_memory_stats *stats);
/** What each input of its mixer was worth: an array of name, share and hits. */
json_t *reef_memory_inputs_json(const double *shares, const double *hits);
/** One kind; a name that it has not is null, and so is a loss that is not known. */
json_t *reef_kind_json(const reef_kind_facts *kind);
/** All of them: an array. */
json_t *reef_kind_list_json(const reef_kind_list *list);
json_t *reef_kind_visit_json(const reef_kind_visit *visit);
/** The visits of one kind: an array, oldest first. */
json_t *reef_kind_visits_json(const reef_kind_list *list, uint32_t kind);
json_t *reef_snapshot_json(const reef_snapshot *snapshot);
json_t *reef_commit_json(const reef_commit *commit);
/** How far the present pass has come, and what the last one found; null before that. */
json_t *reef_scrub_json(const reef_scrub *scrub);

// ---- usage_json.c -------------------------------------------------------------------------------
//
// Usage of one layer of one generation: the same fields on the command line and over HTTP.

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
json_t *reef_usage_layer_json(uint32_t index, const reef_usage_layer *layer, bool ranged);

// ---- parts of replies ---------------------------------------------------------------------------

/** {"error": {"status": ..., "message": ...}} */
json_t *reef_reply_error(const reef_error *err);

/** "root": the hash in hexadecimal. */
void reef_json_set_root(json_t *object, const uint8_t root[REEF_HASH_BYTES]);

#endif
