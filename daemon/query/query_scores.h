// Queries for scores and continuations of a committed state, and for records of the pool. They run on
// the query thread.
#ifndef REEF_QUERY_SCORES_H
#define REEF_QUERY_SCORES_H

#include "query_thread.h"

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

#endif
