// How experts change: the model, one training step, the lifelong policy, and evaluation as of any
// earlier state. Everything is a pure function of (configuration with seed, stream): thread count,
// commits and crashes leave no trace in the bits.
//
// A reef_trainer is the one writer of a pool. A reef_model is a read-only copy of some state of it,
// made by a short read transaction, that lives without the pool afterwards.
#ifndef REEF_TRAINER_H
#define REEF_TRAINER_H

#include "reef_error.h"
#include "reef_kernels.h"
#include "reef_router.h"
#include "reef_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_LAYER_COUNT_MAX 32
#define REEF_VOCAB 256 // of a pool of bytes, which is what `vocab` is unless it is chosen

/** What the feed-forward network of a block is, and its letter in `ffw` of the configuration. */
typedef enum reef_ffw {
    REEF_FFW_PEER,  // p: single-neuron experts, retrieved by product keys (He 2024)
    REEF_FFW_DENSE, // d: two matrices
    REEF_FFW_MOE,   // m: a mixture of dense networks that choose their tokens (Zhou et al. 2022)
    REEF_FFW_PKM,   // k: values, retrieved by product keys (Lample et al. 2019)
} reef_ffw;

// ---- configuration -------------------------------------------------------------------------------

/**
 * Everything that decides the function and its training. Written once by reef_pool_init to the pool's
 * meta record as JSON. One X-macro table in config.c names every field, its default, its bounds and
 * its help; the CLI's options and the JSON keys come from it (d_model is --d-model and "d_model").
 */
typedef struct reef_config {
    char model[16]; // "lm", "vector" or "layer"
    uint64_t seed;
    // sizes
    uint32_t layers, d_model, attention_heads, context; // L, D, A, T
    uint32_t previous_bytes;                            // tokens embedded beside a token's own
    uint32_t batch;    // windows of T tokens of the stream per step
    uint32_t rehearse; // windows beside them, drawn from what the open generation has trained on
    // One letter per block: 'p' peer, 'k' product-key memory, 'm' mixture of experts, 'd' dense; "p" = all
    char ffw[REEF_LAYER_COUNT_MAX + 1];
    uint32_t d_ffw;              // width of dense FFWs, and of each expert of a mixture
    uint32_t heads, topk, d_key; // PEER and product-key memory: H, K, d_key
    uint32_t side, side_new;     // of the first and of later generations
    uint32_t adapters;           // rank of later generations' corrections of attention; 0 for none
    bool adapt_ffw;              // and of dense FFWs
    bool adapt_position, adapt_whole, weigh_older;
    bool batch_norm;
    char expert[8];       // "gelu", "relu" or "glu"
    char score[8];        // "softmax", "sigmoid" or "relu"
    char subkeys[8];      // tables of sub-keys: "shared" by all heads, or "head": tables for each
    uint32_t moe_experts; // E of a mixture of experts
    float moe_capacity;   // each takes ceil(moe_capacity * T / E) tokens of a window of T
    uint32_t vocab;       // V. 256: tokens are bytes; otherwise ids below it, see reef_token_bytes
    // optimiser
    float learning_rate; // dense parameters, at the end of warm-up
    float expert_rate;   // factor for expert rows
    uint32_t warmup;     // steps, per generation
    uint32_t decay;      // steps: rate = learning_rate / sqrt(1 + steps / decay) after warm-up
    float beta1, beta2, epsilon;
    float clip; // global norm of dense gradients; 0 for none
    float bn_momentum;
    float average; // rate of the weights' running average, which is the model; 0: none
    // lifelong policy
    char boundaries[16];     // where a generation ends: "drift", "given", "budget" or "capacity"
    uint64_t boundary_bytes; // budget: from one boundary to the next, rounded up to whole batches
    char boundary_mark[64];  // a line of the stream that is exactly this is a boundary; "" for none
    uint64_t capacity_uses;  // capacity: uses after which an expert counts as full
    float capacity_share;   // capacity: share of full experts, of all layers, that makes a boundary
    char growth[16];        // what a boundary does: "generation" or "in_place"
    char size_new[8];       // side of later generations: "fixed" or "auto"
    uint64_t experts_max;   // of all generations and layers together; 0 for no bound
    char subkeys_new[16];   // first sub-keys of later generations: "random" or "queries"
    uint32_t copy_experts;  // a layer: whose w_down a new generation copies; 0 for none
    char branch_new[8];     // may a new generation begin as a copy: "never" or "trial"
    uint64_t recycle_after; // bytes without a use after which an expert begins anew; 0: never
    float drift_z;          // robust z-score above which a batch is suspicious
    float drift_bits;       // and at least this many bits per byte above the median
    uint32_t drift_window;  // batches of history
    uint32_t drift_confirm; // suspicious batches that make a boundary
    float drift_share;      // and at least this share of those the generation has trained on,
    uint32_t drift_hold;    // but never more than this
    uint32_t drift_warmup;  // batches of a generation before the test is armed
    float leak_max;         // share of old tokens on which a new gate may fire
    uint32_t fire_max;      // generations beyond the first that may fire per token
    char gate[8];     // "ngram", "loss" as well, or "off": every generation takes part everywhere
    float gate_decay; // of the mean; 0: the shortest memory that tells old data from new
    uint32_t gate_negatives; // how often more old windows are fitted on which a gate nearly fires
    uint32_t reservoir_bytes, reservoir_window;
    float retain_weight;
    char seal_dtype[8]; // of rows of experts once sealed: "f32" or "bf16"
    // rivals of generations, behind the same trainer
    char strategy[16];     // what a boundary does: "generations", or the name of a rival
    float replay_share;    // of the trained windows of a step that are old data
    float ewc_weight;      // of the penalty of elastic weight consolidation
    float lwf_weight;      // of the distillation from the model of the last boundary
    float lwf_temperature; // of both softmaxes of that distillation
    uint32_t sparse_slots; // experts of a layer that a step of sparse memory finetuning changes
    // vector models only; of the fields above they read model, seed, side (also of later generations),
    // boundaries ("drift" or "given") and strategy, and the rivals of generations learning_rate, warmup,
    // decay, beta1, beta2 and epsilon
    uint32_t inputs;     // width of a vector; 0 for language models
    uint32_t memory;     // examples, with their labels, that are kept as a sample of the past
    float ridge;         // penalty on w_up, in mean squared norms of a hidden vector
    char vector_gate[8]; // which generation answers: "ridge", or "off" for always the newest
} reef_config;

