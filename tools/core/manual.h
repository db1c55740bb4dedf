// Manual pages, made of the table of commands and of the texts of reefd.
#ifndef REEF_MANUAL_H
#define REEF_MANUAL_H

#include "reef_error.h"

#include <stddef.h>

/**
 * Write reef.1, reefd.8 and a page for each command (reef-snapshot-create.1) into `directory`,
 * which exists. Pages of the same time have the same bytes: SOURCE_DATE_EPOCH is heeded.
 *
 * count  written: pages
 */
REEF_MUST_CHECK reef_status reef_manual_write(const char *directory,
                                              size_t *count,
                                              reef_error *err);

#endif
