// What can be asked of the query thread: scores and continuations of a committed state, records of
// the pool, sums for its operator, and forgetting.
#ifndef REEF_QUERIES_H
#define REEF_QUERIES_H

#include "query_thread.h"

// ---- query_scores.c -----------------------------------------------------------------------------

/** A whole number from the query, where numbers are text, from `least` to `most`; else INVALID. */
reef_status reef_query_count(const reef_query *query,
                             const char *name,
                             uint64_t fallback,
                             uint64_t least,
                             uint64_t most,
                             uint64_t *out,
                             reef_error *err);

/** Body: text. Arguments: as_of, per_byte. */
reef_status reef_query_score(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Body: JSON, a prompt and how to continue it. */
reef_status reef_query_generate(reef_query_thread *queries, reef_query *query, reef_error *err);

reef_status reef_query_generations(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Arguments: visits, the newest so many. */
reef_status reef_query_kinds(reef_query_thread *queries, reef_query *query, reef_error *err);
reef_status reef_query_snapshots(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Arguments: last. */
reef_status reef_query_timeline(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Arguments: points, from, to. */
reef_status reef_query_series(reef_query_thread *queries, reef_query *query, reef_error *err);

// ---- query_stats.c ------------------------------------------------------------------------------

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

// ---- query_forgetting.c: the matrix that forgetting is read from, of a sample of the reservoir ---

/**
 * The matrix as far as it is known. A request spends a bounded time on it, so `complete` may be
 * false, and the next one continues. A complete matrix is kept, and measured again when the pool
 * has changed: at most a twentieth of the time, or a fifth after a seal.
 */
reef_status reef_query_forgetting(reef_query_thread *queries, reef_query *query, reef_error *err);
/**
 * The model of a row ends its read; one that nobody has asked on for a while is closed. Accepts
 * NULL.
 */
void reef_forgetting_unpin(reef_forgetting *forgetting);
void reef_forgetting_free(reef_forgetting *forgetting); // accepts NULL

#endif
