// A pool that learns apart from those of other ranks and joins them after so many bytes: what it
// has to remember of that. Not part of the root hash.
#ifndef REEF_JOIN_H
#define REEF_JOIN_H

#include "reef_store.h"

#define REEF_JOIN_TRAINING_BYTES 16
#define REEF_JOIN_NOBODY UINT32_MAX // whose a kind is that all pools had from the beginning

typedef struct reef_join {
    uint8_t training[REEF_JOIN_TRAINING_BYTES]; // the same in all pools that join; drawn at random
    uint32_t rank, count;                       // this one, of how many
    uint64_t every;                             // bytes from one join to the next
    uint64_t joins;                             // that are done
    uint64_t since;                             // bytes accepted since the last one
    uint64_t accepted;                          // bytes of all sources, ever
    uint32_t step;      // how much of the join under way is done: a count of what was received
    uint32_t own_from;  // generations from here on were not sent yet, until a join has imported any
    uint64_t joined_ms; // unix time; 0: none yet
    // in all joins:
    uint64_t sent_bytes, received_bytes;
    uint64_t left_out_bytes; // of visits: longer than the text that their kinds' memories keep
    uint64_t kinds;          // generations that were taken in
} reef_join;

/** A kind of the pool, and which kind of which rank it is a copy of. */
typedef struct reef_join_kind {
    uint32_t kind;
    uint32_t owner; // a rank, or REEF_JOIN_NOBODY
    uint32_t owner_kind;
    uint64_t returned; // bytes that it had learned at the last join, if it had come back; else 0
} reef_join_kind;

/** NOT_FOUND the pool joins no others; CORRUPT. */
REEF_API REEF_MUST_CHECK reef_status reef_join_read(reef_txn *txn, reef_join *out, reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_join_put(reef_txn *txn,
                                                   const reef_join *join,
                                                   reef_error *err);

/** The kinds, on the heap and the caller's; none where there is no such record. */
REEF_API REEF_MUST_CHECK reef_status reef_join_kinds_read(reef_txn *txn,
                                                          reef_join_kind **out,
                                                          size_t *count,
                                                          reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_join_kinds_put(reef_txn *txn,
                                                         const reef_join_kind *kinds,
                                                         size_t count,
                                                         reef_error *err);

#endif
