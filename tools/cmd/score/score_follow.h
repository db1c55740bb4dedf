// reef score --follow: a log watcher.
#ifndef REEF_SCORE_FOLLOW_H
#define REEF_SCORE_FOLLOW_H

#include "cli.h"

/** The command with --follow. */
reef_status reef_score_follow(reef_cli_call *cli, reef_error *err);
/** INVALID when options of one way were given that only the other has. */
REEF_MUST_CHECK reef_status reef_score_follow_check(const reef_cli_call *cli, reef_error *err);

#endif
