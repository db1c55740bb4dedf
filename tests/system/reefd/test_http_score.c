// What /v1/score says is what the library says of the same state: numbers, so also run with other
// kernels (numerics/run).
#include "http_run.h"

#include "reef_trainer.h"
#include "test.h"

#include <float.h>
#include <math.h>

#define SCORED_LINES_MAX 65536

static void assert_near(double a, double b, double most) {
    if (!(fabs(a - b) <= most)) fail_msg("%.17g is not %.17g", a, b);
}

// The same model opened by this process says the same to the last digit that JSON has.
static void scores_are_those_of_the_committed_state(void **state) {
    running *run = *state;
    static const char TEXT[] = "a line of text\nand another one, longer than the first\nend";
    while (reefd_count(&run->box, "step") < 50) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"then\"}");
    json_t *answer = json_of(post(run, "/v1/score?as_of=then&per_byte=1", "", TEXT), 200);

    reef_error err;
    reef_store *store;
    reef_model *model;
    const reef_line_scorer *scorer;
    reef_score score = {0};
    float bits[sizeof(TEXT)];
    assert_int_equal(reef_store_open(&store, run->box.pool, &(reef_store_options){0}, &err),
                     REEF_OK);
    assert_int_equal(
        reef_model_open(&model, store, "then", &(reef_model_options){.threads = 1}, &err), REEF_OK);
    assert_int_equal(reef_model_score(model, (const uint8_t *)TEXT, sizeof(TEXT) - 1, bits, &score,
                                      NULL, NULL, &err),
                     REEF_OK);
    assert_int_equal(reef_model_line_scorer(model, &scorer, &err), REEF_OK);
    double second = reef_line_score(scorer, (const uint8_t *)TEXT + 15, bits + 15, 39);
    reef_model_close(model);
    reef_store_close(store);

    assert_near(json_number_value(json_object_get(answer, "bits")), score.bits, 1e-9);
    json_t *surprise = json_object_get(answer, "surprise");
    assert_int_equal(json_array_size(surprise), sizeof(TEXT) - 1);
    for (size_t i = 0; i < sizeof(TEXT) - 1; i++)
        assert_near(json_number_value(json_array_get(surprise, i)), (double)bits[i], 1e-9);
    json_t *records = json_object_get(answer, "records");
    assert_int_equal(json_array_size(records), 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(records, 1), "offset")), 15);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(records, 1), "bytes")), 39);
    assert_near(json_number_value(json_object_get(json_array_get(records, 1), "score")), second,
                1e-9);
    double sum = 0, rounding = 0;
    for (size_t i = 0; i < 3; i++)
        sum += json_number_value(json_object_get(json_array_get(records, i), "bits"));
    // A line adds up bits of bytes that were rounded to float, the score adds up doubles: each byte
    // may be half a unit of its last place apart.
    for (size_t i = 1; i < sizeof(TEXT) - 1; i++) rounding += (double)bits[i] * FLT_EPSILON / 2;
    // the first byte is not counted
    assert_near(sum - (double)bits[0], score.bits, rounding + 1e-9);
    answer = json_of(post(run, "/v1/score?per_byte=0", "", TEXT), 200);
    assert_null(json_object_get(answer, "surprise"));
    (void)json_of(post(run, "/v1/score?per_byte=yes", "", TEXT), 400);

    // Now is the last commit that there is, and moves on with training.
    json_t *now = json_of(post(run, "/v1/score", "", TEXT), 200);
    json_int_t commit = json_integer_value(json_object_get(now, "commit"));
    assert_true(commit >= 1);
    for (bool moved = false; !moved; sleep_ms(20)) {
        now = json_of(post(run, "/v1/score", "", TEXT), 200);
        moved = json_integer_value(json_object_get(now, "commit")) > commit;
    }
    assert_code(post(run, "/v1/score", "", "x"), 400);
    assert_code(post(run, "/v1/score", "Content-Type: application/json; charset=utf-8\r\n",
                     "{\"text\": \"a line\"}"),
                415);
    assert_code(post(run, "/v1/score", "Content-Type: application/x-www-form-urlencoded\r\n", TEXT),
                200);
    char *lines = malloc(SCORED_LINES_MAX + 1);
    memset(lines, '\n', SCORED_LINES_MAX + 1);
    now = json_of(http_ask(run->address, "POST", "/v1/score", "", lines, SCORED_LINES_MAX), 200);
    assert_int_equal(json_array_size(json_object_get(now, "records")), SCORED_LINES_MAX);
    assert_code(http_ask(run->address, "POST", "/v1/score", "", lines, SCORED_LINES_MAX + 1), 400);
    free(lines);
    assert_code(post(run, "/v1/score?as_of=never", "", TEXT), 404);
    assert_code(post(run, "/v1/score?as=now", "", TEXT), 400);
    http_answer broken = post(run, "/v1/score?as_of=th%C3n", "", TEXT); // and not "now" instead
    assert_non_null(strstr(broken.body, "as_of"));
    assert_code(broken, 400);
    assert_trains_on_and_stops(run);
}

// A script that drains and then scores means what it has just pushed.
static void a_score_after_a_drain_is_as_of_its_commit(void **state) {
    running *run = *state;
    int64_t step = 30;
    (void)json_of(post(run, "/v1/score", "", "some text to score"), 200);
    for (int i = 0; i < 8; i++, step += 20) {
        while (reefd_count(&run->box, "step") < step) sleep_ms(2);
        json_t *commit = reefd_ask(&run->box, "{\"command\": \"pause\"}");
        json_t *score = json_of(post(run, "/v1/score", "", "some text to score"), 200);
        assert_true(json_integer_value(json_object_get(score, "commit")) >=
                    json_integer_value(json_object_get(commit, "number")));
        (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    }
    assert_trains_on_and_stops(run);
}

// As `setup`, of a pool with context memories, whose model is opened beside the one that answers.
static int setup_memory(void **state) {
    running *run = calloc(1, sizeof(*run));
    sandbox_make(&run->box);
    run->box.context_memory = 4 << 20;
    sandbox_make_pool(&run->box);
    write_text(run->box.text, TEXT_BYTES, 1);
    snprintf(run->token, sizeof(run->token), "%s/token", run->box.directory);
    write_file(run->token, TOKEN "\n", 0600);
    run_start(run, "0");
    *state = run;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_score_after_a_drain_is_as_of_its_commit, setup_memory,
                                        teardown),
        SET_UP(scores_are_those_of_the_committed_state),
    };
    return cmocka_run_group_tests_name("daemon http score", tests, NULL, NULL);
}
