// What clients push becomes bytes of the stream: every format against bytes written by hand, and
// what is wrong with a batch in words that name the line. A batch is taken as a whole or not at
// all.
#include "push.h"
#include "reef_push_journal.h"
#include "reef_store.h"
#include "test.h"

#include <jansson.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

// The allocation with this number fails, of reef and of jansson; 0: none.
static size_t failing;

static bool fails(void) {
    return failing > 0 && --failing == 0;
}

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are the
// linker's.
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *at, size_t bytes) {
    return fails() ? NULL : __real_realloc(at, bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

static reef_status try_parse(reef_ingested *out,
                             reef_ingest_notes *notes,
                             const reef_ingest_form *form,
                             const void *body,
                             size_t bytes,
                             reef_error *err) {
    *out = (reef_ingested){0};
    return reef_ingest_parse(out, notes, form, body, bytes, err);
}

static reef_ingested parse_form(const reef_ingest_form *form, const void *body, size_t bytes) {
    reef_error err;
    reef_ingested out;
    reef_ingest_notes notes;
    if (try_parse(&out, &notes, form, body, bytes, &err) != REEF_OK) fail_msg("%s", err.message);
    return out;
}

static reef_ingested parse(reef_ingest_format format, const void *body, size_t bytes) {
    return parse_form(&(reef_ingest_form){.format = format}, body, bytes);
}

static bool form_is_refused(const reef_ingest_form *form,
                            const void *body,
                            size_t bytes,
                            const char *part) {
    reef_error err;
    reef_ingested out;
    reef_ingest_notes notes;
    reef_status status = try_parse(&out, &notes, form, body, bytes, &err);
    assert_int_equal(status, REEF_ERR_INVALID);
    assert_int_equal(err.status, REEF_ERR_INVALID);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" is not in: %s", part, err.message);
    assert_null(out.bytes);
    return notes.too_large;
}

static void assert_refused(reef_ingest_format format,
                           const void *body,
                           size_t bytes,
                           const char *part) {
    (void)form_is_refused(&(reef_ingest_form){.format = format}, body, bytes, part);
}

static void assert_text(reef_ingested out, const void *bytes, size_t count, uint64_t records) {
    assert_int_equal(out.count, count);
    assert_memory_equal(out.bytes, bytes, count);
    assert_int_equal(out.records, records);
    reef_ingested_release(&out);
    assert_null(out.bytes);
}

// ---- text ---------------------------------------------------------------------------------------

PLAIN_TEST(text_is_taken_as_it_is) {
    assert_text(parse(REEF_INGEST_TEXT, "a\nb\n", 4), "a\nb\n", 4, 2);
    assert_text(parse(REEF_INGEST_TEXT, "\n", 1), "\n", 1, 1);
    assert_text(parse(REEF_INGEST_TEXT, "a\r\n\0\xff\n", 6), "a\r\n\0\xff\n", 6, 2);
}

PLAIN_TEST(a_last_line_gets_its_end) {
    assert_text(parse(REEF_INGEST_TEXT, "a\nb", 3), "a\nb\n", 4, 2);
    assert_text(parse(REEF_INGEST_TEXT, "\0", 1), "\0\n", 2, 1);
}

PLAIN_TEST(a_batch_has_a_bound) {
    size_t bytes = REEF_PUSH_UNPACKED_BYTES_MAX;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'x', bytes + 1);
    assert_refused(REEF_INGEST_TEXT, text, bytes, "send several");
    assert_true(form_is_refused(&(reef_ingest_form){0}, text, bytes + 1, "send several"));
    text[bytes - 1] = '\n';
    assert_text(parse(REEF_INGEST_TEXT, text, bytes), text, bytes, 1);
    free(text);
}

PLAIN_TEST(nothing_is_no_batch) {
    assert_refused(REEF_INGEST_TEXT, "", 0, "empty");
    assert_refused(REEF_INGEST_JSONL, "\n \n\t\r\n", 6, "empty");
}

// ---- JSON Lines ---------------------------------------------------------------------------------

static reef_ingested lines(const char *text) {
    return parse(REEF_INGEST_JSONL, text, strlen(text));
}

static void refused(const char *text, const char *file_entry) {
    assert_refused(REEF_INGEST_JSONL, text, strlen(text), file_entry);
}

PLAIN_TEST(texts_of_json_lines_are_lines) {
    assert_text(lines("{\"text\": \"a\\nb\"}\n\n{\"id\": 7, \"text\": \"c\\n\"}\r\n"), "a\nb\nc\n",
                6, 2);
    assert_text(lines("{\"text\": \"\"}"), "\n", 1, 1);
    assert_text(lines("{\"text\": \"\\u0000\\u00e9\"}"), "\0\xc3\xa9\n", 4, 1);
}

