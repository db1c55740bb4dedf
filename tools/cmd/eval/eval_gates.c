// See eval_gates.h.
#include "eval_gates.h"

#include "chart_gates.h"
#include "cli_format.h"
#include "cli_model.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "cli_vectors.h"
#include "eval_set.h"
#include "svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- texts --------------------------------------------------------------------------------------

static reef_status read_texts(reef_gate_texts *texts,
                              const reef_cli_call *cli,
                              size_t generations,
                              const reef_config *config,
                              reef_error *err) {
    size_t count = cli->operand_count;
    // The arrays are allocated at once, so that one release function frees them in any state.
    *texts = (reef_gate_texts){.count = count,
                               .token_bytes = reef_token_bytes(config),
                               .names = reef_cli_alloc(count, sizeof(*texts->names)),
                               .files = reef_cli_alloc(count, sizeof(*texts->files)),
                               .learned = reef_cli_alloc(count, sizeof(*texts->learned)),
                               .at_once = reef_cli_alloc(count, sizeof(double)),
                               .too_many = reef_cli_alloc(count, sizeof(double))};
    // Which generation learned a text decides on which side of the curve it counts.
    reef_status status = reef_eval_learned_read(cli, generations, texts->learned, count, err);
    for (size_t j = 0; j < count && status == REEF_OK; j++) {
        // NAME=FILE gives a column a short heading; "=FILE" is a file whose name begins with the
        // sign.
        const char *operand = cli->operands[j], *equals = strchr(operand, '=');
        bool named = equals != NULL && equals != operand;
        texts->names[j] = named ? reef_cli_format("%.*s", (int)(equals - operand), operand)
                                : reef_cli_format("%s", operand);
        status =
            reef_cli_examples_read(&texts->files[j], named ? equals + 1 : operand, config, err);
        // The mean over all texts is by tokens and not by files.
        texts->tokens += texts->files[j].count / texts->token_bytes;
    }
    return status;
}

// ---- for people ---------------------------------------------------------------------------------

static const char *unit_of(const reef_gate_texts *texts) {
    return texts->token_bytes == 1 ? "bytes" : "tokens";
}

// A table with `before` fixed columns and one more for each text.
static reef_cli_table *text_table(const reef_gate_texts *texts,
                                  size_t before,
                                  const char *const *own) {
    const char **headings = reef_cli_alloc(before + texts->count, sizeof(*headings));
    char *columns = reef_cli_alloc(before + texts->count + 1, 1);
    // Numbers only, so every column is right-aligned.
    memset(columns, '>', before + texts->count);
    for (size_t i = 0; i < before; i++) headings[i] = own[i];
    for (size_t j = 0; j < texts->count; j++) headings[before + j] = texts->names[j];
    // The table keeps copies of the headings.
    reef_cli_table *table = reef_cli_table_new(columns, headings);
    free(headings);
    free(columns);
    return table;
}

