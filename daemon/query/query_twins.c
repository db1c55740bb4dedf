// Threads that score beside the query thread.
//
// A twin reads the same state as the model of now, so it must not outlive it. The query thread
// lends that model while queries wait, and takes it back before it replaces it:
//
//   query thread   open or exchange | lend: open twins      | run a query | take back
//   twin                            | take a query, run it ........ done  |
//
// A newer model that was opened in another thread brings its own twins.
#include "query_internal.h"

#include <string.h>

// There is a newer state: the query thread opens it, and lends that.
static void give_back(reef_query_thread *queries, reef_query *query) {
    queries->lending = false;
    query->lent = NULL;
    query->next = queries->waiting;
    queries->waiting = query;
    queries->waiting_count++;
}

static void twin_main(void *argument) {
    reef_query_twin *twin = argument;
    reef_query_thread *queries = twin->queries;
    uv_mutex_lock(&queries->lock);
    while (!queries->stopping) {
        // What the query thread can begin at once is its own.
        bool may = queries->lending && twin->model != NULL && queries->current != NULL;
        reef_query *query = may ? reef_query_thread_take(queries, true) : NULL;
        if (query == NULL) {
            uv_cond_wait(&queries->changed, &queries->lock);
            continue;
        }
        query->lent = twin->model;
        queries->twins_busy++;
        uv_mutex_unlock(&queries->lock);
        bool recent = reef_query_thread_is_recent(queries);
        if (recent) reef_query_thread_run(queries, query);
        uv_mutex_lock(&queries->lock);
        if (!recent) give_back(queries, query);
        queries->twins_busy--;
        uv_cond_broadcast(&queries->changed); // the model may be wanted back
    }
    uv_mutex_unlock(&queries->lock);
}

void reef_query_twins_start(reef_query_thread *queries) {
    size_t wanted = uv_available_parallelism() / 2;
    if (wanted < 1) wanted = 1;
    if (wanted > REEF_QUERY_TWINS_MAX) wanted = REEF_QUERY_TWINS_MAX;
    size_t count = 0;
    for (; count < wanted; count++) {
        queries->twins[count].queries = queries;
        if (uv_thread_create(&queries->twins[count].thread, twin_main, &queries->twins[count]) != 0)
            break;
    }
    uv_mutex_lock(&queries->lock);
    queries->twin_count = count;
    uv_mutex_unlock(&queries->lock);
}

void reef_query_twins_join(reef_query_thread *queries) {
    for (size_t i = 0; i < queries->twin_count; i++)
        (void)uv_thread_join(&queries->twins[i].thread);
}

static void set_lending(reef_query_thread *queries, bool lending) {
    uv_mutex_lock(&queries->lock);
    queries->lending = lending;
    uv_cond_broadcast(&queries->changed);
    uv_mutex_unlock(&queries->lock);
}

void reef_query_twins_lend(reef_query_thread *queries) {
    reef_model *model = queries->models[0].model;
    uv_mutex_lock(&queries->lock);
    size_t count = queries->twin_count;
    // One that has been needed is kept ready: a query that comes meanwhile begins at once.
    bool wanted = !queries->lending && queries->twins_busy == 0 &&
                  (queries->waiting != NULL || queries->twins[0].model != NULL);
    uv_mutex_unlock(&queries->lock);
    if (!wanted || model == NULL || !reef_model_is_shared(model)) return;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        reef_error err; // without memory for a twin the query thread answers alone
        if (queries->twins[i].model == NULL &&
            reef_model_open_twin(&queries->twins[i].model, model, &err) != REEF_OK)
            break;
        any = true;
    }
    if (any) set_lending(queries, true);
}

bool reef_query_twins_take_back(reef_query_thread *queries, bool waits) {
    uv_mutex_lock(&queries->lock);
    queries->lending = false;
    while (waits && queries->twins_busy > 0) uv_cond_wait(&queries->changed, &queries->lock);
    bool idle = queries->twins_busy == 0;
    uv_mutex_unlock(&queries->lock);
    return idle;
}

size_t reef_query_twins_count(const reef_query_thread *queries) {
    size_t count = 0;
    while (count < REEF_QUERY_TWINS_MAX && queries->twins[count].model != NULL) count++;
    return count;
}

void reef_query_twins_close(reef_query_thread *queries) {
    for (size_t i = 0; i < REEF_QUERY_TWINS_MAX; i++) {
        reef_model_close(queries->twins[i].model);
        queries->twins[i].model = NULL;
    }
}

void reef_query_twins_exchange(reef_query_thread *queries, reef_model **models) {
    for (size_t i = 0; i < REEF_QUERY_TWINS_MAX; i++) {
        reef_model *other = models[i];
        models[i] = queries->twins[i].model;
        queries->twins[i].model = other;
    }
}
