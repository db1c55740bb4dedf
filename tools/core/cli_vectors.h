// Labelled vectors, and what a model makes of them.
#ifndef REEF_CLI_VECTORS_H
#define REEF_CLI_VECTORS_H

#include "cli_pool.h"
#include "cli_progress.h"
#include "reef_error.h"
#include "reef_trainer.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Read vectors as the records of their stream. The file's path is the spec.
 * Errors: INVALID no spec of vectors, another width than the pool's, too much to hold; those of
 * reef_vectors_open.
 */
REEF_MUST_CHECK reef_status reef_cli_vectors_read(reef_cli_file *file,
                                                  const char *spec,
                                                  const reef_config *config,
                                                  reef_error *err);
/**
 * Read what a pool's model can be measured on: a text, or vectors. INVALID when it is the other.
 */
REEF_MUST_CHECK reef_status reef_cli_examples_read(reef_cli_file *file,
                                                   const char *path,
                                                   const reef_config *config,
                                                   reef_error *err);
/**
 * INVALID unless the pool has a vector model, or with false any other; the message ends with
 * `instead`.
 */
REEF_MUST_CHECK reef_status reef_cli_pool_wants(const reef_cli_pool *pool,
                                                bool vectors,
                                                const char *instead,
                                                reef_error *err);
/**
 * The same for a language model, and INVALID as well if its tokens are not bytes (cli_tokens.c).
 */
REEF_MUST_CHECK reef_status reef_cli_pool_wants_bytes(const reef_cli_pool *pool,
                                                      const char *instead,
                                                      reef_error *err);

typedef struct reef_cli_prediction {
    int32_t label, given; // predicted; as it stands in the file, -1 for none
    double score;         // of the predicted label; NaN while the model knows none
    uint32_t generation;  // that had the largest weight
} reef_cli_prediction;
typedef void (*reef_cli_on_prediction)(void *context, const reef_cli_prediction *one);

/** Show `visit` the prediction of each record, in order. */
REEF_MUST_CHECK reef_status reef_cli_predict(reef_model *model,
                                             const reef_cli_file *file,
                                             reef_cli_progress *progress,
                                             reef_cli_on_prediction visit,
                                             void *context,
                                             reef_error *err);

typedef struct reef_cli_accuracy {
    uint64_t examples, labelled, right;
    double accuracy; // right / labelled; NaN without labels
    // (generation count) on the heap: examples in which each had the largest weight
    double *answered_share;
} reef_cli_accuracy;

/**
 * How many labelled records of a file are classified correctly. Free out->answered_share, also
 * after an error.
 */
REEF_MUST_CHECK reef_status reef_cli_accuracy_measure(reef_model *model,
                                                      const reef_cli_file *file,
                                                      reef_cli_progress *progress,
                                                      reef_cli_accuracy *out,
                                                      reef_error *err);

#endif
