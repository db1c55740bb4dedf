// The kinds of a command's pool.
#ifndef REEF_CLI_KINDS_H
#define REEF_CLI_KINDS_H

#include "cli_pool.h"
#include "reef_kinds.h"

/** Those of the last commit, released with reef_kind_list_release. */
REEF_MUST_CHECK reef_status reef_cli_kinds_read(reef_cli_pool *pool,
                                                reef_kind_list *out,
                                                reef_error *err);

#endif
