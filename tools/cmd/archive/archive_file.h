// What `reef compress` and `reef expand` share: where their output goes, progress, and what they
// say of an archive.
#ifndef REEF_ARCHIVE_FILE_H
#define REEF_ARCHIVE_FILE_H

#include "cli.h"
#include "reef_archive.h"

#define ARCHIVE_SUFFIX ".reef"

/** Where the output goes; NULL: to standard output. On the heap. */
typedef struct reef_cli_output {
    char *path;
    bool force;
} reef_cli_output;

/**
 * The file of --out, or else `otherwise` (taken over; NULL: standard output), and whether it can be
 * written, as far as that shows now. Errors: INVALID it exists, belongs to a pool, or standard
 * output is asked for two things.
 */
REEF_MUST_CHECK reef_status reef_cli_output_choose(reef_cli_output *out,
                                                   const reef_cli_call *cli,
                                                   char *otherwise,
                                                   reef_error *err);
/**
 * Write all of it. A file appears under its name only when it is whole and on the disk; after an
 * error nothing is left. Errors: those of choosing; FULL, IO.
 */
REEF_MUST_CHECK reef_status reef_cli_output_write(const reef_cli_output *out,
                                                  const uint8_t *bytes,
                                                  size_t count,
                                                  reef_error *err);
void reef_cli_output_release(reef_cli_output *out); // accepts zeros

/** Options of a library call with progress on standard error, ended by signals. */
reef_archive_options reef_archive_options_of(const reef_cli_call *cli, const char *label);
void reef_archive_progress_end(void);

/** The description of an archive, the caller's. `path` NULL: standard input or output. */
json_t *reef_archive_json(const reef_archive_info *info, const char *path);
void reef_archive_print(const reef_archive_info *info, const char *path);

#endif
