// Benchmarks of the real `reef`: that they measure what they say, and what they say where something
// is missing.
#include "tools_world.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- the directory ------------------------------------------------------------------------------

static size_t entries(const char *path) {
    DIR *directory = opendir(path);
    assert_non_null(directory);
    size_t count = 0;
    for (struct dirent *one; (one = readdir(directory));) count += one->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void wait_for(const char *path, size_t count) {
    for (int i = 0; i < 3000 && entries(path) != count; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(entries(path), count);
}

static void start_bench(pid_t *child, const char *directory) {
    *child = fork();
    if (*child == 0) {
        setenv("TMPDIR", directory, 1);
        execl(REEF_BINARY, "reef", "bench", "usage", NULL); // minutes
        _exit(127);
    }
    assert_true(*child > 0);
}

static void a_benchmark_that_is_killed_leaves_nothing_behind(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    char *directory = test_directory_new();
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        pid_t child;
        int end;
        start_bench(&child, directory);
        wait_for(directory, 1);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); // into its work
        assert_int_equal(kill(child, signals[i]), 0);
        assert_int_equal(waitpid(child, &end, 0), child);
        assert_true(WIFSIGNALED(end));
        assert_int_equal(WTERMSIG(end), signals[i]);
        wait_for(directory, 0);
    }
    test_directory_remove(directory);
}

// ---- one layer ----------------------------------------------------------------------------------

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
    assert_true(is_null(document, "first_pass_retrieval_ratio"));
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
    // Of rows of width 16, queries, two tables of sub-keys, scales and shifts; a count for each
    // row.
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
    // Eight bits of mantissa: two weights rounded by at most 2^-9 of themselves each, and gelu
    // between.
    assert_true(number(bf16, "largest_difference") > 1e-5);
    assert_true(number(bf16, "largest_difference") < 0.02);
    json_decref(document);
}

// Smaller than any side with a first pass, and larger where the kernels have one.
static void retrieval_is_the_same_with_and_without_a_first_pass(void **state) {
    (void)state;
    static const char *const SIDES[] = {"8", "384"};
    for (size_t i = 0; i < 2; i++) {
        json_t *document = reef_json("bench", "peer", TINY_LAYER, "--side", SIDES[i], "--d-key",
                                     "32", "--tokens", "256", "--only", "retrieval", NULL);
        const json_t *retrieval = json_object_get(document, "retrieval");
        assert_true(json_is_true(json_object_get(retrieval, "same_bits")));
        if (i == 0) assert_true(json_is_false(json_object_get(retrieval, "first_pass")));
        double ratio =
            number(retrieval, "all_scores_us_per_token") / number(retrieval, "us_per_token");
        assert_true(fabs(number(document, "first_pass_retrieval_ratio") / ratio - 1) < 1e-9);
        assert_true(number(retrieval, "query_product_us_per_token") > 0);
        assert_true(number(retrieval, "scores_product_us_per_token") > 0);
        json_decref(document);
    }
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

// ---- one layer as it grows ----------------------------------------------------------------------

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
                                 "8192", "--no-narrow", "--no-exhaustive", NULL);
    const json_t *missing = json_array_get(json_object_get(document, "does_not_fit"), 0);
    assert_int_equal(json_array_size(json_object_get(document, "points")), 1);
    assert_int_equal(json_array_size(json_object_get(document, "exhaustive")), 0);
    assert_int_equal(integer(missing, "side"), 16384);
    assert_string_equal(json_string_value(json_object_get(missing, "dtype")), "bf16");
    assert_true(number(missing, "wanted_bytes") == 16384.0 * 16384 * 2 * 8192 * 2);
    json_decref(document);
    program p;
    reef(&p, "bench", "scale", TINY_SCALE, "--sides", "8,16384", "--d-model", "8192", "--no-narrow",
         NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "skipped: 16384 x 16384 experts of width 8192"));
    assert_non_null(strstr(p.out, "all sums of sub-key scores"));
    assert_non_null(strstr(p.out, "retrieval, microseconds per token, logarithmic"));
    program_release(&p);
}

// A baseline that prints what it was asked, as rates.
static const char RIVAL[] = "import sys\n"
                            "print('a line that means nothing')\n"
                            "side, width, tokens, threads = (sys.argv[i] for i in (1, 2, 3, 5))\n"
                            "assert sys.argv[4] == 'sparse'\n"
                            "for row in (('retrieve', side), ('forward', width),\n"
                            "            ('forward+backward', tokens),\n"
                            "            ('train step (+Adam)', threads)):\n"
                            "    print('%-28s 0.5000 s  %10s tok/s' % row)\n";

