// A daemon on a pool with context memories: what it says of them, and frozen questions.
#include "http_run.h"

#include "damaged_record.h"
#include "reef_kinds.h"

BOX_TEST(status_and_metrics_tell_what_the_memory_holds) {
    await_count(box, "step", 50);
    json_t *status = reefd_status(box);
    const json_t *memory = json_at(status, "context_memory");
    assert_true(integer(memory, "learned_bytes") > 50 * 32);
    assert_in_range(integer(memory, "bytes"), 1, 4 << 20);
    assert_int_equal(integer(memory, "bytes_max"), 4 << 20);
    assert_true(number(memory, "used_share") > 0.0);
    double sum = 0.0;
    size_t i;
    const json_t *input;
    json_array_foreach(json_at(memory, "inputs"), i, input) sum += number(input, "share");
    assert_true(sum > 0.999 && sum < 1.001);
    // No other kind is being learned.
    assert_int_equal(integer(status, "kind"), integer(status, "generation"));
    assert_true(json_equal(json_at(status, "kind_memory"), memory));
    // The median of losses with the memory's help.
    assert_true(number(status, "bits_per_byte") > 0);
    assert_null(json_at(status, "not_learned_bytes")); // all of the stream is learned

    static const char *const NAMES[] = {
        "reef_generation_memory_learned_bytes{generation=\"0\"} ",
        "reef_generation_memory_bytes{generation=\"0\"} ",
        "reef_generation_memory_used_ratio{generation=\"0\"} 0.",
        "reef_kind 1\n",
        "reef_kinds 2\n",
        "reef_kind_learned_bytes{kind=\"0\",name=\"\"} ",
        "reef_kind_visits{kind=\"0\",name=\"\"} 1\n",
        "reef_kind_loss{kind=\"0\",name=\"\"} ",
    };
    await_steps(box, 30);
    (void)reefd_tell(box, "seal");
    char *metrics = await_metrics(box, NAMES, sizeof(NAMES) / sizeof(*NAMES));
    assert_null(strstr(metrics, "not_learned"));
    assert_trains_on_and_stops(box);
}

static double bits_of(sandbox *box, const char *target, const char *text) {
    return number(json_of(post(box, target, "", text), 200), "bits");
}

BOX_TEST(frozen_is_said_by_each_request) {
    // What repeats itself is foreseen by a memory that adapts.
    static const char TEXT[] = "Q%7 never seen, Q%7 never seen, Q%7 never seen, Q%7 never seen\n";
    await_count(box, "step", 50);
    reefd_snapshot(box, "then");
    double adapts = bits_of(box, "/v1/score?as_of=then", TEXT);
    double frozen = bits_of(box, "/v1/score?as_of=then&frozen=1", TEXT);
    double alone = bits_of(box, "/v1/score?as_of=then&frozen=alone", TEXT);
    assert_true(adapts < frozen && frozen < alone);
    // The model that is kept does not remember what was asked last.
    assert_true(bits_of(box, "/v1/score?as_of=then", TEXT) == adapts);
    assert_true(bits_of(box, "/v1/score?frozen=1&as_of=then", TEXT) == frozen);
    assert_true(bits_of(box, "/v1/score?as_of=then&frozen=0", TEXT) == adapts);
    assert_true(bits_of(box, "/v1/score?as_of=then&frozen=alone", TEXT) == alone);
    assert_code(post(box, "/v1/score?frozen=yes", "", TEXT), 400);

    static const char *const BODIES[] = {
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0}",
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0, \"frozen\": \"alone\"}",
        "{\"prompt\": \"Q%7 Q%7 Q%7 Q\", \"bytes\": 40, \"temperature\": 0, \"frozen\": false}",
    };
    const char *texts[3]; // of one state
    for (size_t i = 0; i < 3; i++)
        texts[i] =
            string(json_of(post(box, "/v1/generate?as_of=then", "", BODIES[i]), 200), "text");
    assert_int_equal(strlen(texts[0]), 40);
    assert_string_not_equal(texts[0], texts[1]);
    assert_string_equal(texts[0], texts[2]);
    assert_code(post(box, "/v1/generate", "", "{\"prompt\": \"a\", \"frozen\": true}"), 200);
    assert_code(post(box, "/v1/generate", "", "{\"prompt\": \"a\", \"frozen\": 1}"), 400);
    assert_trains_on_and_stops(box);
}

BOX_TEST(kinds_are_named_while_it_trains) {
    await_count(box, "step", 50);
    static const char *const REFUSED[] = {
        "{\"command\": \"kind_name\", \"kind\": 5, \"name\": \"five\"}",
        "{\"command\": \"kind_name\", \"kind\": 0, \"name\": \"two words\"}",
        "{\"command\": \"kind_name\", \"kind\": -1, \"name\": \"less\"}",
        "{\"command\": \"kind_name\", \"kind\": 0}",
    };
    static const int CODES[] = {REEF_ERR_NOT_FOUND, REEF_ERR_INVALID, REEF_ERR_INVALID,
                                REEF_ERR_INVALID};
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++)
        assert_int_equal(reefd_refuses(box, REFUSED[i]), CODES[i]);
    assert_true(is_true(reefd_ask(box, "{\"command\": \"kind_name\", \"kind\": 0, "
                                       "\"name\": \"tried\", \"dry_run\": true}"),
                        "dry_run"));
    (void)reefd_ask(box, "{\"command\": \"kind_name\", \"kind\": 0, \"name\": \"words\"}");
    assert_string_equal(string(reefd_status(box), "kind_name"), "words");
    json_t *kinds = json_of(get(box, "/v1/kinds?visits=5"), 200);
    assert_string_equal(string(kinds, "kinds.0.name"), "words");
    assert_int_equal(length(kinds, "visits"), 1);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"prune\", \"keep_last\": 0}"),
                     REEF_ERR_INVALID);
    json_t *pruned = reefd_ask(box, "{\"command\": \"prune\", \"keep_last\": 1}");
    assert_int_equal(integer(pruned, "states"), 0);
    assert_int_equal(integer(pruned, "bytes"), 0);
    assert_code(get(box, "/v1/kinds?visits=5000"), 400);
    assert_code(get(box, "/v1/kinds?kind=0"), 400);
    assert_trains_on_and_stops(box);
}

// What kind 0 had learned when it was sealed is damaged; it begins anew.
static void damage_and_recover(const char *pool) {
    reef_error err;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_kind_recovery *found = NULL;
    size_t count = 0;
    record_damage(pool, &(reef_key){.db = REEF_DB_MEMORY, .generation = 0, .name = "mixer"});
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

BOX_TEST(an_answer_without_a_damaged_kind_says_so) {
    await_count(box, "step", 50);
    (void)reefd_tell(box, "seal");
    assert_trains_on_and_stops(box);
    damage_and_recover(box->pool);
    LEARN(box, HTTP(box));
    json_t *then = json_of(post(box, "/v1/score?as_of=0", "", "a line of text\n"), 200);
    assert_int_equal(length(then, "lost_kinds"), 1);
    assert_int_equal(integer(then, "lost_kinds.0.kind"), 0);
    assert_int_equal(integer(then, "lost_kinds.0.whole_to"), 0);
    assert_non_null(strstr(string(then, "lost_kinds.0.what"), "name mixer"));
    json_t *now = json_of(post(box, "/v1/score", "", "a line of text\n"), 200);
    assert_null(json_at(now, "lost_kinds"));
}

// The last one leaves damage for good.

RUN_TESTS
