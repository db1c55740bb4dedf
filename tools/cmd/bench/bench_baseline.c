// See bench_baseline.h.
#include "bench_baseline.h"

#include "bench_program.h"
#include "cli.h"
#include "cli_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

// ---- the process --------------------------------------------------------------------------------

// Run the script with `arguments`: first Python and the script itself, last NULL. *text is what it
// printed, on the heap; NULL when it did not end well.
static reef_status run_python(char **text, char **arguments, reef_error *err) {
    const char *script = arguments[1];
    *text = NULL;
    if (access(script, R_OK) != 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read %.160s", script);
    reef_status status = reef_bench_program_run(text, script, arguments, err);
    // The most frequent cause gets its own message, which names the package to install.
    if (status != REEF_OK && strstr(err->message, "No module named 'torch'") != NULL)
        return reef_fail(err, REEF_ERR_IO,
                         PYTHON " has no torch, which %.100s needs (Debian: python3-torch)",
                         script);
    return status;
}

// ---- one layer ----------------------------------------------------------------------------------

static const char *const NAMES[BASELINE_ROW_COUNT] = {"retrieve", "forward", "forward+backward",
                                                      "train step (+Adam)"};

// `NAME  SECONDS s  RATE tok/s`: the name is followed by a space, and a number.
static bool parse_row(const char *line, const char *name, double *tokens_per_s) {
    size_t length = strlen(name);
    if (strncmp(line, name, length) != 0) return false;
    double seconds, rate;
    char unit[8];
    if (sscanf(line + length, " %lf s %lf %7s", &seconds, &rate, unit) != 3) return false;
    if (strcmp(unit, "tok/s") != 0 || !(rate > 0)) return false;
    *tokens_per_s = rate;
    return true;
}

static reef_status parse_rows(const char *script,
                              char *text,
                              reef_bench_baseline_rates *out,
                              reef_error *err) {
    *out = (reef_bench_baseline_rates){0};
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        // A line belongs to at most one row of the table.
        for (size_t row = 0; row < BASELINE_ROW_COUNT; row++)
            if (parse_row(line, NAMES[row], &out->tokens_per_s[row])) break;
    // All rows or an error: a missing figure must not be reported as zero.
    for (size_t row = 0; row < BASELINE_ROW_COUNT; row++)
        if (!(out->tokens_per_s[row] > 0))
            return reef_fail(err, REEF_ERR_IO, "%.120s printed no line '%s  SECONDS s  RATE tok/s'",
                             script, NAMES[row]);
    return REEF_OK;
}

reef_status reef_bench_baseline_run(const char *script,
                                    size_t side,
                                    size_t d_model,
                                    size_t tokens,
                                    size_t threads,
                                    reef_bench_baseline_rates *out,
                                    reef_error *err) {
    // Numbers become text only here, as a program's arguments are text.
    char *numbers[] = {reef_cli_format("%zu", side), reef_cli_format("%zu", d_model),
                       reef_cli_format("%zu", tokens), reef_cli_format("%zu", threads)};
    char *arguments[] = {PYTHON,     (char *)script,   numbers[0], numbers[1],
                         numbers[2], (char *)"sparse", numbers[3], NULL};
    char *text;
    reef_status status = run_python(&text, arguments, err);
    if (status == REEF_OK) status = parse_rows(script, text, out, err);
    free(text);
    // run_python has waited for the child, so its arguments are no longer read.
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) free(numbers[i]);
    return status;
}

// ---- a training step ----------------------------------------------------------------------------

// The last line that is a JSON object, or NULL. Cuts the text. The caller's.
static json_t *last_object(char *text) {
    json_t *found = NULL;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        // A line that is not JSON yields NULL, which json_is_object and json_decref accept.
        json_t *value = json_loads(line, 0, NULL);
        if (json_is_object(value)) {
            json_decref(found);
            found = json_incref(value);
        }
        json_decref(value);
    }
    return found;
}

static reef_status parse_step(const char *script,
                              char *text,
                              reef_bench_baseline_step *out,
                              reef_error *err) {
    reef_status status = REEF_OK;
    json_t *object = last_object(text);
    // The getters of jansson answer 0 or NULL for a missing field or a NULL object.
    double seconds = json_number_value(json_object_get(object, "step_seconds"));
    json_int_t parameters = json_integer_value(json_object_get(object, "parameters"));
    const char *torch = json_string_value(json_object_get(object, "torch"));
    // Accepted only when all three are there and positive.
    if (seconds > 0 && parameters > 0 && torch != NULL) {
        *out = (reef_bench_baseline_step){.seconds = seconds, .parameters = (uint64_t)parameters};
        snprintf(out->torch, sizeof(out->torch), "%s", torch);
    } else {
        status = reef_fail(err, REEF_ERR_IO,
                           "%.120s printed no line of JSON with step_seconds, parameters and torch",
                           script);
    }
    json_decref(object);
    return status;
}

reef_status reef_bench_baseline_step_run(const char *script,
                                         const reef_config *config,
                                         size_t threads,
                                         uint64_t steps,
                                         reef_bench_baseline_step *out,
                                         reef_error *err) {
    // The same shape for both sides, so the baseline trains the same number of parameters.
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"--layers", config->layers},
                   {"--d-model", config->d_model},
                   {"--context", config->context},
                   {"--batch", config->batch},
                   {"--d-ffw", config->d_ffw},
                   {"--attention-heads", config->attention_heads},
                   {"--side", config->side},
                   {"--heads", config->heads},
                   {"--topk", config->topk},
                   {"--d-key", config->d_key},
                   {"--previous-bytes", config->previous_bytes},
                   {"--threads", threads},
                   {"--steps", steps}};
    enum { NUMBER_COUNT = sizeof(numbers) / sizeof(numbers[0]) };
    // The values are kept apart from the names: only they are on the heap.
    char *values[NUMBER_COUNT];
    char *arguments[4 + 2 * NUMBER_COUNT + 1] = {PYTHON, (char *)script, (char *)"--ffw",
                                                 (char *)config->ffw};
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        values[i] = reef_cli_format("%" PRIu64, numbers[i].value);
        arguments[4 + 2 * i] = (char *)numbers[i].name;
        arguments[5 + 2 * i] = values[i];
    }
    char *text;
    reef_status status = run_python(&text, arguments, err);
    if (status == REEF_OK) status = parse_step(script, text, out, err);
    free(text);
    for (size_t i = 0; i < NUMBER_COUNT; i++) free(values[i]);
    return status;
}
