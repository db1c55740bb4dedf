// The inside of the query thread, shared by query_thread.c and query_models.c.
#ifndef REEF_QUERY_INTERNAL_H
#define REEF_QUERY_INTERNAL_H

#include "query_thread.h"

#include <stdatomic.h>

#define REEF_QUERY_MODELS 2 // kept open: now, and the last other requested state

typedef struct reef_query_model {
    reef_model *model; // NULL: none
    char as_of[REEF_NAME_BYTES_MAX + 1];
    uint64_t opened_ns, took_ns;
} reef_query_model;

/** A model of now that is opened in another thread, while the older one answers. */
typedef struct reef_query_renewal {
    bool runs; // the thread has not been joined
    uv_thread_t thread;
    reef_store *store;
    reef_model_options options;
    const reef_model *older;
    atomic_bool done;  // what follows is the query thread's again
    reef_model *newer; // NULL: it failed
    uint64_t began_ns, took_ns;
} reef_query_renewal;

struct reef_query_thread {
    reef_query_thread_options options;
    uv_thread_t thread;
    reef_query_model models[REEF_QUERY_MODELS]; // the thread's; 0 is now
    reef_query_model *used;      // the thread's: the one of the running query, or NULL
    reef_query_renewal renewal;  // the thread's, of models[0]
    reef_forgetting *forgetting; // the thread's, or NULL
    void (*forgetting_unpin)(reef_forgetting *forgetting);
    uv_mutex_t lock; // protects what follows
    uv_cond_t changed;
    reef_query *waiting, *done;
    reef_query *current; // under way
    size_t waiting_count;
    bool stopping;
};

/** Close all models, once what is being opened is there. */
void reef_query_thread_close(reef_query_thread *queries);

/** Let every model but `used` (NULL: all) release what it reads in place. */
void reef_query_thread_unpin(reef_query_thread *queries, const reef_query_model *used);

#endif
