// The query thread; see query_thread.h. One query at a time, first come first served, beside those
// that twins take. A query is bounded by the size that a request may have.
#include "query_thread.h"

#include "query_internal.h"

#include <stdlib.h>
#include <string.h>

static void free_all(reef_query *list) {
    while (list != NULL) {
        reef_query *next = list->next;
        reef_query_free(list);
        list = next;
    }
}

// ---- the thread ---------------------------------------------------------------------------------

static reef_query *next_query(reef_query_thread *queries) {
    uv_mutex_lock(&queries->lock);
    while (queries->waiting == NULL && !queries->stopping)
        uv_cond_wait(&queries->changed, &queries->lock);
    // A stop comes before whatever waits.
    reef_query *query = queries->stopping ? NULL : reef_query_thread_take(queries, false);
    queries->current = query;
    // What waits behind it may be a twin's.
    if (queries->waiting != NULL) uv_cond_broadcast(&queries->changed);
    uv_mutex_unlock(&queries->lock);
    return query;
}

static void query_thread_main(void *argument) {
    reef_query_thread *queries = argument;
    for (reef_query *query; (query = next_query(queries)) != NULL;) {
        reef_query_thread_run(queries, query);
        // When nothing waits, the model releases the map, so that the writer may reuse pages.
        uv_mutex_lock(&queries->lock);
        bool idle = queries->waiting == NULL;
        uv_mutex_unlock(&queries->lock);
        reef_query_thread_unpin(queries, idle ? NULL : queries->used);
        queries->used = NULL;
    }
    // Models belong to this thread, so it closes them.
    reef_query_thread_close(queries);
    reef_forgetting_free(queries->forgetting);
}

// ---- the loop's side ----------------------------------------------------------------------------

reef_status reef_query_thread_submit(reef_query_thread *queries,
                                     reef_query *query,
                                     reef_error *err) {
    uv_mutex_lock(&queries->lock);
    // A full queue is refused at once: a client that waits a minute has left anyway.
    bool full = queries->waiting_count == REEF_QUERY_QUEUE_MAX;
    if (!full) {
        reef_query_append(&queries->waiting, query);
        queries->waiting_count++;
        uv_cond_broadcast(&queries->changed);
    }
    uv_mutex_unlock(&queries->lock);
    if (!full) return REEF_OK;
    return reef_fail(err, REEF_ERR_BUSY, "%d queries wait already; try again",
                     REEF_QUERY_QUEUE_MAX);
}

void reef_query_thread_expect(reef_query_thread *queries, uint64_t commit) {
    if (commit > atomic_load(&queries->expected)) atomic_store(&queries->expected, commit);
}

reef_query *reef_query_thread_replied(reef_query_thread *queries) {
    uv_mutex_lock(&queries->lock);
    reef_query *list = queries->done;
    queries->done = NULL;
    uv_mutex_unlock(&queries->lock);
    return list;
}

char *reef_query_thread_emitted(reef_query_thread *queries, reef_query **query, size_t *bytes) {
    char *pending = NULL;
    uv_mutex_lock(&queries->lock);
    // Only the running query has output.
    *query = queries->current;
    if (*query != NULL && (*query)->pending_bytes) {
        pending = (*query)->pending;
        *bytes = (*query)->pending_bytes;
        // The loop takes the buffer over; the query begins a new one.
        (*query)->pending = NULL;
        (*query)->pending_bytes = (*query)->pending_room = 0;
    }
    uv_mutex_unlock(&queries->lock);
    return pending;
}

reef_status reef_query_thread_start(reef_query_thread **out,
                                    const reef_query_thread_options *options,
                                    reef_error *err) {
    *out = NULL;
    reef_query_thread *queries = calloc(1, sizeof(*queries));
    if (queries == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the query thread");
    queries->options = *options;
    // A pointer instead of a call, because the matrix stands above this file.
    queries->forgetting_unpin = reef_forgetting_unpin;
    if (uv_mutex_init(&queries->lock) || uv_cond_init(&queries->changed))
        abort(); // out of kernel memory
    // It computes with one worker, and so do its twins.
    int code = uv_thread_create(&queries->thread, query_thread_main, queries);
    if (!code) {
        reef_query_twins_start(queries);
        *out = queries;
        return REEF_OK;
    }
    uv_cond_destroy(&queries->changed);
    uv_mutex_destroy(&queries->lock);
    free(queries);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no thread for queries: %s", uv_strerror(code));
}

void reef_query_thread_stop(reef_query_thread *queries) {
    if (queries == NULL) return;
    uv_mutex_lock(&queries->lock);
    queries->stopping = true;
    uv_cond_broadcast(&queries->changed);
    uv_mutex_unlock(&queries->lock);
    // The thread finishes its query first: it cannot be interrupted safely.
    (void)uv_thread_join(&queries->thread);
    reef_query_twins_join(queries);
    free_all(queries->waiting);
    free_all(queries->done);
    uv_cond_destroy(&queries->changed);
    uv_mutex_destroy(&queries->lock);
    free(queries);
}
