// The real `reef`, run as a user runs it: help, answers for programs, changes, and what goes wrong.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // nftw

#include "cli.h"
#include "program.h"
#include "tiny_pool.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGUMENTS_MAX 48

// Options of `reef bench peer` for a layer that is measured in milliseconds.
#define TINY_LAYER                                                                                 \
    "--side", "8", "--d-model", "16", "--heads", "2", "--topk", "3", "--d-key", "8", "--tokens",   \
        "60"
// And of `reef bench scale`: the sides are its own.
#define TINY_SCALE                                                                                 \
    "--d-model", "16", "--heads", "2", "--topk", "3", "--d-key", "8", "--tokens", "60",            \
        "--repeat", "1", "--threads", "2"

// Made once: a directory with a trained pool and texts. Tests that change a pool make their own.
typedef struct world {
    char *directory;
    char *pool, *english, *code, *empty, *missing, *not_a_pool;
} world;

static char *path_in(const char *directory, const char *name) {
    return cli_format("%s/%s", directory, name);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Run reef with the arguments up to a NULL.
static void reef_va(program *p, va_list arguments) {
    const char *argv[ARGUMENTS_MAX] = {REEF_BINARY};
    size_t count = 1;
    const char *argument;
    while ((argument = va_arg(arguments, const char *))) {
        assert_true(count + 1 < ARGUMENTS_MAX);
        argv[count++] = argument;
    }
    program_run(p, argv, NULL);
}

static void reef(program *p, ...) {
    va_list arguments;
    va_start(arguments, p);
    reef_va(p, arguments);
    va_end(arguments);
}

// Run reef, which must succeed, and parse what must be one JSON document. The caller's.
static json_t *reef_json(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX] = {REEF_BINARY, first};
    size_t count = 2;
    va_list arguments;
    va_start(arguments, first);
    const char *argument;
    while ((argument = va_arg(arguments, const char *))) {
        assert_true(count + 2 < ARGUMENTS_MAX);
        argv[count++] = argument;
    }
    va_end(arguments);
    argv[count] = "--json";
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", first, p.code, p.err);
    assert_string_equal(p.err, "");
    json_error_t fault;
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, &fault);
    if (!document) fail_msg("reef %s: %s in %s", first, fault.text, p.out);
    program_release(&p);
    return document;
}

static double number(const json_t *document, const char *name) {
    const json_t *value = json_object_get(document, name);
    if (!json_is_number(value)) fail_msg("%s is no number", name);
    return json_number_value(value);
}

static json_int_t integer(const json_t *document, const char *name) {
    const json_t *value = json_object_get(document, name);
    if (!json_is_integer(value)) fail_msg("%s is no integer", name);
    return json_integer_value(value);
}

static double real(const json_t *document, const char *name) {
    return json_real_value(json_object_get(document, name));
}

static void make_pool(const char *path) {
    program p;
    reef(&p, "init", path, TINY_OPTIONS, NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
    program_release(&p);
}

static int world_make(void **state) {
    unsetenv("REEF_POOL");
    world *w = cli_alloc(1, sizeof(*w));
    w->directory = test_directory_new();
    w->pool = path_in(w->directory, "pool");
    w->english = path_in(w->directory, "english.txt");
    w->code = path_in(w->directory, "code.c");
    w->empty = path_in(w->directory, "empty");
    w->missing = path_in(w->directory, "missing");
    w->not_a_pool = path_in(w->directory, "not-a-pool");
    make_pool(w->pool);
    tiny_pool_train(w->pool);
    char *english = tiny_text("english", 400), *code = tiny_text("c", 300);
    write_file(w->english, english);
    write_file(w->code, code);
    write_file(w->empty, "");
    assert_int_equal(mkdir(w->not_a_pool, 0700), 0);
    free(english);
    free(code);
    *state = w;
    return 0;
}

static int world_remove(void **state) {
    world *w = *state;
    test_directory_remove(w->directory);
    free(w->pool);
    free(w->english);
    free(w->code);
    free(w->empty);
    free(w->missing);
    free(w->not_a_pool);
    free(w);
    return 0;
}

// ---- help ----------------------------------------------------------------------------------------

static void every_command_explains_itself_with_an_example(void **state) {
    (void)state;
    size_t count;
    const cli_command *commands = cli_commands(&count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char *name = cli_format("%s", commands[i].name);
        char *second = strchr(name, ' ');
        if (second) *second++ = '\0';
        program p;
        const char *argv[] = {REEF_BINARY, name, second ? second : "--help",
                              second ? "--help" : NULL, NULL};
        program_run(&p, argv, NULL);
        assert_int_equal(p.code, 0);
        assert_string_equal(p.err, "");
        char *synopsis = cli_format("usage: reef %s", commands[i].name);
        assert_non_null(strstr(p.out, synopsis));
        assert_non_null(strstr(p.out, "\nexample:\n"));
        assert_non_null(strstr(strstr(p.out, "\nexample:\n"), "  $ "));
        assert_non_null(strstr(strstr(p.out, "\nexample:\n"), commands[i].name));
        assert_non_null(strstr(p.out, commands[i].summary));
        free(synopsis);
        program_release(&p);
        free(name);
    }
}

static void help_lists_every_command(void **state) {
    (void)state;
    program bare, help;
    reef(&bare, NULL);
    reef(&help, "help", NULL);
    assert_int_equal(bare.code, 0);
    assert_string_equal(bare.out, help.out);
    size_t count;
    const cli_command *commands = cli_commands(&count);
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(help.out, commands[i].name));
    program_release(&bare);
    program_release(&help);
}

static void every_field_of_the_configuration_is_an_option_of_init(void **state) {
    (void)state;
    program p;
    reef(&p, "init", "--help", NULL);
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        char *option = cli_format("--%s VALUE", fields[i].name);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        if (!strstr(p.out, option)) fail_msg("%s is not in the help of init", option);
        free(option);
    }
    program_release(&p);
}

// ---- answers for programs ------------------------------------------------------------------------

