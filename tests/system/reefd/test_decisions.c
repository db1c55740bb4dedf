// Incidents over HTTP, of a reefd that watches lines: what rang is listed, of logs by time, a decision needs the
// token and is seen in the list, and one that makes no sense changes nothing.
#include "http_run.h"

#define LINES 1800 // of ten seconds each: five hours

// Requests, and a fault in between.
static void write_log(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < LINES; i++) {
        unsigned s = 10 * i;
        fprintf(file, "2026-11-01T%02u:%02u:%02u app[%u]: request %u took %u ms\n", s / 3600,
                s / 60 % 60, s % 60, 100 + i % 7, i, i * 31 % 97);
        if (i == LINES / 2)
            fprintf(file, "2026-11-01T%02u:%02u:%02u.125 app[100]: error: disk is full\n", s / 3600,
                    s / 60 % 60, s % 60);
    }
    assert_int_equal(fclose(file), 0);
}

static void make_watching_pool(sandbox *box) {
    reef_config config = tiny_config();
    config.memory = REEF_MEMORY_BYTES_MIN;
    config.net_share = 0;
    config.watch = true;
    sandbox_remove_pool(box);
    sandbox_make_pool_of(box, &config);
}

static int setup_watching(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    make_watching_pool(box);
    write_log(box->text);
    LEARN(box, "--stay", HTTP(box));
    while (integer(json_of(get(box, "/v1/status"), 200), "watch.lines") < LINES + 1) sleep_ms(20);
    (void)reefd_tell(box, "drain"); // and it is in a commit
    return 0;
}

static json_t *decide(const sandbox *box, const char *arguments, int code) {
    char body[256];
    snprintf(body, sizeof(body), "{\"command\": \"incident\", %s}", arguments);
    return json_of(post(box, "/v1/command", BEARER, body), code);
}

static json_t *only_incident(const sandbox *box) {
    json_t *list = json_of(get(box, "/v1/incidents"), 200);
    assert_int_equal(length(list, "incidents"), 1);
    return json_at(list, "incidents.0");
}

BOX_TEST_OF(what_rang_is_listed_and_decided, setup_watching) {
    const json_t *incident = only_incident(box);
    assert_int_equal(integer(incident, "incident"), 1);
    assert_non_null(strstr(string(incident, "title"), "error: disk is full"));
    // People read it in the log, too.
    assert_true(reefd_said(box, "incident 1 rings: error in /"));
    // To the millisecond.
    assert_true(json_number_value(json_at(incident, "first_time")) == 1793500200.125);
    assert_null(json_at(incident, "decision"));
    static const char MUTE[] =
        "{\"command\": \"incident\", \"incident\": 1, \"decision\": \"mute\", \"for_s\": 604800}";
    assert_code(post(box, "/v1/command", "", MUTE), 401);
    assert_null(json_at(only_incident(box), "decision"));
    json_t *made = json_of(post(box, "/v1/command", BEARER, MUTE), 200);
    assert_int_equal(integer(made, "types"), 1);
    assert_string_equal(string(only_incident(box), "decision"), "mute");
    (void)decide(box, "\"incident\": 1, \"decision\": \"normal\"", 200);
    assert_string_equal(string(only_incident(box), "decision"), "normal");
}

BOX_TEST_OF(a_decision_that_makes_no_sense_changes_nothing, setup_watching) {
    static const struct {
        int code;
        const char *arguments, *says;
    } WRONG[] = {
        {404, "\"incident\": 2, \"decision\": \"normal\"", "2"},
        {404, "\"incident\": 9007199254740993, \"decision\": \"normal\"", "9007199254740993"},
        {400, "\"incident\": 0, \"decision\": \"normal\"", "no incident 0"},
        {400, "\"incident\": -1, \"decision\": \"normal\"", "no incident -1"},
        {400, "\"incident\": 1, \"decision\": \"ignore\"", "normal, mute and fault"},
        {400, "\"incident\": 1, \"decision\": \"none\"", "normal, mute and fault"},
        {400, "\"incident\": 1, \"decision\": \"mute\"", "1 to 31536000 seconds"},
        {400, "\"incident\": 1, \"decision\": \"mute\", \"for_s\": 0", "1 to 31536000 seconds"},
        {400, "\"incident\": 1, \"decision\": \"mute\", \"for_s\": -5", "1 to 31536000 seconds"},
        {400, "\"incident\": 1, \"decision\": \"mute\", \"for_s\": 31536001", "for_s 31536001"},
        {400, "\"incident\": 1, \"decision\": \"fault\", \"for_s\": 5", "nothing else has a time"},
    };
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
        const char *message =
            string(decide(box, WRONG[i].arguments, WRONG[i].code), "error.message");
        if (strstr(message, WRONG[i].says) == NULL) fail_msg("%s: %s", WRONG[i].arguments, message);
    }
    assert_null(json_at(only_incident(box), "decision"));
    json_t *events = json_of(get(box, "/v1/timeline"), 200);
    for (size_t i = 0; i < json_array_size(json_at(events, "events")); i++)
        assert_string_not_equal(string(json_array_get(json_at(events, "events"), i), "event"),
                                "incident_decided");
}

BOX_TEST(a_pool_that_watches_no_lines_has_nothing_to_decide) {
    await_steps(box, 1);
    assert_true(json_is_null(json_at(reefd_status(box), "watch")));
    assert_int_equal(length(json_of(get(box, "/v1/incidents"), 200), "incidents"), 0);
    const json_t *failed = decide(box, "\"incident\": 1, \"decision\": \"normal\"", 400);
    assert_non_null(strstr(string(failed, "error.message"), "watches no lines"));
    assert_trains_on_and_stops(box);
}

// ---- two logs -----------------------------------------------------------------------------------

#define HOURS 5

static void write_lines(const char *path, unsigned every_s, const char *program, unsigned at_s) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned s = 0; s < HOURS * 3600; s += every_s) {
        const char *text = s == at_s ? "error: disk is full" : "request done";
        fprintf(file, "2026-11-01T%02u:%02u:%02u %s[%u]: %s\n", s / 3600, s / 60 % 60, s % 60,
                program, 100 + s % 7, text);
    }
    assert_int_equal(fclose(file), 0);
}

static int setup_followed(void **state) {
    char path[256], log[300], other[300];
    sandbox *box = sandbox_new(state, sizeof(*box));
    make_watching_pool(box);
    snprintf(path, sizeof(path), "%s/other", box->directory);
    snprintf(log, sizeof(log), "follow:%s", box->text);
    snprintf(other, sizeof(other), "follow:%s", path);
    write_lines(box->text, 2, "app", 4 * 3600);
    write_lines(path, 60, "jobs", 4 * 3600 + 60);
    START(box, "--source", log, "--source", other, "--threads", "1", HTTP(box));
    const json_int_t lines = HOURS * 3600 / 2 + HOURS * 60;
    while (integer(json_of(get(box, "/v1/status"), 200), "watch.lines") < lines) sleep_ms(20);
    (void)reefd_tell(box, "commit");
    return 0;
}

// One has thirty times as many lines: by turns of bytes the other would be ahead by hours.
BOX_TEST_OF(what_two_logs_say_at_one_time_is_one_incident, setup_followed) {
    const json_t *incident = only_incident(box);
    assert_int_equal(length(incident, "events"), 2);
    assert_string_not_equal(string(incident, "events.0.source"),
                            string(incident, "events.1.source"));
    const json_t *watch = json_at(json_of(get(box, "/v1/status"), 200), "watch");
    assert_int_equal(integer(watch, "incidents"), 1);
}

RUN_TESTS
