// The inside of a reef_training, shared by the files that make it up:
//
//   training_thread.c  the loop's side, what to do next, the thread
//   training_commit.c  commits, what is written between two of them, and what both sides share
//                      under the lock
//   training_work.c    requests, bytes, scheduling decisions, the end of the sources
//   training_keep.c    states that are kept by the clock
#ifndef REEF_TRAINING_INTERNAL_H
#define REEF_TRAINING_INTERNAL_H

#include "scheduler.h"
#include "training_thread.h"

#define NS_PER_SECOND 1000000000u

/** A position of a live source that a commit contains. */
typedef struct reef_settled_position {
    uint64_t cursor, begin;
    char *checkpoint; // on the heap, or NULL
    bool fresh;       // not reported yet
} reef_settled_position;

struct reef_training {
    // set before the thread starts
    reef_training_options options;
    uv_thread_t thread;
    // the trainer's thread only
    uint64_t committed_ns;            // when the last commit was
    uint64_t commit_steps;            // steps since
    bool dirty;                       // something was accepted since
    bool commit_soon;                 // and the loop waits for the next one
    uint64_t state_due_ms;            // when the next state is kept by the clock, unix time
    bool served;                      // the last piece of work was a request
    bool compacting;                  // since the last commit usage may have windows to merge
    bool compacted;                   // the last piece of work merged some
    bool drained;                     // the last source's end was dealt with
    bool stop_seen;                   // a pause between commits was cut short
    reef_settled_position *positions; // (sources) as the commit under way writes them
    uv_mutex_t lock;                  // protects everything below
    uv_cond_t changed;                // something below changed that the trainer may wait for
    reef_schedule schedule;
    uint64_t *cursors;              // (sources) bytes accepted
    uint64_t *committed;            // (sources) of these, in the last commit of training
    reef_settled_position *settled; // (sources) in the last commit, and not reported yet
    reef_source_loss *losses;       // (sources) before training on them
    reef_request *requests;         // first come first
    reef_request *drains;           // those that wait for bytes to be trained
    bool paused;
    reef_request *answered;
    bool stopping;
    reef_training_view view;
};

typedef enum work_kind {
    WORK_NONE, // the thread sleeps
    WORK_REQUEST,
    WORK_DAMAGE,
    WORK_COMMIT,
    WORK_KEEP,
    WORK_COMPACT,
    WORK_DECIDE,
    WORK_FEED,
    WORK_DRAIN,
    WORK_JOIN,  // the other ranks, which have all arrived
    WORK_LEAVE, // all ranks end, since one of them was asked to
    WORK_END
} work_kind;

typedef struct work {
    work_kind kind;
    reef_request *request;
    reef_schedule_next next; // bytes to train, or a scheduling decision
} work;

// ---- training_commit.c --------------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_training_commit_once(reef_training *training, reef_error *err);
bool reef_training_worth_retrying(reef_status status);
/** Let time pass, but for a stop. */
void reef_training_pause_for(reef_training *training, uint64_t seconds);
/**
 * Wait, at most for a request where `request` is not NULL. Returns false when a stop cut the pause
 * short.
 */
bool reef_training_wait_until(reef_training *training, uint64_t deadline, reef_request **request);
REEF_MUST_CHECK reef_status reef_training_note_own_commit(reef_training *training,
                                                          double ms,
                                                          reef_error *err);
REEF_MUST_CHECK reef_status reef_training_note_aside(reef_training *training, reef_error *err);
void reef_training_compact(reef_training *training);
void reef_training_note_damage(reef_training *training);

void reef_training_append(reef_request **list, reef_request *request);
/** Unlink the first request of a list that has one. */
reef_request *reef_training_take_first(reef_request **list);
bool reef_training_is_drained(const reef_training *training, const reef_request *request);
/** The request to handle now, or NULL; under the lock. */
reef_request *reef_training_take_request(reef_training *training, bool only_drains);
void reef_training_set_paused(reef_training *training, bool paused);
void reef_training_set_state(reef_training *training, reef_training_state state);
void reef_training_refresh(reef_training *training);
void reef_training_advance(reef_training *training);

// ---- training_keep.c ----------------------------------------------------------------------------

bool reef_training_state_is_due(const reef_training *training);
/** When that will be, by uv_hrtime(); UINT64_MAX: never. */
uint64_t reef_training_state_deadline(const reef_training *training);
/**
 * Keep the present state, unless the last kept one is the same, and remove those that do not stay.
 * A failure is logged, and tried again when the next state is due.
 */
void reef_training_keep_state(reef_training *training);

// ---- training_work.c ----------------------------------------------------------------------------

void reef_training_handle_request(reef_training *training, reef_request *request);
/** Commit, and try again where that may help; requests are handled in the pauses. */
REEF_MUST_CHECK reef_status reef_training_commit(reef_training *training, reef_error *err);
REEF_MUST_CHECK reef_status reef_training_feed(reef_training *training,
                                               const work *piece,
                                               reef_error *err);
void reef_training_decide(reef_training *training, const reef_schedule_next *next);
REEF_MUST_CHECK reef_status reef_training_write_checkpoints(void *context,
                                                            reef_txn *txn,
                                                            reef_error *err);
void reef_training_end_state(reef_training *training);
REEF_MUST_CHECK reef_status reef_training_drain(reef_training *training, reef_error *err);

/** With the ranks that learn apart. */
REEF_MUST_CHECK reef_status reef_training_join_ranks(reef_training *training, reef_error *err);

#endif
