// The inside of libreef: one handle over what the modules offer. Everything behind it may change;
// reef/reef.h may only grow.
//
//   lib_pool.c     the frame of every call; make, open, close, commit, boundaries
//   lib_info.c     what there is: generations, snapshots, usage
//   lib_kind.c     kinds of text: what each learned
//   lib_train.c    one PEER layer; models of bytes
//   lib_lines.c    how surprising lines are to them
//   lib_archive.c  texts coded by them
//   lib_incident.c what rang in a pool that watches its lines
//   lib_watch.c    lines judged without a pool
#ifndef REEF_LIB_H
#define REEF_LIB_H

#include "reef_kinds.h"
#include "reef_layer_trainer.h"
#include "reef_trainer.h" // before reef.h, which takes the vocabulary of failure from it

#include "reef/reef.h"

#include <fenv.h>
#include <jansson.h>
#include <locale.h>
#include <pthread.h>
#include <sys/types.h>

/** What the library finds as its caller has it, and leaves so. */
typedef struct reef_lib_caller {
    locale_t locale;
    fenv_t arithmetic;
} reef_lib_caller;

struct reef_pool {
    pid_t pid;              // of the process that opened it
    pthread_mutex_t lock;   // of one call at a time
    reef_lib_caller caller; // of that call
    reef_store *store;
    reef_trainer *trainer; // NULL where it was opened for reading
    reef_model *model; // the state that was opened; of a writer what was evaluated last, or NULL
    reef_model_options model_options;
    uint64_t model_commit; // of a writer's model
    bool is_committed;     // of a writer: nothing was done to it since its last commit
    reef_config config;
    char *as_of;           // name of the state that was opened; NULL: now
    reef_kind_list kinds;  // of that state, as they were asked for last
    uint64_t kinds_commit; // last one of the pool then; 0: they were not
};

/** For the thread's time in the library: a plain locale and arithmetic; and the caller's again. */
void reef_lib_take_caller(reef_lib_caller *out);
void reef_lib_give_back(const reef_lib_caller *caller);

/**
 * Calls on a pool are serialised, and own BLAS while they compute. INVALID, and nothing to leave,
 * in a process that was forked of the one that opened it.
 */
REEF_MUST_CHECK reef_status reef_lib_enter(reef_pool *pool, reef_error *err);
/** The same, to do `what` to it: INVALID also for a pool that was opened for reading. */
REEF_MUST_CHECK reef_status reef_lib_enter_writer(reef_pool *pool,
                                                  const char *what,
                                                  reef_error *err);
void reef_lib_leave(reef_pool *pool);

/**
 * Copy a struct of the caller's, of any version, into `own` (`own_bytes`), what it lacks zero.
 * INVALID with `name` where its size is none.
 */
REEF_MUST_CHECK reef_status
reef_lib_take(void *own, size_t own_bytes, const void *theirs, const char *name, reef_error *err);
/** And `own` into the caller's, as much of it as that has; its size stays. */
REEF_MUST_CHECK reef_status
reef_lib_give(void *theirs, const void *own, size_t own_bytes, const char *name, reef_error *err);

/** CORRUPT where a kind is damaged: a program would not hear that others answer for it. */
REEF_MUST_CHECK reef_status reef_lib_check_kinds(const reef_model *model, reef_error *err);
/** Before a question: the model is of what was trained; a writer commits. */
REEF_MUST_CHECK reef_status reef_lib_catch_up(reef_pool *pool, reef_error *err);
/** After a question: release what is read in place until the next one. */
void reef_lib_unpin(reef_pool *pool);

/** {"incidents": ...} as text, ended by reef_text_free. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_lib_incidents_text(json_t *incidents, char **out, reef_error *err);

#endif
