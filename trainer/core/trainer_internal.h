// The inside of a reef_trainer. What works on it stands in the trainer's folders:
//
//   (here)       opening, status, operations: seal, prune, name and merge kinds
//   core         generations, batches of windows, losses, optimiser, events
//   step         one batch: forward, backward, optimiser; a memory beside it
//   stream       accepted bytes: recognised as of a kind, deferred, learned
//   growth       boundaries: seal, open, grow, nets that return; gates
//   commit       all of it as one transaction
//   exchange     generations of other pools
//   kinds        memories of kinds: open, current, those that came back
//   model        configuration, net, generations, checkpoints, evaluation
//   ranks        several processes
//   layer        the other kind of model
#ifndef REEF_TRAINER_INTERNAL_H
#define REEF_TRAINER_INTERNAL_H

#include "activations.h"
#include "checkpoint.h"
#include "generation.h"
#include "kind_names.h"
#include "prequential.h"
#include "reef_pool_check.h"
#include "reef_trainer.h"
#include "reef_watch.h"
#include "residency.h"
#include "visit_log.h"

/**
 * What a trainer does differently for each kind of model: a language model (language_ops.c) has a
 * stream, a layer by itself (layer/layer_train.c) a program that calls
 * forward, backward and step. Chosen once, when memory is allocated (trainer.c). All else is the
 * same for both, and does nothing where a layer has none of it.
 */
typedef struct reef_trainer_ops {
    /** Memory whose size the configuration decides. */
    reef_status (*allocate)(reef_trainer *trainer, reef_error *err);
    /** What `seal` would refuse. */
    reef_status (*seal_check)(const reef_trainer *trainer, reef_error *err);
    /** Seal the open generation, open the next and commit. `out` may be NULL. */
    reef_status (*seal)(reef_trainer *trainer,
                        reef_dtype dtype, // of the rows that are sealed
                        reef_sealing *out,
                        reef_error *err);
    /** May the open generation grow now? NULL: it may always. */
    reef_status (*grow_check)(const reef_trainer *trainer, reef_error *err);
    /** The open generation has more experts than a moment ago. NULL: nothing follows from that. */
    void (*grown)(reef_trainer *trainer);
    // Why the kind cannot do it; NULL: it can.
    const char *no_stream;
    const char *no_import;
} reef_trainer_ops;

extern const reef_trainer_ops reef_language_ops;
extern const reef_trainer_ops reef_layer_ops;

/** REEF_OK, or REEF_ERR_INVALID with one of the kind's refusals, such as `ops->no_import`. */
static inline reef_status reef_kind_allows(const char *refusal, reef_error *err) {
    return refusal == NULL ? REEF_OK : reef_fail(err, REEF_ERR_INVALID, "%s", refusal);
}

typedef struct reef_source {
    char name[REEF_NAME_BYTES_MAX * 4]; // as given, such as a path
    uint64_t cursor;                    // bytes accepted so far
    reef_source_loss loss;              // since the trainer was opened
    // loss.recent is their quotient; what is old weighs less.
    double recent_sum, recent_count;
} reef_source;

/** A kind that came back: see kind_memories.h. */
typedef struct reef_kind_head {
    reef_visit visit;
    bool in_open_generation; // that one holds a visit of it
    bool stored;             // all of it
    uint32_t merged_into;    // where visit.merged: the kind that learns its text
    uint64_t without_net;    // bytes that its memory has learned since its net last learned
    uint64_t used_at;        // see head_uses of the kinds
    reef_memory_stats seen;  // of its memory, see reef_memory_refresh_stats; zeros: not yet
} reef_kind_head;

/**
 * What was read of a line that may be a marker: one that consists of exactly the configured text
 * (stream/marker_line.c).
 */
