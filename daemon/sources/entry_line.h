// An entry of a log, with its time and who wrote it, as a line: one form for all sources that have
// entries and not lines, so that one text is one line wherever it comes from.
//
//   2026-01-31T23:59:59.123Z NAME[PID]: MESSAGE
//       what follows a newline in MESSAGE
#ifndef REEF_ENTRY_LINE_H
#define REEF_ENTRY_LINE_H

#include <stddef.h>
#include <stdint.h>

#define REEF_ENTRY_HEAD_BYTES_MAX 512
#define REEF_ENTRY_NAME_BYTES_MAX 200 // of a name and of a PID, with its end; the rest is left out

/**
 * What stands before the message, without a final zero; returns how many bytes that are.
 *
 * time_us  since 1970, before the year 10000; negative: there is none
 * name     who wrote it; "": unknown, and `pid` is not looked at
 * pid      of the process; "": unknown. Control characters of both become spaces
 */
size_t reef_entry_head(char out[REEF_ENTRY_HEAD_BYTES_MAX],
                       int64_t time_us,
                       const char *name,
                       const char *pid);

/**
 * The message with the end of its line; returns its bytes. Newlines and NULs that end it are left
 * out, another NUL is a space, and four spaces follow each newline.
 *
 * out  written; NULL: the bytes are only counted
 */
size_t reef_entry_message(uint8_t *out, const char *message, size_t bytes);

#endif