// ---- tokens --------------------------------------------------------------------------------------

/**
 * Bytes that a token of the stream takes: 1 where tokens are bytes, 2 where they are ids, little-endian. All
 * positions and counts of a stream are in bytes; losses are bits per token, which for bytes is bits per byte.
 */
static inline size_t reef_token_bytes(const reef_config *config) {
    return config->vocab == REEF_VOCAB ? 1 : 2;
}

/** A text of a language model: INVALID where it ends within a token, or with the first id outside the vocabulary.
 *  `name` and `offset` say where its first byte lies. */
REEF_API REEF_MUST_CHECK reef_status reef_tokens_check(const reef_config *config,
                                                       const char *name,
                                                       uint64_t offset,
                                                       const uint8_t *bytes,
                                                       size_t count,
                                                       reef_error *err);

// ---- vectors -------------------------------------------------------------------------------------

// The stream of a vector model is records of one size, all little-endian: an int32 label (0 or more; -1:
// none, the example is only looked at), then `inputs` floats, which must be finite.
#define REEF_VECTOR_LABEL_BYTES 4
#define REEF_CLASS_COUNT_MAX 1024 // labels that one pool may meet
#define REEF_VECTOR_SIDE_MAX 128  // sub-keys per side: 16,384 experts, solved for together

static inline bool reef_config_is_vector(const reef_config *config) {
    return config->model[0] == 'v';
}

/** One PEER layer with nothing around it: see reef_layer.h. */
static inline bool reef_config_is_layer(const reef_config *config) {
    return config->model[0] == 'l' && config->model[1] == 'a';
}

static inline size_t reef_vector_record_bytes(const reef_config *config) {
    return REEF_VECTOR_LABEL_BYTES + (size_t)config->inputs * sizeof(float);
}

REEF_API reef_ffw reef_layer_ffw(const reef_config *config, uint32_t layer);
REEF_API const char *reef_ffw_text(reef_ffw kind); // "peer", "dense", "moe", "pkm"
/** Has the layer a pool of experts, that is rows of kind p or k? Not of vector models. */
REEF_API bool reef_layer_retrieves(const reef_config *config, uint32_t layer);
/** How many layers have one. Without any, generations after the first learn corrections alone. */
REEF_API uint32_t reef_config_retrieving_layers(const reef_config *config);
/** Parameters of a layer's feed-forward network that train, with a pool of `side` * `side` rows. */
REEF_API uint64_t reef_layer_parameters(const reef_config *config, uint32_t layer, uint32_t side);
/** Those that one token meets: of a mixture on average, where every expert takes its full capacity. */
REEF_API double reef_layer_parameters_active(const reef_config *config,
                                             uint32_t layer,
                                             uint32_t side);

/** One configurable field, for help, parsing and documents. */
typedef struct reef_config_field {
    const char *name;     // "d_model"
    const char *type;     // "integer", "number", "boolean" or "text"
    const char *help;     // one line
    const char *standard; // the default, as text
    double low, high;     // inclusive bounds of a number
    size_t offset;        // in reef_config
    size_t bytes;
} reef_config_field;

REEF_API void reef_config_default(reef_config *config);
REEF_API const reef_config_field *reef_config_fields(size_t *count);
/** Set one field by name from text. INVALID names the field, the value and what is allowed. */
REEF_API REEF_MUST_CHECK reef_status reef_config_set(reef_config *config,
                                                     const char *name,
                                                     const char *value,
                                                     reef_error *err);
