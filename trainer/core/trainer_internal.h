// The inside of a reef_trainer, shared by the files that make it up:
//
//   trainer.c         the public handle: open, close
//   pool_init.c       a new pool
//   trainer_state.c    which arithmetic it was trained with last
//   feed.c            bytes of a source are accepted
//   commit.c          all of it as one transaction
//   commit.c       a snapshot along with that
//   boundary_commands.c      the open generation is sealed, or grows
//   freeze.c          experts that stay as they are
//   trainer_status.c  what it says of itself
//   stream.c          from accepted bytes to batches: hold back, recognise, train
//   step.c            one batch: forward, backward, optimiser
//   prequential.c     the loss before training, by source
//   boundary_mark.c            lines of the stream that mark a boundary
//   growth_policy.c          when and by how much the pool grows
//   warm_start.c           how a generation begins where more than random values are asked for
//   branch.c          the open generation begins as a copy of a sealed one
//   branch_trial.c           whether that learns the new data better
//   expert_recycling.c         experts that nothing chooses begin anew
//   boundary.c          seal a generation, open the next, grow
//   gate_fit.c        fit the open generation's gate
//   side_commit.c           records beside training, with a commit or between two
//   consolidate.c     several sealed generations give way to one (distil.h)
//   trainer_state.c           everything of a commit that is not a generation
//   strategy*.c       what the rivals of generations do instead (strategy.h)
#ifndef REEF_LEARNER_H
#define REEF_LEARNER_H

#include "activations.h"
#include "boundary_mark.h"
#include "checkpoint.h"
#include "drift_test.h"
#include "gating.h"
#include "generation.h"
#include "prequential.h"
#include "reservoir.h"
#include "residency.h"
#include "strategy_state.h"
#include "trainer_kind.h"

#include <jansson.h>

enum { REEF_STREAM_REPLAY = 211, REEF_STREAM_SAMPLE = 212 }; // of random numbers
// A training batch: `batch` windows of the stream, then up to `rehearse` of the open generation's
// own past, then up to one of old data where its gate leaks.
#define REEF_RETAIN_WINDOWS 1     // windows of old data beside a batch, where a gate leaks
#define REEF_RETAIN_CANDIDATES 32 // reservoir windows looked at per step to find one that leaks

typedef struct reef_source {
    char name[REEF_NAME_BYTES_MAX * 4]; // as given, such as a path
    uint64_t cursor;                    // bytes accepted so far
    reef_source_loss loss;              // since the trainer was opened
    // loss.recent is their quotient; what is old weighs less.
    double recent_sum, recent_count;
} reef_source;

struct reef_trainer {
    reef_store *store;             // not owned
    const reef_trainer_kind *kind; // set by reef_trainer_allocate
    struct reef_vector *vector;    // of the vector kind alone, else NULL
    struct reef_layer *layer;      // of the layer kind alone, else NULL
    reef_trainer_options options;
    reef_trainer_writer on_commit; // NULL, or what writes along with every commit
    void *commit_context;
    reef_thread_pool *workers;
    reef_network network;
    reef_activations acts;
    reef_residency residency; // of sealed rows; held but during a commit
    reef_reservoir reservoir;
    reef_drift drift;
    reef_strategy strategy;

    // the stream
    reef_source *sources;
    size_t source_count;
    uint8_t *pending; // accepted bytes that were not trained yet, from stream_bytes on
    size_t pending_bytes, pending_capacity;
    size_t deferred_batches; // of the carry's first batches: looked at and held back
    uint32_t anomalous;      // how many of those the drift test does not explain
    double *deferred_bits;   // (deferred_capacity) loss of each held batch
    size_t deferred_capacity;
    reef_gating gating;    // gates at the carry's first byte
    reef_gating ahead;     // gates after the batches that were looked at
    reef_gating before;    // gates before the batch that is looked at
    reef_marker_line mark; // of the line that the carry ends in
    reef_prequential prequential;
    uint64_t step, generation_step, stream_bytes, skipped_bytes;
    // Of the last boundary, which opened the generation or enlarged it: rivals of generations have
    // their own in `strategy`.
    uint64_t boundary_at, boundary_step; // stream position; generation_step
    bool full;                           // experts_max left no room for a boundary
    reef_error broken;                   // see reef_trainer_break; status REEF_OK: whole
    bool branched; // the open generation began as a copy: reef_start_generation has nothing to do
    uint64_t recycled_experts; // of all generations

