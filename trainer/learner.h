// The inside of a reef_trainer, shared by the files that make it up:
//
//   trainer.c   the public handle: open, close, commands, status
//   stream.c    from accepted bytes to batches: hold back, recognise, train
//   step.c      one batch: forward, backward, optimiser
//   growth.c    seal a generation, open the next, fit its gate, grow, freeze
//   state.c     everything of a commit that is not a generation
#ifndef REEF_LEARNER_H
#define REEF_LEARNER_H

#include "drift.h"
#include "firing.h"
#include "model.h"
#include "persist.h"
#include "reservoir.h"
#include "residency.h"

#define REEF_SOURCE_COUNT_MAX 1024
// A training batch: `batch` windows of the stream, then up to `rehearse` of the open generation's own
// past, then up to one of old data where its gate leaks.
#define REEF_RETAIN_WINDOWS 1     // windows of old data beside a batch, where a gate leaks
#define REEF_RETAIN_CANDIDATES 32 // reservoir windows looked at per step to find one that leaks

typedef struct reef_source {
    char name[REEF_NAME_BYTES_MAX * 4]; // as given, such as a path
    uint64_t cursor;                    // bytes accepted so far
} reef_source;

struct reef_trainer {
    reef_store *store; // not owned
    reef_trainer_options options;
    reef_workers *workers;
    reef_net net;
    reef_pass pass;
    reef_residency residency; // of sealed rows; held but during a commit
    reef_reservoir reservoir;
    reef_drift drift;

    // the stream
    reef_source *sources;
    size_t source_count;
    uint8_t *carry; // accepted bytes that were not trained yet, from stream_bytes on
    size_t carry_bytes, carry_capacity;
    size_t held_batches; // of the carry's first batches: looked at and held back
    uint32_t suspicious; // how many of those the drift test does not explain
    reef_firing firing;  // gates at the carry's first byte
    reef_firing ahead;   // gates after the batches that were looked at
    reef_firing before;  // gates before the batch that is looked at
    uint64_t step, generation_step, stream_bytes, skipped_bytes;

    // one batch
    uint8_t *tokens, *targets, *fire; // (windows * T); fire (generations, windows * T)
    float *weight, *margins;
    size_t fire_capacity;                    // generations that fire and margins have room for
    size_t rehearse_windows, retain_windows; // of the batch that was last looked at
    double last_bits;
    float learning_rate;

    // since the last commit
    reef_point *points;
    size_t point_count, point_capacity;
    char **events;
    size_t event_count, event_capacity;
    uint64_t committed_step;
    reef_commit last_commit;

    double seconds_forward, seconds_backward, seconds_update, seconds_commit;
};

static inline size_t reef_batch_bytes(const reef_config *config) {
    return (size_t)config->batch * config->context;
}

static inline reef_gen *reef_open_generation(const reef_trainer *trainer) {
    return trainer->net.gens[trainer->net.gen_count - 1];
}

// step.c

/** The most windows that a training batch can have. */
size_t reef_step_windows(const reef_config *config);
/** Forward of the batch at `bytes` (one more byte than a batch) as the open generation trains it. */
REEF_MUST_CHECK reef_status reef_step_forward(reef_trainer *trainer,
                                              const uint8_t *bytes,
                                              reef_firing *firing,
                                              double *bits,
                                              reef_error *err);
/** Backward and optimiser for the batch that reef_step_forward has just seen. */
void reef_step_backward(reef_trainer *trainer);
/** Bits per byte of the same batch with every gate deciding for itself. `firing` is not moved. */
REEF_MUST_CHECK reef_status reef_step_task_free(reef_trainer *trainer,
                                                const uint8_t *bytes,
                                                const reef_firing *firing,
                                                double *bits,
                                                reef_error *err);
/** Make room in `fire` and `margins` for that many generations. */
REEF_MUST_CHECK reef_status reef_step_reserve(reef_trainer *trainer,
                                              size_t gen_count,
                                              reef_error *err);

// stream.c

REEF_MUST_CHECK reef_status reef_stream_push(reef_trainer *trainer,
                                             const uint8_t *bytes,
                                             size_t count,
                                             size_t *taken,
                                             size_t *steps,
                                             reef_error *err);

// growth.c

/**
 * Seal the open generation with rows of `dtype` and open the next, in memory; `fresh` bytes (may be none)
 * are known to be its data. `out` is written, and told as an event.
 */
REEF_MUST_CHECK reef_status reef_growth_boundary(reef_trainer *trainer,
                                                 const char *reason,
                                                 reef_dtype dtype,
                                                 reef_sealing *out,
                                                 const uint8_t *fresh,
                                                 size_t fresh_bytes,
                                                 reef_error *err);
/** Grow the open generation in place, in memory. */
REEF_MUST_CHECK reef_status reef_growth_enlarge(reef_trainer *trainer,
                                                uint32_t side,
                                                reef_error *err);
/** Fit the open generation's gate on reservoir and stream, where there is enough of both. */
REEF_MUST_CHECK reef_status reef_growth_fit_gate(reef_trainer *trainer,
                                                 reef_gen *gen,
                                                 const uint8_t *fresh,
                                                 size_t fresh_bytes,
                                                 reef_error *err);
/** Is it time to fit the gate again? At 32, 128, 512, ... steps of the generation. */
bool reef_growth_gate_due(const reef_trainer *trainer);

// state.c

/** Position, sources, drift history, gates and carry of the trainer, under the open generation. */
REEF_MUST_CHECK reef_status reef_state_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_delete(reef_txn *txn, uint32_t generation, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_load(reef_trainer *trainer, reef_txn *txn, reef_error *err);
/** Points and events of the last commit interval, into the transaction. */
REEF_MUST_CHECK reef_status reef_state_put_history(reef_trainer *trainer,
                                                   reef_txn *txn,
                                                   reef_error *err);
void reef_state_forget_history(reef_trainer *trainer);
REEF_MUST_CHECK reef_status reef_state_point(reef_trainer *trainer, double bits, reef_error *err);
/** Record an event: `fields` is printf-formatted JSON members after the common ones, or "". */
REEF_MUST_CHECK reef_status
reef_state_event(reef_trainer *trainer, reef_error *err, const char *event, const char *fields, ...)
    __attribute__((format(printf, 4, 5)));
uint64_t reef_unix_ms(void);

#endif
