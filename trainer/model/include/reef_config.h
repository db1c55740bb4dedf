// What a model is and how it learns: the configuration that a pool is made with, the tokens it
// is for, and what a step of training costs.
#ifndef REEF_CONFIG_H
#define REEF_CONFIG_H

#include "reef_error.h"
#include "reef_kernels.h"
#include "reef_router.h"
#include "reef_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_LAYER_COUNT_MAX 32
#define REEF_LEARNING_RATE_MAX 10 // of one step
#define REEF_VOCAB 256 // of a pool of bytes, which is what `vocab` is unless it is chosen

/** What the feed-forward network of a block is, and its letter in `ffw` of the configuration. */
typedef enum reef_ffw {
    REEF_FFW_PEER,  // p: single-neuron experts, retrieved by product keys (He 2024)
    REEF_FFW_DENSE, // d: two matrices
    REEF_FFW_MOE,   // m: a mixture of dense networks that choose their tokens (Zhou et al. 2022)
    REEF_FFW_PKM,   // k: values, retrieved by product keys (Lample et al. 2019)
} reef_ffw;

// Choices: the words of a configuration, parsed once. Enumerators stand in the order of the words
// in config_field.c.

/** Kind of model: language model, one PEER layer by itself. */
typedef enum reef_model_kind {
    REEF_MODEL_LM,
    REEF_MODEL_LAYER,
} reef_model_kind;

/** Tables of sub-keys: one for all heads, or one for each. */
typedef enum reef_subkeys {
    REEF_SUBKEYS_SHARED,
    REEF_SUBKEYS_HEAD,
} reef_subkeys;

/**
 * Where a generation ends: where drift is found, on command, after so many bytes, when its experts
 * are used up, or where text begins whose contexts no memory has met.
 */
typedef enum reef_boundaries {
    REEF_BOUNDARIES_DRIFT,
    REEF_BOUNDARIES_GIVEN,
    REEF_BOUNDARIES_BUDGET,
    REEF_BOUNDARIES_CAPACITY,
    REEF_BOUNDARIES_CONTEXTS,
} reef_boundaries;

/** What a boundary does: open the next generation, or enlarge the open one. */
typedef enum reef_growth {
    REEF_GROWTH_GENERATION,
    REEF_GROWTH_IN_PLACE,
} reef_growth;

/** Side of later generations: side_new, or by the distance of the new data. */
typedef enum reef_size_new {
    REEF_SIZE_NEW_FIXED,
    REEF_SIZE_NEW_AUTO,
} reef_size_new;

/** First sub-keys of later generations: random, or queries of their own data. */
typedef enum reef_subkeys_new {
    REEF_SUBKEYS_NEW_RANDOM,
    REEF_SUBKEYS_NEW_QUERIES,
} reef_subkeys_new;

/** May a new generation begin as a copy of a sealed one: never, or where that learns better. */
typedef enum reef_branch_new {
    REEF_BRANCH_NEW_NEVER,
    REEF_BRANCH_NEW_TRIAL,
} reef_branch_new;

/** What later generations fire on: n-grams, or everything. */
typedef enum reef_gate_kind {
    REEF_GATE_NGRAM,
    REEF_GATE_OFF,
} reef_gate_kind;

/** Rows of experts once sealed. */
typedef enum reef_seal_dtype {
    REEF_SEAL_F32,
    REEF_SEAL_BF16,
    REEF_SEAL_I8,
} reef_seal_dtype;

/** What an expert does with the token x. */
typedef enum reef_expert_kind {
    REEF_EXPERT_GELU,  // gelu(w_down . x) w_up
    REEF_EXPERT_RELU,  // max(0, w_down . x) w_up
    REEF_EXPERT_GLU,   // gelu(w_gate . x) (w_down . x) w_up (Shazeer 2020)
    REEF_EXPERT_VALUE, // w_up, whatever x is (Lample et al. 2019)
} reef_expert_kind;

// ---- configuration ------------------------------------------------------------------------------

/**
 * Everything that decides the function and its training. Written once by reef_pool_init to the
 * pool's meta record as JSON. One X-macro table in config.c names every field, its default, its
 * bounds and its help; the CLI's options and the JSON keys come from it (d_model is --d-model and
 * "d_model").
 */
