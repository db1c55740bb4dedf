// What a pool says of data, now and as of any earlier state. A reef_model is a read-only copy of some state of a pool,
// made by a short read transaction, that lives without the pool afterwards.
#ifndef REEF_MODEL_H
#define REEF_MODEL_H

#include "reef_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/** The token that begins with byte `at` of a text chose an expert, with `score` (of all heads together); its neuron
 *  said `activation`. */
typedef void (*reef_expert_visit)(void *context, size_t at, double score, double activation);

/**
 * Where a text, read as one stream with gates carried along, uses one expert: what it adds to the token of byte
 * `at` is score * activation * w_up. Visited in order.
 *
 * Errors: NOT_FOUND no such generation, layer or expert in this state; INVALID no language model, or what
 * reef_tokens_check says.
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

#endif
