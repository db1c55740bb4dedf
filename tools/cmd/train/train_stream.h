// Files as one stream without boundaries, read from where the pool stands.
#ifndef REEF_TRAIN_STREAM_H
#define REEF_TRAIN_STREAM_H

#include "cli.h"
#include "reef_source.h"

typedef struct reef_train_stream {
    reef_input *files;
    uint64_t *starts; // (count + 1) where each file begins; the last one is the end of the stream
    size_t count;
    uint64_t at; // bytes of the stream that the trainer has accepted
    uint8_t *buffer;
} reef_train_stream;

/**
 * Open the files, whose names are sources as `reefd --source` takes them. Release also after an
 * error.
 *
 * Errors: INVALID a file twice, standard input, a pattern, a kind that is unknown or has no end;
 * NOT_FOUND a file cannot be read.
 */
REEF_MUST_CHECK reef_status reef_train_stream_open(reef_train_stream *stream,
                                                   char **specs,
                                                   size_t count,
                                                   reef_error *err);
/**
 * Go on where the pool's cursors stand.
 *
 * Errors: CORRUPT a file is shorter than its cursor; INVALID a later file was read before an
 * earlier one had ended, or began.
 */
REEF_MUST_CHECK reef_status reef_train_stream_seek(reef_train_stream *stream,
                                                   const reef_trainer *trainer,
                                                   reef_error *err);
void reef_train_stream_release(reef_train_stream *stream); // accepts the zeroed stream

uint64_t reef_train_stream_bytes(const reef_train_stream *stream);
/**
 * The next bytes, of one file; there must be one.
 * name, bytes  written; good until the next call
 */
REEF_MUST_CHECK reef_status reef_train_stream_read(reef_train_stream *stream,
                                                   const char **name,
                                                   const uint8_t **bytes,
                                                   size_t *count,
                                                   reef_error *err);

#endif
