// What /v1/score says is what the library says of the same state: numbers, so also run with other
// kernels (numerics/run).
#include "http_run.h"

#include <float.h>
#include <math.h>

#define SCORED_LINES_MAX 65536

static void assert_near(double a, double b, double most) {
    if (!(fabs(a - b) <= most)) fail_msg("%.17g is not %.17g", a, b);
}

// The same model opened by this process says the same to the last digit that JSON has.
TEST_WITH(scores_are_those_of_the_committed_state, NULL, NULL, sandbox *box) {
    static const char TEXT[] = "a line of text\nand another one, longer than the first\nend";
    await_count(box, "step", 50);
    reefd_snapshot(box, "then");
    json_t *answer = json_of(post(box, "/v1/score?as_of=then&per_byte=1", "", TEXT), 200);

    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    const reef_line_scorer *scorer;
    float bits[sizeof(TEXT)];
    reef_score score = pool_score(box->pool, "then", TEXT, sizeof(TEXT) - 1, bits);
    assert_int_equal(reef_store_open(&store, box->pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_model_open(&model, store, "then", NULL, &err), REEF_OK);
    assert_int_equal(reef_model_line_scorer(model, &scorer, &err), REEF_OK);
    double second = reef_line_score(scorer, (const uint8_t *)TEXT + 15, bits + 15, 39);
    reef_model_close(model);
    reef_store_close(store);

    assert_near(number(answer, "bits"), score.bits, 1e-9);
    json_t *surprise = json_at(answer, "surprise");
    assert_int_equal(json_array_size(surprise), sizeof(TEXT) - 1);
    for (size_t i = 0; i < sizeof(TEXT) - 1; i++)
        assert_near(json_number_value(json_array_get(surprise, i)), (double)bits[i], 1e-9);
    json_t *records = json_at(answer, "records");
    assert_int_equal(json_array_size(records), 3);
    assert_int_equal(integer(records, "1.offset"), 15);
    assert_int_equal(integer(records, "1.bytes"), 39);
    assert_near(number(records, "1.score"), second, 1e-9);
    double sum = 0, rounding = 0;
    for (size_t i = 0; i < 3; i++) sum += number(json_array_get(records, i), "bits");
    // A line adds up bits of bytes that were rounded to float, the score adds up doubles: each byte
    // may be half a unit of its last place apart.
    for (size_t i = 1; i < sizeof(TEXT) - 1; i++) rounding += (double)bits[i] * FLT_EPSILON / 2;
    // the first byte is not counted
    assert_near(sum - (double)bits[0], score.bits, rounding + 1e-9);
    answer = json_of(post(box, "/v1/score?per_byte=0", "", TEXT), 200);
    assert_null(json_at(answer, "surprise"));
    (void)json_of(post(box, "/v1/score?per_byte=yes", "", TEXT), 400);

    // Now is the last commit that there is, and moves on with training.
    json_int_t commit = integer(json_of(post(box, "/v1/score", "", TEXT), 200), "commit");
    assert_true(commit >= 1);
    while (integer(json_of(post(box, "/v1/score", "", TEXT), 200), "commit") <= commit)
        sleep_ms(20);
    assert_code(post(box, "/v1/score", "", "x"), 400);
    assert_code(post(box, "/v1/score", "Content-Type: application/json; charset=utf-8\r\n",
                     "{\"text\": \"a line\"}"),
                415);
    assert_code(post(box, "/v1/score", "Content-Type: application/x-www-form-urlencoded\r\n", TEXT),
                200);
    char *lines = malloc(SCORED_LINES_MAX + 1);
    memset(lines, '\n', SCORED_LINES_MAX + 1);
    answer = json_of(http_ask(box->address, "POST", "/v1/score", "", lines, SCORED_LINES_MAX), 200);
    assert_int_equal(length(answer, "records"), SCORED_LINES_MAX);
    assert_code(http_ask(box->address, "POST", "/v1/score", "", lines, SCORED_LINES_MAX + 1), 400);
    free(lines);
    assert_code(post(box, "/v1/score?as_of=never", "", TEXT), 404);
    assert_code(post(box, "/v1/score?as=now", "", TEXT), 400);
    http_answer broken = post(box, "/v1/score?as_of=th%C3n", "", TEXT); // and not "now" instead
    assert_non_null(strstr(broken.body, "as_of"));
    assert_code(broken, 400);
    await_steps(box, 1);
}

// A script that drains and then scores means what it has just pushed.
TEST_WITH(a_score_after_a_drain_is_as_of_its_commit, NULL, NULL, sandbox *box) {
    int64_t step = 30;
    (void)json_of(post(box, "/v1/score", "", "some text to score"), 200);
    for (int i = 0; i < 5; i++, step += 10) {
        await_count(box, "step", step);
        json_t *commit = reefd_tell(box, "pause");
        json_t *score = json_of(post(box, "/v1/score", "", "some text to score"), 200);
        assert_true(integer(score, "commit") >= integer(commit, "number"));
        (void)reefd_tell(box, "resume");
    }
    await_steps(box, 1);
}

RUN_TESTS_IN(setup, sandbox_stop)
