// Lines of the stream are judged as their bytes are accepted, before anything learns them
// (reef_watch.h): where the pool's configuration says `watch`.
//
// What the watch knows is part of the state, as the cursors are: what a kill undoes is read again,
// judged again, and found to be the same.
#ifndef REEF_WATCHING_H
#define REEF_WATCHING_H

#include "trainer_internal.h"

/** With the state of the last commit. Errors: NO_MEMORY, CORRUPT. */
REEF_MUST_CHECK reef_status reef_watching_load(reef_trainer *trainer,
                                               reef_txn *txn,
                                               reef_error *err);
void reef_watching_release(reef_trainer *trainer);

/**
 * Bytes of a source were accepted, from `offset` of a file or, with NULL, of the source on.
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_watching_read(reef_trainer *trainer,
                                               size_t source,
                                               const char *file,
                                               uint64_t offset,
                                               const uint8_t *bytes,
                                               size_t count,
                                               reef_error *err);

/** Write what changed, under the open generation's number. */
REEF_MUST_CHECK reef_status reef_watching_put(reef_trainer *trainer,
                                              reef_txn *txn,
                                              reef_error *err);

/** Remove what an earlier commit wrote under the number of a generation that was sealed since. */
REEF_MUST_CHECK reef_status reef_watching_leave_sealed(const reef_trainer *trainer,
                                                       reef_txn *txn,
                                                       reef_error *err);

#endif