typedef struct reef_config {
    reef_model_kind model; // "lm" or "layer"
    uint64_t seed;
    // sizes
    uint32_t layers, d_model, attention_heads, context; // L, D, A, T
    uint32_t previous_bytes;                            // tokens embedded beside a token's own
    uint32_t batch;    // windows of T tokens of the stream per step
    uint32_t rehearse; // windows beside them, drawn from what the open generation has trained on
    // One letter per block: 'p' peer, 'k' product-key memory, 'm' mixture of experts, 'd' dense;
    // "p" = all
    char ffw[REEF_LAYER_COUNT_MAX + 1];
    uint32_t d_ffw;              // width of dense FFWs, and of each expert of a mixture
    uint32_t heads, topk, d_key; // PEER and product-key memory: H, K, d_key
    uint32_t side, side_new;     // of the first and of later generations
    uint32_t adapters;           // rank of later generations' corrections of attention; 0 for none
    bool adapt_ffw;              // and of dense FFWs
    bool adapt_position, adapt_whole, weigh_older;
    bool batch_norm;
    reef_expert_kind expert; // "gelu", "relu" or "glu"
    reef_router_score score; // "softmax", "sigmoid" or "relu"
    reef_subkeys subkeys; // tables of sub-keys: "shared" by all heads, or "head": tables for each
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
    // where a generation ends: "drift", "given", "budget", "capacity" or "contexts"
    reef_boundaries boundaries;
    uint64_t boundary_bytes; // budget: from one boundary to the next, rounded up to whole batches
    char boundary_mark[64];  // a line of the stream that is exactly this is a boundary; "" for none
    uint64_t capacity_uses;  // capacity: uses after which an expert counts as full
    float capacity_share;   // capacity: share of full experts, of all layers, that makes a boundary
    reef_growth growth;     // what a boundary does: "generation" or "in_place"
    reef_size_new size_new; // side of later generations: "fixed" or "auto"
    uint64_t experts_max;   // of all generations and layers together; 0 for no bound
    uint64_t return_bytes; // that a kind learns when it comes back before its net follows; 0: never
    uint32_t kinds_max;    // generations with content, each of which begins a kind; 0: no bound
    reef_subkeys_new subkeys_new; // first sub-keys of later generations: "random" or "queries"
    uint32_t copy_experts;        // a layer: whose w_down a new generation copies; 0 for none
    reef_branch_new branch_new;   // may a new generation begin as a copy: "never" or "trial"
    uint64_t recycle_after;       // bytes without a use after which an expert is initialised again;
                                  // 0: never
    float drift_z;                // robust z-score above which a batch is anomalous
    float drift_bits;             // and at least this many bits per byte above the median
    uint32_t drift_window;        // batches of history
    uint32_t drift_confirm;       // anomalous batches that make a boundary
    float drift_share;            // and at least this share of those the generation has trained on,
    uint32_t drift_hold;          // but never more than this
    uint32_t drift_warmup;        // batches of a generation before the test is armed
    float leak_max;               // share of old tokens on which a new gate may fire
    uint32_t fire_max;            // generations beyond the first that may fire per token
    // "ngram", "loss" as well, or "off": every generation takes part everywhere
    reef_gate_kind gate;
    float gate_decay;        // of the mean; 0: the shortest memory that separates old data from new
    uint32_t gate_negatives; // how often more old windows are fitted on which a gate nearly fires
    uint32_t reservoir_bytes, reservoir_window;
    float retain_weight;
    uint64_t context_memory; // bytes of a generation's context memory; 0: it has none
    float net_share; // of the batches that its net trains on, beside a memory; 0: it has no net
    reef_seal_dtype seal_dtype; // of rows of experts once sealed: "f32", "bf16" or "int8"
} reef_config;

// ---- tokens -------------------------------------------------------------------------------------

/**
 * Bytes that a token of the stream takes: 1 where tokens are bytes, 2 where they are ids,
 * little-endian. All positions and counts of a stream are in bytes; losses are bits per token,
 * which for bytes is bits per byte.
 */
static inline size_t reef_token_bytes(const reef_config *config) {
    return config->vocab == REEF_VOCAB ? 1 : 2;
}

/**
 * A text of a language model: INVALID where it ends within a token, or with the first id outside
 * the vocabulary. `name` and `offset` say where its first byte lies.
 */
REEF_API REEF_MUST_CHECK reef_status reef_tokens_check(const reef_config *config,
                                                       const char *name,
                                                       uint64_t offset,
                                                       const uint8_t *bytes,
                                                       size_t count,
                                                       reef_error *err);

