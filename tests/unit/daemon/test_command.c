// Commands: strict parsing, and answers that say what happened.
#include "reef_pool_json.h"
#include "routes.h"
#include "test.h"

static reef_status parse(reef_command *command, const char *line, reef_error *err) {
    return reef_command_parse(command, line, strlen(line), err);
}

PLAIN_TEST(each_command_is_understood) {
    reef_command command;
    reef_error err;
    assert_int_equal(parse(&command, "{\"command\": \"status\"}", &err), REEF_OK);
    assert_int_equal(command.kind, REEF_COMMAND_STATUS);
    assert_int_equal(parse(&command, "{\"command\": \"stop\"}", &err), REEF_OK);
    assert_int_equal(command.kind, REEF_COMMAND_STOP);
    assert_int_equal(parse(&command, "{\"command\": \"commit\"}", &err), REEF_OK);
    assert_int_equal(command.kind, REEF_COMMAND_TRAINER);
    assert_int_equal(command.request.kind, REEF_REQUEST_COMMIT);
    assert_int_equal(parse(&command, "{\"command\": \"seal\"}", &err), REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_SEAL);
    assert_string_equal(command.request.order.seal_dtype, ""); // the pool's own
    assert_int_equal(parse(&command, "{\"command\": \"seal\", \"seal_dtype\": \"int8\"}", &err),
                     REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_SEAL);
    assert_string_equal(command.request.order.seal_dtype, "int8");
    assert_int_equal(parse(&command, "{\"side\": 5, \"command\": \"grow\"}", &err), REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_GROW);
    assert_int_equal(command.request.order.number, 5);
    assert_int_equal(parse(&command, "{\"command\": \"snapshot\", \"name\": \"a.b\"}", &err),
                     REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_SNAPSHOT);
    assert_string_equal(command.request.order.name, "a.b");
    assert_int_equal(
        parse(&command, "{\"command\": \"snapshot_remove\", \"names\": [\"a.b\", \"c\"]}", &err),
        REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_SNAPSHOT_REMOVE);
    assert_int_equal(command.request.name_count, 2);
    assert_string_equal(command.request.names[0], "a.b");
    assert_string_equal(command.request.names[1], "c");
    reef_request_release(&command.request);
    assert_null(command.request.names);
}

PLAIN_TEST(freeze_takes_everything_unless_a_range_is_given) {
    reef_command command;
    reef_error err;
    assert_int_equal(parse(&command, "{\"command\": \"freeze\"}", &err), REEF_OK);
    const reef_freeze *freeze = &command.request.order.freeze;
    assert_int_equal(freeze->layer, -1);
    assert_int_equal(freeze->first, 0);
    assert_true(freeze->last > UINT32_MAX);
    assert_true(freeze->usage_above == 0.0);
    assert_false(freeze->thaw || freeze->dry_run);
    assert_int_equal(parse(&command,
                           "{\"command\": \"freeze\", \"layer\": 1, \"first\": 2, \"last\": 3, "
                           "\"usage_above\": 0.5, \"thaw\": true, \"dry_run\": true}",
                           &err),
                     REEF_OK);
    assert_int_equal(freeze->layer, 1);
    assert_int_equal(freeze->first, 2);
    assert_int_equal(freeze->last, 3);
    assert_true(freeze->usage_above == 0.5);
    assert_true(freeze->thaw && freeze->dry_run);
    assert_int_equal(parse(&command, "{\"command\": \"thaw\", \"usage_above\": 0}", &err), REEF_OK);
    assert_true(freeze->thaw);
    assert_false(freeze->dry_run);
}

PLAIN_TEST(a_watch_is_changed_in_what_is_given) {
    reef_command command;
    reef_error err;
    const reef_watch_options *watch = &command.request.order.watch;
    assert_int_equal(parse(&command, "{\"command\": \"watch\", \"budget\": 2}", &err), REEF_OK);
    assert_int_equal(command.request.order.kind, REEF_CREW_WATCH);
    assert_true(watch->budget == 2.0 && watch->gap_s == 0);
    assert_int_equal(parse(&command, "{\"command\": \"watch\", \"gap_s\": 300}", &err), REEF_OK);
    assert_true(watch->budget == 0.0 && watch->gap_s == 300);
    assert_int_equal(
        parse(&command, "{\"command\": \"watch\", \"quiet_s\": 60, \"forget_days\": 9}", &err),
        REEF_OK);
    assert_true(watch->gap_s == 0 && watch->quiet_s == 60 && watch->forget_days == 9);
}

