// The inside of a reef_crew and of a reef_joins:
//
//   crew.c        the ranks that mpirun started, and what they all do
//   crew_meet.c   what they compare before they train
//   joins.c       when ranks that learn apart meet, and what they do then; what they remember of it
//   joins_pack.c  what a rank gives, as a file; its way to the other ranks, and taking one in
#ifndef REEF_RANKS_INTERNAL_H
#define REEF_RANKS_INTERNAL_H

#include "crew.h"
#include "joins.h"
#include "reef_join.h"

#include <pthread.h>

enum { PATH_BYTES_MAX = 4200, WHY_BYTES_MAX = 400, CREW_TEXT_BYTES = 64 };

/** Of one rank since it started, as of a commit. What is exchanged is that of the net's steps. */
typedef struct reef_crew_figures {
    char host[64];
    uint64_t epoch; // the last one that counts
    uint64_t steps; // since the process started
    uint64_t sent_bytes, received_bytes, exchanges;
    double sent_bytes_per_s;  // since the commit before
    double computing_seconds; // learning bytes, less what follows
    double packing_seconds;
    double waiting_seconds;    // for the network, and for slower ranks
    double telling_seconds;    // for what rank 0 says; rank 0: saying it
    double committing_seconds; // with the wait for the others' commits
    double lag_seconds;        // less waiting than the rank that waited longest
    double cpu_seconds;        // of learning bytes, with exchanges
    uint64_t memory_peak_bytes;
} reef_crew_figures;

struct reef_crew {
    struct reef_mpi *mpi;
    reef_ranks *ranks;
    reef_report *report;
    double deadline_seconds;
    uint64_t join_every; // above 0: they learn apart, and join after so many bytes
    // With it, since all have met:
    reef_join join;      // the pool's
    bool join_is_new;    // it begins now
    bool joins_differ;   // some have done one join more than others
    uint64_t joins_done; // by those that have done most
    char pool[PATH_BYTES_MAX];
    unsigned char *payload; // of the last order that was heard
    size_t payload_capacity;
    bool met, ended;
    // The trainer's thread counts these, and copies all ranks' to `shown` under the lock.
    double computing_seconds, cpu_seconds, figured_at;
    uint64_t first_step, figured_sent_bytes;
    reef_crew_figures *figures; // (count)
    reef_crew_figures *shown;   // (count)
    pthread_mutex_t lock;
};

/** What a rank says of itself when all meet. */
typedef struct reef_crew_card {
    char version[CREW_TEXT_BYTES]; // first, and of this size in every version
    uint32_t card_bytes;
    uint32_t status; // a reef_status, and why
    char message[256];
    char kernels[CREW_TEXT_BYTES];
    uint64_t config; // a hash of the pool's configuration
    uint64_t step, stream_bytes;
    uint8_t root[REEF_HASH_BYTES];
    reef_shard shard;    // zero: the pool is whole
    uint64_t join_every; // what this rank was asked for; 0: to train one pool together
    uint32_t has_joined; // else `join` is zero
    uint32_t base_is_open;
    uint8_t base_root[REEF_HASH_BYTES]; // of generation 0, which all have in common
    reef_join join;
} reef_crew_card;

/**
 * What all ranks make of their cards: the same on each of them.
 *
 * back  (count) written: the ranks that have to step back
 * anew  written; true: ranks that learn apart begin a new training
 * Errors: what is wrong, with the first such rank.
 */
REEF_MUST_CHECK reef_status
reef_crew_judge(const reef_crew_card *cards, size_t count, bool *back, bool *anew, reef_error *err);

// ---- joins --------------------------------------------------------------------------------------

#define JOINS_FOLDER "joins" // in the pool's directory

/** What a rank says when it arrives. */
enum {
    JOINS_ARRIVED = 1,
    JOINS_HAS = 2,   // it has learned something since the last join
    JOINS_ENDED = 4, // it has no more bytes
    JOINS_STOPS = 8, // it was asked to stop, or has heard that another one was
    JOINS_URGES = 16 // by itself: it has arrived, and was asked to stop since
};

typedef struct reef_joins_peer {
    uint8_t said;      // when it arrived; 0: it has not
    uint8_t said_next; // the same of the join after this one
} reef_joins_peer;

struct reef_joins {
    reef_crew *crew;
    reef_store *store;
    reef_trainer *trainer;
    reef_report *report;
    reef_join record;      // as the next commit writes it
    reef_join_kind *kinds; // (kind_count) the same
    size_t kind_count;
    bool kinds_changed; // since the record of them was written
    // the meeting
    reef_joins_peer *peers; // (count) this rank's own too
    bool urged;             // one of them was asked to stop
    bool again;             // a join that some have done is to be done by all first
    uint64_t again_number;
    bool over;            // nobody joins any more
    bool leaves;          // since one was asked to stop: then all are
    bool failed_together; // and that is why
    double arrived_at;
    pthread_mutex_t lock; // protects what people see:
    struct {
        reef_join record;
        bool waits, joining;
        double waiting_seconds; // in all, without the present wait
        double arrived_at;
        double last_seconds;
        uint64_t last_sent_bytes, last_received_bytes;
        bool *here; // (count)
    } shown;
};

// ---- joins.c ------------------------------------------------------------------------------------

size_t reef_joins_rank(const reef_joins *joins);
size_t reef_joins_count(const reef_joins *joins); // of ranks
/** With what the system says: FULL where the disk has no room, else IO. */
REEF_MUST_CHECK reef_status reef_joins_fail_file(const char *doing,
                                                 const char *what,
                                                 reef_error *err);

/** Where a rank's file of a join lies; from: the rank that made it. */
void reef_joins_path(const reef_joins *joins,
                     uint64_t number,
                     size_t from,
                     char out[PATH_BYTES_MAX]);

/** The pool's own kind for one of a rank. False: there is none, or no more. */
bool reef_joins_find_kind(const reef_joins *joins, uint32_t owner, uint32_t kind, uint32_t *out);
REEF_MUST_CHECK reef_status reef_joins_add_kind(reef_joins *joins,
                                                reef_join_kind kind,
                                                reef_error *err);

// ---- joins_pack.c -------------------------------------------------------------------------------

/** What a rank gives to the others in one join. */
typedef struct reef_joins_pack {
    uint64_t bytes;    // of the file
    uint64_t accepted; // bytes of the rank's sources when it was made
    uint32_t items;
    uint64_t left_out_bytes;
} reef_joins_pack;

/** Pack what the others do not know into a file. */
REEF_MUST_CHECK reef_status reef_joins_pack_make(reef_joins *joins,
                                                 uint64_t number,
                                                 reef_joins_pack *out,
                                                 reef_error *err);
/** Read its header again, and check all of it. CORRUPT; NOT_FOUND. */
REEF_MUST_CHECK reef_status reef_joins_pack_check(
    const reef_joins *joins, uint64_t number, size_t from, reef_joins_pack *out, reef_error *err);
/** Take in all of it that was not; `before`: items of lower ranks. */
REEF_MUST_CHECK reef_status reef_joins_pack_take(reef_joins *joins,
                                                 uint64_t number,
                                                 size_t from,
                                                 uint32_t before,
                                                 void (*advanced)(void *context),
                                                 void *context,
                                                 reef_error *err);

/** Give this rank's file to all others, and get theirs. received: written; bytes. */
REEF_MUST_CHECK reef_status reef_joins_exchange(
    reef_joins *joins, uint64_t number, uint64_t own_bytes, uint64_t *received, reef_error *err);

#endif
