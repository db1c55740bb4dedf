// Sources of other ranks: `mpirun -n R reefd --pool DIR --streams each`.
//
// Every rank opens and reads its own sources. On rank 0 each of them is one source more, called
// rank-K:NAME, and the scheduler lets their queues take turns as it does with live sources of one
// machine (stride.h): at least 4 kB each, to the end of a line. Bytes travel when rank 0 asks, and
// are then told to all ranks like its own.
//
//   loop of rank 0 ---- read ----> wanted
//   its trainer's thread           GIVE --> rank K: reads, answers --> loop: took, ended
//
// So the order of the stream, and where each source continues, is in rank 0's commits, as with one
// process. Ranks keep no position: rank 0 says where to begin (SEEK). What follows the clock,
// that a rank with nothing is passed over after `patience`, is a decision of the scheduler, written
// down before it takes effect, and repeated at the same position after a kill.
//
// Threads: as it stands at each call.
#ifndef REEF_REMOTE_H
#define REEF_REMOTE_H

#include "crew.h"
#include "reef_source.h"

// ---- rank 0 -------------------------------------------------------------------------------------

/**
 * Hear of the sources of all other ranks, and add them behind `*count` of its own. On all ranks at
 * once, right after they met; before any thread.
 *
 * Errors: INVALID together they are more than REEF_INPUT_COUNT_MAX, or a name is too long.
 */
REEF_MUST_CHECK reef_status reef_remote_gather(reef_crew *crew,
                                               reef_input *sources, // (REEF_INPUT_COUNT_MAX)
                                               size_t *count,
                                               reef_error *err);
/** On the trainer's thread, between two pieces of work: ask for what is wanted. */
void reef_remote_serve(reef_crew *crew, uv_async_t *wake);
/** On the loop: what has come is the reader's. */
void reef_remote_settle(reef_crew *crew, reef_input *sources, size_t count);
/** Seconds after which reef_remote_serve may have something to do; infinite without remotes. */
double reef_remote_patience(const reef_crew *crew);
/** Call `poke` on the loop when there is something to ask for. */
void reef_remote_on_wanted(reef_crew *crew, void (*poke)(void *context), void *context);
void reef_remote_release(reef_crew *crew); // accepts NULL

// ---- other ranks --------------------------------------------------------------------------------

/** They read these, which are open and checked, when they are told to; on one thread. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_remote_reader_begin(reef_crew *crew,
                                                     reef_input *sources,
                                                     size_t count,
                                                     reef_store *store,
                                                     reef_report *report,
                                                     reef_error *err);
void reef_remote_reader_end(reef_crew *crew);

/** Can a rank above 0 read such a source? INVALID: it needs sockets of its own, or the past. */
REEF_MUST_CHECK reef_status reef_remote_check(const reef_input *source, reef_error *err);

#endif