/**
 * Do gates say which generations answer? Not in a layer, whose generations all take part, and not
 * where memories alone answer and say by themselves whose a text is.
 */
static inline bool reef_config_has_gates(const reef_config *config) {
    bool memories = config->boundaries == REEF_BOUNDARIES_CONTEXTS && !(config->net_share > 0.0f);
    return config->model != REEF_MODEL_LAYER && !memories;
}

/** One PEER layer with nothing around it: see reef_layer.h. */
static inline bool reef_config_is_layer(const reef_config *config) {
    return config->model == REEF_MODEL_LAYER;
}

REEF_API reef_ffw reef_layer_ffw(const reef_config *config, uint32_t layer);
REEF_API const char *reef_ffw_text(reef_ffw kind); // "peer", "dense", "moe", "pkm"
/** Has the layer a pool of experts, that is rows of kind p or k? */
REEF_API bool reef_layer_retrieves(const reef_config *config, uint32_t layer);
/** How many layers have one. Without any, generations after the first learn corrections alone. */
REEF_API uint32_t reef_config_retrieving_layers(const reef_config *config);
/**
 * Windows that a step rehearses: `rehearse`, or 0 where no window of the reservoir is longer than
 * the context.
 */
REEF_API uint32_t reef_config_rehearsed(const reef_config *config);
/** Parameters of a layer's feed-forward network that train, with a pool of `side` * `side` rows. */
REEF_API uint64_t reef_layer_parameters(const reef_config *config, uint32_t layer, uint32_t side);
/**
 * Those that one token meets: of a mixture on average, where every expert takes its full capacity.
 */
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
    bool choice; // a text that is one of a few words, and an enum in reef_config
} reef_config_field;

/** Every field's `standard`: a net alone. */
REEF_API void reef_config_default(reef_config *config);
/**
 * What a pool is made with where nothing else is given: a model of bytes has a context memory and a
 * small net beside it. Set what is given, call reef_config_fit, and set it again.
 */
REEF_API void reef_config_default_made(reef_config *config);
REEF_API const reef_config_field *reef_config_fields(size_t *count);
/** The field's value in a configuration of reef_config_default_made, as text. */
REEF_API const char *reef_config_field_made(const reef_config_field *field);
/** Set one field by name from text. INVALID names the field, the value and what is allowed. */
REEF_API REEF_MUST_CHECK reef_status reef_config_set(reef_config *config,
                                                     const char *name,
                                                     const char *value,
                                                     reef_error *err);
/**
 * The word of a field of type "text", such as "boundaries", for messages and documents; "" if no such
 * field exists.
 */
REEF_API const char *reef_config_word(const reef_config *config, const char *name);
/**
 * What a new pool chooses by its other settings, before given values are set again: a
 * reservoir_window longer than the context, no context memory where none can or should be, where
 * there is none the standard net, which learns everything and finds boundaries by its loss, and the
 * least net where memories alone learn. Calls reef_config_fit_topk.
 */
REEF_API void reef_config_fit(reef_config *config);
/** Beside a memory: no more experts a head than there are sub-keys on the smallest side. */
REEF_API void reef_config_fit_topk(reef_config *config);
/** Sizes that do not fit together are INVALID, with the values and what to do. */
REEF_API REEF_MUST_CHECK reef_status reef_config_check(const reef_config *config, reef_error *err);
/**
 * The same for a new pool, and INVALID are settings that would do nothing. An existing pool may
 * have them: it opens, and they still do nothing.
 */
REEF_API REEF_MUST_CHECK reef_status reef_config_check_new(const reef_config *config,
                                                           reef_error *err);
/**
 * What a layer by itself has none of, such as attention, is set to nothing; other kinds stay as
 * they are.
 */
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
/**
 * May the rows of experts of such a pool be divided over so many ranks? INVALID says why not; where
 * there is one rank, nothing is divided.
 */
REEF_API REEF_MUST_CHECK reef_status reef_config_check_divides(const reef_config *config,
                                                               uint32_t ranks,
                                                               reef_error *err);
/**
 * The same pool as its shards, path/rank-0 and so on, without ever holding the rows of more than
 * one rank: for pools larger than one machine. All appear at once, or none.
 *
 * parameters  written: of the whole model; may be NULL
 * Errors: those of reef_pool_init, reef_config_check_divides and reef_shards_create.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_init_divided(const char *path,
                                                            const reef_config *config,
                                                            uint32_t ranks,
                                                            uint64_t *parameters,
                                                            reef_error *err);

#endif
