// Words of lines, and types of lines that share them.
#include "checked.h"
#include "line_types.h"

#include <math.h>

// ---- tokens -------------------------------------------------------------------------------------

static reef_line_tokens tokens_of(const char *line) {
    reef_line_tokens tokens;
    reef_line_head head;
    reef_line_head_read((const uint8_t *)line, strlen(line), 0, &head);
    reef_line_tokens_read((const uint8_t *)line, strlen(line), &head, &tokens);
    return tokens;
}

// The tokens of a line, with a space between them: words as they stand, "*" for what is variable.
static const char *shown(const char *line) {
    static char text[4096];
    reef_line_tokens t = tokens_of(line);
    size_t words = 0, used = 0;
    for (size_t i = 0; i < t.count; i++) {
        bool variable = t.tokens[i].hash == REEF_TOKEN_VARIABLE;
        words += !variable;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.*s", i > 0 ? " " : "",
                                 variable ? 1 : t.tokens[i].bytes,
                                 variable ? "*" : line + t.tokens[i].at);
    }
    text[used] = '\0';
    assert_int_equal(t.words, words);
    return text;
}

static void expect(const char *line, const char *expected) {
    if (strcmp(shown(line), expected) != 0)
        fail_msg("%s: '%s', not '%s'", line, shown(line), expected);
}

PLAIN_TEST(words_stay_and_values_are_variable) {
    expect("job done", "job done");
    expect("took 1500 ms", "took * ms");
    expect("took 1.5 ms, -3", "took * ms *");
    expect("session r4711 open", "session * open");
    expect("10.0.0.1:8080 joined", "* joined");
    expect("commit deadbeefcafe of badge", "commit * of badge");
    expect("id 0cc175b9-c0f1-b6a8-31c3-99e269772661 gone", "id * gone");
    expect("user=alice id=17341", "user alice id *");
    expect("is it done? Yes! it is.", "is it done Yes it is");
    expect("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq x", "* x"); // a long run
    expect("", "");
    expect(" ,;: ", "");
}

PLAIN_TEST(a_status_is_a_word_and_a_number_in_brackets_is_not) {
    expect("answered 404", "answered 404");
    expect("answered 4040", "answered *");
    expect("sshd[404]: left", "sshd * left");
    expect("worker(7) left", "worker * left");
    expect("disk sda1 99%", "disk * *");
}

PLAIN_TEST(paths_are_words_unless_they_have_queries_or_numbers) {
    expect("GET /users/list now", "GET /users/list now");
    expect("GET /users/list?name=bob now", "GET * now");
    expect("GET /users/17341/list now", "GET * now");
    expect("GET /a=b,c;d now", "GET /a=b,c;d now"); // up to the next space
    expect("\"GET /users/list\"", "GET /users/list");
}

PLAIN_TEST(a_long_quoted_text_by_itself_is_a_value) {
    expect("\"GET /users HTTP/1.1\" 200 \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Firefox/9\"",
           "GET /users * 200 - *");
    expect("said \"no such file here\"", "said *");
    expect("said \"no such file\"", "said no such file"); // too short
    expect("said=\"no such file here\"", "said no such file here");
    expect("said \"no such file here", "said no such file here"); // no end
}

PLAIN_TEST(months_and_days_beside_numbers_are_variable) {
    expect("certificate ends Nov 30", "certificate ends * 30");
    expect("runs on Monday 7", "runs on * 7");
    expect("you may not", "you may not");
    expect("next Monday", "next Monday");
}

PLAIN_TEST(time_and_host_at_the_head_are_left_out) {
    expect("2026-11-30 12:00:01 started", "started");
    expect("Nov 30 12:00:01 web1 cron[7]: started", "cron * started");
    expect("Nov 30 12:00:01 ERROR root: started", "ERROR root started");
    assert_int_equal(tokens_of("Nov 30 12:00:01 web1 cron: started").tokens[0].hash,
                     tokens_of("Nov  3 09:00:59 db2 cron: started").tokens[0].hash);
}

