// Which state a query asks for, and whether the model that is kept is still of it.
#include "query_internal.h"
#include "reef_states.h"

#include <string.h>

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
