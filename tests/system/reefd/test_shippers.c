// What log shippers push: requests as their protocols' documents have them, and what rsyslog sends
// by itself. They become the lines that journal: would write, in the source that they name; what is
// sent again is known, and what is refused is counted by its reason.
#include "http_run.h"

#include "push.h"
#include "reef_push_journal.h"

#include <zlib.h>
#include <zstd.h>

#define JSON "Content-Type: application/json\r\n"
#define LINES "Content-Type: application/x-ndjson\r\n"
#define LOKI_PATH "/loki/api/v1/push"
#define NS "\"1764504001123456789\""
#define AT "2025-11-30T12:00:01.123Z "
#define LOKI(labels, values) "{\"stream\":{" labels "},\"values\":[" values "]}"
#define OTLP(name, records)                                                                        \
    "{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":\"" name  \
    "\"}}]},\"scopeLogs\":[{\"scope\":{\"name\":\"x\"},\"logRecords\":[" records "]}]}"
#define RECORD(text)                                                                               \
    "{\"timeUnixNano\":" NS ",\"severityNumber\":9,\"severityText\":\"INFO\","                     \
    "\"body\":{\"stringValue\":\"" text "\"},\"attributes\":[]}"

// Paused: what is pushed waits in the journal, where it can be read.
static void start(sandbox *box, const char *other) {
    START(box, HTTP(box), "--source", "push:web", other != NULL ? "--source" : NULL, other);
    (void)reefd_tell(box, "pause");
}

static http_answer send_bytes(
    const sandbox *box, const char *target, const char *headers, const void *body, size_t bytes) {
    char all[512];
    snprintf(all, sizeof(all), BEARER "%s", headers);
    return http_ask(box->address, "POST", target, all, body, bytes);
}

static http_answer send_text(const sandbox *box,
                             const char *target,
                             const char *headers,
                             const char *body) {
    return send_bytes(box, target, headers, body, strlen(body));
}

static void assert_refused(http_answer answer, int code, const char *part) {
    if (answer.code != code || strstr(answer.body, part) == NULL)
        fail_msg("%d instead of %d, or \"%s\" is not in: %s", answer.code, code, part, answer.body);
}

static int64_t of_source(const sandbox *box, size_t i, const char *key) {
    return integer(json_array_get(json_at(reefd_status(box), "sources"), i), key);
}

/** All that waits in the source's journal; the daemon has ended. */
static void assert_waits(const sandbox *box, const char *source, const char *text) {
    static uint8_t bytes[4096];
    reef_error err;
    reef_store *store;
    size_t count = 0;
    if (reef_store_open(&store, box->pool, NULL, &err) != REEF_OK ||
        reef_journal_read(store, source, 0, bytes, sizeof(bytes), &count, &err) != REEF_OK)
        fail_msg("%s", err.message);
    reef_store_close(store);
    if (count != strlen(text) || memcmp(bytes, text, count) != 0)
        fail_msg("%s has: %.*s", source, (int)count, (const char *)bytes);
}

// ---- /v1/ingest ---------------------------------------------------------------------------------

NEW_BOX_TEST(one_text_is_one_line_whichever_shipper_sends_it) {
    start(box, NULL);
    static const struct {
        const char *headers, *body;
    } SENT[] = {
        // Fluent Bit, output http: format json, json_lines and json_stream
        {JSON, "[{\"date\":1764504001.123456,\"log\":\"lost\"}]"},
        {LINES, "{\"date\":1764504001.123456,\"log\":\"lost\"}\n"},
        {JSON, "{\"date\":1764504001.123456,\"log\":\"lost\"}"
               "{\"date\":1764504001.123456,\"log\":\"lost\"}"},
        // Vector, sink http; Logstash, output http with json_batch
        {JSON, "[{\"message\":\"lost\",\"timestamp\":\"2025-11-30T12:00:01.123456Z\","
               "\"host\":\"a\",\"source_type\":\"file\"}]"},
        {JSON, "[{\"message\":\"lost\",\"@timestamp\":\"2025-11-30T12:00:01.123Z\"}]"},
    };
    for (size_t i = 0; i < sizeof(SENT) / sizeof(*SENT); i++)
        assert_code(send_text(box, "/v1/ingest/web", SENT[i].headers, SENT[i].body), 200);
    http_answer answer = send_text(box, "/v1/ingest/web?field=msg", JSON,
                                   "{\"level\":30,\"msg\":\"lost\",\"time\":1764504001123}");
    assert_code(answer, 200);
    reefd_end(box);
    assert_waits(box, "push:web",
                 AT "lost\n" AT "lost\n" AT "lost\n" AT "lost\n" AT "lost\n" AT "lost\n" AT
                    "lost\n");
}

