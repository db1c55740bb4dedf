// The coder of archives (arithmetic_coder.c), pieces of a text through a session of a memory, and
// the work on many of them by many threads.
//
// Which thread works on a piece changes nothing: each is coded by a session of its own.
#ifndef REEF_PIECE_CODER_H
#define REEF_PIECE_CODER_H

#include "reef_archive.h"
#include "reef_context.h"
#include "reef_kernels.h"

#include <pthread.h>

/** The bytes that do not fit into `room` are counted, and lost. */
typedef struct reef_encoder {
    uint32_t low, high; // both inclusive
    uint8_t *bytes;     // (room) the caller's; NULL with a room of 0: only the size is asked for
    size_t count, room;
} reef_encoder;

typedef struct reef_decoder {
    uint32_t low, high;
    uint32_t code;        // the bytes of the code that lie in the range
    const uint8_t *bytes; // (count) lent
    size_t at, count;
} reef_decoder;

void reef_encoder_init(reef_encoder *encoder, uint8_t *bytes, size_t room);
/** `one`: probability that the bit is 1, in units of 1/65536, 1 to 65535. */
void reef_encoder_put(reef_encoder *encoder, uint32_t one, int bit);
/** Writes the end. The code has `count` bytes then; if that is above `room`, it is not whole. */
void reef_encoder_end(reef_encoder *encoder);

void reef_decoder_init(reef_decoder *decoder, const uint8_t *bytes, size_t count);
/** The bit that was put with the same probability. */
int reef_decoder_take(reef_decoder *decoder, uint32_t one);

/** Work on pieces, as all threads share it. */
typedef struct reef_piece_work reef_piece_work;
typedef reef_status (*reef_piece_step)(void *context,
                                       reef_piece_work *work,
                                       size_t piece,
                                       reef_error *err);

struct reef_piece_work {
    reef_thread_pool *workers; // owned
    reef_archive_options options;
    pthread_t caller;
    pthread_mutex_t lock; // of all below
    uint64_t done, total; // bytes of text
    bool failed;          // pieces that were not begun are left
    size_t failed_at;     // the lowest piece that failed,
    reef_error err;       // and how: the same with every number of threads, mostly
    reef_piece_step step; // of the run under way
    void *context;
    const uint32_t *pieces; // (count) which pieces it is about
};

REEF_MUST_CHECK reef_status reef_piece_work_init(reef_piece_work *work,
                                                 const reef_archive_options *options,
                                                 uint64_t total,
                                                 reef_error *err);
void reef_piece_work_release(reef_piece_work *work); // only after a successful init
/** Run `step` once for each piece in `pieces`; its first failure ends the work. */
REEF_MUST_CHECK reef_status reef_piece_work_run(reef_piece_work *work,
                                                size_t count,
                                                const uint32_t *pieces,
                                                reef_piece_step step,
                                                void *context,
                                                reef_error *err);

/**
 * Code `count` bytes and the end. It gives up where the encoder's room is exceeded, if it has any.
 * `work` may be NULL. Errors: BUSY it was stopped; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_piece_encode(reef_memory_session *session,
                                              const uint8_t *text,
                                              size_t count,
                                              reef_encoder *encoder,
                                              reef_piece_work *work,
                                              reef_error *err);
/** text  (count) written, whatever the code is. Errors: as above. */
REEF_MUST_CHECK reef_status reef_piece_decode(reef_memory_session *session,
                                              uint8_t *text,
                                              size_t count,
                                              reef_decoder *decoder,
                                              reef_piece_work *work,
                                              reef_error *err);

#endif