static void expect_keys(json_t *document, const char *keys) {
    char *copy = cli_format("%s", keys), *rest = NULL;
    for (char *key = strtok_r(copy, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
        if (!json_object_get(document, key)) fail_msg("%s is missing", key);
    free(copy);
    json_decref(document);
}

static void every_json_answer_is_one_document_with_its_keys(void **state) {
    world *w = *state;
    char *fresh = path_in(w->directory, "json-pool"), *out = path_in(w->directory, "json-report");
    char *domain = cli_format("english=%s", w->english), *code = cli_format("code=%s", w->code);
    expect_keys(reef_json("init", fresh, TINY_OPTIONS, NULL),
                "pool created parameters experts file_bytes config");
    expect_keys(reef_json("status", w->pool, NULL),
                "pool state step stream_bytes generation experts last_commit daemon");
    expect_keys(reef_json("eval", w->pool, w->english, w->code, NULL), "as_of files");
    expect_keys(reef_json("eval", w->pool, "--matrix", w->english, w->code, NULL),
                "files rows matrix forgetting");
    expect_keys(reef_json("score", w->pool, w->english, NULL), "bytes bits bits_per_byte lines");
    expect_keys(reef_json("generate", w->pool, "--bytes", "8", NULL),
                "as_of prompt text generated_hex");
    expect_keys(reef_json("generations", w->pool, NULL), "generations");
    expect_keys(reef_json("usage", w->pool, NULL), "generation layers");
    expect_keys(reef_json("timeline", w->pool, NULL), "events");
    expect_keys(reef_json("verify", w->pool, NULL), "sound damaged records root");
    expect_keys(reef_json("snapshot", "list", w->pool, NULL), "snapshots");
    expect_keys(reef_json("snapshot", "show", w->pool, "kept", NULL), "name step root");
    expect_keys(reef_json("plot", "loss", w->pool, NULL), "points boundaries_found");
    expect_keys(
        reef_json("report", w->pool, "--out", out, "--domain", domain, "--domain", code, "--truth",
                  "3000", NULL),
        "asof_forgetting_bits task_free_forgetting_bits matrix boundaries_true boundaries_found "
        "boundary_error_bytes learned_share tokens_per_s seconds names");
    json_t *step = reef_json("bench", "step", "--steps", "2", TINY_OPTIONS, NULL);
    expect_keys(json_incref(json_object_get(step, "seconds_in")),
                "backbone retrieval experts optimiser commit");
    expect_keys(step, "step_tokens_per_s seconds_in forward_tokens_per_s");
    expect_keys(reef_json("bench", "readers", "--seconds", "0.05", TINY_OPTIONS, NULL),
                "seconds threads kernels trainer reader");
    expect_keys(reef_json("bench", "peer", TINY_LAYER, "--repeat", "2", "--threads", "2", NULL),
                "forward_tokens_per_s step_tokens_per_s forward_limit_share thread_speedup "
                "forward_thread_speedup limits by_threads experts_touched load_before "
                "sealed90_step_ratio sealed90_bf16_step_ratio bf16_forward_ratio "
                "bf16_experts_ratio rival_forward_ratio rival_step_ratio "
                "avx2_forward_ratio avx2_step_ratio rival sealed90 bf16 avx2");
    expect_keys(reef_json("bench", "scale", TINY_SCALE, "--sides", "8", NULL),
                "heads topk d_key tokens repeat threads kernels blas load_before limits points "
                "does_not_fit exhaustive scale_ratio");
    expect_keys(reef_json("version", NULL), "version format kernels blas");
    expect_keys(reef_json("help", NULL), "commands");
    expect_keys(reef_json("help", "snapshot", "create", NULL), "name options example");
    free(fresh);
    free(out);
    free(domain);
    free(code);
}

// ---- what the numbers mean -----------------------------------------------------------------------

static double eval_bits(world *w, const char *as_of, const char *file) {
    json_t *document = reef_json("eval", w->pool, "--as-of", as_of, file, NULL);
    double bits = number(json_array_get(json_object_get(document, "files"), 0), "bits_per_byte");
    json_decref(document);
    return bits;
}

static double cell(const json_t *document, size_t row, size_t column) {
    return json_real_value(
        json_array_get(json_array_get(json_object_get(document, "matrix"), row), column));
}

static void the_matrix_holds_what_eval_says_state_by_state(void **state) {
    world *w = *state;
    json_t *document = reef_json("eval", w->pool, "--matrix", w->english, w->code, NULL);
    assert_int_equal(json_array_size(json_object_get(document, "matrix")), 3);
    static const char *const STATES[] = {"0", "1", "now"};
    for (size_t row = 0; row < 3; row++) {
        assert_true(cell(document, row, 0) == eval_bits(w, STATES[row], w->english));
        assert_true(cell(document, row, 1) == eval_bits(w, STATES[row], w->code));
    }
    // Training on C left a trace, so as-of really evaluates another state.
    assert_true(cell(document, 0, 1) != cell(document, 2, 1));
    json_decref(document);
}

static void a_snapshot_is_evaluated_as_it_was(void **state) {
    world *w = *state;
    assert_true(eval_bits(w, "kept", w->code) != eval_bits(w, "now", w->code));
    assert_true(isfinite(eval_bits(w, "kept", w->code)));
}

static void lines_of_score_add_up_to_the_whole(void **state) {
    world *w = *state;
    json_t *document = reef_json("score", w->pool, "--top", "0", w->english, NULL);
    double sum = 0;
    size_t index;
    json_t *line;
    json_array_foreach(json_object_get(document, "lines"), index, line) {
        assert_int_equal(integer(line, "line"), (json_int_t)index + 1);
        sum += number(line, "bits");
    }
    assert_int_equal(index, integer(document, "line_count"));
    // The first byte has nothing before it and counts 8 bits in its line only.
    assert_true(fabs(sum - 8 - number(document, "bits")) < 1e-3 * sum);
    json_decref(document);
}

static void the_most_surprising_lines_come_first(void **state) {
    world *w = *state;
    json_t *document = reef_json("score", w->pool, "--top", "3", w->english, NULL);
    json_t *lines = json_object_get(document, "lines");
    assert_int_equal(json_array_size(lines), 3);
    for (size_t i = 1; i < 3; i++)
        assert_true(number(json_array_get(lines, i - 1), "surplus_bits") >=
                    number(json_array_get(lines, i), "surplus_bits"));
    json_decref(document);
}

static void the_same_seed_generates_the_same_text(void **state) {
    world *w = *state;
    json_t *first =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "5", NULL);
    json_t *same =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "5", NULL);
    json_t *other =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "6", NULL);
    assert_true(json_equal(first, same));
    assert_false(json_equal(first, other));
    assert_int_equal(strlen(json_string_value(json_object_get(first, "generated_hex"))), 80);
    json_decref(first);
    json_decref(same);
    json_decref(other);
}

static void usage_counts_every_selection_of_every_layer(void **state) {
    world *w = *state;
    json_t *document = reef_json("usage", w->pool, "--generation", "0", NULL);
    json_t *layers = json_object_get(document, "layers");
    assert_int_equal(json_array_size(layers), 1); // the second block is dense
    json_t *layer = json_array_get(layers, 0);
    assert_int_equal(integer(layer, "experts"), TINY_SIDE * TINY_SIDE);
    assert_int_equal(integer(layer, "used") + integer(layer, "dead"), TINY_SIDE * TINY_SIDE);
    assert_true(integer(layer, "selections") > 0);
    json_int_t experts = 0;
    size_t index;
    json_t *bucket;
    json_array_foreach(json_object_get(layer, "histogram"), index, bucket) experts +=
        integer(bucket, "experts");
    assert_int_equal(experts, TINY_SIDE * TINY_SIDE);
    json_decref(document);
}