NEW_BOX_TEST(a_batch_with_a_bad_record_is_refused_whole_with_its_number) {
    start(box, NULL);
    assert_refused(send_text(box, "/v1/ingest", JSON, "[{\"log\":\"a\"},{\"log\":null}]"), 400,
                   "record 2: no \\\"message\\\" that is a string, nor \\\"log\\\"");
    assert_refused(send_text(box, "/v1/ingest", LINES, "{\"log\":\"a\"}\n7\n"), 400, "line 2");
    assert_refused(send_text(box, "/v1/ingest?field=a%20b", JSON, "{}"), 400, "field in the query");
    assert_refused(send_text(box, "/v1/ingest?field=a", "", "b"), 400, "text has none");
    reefd_end(box);
    assert_waits(box, "push:web", "");
}

NEW_BOX_TEST(packed_bodies_are_unpacked_and_bombs_refused) {
    static const char BODY[] = "{\"log\":\"packed\"}\n";
    static uint8_t packed[1 << 16];
    uint8_t *zeros = calloc(1, 64 << 20);
    assert_non_null(zeros);
    start(box, NULL);
    size_t count = ZSTD_compress(packed, sizeof(packed), BODY, strlen(BODY), 1);
    assert_code(send_bytes(box, "/v1/ingest", LINES "Content-Encoding: zstd\r\n", packed, count),
                200);
    assert_refused(
        send_bytes(box, "/v1/ingest", LINES "Content-Encoding: zstd\r\n", packed, count - 1), 400,
        "ends in the middle of its zstd");
    count = ZSTD_compress(packed, sizeof(packed), zeros, 64 << 20, 1);
    assert_refused(send_bytes(box, "/v1/ingest", "Content-Encoding: zstd\r\n", packed, count), 413,
                   "more than 4194304 bytes once it is unpacked");
    assert_refused(send_text(box, "/v1/ingest", "Content-Encoding: gzip\r\n", "no"), 400, "gzip");
    assert_refused(send_text(box, "/v1/ingest", "Content-Encoding: br\r\n", "x"), 415,
                   "send gzip, zstd or none");
    assert_refused(send_text(box, "/v1/score", "Content-Encoding: gzip\r\n", "x"), 415,
                   "is not taken here");
    free(zeros);
    reefd_end(box);
    assert_waits(box, "push:web", "packed\n");
}

// A shipper that catches up sends megabytes at once, which the journal takes in pieces.
NEW_BOX_TEST(a_large_packed_body_is_taken_in_pieces_and_once) {
    enum { ENTRIES = 40000 };
    const char *const headers = LINES "Content-Encoding: zstd\r\nReef-Batch-Id: large\r\n";
    size_t room = ENTRIES * 80, bytes = 0;
    char *body = malloc(room), *packed = malloc(room);
    assert_non_null(body);
    assert_non_null(packed);
    for (size_t i = 0; i < ENTRIES; i++)
        bytes += (size_t)snprintf(body + bytes, room - bytes,
                                  "{\"log\":\"line %06zu with its end has 38 bytes\"}\n", i);
    size_t count = ZSTD_compress(packed, room, body, bytes, 1);
    START(box, HTTP(box), "--source", "push:web");
    (void)reefd_tell(box, "pause");
    for (size_t i = 0; i < 2; i++) {
        json_t *reply = json_of(send_bytes(box, "/v1/ingest", headers, packed, count), 200);
        assert_int_equal(integer(reply, "records"), ENTRIES);
        assert_int_equal(integer(reply, "accepted_bytes"), ENTRIES * 38);
        assert_int_equal(integer(reply, "position"), ENTRIES * 38);
        assert_int_equal(is_true(reply, "duplicate"), i == 1);
    }
    assert_int_equal(of_source(box, 0, "batches"), 2);
    memset(body, 'x', 2 << 20); // one line
    count = ZSTD_compress(packed, room, body, 2 << 20, 1);
    assert_refused(send_bytes(box, "/v1/ingest", "Content-Encoding: zstd\r\n", packed, count), 413,
                   "a line has more than 1048576 bytes");
    free(packed);
    free(body);
    reefd_end(box);
}

// ---- Loki and OpenTelemetry ---------------------------------------------------------------------

