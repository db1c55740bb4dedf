// Kind and size of the feed-forward network of a block: the only code that interprets a block's
// letter.
//
// Four kinds stand behind the same residual stream: y = x + ffw(norm(x)). Those that retrieve (p
// and k) have a pool of rows in every generation, and grow; the others are dense tensors of
// generation 0 and stay as they are when it is sealed.
#ifndef REEF_ARCHITECTURE_H
#define REEF_ARCHITECTURE_H

#include "reef_config.h"
#include "shapes.h"

/**
 * Tokens of a window of T that one expert of a mixture takes in training: at least 1, at most T.
 */
size_t reef_moe_capacity(const reef_config *config);

// ---- shapes that the configuration gives --------------------------------------------------------

reef_router_shape reef_generation_shape(const reef_config *config, uint32_t side);
/** Of a layer that retrieves: rows of kind k are values alone. */
reef_expert_shape reef_generation_expert_shape(const reef_config *config, uint32_t layer);
/** The longest rows of all layers that retrieve, for memory that they share. */
reef_expert_shape reef_generation_expert_shape_largest(const reef_config *config);
reef_moe_shape reef_generation_moe_shape(const reef_config *config);

// ---- the plan of a layer ------------------------------------------------------------------------

/** What one block computes: everything that passes read of the configuration, derived once. */
typedef struct reef_layer_plan {
    reef_ffw ffw;
    bool retrieves;            // p and k: it has a pool of experts in every generation
    reef_router_shape router;  // where it retrieves; see reef_plan_router
    reef_expert_shape experts; // where it retrieves
    reef_moe_shape moe;        // where it is a mixture
} reef_layer_plan;

reef_layer_plan reef_layer_plan_make(const reef_config *config, uint32_t layer);

/** The router of a generation with `side` sub-keys per side, the one size that can grow. */
static inline reef_router_shape reef_plan_router(const reef_layer_plan *plan, uint32_t side) {
    reef_router_shape shape = plan->router;
    shape.side = side;
    return shape;
}

// ---- what else follows from the configuration ---------------------------------------------------

// Bytes before its own that a token embeds: with three the net has four letters at its input, which
// cost next to nothing (research/NOTEBOOK.md).
#define REEF_PREVIOUS_BYTES 3

/** Tables of embeddings, of which a token is the sum: of its own byte, and of those before it. */
static inline uint32_t reef_embedding_tables(const reef_config *config) {
    // Where memories alone learn nobody reads them.
    return config->net_share > 0.0f ? 1 + REEF_PREVIOUS_BYTES : 1;
}

/** What rows of experts become when a generation is sealed. */
reef_dtype reef_generation_seal_dtype(const reef_config *config);
/** The same by a word, "f32" or "int8"; NULL: as configured. Errors: INVALID there is no such. */
REEF_MUST_CHECK reef_status reef_seal_dtype_parse(const reef_config *config,
                                                  const char *word,
                                                  reef_dtype *out,
                                                  reef_error *err);

#endif
