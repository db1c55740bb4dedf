// Past logs as one stream of lines in the order of their times.
#ifndef REEF_REPLAY_FILES_H
#define REEF_REPLAY_FILES_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_replay reef_replay;

typedef struct reef_replay_line {
    uint32_t source;
    uint64_t offset;      // in the text of all files of the source, unpacked: reef_replay_file
    const uint8_t *bytes; // (count) lent until the next line; without its end
    size_t count;
    int64_t time_ms; // of the line, or of the last before it that has one
} reef_replay_line;

/**
 * Open files, all files of directories, and what patterns match. Files that logrotate made of one
 * (LOG.1, LOG.2.gz, LOG-20261130) are one source, read in the order of their times. What is
 * compressed with gzip is unpacked.
 *
 * A name alone does not say that: 10.0.0.1 and 10.0.0.2 are logs of two hosts. Such files are those
 * of LOG where LOG lies beside them; or where at least two are given, with numbers that have no
 * gap behind a name that does not end in a digit, or with dates, and each ends before the next
 * begins. All others are sources of their own.
 *
 * A file that is named twice is read once, and what is no text is not read, which is said.
 *
 * Errors: NOT_FOUND nothing is there; IO it cannot be read; INVALID no file and no directory.
 */
REEF_MUST_CHECK reef_status reef_replay_open(reef_replay **out,
                                             char *const *paths,
                                             size_t count,
                                             reef_error *err);
void reef_replay_close(reef_replay *replay);

size_t reef_replay_source_count(const reef_replay *replay);
/** The path of a source, without what rotation adds. */
const char *reef_replay_source_name(const reef_replay *replay, size_t source);
/**
 * The file of a source in which an offset lies, of a line that was read; lent.
 *
 * at  written: the byte in that file, unpacked
 */
const char *reef_replay_file(const reef_replay *replay,
                             size_t source,
                             uint64_t offset,
                             uint64_t *at);
/** Whether no line of the source had a time, so far. */
bool reef_replay_source_lacks_times(const reef_replay *replay, size_t source);
/** Bytes of files, as they lie on the disk, in all and read. */
uint64_t reef_replay_bytes(const reef_replay *replay, uint64_t *read);

/** The next line of all sources; `any` is false at the end. Errors: IO. */
REEF_MUST_CHECK reef_status reef_replay_next(reef_replay *replay,
                                             reef_replay_line *out,
                                             bool *any,
                                             reef_error *err);

#endif
