// The bytes of one regular file, at any offset; those of a gzip file as if it were unpacked.
#ifndef REEF_GZIP_FILE_H
#define REEF_GZIP_FILE_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_vector_file {
    char *path;
    int fd;
    bool packed;      // gzip, known by its first bytes
    uint64_t bytes;   // of the content
    uint8_t *content; // of a packed file, NULL at rest; or a borrowed one
    bool lent;        // it is not a file: the content belongs to the caller
} reef_vector_file;

/**
 * NOT_FOUND it cannot be read; CORRUPT what does not unpack; INVALID when it unpacks to too much.
 */
REEF_MUST_CHECK reef_status reef_vector_file_open(reef_vector_file *file,
                                                  const char *path,
                                                  reef_error *err);
/** Bytes that came another way, as if a file called `name` held them. They stay the caller's. */
REEF_MUST_CHECK reef_status reef_vector_file_lend(
    reef_vector_file *file, const char *name, const uint8_t *bytes, size_t count, reef_error *err);
void reef_vector_file_close(reef_vector_file *file); // accepts the zeroed file
/** Forget what was unpacked until it is read again. */
void reef_vector_file_rest(reef_vector_file *file);

/**
 * `count` bytes at `offset`, which lie within the content. CORRUPT when they are not there any
 * more.
 */
REEF_MUST_CHECK reef_status reef_vector_file_read(
    reef_vector_file *file, uint64_t offset, void *bytes, size_t count, reef_error *err);

#endif
