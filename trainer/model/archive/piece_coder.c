// See piece_coder.h.
#include "piece_coder.h"

#define LOOK_BYTES 4096 // every so many bytes: is it to stop, and how far is it

// ---- work ---------------------------------------------------------------------------------------

reef_status reef_piece_work_init(reef_piece_work *work,
                                 const reef_archive_options *options,
                                 uint64_t total,
                                 reef_error *err) {
    *work = (reef_piece_work){.caller = pthread_self(), .total = total};
    if (options != NULL) work->options = *options;
    reef_status status = reef_thread_pool_new(&work->workers, work->options.threads, err);
    if (status != REEF_OK) return status;
    if (pthread_mutex_init(&work->lock, NULL) == 0) return REEF_OK;
    reef_thread_pool_free(work->workers);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a lock");
}

void reef_piece_work_release(reef_piece_work *work) {
    reef_thread_pool_free(work->workers);
    (void)pthread_mutex_destroy(&work->lock);
}

// So many bytes are done; false: no more are wanted.
static bool goes_on(reef_piece_work *work, uint64_t bytes) {
    if (work == NULL) return true;
    pthread_mutex_lock(&work->lock);
    work->done += bytes;
    uint64_t done = work->done;
    bool failed = work->failed;
    pthread_mutex_unlock(&work->lock);
    // The pieces of other threads end with that of this one.
    if (work->options.progress != NULL && pthread_equal(pthread_self(), work->caller))
        failed |= !work->options.progress(work->options.context, done, work->total);
    return !failed && (work->options.stopped == NULL || !work->options.stopped());
}

static void run_one(void *context, size_t i) {
    reef_piece_work *work = context;
    reef_error err;
    size_t piece = work->pieces[i];
    pthread_mutex_lock(&work->lock);
    bool failed = work->failed;
    pthread_mutex_unlock(&work->lock);
    if (failed) return;
    reef_status status = work->step(work->context, work, piece, &err);
    if (status == REEF_OK) return;
    pthread_mutex_lock(&work->lock);
    // What only ended because another one failed says nothing.
    bool first = !work->failed || (piece < work->failed_at && status != REEF_ERR_BUSY);
    if (first) {
        work->err = err;
        work->failed_at = piece;
    }
    work->failed = true;
    pthread_mutex_unlock(&work->lock);
}

reef_status reef_piece_work_run(reef_piece_work *work,
                                size_t count,
                                const uint32_t *pieces,
                                reef_piece_step step,
                                void *context,
                                reef_error *err) {
    work->pieces = pieces;
    work->step = step;
    work->context = context;
    reef_thread_pool_run(work->workers, count, run_one, work);
    if (!work->failed) return REEF_OK;
    if (err != NULL) *err = work->err;
    return work->err.status;
}

static reef_status stopped(reef_error *err) {
    return reef_fail(err, REEF_ERR_BUSY, "stopped before its end");
}

// ---- one piece ----------------------------------------------------------------------------------

static reef_status encode_byte(reef_memory_session *session,
                               uint8_t byte,
                               reef_encoder *encoder,
                               reef_error *err) {
    for (int i = 7; i >= 0; i--) {
        uint32_t one;
        int bit = byte >> i & 1;
        reef_status status = reef_memory_session_predict(session, &one, err);
        if (status != REEF_OK) return status;
        reef_encoder_put(encoder, one, bit);
        reef_memory_session_update(session, bit);
    }
    return REEF_OK;
}

reef_status reef_piece_encode(reef_memory_session *session,
                              const uint8_t *text,
                              size_t count,
                              reef_encoder *encoder,
                              reef_piece_work *work,
                              reef_error *err) {
    bool bounded = encoder->room > 0;
    for (size_t at = 0; at < count;) {
        size_t end = count - at < LOOK_BYTES ? count : at + LOOK_BYTES;
        if (bounded && encoder->count > encoder->room)
            end = count; // counted, not coded
        else
            for (size_t i = at; i < end; i++) {
                reef_status status = encode_byte(session, text[i], encoder, err);
                if (status != REEF_OK) return status;
            }
        if (!goes_on(work, end - at)) return stopped(err);
        at = end;
    }
    reef_encoder_end(encoder);
    return REEF_OK;
}

static reef_status decode_byte(reef_memory_session *session,
                               uint8_t *byte,
                               reef_decoder *decoder,
                               reef_error *err) {
    *byte = 0;
    for (int i = 0; i < 8; i++) {
        uint32_t one;
        reef_status status = reef_memory_session_predict(session, &one, err);
        if (status != REEF_OK) return status;
        int bit = reef_decoder_take(decoder, one);
        *byte = (uint8_t)(*byte << 1 | bit);
        reef_memory_session_update(session, bit);
    }
    return REEF_OK;
}

reef_status reef_piece_decode(reef_memory_session *session,
                              uint8_t *text,
                              size_t count,
                              reef_decoder *decoder,
                              reef_piece_work *work,
                              reef_error *err) {
    for (size_t at = 0; at < count;) {
        size_t end = count - at < LOOK_BYTES ? count : at + LOOK_BYTES;
        for (size_t i = at; i < end; i++) {
            reef_status status = decode_byte(session, &text[i], decoder, err);
            if (status != REEF_OK) return status;
        }
        if (!goes_on(work, end - at)) return stopped(err);
        at = end;
    }
    return REEF_OK;
}
