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
#define REEF_VOCAB 256            // tokens are bytes

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
 * Where a kind of text begins: where contexts come that no memory has met, or at marker lines and
 * by command.
 */
typedef enum reef_boundaries {
    REEF_BOUNDARIES_CONTEXTS,
    REEF_BOUNDARIES_GIVEN,
} reef_boundaries;

/** Rows of experts once sealed. */
typedef enum reef_seal_dtype {
    REEF_SEAL_F32,
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
 * pool's meta record as JSON. One table in config_table.c names every field, its default, its
 * bounds and its help; the CLI's options and the JSON keys come from it (d_model is --d-model and
 * "d_model").
 */
typedef struct reef_config {
    reef_model_kind model; // "lm" or "layer"
    uint64_t seed;
    // sizes
    uint32_t layers, d_model, attention_heads, context; // L, D, A, T
    uint32_t batch; // windows of T tokens of the stream per step
    // One letter per block: 'p' peer, 'k' product-key memory, 'm' mixture of experts, 'd' dense;
    // "p" = all
    char ffw[REEF_LAYER_COUNT_MAX + 1];
    uint32_t d_ffw;              // width of dense FFWs, and of each expert of a mixture
    uint32_t heads, topk, d_key; // PEER and product-key memory: H, K, d_key
    uint32_t side;               // sub-keys per side that a generation begins with
    bool batch_norm;
    reef_expert_kind expert; // "gelu", "relu" or "glu"
    reef_router_score score; // "softmax", "sigmoid" or "relu"
    reef_subkeys subkeys; // tables of sub-keys: "shared" by all heads, or "head": tables for each
    uint32_t moe_experts; // E of a mixture of experts
    // optimiser
    float learning_rate; // dense parameters, at the end of warm-up
    float expert_rate;   // factor for expert rows
    float beta1, beta2, epsilon;
    float clip; // global norm of dense gradients; 0 for none
    // lifelong policy
    reef_boundaries boundaries; // where a kind begins: "contexts" or "given"
    char boundary_mark[64]; // a line of the stream that is exactly this is a boundary; "" for none
    uint64_t experts_max;   // of all generations and layers together; 0 for no bound
    uint32_t kinds_max;     // generations with content; each begins a kind; 0: no bound
    uint64_t memory;        // bytes that context memories of kinds may take; 0: there are none
    float net_share; // of the batches that its net trains on, beside a memory; 0: it has no net
    reef_seal_dtype seal_dtype; // of rows of experts once sealed: "f32" or "int8"
    bool watch;                 // lines of the stream are judged before they are learned
} reef_config;

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

/** One configurable field, for help, parsing and documents. */
typedef struct reef_config_field {
    const char *name;     // "d_model"
    const char *type;     // "integer", "number", "boolean" or "text"
    const char *help;     // one line
    const char *standard; // the default, as text
    double low, high;     // inclusive bounds of a number
    size_t offset;        // in reef_config
    size_t bytes;
    bool of_layers; // that libreef makes by themselves: no option of reef init
} reef_config_field;

/**
 * Every field's `standard`: a model of bytes with a context memory and a small net beside it. Set
 * what is given, call reef_config_fit, and set it again.
 */
REEF_API void reef_config_default(reef_config *config);
REEF_API const reef_config_field *reef_config_fields(size_t *count);
/** Set one field by name from text. INVALID names the field, the value and what is allowed. */
REEF_API REEF_MUST_CHECK reef_status reef_config_set(reef_config *config,
                                                     const char *name,
                                                     const char *value,
                                                     reef_error *err);
/**
 * The word of a field of type "text", such as "boundaries", for messages and documents; "" if no
 * such field exists.
 */
REEF_API const char *reef_config_word(const reef_config *config, const char *name);
/**
 * What a new pool chooses by its other settings, before given values are set again: no context
 * memory where none can be, where there is none given boundaries and a net that learns everything,
 * the least net where memories alone learn, and no more experts a head than there are sub-keys on
 * the smallest side.
 */
REEF_API void reef_config_fit(reef_config *config);
/** Sizes that do not fit together are INVALID, with the values and what to do. */
REEF_API REEF_MUST_CHECK reef_status reef_config_check(const reef_config *config, reef_error *err);
/**
 * What a layer by itself has none of, such as attention or a memory, is set to nothing; other kinds
 * stay as they are.
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