// ---- one layer -----------------------------------------------------------------------------------

static void a_layer_that_is_measured_really_learns(void **state) {
    (void)state;
    json_t *document =
        reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--repeat", "20", NULL);
    assert_true(number(document, "loss_after") < number(document, "loss_before"));
    json_int_t touched = integer(document, "experts_touched");
    assert_true(touched >= 3 && touched <= 8 * 8); // topk of one head; all there are
    json_decref(document);
}

static void a_layer_is_measured_with_one_thread_and_with_all(void **state) {
    (void)state;
    json_t *document =
        reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--threads", "3", NULL);
    json_t *runs = json_object_get(document, "by_threads");
    assert_int_equal(json_array_size(runs), 2);
    assert_int_equal(integer(json_array_get(runs, 0), "threads"), 1);
    assert_int_equal(integer(json_array_get(runs, 1), "threads"), 3);
    for (size_t i = 0; i < 2; i++) {
        json_t *run = json_array_get(runs, i);
        assert_true(number(run, "forward_limit_share") > 0);
        assert_true(number(json_object_get(run, "limits"), "gather_huge_gb_per_s") > 0);
        assert_int_equal(json_object_size(json_object_get(run, "forward_us_per_token")), 2);
        assert_int_equal(json_object_size(json_object_get(run, "step_us_per_token")), 8);
    }
    json_decref(document);
}

static bool is_null(const json_t *document, const char *name) {
    return json_is_null(json_object_get(document, name));
}

static void what_is_left_out_of_a_measurement_is_null(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "bf16,sealed90", NULL);
    assert_true(is_null(document, "forward_tokens_per_s"));
    assert_true(is_null(document, "step_tokens_per_s"));
    assert_true(is_null(document, "forward_limit_share"));
    assert_true(is_null(document, "thread_speedup"));
    assert_true(is_null(document, "rival_step_ratio"));
    assert_true(is_null(document, "avx2_forward_ratio"));
    assert_true(number(document, "bf16_forward_ratio") > 0);
    assert_true(number(document, "bf16_experts_ratio") > 0);
    assert_true(number(document, "sealed90_step_ratio") > 0);
    json_decref(document);
}

static void a_pool_sealed_to_nine_tenths_has_a_tenth_of_the_moments(void **state) {
    (void)state;
    json_t *document =
        reef_json("bench", "peer", TINY_LAYER, "--side", "32", "--only", "sealed90", NULL);
    const json_t *sealed = json_object_get(document, "sealed90");
    assert_int_equal(integer(sealed, "generations"), 10);
    assert_int_equal(integer(sealed, "side"), 10); // 10 * 10 is nearest to a tenth of 32 * 32
    double one = number(sealed, "one_open_moment_bytes");
    // Of rows of width 16, queries, two tables of sub-keys, scales and shifts; a count for each row.
    double values = 100 * 2 * 16 + 16 * 16 + 2 * 10 * 4 + 2 * 16;
    assert_true(one >= 2 * 4 * values + 4 * 100);
    assert_true(one < 1.05 * (2 * 4 * values + 4 * 100)); // each array begins on a cache line
    assert_true(number(sealed, "all_open_moment_bytes") == 10 * one);
    double ratio = number(sealed, "all_open_s") / number(sealed, "one_open_s");
    assert_true(fabs(number(document, "sealed90_step_ratio") / ratio - 1) < 1e-9);
    ratio = number(sealed, "all_open_s") / number(sealed, "one_open_bf16_s");
    assert_true(fabs(number(document, "sealed90_bf16_step_ratio") / ratio - 1) < 1e-9);
    // Retrieval and experts, forward and backward: nothing of a sealed generation learns.
    expect_keys(json_incref(json_object_get(sealed, "sealed_us_per_token")),
                "retrieval experts experts_backward retrieval_backward");
    assert_int_equal(json_object_size(json_object_get(sealed, "sealed_bf16_us_per_token")), 4);
    json_decref(document);
}

static void a_pool_too_small_to_be_sealed_in_parts_is_named(void **state) {
    (void)state;
    program p;
    reef(&p, "bench", "peer", TINY_LAYER, "--side", "4", "--only", "sealed90", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "not measured: a tenth of the experts is 1 x 1, too few"));
    program_release(&p);
    json_t *document =
        reef_json("bench", "peer", TINY_LAYER, "--side", "4", "--only", "sealed90", NULL);
    assert_true(is_null(document, "sealed90_step_ratio"));
    json_decref(document);
}

static void rows_in_bf16_take_half_the_bytes_and_compute_nearly_the_same(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "bf16", NULL);
    const json_t *bf16 = json_object_get(document, "bf16");
    assert_true(number(bf16, "f32_bytes") == 8 * 8 * 2 * 16 * 4);
    assert_true(number(bf16, "bf16_bytes") == 8 * 8 * 2 * 16 * 2);
    // Eight bits of mantissa: two weights rounded by at most 2^-9 of themselves each, and gelu between.
    assert_true(number(bf16, "largest_difference") > 1e-5);
    assert_true(number(bf16, "largest_difference") < 0.02);
    json_decref(document);
}

static void avx2_is_compared_where_there_is_avx512_and_missing_elsewhere(void **state) {
    (void)state;
    json_t *document =
        reef_json("bench", "peer", TINY_LAYER, "--repeat", "1", "--only", "layer,avx2", NULL);
    const json_t *avx2 = json_object_get(document, "avx2");
    if (strcmp(json_string_value(json_object_get(document, "kernels")), "avx512") == 0) {
        double ratio =
            number(document, "forward_tokens_per_s") / number(avx2, "forward_tokens_per_s");
        assert_true(fabs(number(document, "avx2_forward_ratio") / ratio - 1) < 1e-9);
        assert_string_equal(json_string_value(json_object_get(avx2, "blas")), "Haswell");
    } else {
        assert_true(is_null(document, "avx2_forward_ratio"));
    }
    json_decref(document);

    assert_int_equal(setenv("REEF_ISA", "scalar", 1), 0);
    document =
        reef_json("bench", "peer", TINY_LAYER, "--repeat", "1", "--only", "layer,avx2", NULL);
    assert_int_equal(unsetenv("REEF_ISA"), 0);
    assert_true(is_null(document, "avx2_forward_ratio"));
    assert_true(is_null(document, "avx2_step_ratio"));
    assert_non_null(
        strstr(json_string_value(json_object_get(json_object_get(document, "avx2"), "missing")),
               "scalar, not avx512"));
    json_decref(document);
}

// ---- one layer as it grows -----------------------------------------------------------------------

