// The models that queries are answered by: of now and of one earlier state, opened when they are
// asked for.
#include "query_internal.h"

#include <stdio.h>
#include <string.h>

#define REOPEN_SHARE 10 // of the time at most one part in so many goes to opening models

// Rows read in place must not keep the trainer from reusing pages while nobody asks for this model,
// however many ask for another state. The model in use renews its read by itself.
void reef_query_thread_unpin(reef_query_thread *queries, const reef_query_model *used) {
    for (reef_query_model *m = queries->models; m < queries->models + REEF_QUERY_MODELS; m++)
        if (m->model != NULL && m != used) reef_model_unpin(m->model);
    queries->forgetting_unpin(queries->forgetting);
}

reef_store *reef_query_thread_store(reef_query_thread *queries) {
    return queries->options.store;
}

reef_forgetting **reef_query_thread_forgetting(reef_query_thread *queries) {
    return &queries->forgetting;
}

static reef_status newest_commit(reef_query_thread *queries, reef_commit *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, queries->options.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

// A state of the past never changes while its name stands for it; a name can be given to another
// one. Commits that only wrote beside training, such as what was pushed, leave the root as it was.
static bool is_fresh(const reef_query_model *kept, const char *as_of, const reef_commit *newest) {
    if (kept->model == NULL || strcmp(kept->as_of, as_of) != 0) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    if (commit->number == newest->number) return true;
    if (strcmp(as_of, "now") == 0 && memcmp(commit->root, newest->root, sizeof(commit->root)) == 0)
        return true;
    return uv_hrtime() - kept->opened_ns < REOPEN_SHARE * kept->took_ns;
}

reef_status reef_query_thread_open(reef_query_thread *queries,
                                   const char *as_of,
                                   reef_model **model,
                                   reef_error *err) {
    return reef_model_reopen(model, queries->options.store, as_of,
                             &(reef_model_options){.threads = queries->options.threads,
                                                   .memory_bytes = queries->options.memory_bytes},
                             err);
}

reef_status reef_query_thread_model(reef_query_thread *queries,
                                    const char *as_of,
                                    reef_model **out,
                                    reef_error *err) {
    // Two models are kept: one of the present and one as of an older state, so that asking for both
    // in turn does not reload either.
    reef_query_model *kept = &queries->models[strcmp(as_of, "now") != 0];
    queries->used = kept;
    // The other model releases the map while this one is used.
    reef_query_thread_unpin(queries, kept);
    reef_commit newest;
    reef_status status = newest_commit(queries, &newest, err);
    if (status != REEF_OK) return status;
    // The present is reopened when there is a newer commit; sealed generations are taken over.
    if (!is_fresh(kept, as_of, &newest)) {
        reef_model *model = kept->model;
        *kept = (reef_query_model){.opened_ns = uv_hrtime()};
        snprintf(kept->as_of, sizeof(kept->as_of), "%s", as_of);
        status = reef_query_thread_open(queries, as_of, &model, err);
        kept->model = model;
        // How long loading took decides how soon it may be repeated.
        kept->took_ns = uv_hrtime() - kept->opened_ns;
    }
    *out = kept->model;
    return status;
}