PLAIN_TEST(a_bad_line_is_named_and_the_batch_refused) {
    refused("{\"text\": \"a\"}\n\n{\"text\": }\n", "line 3: no JSON");
    refused("{\"text\": \"a\"} {\"text\": \"b\"}\n", "line 1: no JSON");
    refused("{\"text\": \"a\", \"text\": \"b\"}\n", "line 1: no JSON");
    refused("{\"text\": \"\xff\"}\n", "line 1: no JSON");
    assert_refused(REEF_INGEST_JSONL, "{\"text\": \"a\"}\n\0{}\n", 18, "line 2: no JSON");
    refused("{\"text\": 1}\n", "line 1: no \"message\" that is a string, nor");
    refused("{}\n", "line 1: no \"message\" that is a string, nor");
    refused("[\"a\"]\n", "line 1: no object such as");
}

// ---- entries of a log ---------------------------------------------------------------------------

#define AT "2025-11-30T12:00:01.123Z "

static void assert_json(const char *json, const char *wanted, uint64_t records) {
    reef_ingested got = parse(REEF_INGEST_JSON, json, strlen(json));
    if (got.count != strlen(wanted) || memcmp(got.bytes, wanted, got.count) != 0)
        fail_msg("%s became: %.*s", json, (int)got.count, got.bytes);
    assert_text(got, wanted, strlen(wanted), records);
}

PLAIN_TEST(a_record_is_a_line_with_its_time_and_who_wrote_it) {
    static const char *const TIMES[] = {"\"date\":1764504001.123456",
                                        "\"time\":\"2025-11-30T12:00:01.123456Z\"",
                                        "\"time\":1764504001123",
                                        "\"@timestamp\":\"2025-11-30T13:00:01.123+01:00\"",
                                        "\"timestamp\":\"soon\",\"ts\":1764504001.123",
                                        "\"date\":1,\"__REALTIME_TIMESTAMP\":\"1764504001123456\"",
                                        "\"__REALTIME_TIMESTAMP\":\"1764504009000000\","
                                        "\"_SOURCE_REALTIME_TIMESTAMP\":\"1764504001123456\""};
    for (size_t i = 0; i < sizeof(TIMES) / sizeof(*TIMES); i++) {
        char json[300];
        snprintf(json, sizeof(json), "{\"message\":\"lost\",%s}", TIMES[i]);
        assert_json(json, AT "lost\n", 1);
    }
    assert_json("{\"MESSAGE\":\"a\\nb\\n\",\"SYSLOG_IDENTIFIER\":\"sshd\",\"_PID\":\"7\","
                "\"_SOURCE_REALTIME_TIMESTAMP\":\"1764504001123456\"}",
                AT "sshd[7]: a\n    b\n", 1);
    assert_json("{\"message\":\"a\",\"PROGRAM\":\"cron\",\"PID\":8,\"time\":1764504001.123}",
                AT "cron[8]: a\n", 1);
    assert_json("{\"log\":\"a\\u0000b\\u0000\",\"ident\":\"x\\ny\"}", "x y: a b\n", 1);
}

PLAIN_TEST(a_message_that_begins_with_a_time_gets_no_other) {
    assert_json("{\"log\":\"2025-11-29 01:00:00 up\",\"date\":1764504001.1,\"ident\":\"x\"}",
                "2025-11-29 01:00:00 up\n", 1);
    assert_json("{\"log\":\"{\\\"ts\\\":1764504001}\",\"date\":1764504001.1}",
                "{\"ts\":1764504001}\n", 1);
    assert_json("{\"log\":\"until 2025-11-29 01:00:00\",\"date\":1764504001.123}",
                AT "until 2025-11-29 01:00:00\n", 1);
}

PLAIN_TEST(what_is_no_time_is_none) {
    static const char *const TIMES[] = {"1e300", "-1.5", "12",   "\"Nov 30 12:00:01\"",
                                        "null",  "[1]",  "true", "99999999999999999"};
    for (size_t i = 0; i < sizeof(TIMES) / sizeof(*TIMES); i++) {
        char json[100];
        snprintf(json, sizeof(json), "{\"message\":\"a\",\"time\":%s}", TIMES[i]);
        assert_json(json, "a\n", 1);
    }
}