    // one batch
    uint8_t *tokens, *targets; // (windows * T) of reef_token_bytes each
    uint8_t *fire;             // (generations, windows * T)
    float *weight, *margins;
    uint8_t *reading;     // of a text read aside: tokens, targets, fire (generations, windows * T)
    size_t fire_capacity; // generations that fire, margins and reading have room for
    size_t rehearse_windows, retain_windows; // of the batch that was last looked at
    size_t open_claims; // tokens of it that the open generation's own gate would have fired on
    double last_bits;   // NaN: none so far
    float learning_rate;

    // since the last commit
    reef_point *points;
    size_t point_count, point_capacity;
    size_t series_points;     // raw ones in the pool, plus 1; 0: not counted yet
    size_t series_points_put; // the same, once the transaction under way has been committed
    char **events;
    size_t event_count, event_capacity;
    uint64_t committed_step;
    reef_commit last_commit;
    reef_scrub scrub; // to be kept with the next commit, where
    bool scrub_known; // it was set

    double seconds_forward, seconds_backward, seconds_update, seconds_commit;
};

static inline size_t reef_batch_tokens(const reef_config *config) {
    return (size_t)config->batch * config->context;
}

static inline size_t reef_batch_bytes(const reef_config *config) {
    return reef_batch_tokens(config) * reef_token_bytes(config);
}

static inline reef_generation *reef_open_generation(const reef_trainer *trainer) {
    return trainer->network.generations[trainer->network.generation_count - 1];
}

/**
 * Steps since the last boundary: of the open generation, or with a rival of generations of the
 * task.
 */
static inline uint64_t reef_task_step(const reef_trainer *trainer) {
    return trainer->generation_step - (reef_strategy_is_baseline(&trainer->strategy)
                                           ? trainer->strategy.task_from
                                           : trainer->boundary_step);
}

/** Where in the stream the last boundary was. */
static inline uint64_t reef_task_at(const reef_trainer *trainer) {
    return trainer->strategy.task > 0 ? trainer->strategy.task_at : trainer->boundary_at;
}

// trainer.c

/** Choose the kind, and allocate everything that the configuration decides but generations. */
REEF_MUST_CHECK reef_status reef_trainer_allocate(reef_trainer *trainer, reef_error *err);

// guard.c

/**
 * A step or a boundary ended half way: what is in memory must not be learned on, or kept. `status`
 * is why, such as no memory.
 */
void reef_trainer_break(reef_trainer *trainer, reef_status status);
/** Fails as the step or the boundary did that ended half way, if one did. */
REEF_MUST_CHECK reef_status reef_trainer_check_whole(const reef_trainer *trainer, reef_error *err);
/** Bring the rows of sealed generations into reach, where they are not. */
REEF_MUST_CHECK reef_status reef_trainer_pin(reef_trainer *trainer, reef_error *err);
/** The same after a commit, which may have made them too large for memory. */
REEF_MUST_CHECK reef_status reef_trainer_repin(reef_trainer *trainer, reef_error *err);

// generations.c: the functions of trainer_kind.h that language model and layer share

/** A generation of the configured side with random weights. */
REEF_MUST_CHECK reef_status reef_generations_first(reef_trainer *trainer, reef_error *err);
/** Errors: CORRUPT where the last generation is not open. */
REEF_MUST_CHECK reef_status reef_generations_load(reef_trainer *trainer,
                                                  reef_txn *txn,
                                                  reef_error *err);
REEF_MUST_CHECK reef_status reef_generations_pin(reef_trainer *trainer, reef_error *err);
/** Write the generations sealed since the last commit, and the open one. */
REEF_MUST_CHECK reef_status reef_generations_put(reef_trainer *trainer,
                                                 reef_txn *txn,
                                                 uint64_t unix_ms,
                                                 reef_error *err);
void reef_generations_committed(reef_trainer *trainer);

// boundary_commands.c: sealing of a language model

REEF_MUST_CHECK reef_status reef_language_seal_check(reef_trainer *trainer,
                                                     const char *seal_dtype,
                                                     uint32_t *side,
                                                     reef_error *err);
REEF_MUST_CHECK reef_status reef_language_seal(reef_trainer *trainer,
                                               const char *seal_dtype,
                                               reef_sealing *out,
                                               reef_error *err);

// pool_init.c

/** Generations of a new pool, and where it stands in its stream, into a trainer that has none. */
typedef reef_status (*reef_pool_fill)(void *context, reef_trainer *trainer, reef_error *err);
/**
 * A new pool of what `fill` makes. `path` NULL: only that, and no pool. Errors: those of
 * reef_pool_init and of `fill`.
 */
REEF_MUST_CHECK reef_status reef_pool_init_with(const char *path,
                                                const reef_config *config,
                                                reef_pool_fill fill,
                                                void *context,
                                                reef_error *err);

