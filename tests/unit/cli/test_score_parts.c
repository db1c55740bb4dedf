// Sessions, marks and nearest lines of reef score, against what was worked out by hand.
#include "score_parts.h"
#include "test.h"

#include <math.h>

// ---- sessions -----------------------------------------------------------------------------------

// A text whose line i has scores[i], cut by the pattern.
static void find(reef_sessions *out,
                 reef_scored_lines *lines,
                 const char *text,
                 const double *scores,
                 const char *pattern) {
    static const float NOTHING[512];
    reef_error err;
    regex_t compiled;
    assert_true(strlen(text) <= sizeof(NOTHING) / sizeof(*NOTHING));
    reef_line_scorer *scorer;
    assert_int_equal(reef_line_scorer_new(&scorer, &err), REEF_OK);
    reef_scored_lines_init(lines, scorer, (const uint8_t *)text, NOTHING, strlen(text));
    reef_line_scorer_free(scorer);
    for (size_t i = 0; i < lines->count; i++) lines->lines[i].score = scores[i];
    assert_int_equal(reef_session_pattern_read(&compiled, pattern, &err), REEF_OK);
    assert_int_equal(reef_sessions_find(out, &compiled, lines, &err), REEF_OK);
    regfree(&compiled);
}

static void assert_id(const reef_session *s, const char *id) {
    assert_int_equal(s->id_bytes, strlen(id));
    assert_memory_equal(s->id, id, s->id_bytes);
}

static const char LOG[] =
    "put blk_1 a\nget blk_22 b\nnothing\nput blk_1 c\nget blk_1 d\nend blk_1 e\n"
    "put blk_1 f\nput blk_1 g\n";
static const double SCORES[] = {1, 9, 50, 4, 2, 3, 4, 8};

PLAIN_TEST(a_session_has_the_mean_of_its_worst_lines) {
    reef_sessions found;
    reef_scored_lines lines;
    find(&found, &lines, LOG, SCORES, "blk_[0-9]+");
    assert_int_equal(found.count, 2);
    assert_int_equal(found.left_out, 1);
    assert_id(&found.sessions[0], "blk_22");
    assert_true(found.sessions[0].score == 9);
    assert_int_equal(found.sessions[0].worst_count, 1);
    const reef_session *s = &found.sessions[1];
    assert_id(s, "blk_1");
    assert_int_equal(s->line_count, 6);
    assert_int_equal(s->first, 0);
    assert_int_equal(s->worst_count, SESSION_WORST);
    static const size_t WORST[] = {7, 3, 6, 5, 4}; // of 8, 4, 4, 3 and 2; that of 1 is left out
    double sum = 0;
    for (size_t i = 0; i < SESSION_WORST; i++) {
        assert_int_equal(s->worst[i], WORST[i]);
        sum += SCORES[WORST[i]];
    }
    assert_true(s->score == sum / SESSION_WORST);
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
}

PLAIN_TEST(a_group_is_the_id_and_an_empty_match_is_none) {
    reef_sessions found;
    reef_scored_lines lines;
    find(&found, &lines, LOG, SCORES, "(put|get) blk"); // what is done, whatever the block
    assert_int_equal(found.count, 2);
    assert_id(&found.sessions[0], "get");
    assert_id(&found.sessions[1], "put");
    assert_int_equal(found.left_out, 2);
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
    find(&found, &lines, LOG, SCORES, "x*");
    assert_int_equal(found.count, 0);
    assert_int_equal(found.left_out, 8);
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
    find(&found, &lines, LOG, SCORES, "nothing|(blk_2+)"); // the group takes no part in "nothing"
    assert_int_equal(found.count, 1);
    assert_id(&found.sessions[0], "blk_22");
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
}

PLAIN_TEST(equal_scores_go_by_the_first_line) {
    static const double SAME[] = {1, 1, 1, 1, 1, 1, 1, 1};
    reef_sessions found;
    reef_scored_lines lines;
    find(&found, &lines, LOG, SAME, "[a-f]$");
    assert_int_equal(found.count, 6);
    for (size_t i = 1; i < found.count; i++)
        assert_true(found.sessions[i].first > found.sessions[i - 1].first);
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
}

