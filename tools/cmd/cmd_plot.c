// reef plot loss: loss over the stream, in the terminal or as SVG.
#include "chart.h"
#include "cli_pool.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"svg", "FILE", "write a picture instead of drawing in the terminal"},
    {0},
};

const reef_cli_manual reef_plot_loss_manual = {
    .about =
        "The loss of each batch before it was trained on, and where generations were opened. Of a\n"
        "long stream, older points are the means of 16, 256, ... batches.",
    .options = OPTIONS,
    .example = "reef plot loss reef.pool\n"
               "reef plot loss reef.pool --svg loss.svg",
};

static void draw_plot(FILE *out, const void *context) {
    reef_chart_loss_svg(out, context, (reef_chart_box){10, 14, 980, 396});
}

static json_t *chart_json(const reef_loss_chart *chart) {
    json_t *points = json_array(), *found = json_array();
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
    for (size_t i = 0; i < chart->found_count; i++)
        json_array_append_new(found, json_integer((json_int_t)chart->found[i]));
    return json_pack("{s:o, s:o}", "points", points, "boundaries_found", found);
}

static reef_status print_plot(reef_cli_call *cli, const reef_loss_chart *chart, reef_error *err) {
    const char *path = reef_cli_text(cli, "svg");
    // JSON of a pool without a loss is an empty list; a picture of nothing is an error.
    if (chart->count == 0 && (path != NULL || !cli->json))
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "%.160s has no loss to plot: nothing was trained yet", cli->pool);
    // The file is written before anything is printed, so that an error comes alone.
    if (path != NULL) {
        reef_status status = reef_svg_write(path, 1000, 420, draw_plot, chart, err);
        if (status != REEF_OK) return status;
    }
    if (cli->json) return reef_cli_reply(cli, chart_json(chart), err);
    if (path != NULL)
        printf("wrote %s\n", path);
    else
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
