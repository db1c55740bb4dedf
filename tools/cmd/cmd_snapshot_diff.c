// reef snapshot diff: what lies between two states of a pool.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <math.h>

const reef_cli_manual reef_snapshot_diff_manual = {
    .about = "Compares two snapshots, or a snapshot with now: "
             "generations sealed between them, and of the\n"
             "generation that was open in the earlier one the "
             "experts whose rows differ and the tensors that\n"
             "changed, with |after - before| / |before|. "
             "Usage drift: how far the shares in which experts were\n"
             "chosen between the states lie from those before; 0 is the same, 1 none in common.",
    .options = NULL,
    .example = "reef snapshot diff reef.pool monday\n"
               "reef snapshot diff reef.pool monday tuesday --json",
};

static const char *generation_state(const reef_state_change *change) {
    if (!change->sealed_before && !change->sealed_after) return "open in both";
    return change->sealed_after ? "open, then sealed" : "sealed, then open again";
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *sealed_json(const reef_state_change *change) {
    json_t *array = json_array();
    for (size_t i = 0; i < change->sealed_count; i++) {
        const reef_generation_record *one = &change->sealed[i];
        json_array_append_new(array,
                              json_pack("{s:I, s:I, s:I, s:I}", "generation",
                                        (json_int_t)one->generation, "side", (json_int_t)one->side,
                                        "sealed_step", (json_int_t)one->sealed_step, "sealed_at",
                                        (json_int_t)one->sealed_at));
    }
    return array;
}

static json_t *experts_json(const reef_state_change *change) {
    json_t *array = json_array();
    for (size_t i = 0; i < change->layer_count; i++) {
        const reef_layer_change *one = &change->layers[i];
        // One object per layer that has experts.
        // "added" may be negative, if the second state is the older one.
        // "usage_drift" is null where a state has no usage.
        json_array_append_new(
            array,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "layer", (json_int_t)one->layer,
                      "before", (json_int_t)one->before, "after", (json_int_t)one->after, "changed",
                      (json_int_t)one->changed, "added",
                      (json_int_t)one->after - (json_int_t)one->before, "uses",
                      (json_int_t)one->uses, "usage_drift", reef_cli_real(one->usage_drift)));
    }
    return array;
}

static json_t *tensors_json(const reef_state_change *change) {
    json_t *array = json_array();
    for (size_t i = 0; i < change->tensor_count; i++) {
        const reef_tensor_change *one = &change->tensors[i];
        json_array_append_new(array,
                              json_pack("{s:s, s:I, s:I, s:o}", "name", one->name, "before",
                                        (json_int_t)one->before, "after", (json_int_t)one->after,
                                        "relative_change", reef_cli_real(one->relative)));
    }
    return array;
}

static json_t *change_json(const reef_state_change *change) {
    const reef_snapshot *before = &change->before, *after = &change->after;
    return json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:I, s:o}", "before",
        reef_snapshot_json(before), "after", reef_snapshot_json(after), "steps",
        (json_int_t)after->step - (json_int_t)before->step, "stream_bytes",
        (json_int_t)after->stream_bytes - (json_int_t)before->stream_bytes, "generation",
        (json_int_t)change->generation, "generation_state", generation_state(change), "sealed",
        change->sealed_gone ? json_array() : sealed_json(change), "unsealed",
        change->sealed_gone ? sealed_json(change) : json_array(), "experts", experts_json(change),
        "tensors_compared", (json_int_t)change->tensors_compared, "tensors", tensors_json(change));
}

// ---- text ---------------------------------------------------------------------------------------

static void print_state(const char *label, const reef_snapshot *state, const reef_config *config) {
    char count[CLI_WORD_BYTES], made[CLI_WORD_BYTES];
    printf("%s  %s: step %" PRIu64 ", %s %ss of the stream, %s\n", label, state->name, state->step,
           reef_cli_count(reef_cli_stream_units(config, state->stream_bytes), count),
           reef_cli_stream_unit(config), reef_cli_time(state->unix_ms, made));
}

// Numbers that may go backwards, when the second state is the earlier one.
static void print_between(const reef_state_change *change, const reef_config *config) {
    char words[CLI_WORD_BYTES];
    bool back = change->after.stream_bytes < change->before.stream_bytes;
    uint64_t more = back ? change->before.stream_bytes : change->after.stream_bytes;
    uint64_t less = back ? change->after.stream_bytes : change->before.stream_bytes;
    printf("between  %" PRId64 " steps, %s%s %ss of the stream\n",
           (int64_t)change->after.step - (int64_t)change->before.step, back ? "-" : "",
           reef_cli_count(reef_cli_stream_units(config, more - less), words),
           reef_cli_stream_unit(config));
}

