// Queries on their way: waiting, taken and run, done; what running ones emit.
#include "query_internal.h"
#include "reef_states.h"

#include <stdlib.h>
#include <string.h>

void reef_query_free(reef_query *query) {
    if (query == NULL) return;
    free(query->body);
    free(query->pending);
    json_decref(query->arguments);
    json_decref(query->result);
    free(query->text);
    free(query);
}

void reef_query_append(reef_query **list, reef_query *query) {
    while (*list != NULL) list = &(*list)->next;
    query->next = NULL;
    *list = query;
}

bool reef_query_thread_emit(reef_query_thread *queries,
                            reef_query *query,
                            const char *bytes,
                            size_t count) {
    // Nobody listens any more: the query may stop.
    if (atomic_load(&query->abandoned)) return false;
    uv_mutex_lock(&queries->lock);
    // Output waits in the query until the loop fetches it; the loop must never wait for a query.
    bool fits = query->pending_room - query->pending_bytes >= count;
    if (!fits) {
        size_t room = 2 * query->pending_room + count;
        char *pending = realloc(query->pending, room);
        fits = pending != NULL;
        if (fits) {
            query->pending = pending;
            query->pending_room = room;
        }
    }
    if (fits) {
        memcpy(query->pending + query->pending_bytes, bytes, count);
        query->pending_bytes += count;
    }
    uv_mutex_unlock(&queries->lock);
    // uv_async_send is the one libuv call that other threads may make.
    (void)uv_async_send(queries->options.wake);
    return fits;
}

reef_query *reef_query_thread_take(reef_query_thread *queries, bool for_twin) {
    reef_query **at = &queries->waiting;
    while (for_twin && *at != NULL && !(*at)->asks_now) at = &(*at)->next;
    reef_query *query = *at;
    if (query == NULL) return NULL;
    *at = query->next;
    query->next = NULL;
    queries->waiting_count--;
    return query;
}

// A reply may be megabytes: it is written here, and the loop only sends it.
static void write_text(reef_query *query) {
    if (query->error.status == REEF_OK) {
        query->text = json_dumps(query->result, JSON_COMPACT | JSON_REAL_PRECISION(12));
        if (query->text == NULL)
            query->error.status =
                reef_fail(&query->error, REEF_ERR_NO_MEMORY, "no memory for the reply");
    }
    json_decref(query->result);
    query->result = NULL;
}

void reef_query_thread_run(reef_query_thread *queries, reef_query *query) {
    // A query whose client left while it waited is not computed.
    query->error.status = atomic_load(&query->unwanted)
                              ? reef_fail(&query->error, REEF_ERR_BUSY,
                                          "the client closed the connection before its query "
                                          "began; leave it open until the reply")
                              : query->run(queries, query, &query->error);
    // Text is made here and not in the loop: a matrix or a long score is work.
    if (query->on_done == NULL) write_text(query);
    uv_mutex_lock(&queries->lock);
    if (queries->current == query) queries->current = NULL;
    reef_query_append(&queries->done, query);
    uv_mutex_unlock(&queries->lock);
    (void)uv_async_send(queries->options.wake);
}

// ---- which state is meant -----------------------------------------------------------------------

#define REOPEN_SHARE 10     // of the time at most one part in so many goes to opening models
#define WAIT_NS_MAX 5000000 // that a query waits for a newer model: about what a score takes

// The last commit, and which state is meant: another one with time, where people named a moment.
reef_status reef_query_find_state(reef_query_thread *queries,
                                  const char *as_of,
                                  char name[REEF_NAME_BYTES_MAX + 1],
                                  reef_commit *newest,
                                  reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, queries->options.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, newest, err);
    if (status == REEF_OK) status = reef_state_name(name, txn, as_of, err);
    reef_txn_abort(txn);
    return status;
}

// A state of the past never changes while its name stands for it; a name can be given to another
// one. Commits that only wrote beside training, such as what was pushed, leave the root as it was.
bool reef_query_model_is_fresh(const reef_query_thread *queries,
                               const reef_query_model *kept,
                               const char *as_of,
                               const reef_commit *newest) {
    if (kept->model == NULL || strcmp(kept->as_of, as_of) != 0) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    if (commit->number == newest->number) return true;
    if (strcmp(as_of, "now") == 0 && memcmp(commit->root, newest->root, sizeof(commit->root)) == 0)
        return true;
    return !reef_query_model_is_outdated(queries, kept, newest) &&
           uv_hrtime() - kept->opened_ns < REOPEN_SHARE * kept->took_ns;
}

// Who was told that something is in a commit asks about that, or a later one.
bool reef_query_model_is_outdated(const reef_query_thread *queries,
                                  const reef_query_model *kept,
                                  const reef_commit *newest) {
    if (kept->model == NULL || kept != &queries->models[0]) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    return commit->number < atomic_load(&queries->expected) &&
           memcmp(commit->root, newest->root, sizeof(commit->root)) != 0;
}

// A context memory may take a second to open, in which a hundred queries would wait. Other models
// are opened at once: two of a large one may be more than there is room for.
bool reef_query_model_is_slow(const reef_query_model *kept) {
    return kept->took_ns >= WAIT_NS_MAX && reef_model_is_shared(kept->model) &&
           reef_model_config(kept->model)->context_memory > 0;
}

bool reef_query_thread_is_recent(reef_query_thread *queries) {
    const reef_query_model *kept = &queries->models[0];
    reef_commit newest;
    char name[REEF_NAME_BYTES_MAX + 1];
    if (reef_query_find_state(queries, "now", name, &newest, NULL) != REEF_OK) return false;
    // It answers until a newer one has been opened beside it.
    if (reef_query_model_is_slow(kept))
        return !reef_query_model_is_outdated(queries, kept, &newest);
    return reef_query_model_is_fresh(queries, kept, name, &newest);
}