static void print_table(reef_cli_table *table) {
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// "99.98" and a star where the text is the generation's own.
static void share_cell(reef_cli_table *table,
                       const reef_gate_texts *texts,
                       size_t j,
                       uint32_t generation,
                       double share) {
    reef_cli_table_cell(table, "%.3f%s", 100 * share, texts->learned[j] == generation ? "*" : " ");
}

static void print_fired(const reef_gate_curve *curves, size_t count, const reef_gate_texts *texts) {
    static const char *const OWN[] = {"gate", "memory"};
    printf("%s on which each gate fires, %% (* its own domain)\n", unit_of(texts));
    reef_cli_table *table = text_table(texts, 2, OWN);
    for (size_t i = 0; i < count; i++) {
        reef_cli_table_cell(table, "%u", curves[i].generation);
        reef_cli_table_cell(table, "%.0f", 1 / (1 - (double)curves[i].stats.decay));
        for (size_t j = 0; j < texts->count; j++)
            share_cell(table, texts, j, curves[i].generation, curves[i].fired[j]);
    }
    print_table(table);
}

// Printed only if some gate reads the loss of the older model.
static void print_losses(const reef_gate_curve *curves, size_t count) {
    static const char *const HEADINGS[] = {"gate", "weight", "nats on old text", "passes a window"};
    reef_cli_table *table = NULL;
    for (size_t i = 0; i < count; i++) {
        // A weight of zero means that this gate does not read the loss.
        if (!(curves[i].stats.loss_weight > 0)) continue;
        // Made at the first row, so that no empty table appears.
        if (table == NULL) table = reef_cli_table_new(">>>>", HEADINGS);
        reef_cli_table_cell(table, "%u", curves[i].generation);
        reef_cli_table_cell(table, "%.3f", (double)curves[i].stats.loss_weight);
        reef_cli_table_cell(table, "%.3f", (double)curves[i].stats.loss_reference);
        // Extra passes of the older model are what such a gate costs.
        reef_cli_table_cell(table, "%.2f", curves[i].passes);
    }
    if (table == NULL) return;
    printf("\ngates that read the loss of the older model as well\n");
    print_table(table);
}

static void print_first(const reef_gate_curve *curves, size_t count, const reef_gate_texts *texts) {
    static const char *const OWN[] = {"gate"};
    // From a cold start: the running mean of a gate needs some tokens before it can fire.
    printf("\n%s from a cold start until it first fires\n", unit_of(texts));
    reef_cli_table *table = text_table(texts, 1, OWN);
    for (size_t i = 0; i < count; i++) {
        reef_cli_table_cell(table, "%u", curves[i].generation);
        for (size_t j = 0; j < texts->count; j++)
            // A gate that never fires on a text must not be mistaken for one that fires at once.
            if (curves[i].first[j] == GATE_NEVER)
                reef_cli_table_cell(table, "never");
            else
                reef_cli_table_cell(table, "%zu", curves[i].first[j]);
    }
    print_table(table);
}

static void print_together(const reef_gate_texts *texts, uint32_t fire_max) {
    static const char *const OWN[] = {""};
    char words[CLI_WORD_BYTES];
    // Two gates at once cost two generations' work; fire_max bounds it.
    printf("\ngates that fire at once\n");
    reef_cli_table *table = text_table(texts, 1, OWN);
    reef_cli_table_cell(table, "mean");
    for (size_t j = 0; j < texts->count; j++) reef_cli_table_cell(table, "%.3f", texts->at_once[j]);
    // The bound is in the label, as it is a setting of the pool.
    snprintf(words, sizeof(words), "more than %" PRIu32 ", %%", fire_max);
    reef_cli_table_cell(table, "%s", words);
    for (size_t j = 0; j < texts->count; j++)
        reef_cli_table_cell(table, "%.3f", 100 * texts->too_many[j]);
    print_table(table);
}

static void print_levels(const reef_gate_curve *curves,
                         size_t count,
                         const reef_gate_texts *texts) {
    static const char *const OWN[] = {"gate", "leak at most, %", "threshold", "leak, %"};
    // What would happen at other thresholds, without training anything again.
    printf("\n%s on which it would fire with another threshold, %%\n", unit_of(texts));
    reef_cli_table *table = text_table(texts, 4, OWN);
    for (size_t i = 0; i < count; i++) {
        // Without a threshold of its own a gate has no levels to show.
        for (size_t l = 0; curves[i].known && l < GATE_TARGETS; l++) {
            const reef_gate_level *level = &curves[i].levels[l];
            reef_cli_table_cell(table, "%u", curves[i].generation);
            // The first level is the threshold in use, whatever leak it has.
            if (isnan(level->target))
                reef_cli_table_cell(table, "its own");
            else
                reef_cli_table_cell(table, "%g", 100 * level->target);
            // Relative to the threshold in use, with a sign.
            reef_cli_table_cell(table, "%+.3f", level->offset);
            reef_cli_table_cell(table, "%.4f", 100 * level->leak);
            // One cell for each text, so that own and foreign texts stand beside each other.
            for (size_t j = 0; j < texts->count; j++)
                share_cell(table, texts, j, curves[i].generation, level->fired[j]);
        }
    }
    print_table(table);
}

static bool any_known(const reef_gate_curve *curves, size_t count) {
    bool known = false;
    for (size_t i = 0; i < count; i++) known |= curves[i].known;
    return known;
}

// Of one that is off or was never fitted every threshold is as good as another.
static bool any_fitted(const reef_gate_curve *curves, size_t count) {
    bool fitted = false;
    for (size_t i = 0; i < count; i++) fitted |= isfinite(curves[i].stats.threshold);
    return fitted;
}

static void print_all(const reef_gate_curve *curves,
                      size_t count,
                      const reef_gate_texts *texts,
                      uint32_t fire_max) {
    print_fired(curves, count, texts);
    print_losses(curves, count);
    print_first(curves, count, texts);
    print_together(texts, fire_max);
    // A picture without curves needs a reason.
    if (!any_known(curves, count)) {
        printf("\nno curves: %s\n",
               any_fitted(curves, count)
                   ? "--learned must say which texts are a gate's own and which are older"
                   : "no gate has a threshold: they are off, or never had text to be fitted on");
        return;
    }
    print_levels(curves, count, texts);
    printf("\n");
    reef_chart_gates_print(stdout, curves, count);
}

// ---- for programs -------------------------------------------------------------------------------

static json_t *shares_json(const double *shares, size_t count) {
    json_t *array = json_array();
    for (size_t j = 0; j < count; j++) json_array_append_new(array, reef_cli_real(shares[j]));
    return array;
}

static json_t *levels_json(const reef_gate_curve *curve, size_t text_count) {
    json_t *array = json_array();
    for (size_t l = 0; curve->known && l < GATE_TARGETS; l++) {
        const reef_gate_level *level = &curve->levels[l];
        json_array_append_new(array, json_pack("{s:o, s:o, s:o, s:o}", "leak_max",
                                               reef_cli_real(level->target), "threshold_offset",
                                               reef_cli_real(level->offset), "leak",
                                               reef_cli_real(level->leak), "fired",
                                               shares_json(level->fired, text_count)));
    }
    return array;
}

static json_t *curve_json(const reef_gate_curve *curve, const reef_gate_texts *texts) {
    json_t *first = json_array();
    for (size_t j = 0; j < texts->count; j++)
        // Null and not a large number: the gate did not fire.
        json_array_append_new(first, curve->first[j] == GATE_NEVER
                                         ? json_null()
                                         : json_integer((json_int_t)curve->first[j]));
    // Everything that the trainer stored about the gate, beside what was measured here.
    // "fired" is in the order of the files above.
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "generation",
        (json_int_t)curve->generation, "decay", reef_cli_real((double)curve->stats.decay),
        "threshold", reef_cli_real((double)curve->stats.threshold), "loss_weight",
        reef_cli_real((double)curve->stats.loss_weight), "loss_reference",
        reef_cli_real((double)curve->stats.loss_reference), "passes", reef_cli_real(curve->passes),
        "gate_leak", reef_cli_real((double)curve->stats.leak), "gate_detect",
        reef_cli_real((double)curve->stats.detect), "fired",
        shares_json(curve->fired, texts->count), "first_fired", first, "curve",
        levels_json(curve, texts->count));
}

