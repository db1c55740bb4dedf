// What is text by its first bytes, and what is not: packed files, programs, tables of logins.
#include "test.h"
#include "text_kind.h"

#include <string.h>

static const char *kind_of(const char *bytes, size_t count, bool whole) {
    bool decided = false;
    const char *kind = reef_text_kind((const uint8_t *)bytes, count, whole, &decided);
    return kind != NULL ? kind : (decided ? "text" : "unknown");
}

PLAIN_TEST(packed_files_are_told_by_their_first_bytes) {
    assert_string_equal(kind_of("\x1f\x8b\x08\0", 4, false), "packed by gzip");
    assert_string_equal(kind_of("\x28\xb5\x2f\xfd\0\0", 6, false), "packed by zstd");
    assert_string_equal(kind_of("\xfd"
                                "7zXZ\0\0",
                                7, false),
                        "packed by xz");
    assert_string_equal(kind_of("BZh91AY&SY..", 12, false), "packed by bzip2");
    assert_string_equal(kind_of("BZh9 is no archive, and a line of a log\n", 40, false), "text");
    assert_string_equal(kind_of("LPKSHHRH....", 12, false), "a file of systemd's journal");
}

PLAIN_TEST(logs_are_text_whatever_a_line_of_them_has) {
    static const char COLOURS[] = "\x1b[1mbold\x1b[0m \x1b[31mred\x1b[0m\ttab\r\n";
    static const char ODD[] = "a line with \xff \xc0\xaf \x80 and one \0 of them\n";
    char hole[400] = "a line and a hole\n";
    memset(hole + 18, 0, 300);
    memset(hole + 318, 'x', 81);
    assert_string_equal(kind_of(COLOURS, sizeof(COLOURS) - 1, false), "text");
    assert_string_equal(kind_of(ODD, sizeof(ODD) - 1, false), "text");
    assert_string_equal(kind_of(hole, sizeof(hole), false), "text");
    assert_string_equal(kind_of("caf\xe9 in Latin-1\n", 16, false), "text");
}

PLAIN_TEST(what_is_no_text_is_told_by_control_characters) {
    static const char LOGIN[384] = "\x07\0\0\0\xd2\x04\0\0pts/0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                   "\0\0\0\0\0\0\0\0ts/0user";
    char wide[200];
    for (size_t i = 0; i < sizeof(wide); i++) wide[i] = i % 2 ? 0 : 'w';
    wide[198] = '\n';
    assert_string_equal(kind_of(wide, sizeof(wide), false), "no text"); // UTF-16
    char logins[3 * sizeof(LOGIN)];
    for (size_t i = 0; i < 3; i++) memcpy(logins + i * sizeof(LOGIN), LOGIN, sizeof(LOGIN));
    assert_string_equal(kind_of(logins, sizeof(logins), false), "no text");
}

PLAIN_TEST(too_few_bytes_wait) {
    assert_string_equal(kind_of("half of a", 9, false), "unknown");
    assert_string_equal(kind_of("half of a", 9, true), "text");
    assert_string_equal(kind_of("\x1f", 1, false), "unknown");
}

PLAIN_TEST(what_the_journal_tells_is_read_from_it) {
    assert_non_null(strstr(reef_text_advice("wtmp.1"), "journal:"));
    assert_non_null(strstr(reef_text_advice("system.journal"), "journal:"));
    assert_string_equal(reef_text_advice("app.log"), "");
}

RUN_TESTS
