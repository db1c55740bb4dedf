// A daemon on a pool with context memories: what it says of them, and frozen questions.
#include "http_run.h"

#include "damaged_record.h"
#include "reef_kinds.h"
#include "reef_trainer.h"

static int setup_memory(void **state) {
    running *run = calloc(1, sizeof(*run));
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_text(run->box.text, TEXT_BYTES, 1);
    snprintf(run->token, sizeof(run->token), "%s/token", run->box.directory);
    write_file(run->token, TOKEN "\n", 0600);
    run_start(run, "0");
    *state = run;
    return 0;
}

static json_int_t count_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) fail_msg("%s is not an integer", name);
    return json_integer_value(value);
}

static void status_and_metrics_tell_what_the_memory_holds(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 100) sleep_ms(2);
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    const json_t *memory = json_object_get(status, "context_memory");
    assert_true(count_of(memory, "learned_bytes") > 100 * 32);
    assert_in_range(count_of(memory, "bytes"), 1, 4 << 20);
    assert_int_equal(count_of(memory, "bytes_max"), 4 << 20);
    assert_true(json_real_value(json_object_get(memory, "used_share")) > 0.0);
    double sum = 0.0;
    size_t i;
    const json_t *input;
    json_array_foreach(json_object_get(memory, "inputs"), i, input) sum +=
        json_number_value(json_object_get(input, "share"));
    assert_true(sum > 0.999 && sum < 1.001);
    // No other kind is being learned.
    assert_int_equal(count_of(status, "kind"), count_of(status, "generation"));
    assert_true(json_equal(json_object_get(status, "kind_memory"), memory));
    // The median of losses with the memory's help.
    assert_true(json_is_real(json_object_get(status, "bits_per_byte")));
    assert_null(json_object_get(status, "not_learned_bytes")); // all of the stream is learned

    static const char *const NAMES[] = {
        "reef_context_memory_bytes ",
        "reef_context_memory_limit_bytes 4194304\n",
        "reef_context_memory_learned_bytes ",
        "reef_context_memory_used_ratio{table=\"cells\"} 0.",
        "reef_context_memory_used_ratio{table=\"trees\"} ",
        "reef_context_memory_input_share_ratio{input=\"net\"} 0.",
        "reef_context_memory_input_hit_ratio{input=\"word\"} ",
        "reef_generation_memory_learned_bytes{generation=\"0\"} ",
        "reef_generation_memory_bytes{generation=\"0\"} ",
        "reef_generation_memory_used_ratio{generation=\"0\"} 0.",
        "reef_kind 1\n",
        "reef_kinds 2\n",
        "reef_kind_learned_bytes{kind=\"0\",name=\"\"} ",
        "reef_kind_visits{kind=\"0\",name=\"\"} 1\n",
        "reef_kind_loss{kind=\"0\",name=\"\"} ",
    };
    while (reefd_count(&run->box, "step") < 130) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    // Facts of sealed ones are read beside training.
    http_answer answer = {0};
    for (size_t found = 0; found < sizeof(NAMES) / sizeof(*NAMES); sleep_ms(50)) {
        answer = get(run, "/metrics");
        assert_int_equal(answer.code, 200);
        found = 0;
        for (size_t k = 0; k < sizeof(NAMES) / sizeof(*NAMES); k++)
            found += strstr(answer.body, NAMES[k]) != NULL;
    }
    assert_null(strstr(answer.body, "not_learned"));
    assert_trains_on_and_stops(run);
}

static double bits_of(running *run, const char *target, const char *text) {
    json_t *answer = json_of(post(run, target, "", text), 200);
    double bits = json_real_value(json_object_get(answer, "bits"));
    return bits;
}

static void frozen_is_said_by_each_request(void **state) {
    running *run = *state;
    // What repeats itself is foreseen by a memory that adapts.
    static const char TEXT[] = "Q%7 never seen, Q%7 never seen, Q%7 never seen, Q%7 never seen\n";
    while (reefd_count(&run->box, "step") < 50) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"then\"}");
    double adapts = bits_of(run, "/v1/score?as_of=then", TEXT);
    double frozen = bits_of(run, "/v1/score?as_of=then&frozen=1", TEXT);
    assert_true(adapts < frozen);
    // The model that is kept does not remember what was asked last.
    assert_true(bits_of(run, "/v1/score?as_of=then", TEXT) == adapts);
    assert_true(bits_of(run, "/v1/score?frozen=1&as_of=then", TEXT) == frozen);
    assert_true(bits_of(run, "/v1/score?as_of=then&frozen=0", TEXT) == adapts);
    assert_code(post(run, "/v1/score?frozen=yes", "", TEXT), 400);

    static const char *const BODIES[] = {
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0}",
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0, \"frozen\": true}",
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0, \"frozen\": false}",
    };
    json_t *answers[3], *texts[3]; // of one state; other fields tell of the commits meanwhile
    for (size_t i = 0; i < 3; i++) {
        answers[i] = json_of(post(run, "/v1/generate?as_of=then", "", BODIES[i]), 200);
        texts[i] = json_object_get(answers[i], "text");
        assert_true(json_string_length(texts[i]) == 40);
    }
    assert_false(json_equal(texts[0], texts[1]));
    assert_true(json_equal(texts[0], texts[2]));
    for (size_t i = 0; i < 3; i++) json_decref(answers[i]);
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"a\", \"frozen\": 1}"), 400);
    assert_trains_on_and_stops(run);
}