static json_t *all_json(const reef_gate_curve *curves,
                        size_t count,
                        const reef_gate_texts *texts,
                        const char *as_of,
                        uint32_t fire_max) {
    json_t *files = json_array(), *gates = json_array();
    for (size_t j = 0; j < texts->count; j++)
        // One entry per text, then one per gate.
        // "learned" is null where --learned was not given for this text.
        json_array_append_new(files,
                              json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "name",
                                        reef_cli_path(texts->names[j]), "file",
                                        reef_cli_path(texts->files[j].path), "bytes",
                                        (json_int_t)texts->files[j].count, "learned",
                                        texts->learned[j] == METRICS_UNKNOWN
                                            ? json_null()
                                            : json_integer((json_int_t)texts->learned[j]),
                                        "firing_at_once", reef_cli_real(texts->at_once[j]),
                                        "share_above_fire_max", reef_cli_real(texts->too_many[j])));
    for (size_t i = 0; i < count; i++) json_array_append_new(gates, curve_json(&curves[i], texts));
    return json_pack("{s:s, s:I, s:o, s:o}", "as_of", as_of, "fire_max", (json_int_t)fire_max,
                     "files", files, "gates", gates);
}

typedef struct gate_list {
    const reef_gate_curve *curves;
    size_t count;
} gate_list;

