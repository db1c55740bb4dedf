// A message of syslog is one line, in whichever form and framing it came.
#include "syslog_internal.h"
#include "test.h"

#include <arpa/inet.h>
#include <time.h>

#define NOON_MS UINT64_C(1796126400000) // 2026-12-01T12:00:00Z

static const char *line_at(const char *text, size_t bytes, uint64_t received_ms) {
    reef_syslog_minute minute = {0};
    uint8_t *out = room(REEF_SYSLOG_LINE_BYTES_MAX + 1);
    const size_t count =
        reef_syslog_line_write(out, (const uint8_t *)text, bytes, "10.0.0.7", received_ms, &minute);
    out[count] = '\0';
    return (const char *)out;
}

static const char *line_of(const char *text) {
    return line_at(text, strlen(text), NOON_MS);
}

// ---- forms --------------------------------------------------------------------------------------

PLAIN_TEST(each_form_is_the_same_line) {
    static const char LINE[] = "2026-11-30T23:59:58.000Z web1 nginx[812]: state ok\n";
    assert_string_equal(line_of("<13>1 2026-11-30T23:59:58Z web1 nginx 812 - - state ok"), LINE);
    assert_string_equal(
        line_of("<13>1 2026-12-01T00:59:58+01:00 web1 nginx 812 ID [a@1 b=\"\\\"]\"]"
                "[c d=\"e\"] \xef\xbb\xbfstate ok\n"),
        LINE);
    assert_string_equal(line_of("<13>2026-11-30T18:29:58-05:30 web1 nginx[812]: state ok"), LINE);
    assert_string_equal(line_of("<13>Nov 30 23:59:58 web1 nginx[812]: state ok\r\n"), LINE);
    assert_string_equal(line_of("Nov 30 23:59:58 web1 nginx[812]: state ok"), LINE);
}

PLAIN_TEST(what_a_form_has_not_is_filled_in) {
    assert_string_equal(line_of("<13>Dec  1 11:00:00 nginx[812]: state ok"),
                        "2026-12-01T11:00:00.000Z 10.0.0.7 nginx[812]: state ok\n");
    assert_string_equal(line_of("<13>Dec 1 11:00:00 web1 su: state ok"),
                        "2026-12-01T11:00:00.000Z web1 su: state ok\n");
    assert_string_equal(line_of("<13>Dec 01 11:00:00 web1 state is ok"),
                        "2026-12-01T11:00:00.000Z web1 unknown: state is ok\n");
    assert_string_equal(line_of("<13>1 - - - - - - state ok"),
                        "2026-12-01T12:00:00.000Z 10.0.0.7 unknown: state ok\n");
    assert_string_equal(line_of("<13>state ok"),
                        "2026-12-01T12:00:00.000Z 10.0.0.7 unknown: state ok\n");
    assert_string_equal(line_of("13> state"),
                        "2026-12-01T12:00:00.000Z 10.0.0.7 unknown: 13> state\n");
    assert_string_equal(line_of("<13>1 2026-11-30T23:59:58.123456Z web1 a - - -"), "");
    assert_string_equal(line_of("<13>"), "");
    assert_string_equal(line_of(""), "");
}

PLAIN_TEST(what_is_no_time_stays_text) {
    static const char *const TEXTS[] = {
        "Nov 30 24:00:00 a b: c",           "Nov 32 10:00:00 a b: c",
        "Now 30 10:00:00 a b: c",           "2026-13-01T00:00:00Z a b: c",
        "2026-11-30T23:59:58 a b: c",       "2026-11-30 23:59:58 a b: c",
        "1 2026-11-30T23:59:58Z web1 nginx"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(*TEXTS); i++) {
        char wanted[200];
        snprintf(wanted, sizeof(wanted), "2026-12-01T12:00:00.000Z 10.0.0.7 unknown: %s\n",
                 TEXTS[i]);
        assert_string_equal(line_of(TEXTS[i]), wanted);
    }
}