static void kinds_are_named_while_it_trains(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 50) sleep_ms(2);
    static const char *const REFUSED[] = {
        "{\"command\": \"kind_name\", \"kind\": 5, \"name\": \"five\"}",
        "{\"command\": \"kind_name\", \"kind\": 0, \"name\": \"two words\"}",
        "{\"command\": \"kind_name\", \"kind\": -1, \"name\": \"less\"}",
        "{\"command\": \"kind_name\", \"kind\": 0}",
    };
    static const int CODES[] = {REEF_ERR_NOT_FOUND, REEF_ERR_INVALID, REEF_ERR_INVALID,
                                REEF_ERR_INVALID};
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++)
        assert_int_equal(reefd_refuses(&run->box, REFUSED[i]), CODES[i]);
    json_t *tried = reefd_ask(&run->box, "{\"command\": \"kind_name\", \"kind\": 0, \"name\": "
                                         "\"tried\", \"dry_run\": true}");
    assert_true(json_is_true(json_object_get(tried, "dry_run")));
    json_decref(
        reefd_ask(&run->box, "{\"command\": \"kind_name\", \"kind\": 0, \"name\": \"words\"}"));
    json_t *status = json_of(get(run, "/v1/status"), 200);
    assert_string_equal(json_string_value(json_object_get(status, "kind_name")), "words");
    json_t *kinds = json_of(get(run, "/v1/kinds?visits=5"), 200);
    const json_t *first = json_array_get(json_object_get(kinds, "kinds"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "words");
    assert_int_equal(json_array_size(json_object_get(kinds, "visits")), 1);
    assert_int_equal(reefd_refuses(&run->box, "{\"command\": \"prune\", \"keep_last\": 0}"),
                     REEF_ERR_INVALID);
    json_t *pruned = reefd_ask(&run->box, "{\"command\": \"prune\", \"keep_last\": 1}");
    assert_int_equal(count_of(pruned, "states"), 0);
    assert_int_equal(count_of(pruned, "bytes"), 0);
    assert_code(get(run, "/v1/kinds?visits=5000"), 400);
    assert_code(get(run, "/v1/kinds?kind=0"), 400);
    assert_trains_on_and_stops(run);
}

// What kind 0 had learned when it was sealed is damaged; it begins anew.
static void damage_and_recover(const char *pool) {
    reef_error err;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_kind_recovery *found = NULL;
    size_t count = 0;
    record_damage(pool, &(reef_key){.db = REEF_DB_MEMORY, .generation = 0, .name = "index"});
    reef_status status = reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err);
    if (status == REEF_OK)
        status = reef_trainer_open(
            &trainer, store, &(reef_trainer_options){.threads = 1, .recovers_kinds = true}, &err);
    if (status == REEF_OK)
        status = reef_trainer_kinds_recover(trainer, false, &found, &count, &err);
    if (status != REEF_OK) fail_msg("%s", err.message);
    assert_int_equal(count, 1);
    free(found);
    reef_trainer_close(trainer);
    reef_store_close(store);
}

static void an_answer_without_a_damaged_kind_says_so(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 50) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    assert_trains_on_and_stops(run);
    damage_and_recover(run->box.pool);
    run_start(run, "0");
    json_t *then = json_of(post(run, "/v1/score?as_of=0", "", "a line of text\n"), 200);
    const json_t *lost = json_object_get(then, "lost_kinds"), *kind = json_array_get(lost, 0);
    assert_int_equal(json_array_size(lost), 1);
    assert_int_equal(count_of(kind, "kind"), 0);
    assert_int_equal(count_of(kind, "whole_to"), 0);
    assert_non_null(strstr(json_string_value(json_object_get(kind, "what")), "name index"));
    json_t *now = json_of(post(run, "/v1/score", "", "a line of text\n"), 200);
    assert_null(json_object_get(now, "lost_kinds"));
    // The damage is in the file for good, so the pool is not checked here.
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_memory, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(status_and_metrics_tell_what_the_memory_holds),
        TEST(frozen_is_said_by_each_request),
        TEST(kinds_are_named_while_it_trains),
        TEST(an_answer_without_a_damaged_kind_says_so),
    };
    return cmocka_run_group_tests_name("daemon memory", tests, NULL, NULL);
}
