// The query thread; see query_thread.h. One query at a time, first come first served, beside those
// that twins take. A query is bounded by the size that a request may have.
#include "query_thread.h"

#include "query_internal.h"
#include "reef_json_build.h"

#include <stdlib.h>
#include <string.h>

// ---- queries on their way -----------------------------------------------------------------------

void reef_query_free(reef_query *query) {
    if (query == NULL) return;
    free(query->body);
    json_decref(query->arguments);
    json_decref(query->result);
    free(query->text);
    free(query);
}

// At the end of a list; under its lock.
static void append_query(reef_query **list, reef_query *query) {
    while (*list != NULL) list = &(*list)->next;
    query->next = NULL;
    *list = query;
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
        query->text = json_dumps(query->result, JSON_COMPACT | REEF_JSON_DIGITS);
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
    append_query(&queries->done, query);
    uv_mutex_unlock(&queries->lock);
    (void)uv_async_send(queries->options.wake);
}

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
        append_query(&queries->waiting, query);
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

reef_status reef_query_thread_start(reef_query_thread **out,
                                    const reef_query_thread_options *options,
                                    reef_error *err) {
    *out = NULL;
    reef_query_thread *queries = calloc(1, sizeof(*queries));
    if (queries == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the query thread");
    queries->options = *options;
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