static void a_layer_is_measured_at_every_side_and_again_narrow_in_bf16(void **state) {
    (void)state;
    static const int SIDES[] = {5, 8, 16, 33, 8, 16, 33};
    json_t *document = reef_json("bench", "scale", TINY_SCALE, "--sides", "5,8,16,33", NULL);
    json_t *points = json_object_get(document, "points");
    assert_int_equal(json_array_size(points), 7);
    for (size_t i = 0; i < 7; i++) {
        const json_t *point = json_array_get(points, i);
        int width = i < 4 ? 16 : 64, bytes = i < 4 ? 4 : 2, experts = SIDES[i] * SIDES[i];
        assert_int_equal(integer(point, "side"), SIDES[i]);
        assert_int_equal(integer(point, "experts"), experts);
        assert_int_equal(integer(point, "d_model"), width);
        assert_string_equal(json_string_value(json_object_get(point, "dtype")),
                            i < 4 ? "f32" : "bf16");
        assert_string_equal(json_string_value(json_object_get(point, "residency")), "resident");
        assert_true(number(point, "resident_bytes") == experts * 2.0 * width * bytes);
        double us = number(point, "us_per_token");
        assert_true(fabs(number(point, "tokens_per_s") * us / 1e6 - 1) < 1e-9);
        assert_true(number(point, "us_retrieval") > 0 && number(point, "us_experts") > 0);
    }
    assert_true(is_null(document, "scale_ratio")); // there is neither 1024 nor 4096
    json_decref(document);
}

// 96 x 96 experts of width 16 are 590 kB in bf16: more than 60 % of what the process may hold.
static void experts_that_do_not_fit_memory_are_read_from_disk(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "scale", TINY_SCALE, "--sides", "8,96", "--no-narrow",
                                 "--no-exhaustive", "--memory", "600K", NULL);
    const json_t *points = json_object_get(document, "points");
    assert_int_equal(json_array_size(points), 2);
    const json_t *small = json_array_get(points, 0), *large = json_array_get(points, 1);
    assert_string_equal(json_string_value(json_object_get(small, "residency")), "resident");
    assert_string_equal(json_string_value(json_object_get(large, "residency")), "mapped");
    assert_string_equal(json_string_value(json_object_get(large, "dtype")), "bf16");
    assert_true(number(large, "row_bytes") == 96 * 96 * 2.0 * 16 * 2);
    assert_true(number(large, "limit_bytes") == 600 * 1024.0);
    assert_true(number(large, "us_per_token") > 0 && number(large, "us_per_token_cold") > 0);
    assert_true(number(large, "resident_bytes") > 0); // of the whole process
    json_decref(document);
}

static void searching_all_experts_chooses_what_product_keys_choose(void **state) {
    (void)state;
    json_t *document =
        reef_json("bench", "scale", TINY_SCALE, "--sides", "3,9,70", "--no-narrow", NULL);
    const json_t *searches = json_object_get(document, "exhaustive");
    assert_int_equal(json_array_size(json_object_get(document, "points")), 3);
    assert_int_equal(json_array_size(searches), 6); // sums and keys of each
    for (size_t i = 0; i < 6; i++) {
        const json_t *search = json_array_get(searches, i);
        bool sums = strcmp(json_string_value(json_object_get(search, "scores")), "sums") == 0;
        assert_true(sums == (i % 2 == 0));
        assert_int_equal(integer(search, "tokens"), 60);
        assert_true(number(search, "us_per_token") > 0);
        // A product of eight numbers is rounded otherwise than the sum of two products of four.
        if (sums)
            assert_true(number(search, "same_choice") == 1);
        else
            assert_true(number(search, "same_choice") > 0.99);
    }
    json_decref(document);
}

static void experts_that_fit_neither_memory_nor_disk_are_left_out_and_said(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "scale", TINY_SCALE, "--sides", "8,16384", "--d-model",
                                 "32768", "--no-narrow", "--no-exhaustive", NULL);
    const json_t *missing = json_array_get(json_object_get(document, "does_not_fit"), 0);
    assert_int_equal(json_array_size(json_object_get(document, "points")), 1);
    assert_int_equal(json_array_size(json_object_get(document, "exhaustive")), 0);
    assert_int_equal(integer(missing, "side"), 16384);
    assert_string_equal(json_string_value(json_object_get(missing, "dtype")), "bf16");
    assert_true(number(missing, "wanted_bytes") == 16384.0 * 16384 * 2 * 32768 * 2);
    json_decref(document);
    program p;
    reef(&p, "bench", "scale", TINY_SCALE, "--sides", "8,16384", "--d-model", "32768",
         "--no-narrow", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "skipped: 16384 x 16384 experts of width 32768"));
    assert_non_null(strstr(p.out, "all sums of sub-key scores"));
    assert_non_null(strstr(p.out, "retrieval, microseconds per token, logarithmic"));
    program_release(&p);
}

// A rival that says what it was asked, as rates.
static const char RIVAL[] = "import sys\n"
                            "print('a line that means nothing')\n"
                            "side, width, tokens, threads = (sys.argv[i] for i in (1, 2, 3, 5))\n"
                            "assert sys.argv[4] == 'sparse'\n"
                            "for row in (('retrieve', side), ('forward', width),\n"
                            "            ('forward+backward', tokens),\n"
                            "            ('train step (+Adam)', threads)):\n"
                            "    print('%-28s 0.5000 s  %10s tok/s' % row)\n";

static void a_rival_is_asked_for_the_same_layer_and_compared(void **state) {
    world *w = *state;
    if (access("/usr/bin/python3", X_OK) != 0) skip();
    char *script = path_in(w->directory, "rival.py");
    write_file(script, RIVAL);
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--threads", "2",
                                 "--rounds", "2", "--repeat", "1", "--rival", script, NULL);
    json_t *rival = json_object_get(document, "rival");
    assert_int_equal(integer(rival, "rounds"), 2);
    assert_true(number(rival, "retrieval_tokens_per_s") == 8);
    assert_true(number(rival, "forward_tokens_per_s") == 16);
    assert_true(number(rival, "forward_backward_tokens_per_s") == 60);
    assert_true(number(rival, "step_tokens_per_s") == 2);
    double forward = number(document, "forward_tokens_per_s") / 16;
    double step = number(document, "step_tokens_per_s") / 2;
    assert_true(fabs(number(document, "rival_forward_ratio") / forward - 1) < 1e-9);
    assert_true(fabs(number(document, "rival_step_ratio") / step - 1) < 1e-9);
    json_decref(document);
    free(script);
}

// Run `reef bench peer` with a rival of these lines (NULL: with none there), and expect its figures and a line with `words`.
static void expect_no_rival(world *w, const char *lines, const char *words) {
    char *script = path_in(w->directory, "rival.py");
    unlink(script);
    if (lines) write_file(script, lines);
    program p;
    reef(&p, "bench", "peer", TINY_LAYER, "--only", "layer", "--repeat", "1", "--rival", script,
         NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    assert_non_null(strstr(p.out, "training step"));
    const char *said = strstr(p.out, "\nrival     not measured: ");
    if (!said || !strstr(said, words)) fail_msg("no '%s' in %s", words, p.out);
    program_release(&p);
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--repeat", "1",
                                 "--rival", script, NULL);
    assert_true(json_is_null(json_object_get(document, "rival_step_ratio")));
    assert_non_null(strstr(
        json_string_value(json_object_get(json_object_get(document, "rival"), "error")), words));
    json_decref(document);
    free(script);
}

