// What clients push becomes bytes of the stream: every format against bytes written by hand, and
// what is wrong with a batch in words that name the line. A batch is taken as a whole or not at
// all.
#include "push_parse.h"
#include "reef_push_journal.h"
#include "reef_store.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static reef_ingested parse(
    reef_ingest_format format, uint32_t inputs, const char *label, const void *body, size_t bytes) {
    reef_error err;
    reef_ingested out;
    if (reef_ingest_parse(&out, format, inputs, label, body, bytes, &err) != REEF_OK)
        fail_msg("%s", err.message);
    return out;
}

static void assert_refused(reef_ingest_format format,
                           uint32_t inputs,
                           const char *label,
                           const void *body,
                           size_t bytes,
                           const char *file_entry) {
    reef_error err;
    reef_ingested out;
    reef_status status = reef_ingest_parse(&out, format, inputs, label, body, bytes, &err);
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

static void text_is_taken_as_it_is(void **state) {
    (void)state;
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, "a\nb\n", 4), "a\nb\n", 4, 2);
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, "\n", 1), "\n", 1, 1);
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, "a\r\n\0\xff\n", 6), "a\r\n\0\xff\n", 6, 2);
}

static void a_last_line_gets_its_end(void **state) {
    (void)state;
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, "a\nb", 3), "a\nb\n", 4, 2);
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, "\0", 1), "\0\n", 2, 1);
}

static void a_batch_has_a_bound(void **state) {
    (void)state;
    size_t bytes = REEF_JOURNAL_BATCH_BYTES_MAX;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'x', bytes + 1);
    assert_refused(REEF_INGEST_TEXT, 0, NULL, text, bytes, "send several");
    assert_refused(REEF_INGEST_TEXT, 0, NULL, text, bytes + 1, "send several");
    text[bytes - 1] = '\n';
    assert_text(parse(REEF_INGEST_TEXT, 0, NULL, text, bytes), text, bytes, 1);
    free(text);
}

static void nothing_is_no_batch(void **state) {
    (void)state;
    assert_refused(REEF_INGEST_TEXT, 0, NULL, "", 0, "empty");
    assert_refused(REEF_INGEST_JSONL, 0, NULL, "\n \n\t\r\n", 6, "empty");
    assert_refused(REEF_INGEST_NPY, 2, NULL, "", 0, "NUMPY");
}

// ---- JSON Lines ---------------------------------------------------------------------------------

static reef_ingested lines(uint32_t inputs, const char *text) {
    return parse(REEF_INGEST_JSONL, inputs, NULL, text, strlen(text));
}

static void refused(uint32_t inputs, const char *text, const char *file_entry) {
    assert_refused(REEF_INGEST_JSONL, inputs, NULL, text, strlen(text), file_entry);
}

static void texts_of_json_lines_are_lines(void **state) {
    (void)state;
    assert_text(lines(0, "{\"text\": \"a\\nb\"}\n\n{\"id\": 7, \"text\": \"c\\n\"}\r\n"),
                "a\nb\nc\n", 6, 2);
    assert_text(lines(0, "{\"text\": \"\"}"), "\n", 1, 1);
    assert_text(lines(0, "{\"text\": \"\\u0000\\u00e9\"}"), "\0\xc3\xa9\n", 4, 1);
}

static void a_bad_line_is_named_and_the_batch_refused(void **state) {
    (void)state;
    refused(0, "{\"text\": \"a\"}\n\n{\"text\": }\n", "line 3: no JSON");
    refused(0, "{\"text\": \"a\"} {\"text\": \"b\"}\n", "line 1: no JSON");
    refused(0, "{\"text\": \"a\", \"text\": \"b\"}\n", "line 1: no JSON");
    refused(0, "{\"text\": \"\xff\"}\n", "line 1: no JSON");
    assert_refused(REEF_INGEST_JSONL, 0, NULL, "{\"text\": \"a\"}\n\0{}\n", 18, "line 2: no JSON");
    refused(0, "{\"text\": 1}\n", "line 1: no \"text\"");
    refused(0, "{}\n", "line 1: no \"text\"");
    refused(0, "[\"a\"]\n", "line 1: no object such as {\"text\"");
    refused(0, "{\"vector\": [1]}\n", "line 1: no \"text\"");
}

static void vectors_of_json_lines_are_records(void **state) {
    (void)state;
    const uint8_t wanted[] = {3,    0,   0,   0,   0, 0, 0,    0x3f, 0, 0, 0x80, 0xbf,
                              0xff, 255, 255, 255, 0, 0, 0x80, 0x3f, 0, 0, 0,    0x40};
    assert_text(lines(2, "{\"vector\": [0.5, -1], \"label\": 3}\n{\"vector\": [1, 2e0]}"), wanted,
                sizeof(wanted), 2);
    reef_ingested none =
        lines(1, "{\"vector\": [0], \"label\": null}\n{\"vector\": [0], \"label\": -1}");
    assert_memory_equal(none.bytes, "\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\0\0\0\0", 16);
    reef_ingested_release(&none);
}

