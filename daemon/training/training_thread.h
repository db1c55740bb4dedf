// The trainer's thread, and everything that the loop hands to it or learns from it.
//
//        loop                                    trainer's thread
//   space / fill / source_end   --- queues -->   reef_trainer_feed, one step at a time
//   request                     --- queue --->   served between two steps
//   answered                    <-- done ----
//   view                        <-- copy -----   refreshed after every step
//   stop                        ------------->   the last step, a commit, the end
//
// No call on the loop's side waits for a step or for the disk: the lock is only ever held for
// copies.
#ifndef REEF_TRAINING_THREAD_H
#define REEF_TRAINING_THREAD_H

#include "crew.h"
#include "kept_states.h"
#include "reef_error.h"
#include "reef_log.h"
#include "reef_source.h"
#include "reef_trainer.h"
#include "scrubber.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct reef_training reef_training;

#define REEF_DRAINS_MAX 1024 // that wait; their clients may have gone

// name on the wire
#define REEF_TRAINING_STATE_LIST(X)                                                                \
    X(TRAINING, "training") /* bytes are there and steps are made */                               \
    X(WAITING, "waiting")   /* for bytes, or with --stay for commands */                           \
    X(PAUSED, "paused")     /* by command; other commands and commits continue */                  \
    X(DRAINING, "draining") /* asked to stop; what was read is being finished */                   \
    X(ENDING, "ending")     /* the last commit */

typedef enum reef_training_state {
#define REEF_TRAINING_STATE_ENUM(name, text) REEF_STATE_##name,
    REEF_TRAINING_STATE_LIST(REEF_TRAINING_STATE_ENUM)
#undef REEF_TRAINING_STATE_ENUM
} reef_training_state;

const char *reef_training_state_text(reef_training_state state);

typedef enum reef_request_kind {
    REEF_REQUEST_COMMIT, // where there is something to commit
    REEF_REQUEST_ORDER,  // for the trainers of all ranks
    REEF_REQUEST_PAUSE,  // commit, and train no more until it is resumed
    REEF_REQUEST_RESUME,
    REEF_REQUEST_DRAIN,         // train what has been read by now, and commit
    REEF_REQUEST_CALL,          // something of the caller's own
    REEF_REQUEST_COMMIT_POLICY, // when commits are made from now on, and what they keep
    // Not the trainer's: see service.h.
    REEF_REQUEST_RELOAD,
} reef_request_kind;

/** On the trainer's thread, between two steps. */
typedef reef_status (*reef_request_call)(void *context,
                                         reef_store *store,
                                         reef_trainer *trainer,
                                         reef_error *err);

/** When commits are made, how often a failed one is tried again, and what they keep. */
typedef struct reef_commit_policy {
    uint64_t steps; // 0: not by steps
    double seconds; // 0: not by time
    uint32_t retries;
    uint64_t pool_bytes_max; // what the pool may take; 0: no bound
    uint64_t state_every_ms; // a state is kept by the clock so often; 0: none
    reef_keep_policy keep;   // which of these stay
} reef_commit_policy;

/** A last commit, and how long it took. */
typedef struct reef_commit_view {
    reef_commit commit;
    double ms; // 0 for one that an earlier process made
} reef_commit_view;

/**
 * Something that only the trainer can do. On the heap; made by the loop, the training's until
 * answered.
 */
typedef struct reef_request {
    reef_request_kind kind;
    reef_crew_order order;                  // of REEF_REQUEST_ORDER
    char (*names)[REEF_NAME_BYTES_MAX + 1]; // its payload, (name_count) on the heap: snapshots to
    size_t name_count;                      // remove
    uint64_t *until; // drain: (queues) where each queue ended when the request was made; set on
                     // request
    reef_request_call call;
    void *call_context;         // the caller's, alive until the request is answered
    reef_commit_policy commits; // commit policy
    uint64_t asked_ns;          // when it was handed over
    // the reply
    reef_error error; // status REEF_OK when it worked
    double waited_ms; // until it was begun: for the step before it
    void *result;     // reload: a json_t, the request's
    reef_crew_result done;
    reef_trainer_status trainer;
    reef_commit_view last;
    // the loop's own
    void *owner; // who waits for it; NULL when they went away
    void (*on_reply)(
        struct reef_request *request); // called on the loop's thread while there is an owner
    struct reef_request *next;
} reef_request;

/** What the request holds, not the request itself. */
void reef_request_release(reef_request *request);

