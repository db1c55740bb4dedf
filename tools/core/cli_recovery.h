// Damaged kinds of a command's pool.
#ifndef REEF_CLI_RECOVERY_H
#define REEF_CLI_RECOVERY_H

#include "cli.h"
#include "reef_kinds.h"

/** reef_trainer_kinds_recover on the pool itself, which a dry run only reads; free *out. */
REEF_MUST_CHECK reef_status reef_cli_recover(const reef_cli_call *cli,
                                             bool dry_run,
                                             reef_kind_recovery **out,
                                             size_t *count,
                                             reef_error *err);

#endif
