// Queries that compute or read the pool, on a thread of their own, so that neither the loop nor
// training waits for them. While it is busy, scores of the present state are computed beside it by
// a few more threads, which share its model (query_twins.c).
//
// Replies come from a committed state, never from half-trained parameters. The model is opened on
// the first request, and opened again when a request follows a later commit, but at most so often
// that opening takes a tenth of the time: every reply names its commit.
#ifndef REEF_QUERY_THREAD_H
#define REEF_QUERY_THREAD_H

#include "reef_error.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define REEF_QUERY_QUEUE_MAX 64 // queries that wait; one more is refused

typedef struct reef_query_thread reef_query_thread;
typedef struct reef_forgetting reef_forgetting; // query_forgetting.c

typedef struct reef_query_thread_options {
    reef_store *store;
    size_t threads; // for arithmetic
    uint64_t memory_bytes;
    uv_async_t *wake; // sent when a query is done
} reef_query_thread_options;

/** Runs one query and writes `result`; the same thread then turns it into text. */
typedef struct reef_query reef_query;
typedef reef_status (*reef_query_run)(reef_query_thread *queries,
                                      reef_query *query,
                                      reef_error *err);

struct reef_query {
    reef_query_run run;
    char as_of[REEF_NAME_BYTES_MAX + 1]; // "now" or a state
    bool asks_now;    // it asks the model of now alone: another thread may run it beside others
    reef_model *lent; // by which it then answers; else NULL
    uint8_t *body;    // on the heap, the query's
    size_t body_bytes;
    json_t *arguments; // or NULL; the query's
    // the reply
    reef_error error;
    json_t *result;        // once done: for `on_done` only
    char *text;            // of the result otherwise; on the heap
    atomic_bool abandoned; // nobody waits for it
    atomic_bool unwanted;  // its client hung up: it is not begun any more
    // the loop's own
    void *owner; // who waits for it; NULL when they went away
    /**
     * Called when it is done, instead of replying to its owner, who makes no request then; NULL.
     */
    void (*on_done)(reef_query *query);
    reef_query *next;
};

void reef_query_free(reef_query *query); // accepts NULL

REEF_MUST_CHECK reef_status reef_query_thread_start(reef_query_thread **out,
                                                    const reef_query_thread_options *options,
                                                    reef_error *err);
/** Waits for the running query; those that wait are dropped. Accepts NULL. */
void reef_query_thread_stop(reef_query_thread *queries);
/** Hand a query over. BUSY when too many wait; the query is then still the caller's. */
REEF_MUST_CHECK reef_status reef_query_thread_submit(reef_query_thread *queries,
                                                     reef_query *query,
                                                     reef_error *err);
/** Queries that are submitted from now on are answered as of this commit or a later one. */
void reef_query_thread_expect(reef_query_thread *queries, uint64_t commit);
/** The queries done since the last call, as a list; the caller's. */
reef_query *reef_query_thread_replied(reef_query_thread *queries);

// ---- for queries, on the query thread -----------------------------------------------------------

reef_store *reef_query_thread_store(reef_query_thread *queries);
/**
 * The model of a state, the caller's to close; in exchange for an older one, see reef_model_reopen.
 */
REEF_MUST_CHECK reef_status reef_query_thread_open(reef_query_thread *queries,
                                                   const char *as_of,
                                                   reef_model **model,
                                                   reef_error *err);
/** What the thread remembers about forgetting from one query to the next. */
reef_forgetting **reef_query_thread_forgetting(reef_query_thread *queries);
/** The name of the state that the last model is of. */
const char *reef_query_thread_state(const reef_query_thread *queries);
/**
 * The model of a state, the thread's own until the next call. A query that a twin runs has `lent`
 * instead.
 */
REEF_MUST_CHECK reef_status reef_query_thread_model(reef_query_thread *queries,
                                                    const char *as_of,
                                                    reef_model **out,
                                                    reef_error *err);

// ---- the queries there are ----------------------------------------------------------------------
//
// What can be asked of the query thread: scores and continuations of a committed state, records of
// the pool, sums for its operator, and forgetting.

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
reef_status reef_query_incidents(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Arguments: next, the number of an event. `changes` of incidents from it on, and `next`. */
reef_status reef_query_changes(reef_query_thread *queries, reef_query *query, reef_error *err);
/** Arguments: points, from, to. */
reef_status reef_query_series(reef_query_thread *queries, reef_query *query, reef_error *err);

// ---- query_stats.c ------------------------------------------------------------------------------

#define REEF_STATS_GENERATIONS_MAX 64 // the newest ones
#define REEF_STATS_KINDS_MAX 64       // those that learned last

/** Usage of one generation, as `reef usage --json`. Arguments: generation, layer, since, until. */
reef_status reef_query_usage(reef_query_thread *queries, reef_query *query, reef_error *err);

/**
 * For metrics: {"generations": [{"generation", "used_share", "unevenness"}], "kinds": as of
 * reef_kind_json, "file_bytes", "free_bytes", "readers", "reader_lag", "longest_read_s", "commit",
 * "took_s"}. What a generation does not have is null.
 */
reef_status reef_query_stats(reef_query_thread *queries, reef_query *query, reef_error *err);

// ---- query_forgetting.c: the matrix of forgetting ---------------------------------------------

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
