// The inside of the query thread, shared by its files:
//
//   query_thread.c  the thread, and queries on their way
//   query_models.c  the models that answer; which state is meant, and is a model of it
//   query_twins.c   threads that score beside it
#ifndef REEF_QUERY_INTERNAL_H
#define REEF_QUERY_INTERNAL_H

#include "query_thread.h"

#include <stdatomic.h>

#define REEF_QUERY_TWINS_MAX 8
#define REEF_QUERY_MODELS 2 // kept open: now, and the last other requested state

typedef struct reef_query_model {
    reef_model *model; // NULL: none
    char as_of[REEF_NAME_BYTES_MAX + 1];
    uint64_t opened_ns, took_ns;
} reef_query_model;

/**
 * A model of now with its twins, in the hands of another thread: a newer one is opened there while
 * the older one answers, and the older one is closed there once the newer one does.
 */
typedef struct reef_query_renewal {
    bool runs;   // the thread has not been joined
    bool closes; // what it has is not needed any more
    uv_thread_t thread;
    reef_store *store;
    reef_model_options options;
    const reef_model *older;
    atomic_bool done;                        // what follows is the query thread's again
    reef_model *model;                       // NULL: it failed, or is closed
    reef_model *twins[REEF_QUERY_TWINS_MAX]; // (twin_count) of `model`; NULL: none
    size_t twin_count;                       // as many as the older one has
    uint64_t began_ns, took_ns;
} reef_query_renewal;

/** A thread that scores beside the query thread, by a second reader of the same state. */
typedef struct reef_query_twin {
    reef_query_thread *queries;
    uv_thread_t thread;
    reef_model *model; // of models[0]; NULL: none. Changed while nothing is lent
} reef_query_twin;

struct reef_query_thread {
    reef_query_thread_options options;
    uv_thread_t thread;
    reef_query_model models[REEF_QUERY_MODELS]; // the thread's; 0 is now, which twins read while
                                                // they are busy, and which then does not change
    reef_query_model *used;      // the thread's: the one of the running query, or NULL
    reef_query_renewal renewal;  // the thread's, of models[0]
    reef_forgetting *forgetting; // the thread's, or NULL
    _Atomic uint64_t expected;   // no query that comes is answered as of an earlier commit
    uv_mutex_t lock;             // protects what follows
    uv_cond_t changed;
    reef_query *waiting, *done;
    reef_query *current; // under way
    size_t waiting_count;
    bool stopping;
    bool lending;      // twins may take queries
    size_t twins_busy; // that run one
    size_t twin_count; // threads; constant
    reef_query_twin twins[REEF_QUERY_TWINS_MAX];
};

// query_thread.c

/** Run a query that was taken from the list, and hand its reply to the loop. */
void reef_query_thread_run(reef_query_thread *queries, reef_query *query);
/**
 * The first waiting query, or the first that twins may run, taken from the list; NULL: none. Under
 * the lock.
 */
reef_query *reef_query_thread_take(reef_query_thread *queries, bool for_twin);

// query_twins.c

/** Start the threads: half as many as there are cores. Where one does not start there are fewer. */
void reef_query_twins_start(reef_query_thread *queries);
/** Once the query thread has ended. */
void reef_query_twins_join(reef_query_thread *queries);
/** Lend the model of now, if queries wait for it or did so before. On the query thread. */
void reef_query_twins_lend(reef_query_thread *queries);
/**
 * Let no twin read the model of now, so that it may change. On the query thread.
 *
 * waits  for those that are busy; else false is returned while one is. No further query is taken
 *        until reef_query_twins_lend
 */
bool reef_query_twins_take_back(reef_query_thread *queries, bool waits);
/** How many of them have a model. On the query thread. */
size_t reef_query_twins_count(const reef_query_thread *queries);
/** Close all, which have been taken back. On the query thread. */
void reef_query_twins_close(reef_query_thread *queries);
/** Exchange their models for other ones (REEF_QUERY_TWINS_MAX), once they have been taken back. */
void reef_query_twins_exchange(reef_query_thread *queries, reef_model **models);

// query_models.c

/** May the model of now answer a query that begins now? On a twin that is busy. */
bool reef_query_thread_is_recent(reef_query_thread *queries);
/** Close all models, once what is being opened is there. */
void reef_query_thread_close(reef_query_thread *queries);

/** Let every model but `used` (NULL: all) release what it reads in place. */
void reef_query_thread_unpin(reef_query_thread *queries, const reef_query_model *used);

#endif