PLAIN_TEST(a_decision_names_its_incident) {
    reef_command command;
    reef_error err;
    const reef_crew_order *order = &command.request.order;
    assert_int_equal(parse(&command,
                           "{\"command\": \"incident\", \"incident\": 7, \"decision\": "
                           "\"mute\", \"for_s\": 31536000}",
                           &err),
                     REEF_OK);
    assert_int_equal(order->kind, REEF_CREW_DECIDE);
    assert_int_equal(order->incident, 7);
    assert_int_equal(order->decision, REEF_DECISION_MUTE);
    assert_int_equal(order->for_s, REEF_MUTE_S_MAX);
    assert_int_equal(parse(&command,
                           "{\"command\": \"incident\", \"incident\": 7, \"decision\": \"normal\"}",
                           &err),
                     REEF_OK);
    assert_int_equal(order->decision, REEF_DECISION_NORMAL);
    assert_int_equal(order->for_s, 0);
}

PLAIN_TEST(what_is_not_understood_is_refused_with_a_reason) {
    static const char *const LINES[] = {
        "",
        "garbage",
        "[]",
        "7",
        "{}",
        "{\"command\": 5}",
        "{\"command\": \"nonsense\"}",
        "{\"command\": \"status\"} trailing",
        "{\"command\": \"status\", \"command\": \"stop\"}",
        "{\"command\": \"status\", \"verbose\": true}",
        "{\"command\": \"seal\", \"seal_dtype\": \"f16\"}",
        "{\"command\": \"seal\", \"seal_dtype\": 16}",
        "{\"command\": \"seal\", \"dtype\": \"int8\"}",
        "{\"command\": \"grow\"}",
        "{\"command\": \"grow\", \"side\": 0}",
        "{\"command\": \"grow\", \"side\": -4}",
        "{\"command\": \"grow\", \"side\": 4294967296}",
        "{\"command\": \"grow\", \"side\": 4.5}",
        "{\"command\": \"grow\", \"side\": \"4\"}",
        "{\"command\": \"kind_name\", \"kind\": 0}",
        "{\"command\": \"kind_name\", \"name\": \"a\"}",
        "{\"command\": \"kind_name\", \"kind\": 65536, \"name\": \"a\"}",
        "{\"command\": \"kind_name\", \"kind\": 0, \"name\": \"a\\u0000b\"}",
        "{\"command\": \"watch\", \"budget\": \"2/day\"}",
        "{\"command\": \"watch\", \"gap_s\": -1}",
        "{\"command\": \"watch\", \"gap_s\": 4294967296}",
        "{\"command\": \"watch\", \"quiet_s\": -1}",
        "{\"command\": \"watch\", \"forget_days\": 4294967296}",
        "{\"command\": \"watch\", \"gap_s\": 1.5}",
        "{\"command\": \"watch\", \"gap\": 60}",
        "{\"command\": \"incident\"}",
        "{\"command\": \"incident\", \"incident\": 1}",
        "{\"command\": \"incident\", \"decision\": \"fault\"}",
        "{\"command\": \"incident\", \"incident\": 0, \"decision\": \"fault\"}",
        "{\"command\": \"incident\", \"incident\": \"1\", \"decision\": \"fault\"}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"none\"}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": 2}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"mute\"}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"mute\", \"for_s\": 0}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"mute\", \"for_s\": 1.5}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"mute\", \"for_s\": 31536001}",
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"normal\", \"for_s\": 60}",
        "{\"command\": \"prune\"}",
        "{\"command\": \"prune\", \"keep_last\": 0}",
        "{\"command\": \"prune\", \"keep_last\": 65537}",
        "{\"command\": \"prune\", \"keep_last\": \"1\"}",
        "{\"command\": \"freeze\", \"layr\": 0}",
        "{\"command\": \"freeze\", \"first\": -1}",
        "{\"command\": \"freeze\", \"first\": 5, \"last\": 4}",
        "{\"command\": \"freeze\", \"usage_above\": 1}",
        "{\"command\": \"freeze\", \"usage_above\": -0.1}",
        "{\"command\": \"snapshot\"}",
        "{\"command\": \"snapshot\", \"name\": 7}",
        "{\"command\": \"snapshot_remove\"}",
        "{\"command\": \"snapshot_remove\", \"names\": []}",
        "{\"command\": \"snapshot_remove\", \"names\": \"a\"}",
        "{\"command\": \"snapshot_remove\", \"names\": [\"a\", 7]}",
        "{\"command\": \"snapshot_remove\", \"names\": [\"\"]}",
        "{\"command\": \"snapshot\", \"name\": "
        "\"0123456789012345678901234567890123456789012345678901234567890123456\"}",
        "\xff\xfe",
        "{\"command\": \"\xff\"}",
    };
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++) {
        reef_command command;
        reef_error err = {0};
        if (parse(&command, LINES[i], &err) != REEF_ERR_INVALID) fail_msg("accepted: %s", LINES[i]);
        assert_true(err.message[0] != 0);
        json_t *answer = reef_reply_error(&err);
        char *text = json_dumps(answer, JSON_COMPACT);
        assert_non_null(text); // whatever came in, the answer is JSON
        assert_null(strchr(text, '\n'));
        free(text);
        json_decref(answer);
    }
}