PLAIN_TEST(a_time_without_a_year_is_of_the_last_one_that_fits) {
    const uint64_t new_year = UINT64_C(1798761660000); // 2027-01-01T00:01:00Z
    static const char TEXT[] = "<13>Dec 31 23:59:59 a b: c", SOON[] = "<13>Jan  1 00:02:00 a b: c";
    assert_string_equal(line_at(TEXT, strlen(TEXT), new_year), "2026-12-31T23:59:59.000Z a b: c\n");
    assert_string_equal(line_at(SOON, strlen(SOON), new_year), "2027-01-01T00:02:00.000Z a b: c\n");
    assert_string_equal(line_at(SOON, strlen(SOON), new_year - 120000), // a clock that is ahead
                        "2027-01-01T00:02:00.000Z a b: c\n");
    assert_string_equal(line_of("<13>Feb  1 00:00:00 a b: c"), "2026-02-01T00:00:00.000Z a b: c\n");
}

PLAIN_TEST(a_message_of_several_lines_is_one) {
    static const char TEXT[] = "<13>Dec  1 11:00:00 a b: one\n\ntw\0o\n\0\n";
    assert_string_equal(line_at(TEXT, sizeof(TEXT) - 1, NOON_MS),
                        "2026-12-01T11:00:00.000Z a b: one\n    \n    tw o\n");
}

PLAIN_TEST(the_longest_message_has_room) {
    char *text = room(REEF_SYSLOG_MESSAGE_BYTES_MAX);
    memset(text, '\n', REEF_SYSLOG_MESSAGE_BYTES_MAX);
    text[REEF_SYSLOG_MESSAGE_BYTES_MAX - 1] = 'x';
    const char *line = line_at(text, REEF_SYSLOG_MESSAGE_BYTES_MAX, NOON_MS);
    assert_int_equal(strlen(line), strlen("2026-12-01T12:00:00.000Z 10.0.0.7 unknown: \n") +
                                       5 * REEF_SYSLOG_MESSAGE_BYTES_MAX - 4);
}

// ---- framing ------------------------------------------------------------------------------------

// All messages with a '|' after each, from bytes that come `step` at a time.
static const char *messages_of(
    const uint8_t *bytes, size_t count, size_t step, bool ended, uint64_t *cut) {
    reef_syslog_frames frames = {0};
    char *out = room(2 * count + 2);
    size_t at = 0, written = 0;
    for (size_t there = 0; there < count;) {
        there = there + step < count ? there + step : count;
        for (;;) {
            const uint8_t *message = NULL;
            size_t length = 0;
            const size_t used = reef_syslog_frame_next(&frames, bytes + at, there - at,
                                                       ended && there == count, &message, &length);
            if (used == 0) break;
            memcpy(out + written, message, length);
            written += length;
            if (length > 0) out[written++] = '|';
            at += used;
        }
    }
    *cut = frames.cut;
    return out;
}

PLAIN_TEST(messages_are_found_in_whichever_pieces_they_come) {
    static const struct {
        const char *bytes, *messages;
        bool ended;
    } CASES[] = {
        {"<1>a\n<2>b\n", "<1>a|<2>b|", false},
        {"4 <1>a6 <2>b\nc<3>d\n", "<1>a|<2>b\nc|<3>d|", false},
        {"5 apples\n2026-01-01 x\n12\n", "5 apples|2026-01-01 x|12|", false},
        {"04 <1>a\n99999999 <1>\n", "04 <1>a|99999999 <1>|", false},
        {"\n\n<1>a\n", "<1>a|", false},
        {"<1>a", "", false},
        {"<1>a", "<1>a|", true},
        {"9 <1>a", "<1>a|", true},
        {"9 ", "9 |", true},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++)
        for (size_t step = 1; step < 12; step++) {
            uint64_t cut = 0;
            assert_string_equal(messages_of((const uint8_t *)CASES[i].bytes, strlen(CASES[i].bytes),
                                            step, CASES[i].ended, &cut),
                                CASES[i].messages);
        }
}

PLAIN_TEST(a_long_message_is_cut_and_the_next_one_found) {
    const size_t most = REEF_SYSLOG_MESSAGE_BYTES_MAX;
    static const char *const HEADS[] = {"<1>", "65540 <1>"};
    for (size_t i = 0; i < 2; i++) {
        char *bytes = room(most + 100);
        size_t count = (size_t)sprintf(bytes, "%s", HEADS[i]);
        memset(bytes + count, 'x', most + 1);
        count += most + 1;
        strcpy(bytes + count, i == 0 ? "\n<2>b\n" : "<2>b\n");
        count += strlen(bytes + count);
        uint64_t cut = 0;
        const char *found = messages_of((const uint8_t *)bytes, count, 5000, false, &cut);
        assert_int_equal(strlen(found), most + 1 + strlen("<2>b|"));
        assert_string_equal(found + most, "|<2>b|");
        assert_int_equal(cut, 1);
    }
    char *exact = room(most + 2);
    memset(exact, 'x', most);
    exact[most] = '\n';
    uint64_t cut = 0;
    (void)messages_of((const uint8_t *)exact, most + 1, most, false, &cut);
    assert_int_equal(cut, 0);
}