// trainer_state.c

/** Remember the kernels of this process. */
REEF_MUST_CHECK reef_status reef_kernels_put(reef_txn *txn, reef_error *err);
/**
 * An event where the pool was trained with others last: what follows is right, but not the same
 * bits.
 */
REEF_MUST_CHECK reef_status reef_kernels_compare(reef_trainer *trainer,
                                                 reef_txn *txn,
                                                 reef_error *err);

// commit.c

/** A commit, and in the same transaction a snapshot where it has a name. */
REEF_MUST_CHECK reef_status reef_trainer_commit_with(reef_trainer *trainer,
                                                     const char *snapshot_name, // or NULL
                                                     reef_snapshot *snapshot,   // written
                                                     reef_commit *out,          // written, or NULL
                                                     reef_error *err);
/** What a commit does in its transaction before it writes the trainer's state. */
typedef reef_status (*reef_commit_prelude)(void *context, reef_txn *txn, reef_error *err);
/** A commit with a prelude. Sealed rows are out of reach after it: see reef_trainer_pin. */
REEF_MUST_CHECK reef_status reef_trainer_commit_after(reef_trainer *trainer,
                                                      reef_commit_prelude prelude,
                                                      void *context,
                                                      reef_error *err);

// trainer_state.c

/** The list of sources of the last commit, [{"name", "cursor"}]; the caller's. */
REEF_MUST_CHECK reef_status reef_state_sources(reef_txn *txn, json_t **out, reef_error *err);

// pool_restore.c

/**
 * After cursors went back to a snapshot's: what waits goes on at the new ones. Lists of
 * reef_state_sources.
 */
REEF_MUST_CHECK reef_status reef_pushed_move(reef_txn *txn,
                                             const reef_snapshot *snapshot,
                                             const json_t *before,
                                             const json_t *after,
                                             reef_error *err);

// step.c

/** Put the T tokens at `bytes`, and the one after them, into window `window` of the batch. */
void reef_step_place(reef_trainer *trainer, size_t window, const uint8_t *bytes);
/** The most windows that a training batch can have. */
size_t reef_step_windows(const reef_config *config);
/**
 * Count the losses of the batch that was just run forward, which begins at that place of the
 * stream, by source.
 */
void reef_step_count_losses(reef_trainer *trainer, uint64_t begin);
/**
 * Forward of the batch at `bytes` (one more token than a batch) as the open generation trains it.
 * Errors: INVALID queries or the loss are not finite: training diverged; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_step_forward(reef_trainer *trainer,
                                              const uint8_t *bytes,
                                              reef_gating *gating,
                                              double *bits,
                                              reef_error *err);
/** Backward and optimiser for the batch that reef_step_forward has just seen. */
void reef_step_backward(reef_trainer *trainer);
/** Norm of the gradient of the open generation's dense tensors, all together. */
double reef_step_gradient_norm(reef_thread_pool *workers, reef_generation *gen);
/** Adam on these tensors, whose gradients are zero afterwards; clipped by their norm. */
void reef_step_update_dense(reef_trainer *trainer, reef_generation *gen, double gradient_norm);
/** Whether generation g >= 1 takes part in token t of the batch that was decided about last. */
bool reef_step_fires(const reef_trainer *trainer, size_t g, size_t t);
/** Bits per byte of the same batch with every gate deciding for itself. `firing` is not moved. */
REEF_MUST_CHECK reef_status reef_step_task_free(reef_trainer *trainer,
                                                const uint8_t *bytes,
                                                const reef_gating *gating,
                                                double *bits,
                                                reef_error *err);
/**
 * Place the batch at `bytes` and let every gate decide about it: `fire` and `margins`. `firing`
 * moves on.
 */
REEF_MUST_CHECK reef_status reef_step_decide(reef_trainer *trainer,
                                             const uint8_t *bytes,
                                             reef_gating *gating,
                                             bool *answered,
                                             reef_error *err);
/**
 * Let the gates of `net` decide about a text of `size` tokens (at most a batch), read from its
 * start, beside the batch that is being put together: into `reading` and `margins`. `out` is that
 * text, for a forward pass that adds its losses where it is not `answered` (see
 * reef_firing_decide); the last token has none, as nothing follows it.
 */
REEF_MUST_CHECK reef_status reef_step_read(reef_trainer *trainer,
                                           const reef_network *network,
                                           const uint8_t *bytes,
                                           size_t size,
                                           reef_batch *out,
                                           bool *answered,
                                           reef_error *err);
