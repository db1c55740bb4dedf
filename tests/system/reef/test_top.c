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

static void the_view_says_when_something_stands_still(void **state) {
    (void)state;
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

// Bytes of text are a size; vectors and rows are not counted in bytes, and every expert sees every
// vector.
static void the_stream_is_counted_in_what_it_is_made_of(void **state) {
    (void)state;
    static const struct {
        const char *model, *trained;
        bool selects;
    } KINDS[] = {{"lm", "trained    4.1 kB in 12 steps; 0 B pending, 1.0 kB", true},
                 {"vector", "trained    204 examples in 12 steps; 0 pending", false},
                 {"layer", "trained    4,096 rows in 12 steps; 0 pending", true}};
    reef_generation_record generation = {.side = 3, .opened_at = 4096};
    reef_usage_summary usage = {.expert_count = 9};
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++) {
        reef_top_data data = {
            .pool = "p", .generations = &generation, .usage = &usage, .generation_count = 1};
        reef_config_default(&data.config);
        assert_int_equal(reef_config_set(&data.config, "model", KINDS[i].model, NULL), REEF_OK);
        data.config.inputs = 4; // and a label
        shown all = look(&data, 100, 0);
        if (strstr(all.text, KINDS[i].trained) == NULL) fail_msg("%s", all.text);
        assert_int_equal(strstr(all.text, "selections") != NULL, KINDS[i].selects);
    }
}