static void bad_vectors_are_named(void **state) {
    (void)state;
    refused(2, "{\"vector\": [1, 2]}\n{\"vector\": [1, 2, 3]}\n",
            "line 2: the vector has 3 values, but the pool takes 2");
    refused(2, "{\"vector\": [1]}", "has 1 values");
    refused(2, "{\"vector\": []}", "has 0 values");
    refused(2, "{\"vector\": 1}", "list of numbers");
    refused(2, "{\"label\": 1}", "list of numbers");
    refused(2, "[1, 2]", "no object such as {\"vector\"");
    refused(2, "{\"vector\": [1, \"2\"]}", "not a number that a float can hold");
    refused(2, "{\"vector\": [1, 1e39]}", "not a number that a float can hold");
    refused(2, "{\"vector\": [1, 2], \"label\": -2}", "the label is not a whole number");
    refused(2, "{\"vector\": [1, 2], \"label\": 0.5}", "the label is not a whole number");
    refused(2, "{\"vector\": [1, 2], \"label\": \"1\"}", "the label is not a whole number");
    refused(2, "{\"vector\": [1, 2], \"label\": 2147483648}", "the label is not a whole number");
}

static void vectors_are_bounded_while_they_are_made(void **state) {
    (void)state;
    enum { LINES = 300000 };
    char *joined = malloc(LINES * 15);
    assert_non_null(joined);
    for (size_t i = 0; i < LINES; i++) {
        memcpy(joined + 15 * i, "{\"vector\":[1]}", 14);
        joined[15 * i + 14] = '\n';
    }
    assert_refused(REEF_INGEST_JSONL, 1, NULL, joined, LINES * 15, "send several");
    free(joined);
}

static void text_and_vectors_are_distinguished(void **state) {
    (void)state;
    assert_refused(REEF_INGEST_TEXT, 2, NULL, "a\n", 2, "vector model");
    assert_refused(REEF_INGEST_NPY, 0, NULL, "a\n", 2, "language model");
    refused(2, "{\"text\": \"a\"}", "list of numbers");
}

// ---- .npy ---------------------------------------------------------------------------------------

/** A .npy file of version 1.0; its length. */
static size_t npy(uint8_t *out, const char *dict, const void *numbers, size_t bytes) {
    size_t header = strlen(dict);
    memcpy(out, "\x93NUMPY\x01\0", 8);
    out[8] = (uint8_t)header;
    out[9] = (uint8_t)(header >> 8);
    memcpy(out + 10, dict, header);
    memcpy(out + 10 + header, numbers, bytes);
    return 10 + header + bytes;
}

#define FLOATS(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape ", }\n"

static void npy_arrays_are_records_with_the_label_where_the_request_puts_it(void **state) {
    (void)state;
    uint8_t file[256];
    const float numbers[] = {0.5f, -1, 7, 1, 2, 8};
    size_t bytes = npy(file, FLOATS("(2, 3)"), numbers, sizeof(numbers));
    const uint8_t last[] = {7, 0, 0, 0, 0, 0, 0,    0x3f, 0, 0, 0x80, 0xbf,
                            8, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0,    0x40};
    assert_text(parse(REEF_INGEST_NPY, 2, "last", file, bytes), last, sizeof(last), 2);
    reef_ingested none = parse(REEF_INGEST_NPY, 3, NULL, file, bytes);
    assert_int_equal(none.count, 2 * 16);
    assert_memory_equal(none.bytes, "\xff\xff\xff\xff\0\0\0\x3f", 8);
    reef_ingested_release(&none);
    assert_refused(REEF_INGEST_NPY, 2, "first", file, bytes, "label 0 (from 0) is 0.5");
    assert_refused(REEF_INGEST_NPY, 2, "middle", file, bytes, "first, last or none");
    assert_refused(REEF_INGEST_NPY, 2, "none", file, bytes, "has 3 values, but the pool takes 2");
}

static void pixels_of_npy_become_fractions(void **state) {
    (void)state;
    uint8_t file[256];
    const uint8_t pixels[] = {0, 255};
    size_t bytes =
        npy(file, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }\n", pixels, 2);
    assert_text(parse(REEF_INGEST_NPY, 2, "none", file, bytes),
                "\xff\xff\xff\xff\0\0\0\0\0\0\x80\x3f", 12, 1);
}

static void bad_npy_files_are_refused_in_words(void **state) {
    (void)state;
    uint8_t file[256];
    const float numbers[] = {0.5f, NAN};
    size_t bytes = npy(file, FLOATS("(1, 2)"), numbers, sizeof(numbers));
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, bytes, "not a finite float");
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, bytes - 1, "was cut");
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, 20, "was cut or damaged in its header");
    assert_refused(REEF_INGEST_NPY, 2, NULL, "{\"vector\": [1, 2]}", 18, "NUMPY");
    bytes = npy(file, FLOATS("(0, 2)"), numbers, 0);
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, bytes, "dimension of 0");
    bytes = npy(file, FLOATS("(4000000000, 1000000)"), numbers, 8);
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, bytes, "was cut");
    bytes = npy(file, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n", numbers, 8);
    assert_refused(REEF_INGEST_NPY, 2, NULL, file, bytes, "order");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_taken_as_it_is),
        cmocka_unit_test(a_last_line_gets_its_end),
        cmocka_unit_test(a_batch_has_a_bound),
        cmocka_unit_test(nothing_is_no_batch),
        cmocka_unit_test(texts_of_json_lines_are_lines),
        cmocka_unit_test(a_bad_line_is_named_and_the_batch_refused),
        cmocka_unit_test(vectors_of_json_lines_are_records),
        cmocka_unit_test(bad_vectors_are_named),
        cmocka_unit_test(vectors_are_bounded_while_they_are_made),
        cmocka_unit_test(text_and_vectors_are_distinguished),
        cmocka_unit_test(npy_arrays_are_records_with_the_label_where_the_request_puts_it),
        cmocka_unit_test(pixels_of_npy_become_fractions),
        cmocka_unit_test(bad_npy_files_are_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