typedef struct reef_training_options {
    reef_store *store;     // open for writing; outlives the training
    reef_trainer *trainer; // belongs to the trainer's thread from start to join
    reef_input *sources;   // names and paths are read; the rest is the loop's
    size_t source_count;
    double patience_s; // how long others wait for a live source that has nothing
    // Requests may replace it. The bound of the pool is also an option of the trainer, which has it
    // from the start.
    reef_commit_policy commits;
    bool stay;
    reef_report *report;
    struct reef_crew *crew;   // outlives the training; NULL: no other ranks share it
    struct reef_joins *joins; // the same; NULL: there are none to join
    reef_scrubber *scrubber;  // outlives the training; NULL for none
    uv_async_t *wake;         // sent when the loop must act: room, replies, the end
} reef_training_options;

// Upper bounds in seconds of the histogram of commits; what took longer is in `count` alone.
#define REEF_COMMIT_BOUNDS                                                                         \
    { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5 }
#define REEF_COMMIT_BUCKETS 10

/** How long commits took, since the process started. */
typedef struct reef_commit_times {
    uint64_t buckets[REEF_COMMIT_BUCKETS]; // each: above the bound before it, and at most its own
    uint64_t count;
    double seconds;
} reef_commit_times;

typedef struct reef_training_view {
    reef_training_state state;
    reef_trainer_status trainer;
    reef_trainer_status committed; // as it was at the last commit, which is what a crash leaves
    reef_commit_view last;
    reef_commit_times commits;
    uint64_t queue_bytes;
    char failing[256]; // why the last commit failed, while it is tried again; empty otherwise
    uint64_t advances; // pieces of work that were done, since the process started
    bool idle;         // there is nothing to do: for want of bytes, or paused
    bool ended;
    reef_error outcome; // once ended
} reef_training_view;

/** One source as the trainer sees it. */
typedef struct reef_progress {
    uint64_t cursor;    // bytes accepted
    uint64_t committed; // of these, bytes that are in a commit
    bool ended;         // all of it was accepted
    bool idle;          // it was empty for too long; others continue without it
    reef_source_loss loss;
} reef_progress;

REEF_MUST_CHECK reef_status reef_training_start(reef_training **out,
                                                const reef_training_options *options,
                                                reef_error *err);
/** Wait for the thread, which must have been told to stop or have ended. Accepts NULL. */
void reef_training_join(reef_training *training);

// ---- the loop's side ----------------------------------------------------------------------------

/**
 * Lend room for the next bytes of a source; false if an earlier source of its queue has not ended,
 * or the queue is full: the loop is woken when that changes.
 */
bool reef_training_space(reef_training *training, size_t source, uint8_t **at, size_t *count);
/** `count` bytes were read into the lent space; see reef_queues_fill. */
void reef_training_fill(
    reef_training *training, size_t source, size_t count, uint64_t begin, char *checkpoint);
/** A source has ended; the next bytes of its queue come from the source after it. */
void reef_training_source_end(reef_training *training, size_t source);
/**
 * Finish and end. Bytes of files that still wait are left for the next run, which reads them again;
 * those of standard input exist nowhere else and are trained.
 */
void reef_training_stop(reef_training *training);
/** Something waits for the next commit: it is due now. For calls, on the trainer's thread. */
void reef_training_commit_soon(reef_training *training);
/** The scrubber has found something. Any thread; for reef_scrubber_start. */
void reef_training_poke(void *context);
/**
 * Hand over a request. BUSY when the training has ended, or too many drains wait; it is then still
 * the caller's.
 */
REEF_MUST_CHECK reef_status reef_training_request(reef_training *training,
                                                  reef_request *request,
                                                  reef_error *err);
/**
 * Call `on_reply` of the requests served since the last call, and free them; after the end also of
 * those left unserved.
 */
void reef_training_reply(reef_training *training);
/**
 * The position that the last commit has of a source, once for every commit: false if it was handed
 * out already. `checkpoint`, heap and the caller's or NULL, is what `position` refers to. Only of
 * kinds with `settled`.
 */
bool reef_training_settled(reef_training *training,
                           size_t source,
                           reef_input_offset *position,
                           char **checkpoint);
/** A copy of where things stand. `progress` (source count) may be NULL. */
void reef_training_view_read(reef_training *training,
                             reef_training_view *view,
                             reef_progress *progress);

// ---- source_reader.c: all sources into the queues -----------------------------------------------

typedef void (*reef_reader_on_error)(void *context, const reef_error *err);

/** Reads all sources on `loop`. All fields belong to the loop's thread. */
typedef struct reef_reader {
    uv_loop_t *loop;
    reef_training *training;
    reef_input *sources;
    size_t count;
    reef_report *report;
    reef_reader_on_error on_error;
    void *context;
    // its own
    bool stopped;
    bool resuming; // sources that reply at once do not nest
    bool again;    // one of them did
} reef_reader;

/** Begin, or continue after a queue was full. */
void reef_reader_resume(reef_reader *reader);
/** Report to the sources which of their bytes are committed. */
void reef_reader_settle(reef_reader *reader);
/** Stop reading and close the sources. */
void reef_reader_stop(reef_reader *reader);

#endif
