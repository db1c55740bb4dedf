// reef watch PATH...: follow logs as they are written, and print incidents as they ring.
//
//   reefd, started here  reads, judges, learns, commits
//   this process         reads the timeline of the pool behind each commit, prints
#ifndef REEF_LIVE_WATCH_H
#define REEF_LIVE_WATCH_H

#include "cli.h"

/**
 * Until a signal comes, or reefd ends. Without operands it follows the daemon that runs already.
 *
 * Errors: INVALID a source that cannot be followed, a pool that watches no lines; NOT_FOUND no
 * pool, or no daemon runs on it; BUSY one runs already; IO reefd could not be started, or failed.
 */
REEF_MUST_CHECK reef_status reef_watch_live(reef_cli_call *cli, reef_error *err);

#endif
