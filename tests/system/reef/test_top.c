// What `reef top` shows of a state of things, and that the plots of usage and growth agree with the
// pool.
#include "tools_world.h"

#include "cli_format.h"
#include "cli_pool.h"
#include "top_view.h"

#include <math.h>

// ---- the view -----------------------------------------------------------------------------------

typedef struct shown {
    char text[8192];
    size_t used, lines, widest;
    top_style loudest;
} shown;

static void on_line(void *context, top_style style, const char *text) {
    shown *all = context;
    all->used +=
        (size_t)snprintf(all->text + all->used, sizeof(all->text) - all->used, "%s\n", text);
    all->lines++;
    if (reef_cli_width(text) > all->widest) all->widest = reef_cli_width(text);
    if (style == TOP_ALARM) all->loudest = style;
}

static const char STATUS[] =
    "{\"pid\": 4242, \"state\": \"training\", \"uptime_s\": 60, \"bits_per_byte\": 2.5, "
    "\"bytes_per_s\": 2048,"
    " \"step\": 12, \"stream_bytes\": 5096, \"not_learned_bytes\": 1000, \"sources\": [{\"name\": "
    "\"a\\u001bb\", \"lag_bytes\": "
    "7000,"
    " \"bytes_per_s\": 10, \"ended\": false, \"sits_out\": true, \"bits_per_byte\": null}],"
    " \"commit_error\": null, \"last_commit\": {\"number\": 3, \"step\": 9, \"unix_ms\": 1, "
    "\"ms\": 5}}";

static shown look(reef_top_data *data, size_t columns, size_t rows) {
    shown all = {0};
    if (data->config.layers == 0) reef_config_default(&data->config);
    data->status = json_loads(STATUS, 0, NULL);
    assert_non_null(data->status);
    reef_top_view(data, columns, rows, "q: quit", on_line, &all);
    json_decref(data->status);
    return all;
}

PLAIN_TEST(the_view_says_when_something_stands_still) {
    reef_top_data data = {.pool = "p", .daemon = true};
    shown all = look(&data, 100, 0);
    assert_int_equal(all.loudest, TOP_PLAIN);
    assert_non_null(strstr(all.text, "reefd 4242"));
    assert_non_null(strstr(all.text, "2.500 bits per byte"));
    assert_non_null(strstr(all.text, "7.0 kB"));
    assert_non_null(strstr(all.text, "is idle"));
    data.still = 20;
    all = look(&data, 100, 0);
    assert_int_equal(all.loudest, TOP_ALARM);
    assert_non_null(strstr(all.text, "training has not advanced for 20"));
    data.age = 15; // then it is unknown whether it trains
    all = look(&data, 100, 0);
    assert_non_null(strstr(all.text, "has not answered for 15"));
    assert_null(strstr(all.text, "not advanced"));
    data = (reef_top_data){.pool = "p", .daemon = true, .trouble = "the daemon has gone"};
    all = look(&data, 100, 0);
    assert_non_null(strstr(all.text, "the daemon has gone"));
    assert_int_equal(all.loudest, TOP_ALARM);
}

// Bytes of text are a size; rows are not counted in bytes.
PLAIN_TEST(the_stream_is_counted_in_what_it_is_made_of) {
    static const struct {
        const char *model, *trained;
    } KINDS[] = {{"lm", "trained    4.1 kB in 12 steps; 0 B pending, 1.0 kB"},
                 {"layer", "trained    4,096 rows in 12 steps; 0 pending"}};
    reef_generation_record generation = {.side = 3, .opened_at = 4096};
    reef_usage_summary usage = {.expert_count = 9};
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++) {
        reef_top_data data = {
            .pool = "p", .generations = &generation, .usage = &usage, .generation_count = 1};
        reef_config_default(&data.config);
        assert_int_equal(reef_config_set(&data.config, "model", KINDS[i].model, NULL), REEF_OK);
        shown all = look(&data, 100, 0);
        if (strstr(all.text, KINDS[i].trained) == NULL) fail_msg("%s", all.text);
    }
}

// Where a pool learns all, there is nothing else to count.
PLAIN_TEST(what_is_not_learned_is_shown_where_there_is_such) {
    reef_top_data data = {.pool = "p"};
    reef_config_default(&data.config);
    for (int i = 0; i < 2; i++) {
        shown all = {0};
        data.status = json_loads(STATUS, 0, NULL);
        if (i == 1) json_object_del(data.status, "not_learned_bytes");
        reef_top_view(&data, 100, 0, "q: quit", on_line, &all);
        json_decref(data.status);
        const char *line = i == 0
                               ? "trained    4.1 kB in 12 steps; 0 B pending, 1.0 kB recognised\n"
                               : "trained    5.1 kB in 12 steps; 0 B pending\n";
        if (strstr(all.text, line) == NULL) fail_msg("%s", all.text);
    }
}

PLAIN_TEST(the_view_fits_its_window_and_obeys_no_name) {
    reef_generation_record generations[9] = {{.side = 3}};
    reef_usage_summary usage[9] = {{.expert_count = 9}};
    reef_top_data data = {.pool = "p",
                          .daemon = true,
                          .generations = generations,
                          .usage = usage,
                          .generation_count = 9};
    for (uint32_t g = 0; g < 9; g++)
        generations[g] = (reef_generation_record){.generation = g, .side = 3, .sealed = g < 8};
    for (size_t rows = 1; rows < 24; rows++)
        for (size_t columns = 20; columns < 100; columns += 13) {
            shown all = look(&data, columns, rows);
            assert_true(all.lines <= rows);
            assert_true(all.widest <= columns);
            assert_non_null(strstr(all.text, "q: quit"));
        }
    shown all = look(&data, 100, 14); // the newest generations are worth more
    assert_null(strstr(all.text, "\x1b"));
    assert_non_null(strstr(all.text, "\\x1b"));
    assert_non_null(strstr(all.text, "         8 open"));
    assert_null(strstr(all.text, "         0 sealed"));
}

PLAIN_TEST(a_sparkline_spans_its_values) {
    const double values[] = {5, 9, 1, NAN, 9};
    char *line = reef_top_sparkline(values, 5, 4); // the last four
    assert_string_equal(line, "\xe2\x96\x88\xe2\x96\x81 \xe2\x96\x88");
    free(line);
    line = reef_top_sparkline(values, 0, 4);
    assert_string_equal(line, "");
    free(line);
}

// Older points are means of 16 batches each, and take as much of the line.
PLAIN_TEST(the_curve_of_the_loss_goes_along_the_stream) {
    reef_point points[20];
    for (size_t i = 0; i < 20; i++)
        points[i] = (reef_point){.bits_per_byte = i < 4 ? 8 : 1, .level = i < 4};
    reef_top_data data = {.pool = "p", .daemon = true, .points = points, .point_count = 20};
    shown all = look(&data, 100, 0);
    char curve[3 * 20 + 3] = " ", *at = curve + 1; // 4 * 16 batches, and 16 more, in 20 parts
    for (size_t i = 0; i < 20; i++) at = stpcpy(at, i < 16 ? "\xe2\x96\x88" : "\xe2\x96\x81");
    strcpy(at, "\n");
    assert_non_null(strstr(all.text, curve));
}

RUN_TESTS_IN(world_make, world_remove)
