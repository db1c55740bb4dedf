// What the stream is read from, and the part of the loop that reads it.
//
// Sources are read one after another into the trainer's queue. A file is read from the pool's cursor;
// standard input, which cannot be read again, from where it stands. When the queue is full reading
// stops, and so the sender waits.
#ifndef REEF_INPUT_H
#define REEF_INPUT_H

#include "reef_error.h"
#include "reef_store.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#define REEF_BYTES_UNKNOWN UINT64_MAX
#define REEF_INPUT_NAME_BYTES_MAX 255 // what a trainer keeps of a source's name

typedef struct reef_training reef_training;

typedef struct reef_input {
    const char *path;                         // NULL for standard input
    char name[REEF_INPUT_NAME_BYTES_MAX + 1]; // what the pool's cursor goes by
    int fd;
    uv_handle_type kind; // UV_FILE, or which sort of stream standard input is
    uint64_t offset;     // position of the next read; starts as the pool's cursor
    uint64_t bytes;      // size of a file, or REEF_BYTES_UNKNOWN
} reef_input;

/**
 * Open what `spec` names: "file:PATH", "PATH" or "-".
 *
 * Errors: INVALID an unknown kind of source; NOT_FOUND it cannot be read (absent, no permission, a
 * directory, a pipe).
 */
REEF_MUST_CHECK reef_status reef_input_open(reef_input *source, const char *spec, reef_error *err);
void reef_input_close(reef_input *source);
/** What people call it: its path, or "standard input". */
const char *reef_input_label(const reef_input *source);

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
    bool busy; // a file request is under way
    uv_fs_t request;
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
