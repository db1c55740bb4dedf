// What clients push becomes bytes of the stream: every format against bytes written by hand, and
// what is wrong with a batch in words that name the line. A batch is taken as a whole or not at
// all.
#include "push.h"
#include "reef_push_journal.h"
#include "reef_store.h"
#include "test.h"

#include <math.h>

static reef_ingested parse(reef_ingest_format format, const void *body, size_t bytes) {
    reef_error err;
    reef_ingested out;
    if (reef_ingest_parse(&out, format, body, bytes, &err) != REEF_OK) fail_msg("%s", err.message);
    return out;
}

static void assert_refused(reef_ingest_format format,
                           const void *body,
                           size_t bytes,
                           const char *file_entry) {
    reef_error err;
    reef_ingested out;
    reef_status status = reef_ingest_parse(&out, format, body, bytes, &err);
    assert_int_equal(status, REEF_ERR_INVALID);
    assert_int_equal(err.status, REEF_ERR_INVALID);
    if (strstr(err.message, file_entry) == NULL)
        fail_msg("\"%s\" is not in: %s", file_entry, err.message);
    assert_null(out.bytes);
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
    size_t bytes = REEF_JOURNAL_BATCH_BYTES_MAX;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'x', bytes + 1);
    assert_refused(REEF_INGEST_TEXT, text, bytes, "send several");
    assert_refused(REEF_INGEST_TEXT, text, bytes + 1, "send several");
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
    refused("{\"text\": 1}\n", "line 1: no \"text\"");
    refused("{}\n", "line 1: no \"text\"");
    refused("[\"a\"]\n", "line 1: no object such as {\"text\"");
}

RUN_TESTS