// ---- what is asked for --------------------------------------------------------------------------

static bool may_send(const reef_syslog_spec *spec, const char *address) {
    struct sockaddr_storage from = {.ss_family = strchr(address, ':') ? AF_INET6 : AF_INET};
    void *at = from.ss_family == AF_INET
                   ? (void *)&((struct sockaddr_in *)(void *)&from)->sin_addr
                   : (void *)&((struct sockaddr_in6 *)(void *)&from)->sin6_addr;
    assert_int_equal(inet_pton(from.ss_family, address, at), 1);
    return reef_syslog_may_send(spec, &from);
}

PLAIN_TEST(only_who_is_named_may_send) {
    reef_syslog_spec spec;
    assert_int_equal(reef_syslog_spec_parse(&spec, "udp://0.0.0.0:514", NULL), REEF_OK);
    assert_true(may_send(&spec, "127.0.0.1") && may_send(&spec, "::1"));
    assert_true(may_send(&spec, "::ffff:127.0.0.1"));
    assert_false(may_send(&spec, "10.0.0.1") || may_send(&spec, "::2"));
    assert_int_equal(
        reef_syslog_spec_parse(&spec, "tcp://[::]:6514?from=10.16.0.0/12,fe80::/10,::1", NULL),
        REEF_OK);
    assert_true(may_send(&spec, "10.31.255.255") && may_send(&spec, "::ffff:10.16.0.1"));
    assert_true(may_send(&spec, "febf::1") && may_send(&spec, "::1"));
    assert_false(may_send(&spec, "10.32.0.0") || may_send(&spec, "127.0.0.1"));
    assert_false(may_send(&spec, "fec0::1"));
    assert_int_equal(spec.place_bytes, strlen("tcp://[::]:6514"));
    assert_int_equal(reef_syslog_spec_parse(&spec, "tcp://[::]:1?from=0.0.0.0/0,::/0", NULL),
                     REEF_OK);
    assert_true(may_send(&spec, "1.2.3.4") && may_send(&spec, "2001::1"));
}

PLAIN_TEST(what_names_no_place_is_refused) {
    static const struct {
        const char *rest, *told;
    } CASES[] = {
        {"udp://localhost:514", "syslog: listens on"},
        {"udp://127.0.0.1", "syslog: listens on"},
        {"udp://127.0.0.1:0", "syslog: listens on"},
        {"udp://127.0.0.1:65536", "syslog: listens on"},
        {"udp://:514", "syslog: listens on"},
        {"udp://", "syslog: listens on"},
        {"tcp://::1:514", "syslog: listens on"},
        {"tcp://[::1]", "syslog: listens on"},
        {"tcp://[::1]514", "syslog: listens on"},
        {"tls://127.0.0.1:514", "syslog: listens on"},
        {"unix:log", "syslog: listens on"},
        {"unix:/x?from=::1", "does not know 'from=::1'"},
        {"udp://127.0.0.1:514?to=::1", "does not know 'to=::1'"},
        {"udp://127.0.0.1:514?from=", "not ''"},
        {"udp://127.0.0.1:514?from=::1,", "not ''"},
        {"udp://127.0.0.1:514?from=10.0.0.0/33", "not '10.0.0.0/33'"},
        {"udp://127.0.0.1:514?from=10.0.0.0/", "not '10.0.0.0/'"},
        {"udp://127.0.0.1:514?from=10.0.0.0/-1", "not '10.0.0.0/-1'"},
        {"udp://127.0.0.1:514?from=web1", "not 'web1'"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_syslog_spec spec;
        reef_error err = {0};
        assert_int_equal(reef_syslog_spec_parse(&spec, CASES[i].rest, &err), REEF_ERR_INVALID);
        if (strstr(err.message, CASES[i].told) == NULL)
            fail_msg("%s: %s", CASES[i].rest, err.message);
    }
}

static int make_zone(void **state) {
    (void)state;
    return setenv("TZ", "UTC", 1);
}

int main(void) {
    return test_run(make_zone, NULL);
}
