// Reading sealed records again while the daemon runs: a thread of its own, slow on purpose.
//
//   scrubber's thread                         trainer's thread                loop
//   reef_store_scrub, a piece a time
//   view, damage  ------- copies ---------->  kept with the next commit  -->  status
//   poke          ------------------------->  damage becomes an event
//
// It reads the file and writes nothing: how far it has come goes into the trainer's commits, so a
// pool keeps its one writer. Training never waits for it and never reads what it reports: no bit
// of the result depends on it.
#ifndef REEF_SCRUBBER_H
#define REEF_SCRUBBER_H

#include "reef_log.h"
#include "reef_pool_check.h"
#include "reef_store.h"

#define REEF_SCRUB_RATE_DEFAULT (UINT64_C(1) << 20) // bytes a second: 86 GB a day, little of a disk
#define REEF_SCRUB_DAMAGE_MAX 64                    // different records that are reported

typedef struct reef_scrubber reef_scrubber;

typedef struct reef_scrubber_view {
    uint64_t rate; // bytes a second
    reef_scrub scrub;
    uint64_t damage_count; // different records found damaged since the daemon began
    char damage[256];      // the last of them; empty for none
    char failing[256];     // why it cannot read at the moment; empty if it can
} reef_scrubber_view;

/** Begin where the pool says the last daemon stopped. `store` and `report` outlive it. */
REEF_MUST_CHECK reef_status reef_scrubber_new(
    reef_scrubber **out, reef_store *store, uint64_t rate, reef_report *report, reef_error *err);
/**
 * Start the thread; with a rate of 0 there is none.
 *
 * poke  called there when damage waits to be taken
 */
REEF_MUST_CHECK reef_status reef_scrubber_start(reef_scrubber *scrubber,
                                                void (*poke)(void *context),
                                                void *context,
                                                reef_error *err);
/** End the thread. It waits for a piece, which takes milliseconds. Accepts NULL. */
void reef_scrubber_stop(reef_scrubber *scrubber);
void reef_scrubber_free(reef_scrubber *scrubber); // stopped or never started; accepts NULL

/** Any thread. */
void reef_scrubber_view_read(reef_scrubber *scrubber, reef_scrubber_view *view);
/** Is there damage that was not taken? */
bool reef_scrubber_waits(reef_scrubber *scrubber);
/** The next damaged record, once each; false if none is left. */
bool reef_scrubber_take(reef_scrubber *scrubber, char what[256]);

#endif