/** Sizes that do not fit together are INVALID, with the values and what to do. */
REEF_API REEF_MUST_CHECK reef_status reef_config_check(const reef_config *config, reef_error *err);
/** What a layer by itself has none of, such as attention, is set to nothing; other kinds stay as they are. */
REEF_API void reef_config_reduce(reef_config *config);
/** JSON text of the configuration, on the heap (free with free()); NULL when out of memory. */
REEF_API char *reef_config_format(const reef_config *config);
REEF_API REEF_MUST_CHECK reef_status reef_config_parse(reef_config *config,
                                                       const char *json,
                                                       size_t bytes,
                                                       reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_config_read(reef_txn *txn,
                                                      reef_config *config,
                                                      reef_error *err);

/** Create a pool with its first, open generation, initialised from the seed, and commit it. */
REEF_API REEF_MUST_CHECK reef_status reef_pool_init(const char *path,
                                                    const reef_config *config,
                                                    reef_error *err);

// ---- what training costs -------------------------------------------------------------------------

// name in code, name for people
#define REEF_FLOPS_PART_LIST(X)                                                                    \
    X(EMBEDDING, "embedding")                                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(DENSE, "dense")                                                                              \
    X(MOE, "moe")                                                                                  \
    X(PKM, "pkm")                                                                                  \
    X(PEER, "peer")                                                                                \
    X(ROUTER, "router")                                                                            \
    X(HEAD, "head")

typedef enum reef_flops_part {
#define REEF_FLOPS_ENUM(upper, name) REEF_FLOPS_##upper,
    REEF_FLOPS_PART_LIST(REEF_FLOPS_ENUM)
#undef REEF_FLOPS_ENUM
        REEF_FLOPS_PART_COUNT
} reef_flops_part;

/** FLOPs of training on one window, all layers of a kind together; `router` is that of moe, pkm and peer. */
typedef struct reef_flops {
    uint64_t forward[REEF_FLOPS_PART_COUNT], backward[REEF_FLOPS_PART_COUNT];
    uint64_t forward_window, backward_window; // their sums
    uint32_t window_tokens;                   // T, which they are divided by for
    double token;                             // FLOPs of training per token
    double step;                              // and per step: all windows, rehearsed ones too
    uint64_t parameters;                      // that training moves
    uint64_t parameters_active; // and of those the ones that a token meets; of moe on average
} reef_flops;

/**
 * What training costs while generation 0 is open, formula by formula as in docs/PAPER.md: a multiply and an add
 * are 2 FLOPs; norms, softmax, activations, loss and optimiser are not counted. All zero for a vector model.
 */
REEF_API void reef_flops_count(const reef_config *config, reef_flops *out);
REEF_API const char *reef_flops_part_text(reef_flops_part part);

// ---- training ------------------------------------------------------------------------------------

typedef struct reef_trainer reef_trainer;

/** Something worth telling that happened in training. `json` is also what the timeline holds. */
typedef void (*reef_trainer_on_event)(void *context, const char *json);

typedef struct reef_trainer_options {
    size_t threads;                 // 0: one per core
    uint64_t memory_bytes;          // as in reef_model_options
    reef_trainer_on_event on_event; // called on the trainer's thread; may be NULL
    void *context;
} reef_trainer_options;

/**
 * Load the pool's last commit for training. The store must be open for writing and outlive the
 * trainer. Bytes that were accepted but not yet trained are part of the commit and are taken up again.
 * Threads: one thread at a time.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_open(reef_trainer **out,
                                                       reef_store *store,
                                                       const reef_trainer_options *options,
                                                       reef_error *err);
/** Forget everything since the last commit. Accepts NULL. */
REEF_API void reef_trainer_close(reef_trainer *trainer);

/** Bytes of the named source that have been accepted so far (in commits or since): read on from here. */
REEF_API uint64_t reef_trainer_cursor(const reef_trainer *trainer, const char *source);

/** The loss on what a source gave, each token or labelled example before it was trained on, since the trainer was
 *  opened. */
typedef struct reef_source_loss {
    uint64_t scored; // tokens; labelled examples in a vector model
    double sum;      // bits; wrong answers
    double recent;   // mean of about the last 65,536 bytes
} reef_source_loss;

/** False when nothing of it was scored yet. */
REEF_API bool reef_trainer_source_loss(const reef_trainer *trainer,
                                       const char *source,
                                       reef_source_loss *out);

/**
 * Accept the next `count` bytes of a source and train as far as whole batches reach. Deterministic in
 * the concatenated stream: how it is cut into calls does not matter.
 *
 * When `steps` is not NULL the call returns after the first batch that is trained, or after a run of held
 * batches: *taken says how many bytes were accepted (possibly fewer than `count`), *steps how many steps
 * ran; call again with the rest.
 *
 * Errors: INVALID an id outside the vocabulary, or a source that begins while another one's last token is not
 * whole; what was accepted before stays.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_feed(reef_trainer *trainer,
                                                       const char *source,
                                                       const uint8_t *bytes,
                                                       size_t count,
                                                       size_t *taken,
                                                       size_t *steps,
                                                       reef_error *err);

/**
 * Learn what waits in a vector model for a whole batch as a shorter one, without testing it for drift: for a boundary
 * that the caller knows. Nothing is done in other models, before the first batch of a generation, and while examples are
 * held back.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_learn_rest(reef_trainer *trainer,
                                                             reef_error *err);

/** One LMDB transaction with everything that changed. Never changes the mathematics. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_commit(reef_trainer *trainer,
                                                         reef_commit *out,
                                                         reef_error *err);

/** Writes records inside a transaction that is not its own: journal records, which the root hash leaves out. */
typedef reef_status (*reef_trainer_writer)(void *context, reef_txn *txn, reef_error *err);

/**
 * Call `writer` inside every commit from now on, after all that training wrote: what it writes and the cursors
 * of that commit are in the pool together, or not at all. Its failure is the commit's. NULL: none any more.
 */
REEF_API void reef_trainer_on_commit(reef_trainer *trainer,
                                     reef_trainer_writer writer,
                                     void *context);

/**
 * A transaction of its own for records beside training, such as journal records. Nothing that was trained since
 * the last commit is in it, and the root hash stays as it is.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_write(reef_trainer *trainer,
                                                        reef_trainer_writer writer,
                                                        void *context,
                                                        reef_error *err);

/**
 * One bounded step of compacting usage over time, a transaction of its own that leaves the root hash as it
 * is. Call it after a commit until `out` is zero; between two calls training may go on.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_compact(reef_trainer *trainer,
                                                          reef_usage_compaction *out,
                                                          reef_error *err);

/**
 * reef_journal_append beside training: a transaction of its own, between two steps. Batches need no `cursor`.
 * Nothing of what was accepted since the last commit is written.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_journal(reef_trainer *trainer,
                                                          reef_journal_batch *batches,
                                                          size_t batch_count,
                                                          reef_error *err);

/**
 * Do the records of a pool have the sizes that its configuration gives them? For reef_check_options.also.
 * Nothing is checked where the pool has no configuration. Errors: those of reading it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_check_sizes(reef_txn *txn,
                                                           void (*on_damage)(void *context,
                                                                             const reef_key *key,
                                                                             const char *what),
                                                           void *context,
                                                           reef_error *err);

/** Keep how far the check of sealed records has come with the next commit. Not part of the root hash. */
REEF_API void reef_trainer_set_scrub(reef_trainer *trainer, const reef_scrub *scrub);
/** Damage that such a check found: an event for the timeline, and told as all events are. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_note_damage(reef_trainer *trainer,
                                                              const char *what,
                                                              reef_error *err);

/** What sealing did, and what the type of the sealed rows cost. */
typedef struct reef_sealing {
    uint32_t generation; // that was sealed
    uint32_t task;       // above 0: with this strategy nothing was sealed, but that task has begun
    reef_dtype dtype;    // of its rows of experts from now on: REEF_F32 or REEF_BF16
    uint64_t loss_bytes; // tokens scored, of the generation's own sample; 0 when there is none
    double loss_before;  // bits per token with the generation as it was evaluated while open,
    double loss_after; // and as it is sealed, its gate forced open both times; NaN without a sample
} reef_sealing;

/**
 * Seal the open generation and open the next one. Commits.
 *
 * seal_dtype  what the rows of its experts become, "f32" or "bf16"; NULL for the configuration's choice
 * out         written; may be NULL
 *
 * Errors: INVALID when the generation has trained nothing yet, or there is no such type.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_seal(reef_trainer *trainer,
                                                       const char *seal_dtype,
                                                       reef_sealing *out,
                                                       reef_error *err);
/** Name of a type of rows, "f32" or "bf16", as in `seal_dtype`. */
REEF_API const char *reef_rows_dtype_text(reef_dtype dtype);
/** Grow the open generation in place to `side` (shell order: no id changes). Commits. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_grow(reef_trainer *trainer,
                                                       uint32_t side,
                                                       reef_error *err);

/** What a branch did, or would do. */
typedef struct reef_branch {
    uint32_t from;       // the sealed generation
    uint32_t generation; // the open one, which begins as its copy
    uint32_t side;
    // Its w_up and corrections were copied as well. Otherwise it begins silent, because it may answer the same
    // bytes as the sealed one: fire_max above 1, no gates, or a branch of generation 0.
    bool whole;
    uint64_t experts; // copied, in all layers
} reef_branch;

/**
 * Let the open generation, which has trained nothing yet, begin as a copy of a sealed one: its side, queries,
 * sub-keys, experts and corrections. Commits. The sealed one is not changed. Nor is the pool's function, by
 * one bit: the copy's gate never fires before it has been fitted on what the copy has trained on. (Without gates
 * the copy is silent.) Usage, moments and flags begin anew. A second branch replaces the first.
 *
 * out  written; may be NULL
 *
 * Errors: NOT_FOUND no such generation, or it was consolidated; INVALID it is open, the open one has trained,
 * a vector model or a strategy that keeps one generation; FULL experts_max, the disk; IO; NO_MEMORY. After an
 * error pool and trainer are as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_branch(
    reef_trainer *trainer, uint32_t from, bool dry_run, reef_branch *out, reef_error *err);

typedef struct reef_freeze {
    int32_t layer;         // PEER layer, -1 for all
    uint64_t first, last;  // local ids, inclusive; last is cut to the end of the layer
    double usage_quantile; // in (0, 1): only experts whose count lies above it; 0: all of the range
    bool thaw;
    bool dry_run;
} reef_freeze;
/** Freeze or thaw experts of the open generation; *changed counts flags that changed. Commits. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_freeze(reef_trainer *trainer,
                                                         const reef_freeze *freeze,
                                                         uint64_t *changed,
                                                         reef_error *err);
/** Commit, and keep the state under a name. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_snapshot(reef_trainer *trainer,
                                                           const char *name,
                                                           reef_snapshot *out,
                                                           reef_error *err);

/**
 * Commit, and remove snapshots, all of them in one transaction. `names` are exact, and only read.
 *
 * Errors: NOT_FOUND one does not exist; none is removed then. After an error everything is as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_snapshots_remove(
    reef_trainer *trainer, char (*names)[REEF_NAME_BYTES_MAX + 1], size_t count, reef_error *err);

/** What going back to a snapshot did, or would do. */
typedef struct reef_restoration {
    reef_restore_plan plan;                // the snapshot, and what goes
    reef_commit commit;                    // of the restored state; zero where nothing was done
    char kept_as[REEF_NAME_BYTES_MAX + 1]; // in place: the snapshot of the state before
} reef_restoration;

/**
 * Make a new pool in directory `to` whose state is a snapshot's: what was sealed later is gone, and training
 * goes on from the snapshot's place in the stream; where it is exact, to the same bits as it did then.
 * Snapshots that need what is gone are not in the new pool. The directory is no pool before all is done.
 *
 * name  a snapshot, or the only one that begins so
 * to    NULL: only plan
 *
 * Errors: those of reef_snapshot_find; INVALID the directory is not empty, or the snapshot does not hold
 * what learning needs; FULL; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_restore(
    reef_store *store, const char *name, const char *to, reef_restoration *out, reef_error *err);

/**
 * The same within the pool, which `store` has open for writing, in one transaction. The state before it is
 * kept as a snapshot. No trainer may be open on the store.
 *
 * Errors: as well INVALID a snapshot needs what would go.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_restore_in_place(
    reef_store *store, const char *name, bool dry_run, reef_restoration *out, reef_error *err);

/** Experts of one layer in two states of a generation. */
typedef struct reef_layer_change {
    uint32_t layer;
    uint64_t before, after; // how many there are
    uint64_t changed;       // of those that both have: rows that differ
    uint64_t uses;          // choices of an expert between the states
    // How far the shares of these choices lie from those before: 0 the same, 1 none in common. NaN where
    // a state has no usage stored, or nothing was chosen.
    double usage_drift;
} reef_layer_change;

/** A tensor that is not the same in two states. */
typedef struct reef_tensor_change {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t before, after; // values; 0 where it does not exist
    double
        relative; // |after - before| / |before| over what both have; infinite from zeros; NaN in one only
} reef_tensor_change;

typedef struct reef_state_change {
    reef_snapshot before, after; // "now" is the last commit
    size_t sealed_count;
    reef_generation *sealed; // (sealed_count) sealed in one of the states only,
    bool sealed_gone;        // and that is the first
    uint32_t generation;     // the one that is compared: open in the state that has fewer
    bool sealed_before, sealed_after;
    size_t layer_count;
    reef_layer_change layers[REEF_LAYER_COUNT_MAX];
    size_t tensor_count, tensors_compared;
    reef_tensor_change *tensors; // (tensor_count) those that differ
} reef_state_change;
REEF_API void reef_state_change_release(reef_state_change *change); // accepts the zeroed one

/**
 * What lies between two states: the generations sealed, and how the one that was open changed. Rows are
 * compared as they would be after sealing where one state has them in bf16.
 *
 * before, after  snapshots or beginnings of their names; NULL or "now" is the last commit
 * out            written; reef_state_change_release it, on failure too
 */
REEF_API REEF_MUST_CHECK reef_status reef_state_diff(reef_store *store,
                                                     const char *before,
                                                     const char *after,
                                                     reef_state_change *out,
                                                     reef_error *err);

/** What to consolidate, and how. All-zero fields mean the default. */
typedef struct reef_consolidation_options {
    uint32_t first, last; // sealed generations from 1 on; at least two of them with content
    uint32_t side;        // of the new one; 0: the largest of theirs
    uint64_t steps;       // of distillation; 0: by how much text there is
    bool drop_snapshots;  // that share one of the generations; otherwise they are in the way
    bool dry_run;         // plan and measure only: nothing is changed or committed
    void (*progress)(void *context, uint64_t step, uint64_t steps, double bits); // may be NULL
    void *context;
} reef_consolidation_options;

/** Loss on the part of one generation's text in the reservoir that nothing is taught from. */
typedef struct reef_consolidation_loss {
    uint32_t generation;
    uint64_t bytes;       // tokens scored
    double before, after; // bits per token now, every gate deciding; after is NaN in a dry run
} reef_consolidation_loss;

/** The plan of a consolidation, and what came of it. Counts are of all layers together. */
typedef struct reef_consolidation {
    uint32_t first, last; // `last` is the number of the new generation
    uint32_t merged;      // generations with content that it replaces
    uint32_t later;       // sealed ones after it: they were trained on top of the old ones
    uint32_t side;
    uint64_t steps, taught_bytes;
    uint32_t token_bytes; // of the stream: what losses are counted by
    uint64_t experts_before, experts_after;
    uint64_t bytes_before, bytes_after; // payload of their tensors, gates and rows
    double fired_before, fired_after; // generations after the first that fire per byte of `losses`
    double gate_leak, gate_detect;    // of the new gate; NaN in a dry run
    size_t loss_count;
    reef_consolidation_loss *losses; // (loss_count) the consolidated generations and all after them
    size_t snapshot_count;
    char (*snapshots)[REEF_NAME_BYTES_MAX + 1]; // (snapshot_count) that share one of them
} reef_consolidation;
REEF_API void reef_consolidation_release(reef_consolidation *report); // accepts the zeroed one

/**
 * Distil the sealed generations first .. last into one new one, number `last`, and commit it in their
 * place, all in one transaction. Gives up what the pool was as of each of them: states before `first`
 * stay as they are to the bit; as of `last` and later is what the distilled pool computes; in between
 * there are none any more. The open generation and its optimiser are not touched. Deterministic in the
 * pool and the options, for any number of threads.
 *
 * report  written, also in a dry run; reef_consolidation_release it, on failure too
 *
 * Errors: INVALID the range, the side, or too little text in the reservoir; a snapshot in the way (unless
 * drop_snapshots); FULL; IO; NO_MEMORY. After an error pool and trainer are as before.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_trainer_consolidate(reef_trainer *trainer,
                         const reef_consolidation_options *options,
                         reef_consolidation *report,
                         reef_error *err);

/** What a file of one sealed generation says of it. */
typedef struct reef_generation_file {
    reef_generation info; // as in the pool it comes from
    uint32_t builds_on; // generations 0 .. builds_on - 1 must be the same in a pool that imports it
    uint64_t experts;   // in all layers
    size_t tensor_count;
    uint64_t file_bytes;
} reef_generation_file;

/** How to export. All-zero fields mean the default. */
typedef struct reef_export_options {
    bool force;            // replace a file of that name
    bool dry_run;          // write nothing; file_bytes is then 0
    bool (*stopped)(void); // asked for between records: true ends it, and leaves nothing
} reef_export_options;

/**
 * Write one sealed generation to a file in the safetensors format: its tensors, gate, rows and flags, and as
 * metadata all that importing needs (docs/FORMAT.md). A writer may go on meanwhile. The file is written as
 * PATH.part, synced, and renamed; whatever goes wrong leaves nothing of it, and what a killed process left is written
 * over by the next.
 *
 * options  NULL: all-zero
 * out      written; may be NULL
 *
 * Errors: NOT_FOUND no such generation, or it was consolidated, or no such directory; INVALID it is open, of a
 * vector model, or the file exists; BUSY it was stopped; CORRUPT it is not what its root says; FULL; IO; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_export(reef_store *store,
                                                            uint32_t generation,
                                                            const char *path,
                                                            const reef_export_options *options,
                                                            reef_generation_file *out,
                                                            reef_error *err);

/** How to import. All-zero fields mean the default. */
typedef struct reef_import_options {
    bool dry_run; // check everything, the data of the file included, and change nothing
    // In (0, 1): raise the threshold of its gate until it fires on at most that share of the reservoir's bytes. It
    // is then another generation, with another root; 0: it stays what it was, to the bit.
    double leak_max;
} reef_import_options;

/** What an import did, or would do. */
typedef struct reef_import {
    reef_generation_file file;
    uint32_t generation; // its number in this pool
    uint64_t first_id;   // pool-wide id of its first expert here
    uint32_t open;       // the generation that is open afterwards
    double leak;         // share of the reservoir's bytes on which its gate fired there
    double leak_now;     // and as it is now: less where the threshold was raised; both NaN without
} reef_import;

/**
 * Take in a generation of another pool that has the same generation 0, and commit: one transaction. It gets the
 * number of the open generation, which must have trained nothing yet and is opened anew with the next number.
 * On text where no other generation of this pool fires it computes what it computed there, to the bit.
 *
 * options  NULL for the defaults
 * out      written; may be NULL
 *
 * Errors: INVALID another configuration or backbone, the open generation has trained, a vector model or a
 * strategy that keeps one generation; NOT_FOUND, CORRUPT, VERSION of the file; FULL experts_max, the disk; IO;
 * NO_MEMORY. After an error pool and trainer are as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_import(reef_trainer *trainer,
                                                         const char *path,
                                                         const reef_import_options *options,
                                                         reef_import *out,
                                                         reef_error *err);

/** What the file of a whole model has. */
typedef struct reef_model_file {
    reef_config config;
    uint32_t generations;
    bool open;        // the last of them
    uint64_t experts; // of all generations and layers
    size_t tensor_count;
    uint64_t file_bytes;
    uint64_t step, stream_bytes; // where the state stands in its stream
} reef_model_file;

/**
 * Write a state of a pool to a file in the safetensors format: all generations with their weights, batch norm
 * statistics, gates, experts, flags and usage, and as metadata the configuration (docs/FORMAT.md). Of an open
 * generation the weights are those that it is evaluated by. The file is written as by reef_generation_export.
 *
 * as_of  as in reef_model_open
 * out    written; may be NULL
 *
 * Errors: NOT_FOUND no such state or directory; INVALID a vector model, a layer by itself or a rival strategy, or the
 * file exists; BUSY it was stopped; CORRUPT; FULL; IO; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_export(reef_store *store,
                                                       const char *as_of,
                                                       const char *path,
                                                       const reef_export_options *options,
                                                       reef_model_file *out,
                                                       reef_error *err);

/** The configuration of the model in a file. Errors: as of reef_pool_from_model. */
REEF_API REEF_MUST_CHECK reef_status reef_model_file_config(const char *path,
                                                            reef_config *config,
                                                            reef_error *err);

/**
 * Make a new pool of such a file. Its losses are those of the state that was written, to the bit, also as of each
 * sealed generation; its optimiser, its sample of the past and its history begin anew. A file whose last generation
 * is sealed gets an open one after it.
 *
 * config  NULL: the file's. Another one must give every tensor the shape that it has in the file.
 * out     written; may be NULL
 *
 * Errors: NOT_FOUND no such file; INVALID it is of something else, or the pool exists; VERSION; CORRUPT a tensor is
 * missing, unknown, of another shape or not finite, or the data is not what its root says; FULL; IO; NO_MEMORY. After
 * an error, and in a dry run, there is no pool.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_from_model(const char *pool,
                                                          const char *path,
                                                          const reef_config *config,
                                                          bool dry_run,
                                                          reef_model_file *out,
                                                          reef_error *err);

typedef struct reef_trainer_status {
    uint64_t step, stream_bytes; // trained
    uint64_t carried_bytes;      // accepted, not yet trained (part of a batch, or held back)
    uint64_t skipped_bytes;      // recognised as an older domain: not trained
    uint64_t recycled_experts;   // that began anew, in all generations; with recycle_after
    uint32_t generation;         // the open one
    uint64_t generation_step;
    char strategy[16];   // of the configuration
    uint32_t task;       // boundaries so far of a strategy that keeps one generation; else 0
    uint64_t opened_at;  // stream position where it was opened
    uint32_t suspicious; // of the batches held back now: not explained by the drift test
    // Prequential loss: median over the drift window, and of the last batch. With vectors both are shares of
    // labelled examples that were classed wrongly before they were learned; the first of known labels only.
    double bits_per_byte;
    double last_bits_per_byte;
    // How far the last batch's loss lies above the median, in robust standard deviations, and the loss above which
    // a batch is suspicious; NaN while the drift test has no history, and with vectors.
    double drift, drift_limit;
    double learning_rate;
    uint64_t experts, experts_open; // in all layers
    uint64_t dirty_since_step;      // steps since the last commit
    double seconds_forward, seconds_backward, seconds_router, seconds_experts, seconds_update,
        seconds_commit;
} reef_trainer_status;
REEF_API void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out);

/** What the trainer counts in all. Boundaries only where the strategy keeps one generation, else 0. */
typedef struct reef_tasks {
    uint32_t task;             // boundaries so far
    uint64_t task_at;          // position in the stream of the last one
    uint64_t recycled_experts; // with any strategy, as in reef_trainer_status
} reef_tasks;
REEF_API REEF_MUST_CHECK reef_status reef_tasks_read(reef_txn *txn,
                                                     reef_tasks *out,
                                                     reef_error *err);

// The history of the loss takes bounded space: of each level at most so many points are kept. A point of
// level l + 1 is the mean of so many of level l, the oldest of which it takes the place of.
#define REEF_SERIES_LEVELS 6
#define REEF_SERIES_FOLD 16
#define REEF_SERIES_POINTS_MAX 4096

/** Steps and losses for `reef plot`, kept in `series`. With vectors, bits_per_byte is the share of the
 *  batch's labelled examples that were classed wrongly before they were learned. */
typedef struct reef_point {
    uint64_t step, stream_bytes; // of the last batch: its step, and the position after it
    float bits_per_byte;         // the mean over its batches
    uint32_t generation;         // of the last batch
    uint32_t level;              // REEF_SERIES_FOLD to the power of this are its batches
} reef_point;
typedef reef_status (*reef_point_visit)(void *context, const reef_point *point, reef_error *err);
/** Visit the points, oldest first. */
REEF_API REEF_MUST_CHECK reef_status reef_series_scan(reef_txn *txn,
                                                      reef_point_visit visit,
                                                      void *context,
                                                      reef_error *err);

// ---- evaluation ----------------------------------------------------------------------------------

typedef struct reef_model reef_model;

typedef struct reef_model_options {
    size_t threads; // 0: one per core
    /** What the process should hold at most; 0: what the machine has. When the rows of sealed
     *  generations take more than half of it, they are not copied but read where they lie in the pool,
     *  and let go of when the process grows beyond it. */
    uint64_t memory_bytes;
} reef_model_options;

/** What people write for memory_bytes: a whole number above 0, of bytes or with K, M, G or T (1024). */
REEF_API REEF_MUST_CHECK reef_status reef_memory_parse(const char *text,
                                                       uint64_t *bytes,
                                                       reef_error *err);

/**
 * Copy a state of the pool into memory; for a pool larger than that, see reef_model_options: then a read
 * transaction is kept as long as the model, and checksums of rows are not verified.
 *
 * as_of    NULL or "now": the last commit, every generation under its gate (task-free). A number g:
 *          generations 0 .. g, exactly the function the model was when g was sealed. Otherwise the name
 *          of a snapshot, or the beginning of only one.
 * options  NULL for the defaults
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_open(reef_model **out,
                                                     reef_store *store,
                                                     const char *as_of,
                                                     const reef_model_options *options,
                                                     reef_error *err);
/**
 * The same, in exchange for an older copy, `*model` (NULL: none), of this pool or one of the same configuration; it is
 * used up also on failure. Sealed generations that are the same are taken over from it, so only the others are read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_reopen(reef_model **model,
                                                       reef_store *store,
                                                       const char *as_of,
                                                       const reef_model_options *options,
                                                       reef_error *err);
REEF_API void reef_model_close(reef_model *model); // accepts NULL
/**
 * Nothing will be asked for a while: where rows are read in place, end the read transaction, which would keep the
 * writer from reusing pages. The next question begins another. BUSY from it: open the model again.
 */
REEF_API void reef_model_rest(reef_model *model);
REEF_API const reef_config *reef_model_config(const reef_model *model);
/** The commit that was the last one when the state was read; the state itself may be an earlier one. */
REEF_API const reef_commit *reef_model_commit(const reef_model *model);
REEF_API uint32_t reef_model_generation_count(const reef_model *model);
REEF_API uint64_t reef_model_parameter_count(const reef_model *model);

typedef struct reef_score {
    uint64_t bytes; // tokens scored (all but the first): bytes, or with a vocabulary of ids those
    double bits;    // total
    double bits_per_byte; // per token
    double *fire_share; // (generation count) or NULL: caller's; share of tokens on which each fired
} reef_score;

/**
 * Loss of a text, read as one stream in windows of the model's context, gates carried along.
 * bytes  (count) whole tokens: here as in all questions to a model
 * bits   (tokens) or NULL: written; the surprise of each token given those before it in its window; bits[0] is
 *        that of one among `vocab` (8 of a byte: nothing came before).
 * progress  may be NULL; called with bytes done from the calling thread
 *
 * Errors: INVALID no language model, or what reef_tokens_check says.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_score(reef_model *model,
                                                      const uint8_t *bytes,
                                                      size_t count,
                                                      float *bits,
                                                      reef_score *score,
                                                      void (*progress)(void *context, size_t done),
                                                      void *context,
                                                      reef_error *err);

/**
 * Which experts a text uses, as in He 2024 section 3.3: z' of every expert over all tokens, gates carried along.
 * For the paper's models, in which one block retrieves its experts.
 *
 * usage  (expert_count) added to
 *
 * Errors: INVALID unless exactly one block retrieves (p or k), the model has one generation, and expert_count is
 * that block's.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_usage(reef_model *model,
                                                      const uint8_t *bytes,
                                                      size_t count,
                                                      size_t expert_count,
                                                      reef_usage *usage,
                                                      reef_error *err);

/** What is known of the gate of one generation. */
typedef struct reef_gate_facts {
    float decay, prior, threshold;     // see reef_router.h; an infinite one: never or always fires
    float loss_weight, loss_reference; // the same; weight 0: reads n-grams alone
    float leak, detect;                // measured by its last fit
    double passes; // written with margins: forward passes a window for its losses and older gates'
} reef_gate_facts;

/**
 * Facts of a gate, and its margins along a text that begins cold: the gate fires at t where margins[t] > 0
 * (and no more than fire_max others have a higher one). A threshold that lies higher by x would fire where
 * margins[t] > x. Needs forward passes only for a gate that reads losses; generations after it have no say.
 *
 * margins  (tokens) written; NULL for the facts alone
 *
 * Errors: INVALID generation 0, which has no gate, one that the state does not have, or a vector model.
 * Threads: one at a time on a model.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_gate_margins(reef_model *model,
                                                             uint32_t generation,
                                                             const uint8_t *bytes,
                                                             size_t count,
                                                             reef_gate_facts *facts,
                                                             float *margins,
                                                             reef_error *err);

/** Logits (tokens, vocab) of every position, for tests and tools; same path as reef_model_score. */
REEF_API REEF_MUST_CHECK reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err);