PLAIN_TEST(a_line_has_the_severity_of_its_worst_word) {
    static const struct {
        const char *line;
        reef_severity severity;
    } CASES[] = {{"all is well", REEF_SEVERITY_NONE},
                 {"INFO done", REEF_SEVERITY_NONE},
                 {"[warn] slow", REEF_SEVERITY_WARNING},
                 {"connection refused", REEF_SEVERITY_WARNING},
                 {"level=ERROR x", REEF_SEVERITY_ERROR},
                 {"warning: write failed.", REEF_SEVERITY_ERROR},
                 {"Failure", REEF_SEVERITY_ERROR},
                 {"error: FATAL", REEF_SEVERITY_CRITICAL},
                 {"kernel: segfault at 0", REEF_SEVERITY_CRITICAL},
                 {"errors terror err0r", REEF_SEVERITY_NONE}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++)
        if (tokens_of(CASES[i].line).severity != CASES[i].severity) fail_msg("%s", CASES[i].line);
}

PLAIN_TEST(of_a_long_line_so_many_tokens_are_looked_at) {
    char line[REEF_WATCH_LINE_BYTES_MAX + 1] = "";
    for (size_t i = 0; i + 2 < sizeof(line); i += 2) memcpy(line + i, "a ", 3);
    reef_line_tokens tokens = tokens_of(line);
    assert_int_equal(tokens.count, REEF_TOKENS_MAX);
    assert_int_equal(tokens.tokens[REEF_TOKENS_MAX - 1].at, 2 * (REEF_TOKENS_MAX - 1));
}

PLAIN_TEST(any_bytes_have_tokens_within_the_line) {
    uint32_t seed = 7;
    for (size_t i = 0; i < 5000; i++) {
        size_t count = i % 60;
        uint8_t *exact = malloc(count + (count == 0));
        for (size_t k = 0; k < count; k++) {
            seed = seed * 1664525u + 1013904223u;
            uint8_t byte = (uint8_t)(seed >> 8);
            exact[k] = byte % 3 == 0 ? (uint8_t) "\0 /\"[.?\xff"[byte / 3 % 8] : byte;
        }
        reef_line_head head;
        reef_line_tokens tokens;
        reef_line_head_read(exact, count, 0, &head);
        reef_line_tokens_read(exact, count, &head, &tokens);
        size_t behind = 0;
        for (size_t k = 0; k < tokens.count; k++) {
            assert_true(tokens.tokens[k].at >= behind && tokens.tokens[k].bytes > 0);
            behind = (size_t)tokens.tokens[k].at + tokens.tokens[k].bytes;
        }
        assert_true(behind <= count);
        free(exact);
    }
}

// ---- types --------------------------------------------------------------------------------------

static int types_make(void **state) {
    reef_line_types *types = room(sizeof(*types));
    must(reef_line_types_init(types, &why));
    *state = types;
    return 0;
}

static int types_remove(void **state) {
    reef_line_types_release(*state);
    return 0;
}

#define TYPES_TEST(name) TEST_WITH(name, types_make, types_remove, reef_line_types *types)

static reef_type_match find(reef_line_types *types, uint32_t source, const char *line) {
    reef_line_tokens tokens = tokens_of(line);
    reef_type_match match;
    reef_line_types_find(types, source, &tokens, &match);
    return match;
}

static uint32_t add(reef_line_types *types, uint32_t source, const char *line, int64_t ms) {
    reef_line_tokens tokens = tokens_of(line);
    uint32_t type;
    must(reef_line_types_add(types, source, &tokens, (const uint8_t *)line, strlen(line), &type,
                             &why));
    types->types[type].rhythm.last_ms = ms;
    return type;
}

// Of the line's type, and nothing in it is new.
static void expect_known(reef_line_types *types, const char *line, uint32_t type) {
    reef_type_match match = find(types, 0, line);
    if (match.type != type || match.news >= 0)
        fail_msg("%s: type %u, news %d", line, match.type, match.news);
}

TYPES_TEST(lines_with_other_values_are_of_one_type) {
    assert_int_equal(find(types, 0, "job 12345 took 17.5 ms").type, UINT32_MAX);
    uint32_t type = add(types, 0, "job 12345 took 17.5 ms", 1);
    expect_known(types, "job 67890 took 0.25 ms", type);
    expect_known(types, "job 4711 took 1000 ms", type);
    assert_int_equal(types->types[type].lines, 3);
    assert_string_equal(types->types[type].sample, "job 12345 took 17.5 ms");
}