static void print_sealed(const reef_state_change *change) {
    static const char *const HEADING[] = {"generation", "experts a layer", "sealed at step"};
    // Nothing to show, if the same generations are sealed in both.
    if (change->sealed_count == 0) return;
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < change->sealed_count; i++) {
        const reef_generation_record *one = &change->sealed[i];
        char words[CLI_WORD_BYTES];
        reef_cli_table_cell(table, "%" PRIu32, one->generation);
        // Of one layer: layers have equally many.
        reef_cli_table_cell(table, "%s", reef_cli_count((uint64_t)one->side * one->side, words));
        reef_cli_table_cell(table, "%" PRIu64, one->sealed_step);
    }
    // The order of the operands decides whether they were sealed or undone.
    printf("\n%s\n", change->sealed_gone ? "sealed in the first only" : "sealed between them");
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_experts(const reef_state_change *change) {
    static const char *const HEADING[] = {"layer", "experts", "changed", "added", "usage drift"};
    reef_cli_table *table = reef_cli_table_new("<>>>>", HEADING);
    for (size_t i = 0; i < change->layer_count; i++) {
        const reef_layer_change *one = &change->layers[i];
        // Of the generation that is open in both states.
        char words[CLI_WORD_BYTES];
        reef_cli_table_cell(table, "%" PRIu32, one->layer);
        reef_cli_table_cell(table, "%s", reef_cli_count(one->after, words));
        reef_cli_table_cell(table, "%s", reef_cli_count(one->changed, words));
        reef_cli_table_cell(table, "%" PRId64, (int64_t)one->after - (int64_t)one->before);
        // Snapshots without usage records have no distribution to compare.
        if (isnan(one->usage_drift))
            reef_cli_table_cell(table, "not known");
        else
            // Total variation distance: 0 is the same use, 1 is use of other experts.
            reef_cli_table_cell(table, "%.3f", one->usage_drift);
    }
    // The state says why the experts could change.
    printf("\nexperts of generation %" PRIu32 ", %s\n", change->generation,
           generation_state(change));
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_tensors(const reef_state_change *change) {
    static const char *const HEADING[] = {"tensor", "values", "change"};
    // Counted while the rows are made.
    size_t changed = 0;
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < change->tensor_count; i++) {
        const reef_tensor_change *one = &change->tensors[i];
        char words[CLI_WORD_BYTES];
        changed += !isnan(one->relative);
        reef_cli_table_cell(table, "%s", one->name);
        // The larger state's size: one of them may lack the tensor.
        reef_cli_table_cell(table, "%s",
                            reef_cli_count(one->after > 0 ? one->after : one->before, words));
        // Only one state has it, so no difference can be taken.
        if (isnan(one->relative)) reef_cli_table_cell(table, "%s", one->after > 0 ? "new" : "gone");
        // A relative change from zero is infinite.
        else if (isinf(one->relative))
            reef_cli_table_cell(table, "from zeros");
        // The values both have are compared; the rest is new.
        else if (one->before != one->after)
            reef_cli_table_cell(table, "%.3g, grown", one->relative);
        else
            reef_cli_table_cell(table, "%.3g", one->relative);
    }
    // The number of those compared shows that nothing was left out.
    printf("\n%zu of %zu tensors changed\n", changed, change->tensors_compared);
    // No table if nothing changed.
    if (change->tensor_count > 0) reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

reef_status reef_cmd_snapshot_diff(reef_cli_call *cli, reef_error *err) {
    // Without a second name the comparison is with the last commit.
    const char *after = cli->operand_count > 1 ? cli->operands[1] : NULL;
    reef_cli_pool pool;
    reef_state_change change = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    // Reads both states in one transaction, row by row: memory does not grow with the pool.
    status = reef_state_diff(pool.store, cli->operands[0], after, &change, err);
    if (status == REEF_OK && cli->json) {
        status = reef_cli_reply(cli, change_json(&change), err);
    } else if (status == REEF_OK) {
        // The states first, since every figure below depends on which they are.
        print_state("from   ", &change.before, &pool.config);
        print_state("to     ", &change.after, &pool.config);
        print_between(&change, &pool.config);
        print_sealed(&change);
        print_experts(&change);
        print_tensors(&change);
    }
    reef_state_change_release(&change);
    reef_cli_pool_close(&pool);
    return status;
}
