// Ranks that learn apart and join: `mpirun -n R reefd --pool DIR --join-every SIZE`.
//
// Each rank is a daemon of its own, on DIR/rank-K, with its own sources. Once it has accepted SIZE
// bytes it waits for the others. When all have come they *join*: each seals what it has open, and
// sends what the others do not know; then it takes in what they sent, in the order of ranks.
//
//   learns --SIZE bytes, or no more--> has arrived --all have--> seals, packs, exchanges
//     ^                                                                      |
//     '------------- next join --------- takes in, item by item <------------'
//
// What is sent: generations that were sealed since the last join, and of kinds that came back the
// text that they learned (reef_exchange.h). It is packed into a file first, and each item that is
// taken in is a commit that counts it. So a join that was cut off anywhere goes on where it was,
// and a rank that had finished it gives its file to the others again (joins_pack.c).
//
// A rank without bytes left joins with empty hands until nobody has any. One that is asked to stop
// asks all others: all arrive at once, nobody joins, and all end.
//
// So what a rank knows after n bytes depends on the streams of all ranks and on SIZE, and neither
// on time nor on threads.
//
// Threads: all calls on the trainer's, but for begin, end, and reef_joins_json on any. A NULL
// reef_joins is a process that joins nobody, everywhere.
#ifndef REEF_JOINS_H
#define REEF_JOINS_H

#include "crew.h"

typedef struct reef_joins reef_joins;

/**
 * After all have met. Begins a new record of joins where the pool has none. The arguments outlive
 * it.
 *
 * Errors: INVALID the pool cannot join others, or was trained without them.
 */
REEF_MUST_CHECK reef_status reef_joins_begin(reef_joins **out,
                                             reef_crew *crew,
                                             reef_store *store,
                                             reef_trainer *trainer,
                                             reef_report *report,
                                             reef_error *err);
void reef_joins_end(reef_joins *joins); // accepts NULL

/** How many bytes may be accepted before the next join. */
uint64_t reef_joins_room(const reef_joins *joins);
void reef_joins_accepted(reef_joins *joins, uint64_t bytes);

/** What a commit has to hold of it; see reef_trainer_on_commit. */
REEF_MUST_CHECK reef_status reef_joins_write(reef_joins *joins, reef_txn *txn, reef_error *err);

typedef enum reef_joins_turn {
    REEF_JOINS_LEARN, // what there is, within the room
    REEF_JOINS_WAIT,  // for the others, and ask again soon
    REEF_JOINS_MEET,  // now
    REEF_JOINS_LEAVE, // all end, since one was asked to
} reef_joins_turn;

/**
 * What is next; asked between two pieces of work.
 *
 * ended     this rank has no more bytes
 * stopping  it was asked to stop
 */
reef_joins_turn reef_joins_next(reef_joins *joins, bool ended, bool stopping);
/** Seconds after which to ask again, where there is nothing else to do. */
double reef_joins_patience(const reef_joins *joins);

/**
 * Join. What fails before anything is exchanged is the same error on all ranks, with the rank's
 * name. What fails on this rank alone later ends all ranks at once; nothing that was committed is
 * lost, and the join is begun again with the next start.
 *
 * advanced  called with `context` after each item that was taken in
 */
REEF_MUST_CHECK reef_status reef_joins_meet(reef_joins *joins,
                                            void (*advanced)(void *context),
                                            void *context,
                                            reef_error *err);

/** Did the last join fail on all ranks, for the same reason? Then rank 0 tells people. */
bool reef_joins_failed_together(const reef_joins *joins);
/** This rank cannot go on: end all that may still wait for it. Returns where none does. */
void reef_joins_fail(const reef_joins *joins, const reef_error *err);

/** For people; NULL for a process that joins nobody. */
json_t *reef_joins_json(reef_joins *joins);

#endif
