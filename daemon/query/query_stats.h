// Queries for the operator of a pool: usage of experts, gates, the file and its readers.
#ifndef REEF_QUERY_STATS_H
#define REEF_QUERY_STATS_H

#include "query_thread.h"

#define REEF_STATS_GENERATIONS_MAX 64 // the newest ones
#define REEF_STATS_KINDS_MAX 64       // those that learned last

/** Usage of one generation, as `reef usage --json`. Arguments: generation, layer, since, until. */
reef_status reef_query_usage(reef_query_thread *queries, reef_query *query, reef_error *err);

/**
 * For metrics: {"generations": [{"generation", "used_share", "unevenness", "leak"}], "kinds": as of
 * reef_kind_json, "file_bytes", "free_bytes", "readers", "reader_lag", "longest_read_s", "commit",
 * "took_s"}. What a generation does not have is null.
 */
reef_status reef_query_stats(reef_query_thread *queries, reef_query *query, reef_error *err);

#endif
