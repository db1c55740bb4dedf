// What the stream is read from, and the part of the loop that reads it.
//
// Sources are read one after another into the trainer's queue. A file is read from the pool's cursor;
// standard input, which cannot be read again, from where it stands. Vectors (reef_vectors.h) are read as
// the bytes of their records, also from the cursor. When the queue is full reading stops, and so the
// sender waits.
#ifndef REEF_INPUT_H
#define REEF_INPUT_H

#include "reef_error.h"
#include "reef_store.h"
#include "reef_trainer.h"
#include "reef_vectors.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#define REEF_BYTES_UNKNOWN UINT64_MAX
#define REEF_INPUT_NAME_BYTES_MAX 255 // what a trainer keeps of a source's name

typedef struct reef_training reef_training;

typedef struct reef_input {
    const char *path;                         // as given, or a spec; NULL for standard input
    char name[REEF_INPUT_NAME_BYTES_MAX + 1]; // what the pool's cursor goes by
    int fd;                                   // -1 for vectors
    reef_vectors *vectors;                    // NULL for text
    uv_handle_type kind;                      // UV_FILE, or which sort of stream standard input is
    uint64_t offset; // position of the next read; starts as the pool's cursor
    uint64_t bytes;  // size of a file, or REEF_BYTES_UNKNOWN
} reef_input;

/**
 * Open what `spec` names: "file:PATH", "PATH" or "-", or vectors such as "csv:FILE".
 *
 * Errors: INVALID an unknown kind of source; NOT_FOUND it cannot be read (absent, no permission, a
 * directory, a pipe); those of reef_vectors_open.
 */
REEF_MUST_CHECK reef_status reef_input_open(reef_input *source, const char *spec, reef_error *err);
void reef_input_close(reef_input *source);
/** What people call it: its path, or "standard input". */
const char *reef_input_label(const reef_input *source);
/** INVALID when a pool with this configuration cannot be trained on the source. */
REEF_MUST_CHECK reef_status reef_input_check(const reef_input *source,
                                             const reef_config *config,
                                             reef_error *err);

/** Go on from the pool's cursor. CORRUPT when the file is shorter than that. */
REEF_MUST_CHECK reef_status reef_input_seek(reef_input *source, uint64_t cursor, reef_error *err);

/** Called once on the loop's thread when reading had to end; the reader is stopped then. */
typedef void (*reef_reader_on_error)(void *context, const reef_error *err);

/** Reads `count` sources on `loop`. All fields belong to the loop's thread. */
typedef struct reef_reader {
    uv_loop_t *loop;
    reef_training *training;
    reef_input *sources;
    size_t count;
    reef_reader_on_error on_error;
    void *context;
    // its own
    size_t current;
    bool stopped;
    bool busy; // a file request, or one for vectors, is under way
    uv_fs_t request;
    struct {
        uv_work_t request;
        uint8_t *at; // space that the queue has lent
        size_t room, count;
        reef_error error;
    } vectors;
    bool stream_open, stream_reading;
    int stream_flags; // of standard input before libuv made it non-blocking
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
        uv_tty_t tty;
    } input;
} reef_reader;

/** Begin, or go on after the queue had been full. */
void reef_reader_resume(reef_reader *reader);
/** Read no more and let go of standard input. A request under way ends by itself, unused. */
void reef_reader_stop(reef_reader *reader);

#endif