static void a_baseline_is_asked_for_the_same_layer_and_compared(void **state) {
    world *w = *state;
    if (access("/usr/bin/python3", X_OK) != 0) skip();
    char *script = path_in(w->directory, "rival.py");
    write_file(script, RIVAL);
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--threads", "2",
                                 "--rounds", "2", "--repeat", "1", "--rival", script, NULL);
    json_t *baseline = json_object_get(document, "rival");
    assert_int_equal(integer(baseline, "rounds"), 2);
    assert_true(number(baseline, "retrieval_tokens_per_s") == 8);
    assert_true(number(baseline, "forward_tokens_per_s") == 16);
    assert_true(number(baseline, "forward_backward_tokens_per_s") == 60);
    assert_true(number(baseline, "step_tokens_per_s") == 2);
    double forward = number(document, "forward_tokens_per_s") / 16;
    double step = number(document, "step_tokens_per_s") / 2;
    assert_true(fabs(number(document, "rival_forward_ratio") / forward - 1) < 1e-9);
    assert_true(fabs(number(document, "rival_step_ratio") / step - 1) < 1e-9);
    json_decref(document);
    free(script);
}

// Run `reef bench peer` with a baseline of these lines (NULL: without one), and expect its figures
// and a line with `words`.
static void expect_no_baseline(world *w, const char *lines, const char *words) {
    char *script = path_in(w->directory, "rival.py");
    unlink(script);
    if (lines != NULL) write_file(script, lines);
    program p;
    reef(&p, "bench", "peer", TINY_LAYER, "--only", "layer", "--repeat", "1", "--rival", script,
         NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    assert_non_null(strstr(p.out, "training step"));
    const char *said = strstr(p.out, "\nbaseline  not measured: ");
    if (said == NULL || strstr(said, words) == NULL) fail_msg("no '%s' in %s", words, p.out);
    program_release(&p);
    json_t *document = reef_json("bench", "peer", TINY_LAYER, "--only", "layer", "--repeat", "1",
                                 "--rival", script, NULL);
    assert_true(json_is_null(json_object_get(document, "rival_step_ratio")));
    assert_non_null(strstr(
        json_string_value(json_object_get(json_object_get(document, "rival"), "error")), words));
    json_decref(document);
    free(script);
}

static void a_baseline_that_fails_is_named_and_the_rest_is_measured(void **state) {
    if (access("/usr/bin/python3", X_OK) != 0) skip();
    expect_no_baseline(*state, NULL, "cannot read");
    expect_no_baseline(*state, "raise ImportError(\"No module named 'torch'\")\n", "has no torch");
    expect_no_baseline(*state, "import sys\nsys.exit('too hot today')\n", "1: too hot today");
    expect_no_baseline(*state, "print('forward  1.0 s  10 tok/s')\n", "no line 'retrieve");
    expect_no_baseline(*state, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
                       "signal 15");
}

// ---- a training step and a baseline -------------------------------------------------------------

// A baseline of TINY_OPTIONS that takes two seconds a step for a model of so many parameters.
static char *step_baseline(world *w, json_int_t parameters) {
    char *script = path_in(w->directory, "step_rival.py");
    char *lines =
        reef_cli_format("import sys\n"
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
    char *script = step_baseline(*state, step_parameters());
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

// Run `reef bench step` with that baseline, and expect no ratio and a line with `words`.
static void expect_no_step_baseline(const char *script, const char *words) {
    program p;
    reef(&p, TINY_STEPS, "--rival", script, "--json", NULL);
    assert_int_equal(p.code, 0);
    if (strstr(p.err, words) == NULL) fail_msg("no '%s' in %s", words, p.err);
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, NULL);
    assert_true(number(document, "step_tokens_per_s") > 0);
    assert_true(json_is_null(json_object_get(document, "rival_step_ratio")));
    assert_non_null(strstr(
        json_string_value(json_object_get(json_object_get(document, "rival"), "error")), words));
    json_decref(document);
    program_release(&p);
}

static void a_step_without_its_baseline_is_measured_all_the_same(void **state) {
    world *w = *state;
    expect_no_step_baseline(w->missing, "cannot read ");
    if (access("/usr/bin/python3", X_OK) != 0) return;
    char *script = step_baseline(w, 7);
    expect_no_step_baseline(script, "not a copy of this model: it has 7 parameters, ours ");
    write_file(script, "raise ImportError(\"No module named 'torch'\")\n");
    expect_no_step_baseline(script, "has no torch");
    write_file(script, "print('{}')\n");
    expect_no_step_baseline(script, "no line of JSON");
    free(script);
}

// ---- the store ----------------------------------------------------------------------------------

#define TINY_STORE                                                                                 \
    "bench", "store", "--commit-bytes", "260K", "--rounds", "2", "--seconds", "0.1",               \
        "--sealed-side", "16", "--commits", "8", "--readers", "3", "--usage-days", "1"

static void a_store_is_measured_on_what_was_really_written_and_read(void **state) {
    (void)state;
    json_t *document = reef_json(TINY_STORE, NULL), *sizes = json_object_get(document, "sizes");
    assert_true(number(document, "commit_rate_vs_raw") > 0);
    assert_true(number(document, "commit_overhead_share") > 0);
    assert_true(number(document, "commit_p99_ms") >= number(document, "training_commit_ms"));
    assert_true(number(document, "commit_growing_ms") > 0);
    assert_int_equal(integer(document, "sealed_bytes_rewritten"), 0);
    assert_true(number(document, "snapshot_ms") > 0 && number(document, "open_ms") > 0);
    // A copy of the open part holds at least its payload.
    assert_true(number(document, "snapshot_bytes_vs_open") >= 1);
    assert_true(number(document, "file_growth_vs_commit") >= 0);
    assert_int_equal(integer(sizes, "sealed_experts"), 256);
    assert_int_equal(integer(sizes, "growth_commits"), 8);
    assert_true(integer(sizes, "growth_reads") >= 3); // each reader at least once
    assert_true(integer(sizes, "growth_live_bytes") > 128 * 131072);
    assert_true(integer(sizes, "written_bytes") > 0);
    assert_int_equal(integer(sizes, "usage_days"), 1);
    double each = number(document, "usage_bytes_per_expert"); // 16 of them are its totals
    assert_true(each >= 16 && each <= 40);
    assert_true(json_is_true(json_object_get(document, "usage_exact")));
    json_decref(document);
}

static void sizes_that_a_store_cannot_be_measured_with_are_refused(void **state) {
    (void)state;
    static const char *const WRONG[][2] = {{"--commit-bytes", "5"},
                                           {"--commit-bytes", "much"},
                                           {"--sealed-side", "2"},
                                           {"--readers", "9999"},
                                           {"--usage-days", "0"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        program p;
        reef(&p, "bench", "store", WRONG[i][0], WRONG[i][1], NULL);
        assert_int_equal(p.code, 64);
        assert_non_null(strstr(p.err, WRONG[i][1]));
        program_release(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_benchmark_that_is_killed_leaves_nothing_behind),
        cmocka_unit_test(a_layer_that_is_measured_really_learns),
        cmocka_unit_test(a_layer_is_measured_with_one_thread_and_with_all),
        cmocka_unit_test(what_is_left_out_of_a_measurement_is_null),
        cmocka_unit_test(a_pool_sealed_to_nine_tenths_has_a_tenth_of_the_moments),
        cmocka_unit_test(a_pool_too_small_to_be_sealed_in_parts_is_named),
        cmocka_unit_test(rows_in_bf16_take_half_the_bytes_and_compute_nearly_the_same),
        cmocka_unit_test(retrieval_is_the_same_with_and_without_a_first_pass),
        cmocka_unit_test(avx2_is_compared_where_there_is_avx512_and_missing_elsewhere),
        cmocka_unit_test(a_layer_is_measured_at_every_side_and_again_narrow_in_bf16),
        cmocka_unit_test(experts_that_do_not_fit_memory_are_read_from_disk),
        cmocka_unit_test(searching_all_experts_chooses_what_product_keys_choose),
        cmocka_unit_test(experts_that_fit_neither_memory_nor_disk_are_left_out_and_said),
        cmocka_unit_test(a_baseline_is_asked_for_the_same_layer_and_compared),
        cmocka_unit_test(a_baseline_that_fails_is_named_and_the_rest_is_measured),
        cmocka_unit_test(a_step_is_compared_with_the_same_model_elsewhere),
        cmocka_unit_test(a_step_without_its_baseline_is_measured_all_the_same),
        cmocka_unit_test(a_store_is_measured_on_what_was_really_written_and_read),
        cmocka_unit_test(sizes_that_a_store_cannot_be_measured_with_are_refused),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
