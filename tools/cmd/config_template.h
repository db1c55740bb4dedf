// A configuration file for reefd with every setting explained.
#ifndef REEF_CONFIG_TEMPLATE_H
#define REEF_CONFIG_TEMPLATE_H

#include "reef_error.h"

/** What reef_config_text_write would refuse, asked before the pool is made. Errors: the same. */
REEF_MUST_CHECK reef_status reef_config_text_check(const char *path,
                                                   const char *pool,
                                                   reef_error *err);
/**
 * Write a new file: the pool, the settings that always stand in it, and every other setting as a
 * comment.
 *
 * pool   its directory, which exists
 * about  lines of comment at the top; may be empty
 *
 * Errors: INVALID the file exists, or the pool's path does not fit on a line; IO; NOT_FOUND no such
 * directory.
 */
REEF_MUST_CHECK reef_status reef_config_text_write(const char *path,
                                                   const char *pool,
                                                   const char *about,
                                                   reef_error *err);

#endif