PLAIN_TEST(a_zero_byte_ends_no_line) {
    static const char TEXT[] = "a\0id=7 b\nid=7";
    static const float NOTHING[sizeof(TEXT)];
    reef_error err;
    regex_t compiled;
    reef_sessions found;
    reef_scored_lines lines;
    reef_line_scorer *scorer;
    assert_int_equal(reef_line_scorer_new(&scorer, &err), REEF_OK);
    reef_scored_lines_init(&lines, scorer, (const uint8_t *)TEXT, NOTHING, sizeof(TEXT) - 1);
    reef_line_scorer_free(scorer);
    assert_int_equal(lines.count, 2);
    assert_int_equal(reef_session_pattern_read(&compiled, "id=[0-9]", &err), REEF_OK);
    assert_int_equal(reef_sessions_find(&found, &compiled, &lines, &err), REEF_OK);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.sessions[0].line_count, 2);
    regfree(&compiled);
    reef_sessions_release(&found);
    reef_scored_lines_release(&lines);
}

PLAIN_TEST(a_broken_pattern_says_why) {
    reef_error err;
    regex_t compiled;
    assert_int_equal(reef_session_pattern_read(&compiled, "blk_(", &err), REEF_ERR_INVALID);
    assert_non_null(
        strstr(err.message, "--session 'blk_(' is no POSIX extended regular expression"));
    assert_true(strlen(strrchr(err.message, ':')) > 4);
}

// ---- marks --------------------------------------------------------------------------------------

PLAIN_TEST(surprising_bytes_join_over_short_gaps) {
    //                             a  b  c  d  e  f  g  h  i  j  k
    static const float BITS[] = {0, 5, 0, 1, 4, 0, 0, 0, 9, 3, 4};
    reef_surprise_span spans[11];
    assert_int_equal(reef_surprise_spans(BITS, 11, spans), 2);
    assert_int_equal(spans[0].offset, 1);
    assert_int_equal(spans[0].bytes, 4); // b to e
    assert_true(spans[0].bits == 10);
    assert_int_equal(spans[1].offset, 8);
    assert_int_equal(spans[1].bytes, 3);
    assert_true(spans[1].bits == 16);
    assert_int_equal(reef_surprise_spans(BITS, 0, spans), 0);
    static const float STRANGE[] = {NAN, 1};
    assert_int_equal(reef_surprise_spans(STRANGE, 2, spans), 0);
}

static char *printed(const char *line, const float *bits, size_t columns, bool colours) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    reef_surprise_print((const uint8_t *)line, bits, strlen(line), "  ", columns, colours, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_printed(
    const char *wanted, const char *line, const float *bits, size_t columns, bool colours) {
    char *text = printed(line, bits, columns, colours);
    assert_string_equal(text, wanted);
    free(text);
}

PLAIN_TEST(marks_stand_below_what_was_surprising) {
    static const float BITS[] = {0, 0, 6, 6, 0, 0, 0, 0, 6, 0, 0, 0};
    assert_printed("  abcdefghij\n    ^^    ^\n", "abcdefghij", BITS, 80, false);
    assert_printed("  abcd\n    ^^\n  efgh\n  ij\n  ^\n", "abcdefghij", BITS, 4, false);
    assert_printed("  ab\033[1;31mcd\033[0mefgh\033[1;31mi\033[0mj\n    ^^    ^\n", "abcdefghij",
                   BITS, 80, true);
    // A control byte takes four columns, a wide character two, and both are marked as a whole.
    assert_printed("  ab\\x01c\n    ^^^^^\n", "ab\001c", BITS, 80, false);
    assert_printed("  a\xe4\xb8\xad"
                   "d\n   ^^\n",
                   "a\xe4\xb8\xad"
                   "d",
                   BITS, 80, false);
    assert_printed("  \n", "", BITS, 80, false);
}

PLAIN_TEST(of_a_long_line_the_surprising_rows_are_shown) {
    static const float BITS[32] = {[1] = 6, [6] = 6, [19] = 6};
    // Two rows without a surprise are shown, and five are not.
    assert_printed("  ab\n   ^\n  cd\n  ef\n  gh\n  ^\n  ... 10 bytes without a surprise ...\n"
                   "  st\n   ^\n  ... 6 bytes without a surprise ...\n",
                   "abcdefghijklmnopqrstuvwxyz", BITS, 2, false);
    static const float NONE[32];
    assert_printed("  ab\n  ... 8 bytes without a surprise ...\n", "abcdefghij", NONE, 2, false);
    // Eight rows of a surprise each.
    float all[30];
    for (size_t i = 0; i < 30; i++) all[i] = 6;
    char wanted[128] = "";
    for (char c = 'a'; c < 'a' + 8; c++) sprintf(wanted + strlen(wanted), "  %c\n  ^\n", c);
    strcat(wanted, "  ... and 18 bytes more\n");
    assert_printed(wanted, "abcdefghijklmnopqrstuvwxyz", all, 1, false);
    wanted[8 * strlen("  a\n  ^\n")] = '\0';
    assert_printed(wanted, "abcdefgh", all, 1, false);
}

// ---- nearest lines ------------------------------------------------------------------------------

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9)) fail_msg("%.17g is not %.17g", a, b);
}

