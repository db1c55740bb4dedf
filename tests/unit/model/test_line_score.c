// The score of a line against its definition.
#include "checked.h"
#include "reef_model.h"

#include <math.h>

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9)) fail_msg("%.17g is not %.17g", a, b);
}

static reef_line_scorer *learned(const char *text) {
    reef_line_scorer *scorer;
    must(reef_line_scorer_new(&scorer, &why));
    must(reef_line_scorer_learn(scorer, (const uint8_t *)text, strlen(text), &why));
    return scorer;
}

// A line in which each byte has the bits that stand below it, as a digit.
static double score(const reef_line_scorer *scorer, const char *line, const char *digits) {
    float bits[256];
    size_t count = strlen(line);
    assert_true(count == strlen(digits) && count <= sizeof(bits) / sizeof(*bits));
    for (size_t i = 0; i < count; i++) bits[i] = (float)(digits[i] - '0');
    return reef_line_score(scorer, (const uint8_t *)line, bits, count);
}

PLAIN_TEST(a_line_scores_by_its_most_surprising_bytes) {
    reef_line_scorer *scorer = learned("");
    assert_near(score(scorer, "disk full", "113111921"), (9 + 3 + 2) / 3.0 + 20 / 9.0);
    // Digits, and words with them, are none of its words; neither are signs by themselves.
    assert_near(score(scorer, "sda1 99 ok ::", "9999099011099"), (1 + 1) / 3.0 + 74 / 13.0);
    assert_near(score(scorer, "6 6 63\n", "1234567"), 4.0);
    assert_near(score(scorer, "\xc3\xa4 1", "4400"), 8 / 3.0 + 2);
    assert_true(reef_line_score(scorer, NULL, NULL, 0) == 0);
    reef_line_scorer_free(scorer);
}

static double rare(double lines, double having) {
    return log2((lines + 1) / (having + 1));
}

PLAIN_TEST(rare_words_count_where_nothing_surprises) {
    reef_line_scorer *scorer = learned("get a page\nget a page\tof 17\nput a page page\nno");
    // Four lines: "a" and "page" are in three of them, "get" in two, "put" in one, "new" in none.
    assert_near(score(scorer, "get a page", "0000000000"), (rare(4, 2) + 2 * rare(4, 3)) / 4);
    assert_near(score(scorer, "put new page", "000000000000"),
                (rare(4, 1) + rare(4, 0) + rare(4, 3)) / 4);
    // A word counts once a line, and the four rarest count.
    assert_near(score(scorer, "new new a b c d", "000000000000000"), rare(4, 0));
    assert_near(score(scorer, "new new new new", "000000000000000"), rare(4, 0) / 4);
    // The greater of the two, and bits a byte.
    assert_near(score(scorer, "get a page", "9900000000"), 18 / 3.0 + 1.8);
    reef_line_scorer_free(scorer);
}

PLAIN_TEST(words_are_counted_however_many_there_are) {
    enum { WORDS = 20000 };
    size_t used = 0;
    char *text = room((size_t)WORDS * 16);
    // Word i is in one line of i % 3 + 1; named by letters, since words have no digits.
    for (int i = 0; i < WORDS; i++)
        for (int k = 0; k <= i % 3; k++) {
            for (int at = i, letters = 0; letters < 4; letters++, at /= 26)
                text[used++] = (char)('a' + at % 26);
            text[used++] = '\n';
        }
    text[used] = '\0';
    reef_line_scorer *scorer = learned(text);
    double lines = 0;
    for (int i = 0; i < WORDS; i++) lines += i % 3 + 1;
    for (int i = 0; i < WORDS; i += 97) {
        char word[5] = {0};
        for (int at = i, letters = 0; letters < 4; letters++, at /= 26)
            word[letters] = (char)('a' + at % 26);
        assert_near(score(scorer, word, "0000"), rare(lines, i % 3 + 1) / 4);
    }
    reef_line_scorer_free(scorer);
    reef_line_scorer_free(NULL);
}

RUN_TESTS
