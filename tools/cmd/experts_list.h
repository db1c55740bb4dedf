// The experts of a pool one by one: what is known of each, sorted, and the first of them.
#ifndef REEF_EXPERTS_LIST_H
#define REEF_EXPERTS_LIST_H

#include "cli.h"
#include "cli_pool.h"

// name on the command line, heading of its column
#define EXPERTS_SORT_LIST(X)                                                                       \
    X(USES, "uses")                                                                                \
    X(SHARE, "share")                                                                              \
    X(WEIGHT, "weight")                                                                            \
    X(LAST, "last")                                                                                \
    X(DOWN, "down")                                                                                \
    X(UP, "up")                                                                                    \
    X(ID, "id")

typedef enum reef_experts_sort {
#define EXPERTS_SORT_ENUM(upper, name) EXPERTS_SORT_##upper,
    EXPERTS_SORT_LIST(EXPERTS_SORT_ENUM)
#undef EXPERTS_SORT_ENUM
        EXPERTS_SORT_COUNT
} reef_experts_sort;

const char *reef_experts_sort_text(reef_experts_sort sort);

typedef enum reef_experts_state {
    EXPERTS_ANY,
    EXPERTS_OPEN,
    EXPERTS_SEALED,
    EXPERTS_FROZEN
} reef_experts_state;

/** What to list. */
typedef struct reef_experts_request {
    bool one_generation, one_layer;
    uint32_t generation, layer;
    reef_experts_sort sort;
    bool reverse;
    reef_experts_state state; // EXPERTS_OPEN: that learn
    size_t top;               // 0: all
    bool ranged;              // uses of a range of time
    uint64_t since_ms, until_ms;
} reef_experts_request;

/** One expert. Uses are those of the range, or of ever; a vector model has none. */
typedef struct reef_expert_row {
    uint32_t generation, layer, id, side;
    uint64_t pool_id; // within its layer, over all generations
    bool sealed, frozen;
    uint64_t uses, last_ms;
    double weight; // mean router score of its uses; NaN without any
    double share;  // of all uses in its layer of its generation; NaN without any
    reef_expert_stats stats;
    double key; // of the order
} reef_expert_row;

typedef struct reef_experts_list {
    reef_expert_row *rows; // (count) in the order asked for
    size_t count;
    uint64_t total; // that fit the request
} reef_experts_list;

/**
 * NOT_FOUND names a generation or layer that is not there. Release the list, also after an error.
 */
REEF_MUST_CHECK reef_status reef_experts_list_read(reef_cli_pool *pool,
                                                   const reef_experts_request *asked,
                                                   reef_experts_list *out,
                                                   reef_error *err);
void reef_experts_list_release(reef_experts_list *list); // accepts the zeroed list

/** "sealed", "open" or "frozen" */
const char *reef_expert_row_state(const reef_expert_row *row);

#endif
