// Records of a pool as JSON: the same fields on the command line, the socket and HTTP.
#ifndef REEF_POOL_JSON_H
#define REEF_POOL_JSON_H

#include "reef_kinds.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <jansson.h>

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
/** What merging two kinds costs. */
json_t *reef_kind_merging_json(const reef_kind_merging *merging);
json_t *reef_snapshot_json(const reef_snapshot *snapshot);

/**
 * Append every event of the timeline to the array `events`, oldest first; what a restore undid has
 * a member "undone", true. CORRUPT an event that is not JSON.
 */
REEF_MUST_CHECK reef_status reef_timeline_json(reef_txn *txn, json_t *events, reef_error *err);

/**
 * What a check of a pool found.
 *
 * pool, damage  the pool's name and the list of what is damaged, as JSON; both references are taken
 * percent       of the sealed records that were to be hashed
 */
json_t *reef_check_json(json_t *pool,
                        const reef_check_options *options,
                        const reef_check_report *report,
                        json_t *damage,
                        double percent,
                        double seconds);

/** Layers of a model that have experts. */
uint32_t reef_config_peer_layers(const reef_config *config);

#endif