NEW_BOX_TEST(streams_of_loki_go_to_their_sources_and_come_once) {
    static const char BODY[] = "{\"streams\":[" LOKI(
        "\"service_name\":\"web\"",
        "[" NS ",\"a\"],[" NS
        ",\"b\",{\"trace\":\"7\"}]") "," LOKI("\"job\":\"db\"", "[" NS ",\"c\"]") "]}";
    start(box, "push:loki");
    http_answer answer = send_text(box, LOKI_PATH, JSON, BODY);
    assert_code(answer, 204);
    assert_int_equal(answer.body_bytes, 0);
    assert_code(send_text(box, LOKI_PATH, JSON, BODY), 204); // its answer was lost
    assert_code(send_text(box, LOKI_PATH "?source=web", JSON,
                          "{\"streams\":[" LOKI("\"job\":\"db\"", "[\"0\",\"d\"]") "]}"),
                204);
    assert_code(send_text(box, LOKI_PATH, JSON, "{\"streams\":[]}"), 204);
    for (size_t i = 0; i < 2; i++) assert_int_equal(of_source(box, i, "duplicates"), 1);
    reefd_end(box);
    assert_waits(box, "push:web", AT "a\n" AT "b\nd\n");
    assert_waits(box, "push:loki", AT "c\n");
}

NEW_BOX_TEST(a_push_that_is_sent_again_after_a_kill_is_known) {
    static const char BODY[] = "{\"streams\":[" LOKI("\"job\":\"web\"", "[" NS ",\"a\"]") "]}";
    start(box, NULL);
    assert_code(send_text(box, LOKI_PATH, JSON, BODY), 204);
    reefd_kill(box);
    start(box, NULL);
    for (size_t i = 0; i < 2; i++) assert_code(send_text(box, LOKI_PATH, JSON, BODY), 204);
    assert_int_equal(of_source(box, 0, "duplicates"), 2);
    assert_int_equal(of_source(box, 0, "bytes"), strlen(AT "a\n"));
    reefd_end(box);
}

NEW_BOX_TEST(records_of_opentelemetry_are_taken_packed_too) {
    static const char BODY[] = "{\"resourceLogs\":[" OTLP(
        "web", RECORD("a") "," RECORD("b")) "," OTLP("db", RECORD("c")) "]}";
    uint8_t packed[1024];
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)BODY,
                  .avail_in = sizeof(BODY) - 1,
                  .next_out = packed,
                  .avail_out = sizeof(packed)};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    (void)deflateEnd(&z);
    start(box, "push:otlp");
    http_answer answer = send_bytes(box, "/v1/logs", JSON "Content-Encoding: gzip\r\n", packed,
                                    sizeof(packed) - z.avail_out);
    assert_code(answer, 200);
    assert_string_equal(answer.body, "{\"partialSuccess\":{}}\n");
    assert_code(send_text(box, "/v1/logs", JSON, BODY), 200); // the same, and known
    answer = send_text(box, "/v1/logs", JSON,
                       "{\"resourceLogs\":[" OTLP("web", "{\"severityText\":\"INFO\"}") "]}");
    assert_code(answer, 200);
    assert_non_null(strstr(answer.body, "\"rejectedLogRecords\":\"1\""));
    reefd_end(box);
    assert_waits(box, "push:web", AT "a\n" AT "b\n");
    assert_waits(box, "push:otlp", AT "c\n");
}

NEW_BOX_TEST(a_stream_of_no_source_is_refused_by_name) {
    start(box, "push:app");
    assert_refused(
        send_text(box, LOKI_PATH, JSON,
                  "{\"streams\":[" LOKI("\"job\":\"db\"", "[" NS ",\"c\"]") "]}"),
        404, "a stream of 'db': reefd has no source push: of this name, and none called 'loki'");
    assert_refused(send_text(box, "/v1/logs?source=db", JSON, "{\"resourceLogs\":[]}"), 404,
                   "no source push:db");
    reefd_end(box);
}

// ---- refused ------------------------------------------------------------------------------------