// Where a pool learns all, there is nothing else to count.
static void what_is_not_learned_is_shown_where_there_is_such(void **state) {
    (void)state;
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

static void the_view_fits_its_window_and_obeys_no_name(void **state) {
    (void)state;
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

static void a_sparkline_spans_its_values(void **state) {
    (void)state;
    const double values[] = {5, 9, 1, NAN, 9};
    char *line = reef_top_sparkline(values, 5, 4); // the last four
    assert_string_equal(line, "\xe2\x96\x88\xe2\x96\x81 \xe2\x96\x88");
    free(line);
    line = reef_top_sparkline(values, 0, 4);
    assert_string_equal(line, "");
    free(line);
}

// Older points are means of 16 batches each, and take as much of the line.
static void the_curve_of_the_loss_goes_along_the_stream(void **state) {
    (void)state;
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

// ---- plots --------------------------------------------------------------------------------------

static void growth_ends_at_the_experts_that_there_are(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "growing"), *svg = path_in(w->directory, "growth.svg");
    make_pool(pool);
    tiny_pool_train(pool);
    json_t *before = reef_json("plot", "growth", pool, NULL);
    json_decref(reef_json("grow", pool, "--side", "6", NULL));
    json_t *after = reef_json("plot", "growth", pool, "--svg", svg, NULL),
           *status = reef_json("status", pool, NULL);
    const json_t *steps = json_object_get(after, "steps");
    size_t count = json_array_size(steps);
    assert_int_equal(count, json_array_size(json_object_get(before, "steps")) + 1);
    const json_t *last = json_array_get(steps, count - 1);
    assert_string_equal(json_string_value(json_object_get(last, "event")), "grow");
    assert_int_equal(integer(last, "experts"), integer(status, "experts"));
    const json_t *opened = json_array_get(steps, count - 2);
    assert_int_equal(integer(last, "experts") - integer(opened, "experts"),
                     6 * 6 - TINY_SIDE_NEW * TINY_SIDE_NEW);
    assert_int_equal(integer(json_array_get(steps, 0), "experts"), TINY_SIDE * TINY_SIDE);
    reef_cli_file file;
    assert_int_equal(reef_cli_file_read(&file, svg, NULL), REEF_OK);
    assert_memory_equal(file.bytes, "<svg ", 5);
    reef_cli_file_release(&file);
    json_decref(before);
    json_decref(after);
    json_decref(status);
    free(pool);
    free(svg);
}

static char *read_text(const char *path) {
    reef_cli_file file;
    assert_int_equal(reef_cli_file_read(&file, path, NULL), REEF_OK);
    char *text = reef_cli_format("%.*s", (int)file.count, (const char *)file.bytes);
    reef_cli_file_release(&file);
    return text;
}

// The blocks of one are dense, and of the other the stream has rows.
static void growth_is_drawn_of_a_pool_without_experts_and_of_a_layer(void **state) {
    world *w = *state;
    char *dense = path_in(w->directory, "dense"), *layer = path_in(w->directory, "layer"),
         *file = path_in(w->directory, "none.svg");
    program p;
    json_decref(reef_json("init", dense, TINY_OPTIONS, "--ffw", "d", NULL));
    json_t *plot = reef_json("plot", "growth", dense, "--svg", file, NULL);
    const json_t *steps = json_object_get(plot, "steps");
    assert_int_equal(json_array_size(steps), 1);
    assert_int_equal(integer(json_array_get(steps, 0), "experts"), 0);
    char *svg = read_text(file);
    assert_non_null(strstr(svg, ">1</text>")); // the axis ends here
    assert_null(strstr(svg, "nan"));
    reef(&p, "plot", "growth", dense, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "generation 0 opens"));
    assert_null(strchr(p.out, '#'));
    program_release(&p);
    json_decref(reef_json("init", layer, "--model", "layer", "--d-model", "8", "--side", "4",
                          "--topk", "2", NULL));
    reef(&p, "plot", "growth", layer, NULL);
    assert_non_null(strstr(p.out, "the stream stands at 0 rows"));
    program_release(&p);
    reef(&p, "generations", layer, NULL);
    assert_non_null(strstr(p.out, "opened at row  sealed at row"));
    program_release(&p);
    json_decref(plot);
    free(svg);
    free(dense);
    free(layer);
    free(file);
}

static void curves_of_usage_rise_to_all_of_it(void **state) {
    world *w = *state;
    json_t *plot = reef_json("plot", "usage", w->pool, NULL),
           *usage = reef_json("usage", w->pool, NULL);
    size_t i, k;
    json_t *curve, *value;
    json_array_foreach(json_object_get(plot, "generations"), i, curve) {
        double before = 0;
        size_t experts = (size_t)integer(curve, "experts");
        json_array_foreach(json_object_get(curve, "share"), k, value) {
            double share = json_number_value(value);
            assert_true(share >= before);
            // The most used come first: so many of them have at least their part.
            assert_true(share >= (double)(experts * k / 100) / (double)experts - 1e-9);
            before = share;
        }
        assert_true(fabs(before - 1) < 1e-9);
    }
    const json_t *open = json_array_get(json_object_get(plot, "generations"), i - 1),
                 *layer = json_array_get(json_object_get(usage, "layers"), 0);
    assert_int_equal(integer(open, "selections"),
                     integer(layer, "selections")); // there is one PEER layer
    json_decref(plot);
    json_decref(usage);
}

static void the_key_of_many_generations_says_what_it_leaves_out(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "many"), *text = path_in(w->directory, "marked"),
         *svg = path_in(w->directory, "usage.svg");
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    for (int part = 0; part < 24; part++) {
        if (part > 0) fputs("===\n", file);
        for (int i = 0; i < 20; i++) fprintf(file, "part %d of a text\n", part);
    }
    assert_int_equal(fclose(file), 0);
    json_decref(reef_json("init", pool, TINY_OPTIONS, "--boundary-mark", "===", NULL));
    json_decref(reef_json("train", pool, text, NULL));
    json_t *plot = reef_json("plot", "usage", pool, "--svg", svg, NULL);
    size_t count = json_array_size(json_object_get(plot, "generations"));
    assert_int_equal(count, 24);
    char *picture = read_text(svg);
    assert_non_null(strstr(picture, ">6 older generations, and<"));
    assert_null(strstr(picture, ">generation 5: "));
    assert_non_null(strstr(picture, ">generation 6: "));
    assert_non_null(strstr(picture, ">generation 23 (open): "));
    json_decref(plot);
    free(picture);
    free(pool);
    free(text);
    free(svg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_view_says_when_something_stands_still),
        cmocka_unit_test(the_stream_is_counted_in_what_it_is_made_of),
        cmocka_unit_test(what_is_not_learned_is_shown_where_there_is_such),
        cmocka_unit_test(the_view_fits_its_window_and_obeys_no_name),
        cmocka_unit_test(a_sparkline_spans_its_values),
        cmocka_unit_test(the_curve_of_the_loss_goes_along_the_stream),
        cmocka_unit_test(growth_ends_at_the_experts_that_there_are),
        cmocka_unit_test(growth_is_drawn_of_a_pool_without_experts_and_of_a_layer),
        cmocka_unit_test(curves_of_usage_rise_to_all_of_it),
        cmocka_unit_test(the_key_of_many_generations_says_what_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