static void draw_gates(FILE *out, const void *context) {
    const gate_list *gates = context;
    reef_chart_gates_svg(out, gates->curves, gates->count);
}

static reef_status write_svg(const reef_gate_curve *curves,
                             size_t count,
                             const char *path,
                             reef_error *err) {
    if (!any_known(curves, count))
        return reef_fail(err, REEF_ERR_INVALID,
                         "nothing to draw in %.160s: "
                         "--learned must say which texts are a gate's own and which are older",
                         path);
    return reef_svg_write(path, draw_gates, &(gate_list){curves, count}, err);
}

static reef_status print_gates(reef_cli_call *cli,
                               const char *as_of,
                               const reef_model *model,
                               const reef_gate_curve *curves,
                               size_t count,
                               const reef_gate_texts *texts,
                               reef_error *err) {
    uint32_t fire_max = reef_model_config(model)->fire_max;
    // The file is written before anything is printed, so that an error comes alone.
    const char *path = reef_cli_text(cli, "svg");
    reef_status status = path != NULL ? write_svg(curves, count, path, err) : REEF_OK;
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, all_json(curves, count, texts, as_of, fire_max), err);
    print_all(curves, count, texts, fire_max);
    if (path != NULL) printf("\nwrote %s\n", path);
    return REEF_OK;
}

reef_status reef_eval_gates(reef_cli_call *cli, reef_cli_pool *pool, reef_error *err) {
    char as_of[REEF_NAME_BYTES_MAX + 1];
    // Each of these options asks for another table.
    if (reef_cli_text(cli, "matrix") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--gates and --matrix are two answers: ask for one");
    static const char *const OF_LOSS[] = {"last-word", "logits"};
    for (size_t i = 0; i < sizeof(OF_LOSS) / sizeof(*OF_LOSS); i++)
        if (reef_cli_text(cli, OF_LOSS[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--gates asks about gates alone: it takes no --%s", OF_LOSS[i]);
    // Vector models have no gates.
    if (reef_config_is_vector(&pool->config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "--gates is about text: a model of vectors has none");
    reef_model *model = NULL;
    reef_gate_texts texts = {0};
    reef_gate_curve *curves = NULL;
    size_t count = 0;
    reef_status status = reef_cli_as_of(cli, pool->store, as_of, err);
    if (status == REEF_OK) status = reef_cli_model_open(&model, cli, pool->store, as_of, err);
    if (status != REEF_OK) return status;
    // Generation 0 has no gate: it always answers.
    size_t generations = reef_model_generation_count(model);
    if (generations == 1) {
        status = reef_fail(err, REEF_ERR_INVALID,
                           "the pool as of %.64s has no gate: generation 0 takes part everywhere",
                           as_of);
        goto cleanup;
    }
    curves = reef_cli_alloc(generations - 1, sizeof(*curves));
    status = read_texts(&texts, cli, generations, &pool->config, err);
    if (status == REEF_OK)
        // The state's generations decide, not those of the pool now.
        status = reef_gate_curves_measure(curves, &count, model, pool->generations, &texts, err);
    if (status == REEF_OK) status = print_gates(cli, as_of, model, curves, count, &texts, err);

cleanup:
    for (size_t i = 0; i < count; i++) reef_gate_curve_release(&curves[i]);
    free(curves);
    reef_gate_texts_release(&texts);
    reef_model_close(model);
    return status;
}
