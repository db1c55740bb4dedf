// The models that queries are answered by: of now and of one earlier state, opened when they are
// asked for.
#include "query_internal.h"
#include "reef_process.h"
#include "reef_states.h"
#include "reef_system.h"

#include <stdio.h>
#include <string.h>

// ---- which state is meant -----------------------------------------------------------------------

#define REOPEN_SHARE 10     // of the time at most one part in so many goes to opening models
#define WAIT_NS_MAX 5000000 // that a query waits for a newer model: about what a score takes

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

// Who was told that something is in a commit asks about that, or a later one.
static bool is_outdated(const reef_query_thread *queries,
                        const reef_query_model *kept,
                        const reef_commit *newest) {
    if (kept->model == NULL || kept != &queries->models[0]) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    return commit->number < atomic_load(&queries->expected) &&
           memcmp(commit->root, newest->root, sizeof(commit->root)) != 0;
}

// A state of the past never changes while its name stands for it; a name can be given to another
// one. Commits that only wrote beside training, such as what was pushed, leave the root as it was.
static bool is_fresh(const reef_query_thread *queries,
                     const reef_query_model *kept,
                     const char *as_of,
                     const reef_commit *newest) {
    if (kept->model == NULL || strcmp(kept->as_of, as_of) != 0) return false;
    const reef_commit *commit = reef_model_commit(kept->model);
    if (commit->number == newest->number) return true;
    if (strcmp(as_of, "now") == 0 && memcmp(commit->root, newest->root, sizeof(commit->root)) == 0)
        return true;
    return !is_outdated(queries, kept, newest) &&
           uv_hrtime() - kept->opened_ns < REOPEN_SHARE * kept->took_ns;
}

// A context memory may take a second to open, in which a hundred queries would wait. Other models
// are opened at once: two of a large one may be more than there is room for.
static bool is_slow(const reef_query_model *kept) {
    return kept->took_ns >= WAIT_NS_MAX && reef_model_is_shared(kept->model) &&
           reef_model_config(kept->model)->memory > 0;
}

bool reef_query_thread_is_recent(reef_query_thread *queries) {
    const reef_query_model *kept = &queries->models[0];
    reef_commit newest;
    char name[REEF_NAME_BYTES_MAX + 1];
    if (find_state(queries, "now", name, &newest, NULL) != REEF_OK) return false;
    // It answers until a newer one has been opened beside it.
    if (is_slow(kept)) return !is_outdated(queries, kept, &newest);
    return is_fresh(queries, kept, name, &newest);
}

// ---- the models that are kept -------------------------------------------------------------------

// Rows read in place must not keep the trainer from reusing pages while nobody asks for this model,
// however many ask for another state. The model in use renews its read by itself.
void reef_query_thread_unpin(reef_query_thread *queries, const reef_query_model *used) {
    for (reef_query_model *m = queries->models; m < queries->models + REEF_QUERY_MODELS; m++)
        if (m->model != NULL && m != used) reef_model_unpin(m->model);
    reef_forgetting_unpin(queries->forgetting);
}

reef_store *reef_query_thread_store(reef_query_thread *queries) {
    return queries->options.store;
}