static void a_rival_that_fails_is_named_and_the_rest_is_measured(void **state) {
    if (access("/usr/bin/python3", X_OK) != 0) skip();
    expect_no_rival(*state, NULL, "cannot read");
    expect_no_rival(*state, "raise ImportError(\"No module named 'torch'\")\n", "has no torch");
    expect_no_rival(*state, "import sys\nsys.exit('too hot today')\n", "1: too hot today");
    expect_no_rival(*state, "print('forward  1.0 s  10 tok/s')\n", "no line 'retrieve");
    expect_no_rival(*state, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
                    "signal 15");
}

// ---- a training step and a rival -----------------------------------------------------------------

// A rival of TINY_OPTIONS that takes two seconds a step for a model of so many parameters.
static char *step_rival(world *w, json_int_t parameters) {
    char *script = path_in(w->directory, "step_rival.py");
    char *lines = cli_format("import sys\n"
                             "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
                             "assert given == {'--layers': '2', '--ffw': 'pd', '--d-model': '16',\n"
                             "    '--attention-heads': '2', '--context': '16', '--batch': '2',\n"
                             "    '--heads': '1', '--topk': '2', '--d-key': '8', '--side': '4',\n"
                             "    '--d-ffw': '16', '--previous-bytes': '3', '--threads': '2',\n"
                             "    '--steps': '3'}, given\n"
                             "print('{\"step_seconds\": 2.0, \"parameters\": %" JSON_INTEGER_FORMAT
                             ", \"torch\": \"none\"}')\n"
                             "print('a line that means nothing')\n",
                             parameters);
    write_file(script, lines);
    free(lines);
    return script;
}

#define TINY_STEPS "bench", "step", TINY_OPTIONS, "--threads", "2", "--steps", "3"

static json_int_t step_parameters(void) {
    json_t *document = reef_json(TINY_STEPS, NULL);
    json_int_t parameters = integer(document, "parameters");
    assert_true(json_is_null(json_object_get(document, "rival_step_ratio")));
    json_decref(document);
    return parameters;
}

static void a_step_is_compared_with_the_same_model_elsewhere(void **state) {
    if (access("/usr/bin/python3", X_OK) != 0) skip();
    char *script = step_rival(*state, step_parameters());
    json_t *document = reef_json(TINY_STEPS, "--rival", script, "--rounds", "2", NULL);
    assert_string_equal(json_string_value(json_object_get(document, "ffw")), "pd");
    assert_int_equal(integer(document, "steps"), 6);
    assert_int_equal(integer(json_object_get(document, "rival"), "rounds"), 2);
    assert_true(number(document, "rival_step_tokens_per_s") == 16); // 2 windows of 16, 2 seconds
    double ours = number(document, "step_tokens_per_s");
    assert_true(fabs(ours * number(document, "step_seconds") / 32 - 1) < 1e-9);
    assert_true(fabs(number(document, "rival_step_ratio") / (ours / 16) - 1) < 1e-9);
    json_decref(document);
    program p;
    reef(&p, TINY_STEPS, "--rival", script, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "1 PEER and 1 dense layers (--ffw pd)"));
    assert_non_null(strstr(p.out, "\nratio     "));
    program_release(&p);
    free(script);
}

// Run `reef bench step` with that rival, and expect no ratio and a line with `words`.
static void expect_no_step_rival(const char *script, const char *words) {
    program p;
    reef(&p, TINY_STEPS, "--rival", script, "--json", NULL);
    assert_int_equal(p.code, 0);
    if (!strstr(p.err, words)) fail_msg("no '%s' in %s", words, p.err);
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, NULL);
    assert_true(number(document, "step_tokens_per_s") > 0);
    assert_true(json_is_null(json_object_get(document, "rival_step_ratio")));
    assert_non_null(strstr(
        json_string_value(json_object_get(json_object_get(document, "rival"), "error")), words));
    json_decref(document);
    program_release(&p);
}

static void a_step_without_its_rival_is_measured_all_the_same(void **state) {
    world *w = *state;
    expect_no_step_rival(w->missing, "cannot read ");
    if (access("/usr/bin/python3", X_OK) != 0) return;
    char *script = step_rival(w, 7);
    expect_no_step_rival(script, "no copy of this model: it has 7 parameters, ours ");
    write_file(script, "raise ImportError(\"No module named 'torch'\")\n");
    expect_no_step_rival(script, "has no torch");
    write_file(script, "print('{}')\n");
    expect_no_step_rival(script, "no line of JSON");
    free(script);
}

static json_t *report_with(world *w, const char *sealed) {
    char *out = path_in(w->directory, "report");
    char *english = cli_format("english=%s", w->english), *code = cli_format("code=%s", w->code);
    json_t *document =
        reef_json("report", w->pool, "--out", out, "--domain", english, "--domain", code, "--truth",
                  "2900", "--fresh", "code=1.5", "--sealed-bits", sealed, "--seconds", "2", NULL);
    char *json = path_in(out, "report.json"), *svg = path_in(out, "report.svg");
    json_t *written = json_load_file(json, 0, NULL);
    assert_true(json_equal(document, written)); // the file says what the answer says
    json_decref(written);
    assert_int_equal(access(svg, R_OK), 0);
    free(json);
    free(svg);
    free(out);
    free(english);
    free(code);
    return document;
}

static void report_measures_forgetting_as_it_is_defined(void **state) {
    world *w = *state;
    double own = eval_bits(w, "0", w->english), now = eval_bits(w, "now", w->english);
    char *sealed = cli_format("english=%.17g", own),
         *off = cli_format("english@0=%.17g", own + 0.25);
    json_t *exact = report_with(w, sealed), *changed = report_with(w, off);
    assert_true(number(exact, "asof_forgetting_bits") == 0);
    assert_true(fabs(number(changed, "asof_forgetting_bits") - 0.25) < 1e-12);
    assert_true(fabs(number(exact, "task_free_forgetting_bits") - (now - own)) < 1e-12);
    json_int_t found =
        json_integer_value(json_array_get(json_object_get(exact, "boundaries_found"), 0));
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(exact, "boundary_error_bytes"), 0)),
        found - 2900);
    double before = cell(exact, 0, 1), after = cell(exact, 1, 1);
    double share = json_real_value(json_array_get(json_object_get(exact, "learned_share"), 0));
    assert_true(fabs(share - (before - after) / (before - 1.5)) < 1e-12);
    assert_true(fabs(number(exact, "tokens_per_s") - number(exact, "stream_bytes") / 2) < 1e-6);
    json_decref(exact);
    json_decref(changed);
    free(sealed);
    free(off);
}