typedef struct reef_marker_line {
    size_t source;  // of the trainer, that the last byte came from; its number + 1, 0 for none yet
    size_t matched; // bytes of the line so far, all of them as in the marker
    bool other;     // the line is another one: nothing matters until its end
    size_t line_bytes; // of a marker that has been read and not been dealt with yet; 0 for none
} reef_marker_line;

/** The text as it was accepted, and what is known of its losses. A layer by itself reads none. */
typedef struct reef_trainer_stream {
    reef_source *sources;
    size_t source_count;
    uint8_t *pending; // accepted bytes that were not trained yet, from stream_bytes on
    size_t pending_bytes, pending_capacity;
    size_t deferred_batches; // of the first pending batches: judged, and not decided about yet
    reef_marker_line marker; // of the line that the pending bytes end in
    uint64_t not_learned_bytes;
    reef_prequential prequential;
    reef_recent_losses recent; // with a memory's help, where there is one
} reef_trainer_stream;

/** Whose text is being learned, and the kinds that came back: where contexts decide. */
typedef struct reef_trainer_kinds {
    uint32_t current;                     // the generation that began what is being learned
    bool keeps;                           // at the next boundary: what follows is of the same kind
    struct reef_recognition *recognition; // owned; of the deferred pieces
    reef_kind_level *levels;              // owned; (level_count) by generation
    size_t level_count;
    reef_kind_head *heads; // owned; in the order in which they were first read
    size_t head_count;
    uint64_t head_uses;     // how often one was used: orders them by their last use
    uint64_t room;          // bytes that all memories may take together
    uint64_t visited_bytes; // learned by kinds that came back
    uint64_t return_bytes;  // REEF_RETURN_BYTES; fewer in tests, which have little text
    reef_kind_names names;
} reef_trainer_kinds;

/** Context memories, which learn beside the net: where memory is not 0. */
typedef struct reef_trainer_memory {
    struct reef_memory_lane *lane; // owned; NULL: there are no memories
    reef_memory_stats stats;       // of the open generation's, as of the last refresh
    // (batch * context) of the batch that it learned last: what each byte surprised
    float *bits;
    double *losses;
    double last_bits; // with its help, of the last batch, once stream.recent has one
} reef_trainer_memory;

/** What the net needs to learn: of a layer learning_rate and residency alone. */
typedef struct reef_trainer_net {
    reef_activations acts;
    reef_residency residency; // of sealed rows; pinned except during a commit
    float learning_rate;
    double last_bits; // of the last batch; NaN: none so far
} reef_trainer_net;

/** One batch of the net, as it is put together and learned. */
typedef struct reef_trainer_batch {
    uint8_t *tokens, *targets; // (batch * T)
    float *weight;             // (batch * T)
} reef_trainer_batch;

/** Points of the loss, oldest first. */
typedef struct reef_points {
    reef_point *all; // owned
    size_t count, room;
} reef_points;

/** What the next commit writes beside generations and the stream. */
typedef struct reef_trainer_unstored {
    reef_points points;
    size_t series_points;     // raw ones in the pool, plus 1; 0: not counted yet
    size_t series_points_put; // the same, once the transaction under way has been committed
    char **events;
    size_t event_count, event_capacity;
    reef_visit_log visit_log;
    bool scrub_known; // `scrub` was set
    reef_scrub scrub;
} reef_trainer_unstored;

/** What is new in lines of the stream: watching.h. */
typedef struct reef_trainer_watching {
    reef_watch *watch; // owned; NULL: lines are not judged
    uint32_t parts;    // records that its state has in the pool
    reef_error failed; // during what is read
} reef_trainer_watching;

struct reef_trainer {
    // The pool, and how it is trained.
    reef_store *store;           // not owned
    const reef_trainer_ops *ops; // set by reef_trainer_allocate
    reef_trainer_options options;
    reef_trainer_writer on_commit; // NULL, or what writes along with every commit
    void *commit_context;
    reef_thread_pool *workers;
    reef_error broken; // see reef_trainer_break; status REEF_OK: whole