typedef struct reef_sampling {
    uint64_t seed;
    float temperature; // 0: the most likely byte
    float top_p;       // in (0, 1]; 0 means 1
    /** NULL, or told of every byte as soon as there is one; false ends the text there, without an error. */
    bool (*on_byte)(void *context, uint8_t byte);
    void *context;
} reef_sampling;

/** Continue `prompt` by `count` bytes. `out` (count) is written. INVALID where tokens are no bytes. */
REEF_API REEF_MUST_CHECK reef_status reef_model_generate(reef_model *model,
                                                         const uint8_t *prompt,
                                                         size_t prompt_bytes,
                                                         size_t count,
                                                         const reef_sampling *sampling,
                                                         uint8_t *out,
                                                         reef_error *err);

/**
 * Visit what the reservoir holds, slot by slot: `bytes` of the stream, and the generation that was trained on
 * them; with a strategy that keeps one, the task. In a vector model an example each.
 */
typedef reef_status (*reef_window_visit)(
    void *context, uint32_t generation, const uint8_t *bytes, size_t count, reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_reservoir_scan(reef_txn *txn,
                                                         reef_window_visit visit,
                                                         void *context,
                                                         reef_error *err);

/** Leakage of the gate of a text model's generation, measured by its last fit; NaN where it has none. */
REEF_API REEF_MUST_CHECK reef_status reef_gate_leak_read(reef_txn *txn,
                                                         uint32_t generation,
                                                         double *out,
                                                         reef_error *err);

/** Usage of one PEER layer of one generation, from the pool. `usage` (side*side) is the caller's. */
REEF_API REEF_MUST_CHECK reef_status reef_usage_read(reef_txn *txn,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     size_t expert_count,
                                                     reef_usage *usage,
                                                     reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_flags_read(reef_txn *txn,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     size_t expert_count,
                                                     uint8_t *flags,
                                                     reef_error *err);

/** What the row of one expert is like; NaN what its kind has none of. Norms are Euclidean. */
typedef struct reef_expert_facts {
    double down, up, gate; // norms of w_down, w_up and w_gate
    double bias;           // of a hidden unit of a vector model
    int32_t label;         // the class that such a unit speaks for most; -1: none
} reef_expert_facts;

/**
 * Facts of experts of one layer of one generation, from the pool; `layer` is 0 in a vector model.
 *
 * ids  (count) local ids; NULL: 0 .. count - 1
 * out  (count) written
 *
 * Errors: NOT_FOUND no such generation or expert; INVALID the layer retrieves nothing.
 */
REEF_API REEF_MUST_CHECK reef_status reef_expert_facts_read(reef_txn *txn,
                                                            uint32_t generation,
                                                            uint32_t layer,
                                                            size_t count,
                                                            const uint32_t *ids,
                                                            reef_expert_facts *out,
                                                            reef_error *err);

/** Byte `at` of a text chose an expert, with `score` (of all heads together); its neuron said `activation`. */
typedef void (*reef_expert_visit)(void *context, size_t at, double score, double activation);

/**
 * Where a text, read as one stream with gates carried along, uses one expert: what it adds to the token of byte
 * `at` is score * activation * w_up. Visited in order.
 *
 * Errors: NOT_FOUND no such generation, layer or expert in this state; INVALID no language model.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_expert_uses(reef_model *model,
                                                            uint32_t generation,
                                                            uint32_t layer,
                                                            uint32_t expert,
                                                            const uint8_t *bytes,
                                                            size_t count,
                                                            reef_expert_visit visit,
                                                            void *context,
                                                            reef_error *err);

/** Labels that the state of a vector model knows; 0 in a language model. */
REEF_API size_t reef_model_class_count(const reef_model *model);
/** labels  (class count) written: in the order of the columns of reef_model_predict's scores. */
REEF_API void reef_model_classes(const reef_model *model, int32_t *labels);

/**
 * Classes of `count` vectors. What one gets does not depend on the others.
 *
 * vectors      (count, inputs) row-major
 * labels       (count) written: the best class; -1 while the model knows none
 * scores       (count, class count) or NULL: written; about the probability of each class, rows need not
 *              sum to 1
 * generations  (count) or NULL: written; the generation whose experts had the most say
 *
 * Errors: INVALID a language model, or a value that is not finite (message names row and column).
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_predict(reef_model *model,
                                                        size_t count,
                                                        const float *vectors,
                                                        int32_t *labels,
                                                        float *scores,
                                                        uint32_t *generations,
                                                        reef_error *err);

// ---- one layer by itself -------------------------------------------------------------------------

/** A PEER layer with random weights and tokens and nothing around it, for measurements. */
typedef struct reef_layer_bench reef_layer_bench;

typedef struct reef_layer_bench_options {
    reef_router_shape shape; // with batch norm
    size_t tokens;           // of one pass; a whole number of pieces
    size_t piece_tokens;     // that one worker takes at a time
    uint64_t seed;           // of tokens and weights: the same seed and shape draw the same
    // As a sealed generation: nothing learns, there is no memory for moments, and the router is folded.
    bool sealed;
    // The other fields but the last are of a sealed layer only.
    // Type of the rows: REEF_F32, also when zero, or REEF_BF16, which are drawn in floats and rounded.
    reef_dtype dtype;
    // Rows that lie elsewhere and stay there while the layer lives, or NULL: the layer draws its own. Row
    // n is row n mod 2^row_block_shift of block n >> row_block_shift, which is aligned for its type.
    const void *const *row_blocks;
    uint32_t row_block_shift; // 32: all in one block
    // Called in every pass when the experts of all tokens are known and before their rows are read, such
    // as to fetch these: `indices` (tokens, heads, topk), `count` of them. Its time counts with the
    // experts. May be NULL.
    void (*chosen)(void *context, size_t count, const reef_expert_id *indices);
    void *chosen_context;
    // A layer of the same tokens and d_model, which lives longer: this one takes its tokens and gradients
    // and adds to its outputs, as generations of one pool do. NULL: tokens of its own.
    const reef_layer_bench *beside;
} reef_layer_bench_options;

/** Where the time of a pass went; what a pass does not do is 0. */
typedef struct reef_layer_seconds {
    double retrieval, experts; // forward
    double loss, experts_backward, retrieval_backward;
    double sort, experts_update; // pairs by expert; gradients of experts and their Adam in one pass
    double retrieval_update;     // Adam and running statistics of the router
} reef_layer_seconds;

/** Rows of experts and their moments ask for huge pages. INVALID when sizes do not fit; NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_new(reef_layer_bench **out,
                                                          const reef_layer_bench_options *options,
                                                          reef_workers *workers, // draw the values
                                                          reef_error *err);
REEF_API void reef_layer_bench_free(reef_layer_bench *layer); // accepts NULL
/** Other tokens and targets, for a layer that has its own: those of a new layer with this seed. */
REEF_API void reef_layer_bench_draw_tokens(reef_layer_bench *layer, uint64_t seed);
/** The layer's own rows, (side * side, 2 * d_model) of its type; they change with each step. Or NULL. */
REEF_API const void *reef_layer_bench_rows(const reef_layer_bench *layer);
/** Bytes of the layer's own rows; of the moments of rows and router, 0 in a sealed layer. */
REEF_API size_t reef_layer_bench_row_bytes(const reef_layer_bench *layer);
REEF_API size_t reef_layer_bench_moment_bytes(const reef_layer_bench *layer);
/** The output (tokens, d_model) of the last pass but retrieve; of all layers beside each other. */
REEF_API const float *reef_layer_bench_output(const reef_layer_bench *layer);
/** The folded router of the last retrieve or forward, and what that left behind: queries and choice. */
REEF_API const reef_router_params *reef_layer_bench_router(const reef_layer_bench *layer);
REEF_API const reef_router_tape *reef_layer_bench_tape(const reef_layer_bench *layer);

/**
 * One pass over the layer's tokens each. retrieve and forward evaluate, with the batch norm folded.
 * backward is forward and backward in training mode, up to the gradients of tokens and router; gradients
 * of experts are only ever computed by step, which is backward and the optimisers of both. A sealed
 * layer's backward stops at the gradient of the tokens, and its step is that.
 * seconds  written
 * Errors: INVALID when the router's queries are not finite.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_retrieve(reef_layer_bench *layer,
                                                               reef_workers *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_forward(reef_layer_bench *layer,
                                                              reef_workers *workers,
                                                              reef_layer_seconds *seconds,
                                                              reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_backward(reef_layer_bench *layer,
                                                               reef_workers *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_step(reef_layer_bench *layer,
                                                           reef_workers *workers,
                                                           reef_layer_seconds *seconds,
                                                           reef_error *err);
/**
 * A training step of a pool of generations that all fire: every layer adds its output, the loss is that of
 * the sum, and the open layers learn. Layers after the first were made beside one of them.
 * seconds  written; of all layers together
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_step_all(size_t count,
                                                               reef_layer_bench *const *layers,
                                                               reef_workers *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
/** How many experts the last pass of an open layer chose at least once. */
REEF_API size_t reef_layer_bench_touched(reef_layer_bench *layer);
/** Mean squared error of the last pass but retrieve: steps bring it down. */
REEF_API double reef_layer_bench_loss(const reef_layer_bench *layer);

// ---- one layer on disk ---------------------------------------------------------------------------

/** The rows of one sealed layer in a pool of their own, read in place: more than fit memory. */
typedef struct reef_layer_pool reef_layer_pool;

/**
 * Make such a pool in directory `path`: side * side rows of w_down and w_up, drawn and rounded to bf16.
 * progress  may be NULL; called with the bytes of rows written so far
 * Errors: INVALID the directory exists; FULL; IO; NO_MEMORY. What was written stays.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_pool_write(const char *path,
                                                           const reef_router_shape *shape,
                                                           uint64_t seed,
                                                           reef_workers *workers, // draw the values
                                                           void (*progress)(void *context,
                                                                            uint64_t bytes),
                                                           void *context,
                                                           reef_error *err);

/** `shape` as it was written; `memory_bytes`: what the process may hold, see reef_model_options. */
REEF_API REEF_MUST_CHECK reef_status reef_layer_pool_open(reef_layer_pool **out,
                                                          const char *path,
                                                          const reef_router_shape *shape,
                                                          uint64_t memory_bytes,
                                                          reef_error *err);
REEF_API void reef_layer_pool_close(reef_layer_pool *pool); // accepts NULL
/** For reef_layer_bench_options: row_blocks, with row_block_shift written. */
REEF_API const void *const *reef_layer_pool_blocks(const reef_layer_pool *pool,
                                                   uint32_t *block_shift);
/** For reef_layer_bench_options: chosen, with the pool as its context. Begins to fetch those rows. */
REEF_API void reef_layer_pool_chosen(void *pool, size_t count, const reef_expert_id *indices);
/** After each pass: the thread that fetches is done with the pass's indices. */
REEF_API void reef_layer_pool_finish(reef_layer_pool *pool);
/** How often the process grew too large and let go of all rows. */
REEF_API uint64_t reef_layer_pool_drops(const reef_layer_pool *pool);

#endif