static reef_nearest_found nearest_to(reef_nearest *nearest, const char *line) {
    return reef_nearest_find(nearest, (const uint8_t *)line, strlen(line));
}

static void assert_nearest(reef_nearest *nearest, const char *line, const char *wanted) {
    const reef_nearest_found found = nearest_to(nearest, line);
    assert_non_null(found.line);
    assert_int_equal(found.bytes, strlen(wanted));
    assert_memory_equal(found.line, wanted, found.bytes);
}

PLAIN_TEST(the_nearest_line_shares_most) {
    static const char TEXT[] = "2026-01-01 disk sda is full\n2026-01-02 user ann logs in\n"
                               "2026-01-02 user ann logs in\n2026-01-03 user bob logs out\nx\n\n";
    reef_nearest *nearest = reef_nearest_new((const uint8_t *)TEXT, sizeof(TEXT) - 1);
    assert_nearest(nearest, "2026-01-09 disk sdb is full", "2026-01-01 disk sda is full");
    assert_nearest(nearest, "2026-01-09 user eve logs out", "2026-01-03 user bob logs out");
    assert_nearest(nearest, "x", "x");
    assert_true(nearest_to(nearest, "x").likeness == 1);
    // What was asked before leaves no trace.
    assert_near(nearest_to(nearest, "2026-01-02 user ann logs in").likeness, 1);
    assert_near(nearest_to(nearest, "2026-01-02 user ann logs in").likeness, 1);
    assert_null(nearest_to(nearest, "QQQQQQQQ").line);
    reef_nearest_free(nearest);
}

// Two learned lines of one sequence each and one with both: by hand.
PLAIN_TEST(likeness_weighs_rare_sequences_more) {
    static const char TEXT[] = "aa\nab\n"; // sequences "\naa\n" and "\nab\n"
    reef_nearest *nearest = reef_nearest_new((const uint8_t *)TEXT, sizeof(TEXT) - 1);
    assert_true(nearest_to(nearest, "aa").likeness == 1);
    reef_nearest_free(nearest);
    static const char LONGER[] = "aab\naac\n"; // "\naab" "aab\n", "\naac" "aac\n"
    nearest = reef_nearest_new((const uint8_t *)LONGER, sizeof(LONGER) - 1);
    // "\naab" is known, "aabb" and "abb\n" are not; each weighs log(1 + 2 / 1).
    assert_near(nearest_to(nearest, "aabb").likeness, 2.0 / (3 + 2));
    reef_nearest_free(nearest);
}

PLAIN_TEST(without_learned_lines_there_is_none) {
    reef_nearest *nearest = reef_nearest_new((const uint8_t *)"\n\n", 2);
    assert_null(nearest_to(nearest, "a line").line);
    reef_nearest_free(nearest);
    reef_nearest_free(NULL);
}

RUN_TESTS