NEW_BOX_TEST(refused_pushes_are_counted_by_reason_and_logged_once) {
    start(box, NULL);
    assert_refused(send_text(box, LOKI_PATH, "Content-Type: application/x-protobuf\r\n", "x"), 415,
                   "let your shipper send JSON");
    assert_refused(send_text(box, "/v1/logs", "Content-Type: application/x-protobuf\r\n", "x"), 415,
                   "let your shipper send JSON");
    assert_refused(send_text(box, "/v1/logs", "", "{}"), 415, "let your shipper send JSON");
    assert_refused(send_text(box, LOKI_PATH, JSON, "{}"), 400, "no \\\"streams\\\"");
    assert_refused(send_text(box, "/v1/ingest/db", JSON, "{}"), 404, "push:db");
    assert_code(http_ask(box->address, "POST", "/v1/logs", JSON, "{}", 2), 401);
    static const struct {
        const char *reason;
        int64_t count;
    } WANTED[] = {{"type", 3},      {"malformed", 1}, {"no_source", 1}, {"denied", 1},
                  {"too_large", 0}, {"busy", 0},      {"failed", 0}};
    http_answer answer = get(box, "/metrics");
    assert_code(answer, 200);
    assert_metrics(box, answer.body);
    json_t *refusals = json_at(reefd_status(box), "push_refusals");
    for (size_t i = 0; i < sizeof(WANTED) / sizeof(*WANTED); i++) {
        char line[120];
        snprintf(line, sizeof(line), "\nreef_push_refusals_total{reason=\"%s\"} %lld\n",
                 WANTED[i].reason, (long long)WANTED[i].count);
        if (strstr(answer.body, line) == NULL) fail_msg("not in /metrics: %s", line);
        assert_int_equal(integer(refusals, WANTED[i].reason), WANTED[i].count);
    }
    assert_int_equal(times_said(box, "was refused"), 1);
    reefd_end(box);
}

NEW_BOX_TEST(a_shipper_is_told_to_wait_while_the_journal_is_full) {
    char body[4000] = "{\"streams\":[{\"stream\":{},\"values\":[", text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    snprintf(body + strlen(body), sizeof(body) - strlen(body), "[" NS ",\"%s\"]]}]}", text);
    START(box, HTTP(box), "--source", "push:web", "--journal", "3000");
    (void)reefd_tell(box, "pause");
    assert_code(send_text(box, LOKI_PATH, JSON, body), 204);
    body[strlen(body) - 8] = 'y'; // another one
    http_answer answer = send_text(box, LOKI_PATH, JSON, body);
    assert_code(answer, 429);
    assert_non_null(strstr(answer.head, "Retry-After: 1"));
    assert_int_equal(reefd_count(box, "push_refusals.busy"), 1);
    reefd_end(box);
}

// ---- a real one ---------------------------------------------------------------------------------

static pid_t start_rsyslog(const sandbox *box, const char *log) {
    char conf[160], text[2048], pidfile[160];
    snprintf(conf, sizeof(conf), "%s/rsyslog.conf", box->directory);
    snprintf(pidfile, sizeof(pidfile), "%s/rsyslog.pid", box->directory);
    // As docs/OPERATING.md has it.
    snprintf(text, sizeof(text),
             "global(workDirectory=\"%s\")\n"
             "module(load=\"imfile\")\nmodule(load=\"omprog\")\n"
             "input(type=\"imfile\" file=\"%s\" tag=\"app[7]:\")\n"
             "template(name=\"reef\" type=\"list\" option.jsonf=\"on\") {\n"
             "property(outname=\"time\" name=\"timereported\" dateFormat=\"rfc3339\" "
             "format=\"jsonf\")\n"
             "property(outname=\"PROGRAM\" name=\"syslogtag\" field.number=\"1\" "
             "field.delimiter=\"58\" format=\"jsonf\")\n"
             "property(outname=\"message\" name=\"$.text\" format=\"jsonf\")\n}\n"
             "set $.text = ltrim($msg);\n"
             "action(type=\"omprog\" template=\"reef\" binary=\"%s ingest %s - --jsonl\")\n",
             box->directory, log, REEF_BINARY, box->pool);
    write_mode(conf, text, 0600);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execlp("rsyslogd", "rsyslogd", "-n", "-f", conf, "-i", pidfile, (char *)NULL);
        _exit(127);
    }
    return pid;
}

NEW_BOX_TEST(what_rsyslog_reads_is_pushed_by_reef_ingest) {
    char log[160];
    snprintf(log, sizeof(log), "%s/app.log", box->directory);
    write_mode(log, "2025-11-30 12:00:01 started\nlost \"it\"\n", 0600);
    start(box, NULL);
    pid_t rsyslog = start_rsyslog(box, log);
    for (int i = 0; i < 600 && of_source(box, 0, "records") < 2; i++) sleep_ms(50);
    kill(rsyslog, SIGTERM);
    (void)waitpid(rsyslog, NULL, 0);
    assert_int_equal(of_source(box, 0, "records"), 2);
    // The first has its own time, the second that of its reading; and who said it.
    assert_int_equal(of_source(box, 0, "bytes"),
                     strlen("2025-11-30 12:00:01 started\n" AT "app[7]: lost \"it\"\n"));
    reefd_end(box);
}

RUN_TESTS