PLAIN_TEST(the_text_is_the_first_usual_field_or_the_one_that_is_named) {
    const char *json = "{\"text\":\"t\\nu\",\"MESSAGE\":\"M\",\"log\":\"l\",\"message\":1,"
                       "\"time\":1764504001.123}";
    assert_json(json, AT "l\n", 1);
    assert_json("{\"text\":\"t\\nu\",\"MESSAGE\":\"M\",\"time\":1764504001}", "t\nu\n", 1);
    reef_ingest_form form = {.format = REEF_INGEST_JSON, .field = "MESSAGE"};
    assert_text(parse_form(&form, json, strlen(json)), AT "M\n", sizeof(AT) + 1, 1);
    form.field = "text";
    assert_text(parse_form(&form, json, strlen(json)), "t\nu\n", 4, 1);
    form.field = "msg";
    (void)form_is_refused(&form, json, strlen(json), "record 1: no \"msg\" that is a string");
}

PLAIN_TEST(arrays_and_objects_in_a_row_are_records) {
    assert_json(" [{\"log\":\"a\"},{\"log\":\"b\"}]\n", "a\nb\n", 2);
    assert_json("{\"log\":\"a\"}{\"log\":\"b\"}\n[{\"log\":\"c\"}]", "a\nb\nc\n", 3);
    static const struct {
        const char *json, *part;
    } BAD[] = {{"[{\"log\":\"a\"},{\"log\":1}]", "record 2: no \"message\""},
               {"[{\"log\":\"a\"},7]", "record 2: no object"},
               {"{\"log\":\"a\"}{\"log\":", "record 2: no JSON"},
               {"[[{\"log\":\"a\"}]]", "record 1: no object"},
               {"7", "record 1: no JSON"},
               {"[]", "empty"}};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_refused(REEF_INGEST_JSON, BAD[i].json, strlen(BAD[i].json), BAD[i].part);
}

// ---- streams ------------------------------------------------------------------------------------

#define NS "\"1764504001123456789\""
#define LOKI(labels, values) "{\"stream\":{" labels "},\"values\":[" values "]}"

static const char *const SOURCES[] = {"web", "", "loki"};

static void assert_parts(const reef_ingest_form *form, const char *json, const char *const *parts) {
    reef_ingested out[3] = {0};
    reef_ingest_notes notes;
    reef_error err;
    if (reef_ingest_parse(out, &notes, form, (const uint8_t *)json, strlen(json), &err) != REEF_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 3; i++) {
        if (out[i].count != strlen(parts[i]) ||
            memcmp(out[i].count > 0 ? (const char *)out[i].bytes : "", parts[i], out[i].count) != 0)
            fail_msg("part %zu: %.*s", i, (int)out[i].count, out[i].bytes);
        reef_ingested_release(&out[i]);
    }
}

PLAIN_TEST(streams_of_loki_go_to_the_source_that_they_name) {
    reef_ingest_form form = {
        .format = REEF_INGEST_LOKI, .sources = SOURCES, .source_count = 3, .other = 2};
    const char *json = "{\"streams\":[" LOKI(
        "\"job\":\"web\"",
        "[" NS ",\"a\"],[" NS
        ",\"b\",{\"trace\":\"7\"}]") "," LOKI("\"service_name\":\"web\",\"job\":\"loki\"",
                                              "[\"0\",\"c\"]") "," LOKI("\"job\":\"db\"",
                                                                        "[" NS
                                                                        ",\"2025-11-29 01:00:00 "
                                                                        "d\"]") "]}";
    assert_parts(&form, json,
                 (const char *[]){AT "a\n" AT "b\nc\n", "", "2025-11-29 01:00:00 d\n"});
    assert_parts(&form, "{\"streams\":[]}", (const char *[]){"", "", ""});
    form.other = 3;
    reef_ingested out[3] = {0};
    reef_ingest_notes notes;
    reef_error err;
    assert_int_equal(
        reef_ingest_parse(out, &notes, &form, (const uint8_t *)json, strlen(json), &err),
        REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "a stream of 'db'"));
    assert_null(out[0].bytes);
}

PLAIN_TEST(what_is_no_push_of_loki_is_refused_with_its_number) {
    static const struct {
        const char *json, *part;
    } BAD[] = {{"{}", "no \"streams\""},
               {"[]", "no \"streams\""},
               {"{\"streams\":[{\"stream\":{}}]}", "stream 1: no"},
               {"{\"streams\":[" LOKI("", "[" NS ",\"a\"]") "," LOKI("", "[7,\"a\"]") "]}",
                "record 2: no"},
               {"{\"streams\":[" LOKI("", "[" NS "]") "]}", "record 1: no"},
               {"{\"streams\":", "the body is no JSON: line 1"}};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_refused(REEF_INGEST_LOKI, BAD[i].json, strlen(BAD[i].json), BAD[i].part);
}