// ---- changes -------------------------------------------------------------------------------------

static json_int_t generation_count(const char *pool) {
    json_t *document = reef_json("generations", pool, NULL);
    json_int_t count = (json_int_t)json_array_size(json_object_get(document, "generations"));
    json_decref(document);
    return count;
}

static char *root_of(const char *pool) {
    json_t *document = reef_json("verify", pool, NULL);
    assert_true(json_is_true(json_object_get(document, "sound")));
    char *root = cli_format("%s", json_string_value(json_object_get(document, "root")));
    json_decref(document);
    return root;
}

static void dry_runs_change_nothing(void **state) {
    world *w = *state;
    char *before = root_of(w->pool);
    json_decref(reef_json("seal", w->pool, "--dry-run", NULL));
    json_decref(reef_json("grow", w->pool, "--side", "9", "--dry-run", NULL));
    json_decref(reef_json("freeze", w->pool, "--dry-run", NULL));
    json_decref(reef_json("thaw", w->pool, "--dry-run", NULL));
    json_decref(reef_json("snapshot", "create", w->pool, "new", "--dry-run", NULL));
    json_decref(reef_json("init", w->missing, "--dry-run", NULL));
    assert_int_not_equal(access(w->missing, F_OK), 0);
    char *after = root_of(w->pool);
    assert_string_equal(before, after);
    assert_int_equal(generation_count(w->pool), 2);
    free(before);
    free(after);
}

static void seal_grow_freeze_and_snapshot_do_what_they_say(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "changed");
    make_pool(pool);
    tiny_pool_train(pool);
    json_t *grown = reef_json("grow", pool, "--side", "6", NULL);
    assert_int_equal(integer(grown, "experts_added"), 6 * 6 - TINY_SIDE_NEW * TINY_SIDE_NEW);
    json_decref(grown);

    json_t *frozen = reef_json("freeze", pool, "--layer", "0", "--first", "3", "--last", "9", NULL);
    assert_int_equal(integer(frozen, "changed"), 7);
    json_decref(frozen);
    json_t *rest = reef_json("freeze", pool, NULL);
    assert_int_equal(integer(rest, "changed"), 6 * 6 - 7);
    json_decref(rest);
    json_t *thawed = reef_json("thaw", pool, "--first", "30", NULL);
    assert_int_equal(integer(thawed, "changed"), 6);
    json_decref(thawed);

    json_decref(reef_json("snapshot", "create", pool, "one", NULL));
    json_t *list = reef_json("snapshot", "list", pool, NULL);
    assert_int_equal(json_array_size(json_object_get(list, "snapshots")), 2);
    json_decref(list);

    json_t *sealed = reef_json("seal", pool, NULL);
    assert_true(json_is_true(json_object_get(json_object_get(sealed, "sealed"), "sealed")));
    assert_int_equal(integer(json_object_get(sealed, "opened"), "side"), TINY_SIDE_NEW);
    assert_true(integer(sealed, "loss_bytes") > 0);
    assert_true(real(sealed, "loss_before") > 0.0);
    assert_true(real(sealed, "loss_before") == real(sealed, "loss_after"));
    json_decref(sealed);
    assert_int_equal(generation_count(pool), 3);
    program again; // a generation that has trained nothing is not sealed
    program_run(&again, (const char *const[]){REEF_BINARY, "seal", pool, NULL}, NULL);
    assert_int_equal(again.code, 64);
    assert_non_null(strstr(again.err, "generation 2 is open and has trained nothing yet"));
    program_release(&again);
    free(root_of(pool));
    free(pool);
}

static void seal_rounds_when_it_is_told_to(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "rounded");
    make_pool(pool);
    tiny_pool_train(pool);
    program refused, said;
    program_run(&refused,
                (const char *const[]){REEF_BINARY, "seal", pool, "--seal-dtype", "f16", NULL},
                NULL);
    assert_int_equal(refused.code, 64);
    assert_non_null(strstr(refused.err, "must be f32 or bf16"));
    program_release(&refused);
    assert_int_equal(generation_count(pool), 2);

    json_t *dry = reef_json("seal", pool, "--seal-dtype", "bf16", "--dry-run", NULL);
    assert_string_equal(json_string_value(json_object_get(dry, "seal_dtype")), "bf16");
    assert_true(json_is_null(json_object_get(dry, "loss_before")));
    json_decref(dry);
    program_run(&said,
                (const char *const[]){REEF_BINARY, "seal", pool, "--seal-dtype", "bf16", NULL},
                NULL);
    assert_int_equal(said.code, 0);
    assert_non_null(strstr(said.out, "with rows of bf16"));
    assert_non_null(strstr(said.out, "bits per byte before"));
    program_release(&said);

    json_t *document = reef_json("generations", pool, NULL);
    const json_t *list = json_object_get(document, "generations");
    static const char *const DTYPES[] = {"f32", "bf16", "f32"};
    assert_int_equal(json_array_size(list), 3);
    for (size_t g = 0; g < 3; g++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, g), "dtype")),
                            DTYPES[g]);
    json_decref(document);
    json_t *sound = reef_json("verify", pool, NULL);
    assert_true(json_is_true(json_object_get(sound, "sound")));
    json_decref(sound);
    free(pool);
}

static void a_rival_of_generations_is_shown_as_what_it_is(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "rival");
    program p;
    reef(&p, "init", pool, TINY_OPTIONS, "--strategy", "replay", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    tiny_pool_train(pool); // with one boundary
    json_t *status = reef_json("status", pool, NULL), *list = reef_json("generations", pool, NULL);
    assert_string_equal(json_string_value(json_object_get(status, "strategy")), "replay");
    assert_int_equal(integer(status, "task"), 1);
    assert_int_equal(integer(status, "generation"), 0);
    assert_int_equal(integer(list, "task"), 1);
    assert_int_equal(json_array_size(json_object_get(list, "generations")), 1);
    reef(&p, "status", pool, NULL);
    assert_non_null(strstr(p.out, "replay, which keeps one generation; 1 boundaries so far"));
    program_release(&p);
    reef(&p, "generations", pool, NULL);
    assert_non_null(strstr(p.out, "strategy replay keeps one generation; 1 boundaries so far"));
    program_release(&p);
    json_t *dry = reef_json("seal", pool, "--dry-run", NULL), *done = reef_json("seal", pool, NULL);
    assert_int_equal(integer(dry, "task"), 2);
    assert_int_equal(integer(done, "task"), 2);
    assert_string_equal(json_string_value(json_object_get(done, "strategy")), "replay");
    json_decref(status);
    json_decref(list);
    json_decref(dry);
    json_decref(done);
    json_t *eval = reef_json("eval", pool, w->code, "--as-of", "kept", NULL);
    assert_non_null(eval);
    json_decref(eval);
    reef(&p, "timeline", pool, NULL);
    assert_non_null(strstr(p.out, "boundary"));
    program_release(&p);
    free(pool);
}