TYPES_TEST(another_length_or_source_is_another_type) {
    uint32_t type = add(types, 0, "the job is done", 1);
    assert_int_equal(find(types, 0, "the job is done now").type, UINT32_MAX);
    assert_int_equal(find(types, 1, "the job is done").type, UINT32_MAX);
    uint32_t other = add(types, 1, "the job is done", 1);
    assert_int_not_equal(types->types[type].name, types->types[other].name);
    // Also where two sources share a list: the number of one is 4096 more.
    assert_int_equal(find(types, 4096, "the job is done").type, UINT32_MAX);
    expect_known(types, "the job is done", type);
}

// Logarithms are rounded down to 1/4096.
static void assert_near(double bits, double exact) {
    if (bits > exact || bits < exact - 1 / 4096.0) fail_msg("%f, not %f", bits, exact);
}

TYPES_TEST(one_other_word_is_news_by_how_often_there_was_none) {
    uint32_t type = add(types, 0, "state of link is up", 1);
    for (size_t i = 0; i < 99; i++) expect_known(types, "state of link is up", type);
    reef_type_match match = find(types, 0, "state of link is down");
    assert_int_equal(match.type, type);
    assert_int_equal(match.news, 4);
    assert_near(match.bits, log2((100 + 1) / (1 - 0.5)));
    // It is learned, and the next one says less.
    expect_known(types, "state of link is down", type);
    match = find(types, 0, "state of link is gone");
    assert_near(match.bits, log2((102 + 1) / (2 - 0.5)));
    // A value where a word stood is no word.
    assert_int_equal(find(types, 0, "state of link is 12345").news, -1);
}

TYPES_TEST(too_many_other_words_are_another_type_whose_nearest_is_told) {
    uint32_t type = add(types, 0, "a b c d e f g h", 1);
    (void)add(types, 0, "s t u v w x y z", 1);
    assert_int_equal(find(types, 0, "a b c d e f 1 h").type, type);
    reef_type_match match = find(types, 0, "a b c d e X Y Z");
    assert_int_equal(match.type, UINT32_MAX);
    assert_int_equal(match.nearest, type);
    assert_int_equal(find(types, 0, "a b c d e f X Y").type, type); // two of eight
    // Nor may all be other ones.
    (void)add(types, 0, "hello", 1);
    assert_int_equal(find(types, 0, "goodbye").type, UINT32_MAX);
}

TYPES_TEST(a_place_is_open_after_eight_words) {
    uint32_t type = add(types, 0, "user a logged in", 1);
    char line[64];
    for (char user = 'b'; user < 'a' + REEF_PLACE_WORDS_MAX + 1; user++) {
        (void)snprintf(line, sizeof(line), "user %c logged in", user);
        assert_int_equal(find(types, 0, line).news, 1);
    }
    assert_true(types->types[type].places[1].is_open);
    expect_known(types, "user z logged in", type);
    expect_known(types, "user 12345 logged in", type);
    // The others are not.
    assert_int_equal(find(types, 0, "user y logged out").news, 3);
}

TYPES_TEST(lines_without_words_have_types_too) {
    uint32_t numbers = add(types, 0, "12345 67890", 1), empty = add(types, 0, "", 1);
    expect_known(types, "17341 1000000", numbers);
    expect_known(types, "", empty);
}

// A line that shares no word with those of other numbers.
static const char *line_of(size_t number) {
    static char line[64];
    char words[4][8] = {""};
    for (size_t w = 0; w < 4; w++)
        for (size_t i = 0, rest = number; i < 5; i++, rest /= 26)
            words[w][i] = (char)('a' + rest % 26);
    (void)snprintf(line, sizeof(line), "%sq %sr %ss %st", words[0], words[1], words[2], words[3]);
    return line;
}

enum { AT_ONCE = REEF_WATCH_TYPES_MAX / 16 }; // that go

