// The inside of a reef_crew: crew.c and crew_meet.c.
#ifndef REEF_CREW_INTERNAL_H
#define REEF_CREW_INTERNAL_H

#include "crew.h"
#include "reef_join.h"

#include <pthread.h>

enum { PATH_BYTES_MAX = 4200, WHY_BYTES_MAX = 400, CREW_TEXT_BYTES = 64 };

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
 * anew  written; true if ranks that learn apart start a new training
 * Errors: what is wrong, with the first such rank.
 */
REEF_MUST_CHECK reef_status
reef_crew_judge(const reef_crew_card *cards, size_t count, bool *back, bool *anew, reef_error *err);

#endif