#define OTLP(name, records)                                                                        \
    "{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":\"" name  \
    "\"}}]},\"scopeLogs\":[{\"scope\":{},\"logRecords\":[" records "]}]}"
#define BODY(value) "{\"timeUnixNano\":" NS ",\"body\":{" value "}}"

PLAIN_TEST(records_of_opentelemetry_are_lines_of_their_bodies) {
    const reef_ingest_form form = {
        .format = REEF_INGEST_OTLP, .sources = SOURCES, .source_count = 3, .other = 2};
    assert_parts(
        &form,
        "{\"resourceLogs\":[" OTLP(
            "web",
            BODY("\"stringValue\":\"a\"") ",{\"timeUnixNano\":\"0\","
                                          "\"observedTimeUnixNano\""
                                          ":" NS ",\"body\":{"
                                          "\"stringValue\":"
                                          "\"b\"}},{\"body\":{"
                                          "\"boolValue\":true}"
                                          "},{}") "," OTLP("db", BODY("\"kvlistValue\":{"
                                                                      "\"values\":[{\"key\":"
                                                                      "\"log\",\"value\":"
                                                                      "{\"stringValue\":\"c\"}}]"
                                                                      "}") "," BODY("\"kvlistValu"
                                                                                    "e\":{"
                                                                                    "\"values\":["
                                                                                    "{\"key\":"
                                                                                    "\"n\","
                                                                                    "\"value\":{"
                                                                                    "\"arrayValue"
                                                                                    "\":"
                                                                                    "{\"values\":"
                                                                                    "[{"
                                                                                    "\"doubleValu"
                                                                                    "e\":1.5},{"
                                                                                    "\"stringValu"
                                                                                    "e\":\"d\"}]}"
                                                                                    "}}]}")) "]}",
        (const char *[]){AT "a\n" AT "b\ntrue\n", "", AT "c\n" AT "{\"n\":[1.5,\"d\"]}\n"});
    reef_ingested out;
    reef_ingest_notes notes;
    reef_error err;
    const char *json = "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{},{\"body\":{}}]}]}]}";
    const reef_ingest_form one = {.format = REEF_INGEST_OTLP};
    assert_int_equal(try_parse(&out, &notes, &one, json, strlen(json), &err), REEF_OK);
    assert_int_equal(out.count, 0);
    assert_int_equal(notes.empty, 2);
    json = "{\"resourceLogs\":[" OTLP("x", "{\"body\":{}},7") "]}";
    (void)form_is_refused(&one, json, strlen(json), "record 2: no object");
    (void)form_is_refused(&one, "{}", 2, "no \"resourceLogs\"");
}

// A body that says of each line when it was is the same body when it comes again.
PLAIN_TEST(a_body_whose_lines_all_have_times_is_known_again) {
    static const char *const BODIES[] = {"{\"streams\":[" LOKI("", "[" NS ",\"a\"]") "]}",
                                         "{\"streams\":[" LOKI("", "[" NS ",\"b\"]") "]}"};
    const reef_ingest_form form = {.format = REEF_INGEST_LOKI};
    uint64_t hashes[3];
    for (size_t i = 0; i < 3; i++) {
        reef_ingested out;
        reef_ingest_notes notes;
        reef_error err;
        const char *body = BODIES[i % 2];
        assert_int_equal(try_parse(&out, &notes, &form, body, strlen(body), &err), REEF_OK);
        assert_true(notes.all_timed);
        hashes[i] = notes.hash[0];
        reef_ingested_release(&out);
    }
    assert_true(hashes[0] == hashes[2] && hashes[0] != hashes[1]);
    reef_ingested out;
    reef_ingest_notes notes;
    reef_error err;
    const char *untimed = "{\"streams\":[" LOKI("", "[\"0\",\"a\"]") "]}";
    assert_int_equal(try_parse(&out, &notes, &form, untimed, strlen(untimed), &err), REEF_OK);
    assert_false(notes.all_timed);
    reef_ingested_release(&out);
}

// ---- packed -------------------------------------------------------------------------------------

/** On the heap. */
static uint8_t *pack(reef_packing packing, const void *text, size_t bytes, size_t *count) {
    size_t room = bytes + 1000;
    uint8_t *out = malloc(room);
    assert_non_null(out);
    if (packing == REEF_PACKING_ZSTD) {
        *count = ZSTD_compress(out, room, text, bytes, 3);
        assert_false(ZSTD_isError(*count));
        return out;
    }
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)text,
                  .avail_in = (unsigned)bytes,
                  .next_out = out,
                  .avail_out = (unsigned)room};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *count = z.total_out;
    (void)deflateEnd(&z);
    return out;
}

