// reef-lab scale: what a token costs as the number of experts grows, in memory.
#include "cli_format.h"
#include "lab.h"
#include "lab_layer.h"

#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"side-max", "N", "the last of the sides 128, 256, 512 ... (default: 2048)"},
    {"d-model", "N", "width of a token (default: 256)"},
    {"heads", "N", "heads (default: 8)"},
    {"topk", "N", "experts per head (default: 16)"},
    {"d-key", "N", "width of a query (default: 128)"},
    {"tokens", "N", "tokens of one pass (default: 2048)"},
    {"repeat", "N", "repetitions of each pass; the median counts (default: 5)"},
    {0},
};

const reef_cli_manual reef_lab_scale_manual = {
    .about = "Measures retrieval and a forward pass of one sealed PEER layer, one side after the\n"
             "other.",
    .options = OPTIONS,
    .example = "reef-lab scale --side-max 1024 --json",
};

#define SIDE_FIRST 128

typedef struct cost {
    double retrieval, experts; // seconds of a pass, medians
} cost;

static reef_status measure(const reef_lab_layer_options *options,
                           uint64_t repeat,
                           reef_thread_pool *workers,
                           cost *out,
                           reef_error *err) {
    reef_lab_layer *layer = NULL;
    reef_lab_seconds parts;
    cost *samples = reef_cli_alloc(repeat, sizeof(*samples));
    reef_status status = reef_lab_layer_new(&layer, options, workers, err);
    // The first pass fills the caches and is not counted.
    if (status == REEF_OK) status = reef_lab_layer_forward(layer, workers, &parts, err);
    for (uint64_t i = 0; i < repeat && status == REEF_OK; i++) {
        status = reef_lab_layer_forward(layer, workers, &parts, err);
        samples[i] = (cost){parts.retrieval, parts.experts};
    }
    *out = (cost){reef_lab_median(&samples->retrieval, repeat, 2),
                  reef_lab_median(&samples->experts, repeat, 2)};
    reef_lab_layer_free(layer);
    free(samples);
    return status;
}

static void print_row(reef_cli_table *table, size_t side, size_t tokens, const cost *found) {
    double us = 1e6 / (double)tokens;
    reef_cli_table_cell(table, "%zu x %zu", side, side);
    reef_cli_table_cell(table, "%.2f", us * found->retrieval);
    reef_cli_table_cell(table, "%.2f", us * found->experts);
    reef_cli_table_cell(table, "%.2f", us * (found->retrieval + found->experts));
}

reef_status reef_lab_scale(reef_cli_call *cli, reef_error *err) {
    static const char *const HEADING[] = {"experts", "retrieval, us a token", "experts", "both"};
    reef_lab_layer_options options = {
        .shape = {.d_model = 256, .head_count = 8, .topk = 16, .d_key = 128, .batch_norm = true},
        .tokens = 2048,
        .sealed = true};
    uint64_t repeat = 5, side_max = 2048;
    reef_thread_pool *workers = NULL;
    json_t *rows = json_array();
    reef_cli_table *table = reef_cli_table_new("<>>>", HEADING);
    reef_status status =
        reef_cli_integer(cli, "side-max", SIDE_FIRST, LAB_SIDE_MAX, &side_max, err);
    if (status == REEF_OK)
        status = reef_lab_shape_read(cli, &options.shape, &options.tokens, &repeat, err);
    if (status == REEF_OK) status = reef_thread_pool_new(&workers, cli->threads, err);
    for (size_t side = SIDE_FIRST; side <= side_max && status == REEF_OK; side *= 2) {
        cost found = {0};
        options.shape.side = side;
        status = reef_router_shape_check(&options.shape, err);
        if (status == REEF_OK) status = reef_lab_memory_check(&options.shape, err);
        if (status == REEF_OK) status = measure(&options, repeat, workers, &found, err);
        print_row(table, side, options.tokens, &found);
        json_array_append_new(rows, json_pack("{s:I, s:o, s:o}", "side", (json_int_t)side,
                                              "retrieval_seconds", reef_cli_real(found.retrieval),
                                              "experts_seconds", reef_cli_real(found.experts)));
    }
    size_t threads = reef_thread_pool_count(workers);
    if (status == REEF_OK && cli->json) {
        json_t *document =
            json_pack("{s:I, s:O}", "tokens", (json_int_t)options.tokens, "sides", rows);
        reef_lab_machine_json(document, threads);
        status = reef_cli_reply(cli, document, err);
    } else if (status == REEF_OK) {
        reef_lab_machine_print(threads);
        reef_cli_table_print(table, stdout);
    }
    json_decref(rows);
    reef_cli_table_free(table);
    reef_thread_pool_free(workers);
    return status;
}
