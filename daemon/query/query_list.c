// Queries on their way: waiting, taken and run, done; what running ones emit.
#include "query_internal.h"

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