/** (windows * T) of generation g in `reading`. */
uint8_t *reef_step_read_fire(const reef_trainer *trainer, size_t g);
/** Make room in `fire`, `margins` and `reading` for that many generations. */
REEF_MUST_CHECK reef_status reef_step_reserve(reef_trainer *trainer,
                                              size_t generation_count,
                                              reef_error *err);

// stream.c

/** `source` is the one that the bytes come from, and its cursor is still before them. */
REEF_MUST_CHECK reef_status reef_stream_push(reef_trainer *trainer,
                                             const reef_source *source,
                                             const uint8_t *bytes,
                                             size_t count,
                                             size_t *taken,
                                             size_t *steps,
                                             reef_error *err);

// boundary.c

/** Why and how large a generation is opened; made by reef_policy_size. */
typedef struct reef_opening {
    const char *reason; // "drift", "command", "mark", "budget" or "capacity"
    uint32_t side;      // sub-keys per side
    const uint8_t *fresh;
    size_t fresh_bytes; // that are known to be its data, from the carry's first byte on; 0 for none
    // What the side was chosen by; NaN where that was not asked for or nothing is known.
    double gap;       // bits per byte of the fresh data above the open generation's median
    double unclaimed; // share of them on which no gate fires
    double distance;  // 0: known, 1: nothing is known of it
} reef_opening;

/**
 * Seal the open generation with rows of `dtype` and open the next, in memory. `out` is written, and
 * told as an event.
 */
REEF_MUST_CHECK reef_status reef_growth_boundary(reef_trainer *trainer,
                                                 const reef_opening *opening,
                                                 reef_dtype dtype,
                                                 reef_sealing *out,
                                                 reef_error *err);
/**
 * A new open generation after `last`, in memory; its queries begin as those of `open`, which are
 * not folded.
 */
REEF_MUST_CHECK reef_status reef_growth_next(reef_generation **out,
                                             const reef_trainer *trainer,
                                             const reef_generation_record *last,
                                             const reef_generation *open,
                                             uint32_t side,
                                             reef_error *err);
/** Gates of generations that are new in the net start at their own beginning; the others go on. */
REEF_MUST_CHECK reef_status reef_growth_extend_gating(reef_gating *gating,
                                                      const reef_network *network,
                                                      reef_error *err);
/** Grow the open generation in place, in memory. `opening` is what the event tells; may be NULL. */
REEF_MUST_CHECK reef_status reef_growth_enlarge(reef_trainer *trainer,
                                                uint32_t side,
                                                const reef_opening *opening,
                                                reef_error *err);
// gate_fit.c

/** Fit the open generation's gate on reservoir and stream, where there is enough of both. */
REEF_MUST_CHECK reef_status reef_growth_fit_gate(reef_trainer *trainer,
                                                 reef_generation *gen,
                                                 const uint8_t *fresh,
                                                 size_t fresh_bytes,
                                                 reef_error *err);
/**
 * Fit a generation's gate as the configuration says; with too few windows it stays as it is. The
 * model whose loss it may read is that of the trainer's first `older_count` generations.
 */
REEF_MUST_CHECK reef_status reef_generation_fit_gate(reef_generation *gen,
                                                     reef_trainer *trainer,
                                                     size_t older_count,
                                                     const reef_gate_windows *old_fit,
                                                     const reef_gate_windows *old_calibrate,
                                                     const reef_gate_windows *young,
                                                     reef_error *err);
/** Is it time to fit the gate again? At 32, 128, 512, ... steps of the generation. */
bool reef_growth_gate_due(const reef_trainer *trainer);

// strategy.c

/**
 * What generations' rivals do at a boundary, in memory: the next task begins. INVALID with `joint`.
 */
REEF_MUST_CHECK reef_status reef_strategy_boundary(reef_trainer *trainer,
                                                   const reef_opening *opening,
                                                   reef_error *err);
/** Freeze in the open generation what the strategy does not train (any more). */
void reef_strategy_freeze(reef_trainer *trainer);
/**
 * Place up to `count_max` windows of everything seen so far, one at a time, as window 0 and visit
 * each.
 */
REEF_MUST_CHECK reef_status reef_strategy_sample(reef_trainer *trainer,
                                                 size_t count_max,
                                                 reef_status (*visit)(reef_trainer *trainer,
                                                                      reef_error *err),
                                                 size_t *count, // written: how many there were
                                                 reef_error *err);
/** Before backward: what is different about this step's update of experts. */
void reef_strategy_update(reef_trainer *trainer, reef_network_update *update);
/** After backward: what is added to the gradients of dense tensors. */
void reef_strategy_gradients(reef_trainer *trainer);
/** Does a teacher's opinion join the loss? Then forward leaves logits for reef_lwf_gradient. */
bool reef_strategy_distills(const reef_trainer *trainer);

