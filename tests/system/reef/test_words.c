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

// ---- pictures -----------------------------------------------------------------------------------

// What is written into the file until it is read; the text is the caller's.
static char *text_of(FILE *file) {
    long count = ftell(file);
    assert_true(count > 0);
    char *text = calloc((size_t)count + 1, 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)count, file), count);
    fclose(file);
    return text;
}

static FILE *a_file(void) {
    FILE *file = tmpfile();
    assert_non_null(file);
    return file;
}

// Where texts stand that begin with these words and have this in their attributes; how many there
// are.
static size_t text_places(
    const char *svg, const char *attribute, const char *words, double *places, size_t most) {
    size_t count = 0;
    for (const char *at = svg; (at = strstr(at, "<text x=\"")); at++) {
        const char *text = strchr(at, '>') + 1, *found = strstr(at, attribute);
        if (found == NULL || found > text || strncmp(text, words, strlen(words)) != 0) continue;
        assert_true(count < most);
        places[count++] = strtod(at + strlen("<text x=\""), NULL);
    }
    return count;
}

static char *loss_svg(const uint64_t *found, size_t found_count) {
    static const reef_point POINTS[] = {{.stream_bytes = 100, .bits_per_byte = 2},
                                        {.stream_bytes = 1000, .bits_per_byte = 3}};
    const reef_loss_chart chart = {
        .points = POINTS, .count = 2, .found = found, .found_count = found_count, .unit = "byte"};
    FILE *file = a_file();
    reef_chart_loss_svg(file, &chart, (reef_chart_box){0, 0, 1000, 400});
    return text_of(file);
}

PLAIN_TEST(labels_of_boundaries_keep_apart_and_in_the_picture) {
    uint64_t found[40] = {300, 600, 1000}; // the last at the end of the stream
    double places[40];
    char *svg = loss_svg(found, 3);
    assert_int_equal(text_places(svg, "#c8402f", "generation ", places, 40), 3);
    assert_true(places[2] < 1000 - 12 * 4.0);
    free(svg);
    for (size_t i = 0; i < 40; i++) found[i] = 25 * (i + 1);
    svg = loss_svg(found, 40);
    size_t count = text_places(svg, "#c8402f", "", places, 40);
    assert_null(strstr(svg, ">generation"));
    assert_true(count >= 15 && count < 40);
    for (size_t i = 1; i < count; i++) assert_true(places[i] - places[i - 1] >= 20);
    free(svg);
}

PLAIN_TEST(names_in_the_head_of_the_matrix_keep_to_their_columns) {
    double bits[] = {2, 3, 4, 5, 6, 7, 8, 9, 3, 2};
    size_t own[10] = {0};
    const char *names[10];
    for (size_t j = 0; j < 10; j++) names[j] = "a-domain-with-a-long-name";
    const reef_matrix matrix = {.rows = 1, .columns = 10, .bits = bits, .learned = own};
    FILE *file = a_file();
    reef_chart_matrix_svg(file, &matrix, names, (reef_chart_box){0, 0, 1000, 200});
    char *svg = text_of(file);
    assert_null(strstr(svg, "long"));
    assert_non_null(strstr(svg, ">a-domain\xe2\x80\xa6<")); // a tenth of 802
    free(svg);
}

int main(void) {
    reef_cmd_install();
    return test_run(NULL, NULL);
}
