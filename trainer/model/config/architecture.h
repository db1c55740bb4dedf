// What the feed-forward network of a block is, and how large: the one place that knows a block's letter.
//
// Four kinds stand behind the same residual stream: y = x + ffw(norm(x)). Those that retrieve (p and k) have
// a pool of rows in every generation, and grow; the others are dense tensors of generation 0 and stay as they
// are when it is sealed.
#ifndef REEF_FFW_H
#define REEF_FFW_H

#include "reef_config.h"

/** Where the next generation's corrections of a dense network apply: kind d with adapt_ffw. */
bool reef_layer_adapts_ffw(const reef_config *config, uint32_t layer);

/** For a new pool: settings that only a pool of experts gives a meaning are INVALID where no layer retrieves. */
REEF_MUST_CHECK reef_status reef_ffw_check_new(const reef_config *config, reef_error *err);

/** Tokens of a window of T that one expert of a mixture takes in training: at least 1, at most T. */
size_t reef_moe_capacity(const reef_config *config);

/** What a boundary does to the model; see trainer/strategy. */
typedef enum reef_strategy_kind {
    REEF_STRATEGY_GENERATIONS,
    REEF_STRATEGY_FINETUNE,
    REEF_STRATEGY_REPLAY,
    REEF_STRATEGY_EWC,
    REEF_STRATEGY_LWF,
    REEF_STRATEGY_JOINT,
    REEF_STRATEGY_SPARSE_MEMORY,
    REEF_STRATEGY_GRID,
} reef_strategy_kind;
reef_strategy_kind reef_strategy_kind_of(const reef_config *config);

/** How many windows of old data a step has once there is any, beside `batch` windows of the stream. */
size_t reef_replay_windows(const reef_config *config);

#endif
