// The inside of the query thread, shared by query_thread.c and query_models.c.
#ifndef REEF_QUERY_INTERNAL_H
#define REEF_QUERY_INTERNAL_H

#include "query_thread.h"

#define REEF_QUERY_MODELS 2 // kept open: now, and the last other requested state

typedef struct reef_query_model {
    reef_model *model; // NULL: none
    char as_of[REEF_NAME_BYTES_MAX + 1];
    uint64_t opened_ns, took_ns;
} reef_query_model;

struct reef_query_thread {
    reef_query_thread_options options;
    uv_thread_t thread;
    reef_query_model models[REEF_QUERY_MODELS]; // the thread's; 0 is now
    reef_query_model *used;      // the thread's: the one of the running query, or NULL
    reef_forgetting *forgetting; // the thread's, or NULL
    void (*forgetting_unpin)(reef_forgetting *forgetting);
    uv_mutex_t lock; // protects what follows
    uv_cond_t changed;
    reef_query *waiting, *done;
    reef_query *current; // under way
    size_t waiting_count;
    bool stopping;
};

/** Let every model but `used` (NULL: all) release what it reads in place. */
void reef_query_thread_unpin(reef_query_thread *queries, const reef_query_model *used);

#endif
