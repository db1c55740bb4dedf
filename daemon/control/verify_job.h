// The check of a pool for a client of the daemon, in a process of its own: neither the loop nor
// training waits for it, and a damaged page costs that process only.
//
//   loop                                   reefd in another life
//     spawn /proc/self/exe  -------------> reef_store_verify_with, at a low priority
//     reads, while all continues <-------- one JSON object
//     on_done
#ifndef REEF_VERIFY_JOB_H
#define REEF_VERIFY_JOB_H

#include "training_thread.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#define REEF_VERIFY_ARGUMENT "--verify-for-daemon" // argv[1] of that process; not for people

typedef struct reef_verify_job {
    // set by the caller before reef_verify_job_start
    uv_loop_t *loop;
    const char *pool;
    /**
     * `result` is NULL and `err` says why, or the caller's. Not called any more after
     * reef_verify_job_close.
     */
    void (*on_done)(void *context, json_t *result, const reef_error *err);
    void *context;
    // its own
    uv_process_t process;
    uv_pipe_t pipe;
    bool running;
    bool untold;   // nobody is notified of the result
    bool exited;   // the process has ended
    bool ended;    // its reply has
    unsigned open; // handles
    char *text;    // the reply so far
    size_t used, room;
} reef_verify_job;

/** BUSY while one is running. */
REEF_MUST_CHECK reef_status reef_verify_job_start(reef_verify_job *job,
                                                  const reef_verify_scope *scope,
                                                  reef_error *err);
/** Before the loop ends: a check that is running is ended. */
void reef_verify_job_close(reef_verify_job *job);

/** The other life: main's arguments, the exit code. */
int reef_verify_job_main(int argc, char **argv);

#endif