reef_forgetting **reef_query_thread_forgetting(reef_query_thread *queries) {
    return &queries->forgetting;
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

static void close_renewal(reef_query_renewal *r) {
    for (size_t i = 0; i < REEF_QUERY_TWINS_MAX; i++) {
        reef_model_close(r->twins[i]); // before the one that they read
        r->twins[i] = NULL;
    }
    reef_model_close(r->model);
    r->model = NULL;
}

// The model, and as many twins as the older one has. All of them are warm, so that no query waits
// for what a first score does.
static reef_status open_renewal(reef_query_renewal *r, reef_error *err) {
    reef_status status =
        reef_model_open_beside(&r->model, r->store, "now", &r->options, r->older, err);
    if (status == REEF_OK) status = reef_model_warm(r->model, err);
    for (size_t i = 0; status == REEF_OK && i < r->twin_count; i++) {
        status = reef_model_open_twin(&r->twins[i], r->model, err);
        if (status == REEF_OK) status = reef_model_warm(r->twins[i], err);
    }
    return status;
}

static void renew(void *argument) {
    reef_query_renewal *r = argument;
    reef_error err;
    reef_thread_give_way(REEF_NICENESS_TRAINING);
    // The error is dropped: the next query opens the model itself, and reports why that fails.
    if (open_renewal(r, &err) != REEF_OK) close_renewal(r);
    r->took_ns = uv_hrtime() - r->began_ns;
    atomic_store(&r->done, true);
}

// To give a hundred megabytes back to the system takes longer than a score.
static void retire(void *argument) {
    reef_query_renewal *r = argument;
    reef_thread_give_way(REEF_NICENESS_TRAINING);
    close_renewal(r);
    atomic_store(&r->done, true);
}

static bool start_renewal(reef_query_renewal *r, void (*work)(void *renewal)) {
    atomic_store(&r->done, false);
    r->runs = uv_thread_create(&r->thread, work, r) == 0;
    return r->runs;
}

static void join_renewal(reef_query_thread *queries) {
    (void)uv_thread_join(&queries->renewal.thread);
    queries->renewal.runs = false;
}

// The newer model answers from here on. After a failure the next one is opened while a query
// waits.
static void take_renewed(reef_query_thread *queries, bool waits) {
    reef_query_renewal *r = &queries->renewal;
    reef_query_model *kept = &queries->models[0];
    if (!r->runs || (!waits && !atomic_load(&r->done))) return;
    // A busy twin still reads the older model: keep it, and let no twin take another query.
    if (!r->closes && !reef_query_twins_take_back(queries, waits)) return;
    join_renewal(queries);
    if (r->closes) return;
    kept->took_ns = r->model != NULL ? r->took_ns : 0;
    if (r->model == NULL) return;
    reef_model *older = kept->model;
    reef_model_inherit(r->model, older);
    kept->model = r->model;
    kept->opened_ns = r->began_ns;
    reef_query_twins_exchange(queries, r->twins);
    r->model = older;
    r->closes = true;
    if (!start_renewal(r, retire)) close_renewal(r);
}

static bool is_renewed(reef_query_thread *queries, const reef_query_model *kept) {
    reef_query_renewal *r = &queries->renewal;
    if (kept != &queries->models[0] || kept->model == NULL) return false;
    if (r->runs) return true;
    if (!is_slow(kept)) return false;
    *r = (reef_query_renewal){.store = queries->options.store,
                              .options = options_of(queries),
                              .older = kept->model,
                              .twin_count = reef_query_twins_count(queries),
                              .began_ns = uv_hrtime()};
    return start_renewal(r, renew);
}

void reef_query_thread_close(reef_query_thread *queries) {
    (void)reef_query_twins_take_back(queries, true);
    reef_query_twins_close(queries);
    if (queries->renewal.runs) {
        join_renewal(queries);
        close_renewal(&queries->renewal); // before the one that owns what they share
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
    // The newer model that is being opened may be the one that has to answer.
    bool outdated = is_outdated(queries, kept, &newest);
    take_renewed(queries, outdated);
    if (outdated) outdated = is_outdated(queries, kept, &newest);
    // The present is reopened when there is a newer commit; sealed generations are taken over.
    if (!is_fresh(queries, kept, name, &newest) && (outdated || !is_renewed(queries, kept))) {
        if (kept == &queries->models[0]) {
            (void)reef_query_twins_take_back(queries, true);
            reef_query_twins_close(queries);
        }
        reef_model *model = kept->model;
        *kept = (reef_query_model){.opened_ns = uv_hrtime()};
        snprintf(kept->as_of, sizeof(kept->as_of), "%s", name);
        status = reef_query_thread_open(queries, name, &model, err);
        kept->model = model;
        // What its first score does besides is a part of what opening takes.
        if (status == REEF_OK && kept == &queries->models[0]) status = reef_model_warm(model, err);
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
