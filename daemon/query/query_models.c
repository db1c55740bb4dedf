// The models that queries are answered by: of now and of one earlier state, opened when they are
// asked for.
#include "query_internal.h"
#include "reef_niceness.h"
#include "reef_priority.h"
#include "reef_states.h"

#include <stdio.h>
#include <string.h>

#define REOPEN_SHARE 10      // of the time at most one part in so many goes to opening models
#define WAIT_NS_MAX 20000000 // that a question waits for a newer model

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

// The last commit, and which state is meant: another one with time, where people named a moment.
static reef_status find_state(reef_query_thread *queries,
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
static bool is_fresh(const reef_query_model *kept, const char *as_of, const reef_commit *newest) {
    if (kept->model == NULL || strcmp(kept->as_of, as_of) != 0) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    if (commit->number == newest->number) return true;
    if (strcmp(as_of, "now") == 0 && memcmp(commit->root, newest->root, sizeof(commit->root)) == 0)
        return true;
    return uv_hrtime() - kept->opened_ns < REOPEN_SHARE * kept->took_ns;
}

static reef_model_options options_of(const reef_query_thread *queries) {
    return (reef_model_options){.threads = queries->options.threads,
                                .memory_bytes = queries->options.memory_bytes};
}

reef_status reef_query_thread_open(reef_query_thread *queries,
                                   const char *as_of,
                                   reef_model **model,
                                   reef_error *err) {
    const reef_model_options options = options_of(queries);
    return reef_model_reopen(model, queries->options.store, as_of, &options, err);
}

// ---- a newer model beside the one that answers --------------------------------------------------

static void renew(void *argument) {
    reef_query_renewal *r = argument;
    reef_error err;
    reef_thread_give_way(REEF_NICENESS_TRAINING);
    // The error is dropped: the next query opens the model itself, and reports why that fails.
    if (reef_model_open_beside(&r->newer, r->store, "now", &r->options, r->older, &err) != REEF_OK)
        r->newer = NULL;
    r->took_ns = uv_hrtime() - r->began_ns;
    atomic_store(&r->done, true);
}

static void join_renewal(reef_query_thread *queries) {
    (void)uv_thread_join(&queries->renewal.thread);
    queries->renewal.runs = false;
}

// The newer model answers from here on. After a failure the next one is opened while a question
// waits.
static void take_renewed(reef_query_thread *queries) {
    reef_query_renewal *r = &queries->renewal;
    reef_query_model *kept = &queries->models[0];
    if (!r->runs || !atomic_load(&r->done)) return;
    // While a twin is busy the older one goes on, and no twin takes another query.
    if (!reef_query_twins_take_back(queries, false)) return;
    join_renewal(queries);
    kept->took_ns = r->newer != NULL ? r->took_ns : 0;
    if (r->newer == NULL) return;
    reef_model_replace(kept->model, r->newer);
    kept->model = r->newer;
    kept->opened_ns = r->began_ns;
}

// A context memory may take a second to open, in which a hundred questions would wait. Other models
// are opened at once: two of a large one may be more than there is room for.
static bool is_slow_to_open(const reef_query_model *kept) {
    return kept->took_ns >= WAIT_NS_MAX && reef_model_is_shared(kept->model) &&
           reef_model_config(kept->model)->context_memory > 0;
}

static bool is_renewed(reef_query_thread *queries, const reef_query_model *kept) {
    reef_query_renewal *r = &queries->renewal;
    if (kept != &queries->models[0] || kept->model == NULL) return false;
    if (r->runs) return true;
    if (!is_slow_to_open(kept)) return false;
    *r = (reef_query_renewal){.store = queries->options.store,
                              .options = options_of(queries),
                              .older = kept->model,
                              .began_ns = uv_hrtime()};
    r->runs = uv_thread_create(&r->thread, renew, r) == 0;
    return r->runs;
}

bool reef_query_thread_is_recent(reef_query_thread *queries) {
    const reef_query_model *kept = &queries->models[0];
    reef_commit newest;
    char name[REEF_NAME_BYTES_MAX + 1];
    // It answers until a newer one has been opened beside it.
    if (is_slow_to_open(kept)) return true;
    return find_state(queries, "now", name, &newest, NULL) == REEF_OK &&
           is_fresh(kept, name, &newest);
}

void reef_query_thread_close(reef_query_thread *queries) {
    (void)reef_query_twins_take_back(queries, true);
    if (queries->renewal.runs) {
        join_renewal(queries);
        reef_model_close(queries->renewal.newer); // before the one that owns what they share
    }
    for (size_t i = 0; i < REEF_QUERY_MODELS; i++) reef_model_close(queries->models[i].model);
}

// ---- which model answers ------------------------------------------------------------------------

reef_status reef_query_thread_model(reef_query_thread *queries,
                                    const char *as_of,
                                    reef_model **out,
                                    reef_error *err) {
    reef_commit newest;
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_status status = find_state(queries, as_of, name, &newest, err);
    if (status != REEF_OK) return status;
    // Two models are kept: one of the present and one as of an older state, so that asking for both
    // in turn does not reload either.
    reef_query_model *kept = &queries->models[strcmp(name, "now") != 0];
    queries->used = kept;
    // The other model releases the map while this one is used.
    reef_query_thread_unpin(queries, kept);
    take_renewed(queries);
    // The present is reopened when there is a newer commit; sealed generations are taken over.
    if (!is_fresh(kept, name, &newest) && !is_renewed(queries, kept)) {
        if (kept == &queries->models[0]) (void)reef_query_twins_take_back(queries, true);
        reef_model *model = kept->model;
        *kept = (reef_query_model){.opened_ns = uv_hrtime()};
        snprintf(kept->as_of, sizeof(kept->as_of), "%s", name);
        status = reef_query_thread_open(queries, name, &model, err);
        kept->model = model;
        // How long loading took decides how soon it may be repeated.
        kept->took_ns = uv_hrtime() - kept->opened_ns;
    }
    *out = kept->model;
    if (kept == &queries->models[0]) reef_query_twins_lend(queries);
    return status;
}

const char *reef_query_thread_state(const reef_query_thread *queries) {
    return queries->used->as_of;
}
