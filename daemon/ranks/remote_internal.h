// What rank 0 and the others say to each other about sources; remote.c and remote_reader.c.
#ifndef REEF_REMOTE_INTERNAL_H
#define REEF_REMOTE_INTERNAL_H

#include "crew_internal.h"
#include "remote.h"

/** What a rank says of a source when all have met. */
typedef struct reef_remote_card {
    char name[REEF_INPUT_NAME_BYTES_MAX + 1];
    uint32_t weight;
    uint32_t live;
    uint64_t bytes;
} reef_remote_card;

/** Before the bytes that a rank gives. */
typedef struct reef_remote_answer {
    uint64_t count, checkpoint_bytes;
    uint64_t bytes; // that the source is known to have; REEF_BYTES_UNKNOWN
    uint32_t ended;
    uint32_t unused;
} reef_remote_answer;

/** In front of the checkpoint's text, in the payload of SEEK. */
typedef struct reef_remote_place {
    uint64_t cursor, begin;
} reef_remote_place;

/**
 * One message from `from` to rank 0; every rank calls it. bytes: sent by `from`, filled on rank 0.
 */
void reef_remote_message(reef_crew *crew, size_t from, void *bytes, size_t size);

#endif
