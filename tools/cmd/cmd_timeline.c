// reef timeline: what happened to a pool, in order. reef plot loss: its loss over the stream.
#include "chart.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_timeline_json.h"

#include <stdlib.h>
#include <string.h>

// ---- timeline -----------------------------------------------------------------------------------

const reef_cli_manual reef_timeline_manual = {
    .about =
        "Every event that the trainer recorded: the pool made, generations sealed, opened and\n"
        "grown, experts frozen and thawed; each with its reason, the step and the position in the\n"
        "stream. What a restore undid stays, and says undone=true. Snapshots are listed by `reef\n"
        "snapshot list`.",
    .options = NULL,
    .example = "reef timeline reef.pool",
};

// Shown in columns of their own; all other members of an event follow as name=value.
static const char *const COLUMNS[] = {"unix_ms", "event", "generation", "step", "stream_bytes"};
#define COLUMN_COUNT (sizeof(COLUMNS) / sizeof(COLUMNS[0]))

static bool has_column(const char *name) {
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (strcmp(COLUMNS[i], name) == 0) return true;
    return false;
}

static char *value_text(const json_t *value) {
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        return reef_cli_printable((const uint8_t *)text, json_string_length(value), false);
    }
    if (json_is_real(value)) return reef_cli_format("%.4g", json_real_value(value));
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    char *copy = reef_cli_format("%s", text != NULL ? text : "");
    free(text);
    return copy;
}

static char *details_text(const json_t *event) {
    char *text = reef_cli_format("%s", "");
    const char *name;
    json_t *value;
    // Every event kind has its own members; what has no column is listed by name.
    json_object_foreach((json_t *)event, name, value) {
        if (has_column(name)) continue;
        char *shown = value_text(value);
        reef_cli_append(&text, "%s%s=%s", text[0] ? " " : "", name, shown);
        free(shown);
    }
    return text;
}

// On the heap.
static char *column_text(const json_t *event, const char *name) {
    const json_t *value = json_object_get(event, name);
    if (value == NULL) return reef_cli_format("%s", "");
    if (!json_is_integer(value)) return value_text(value);
    uint64_t number = (uint64_t)json_integer_value(value);
    if (strcmp(name, "unix_ms") == 0) return reef_cli_format("%s", CLI_TIME(number));
    return reef_cli_format("%s", CLI_COUNT(number));
}

static void print_events(const json_t *events, const reef_config *config) {
    char *stream = reef_cli_format("stream %s", reef_cli_stream_unit(config));
    const char *const heading[] = {"when", "event", "generation", "step", stream, "details"};
    reef_cli_table *table = reef_cli_table_new("<<>>><", heading);
    size_t index;
    const json_t *event;
    json_array_foreach(events, index, event) {
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            char *text = column_text(event, COLUMNS[c]);
            reef_cli_table_cell(table, "%s", text);
            free(text);
        }
        char *details = details_text(event);
        reef_cli_table_cell(table, "%s", details);
        free(details);
    }
    reef_cli_table_show(table);
    free(stream);
}

reef_status reef_cmd_timeline(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_txn *txn = NULL;
    json_t *events = json_array();
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    // One transaction, so that an event is never seen without those before it.
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_timeline_json(txn, events, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_pack("{s:O}", "events", events), err);
    else if (status == REEF_OK && json_array_size(events) == 0)
        printf("nothing has happened yet\n");
    else if (status == REEF_OK)
        print_events(events, &pool.config);
    json_decref(events);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- plot loss ----------------------------------------------------------------------------------

const reef_cli_manual reef_plot_loss_manual = {
    .about =
        "The loss of each batch before it was trained on, and where generations were opened. Of a\n"
        "long stream, older points are the means of 16, 256, ... batches.",
    .options = NULL,
    .example = "reef plot loss reef.pool",
};

static json_t *chart_json(const reef_loss_chart *chart) {
    json_t *points = json_array();
    for (size_t i = 0; i < chart->count; i++) {
        const reef_point *point = &chart->points[i];
        // The member's name carries the unit, so that no reader mistakes one for another.
        // Points are means: "batches" says of how many.
        json_array_append_new(
            points, json_pack("{s:I, s:I, s:o, s:I, s:I}", "step", (json_int_t)point->step,
                              "stream_bytes", (json_int_t)point->stream_bytes, "bits_per_byte",
                              reef_cli_real((double)point->bits_per_byte), "generation",
                              (json_int_t)point->generation, "batches",
                              (json_int_t)reef_cli_point_batches(point)));
    }
    return json_pack("{s:o, s:o}", "points", points, "boundaries_found",
                     reef_chart_offsets_json(chart->found, chart->found_count));
}

static reef_status print_plot(reef_cli_call *cli, const reef_loss_chart *chart, reef_error *err) {
    // JSON of a pool without a loss is an empty list; a picture of nothing is an error.
    if (cli->json) return reef_cli_reply(cli, chart_json(chart), err);
    if (chart->count == 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "%.160s has no loss to plot: nothing was trained yet", cli->pool);
    reef_chart_loss_print(stdout, chart);
    return REEF_OK;
}

reef_status reef_cmd_plot_loss(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_cli_points points = {0};
    uint64_t *found = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    // Thinned while it is read: a pool of months has more points than a picture has columns.
    if (status == REEF_OK) status = reef_cli_points_read(&points, &pool, err);
    if (status == REEF_OK) {
        reef_loss_chart chart = {.points = points.points,
                                 .count = points.count,
                                 .unit = reef_cli_stream_unit(&pool.config)};
        // Drawn as lines, because a jump of the loss is explained by a boundary.
        found = reef_chart_boundaries(&pool, &chart.found_count);
        chart.found = found;
        status = print_plot(cli, &chart, err);
    }
    free(found);
    reef_cli_points_release(&points);
    reef_cli_pool_close(&pool);
    return status;
}
