// The inside of a reef_joins:
//
//   joins.c         when ranks meet, and what they do then; what a rank remembers of it
//   joins_pack.c    what a rank gives, as a file, and taking one in
//   joins_travel.c  how files get to the other ranks
#ifndef REEF_JOINS_INTERNAL_H
#define REEF_JOINS_INTERNAL_H

#include "crew_internal.h"
#include "joins.h"
#include "reef_join.h"

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

uint32_t reef_joins_open_generation(const reef_joins *joins);
/** Those from record.own_from on that are not known are `owner`'s. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_joins_add_own_kinds(reef_joins *joins,
                                                     uint32_t owner,
                                                     reef_error *err);
/** What each kind has learned by now counts as given. */
void reef_joins_note_returned(reef_joins *joins);

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

// ---- joins_travel.c -----------------------------------------------------------------------------

/** Give this rank's file to all others, and get theirs. received: written; bytes. */
REEF_MUST_CHECK reef_status reef_joins_exchange(
    reef_joins *joins, uint64_t number, uint64_t own_bytes, uint64_t *received, reef_error *err);

#endif