static void joint_training_has_nothing_to_seal(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "joint");
    program p;
    reef(&p, "init", pool, TINY_OPTIONS, "--strategy", "joint", NULL);
    program_release(&p);
    reef(&p, "seal", pool, "--dry-run", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "joint, which has no boundaries"));
    program_release(&p);
    free(pool);
}

static void init_takes_an_empty_directory(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "mounted");
    assert_int_equal(mkdir(pool, 0700), 0);
    make_pool(pool);
    assert_int_equal(generation_count(pool), 1);
    free(pool);
}

static void a_path_need_not_be_utf8(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "p\351");
    json_t *made = reef_json("init", pool, TINY_OPTIONS, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(made, "pool")), "p\\xe9"));
    json_decref(made);
    json_decref(reef_json("status", pool, NULL));
    json_decref(reef_json("verify", pool, NULL));
    free(pool);
}

static void the_pool_may_be_named_in_three_ways(void **state) {
    world *w = *state;
    json_t *first = reef_json("eval", w->pool, w->english, NULL);
    json_t *option = reef_json("eval", "--pool", w->pool, w->english, NULL);
    assert_int_equal(setenv("REEF_POOL", w->pool, 1), 0);
    json_t *environment = reef_json("eval", w->english, NULL);
    // A directory that stands first is meant, whatever the environment says.
    assert_int_equal(setenv("REEF_POOL", w->missing, 1), 0);
    json_t *over = reef_json("eval", w->pool, w->english, NULL);
    assert_int_equal(unsetenv("REEF_POOL"), 0);
    assert_true(json_equal(first, option));
    assert_true(json_equal(first, environment));
    assert_true(json_equal(first, over));
    json_decref(first);
    json_decref(option);
    json_decref(environment);
    json_decref(over);
}

// ---- what goes wrong -----------------------------------------------------------------------------

// Names of all files below a directory, to see that nothing was made or lost.
static size_t file_count;

static int count_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)path;
    (void)info;
    (void)type;
    (void)walk;
    file_count++;
    return 0;
}

static size_t count_files(const char *directory) {
    file_count = 0;
    assert_int_equal(nftw(directory, count_one, 8, FTW_PHYS), 0);
    return file_count;
}

typedef struct mistake {
    const char *argv[ARGUMENTS_MAX];
    int code;
    const char *says; // part of the message
} mistake;

static void expect_mistake(const world *w, const mistake *m) {
    const char *argv[ARGUMENTS_MAX + 2] = {REEF_BINARY};
    size_t count = 1, files = count_files(w->directory);
    for (; m->argv[count - 1]; count++) argv[count] = m->argv[count - 1];
    program p;
    program_run(&p, argv, NULL);
    if (p.code != m->code || line_count(p.err) != 1 || !strstr(p.err, m->says))
        fail_msg("reef %s %s: exit %d, not %d with '%s': %s", argv[1], argv[2] ? argv[2] : "",
                 p.code, m->code, m->says, p.err);
    assert_string_equal(p.out, "");
    program_release(&p);

    // The same for programs: the same code, and a document that says why. (An option that lacks its
    // value would take --json for it.)
    if (strstr(m->says, "needs a value")) return;
    argv[count] = "--json";
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, m->code);
    json_t *document = json_loads(p.out, 0, NULL);
    assert_true(json_is_string(json_object_get(json_object_get(document, "error"), "message")));
    json_decref(document);
    program_release(&p);
    assert_int_equal(count_files(w->directory), files);
}

static void mistakes_are_named_in_one_line_and_leave_everything_as_it_was(void **state) {
    world *w = *state;
    char *domain = cli_format("e=%s", w->english), *out = path_in(w->directory, "not-made");
    char *root = root_of(w->pool);
    const mistake mistakes[] = {
        {{"evl"}, 64, "did you mean eval?"},
        {{"frob"}, 64, "unknown command 'frob'; see reef help"},
        {{"snapshot"}, 64, "create, list, show"},
        {{"snapshot", "lst"}, 64, "did you mean snapshot list?"},
        {{"status", w->pool, "--jsn"}, 64, "did you mean --json?"},
        {{"status", w->pool, "-q"}, 64, "unknown option '-q'"},
        {{"status", w->pool, "--json=1"}, 64, "takes no value"},
        {{"eval", w->pool, w->english, "--as-of"}, 64, "needs a value"},
        {{"status"}, 64, "no pool given"},
        {{"status", w->pool, "more"}, 64, "unexpected argument 'more'"},
        {{"eval", w->pool}, 64, "FILE"},
        {{"init", w->missing, "--d-key", "7"}, 64, "d_key"},
        {{"init", w->missing, "--topk", "65"}, 64, "topk"},
        {{"init", w->missing, "--heads", "0"}, 64, "heads"},
        {{"init", w->missing, "--d-modle", "7"}, 64, "did you mean --d-model?"},
        {{"init", w->missing, "--layers", "many"}, 64, "layers"},
        {{"init", w->missing, "--growth", "up"}, 64, "must be generation or in_place"},
        {{"init", w->missing, "--subkeys-new", "all"}, 64, "must be random or queries"},
        {{"init", w->missing, "--experts-max", "9"}, 64, "experts_max 9 is less than"},
        {{"bench", "step", "--heads", "0"}, 64, "heads"},
        {{"bench", "step", "--steps", "0"}, 64, "--steps"},
        {{"bench", "step", "--score", "relu", "--rival", "x"}, 64, "--score softmax"},
        {{"bench", "peer", "--side", "4", "--topk", "5"}, 64, "topk"},
        {{"bench", "peer", "--d-key", "7"}, 64, "d_key"},
        {{"bench", "peer", "--tokens", "0"}, 64, "--tokens"},
        {{"bench", "peer", "--side", "16384", "--d-model", "65536"}, 64, "choose less"},
        {{"bench", "peer", "--only", "layer,avx"}, 64, "--only has 'avx'"},
        {{"bench", "peer", "--only", "layer,"}, 64, "--only has ''"},
        {{"bench", "peer", "--only", "avx2"}, 64, "without layer"},
        {{"bench", "scale", "--sides", "8,x"}, 64, "--sides is '8,x'"},
        {{"bench", "scale", "--sides", "32,16"}, 64, "16 does not rise"},
        {{"bench", "scale", "--sides", "16385"}, 64, "1 to 16384"},
        {{"bench", "scale", "--sides", "16", "--side-max", "8"}, 64, "exclude each other"},
        {{"bench", "scale", "--side-max", "0"}, 64, "--side-max"},
        {{"bench", "scale", "--sides", "8"}, 64, "topk"},
        {{"init", w->pool}, 64, "exists; choose"},
        {{"init", w->empty}, 64, "exists"},
        {{"status", w->missing}, 66, w->missing},
        {{"status", w->not_a_pool}, 64, w->not_a_pool},
        {{"verify", w->missing}, 66, w->missing},
        {{"seal", w->missing}, 66, w->missing},
        {{"eval", w->pool, w->missing}, 66, w->missing},
        {{"eval", w->pool, w->not_a_pool}, 66, w->not_a_pool},
        {{"eval", w->pool, w->empty}, 64, w->empty},
        {{"score", w->pool, w->empty}, 64, w->empty},
        {{"eval", w->pool, "--as-of", "nothing", w->english}, 66, "nothing"},
        {{"eval", w->pool, "--as-of", "7", w->english}, 66, "7"},
        {{"usage", w->pool, "--generation", "7"}, 66, "7"},
        {{"snapshot", "show", w->pool, "nothing"}, 66, "nothing"},
        {{"snapshot", "create", w->pool, "kept"}, 64, "kept exists; choose"},
        {{"snapshot", "create", w->pool, "a/b"}, 64, "a/b"},
        {{"grow", w->pool}, 64, "--side"},
        {{"grow", w->pool, "--side", "2"}, 64, "--side"},
        {{"freeze", w->pool, "--layer", "1"}, 64, "layer"},
        {{"freeze", w->pool, "--first", "5", "--last", "4"}, 64, "--last"},
        {{"freeze", w->pool, "--usage-above", "2"}, 64, "--usage-above"},
        {{"generate", w->pool, "--prompt", ""}, 64, "empty"},
        {{"generate", w->pool, "--temperature", "warm"}, 64, "--temperature"},
        {{"generate", w->pool, "--top-p", "0"}, 64, "--top-p"},
        {{"report", w->pool}, 64, "--out"},
        {{"report", w->pool, "--out", out}, 64, "--domain"},
        {{"report", w->pool, "--out", out, "--domain", "e"}, 64, "NAME=FILE"},
        {{"report", w->pool, "--out", out, "--domain", domain, "--truth", "5"}, 64, "--truth"},
        {{"report", w->pool, "--out", out, "--domain", domain, "--fresh", "x=1"}, 64, "--domain"},
        {{"report", w->pool, "--out", out, "--domain", domain, "--fresh", "e=low"}, 64, "bits"},
        {{"help", "evl"}, 64, "did you mean eval?"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        expect_mistake(w, &mistakes[i]);
    char *after = root_of(w->pool);
    assert_string_equal(root, after);
    free(root);
    free(after);
    free(domain);
    free(out);
}

static void an_unknown_instruction_set_is_refused(void **state) {
    (void)state;
    program p;
    assert_int_equal(setenv("REEF_ISA", "abacus", 1), 0);
    reef(&p, "version", NULL);
    assert_int_equal(unsetenv("REEF_ISA"), 0);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "abacus"));
    program_release(&p);
}