PLAIN_TEST(a_packed_body_is_taken_whole_or_refused) {
    char text[3000];
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (char)(i * i % 89 + ' ');
    text[sizeof(text) - 1] = '\n';
    for (reef_packing packing = REEF_PACKING_GZIP; packing <= REEF_PACKING_ZSTD; packing++) {
        const reef_ingest_form form = {.packing = packing};
        size_t count;
        uint8_t *packed = pack(packing, text, sizeof(text), &count);
        assert_text(parse_form(&form, packed, count), text, sizeof(text), 1);
        for (size_t cut = 0; cut < count; cut++)
            (void)form_is_refused(&form, packed, cut, "ends in the middle");
        uint8_t *two = malloc(2 * count + 4);
        assert_non_null(two);
        memcpy(two, packed, count);
        memcpy(two + count, packed, count);
        memcpy(two + 2 * count, "rest", 4);
        reef_ingested both = parse_form(&form, two, 2 * count);
        assert_int_equal(both.count, 2 * sizeof(text));
        assert_int_equal(both.records, 2);
        reef_ingested_release(&both);
        (void)form_is_refused(&form, two, 2 * count + 4, "the body is no");
        two[count / 2] ^= 1;
        if (packing == REEF_PACKING_GZIP) // the other has a checksum where its sender wants one
            (void)form_is_refused(&form, two, count, "the body");
        (void)form_is_refused(&form, text, sizeof(text), "the body is no");
        free(two);
        free(packed);
    }
}

PLAIN_TEST(what_a_body_unpacks_to_is_bounded) {
    const size_t most = REEF_PUSH_UNPACKED_BYTES_MAX, bytes = 16 * most;
    char *zeros = calloc(1, bytes);
    assert_non_null(zeros);
    for (reef_packing packing = REEF_PACKING_GZIP; packing <= REEF_PACKING_ZSTD; packing++) {
        const reef_ingest_form form = {.packing = packing};
        const size_t sizes[] = {most, most + 1, bytes};
        for (size_t i = 0; i < 3; i++) {
            size_t count;
            uint8_t *packed = pack(packing, zeros, sizes[i], &count);
            const char *why = i == 0 ? "send several" : "once it is unpacked";
            assert_true(form_is_refused(&form, packed, count, why));
            free(packed);
        }
    }
    free(zeros);
}

// ---- without memory -----------------------------------------------------------------------------

PLAIN_TEST(an_allocation_that_fails_refuses_the_batch) {
    static const struct {
        reef_ingest_format format;
        const char *body;
    } BODIES[] = {
        {REEF_INGEST_TEXT, "a\nb"},
        {REEF_INGEST_JSONL, "{\"text\":\"a\"}\n{\"log\":\"b\",\"date\":1764504001.1}\n"},
        {REEF_INGEST_JSON, "[{\"log\":\"b\",\"date\":1764504001.1,\"ident\":\"x\"}]"},
        {REEF_INGEST_LOKI, "{\"streams\":[" LOKI("\"job\":\"web\"", "[" NS ",\"a\"]") "]}"},
        {REEF_INGEST_OTLP,
         "{\"resourceLogs\":[" OTLP(
             "web", BODY("\"stringValue\":\"a\"") "," BODY(
                        "\"kvlistValue\":{\"values\":[{\"key\":\"n\",\"value\":{\"arrayValue\":"
                        "{\"values\":[{\"doubleValue\":1.5},{\"stringValue\":\"d\"}]}}}]}")) "]}"}};
    json_set_alloc_funcs(__wrap_malloc, free);
    for (size_t i = 0; i < sizeof(BODIES) / sizeof(*BODIES); i++) {
        const reef_ingest_form form = {.format = BODIES[i].format};
        reef_ingested out;
        reef_ingest_notes notes;
        reef_error err;
        for (size_t n = 1; failing == 0; n++) {
            failing = n;
            reef_status status =
                try_parse(&out, &notes, &form, BODIES[i].body, strlen(BODIES[i].body), &err);
            // jansson says of some of its own that the text is wrong, or makes do with less.
            if (status == REEF_ERR_INVALID) assert_non_null(strstr(err.message, "no JSON"));
            if (status != REEF_OK && status != REEF_ERR_INVALID)
                assert_int_equal(status, REEF_ERR_NO_MEMORY);
            if (status != REEF_OK) assert_null(out.bytes);
            if (status == REEF_OK) reef_ingested_release(&out);
        }
        failing = 0; // as many were tried as there are
    }
    json_set_alloc_funcs(malloc, free);
}

RUN_TESTS
