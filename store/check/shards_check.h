// The check of a pool that lies in several shards. Private to the store.
#ifndef REEF_SHARDS_CHECK_H
#define REEF_SHARDS_CHECK_H

#include "verify_child.h"

/**
 * The check of a pool whose shards `path` holds, by `check` of each. INVALID also: a plan is asked.
 */
REEF_MUST_CHECK reef_status reef_shards_verify(const char *path,
                                               reef_verify_work check,
                                               const reef_check_options *options,
                                               reef_check_report *report,
                                               reef_error *err);

#endif