PLAIN_TEST(random_bytes_are_never_a_command) {
    uint64_t seed = 3;
    char line[64];
    for (size_t round = 0; round < 20000; round++) {
        // Half of the lines are a good one with one byte changed.
        size_t count = (size_t)(round % sizeof(line));
        static const char GOOD[] = "{\"command\": \"grow\", \"side\": 12}";
        if (round % 2) {
            count = sizeof(GOOD) - 1;
            memcpy(line, GOOD, count);
        }
        for (size_t i = 0; i < (round % 2 ? 1 : count); i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            line[round % 2 ? (seed >> 40) % count : i] = (char)(seed >> 33);
        }
        reef_command command;
        reef_error err;
        reef_status status = reef_command_parse(&command, line, count, &err);
        if (status == REEF_OK) {
            assert_int_equal(command.request.order.kind, REEF_CREW_GROW);
            assert_true(command.request.order.number >= 1);
        }
    }
}

PLAIN_TEST(an_error_answers_its_status_and_its_message) {
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_FULL, "no room for \xff");
    json_t *answer = reef_reply_error(&err);
    json_t *error = json_object_get(answer, "error");
    assert_string_equal(json_string_value(json_object_get(error, "status")), "full");
    assert_string_equal(json_string_value(json_object_get(error, "message")), "no room for ?");
    json_decref(answer);
}

// A name may have any bytes, and a message may end within a character: what can be read stays.
PLAIN_TEST(only_bytes_that_are_no_character_are_replaced) {
    static const char *const TEXTS[][2] = {
        {"\xd0\xb6\xd0", "\xd0\xb6?"},   // cut
        {"\xb6 \xd0\xb6", "? \xd0\xb6"}, // begun in the middle
        {"\xe2\x82\xac\xe2\x82"
         "a",
         "\xe2\x82\xac??a"},                               // the next one begins too soon
        {"\xf0\x9f\xaa\xb8\xf5", "\xf0\x9f\xaa\xb8?"},     // no first byte
        {"\xc3\xa9\xed\xa0\x80\xc0\x80", "\xc3\xa9?????"}, // half of a pair, and too long a form
    };
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(*TEXTS); i++) {
        reef_error err;
        (void)reef_fail(&err, REEF_ERR_INVALID, "%s", TEXTS[i][0]);
        json_t *answer = reef_reply_error(&err);
        const json_t *error = json_object_get(answer, "error");
        assert_string_equal(json_string_value(json_object_get(error, "message")), TEXTS[i][1]);
        json_decref(answer);
    }
}

PLAIN_TEST(answers_have_what_the_trainer_did) {
    reef_request request = {
        .kind = REEF_REQUEST_ORDER, .order = {.kind = REEF_CREW_FREEZE}, .done = {.changed = 12}};
    request.last.commit.number = 4;
    request.last.commit.root[0] = 0xab;
    json_t *result = reef_command_result(&request);
    assert_int_equal(json_integer_value(json_object_get(result, "changed")), 12);
    json_t *last = json_object_get(result, "last_commit");
    assert_int_equal(json_integer_value(json_object_get(last, "number")), 4);
    assert_string_equal(json_string_value(json_object_get(last, "root")),
                        "ab000000000000000000000000000000");
    json_decref(result);
}

RUN_TESTS