// strategy_checkpoint.c

/** What the last boundary made, into the transaction; nothing when an earlier commit has it. */
REEF_MUST_CHECK reef_status reef_strategy_put(reef_trainer *trainer,
                                              reef_txn *txn,
                                              reef_error *err);
/** After reef_state_load: what the last boundary made. */
REEF_MUST_CHECK reef_status reef_strategy_load(reef_trainer *trainer,
                                               reef_txn *txn,
                                               reef_error *err);

// replay.c

/** Place windows of earlier tasks behind the stream's; returns how many. 0 but with `replay`. */
size_t reef_replay_add(reef_trainer *trainer);

// ewc.c, lwf.c, sparse_memory.c, grid.c: the parts of the functions above

REEF_MUST_CHECK reef_status reef_ewc_boundary(reef_trainer *trainer, reef_error *err);
void reef_ewc_pull_rows(reef_trainer *trainer, reef_network_update *update);
void reef_ewc_pull_dense(reef_trainer *trainer);
/** Memory for a teacher of the open generation's shape. */
REEF_MUST_CHECK reef_status reef_lwf_prepare(reef_trainer *trainer, reef_error *err);
REEF_MUST_CHECK reef_status reef_lwf_boundary(reef_trainer *trainer, reef_error *err);
/** Turn the logits that forward left into the gradient of the loss with distillation, in place. */
REEF_MUST_CHECK reef_status reef_lwf_gradient(reef_trainer *trainer,
                                              const reef_batch *batch,
                                              reef_error *err);
/** Memory for the counts of the background. */
REEF_MUST_CHECK reef_status reef_sparse_prepare(reef_trainer *trainer, reef_error *err);
REEF_MUST_CHECK reef_status reef_sparse_boundary(reef_trainer *trainer, reef_error *err);
const uint8_t *reef_sparse_freeze(void *trainer, uint32_t l, const reef_expert_pairs *pairs);
/** Grow by as many experts as a generation of that side would have. */
REEF_MUST_CHECK reef_status reef_grid_boundary(reef_trainer *trainer,
                                               uint32_t side_new,
                                               reef_error *err);

// trainer_state.c

/** Position, sources, drift history, gates and carry of the trainer, under the open generation. */
REEF_MUST_CHECK reef_status reef_state_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_delete(reef_txn *txn, uint32_t generation, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_load(reef_trainer *trainer, reef_txn *txn, reef_error *err);
/** Points and events of the last commit interval, into the transaction. */
REEF_MUST_CHECK reef_status reef_state_put_history(reef_trainer *trainer,
                                                   reef_txn *txn,
                                                   reef_error *err);
void reef_state_forget_history(reef_trainer *trainer);
/** Record an event: `fields` is printf-formatted JSON members after the common ones, or "". */
REEF_MUST_CHECK reef_status
reef_state_event(reef_trainer *trainer, reef_error *err, const char *event, const char *fields, ...)
    __attribute__((format(printf, 4, 5)));

// loss_history.c

/** A point of the loss, of the batch that ends where the stream stands. */
REEF_MUST_CHECK reef_status reef_series_add(reef_trainer *trainer, double bits, reef_error *err);
/**
 * Points of the last commit interval, into the transaction; what has become too much is made
 * coarser.
 */
REEF_MUST_CHECK reef_status reef_series_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
/** The points that were put are the pool's. */
void reef_series_settle(reef_trainer *trainer);
/** Remove the points of the loss after a committed position in the stream. */
REEF_MUST_CHECK reef_status reef_series_forget_after(reef_txn *txn,
                                                     uint64_t stream_bytes,
                                                     reef_error *err);

#define REEF_DISTANCE_BYTES 128 // of reef_distance_text

/**
 * Members of an event that tell how far the new data is from what was learned; "" where it was not
 * measured.
 */
const char *reef_distance_text(const reef_opening *opening, char text[REEF_DISTANCE_BYTES]);

/** Of the next step: warm-up from 0 after the last boundary. */
float reef_learning_rate(const reef_config *config, uint64_t task_step);

/** The windows that lie in the trainer, as a batch; with `gradient` their weights too. */
reef_batch reef_batch_make(reef_trainer *trainer,
                           size_t windows,
                           size_t retain_windows,
                           bool gradient);

/** Tokens of all windows there is room for: from one generation's firing to the next one's. */
size_t reef_batch_stride(const reef_trainer *trainer);

#endif
