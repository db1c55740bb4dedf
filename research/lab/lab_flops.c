// reef-lab flops: what a step of training costs, by formula, and how many parameters a model has.
#include "cli_format.h"
#include "flops.h"
#include "lab.h"

static const reef_cli_option OPTIONS[] = {
    {"model", "NAME=VALUE,...", "fields of the model's configuration, as options of reef init"},
    {0},
};

const reef_cli_manual reef_lab_flops_manual = {
    .about = "FLOPs of generation 0 by its configuration, part by part, as PAPER.md counts them.",
    .options = OPTIONS,
    .example = "reef-lab flops --model ffw=dpdd,d_model=64 --json",
};

static json_t *document(const reef_flops *flops) {
    json_t *parts = json_object();
    for (size_t part = 0; part < REEF_FLOPS_PART_COUNT; part++)
        json_object_set_new(
            parts, reef_flops_part_text((reef_flops_part)part),
            json_pack("{s:o, s:o}", "forward",
                      reef_cli_real((double)flops->forward[part] / flops->window_tokens),
                      "backward",
                      reef_cli_real((double)flops->backward[part] / flops->window_tokens)));
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "per_token", reef_cli_real(flops->token),
                     "per_step", reef_cli_real(flops->step), "parts_per_token", parts, "parameters",
                     (json_int_t)flops->parameters, "parameters_active",
                     (json_int_t)flops->parameters_active);
}

static void print(const reef_flops *flops) {
    static const char *const HEADING[] = {"FLOPs per token", "forward", "backward"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    char words[CLI_WORD_BYTES], active[CLI_WORD_BYTES];
    double T = flops->window_tokens;
    for (size_t part = 0; part < REEF_FLOPS_PART_COUNT; part++) {
        if (flops->forward[part] + flops->backward[part] == 0) continue;
        reef_cli_table_cell(table, "%s", reef_flops_part_text((reef_flops_part)part));
        reef_cli_table_cell(table, "%.0f", (double)flops->forward[part] / T);
        reef_cli_table_cell(table, "%.0f", (double)flops->backward[part] / T);
    }
    reef_cli_table_cell(table, "all");
    reef_cli_table_cell(table, "%.0f", (double)flops->forward_window / T);
    reef_cli_table_cell(table, "%.0f", (double)flops->backward_window / T);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    printf("\nstep        %.4g FLOPs\nparameters  %s, %s of them active for a token\n", flops->step,
           reef_cli_count(flops->parameters, words),
           reef_cli_count(flops->parameters_active, active));
}

reef_status reef_lab_flops(reef_cli_call *cli, reef_error *err) {
    reef_config config;
    reef_flops flops;
    reef_status status = reef_lab_model_read(cli, &config, err);
    if (status != REEF_OK) return status;
    reef_flops_count(&config, &flops);
    if (cli->json) return reef_cli_reply(cli, document(&flops), err);
    print(&flops);
    return REEF_OK;
}