    // What has been learned: all generations, and how far.
    reef_network network;
    uint64_t step, generation_step, stream_bytes, committed_step;
    reef_commit last_commit;
    bool full;          // experts_max or kinds_max left no room for a boundary
    bool over_reported; // that the pool takes more than pool_max, since that was set
    struct {
        double forward, backward, update, commit;
    } seconds;

    reef_trainer_stream stream;
    reef_trainer_kinds kinds;
    reef_trainer_memory memory;
    reef_trainer_net net;
    reef_trainer_batch batch;
    struct reef_layer *layer; // of the layer kind alone, else NULL
    reef_trainer_watching watching;
    reef_trainer_unstored unstored;
};

/** Bytes, and tokens, of a batch. */
static inline size_t reef_batch_bytes(const reef_config *config) {
    return (size_t)config->batch * config->context;
}

/** Is there a net? Else the context memory alone learns and answers. */
static inline bool reef_has_net(const reef_trainer *trainer) {
    return trainer->network.config.net_share > 0.0f;
}

/** Whose rows of experts this trainer has. */
static inline reef_row_division reef_trainer_division(const reef_trainer *trainer) {
    const reef_shard *shard = &trainer->options.shard;
    return (reef_row_division){shard->rank, shard->count};
}

static inline reef_generation *reef_open_generation(const reef_trainer *trainer) {
    return trainer->network.generations[trainer->network.generation_count - 1];
}

/** Did a generation of that number begin a kind? */
static inline bool reef_is_kind(const reef_trainer *trainer, uint32_t kind) {
    return kind < trainer->network.generation_count &&
           reef_generation_begins_kind(&trainer->network.generations[kind]->info);
}

/** NOT_FOUND where none did. */
static inline reef_status reef_check_kind(const reef_trainer *trainer,
                                          uint32_t kind,
                                          reef_error *err) {
    if (reef_is_kind(trainer, kind)) return REEF_OK;
    return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no kind %u", kind);
}

/** Choose `ops`, and allocate everything that the configuration decides, except generations. */
REEF_MUST_CHECK reef_status reef_trainer_allocate(reef_trainer *trainer, reef_error *err);

/**
 * A step or a boundary ended half way: what is in memory must not be learned on, or kept. `status`
 * is why, such as no memory.
 */
void reef_trainer_break(reef_trainer *trainer, reef_status status);

/** Fails as the step or the boundary did that ended half way, if one did. */
REEF_MUST_CHECK reef_status reef_trainer_check_whole(const reef_trainer *trainer, reef_error *err);

// core/generations.c: the generations as the trainer holds them.

/** A generation of the configured side with random weights, in a new pool. */
REEF_MUST_CHECK reef_status reef_generations_first(reef_trainer *trainer, reef_error *err);

/** All of the last commit; the last one is open. Errors: CORRUPT where it is not. */
REEF_MUST_CHECK reef_status reef_generations_load(reef_trainer *trainer,
                                                  reef_txn *txn,
                                                  reef_error *err);

/** Write those that were sealed since the last commit, and the open one. */
REEF_MUST_CHECK reef_status reef_generations_put(reef_trainer *trainer,
                                                 reef_txn *txn,
                                                 uint64_t unix_ms,
                                                 reef_error *err);
/** That commit is durable: nothing is dirty any more. */
void reef_generations_committed(reef_trainer *trainer);

/** Bring the rows of sealed generations into reach, where they are not. */
REEF_MUST_CHECK reef_status reef_trainer_pin(reef_trainer *trainer, reef_error *err);

/** The same after a commit, which may have made them too large for memory. */
REEF_MUST_CHECK reef_status reef_trainer_repin(reef_trainer *trainer, reef_error *err);

// layer/layer_tensor.c

/** INVALID: the pool's model is not a layer by itself. */
REEF_MUST_CHECK reef_status reef_layer_fail_other_model(const reef_trainer *trainer,
                                                        reef_error *err);

#endif