static void a_damaged_pool_is_reported_and_ends_with_65(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "damaged");
    make_pool(pool);
    char *data = path_in(pool, "data.mdb");
    int file = open(data, O_RDWR);
    assert_true(file >= 0);
    struct stat info;
    assert_int_equal(fstat(file, &info), 0);
    // Every page from the fifth on loses a few bytes in its middle: some of them belong to records.
    for (off_t at = 5 * 4096 + 2000; at < info.st_size; at += 4096)
        assert_int_equal(pwrite(file, "damage", 6, at), 6);
    close(file);
    program p;
    reef(&p, "verify", pool, NULL);
    assert_int_equal(p.code, 65);
    assert_non_null(strstr(p.err, "damaged"));
    program_release(&p);
    free(data);
    free(pool);
}

static void output_that_cannot_be_written_is_an_error(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    program p;
    const char *argv[] = {"/bin/sh", "-c", "exec " REEF_BINARY " help > /dev/full", NULL};
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 74);
    assert_non_null(strstr(p.err, "standard output"));
    program_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_explains_itself_with_an_example),
        cmocka_unit_test(help_lists_every_command),
        cmocka_unit_test(every_field_of_the_configuration_is_an_option_of_init),
        cmocka_unit_test(every_json_answer_is_one_document_with_its_keys),
        cmocka_unit_test(the_matrix_holds_what_eval_says_state_by_state),
        cmocka_unit_test(a_snapshot_is_evaluated_as_it_was),
        cmocka_unit_test(lines_of_score_add_up_to_the_whole),
        cmocka_unit_test(the_most_surprising_lines_come_first),
        cmocka_unit_test(the_same_seed_generates_the_same_text),
        cmocka_unit_test(usage_counts_every_selection_of_every_layer),
        cmocka_unit_test(a_layer_that_is_measured_really_learns),
        cmocka_unit_test(a_layer_is_measured_with_one_thread_and_with_all),
        cmocka_unit_test(what_is_left_out_of_a_measurement_is_null),
        cmocka_unit_test(a_pool_sealed_to_nine_tenths_has_a_tenth_of_the_moments),
        cmocka_unit_test(a_pool_too_small_to_be_sealed_in_parts_is_named),
        cmocka_unit_test(rows_in_bf16_take_half_the_bytes_and_compute_nearly_the_same),
        cmocka_unit_test(avx2_is_compared_where_there_is_avx512_and_missing_elsewhere),
        cmocka_unit_test(a_layer_is_measured_at_every_side_and_again_narrow_in_bf16),
        cmocka_unit_test(experts_that_do_not_fit_memory_are_read_from_disk),
        cmocka_unit_test(searching_all_experts_chooses_what_product_keys_choose),
        cmocka_unit_test(experts_that_fit_neither_memory_nor_disk_are_left_out_and_said),
        cmocka_unit_test(a_rival_is_asked_for_the_same_layer_and_compared),
        cmocka_unit_test(a_rival_that_fails_is_named_and_the_rest_is_measured),
        cmocka_unit_test(a_step_is_compared_with_the_same_model_elsewhere),
        cmocka_unit_test(a_step_without_its_rival_is_measured_all_the_same),
        cmocka_unit_test(report_measures_forgetting_as_it_is_defined),
        cmocka_unit_test(dry_runs_change_nothing),
        cmocka_unit_test(seal_grow_freeze_and_snapshot_do_what_they_say),
        cmocka_unit_test(seal_rounds_when_it_is_told_to),
        cmocka_unit_test(a_rival_of_generations_is_shown_as_what_it_is),
        cmocka_unit_test(joint_training_has_nothing_to_seal),
        cmocka_unit_test(init_takes_an_empty_directory),
        cmocka_unit_test(a_path_need_not_be_utf8),
        cmocka_unit_test(the_pool_may_be_named_in_three_ways),
        cmocka_unit_test(mistakes_are_named_in_one_line_and_leave_everything_as_it_was),
        cmocka_unit_test(an_unknown_instruction_set_is_refused),
        cmocka_unit_test(a_damaged_pool_is_reported_and_ends_with_65),
        cmocka_unit_test(output_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