TYPES_TEST(where_there_is_no_room_those_go_that_came_least_recently) {
    for (size_t i = 0; i < REEF_WATCH_TYPES_MAX; i++)
        (void)add(types, (uint32_t)(i % 64), line_of(i), (int64_t)(2 * i + 2));
    assert_int_equal(types->count, REEF_WATCH_TYPES_MAX);
    types->types[0].rhythm.last_ms = 1000000; // it came again
    types->types[2].decision = REEF_DECISION_NORMAL;
    for (size_t i = 0; i < AT_ONCE; i++)
        (void)add(types, (uint32_t)(i % 64), line_of(REEF_WATCH_TYPES_MAX + i), 1000000);
    assert_int_equal(types->count, REEF_WATCH_TYPES_MAX);
    assert_int_equal(types->free_count, 0);
    for (size_t i = 0; i < REEF_WATCH_TYPES_MAX + AT_ONCE; i++) {
        bool gone = i >= 1 && i <= AT_ONCE + 1 && i != 2;
        if ((find(types, (uint32_t)(i % 64), line_of(i)).type == UINT32_MAX) != gone)
            fail_msg("type %zu", i);
    }
}

TYPES_TEST(where_all_was_decided_about_the_oldest_go) {
    for (size_t i = 0; i < REEF_WATCH_TYPES_MAX; i++) {
        (void)add(types, (uint32_t)(i % 64), line_of(i), (int64_t)(2 * i + 2));
        types->types[i].decision = REEF_DECISION_FAULT;
    }
    (void)add(types, 0, line_of(REEF_WATCH_TYPES_MAX), 1000000);
    assert_int_equal(types->free_count, AT_ONCE - 1);
    assert_int_equal(find(types, AT_ONCE % 64, line_of(AT_ONCE)).type, AT_ONCE);
    assert_int_equal(find(types, 0, line_of(0)).type, UINT32_MAX);
}

TYPES_TEST(what_is_forgotten_is_not_found_and_its_place_is_free) {
    uint32_t first = add(types, 0, "the job is done", 1), second = add(types, 0, "a b c d", 1);
    expect_known(types, "the job is done", first);
    reef_line_types_remove(types, first);
    assert_int_equal(find(types, 0, "the job is done").type, UINT32_MAX);
    expect_known(types, "a b c d", second);
    (void)add(types, 0, "the job is done", 1);
    assert_int_not_equal(find(types, 0, "the job is done").type, UINT32_MAX);
}

// ---- variants -----------------------------------------------------------------------------------

static uint32_t variant(reef_line_types *types, uint32_t type, size_t place, uint32_t word) {
    uint32_t found;
    must(reef_line_types_variant(types, type, place, word, &found, &why));
    return found;
}

TYPES_TEST(each_number_at_a_place_has_a_variant) {
    uint32_t type = add(types, 0, "answered 200 in 12345 us", 1);
    assert_int_equal(variant(types, type, 1, 200), UINT32_MAX); // few lines: none yet
    types->types[type].lines = 100;
    uint32_t ok = variant(types, type, 1, 200), lost = variant(types, type, 1, 404);
    assert_true(ok != lost && ok != type && lost != type);
    assert_int_not_equal(variant(types, type, 2, 200), ok);
    assert_int_equal(variant(types, type, 1, 200), ok);
    assert_true(types->types[ok].is_variant);
    assert_string_equal(types->types[ok].sample, "answered 200 in 12345 us");
    // They are no types that a line is of.
    expect_known(types, "answered 200 in 4711 us", type);
    reef_line_types_remove(types, ok);
    expect_known(types, "answered 200 in 4711 us", type);
    // And each is found again, when others took its slot, too.
    for (uint32_t word = 0; word < 1000; word++) (void)variant(types, type, 3, word);
    size_t count = types->count;
    assert_int_equal(variant(types, type, 1, 404), lost);
    for (uint32_t word = 0; word < 1000; word++) (void)variant(types, type, 3, word);
    assert_int_equal(types->count, count);
}

TYPES_TEST(a_variant_does_not_take_the_place_of_its_type) {
    for (size_t i = 0; i < REEF_WATCH_TYPES_MAX; i++)
        (void)add(types, (uint32_t)(i % 64), line_of(i), 1); // all of one time
    for (uint32_t word = 2; word < 6; word++) assert_int_not_equal(variant(types, 0, 1, word), 0);
    expect_known(types, line_of(0), 0);
}

RUN_TESTS
