// Held-out sets, one per domain: read once, measured as often as needed.
#ifndef REEF_EVAL_SET_H
#define REEF_EVAL_SET_H

#include "cli.h"
#include "cli_pool.h"
#include "cli_progress.h"

typedef struct reef_eval_domain {
    char *name;
    const char *path;
    reef_cli_file file; // of a vector model: its records
} reef_eval_domain;

typedef struct reef_eval_set {
    reef_eval_domain *domains;
    size_t count;
    uint64_t bytes; // of all of them
} reef_eval_set;

/** One measurement of one domain. */
typedef struct reef_eval_score {
    double value;       // bits per byte or token, or the share of correct examples
    double *fire_share; // (generation_count) share of bytes on which each fired, or of examples in
                        // which it had the largest weight; on the heap, NULL if not measured
    uint32_t generation_count;
} reef_eval_score;

/**
 * Read every NAME=FILE that was given as `option`. Release also after an error.
 *
 * Errors: INVALID no NAME=FILE, a name given twice, a set with nothing to measure; NOT_FOUND no
 * such file.
 */
REEF_MUST_CHECK reef_status reef_eval_set_read(reef_eval_set *set,
                                               const reef_cli_call *cli,
                                               const char *option,
                                               const reef_config *config,
                                               reef_error *err);
void reef_eval_set_release(reef_eval_set *set); // accepts the zeroed set

/** Measure a file from a cold start, every gate deciding for itself. score->fire_share: free it. */
REEF_MUST_CHECK reef_status reef_eval_file_measure(reef_model *model,
                                                   const reef_cli_file *file,
                                                   reef_cli_progress *progress,
                                                   reef_eval_score *score,
                                                   reef_error *err);
/** The beginning of a file, at most `bytes_max` and whole records only; lends what `file` holds. */
reef_cli_file reef_eval_file_beginning(const reef_config *config,
                                       const reef_cli_file *file,
                                       size_t bytes_max);
/** Whether values are accuracies, where more is better. */
bool reef_eval_is_accuracy(const reef_config *config);
/**
 * What values are, in words for people and as a name for programs: "bits per byte",
 * "bits_per_byte".
 */
const char *reef_eval_measure_words(const reef_config *config);
const char *reef_eval_measure_name(const reef_config *config);

/**
 * The generation in which each of `files` files was learned: the option --learned, or file j in
 * generation j if the numbers agree, or METRICS_UNKNOWN. INVALID if --learned is not such a list.
 */
REEF_MUST_CHECK reef_status reef_eval_learned_read(
    const reef_cli_call *cli, size_t generations, size_t *learned, size_t files, reef_error *err);

#endif
