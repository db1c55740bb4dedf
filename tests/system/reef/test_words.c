// What people read: numbers, cut and printable text, near words, tables, ticks, pictures.
#include "chart.h"
#include "cli.h"
#include "cli_format.h"
#include "commands.h"
#include "reef_gone.h"
#include "test.h"

#include <math.h>

PLAIN_TEST(counts_bytes_and_durations_read_well) {
    char out[CLI_WORD_BYTES];
    assert_string_equal(reef_cli_count(0, out), "0");
    assert_string_equal(reef_cli_count(999, out), "999");
    assert_string_equal(reef_cli_count(1000, out), "1,000");
    assert_string_equal(reef_cli_count(1234567, out), "1,234,567");
    assert_string_equal(reef_cli_count(UINT64_MAX, out), "18,446,744,073,709,551,615");
    assert_string_equal(reef_cli_bytes(999, out), "999 B");
    assert_string_equal(reef_cli_bytes(1500, out), "1.5 kB");
    assert_string_equal(reef_cli_bytes(UINT64_MAX, out), "18.4 EB");
    assert_string_equal(reef_cli_duration(0.25, out), "250 ms");
    assert_string_equal(reef_cli_duration(9.94, out), "9.9 s");
    assert_string_equal(reef_cli_duration(59.6, out), "1 min 0 s");
    assert_string_equal(reef_cli_duration(3723, out), "1 h 2 min");
    assert_string_equal(reef_cli_duration(90000, out), "1 d 1 h");
    assert_string_equal(reef_cli_duration(NAN, out), "0 ms");
}

static void expect_printable(const char *bytes, size_t count, bool lines, const char *expected) {
    char *text = reef_cli_printable((const uint8_t *)bytes, count, lines);
    assert_string_equal(text, expected);
    free(text);
}

PLAIN_TEST(printable_text_never_reaches_the_terminal_raw) {
    expect_printable("caf\xc3\xa9 \xd0\xa0", 8, false, "caf\xc3\xa9 \xd0\xa0");
    expect_printable("a\nb\tc", 5, true, "a\nb\tc");
    expect_printable("a\nb\tc", 5, false, "a\\nb\\tc");
    expect_printable("\x1b[2J\0", 5, true, "\\x1b[2J\\x00");
    expect_printable("\xff\xc3", 2, true, "\\xff\\xc3");          // no UTF-8, and the start of some
    expect_printable("\xc0\xaf", 2, true, "\\xc0\\xaf");          // overlong
    expect_printable("\xed\xa0\x80", 3, true, "\\xed\\xa0\\x80"); // a surrogate
    expect_printable("\xc2\x9b", 2, true, "\\xc2\\x9b"); // a control sequence of one character
    expect_printable("\xf0\x9f\x90\x9a", 4, true, "\xf0\x9f\x90\x9a");
}

PLAIN_TEST(cutting_counts_characters) {
    char *whole = reef_cli_cut("\xd0\xa0\xd0\xb8\xd1\x84", 3),
         *cut = reef_cli_cut("\xd0\xa0\xd0\xb8\xd1\x84", 2);
    assert_string_equal(whole, "\xd0\xa0\xd0\xb8\xd1\x84");
    assert_string_equal(cut, "\xd0\xa0\xe2\x80\xa6");
    assert_int_equal(reef_cli_width(cut), 2);
    free(whole);
    free(cut);
}

// Whatever the locale is: a test has that of C.
PLAIN_TEST(wide_characters_have_two_columns_and_accents_none) {
    assert_int_equal(reef_cli_width("\xe6\xbc\xa2\xe5\xad\x97"), 4); // two Chinese characters
    assert_int_equal(reef_cli_width("e\xcc\x81"), 1);                // an e, and an accent on it
    assert_int_equal(reef_cli_width("a\xff\xe2"), 3);                // no UTF-8
    char *whole = reef_cli_cut("\xe6\xbc\xa2\xe5\xad\x97", 4),
         *cut = reef_cli_cut("\xe6\xbc\xa2\xe5\xad\x97", 3),
         *shorter = reef_cli_cut("\xe6\xbc\xa2\xe5\xad\x97", 2);
    assert_string_equal(whole, "\xe6\xbc\xa2\xe5\xad\x97");
    assert_string_equal(cut, "\xe6\xbc\xa2\xe2\x80\xa6");
    assert_string_equal(shorter, "\xe2\x80\xa6");
    free(whole);
    free(cut);
    free(shorter);
}

PLAIN_TEST(distance_counts_single_typing_mistakes) {
    assert_int_equal(reef_edit_distance("eval", "eval"), 0);
    assert_int_equal(reef_edit_distance("evl", "eval"), 1);
    assert_int_equal(reef_edit_distance("eavl", "eval"), 1);
    assert_int_equal(reef_edit_distance("evaal", "eval"), 1);
    assert_int_equal(reef_edit_distance("", "eval"), 4);
    assert_int_equal(reef_edit_distance("eval", ""), 4);
    assert_int_equal(reef_edit_distance("seal", "grow"), 4);
}

PLAIN_TEST(a_mistyped_command_suggests_the_nearest) {
    static const char *const GUESSES[][2] = {{"stauts", "status"},
                                             {"snapshot crate", "snapshot create"},
                                             {"snapshto", "snapshot"},
                                             {"timel", "timeline"}};
    for (size_t i = 0; i < sizeof(GUESSES) / sizeof(GUESSES[0]); i++) {
        char *guess = reef_cli_command_guess(GUESSES[i][0]);
        assert_string_equal(guess, GUESSES[i][1]);
        free(guess);
    }
    assert_null(reef_cli_command_guess("xyzzy"));
}

PLAIN_TEST(tables_line_up_whatever_the_script) {
    static const char *const HEADING[] = {"name", "n"};
    reef_cli_table *table = reef_cli_table_new("<>", HEADING);
    reef_cli_table_cell(table, "%s", "\xd0\xa0\xd1\x83\xd1\x81\xd1\x81\xd0\xba"); // five letters
    reef_cli_table_cell(table, "%d", 7);
    reef_cli_table_cell(table, "%s", "c");
    reef_cli_table_cell(table, "%d", 1234);
    FILE *file = tmpfile();
    assert_non_null(file);
    reef_cli_table_print(table, file);
    rewind(file);
    char text[128] = {0};
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    reef_cli_table_free(table);
    assert_string_equal(text, "name      n\n"
                              "\xd0\xa0\xd1\x83\xd1\x81\xd1\x81\xd0\xba     7\n"
                              "c      1234\n");
}

PLAIN_TEST(ticks_are_round_and_neither_too_few_nor_too_many) {
    for (int i = -30; i < 100; i++) {
        double range = pow(1.25, i), tick = reef_chart_tick(range, 8),
               lead = tick / pow(10, floor(log10(tick) + 1e-9));
        assert_true(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6);
        assert_true(range / tick <= 8.0001 && range / tick > 3);
    }
}

PLAIN_TEST(smoothing_keeps_a_step_where_it_is_and_drops_a_spike) {
    reef_point points[40];
    for (size_t i = 0; i < 40; i++) points[i] = (reef_point){.bits_per_byte = i < 20 ? 2.0f : 5.0f};
    points[10].bits_per_byte = 9;
    double *smooth = reef_chart_smooth(points, 40);
    for (size_t i = 0; i < 40; i++) assert_true(fabs(smooth[i] - (i < 20 ? 2.0 : 5.0)) < 1e-6);
    free(smooth);
}

int main(void) {
    reef_cmd_install();
    return test_run(NULL, NULL);
}
