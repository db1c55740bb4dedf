// A configuration file: keys and values of one section, with the line that each stands on.
//
//   # a comment; so is what follows a blank and a semicolon
//   [reefd]
//   commit-seconds = 5
//
// inih reads the form. Stricter here: keys stand in the section, blanks before a key mean nothing,
// a line that is too long is reported instead of cut, and the file is a regular one of bounded
// size.
#ifndef REEF_CONFIG_FILE_H
#define REEF_CONFIG_FILE_H

#include "reef_error.h"

#define REEF_CONFIG_FILE_BYTES_MAX (1u << 20)

/**
 * Receives one key and its value, both valid for the call; what it refuses is reported with file
 * and line.
 */
typedef reef_status (*reef_config_entry)(
    void *context, const char *key, const char *value, unsigned line, reef_error *err);

/**
 * Read the keys of `section` in the order of the file. Continues after a mistake, so that every key
 * is seen once; the first mistake is the error.
 *
 * Errors: INVALID with "FILE:LINE: ..."; NOT_FOUND when the file is not there; IO.
 */
REEF_MUST_CHECK reef_status reef_config_file_read(
    const char *path, const char *section, reef_config_entry entry, void *context, reef_error *err);
/** Called for each mistake: its line, and "FILE:LINE: ..." */
typedef void (*reef_config_mistake)(void *context, unsigned line, const char *message);

/**
 * The same, but reports every mistake. Errors: only those of a file that cannot be read as a whole.
 */
REEF_MUST_CHECK reef_status reef_config_file_check(const char *path,
                                                   const char *section,
                                                   reef_config_entry entry,
                                                   reef_config_mistake mistake,
                                                   void *context,
                                                   reef_error *err);

#endif
