// Whether a file is text, by its first bytes: packed and binary files are not learned as they are.
#ifndef REEF_TEXT_KIND_H
#define REEF_TEXT_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_TEXT_HEAD_BYTES 1024 // of the file, at most: what is looked at
#define REEF_ZEROS_MIN 16         // NUL bytes in a row: a hole, and neither text nor binary

/**
 * What the file is whose first bytes these are, such as "packed by gzip", or NULL: it is text.
 * Only the first line counts, or the lines up to 64 bytes: more bytes change nothing after that.
 *
 * whole    no more bytes will come
 * decided  written; false: these are too few, and NULL means nothing
 *
 * Threads: any.
 */
const char *reef_text_kind(const uint8_t *bytes, size_t count, bool whole, bool *decided);
/** The same of a file, which stays as it is; NULL also where it cannot be read. */
const char *reef_text_kind_of(const char *path);
/** What to say to people about a file of such a name and kind, behind "it is": lent, or "". */
const char *reef_text_advice(const char *name);

#endif
