// `reef bench ranks` of the real `reef`, which starts the real reefd under mpirun: its figures, its
// two forms of answer, and what goes wrong. No speed is asserted.
#include "tools_world.h"

#define SMALL                                                                                      \
    "--layers", "1", "--d-model", "32", "--context", "16", "--batch", "4", "--heads", "1",         \
        "--topk", "4", "--d-key", "8", "--side", "8", "--side-new", "8", "--attention-heads", "2", \
        "--steps", "4", "--repeat", "1"

static int find_reefd(void **state) {
    (void)state;
    // Beside reef or in PATH: where they are installed it is the former.
    char *directory = strdup(REEFD_BINARY);
    *strrchr(directory, '/') = '\0';
    char *path = reef_cli_format("%s:%s", directory, getenv("PATH"));
    int failed = setenv("PATH", path, 1);
    free(directory);
    free(path);
    return failed;
}

static void ranks_are_compared(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "ranks", "--ranks", "1,2", SMALL, NULL);
    assert_true(json_is_true(json_object_get(document, "same_roots")));
    assert_int_equal(integer(document, "tokens_per_step"), 64);
    assert_int_equal(integer(document, "steps"), 4);
    const json_t *runs = json_object_get(document, "runs"), *run;
    size_t i;
    assert_int_equal(json_array_size(runs), 2);
    json_array_foreach(runs, i, run) {
        double sent = real(run, "sent_bytes_per_step"), least = real(run, "least_bytes_per_step");
        assert_int_equal(integer(run, "ranks"), i + 1);
        assert_int_equal(json_array_size(json_object_get(run, "memory_peak_bytes")), i + 1);
        assert_true(real(run, "step_seconds") > 0 && real(run, "cpu_step_seconds") > 0);
        assert_true(real(json_object_get(run, "seconds_in"), "computing") > 0);
        // One rank has nobody to send anything to.
        assert_true(i == 0 ? sent == 0 && least == 0 : sent > 0.8 * least && sent < 1.5 * least);
        assert_true(i == 0 ? real(run, "exchanges_per_step") == 0
                           : real(run, "exchanges_per_step") >= 10);
    }
    json_decref(document);
}

// With two blocks of rows in each table; the roots are those of the ranks that have all of them.
static void rows_are_divided(void **state) {
    (void)state;
    json_t *document = reef_json("bench", "ranks", "--divided", "--ranks", "1,2", SMALL, "--side",
                                 "40", "--ffw", "p", NULL);
    assert_true(json_is_true(json_object_get(document, "same_roots")));
    const json_t *runs = json_object_get(document, "runs"), *run = json_array_get(runs, 1);
    assert_true(json_is_null(json_object_get(run, "least_bytes_per_step")));
    assert_true(real(run, "sent_bytes_per_step") > 0);
    json_decref(document);
}

static void people_get_tables(void **state) {
    (void)state;
    program p;
    reef(&p, "bench", "ranks", "--ranks", "1", SMALL, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_non_null(strstr(p.out, "MB sent"));
    assert_non_null(strstr(p.out, "memory of each rank"));
    assert_non_null(strstr(p.out, "all equal"));
    program_release(&p);
}

static void wrong_input_is_named(void **state) {
    (void)state;
    const struct {
        const char *option, *value, *words;
        int code;
    } wrong[] = {
        {"--ranks", "2", "--ranks is '2'; choose 1 and rising", 64},
        {"--ranks", "1,1", "choose 1 and rising", 64},
        {"--ranks", "1,2,", "choose 1 and rising", 64},
        {"--ranks", "1,5", "a batch has 4 windows", 64},
        {"--text", "missing.txt", "missing.txt", 66},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        program p;
        reef(&p, "bench", "ranks", SMALL, wrong[i].option, wrong[i].value, NULL);
        if (strstr(p.err, wrong[i].words) == NULL) fail_msg("%s: %s", wrong[i].words, p.err);
        assert_int_equal(p.code, wrong[i].code);
        assert_string_equal(p.out, "");
        program_release(&p);
    }
}

// What reefd says, not what mpirun makes of it: here that no socket has so long a name.
static void a_rank_that_fails_is_quoted(void **state) {
    (void)state;
    program p;
    char *directory = test_directory_new();
    char *below = reef_cli_format("%s/%0100d", directory, 0);
    assert_int_equal(mkdir(below, 0700), 0);
    assert_int_equal(setenv("TMPDIR", below, 1), 0);
    reef(&p, "bench", "ranks", "--ranks", "1", SMALL, NULL);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(p.code, 74);
    if (strstr(p.err, "socket") == NULL) fail_msg("%s", p.err);
    program_release(&p);
    free(below);
    test_directory_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_compared),          cmocka_unit_test(rows_are_divided),
        cmocka_unit_test(people_get_tables),           cmocka_unit_test(wrong_input_is_named),
        cmocka_unit_test(a_rank_that_fails_is_quoted),
    };
    // MPI's own leaks are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    return cmocka_run_group_tests_name("tools bench ranks", tests, find_reefd, NULL);
}
