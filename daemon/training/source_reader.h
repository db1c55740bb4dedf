// Reads all sources into the queues of training: see source_reader.c.
#ifndef REEF_SOURCE_READER_H
#define REEF_SOURCE_READER_H

#include "reef_source.h"
#include "training_thread.h"

typedef void (*reef_reader_on_error)(void *context, const reef_error *err);

/** Reads all sources on `loop`. All fields belong to the loop's thread. */
typedef struct reef_reader {
    uv_loop_t *loop;
    reef_training *training;
    reef_input *sources;
    size_t count;
    reef_report *report;
    reef_reader_on_error on_error;
    void *context;
    // its own
    bool stopped;
    bool resuming; // sources that reply at once do not nest
    bool again;    // one of them did
} reef_reader;

/** Begin, or continue after a queue was full. */
void reef_reader_resume(reef_reader *reader);
/** Report to the sources which of their bytes are committed. */
void reef_reader_settle(reef_reader *reader);
/** Stop reading and close the sources. */
void reef_reader_stop(reef_reader *reader);

#endif
