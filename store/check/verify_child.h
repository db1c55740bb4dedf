// Running something dangerous in a child process. Private to the store and its tests.
#ifndef REEF_VERIFY_CHILD_H
#define REEF_VERIFY_CHILD_H

#include "reef_pool_check.h"
#include "reef_store.h"

/** Checks a pool: reef_store_check_with after opening it, or a test's stand-in. */
typedef reef_status (*reef_verify_work)(const char *path,
                                        const reef_check_options *options,
                                        reef_check_report *report,
                                        reef_error *err);

/** Run `work` in a child; what it reports arrives here, and a signal becomes REEF_ERR_CORRUPT. */
REEF_MUST_CHECK reef_status reef_verify_in_child(const char *path,
                                                 reef_verify_work work,
                                                 const reef_check_options *options,
                                                 reef_check_report *report,
                                                 reef_error *err);

/** The check of a pool whose shards `path` holds, by `check` of each. */
REEF_MUST_CHECK reef_status reef_shards_verify(const char *path,
                                               reef_verify_work check,
                                               const reef_check_options *options,
                                               reef_check_report *report,
                                               reef_error *err);

#endif
