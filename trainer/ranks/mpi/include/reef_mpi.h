// The link between ranks over MPI (Open MPI): processes that mpirun started.
//
// Threads: reef_mpi_begin and reef_mpi_end belong to the process's first thread; what a link does
// runs on one thread at a time, which may be another.
#ifndef REEF_MPI_H
#define REEF_MPI_H

#include "reef_ranks.h"

typedef struct reef_mpi reef_mpi;

/**
 * Join the processes of this run. MPI takes the process as it is: call it before threads start.
 *
 * deadline_seconds  how long a peer may take to answer, above 0
 * on_end            called with one line before all ranks are ended, to tell people; may be NULL
 *
 * Errors: INVALID MPI cannot run with one thread at a time; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_mpi_begin(reef_mpi **out,
                                           double deadline_seconds,
                                           void (*on_end)(void *context, const char *why),
                                           void *context,
                                           reef_error *err);

/** The link, which lasts until reef_mpi_end. */
void reef_mpi_link(reef_mpi *mpi, reef_ranks_link *out);

/** Leave in an orderly way, together with all others. Accepts NULL. */
void reef_mpi_end(reef_mpi *mpi);

#endif
