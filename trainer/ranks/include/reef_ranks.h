// Several processes that train one model, the ranks: each has the whole state, and computes its
// share of the fixed pieces of a step.
//
// What always holds: every rank makes the same calls in the same order with the same counts, and
// what a piece computes depends on the piece alone. So after an exchange all ranks hold the same
// bits, whatever their number. How bytes travel is left to a link, such as that of reef_mpi.h.
//
// Errors: none are returned. A rank that is lost leaves the others nothing to go on with, so a link
// whose peer fails, or does not answer within its deadline, names the peer and ends all ranks. What
// was committed is safe.
//
// Threads: one at a time on all of it. A NULL reef_ranks is a single rank, everywhere.
#ifndef REEF_RANKS_H
#define REEF_RANKS_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_ranks reef_ranks;

#define REEF_RANKS_MAX 1024 // of one training

/** Bytes for one peer, or from it. */
typedef struct reef_ranks_message {
    void *bytes; // only read where it is sent
    size_t size; // may be 0: then nothing travels
} reef_ranks_message;

/** How bytes travel. `context` outlives the ranks, and is not theirs. */
typedef struct reef_ranks_link {
    size_t rank, count; // this process, of how many
    void *context;
    /**
     * Send send[r] to every rank r and wait until receive[r] has come from it; those of the rank
     * itself are ignored. Sizes on both sides agree. Does not return when a peer fails, or does not
     * answer in time.
     */
    void (*exchange)(void *context,
                     const reef_ranks_message *send,     // (count)
                     const reef_ranks_message *receive); // (count)
    /** Send a byte to all others, without waiting; of a rank they arrive in order. May be NULL. */
    void (*notify)(void *context, uint8_t what);
    /** The next such byte of a rank, if one is there. Does not wait. NULL with `notify`. */
    bool (*heard)(void *context, size_t rank, uint8_t *what);
    /** End all ranks at once, saying why. Does not return. */
    void (*end)(void *context, const char *why);
} reef_ranks_link;

/** INVALID more than REEF_RANKS_MAX, or a rank outside them; NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_ranks_new(reef_ranks **out,
                                                    const reef_ranks_link *link,
                                                    reef_error *err);
REEF_API void reef_ranks_free(reef_ranks *ranks); // accepts NULL

REEF_API size_t reef_ranks_rank(const reef_ranks *ranks);  // NULL: 0
REEF_API size_t reef_ranks_count(const reef_ranks *ranks); // NULL: 1

/** Of pieces 0 .. pieces - 1 those from *first to *end - 1 are the rank's: fixed by the counts. */
REEF_API void reef_ranks_share(
    const reef_ranks *ranks, size_t rank, size_t pieces, size_t *first, size_t *end);

/** What each piece of some work leaves: `bytes` bytes, those of piece i at base + i * stride. */
typedef struct reef_ranks_array {
    void *base;
    size_t stride, bytes;
} reef_ranks_array;

/**
 * Every rank has written what its own share of the pieces leaves, and gets what those of the others
 * left: one message between each two ranks.
 *
 * arrays  (count) written, but for the rank's own pieces
 */
REEF_API void reef_ranks_gather(reef_ranks *ranks,
                                size_t pieces,
                                size_t count,
                                const reef_ranks_array *arrays);

/**
 * Room for one message to, or from, each rank, of these sizes. It lasts until the next call for the
 * same direction, or gather.
 */
REEF_API reef_ranks_message *reef_ranks_room(reef_ranks *ranks,
                                             bool receive,
                                             const size_t *sizes); // (count)
/** Send what is in the room, and fill that for receiving. */
REEF_API void reef_ranks_exchange(reef_ranks *ranks);

/** Rank 0 says something to all others: its `bytes` are copied to theirs, of equal size. */
REEF_API void reef_ranks_tell(reef_ranks *ranks, void *bytes, size_t size);

/**
 * Ranks that work apart say a byte to all others, and hear theirs when they ask: no deadline holds,
 * and the order of calls is each rank's own. Not beside an exchange. The link must have it.
 */
REEF_API void reef_ranks_notify(reef_ranks *ranks, uint8_t what);
/** The next byte of another rank; false: there is none now. */
REEF_API bool reef_ranks_heard(reef_ranks *ranks, size_t rank, uint8_t *what);

/** End all ranks at once; see reef_ranks_link. Does not return. */
REEF_API _Noreturn void reef_ranks_end(reef_ranks *ranks, const char *why);

/** What an exchange is for: its costs are counted apart. */
typedef enum reef_ranks_part {
    REEF_RANKS_STEP,   // a rank's share of a step of the net, for the others
    REEF_RANKS_TELL,   // reef_ranks_tell; all but rank 0 wait in it for what is next
    REEF_RANKS_COMMIT, // what is agreed about a commit, and told beside it
    REEF_RANKS_JOIN,   // what ranks that learn apart exchange
    REEF_RANKS_PARTS
} reef_ranks_part;

/** Count what follows, but for reef_ranks_tell, to this part; at first it is STEP. */
REEF_API void reef_ranks_set_part(reef_ranks *ranks, reef_ranks_part part);
/** Seconds in which a caller copied bytes between its own arrays and a room. */
REEF_API void reef_ranks_note_packing(reef_ranks *ranks, double seconds);

/** What travelled of one part, of this rank. */
typedef struct reef_ranks_traffic {
    uint64_t sent_bytes, received_bytes;
    uint64_t exchanges;
    double packing_seconds;
    double waiting_seconds; // from sending until all has come: the network, and slower ranks
} reef_ranks_traffic;
REEF_API void reef_ranks_traffic_read(const reef_ranks *ranks,
                                      reef_ranks_traffic out[REEF_RANKS_PARTS]);

#endif
