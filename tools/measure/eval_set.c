// See eval_set.h.
#include "eval_set.h"

#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_tokens.h"
#include "cli_vectors.h"
#include "forgetting.h"
#include "matrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool reef_eval_is_accuracy(const reef_config *config) {
    return reef_config_is_vector(config);
}

const char *reef_eval_measure_words(const reef_config *config) {
    return reef_eval_is_accuracy(config) ? "accuracy" : reef_cli_bits_words(config);
}

const char *reef_eval_measure_name(const reef_config *config) {
    return reef_eval_is_accuracy(config) ? "accuracy" : reef_cli_bits_name(config);
}

static bool is_taken(const reef_eval_set *set, const char *name) {
    for (size_t j = 0; j < set->count; j++)
        if (strcmp(set->domains[j].name, name) == 0) return true;
    return false;
}

static reef_status add_domain(reef_eval_set *set,
                              const char *option,
                              const char *text,
                              reef_error *err) {
    // A domain needs a name: tables and documents use it.
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "--%s is '%.64s', but must be NAME=FILE", option,
                         text);
    char *name = reef_cli_format("%.*s", (int)(equals - text), text);
    bool taken = is_taken(set, name);
    // The slot is counted first, so that release frees the name on failure.
    reef_eval_domain *domain = &set->domains[set->count++];
    *domain = (reef_eval_domain){.name = name, .path = equals + 1};
    return taken ? reef_fail(err, REEF_ERR_INVALID, "--%s %.64s is given twice", option, name)
                 : REEF_OK;
}

reef_status reef_eval_set_read(reef_eval_set *set,
                               const reef_cli_call *cli,
                               const char *option,
                               const reef_config *config,
                               reef_error *err) {
    *set = (reef_eval_set){.domains = reef_cli_alloc(cli->given_count, sizeof(*set->domains))};
    reef_status status = REEF_OK;
    size_t cursor = 0;
    const char *text;
    while (status == REEF_OK && (text = reef_cli_next(cli, option, &cursor))) {
        status = add_domain(set, option, text, err);
        if (status != REEF_OK) break;
        reef_eval_domain *domain = &set->domains[set->count - 1];
        status = reef_cli_examples_read(&domain->file, domain->path, config, err);
        // The sum is the length of the progress bar.
        set->bytes += domain->file.count;
    }
    return status;
}

void reef_eval_set_release(reef_eval_set *set) {
    for (size_t j = 0; j < set->count; j++) {
        free(set->domains[j].name);
        reef_cli_file_release(&set->domains[j].file);
    }
    free(set->domains);
    *set = (reef_eval_set){0};
}

// ---- measuring ----------------------------------------------------------------------------------

static reef_status measure_text(reef_model *model,
                                const reef_cli_file *file,
                                reef_cli_progress *progress,
                                reef_eval_score *score,
                                reef_error *err) {
    reef_score text = {.fire_share = score->fire_share};
    reef_status status = reef_score_file(model, file, progress, NULL, &text, err);
    score->value = text.bits_per_byte;
    return status;
}

// Measures the share of labelled examples whose class is right.
static reef_status measure_vectors(reef_model *model,
                                   const reef_cli_file *file,
                                   reef_cli_progress *progress,
                                   reef_eval_score *score,
                                   reef_error *err) {
    reef_cli_accuracy result;
    reef_status status = reef_cli_accuracy_measure(model, file, progress, &result, err);
    // Without labels the value would be not a number, which hides the mistake.
    if (status == REEF_OK && result.labelled == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "%.160s has no labels to measure accuracy by",
                           file->path);
    score->value = result.accuracy;
    memcpy(score->fire_share, result.answered_share,
           score->generation_count * sizeof(*score->fire_share));
    free(result.answered_share);
    return status;
}

reef_status reef_eval_file_measure(reef_model *model,
                                   const reef_cli_file *file,
                                   reef_cli_progress *progress,
                                   reef_eval_score *score,
                                   reef_error *err) {
    uint32_t generations = reef_model_generation_count(model);
    *score = (reef_eval_score){.value = NAN,
                               .fire_share = reef_cli_alloc(generations, sizeof(double)),
                               // Valid also after a failure, so that the caller may free it.
                               .generation_count = generations};
    return reef_config_is_vector(reef_model_config(model))
               ? measure_vectors(model, file, progress, score, err)
               : measure_text(model, file, progress, score, err);
}

reef_cli_file reef_eval_file_beginning(const reef_config *config,
                                       const reef_cli_file *file,
                                       size_t bytes_max) {
    reef_cli_file part = *file;
    size_t record =
        reef_config_is_vector(config) ? reef_vector_record_bytes(config) : reef_token_bytes(config);
    if (bytes_max < record) bytes_max = record;
    if (part.count > bytes_max) part.count = bytes_max - bytes_max % record;
    return part;
}

// ---- when a file was learned --------------------------------------------------------------------

reef_status reef_eval_learned_read(
    const reef_cli_call *cli, size_t generations, size_t *learned, size_t files, reef_error *err) {
    const char *text = reef_cli_text(cli, "learned");
    size_t count = 0;
    // With as many files as generations, file j was learned by generation j.
    for (size_t j = 0; j < files; j++)
        learned[j] = text == NULL && generations == files ? j : METRICS_UNKNOWN;
    for (const char *at = text; at != NULL; count++) {
        char *end;
        // strtoul takes signs, hence the check of the first character.
        unsigned long generation = strtoul(at, &end, 10);
        bool number = *at >= '0' && *at <= '9' && (*end == ',' || *end == '\0');
        if (!number || generation >= generations || count == files) {
            // Marks the list as invalid, as no valid count is that large.
            count = METRICS_UNKNOWN;
            break;
        }
        learned[count] = generation;
        at = *end == ',' ? end + 1 : NULL;
    }
    // All or none: a shorter list would be a guess about the rest.
    if (text == NULL || count == files) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--learned is '%.64s', but must be one generation, "
                     "0 to %zu, for each of %zu files",
                     text, generations - 1, files);
}

static void on_progress(void *context, size_t done) {
    reef_cli_progress_show(context, done);
}

reef_status reef_score_file(reef_model *model,
                            const reef_cli_file *file,
                            reef_cli_progress *progress,
                            float *bits,
                            reef_score *score,
                            reef_error *err) {
    reef_status status =
        reef_model_score(model, file->bytes, file->count, bits, score, on_progress, progress, err);
    progress->done_before += file->count;
    return status;
}
