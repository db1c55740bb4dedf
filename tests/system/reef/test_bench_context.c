// `reef bench context` of the real `reef`, on small texts: its figures, its two forms of answer, a
// rival's table, and what goes wrong. No speed is asserted.
#include "tools_world.h"

#include "reef_context.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

// Texts of the test's own; the world of other tests trains a pool, which nothing here needs.
typedef struct texts {
    char *directory;
    char *english, *english_held, *code, *code_held, *empty, *missing;
} texts;

static char *write_text(const char *directory, const char *name, const char *kind, size_t count) {
    char *path = path_in(directory, name), *text = tiny_text(kind, count);
    write_file(path, text);
    free(text);
    return path;
}

static int texts_make(void **state) {
    texts *t = reef_cli_alloc(1, sizeof(*t));
    t->directory = test_directory_new();
    char *corpus = path_in(t->directory, "corpus");
    assert_int_equal(mkdir(corpus, 0700), 0);
    t->english = write_text(corpus, "english.txt", "english", 6000);
    t->english_held = write_text(corpus, "english.held", "english", 700);
    t->code = write_text(corpus, "code.c", "c", 5000);
    t->code_held = write_text(corpus, "code.held", "c", 600);
    t->empty = write_text(corpus, "empty", "c", 0);
    t->missing = path_in(corpus, "missing");
    free(corpus);
    *state = t;
    return 0;
}

static int texts_remove(void **state) {
    texts *t = *state;
    test_directory_remove(t->directory);
    char *const paths[] = {t->english,   t->english_held, t->code,
                           t->code_held, t->empty,        t->missing};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) free(paths[i]);
    free(t);
    return 0;
}

// The document of both pairs; the caller's.
static json_t *measure_both(const texts *t) {
    return reef_json("bench", "context", t->english, t->english_held, t->code, t->code_held,
                     "--memory", "4M", NULL);
}

static const json_t *text_of(const json_t *document, size_t i) {
    const json_t *text = json_array_get(json_object_get(document, "texts"), i);
    assert_non_null(text);
    return text;
}

static const char *string(const json_t *object, const char *name) {
    const char *value = json_string_value(json_object_get(object, name));
    assert_non_null(value);
    return value;
}

// ---- figures ------------------------------------------------------------------------------------

static void expect_figures(const json_t *text) {
    static const char *const LOSSES[] = {"first_pass_bits_per_byte", "held_out_bits_per_byte",
                                         "frozen_bits_per_byte"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(number(text, LOSSES[i]) > 0);
        assert_true(number(text, LOSSES[i]) < 8); // texts of few words are easier than noise
    }
    assert_true(number(text, "learn_bytes_per_s") > 0);
    assert_true(number(text, "read_bytes_per_s") > 0);
    // 16 cells and two indexes of matches, and of some contexts two trees.
    assert_true(number(text, "lines_per_byte") > 18 && number(text, "lines_per_byte") <= 18 + 32);
    assert_true(number(text, "limit_bytes_per_s") > 0);
    assert_true(number(text, "memory_bytes") > 0);
    assert_true(number(text, "cells_used_percent") > 0);
    assert_true(number(text, "cells_used_percent") <= 100);
    assert_true(json_is_null(json_object_get(text, "rival")));
    assert_true(json_is_null(json_object_get(text, "rival_speed_ratio")));
}

static void every_pair_has_its_figures(void **state) {
    const texts *t = *state;
    json_t *document = measure_both(t);
    assert_int_equal(json_array_size(json_object_get(document, "texts")), 2);
    assert_int_equal(integer(document, "memory_bytes_max"), 4 << 20);
    assert_true(json_is_null(json_object_get(document, "rival_program")));
    const json_t *english = text_of(document, 0), *code = text_of(document, 1);
    assert_string_equal(string(english, "train"), t->english);
    assert_string_equal(string(english, "held"), t->english_held);
    assert_string_equal(string(code, "train"), t->code);
    assert_int_equal(integer(english, "train_bytes"), 6000);
    assert_int_equal(integer(english, "held_bytes"), 700);
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = text_of(document, i);
        expect_figures(text);
        assert_true(number(text, "memory_bytes") <= 4 << 20);
        double each = number(text, "memory_bytes") / number(text, "train_bytes");
        assert_true(fabs(number(text, "memory_bytes_per_byte") / each - 1) < 1e-9);
    }
    json_decref(document);
}

static void the_shares_of_all_inputs_are_one(void **state) {
    json_t *document = measure_both(*state), *input;
    for (size_t i = 0; i < 2; i++) {
        const json_t *inputs = json_object_get(text_of(document, i), "inputs");
        double sum = 0;
        size_t k;
        assert_int_equal(json_array_size(inputs), reef_memory_input_count());
        json_array_foreach(inputs, k, input) {
            assert_string_equal(string(input, "name"), reef_memory_input_name(k));
            assert_true(number(input, "hits") >= 0 && number(input, "hits") <= 1);
            sum += number(input, "share");
        }
        assert_true(fabs(sum - 1) < 1e-6);
    }
    json_decref(document);
}

static void the_mean_is_that_of_the_pairs(void **state) {
    static const char *const FIGURES[] = {"first_pass_bits_per_byte", "held_out_bits_per_byte",
                                          "frozen_bits_per_byte",     "learn_bytes_per_s",
                                          "read_bytes_per_s",         "memory_bytes",
                                          "memory_bytes_per_byte",    "cells_used_percent"};
    json_t *document = measure_both(*state);
    const json_t *mean = json_object_get(document, "mean");
    for (size_t i = 0; i < sizeof(FIGURES) / sizeof(FIGURES[0]); i++) {
        double half =
            (number(text_of(document, 0), FIGURES[i]) + number(text_of(document, 1), FIGURES[i])) /
            2;
        assert_true(fabs(number(mean, FIGURES[i]) / half - 1) < 1e-9);
    }
    double shares = 0;
    for (size_t k = 0; k < 2; k++)
        shares +=
            number(json_array_get(json_object_get(text_of(document, k), "inputs"), 0), "share");
    double share = number(json_array_get(json_object_get(mean, "inputs"), 0), "share");
    assert_true(fabs(share - shares / 2) < 1e-9);
    json_decref(document);
}

static void losses_are_those_of_the_library(void **state) {
    const texts *t = *state;
    char *english = tiny_text("english", 6000);
    float *bits = reef_cli_alloc(6000, sizeof(*bits));
    reef_memory *memory;
    assert_int_equal(reef_memory_new(&memory, &(reef_memory_options){.bytes_max = 4 << 20}, NULL),
                     REEF_OK);
    assert_int_equal(reef_memory_learn(memory, (const uint8_t *)english, 6000, NULL, bits, NULL),
                     REEF_OK);
    double sum = 0;
    for (size_t i = 0; i < 6000; i++) sum += (double)bits[i];
    reef_memory_free(memory);
    json_t *document = measure_both(t);
    double told = number(text_of(document, 0), "first_pass_bits_per_byte");
    assert_true(fabs(told - sum / 6000) < 1e-9);
    json_decref(document);
    free(bits);
    free(english);
}

// ---- limits and rounds --------------------------------------------------------------------------

static void a_text_is_cut_to_the_bytes_asked_for(void **state) {
    const texts *t = *state;
    char *cut = write_text(t->directory, "cut.txt", "english", 6000);
    char *text = tiny_text("english", 6000);
    text[1000] = '\0';
    write_file(cut, text);
    json_t *limited = reef_json("bench", "context", t->english, t->english_held, "--train-bytes",
                                "1000", "--held-bytes", "100", NULL);
    json_t *whole =
        reef_json("bench", "context", cut, t->english_held, "--held-bytes", "100", NULL);
    assert_int_equal(integer(text_of(limited, 0), "train_bytes"), 1000);
    assert_int_equal(integer(text_of(limited, 0), "held_bytes"), 100);
    assert_int_equal(integer(text_of(whole, 0), "train_bytes"), 1000);
    static const char *const SAME[] = {"first_pass_bits_per_byte", "held_out_bits_per_byte",
                                       "frozen_bits_per_byte", "memory_bytes"};
    for (size_t i = 0; i < sizeof(SAME) / sizeof(SAME[0]); i++)
        assert_true(number(text_of(limited, 0), SAME[i]) == number(text_of(whole, 0), SAME[i]));
    json_decref(limited);
    json_decref(whole);
    free(text);
    free(cut);
}

static void rounds_change_nothing_but_times(void **state) {
    const texts *t = *state;
    json_t *one = measure_both(t);
    json_t *three = reef_json("bench", "context", t->english, t->english_held, t->code,
                              t->code_held, "--memory", "4M", "--rounds", "3", NULL);
    static const char *const SAME[] = {"first_pass_bits_per_byte", "held_out_bits_per_byte",
                                       "frozen_bits_per_byte", "memory_bytes"};
    assert_int_equal(integer(three, "rounds"), 3);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof(SAME) / sizeof(SAME[0]); k++)
            assert_true(number(text_of(one, i), SAME[k]) == number(text_of(three, i), SAME[k]));
        assert_true(json_equal(json_object_get(text_of(one, i), "inputs"),
                               json_object_get(text_of(three, i), "inputs")));
    }
    json_decref(one);
    json_decref(three);
}

// ---- the answer for people ----------------------------------------------------------------------

// The line of the table that begins with `name`, up to its end; the caller's.
static char *line_of(const char *text, const char *name) {
    char *begin = reef_cli_format("\n%s ", name);
    const char *line = strstr(text, begin);
    if (line == NULL) fail_msg("no line of %s in %s", name, text);
    char *copy = reef_cli_format("%.*s", (int)strcspn(line + 1, "\n"), line + 1);
    free(begin);
    return copy;
}

static void expect_losses(const char *text, const char *name, const json_t *figures) {
    char *line = line_of(text, name);
    char *words = reef_cli_format("  %.3f  ", number(figures, "held_out_bits_per_byte"));
    char *first = reef_cli_format("  %.3f  ", number(figures, "first_pass_bits_per_byte"));
    char *frozen = reef_cli_format("  %.3f  ", number(figures, "frozen_bits_per_byte"));
    if (strstr(line, words) == NULL) fail_msg("no '%s' in %s", words, line);
    if (strstr(line, first) == NULL) fail_msg("no '%s' in %s", first, line);
    if (strstr(line, frozen) == NULL) fail_msg("no '%s' in %s", frozen, line);
    free(line);
    free(words);
    free(first);
    free(frozen);
}

static void the_tables_say_what_the_document_says(void **state) {
    const texts *t = *state;
    json_t *document = measure_both(t);
    program p;
    reef(&p, "bench", "context", t->english, t->english_held, t->code, t->code_held, "--memory",
         "4M", NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    assert_non_null(strstr(p.out, "at most 1,700,000 bytes learned and 65,536 read of each text"));
    assert_non_null(strstr(p.out, "1 round\n"));
    expect_losses(p.out, "corpus/english.txt", text_of(document, 0));
    expect_losses(p.out, "corpus/code.c", text_of(document, 1));
    expect_losses(p.out, "mean", json_object_get(document, "mean"));
    const json_t *inputs = json_object_get(json_object_get(document, "mean"), "inputs"), *input;
    size_t i, spoke = 0;
    json_array_foreach(inputs, i, input) {
        // A net, and what wide memories alone have, say nothing here.
        char *row = reef_cli_format("\n%s ", string(input, "name"));
        assert_int_equal(strstr(p.out, row) != NULL, number(input, "hits") > 0);
        spoke += number(input, "hits") > 0;
        free(row);
    }
    assert_int_equal(spoke, 20);
    assert_null(strstr(p.out, "nan"));
    program_release(&p);
    json_decref(document);
}

// ---- a rival ------------------------------------------------------------------------------------

// A shell script in the directory of the test. On the heap.
static char *write_rival(const texts *t, const char *lines) {
    char *path = path_in(t->directory, "rival"), *script = reef_cli_format("#!/bin/sh\n%s", lines);
    write_file(path, script);
    assert_int_equal(chmod(path, 0700), 0);
    free(script);
    return path;
}

// Tells the sizes of its two files, whether they are the beginnings of those of the test, and what
// the text is called; its speed is 2 kB/s.
static char *honest_rival(const texts *t) {
    char *lines = reef_cli_format(
        "name=$(basename \"$(dirname \"$1\")\")/$(basename \"$1\")\n"
        "train=$(wc -c <\"$1\") held=$(wc -c <\"$2\")\n"
        "head -c 1000 \"%s/$name\" | cmp -s - \"$1\" && same=1 || same=0\n"
        "echo 'a line that means nothing' >&2\n"
        "printf '%%-28s %%10s %%10s %%12s %%12s %%12s\\n' text 'PPMd o12' 'the same' 'tool kB/s' "
        "'train bytes' 'held bytes'\n"
        "printf '%%-28s %%10s %%10s %%12s %%12s %%12s\\n' "
        "\"a text with a name of more than 28 letters\" - $same 2 $train $held\n",
        t->directory);
    // The folder of the name is the one that the files are in.
    char *path = write_rival(t, lines);
    free(lines);
    return path;
}

static void a_rival_gets_the_same_bytes_and_its_figures_stand_beside_ours(void **state) {
    const texts *t = *state;
    char *rival = honest_rival(t);
    json_t *document = reef_json("bench", "context", t->english, t->english_held, t->code,
                                 t->code_held, "--train-bytes", "1000", "--held-bytes", "650",
                                 "--rounds", "2", "--rival", rival, NULL);
    assert_string_equal(string(document, "rival_program"), rival);
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = text_of(document, i), *told = json_object_get(text, "rival");
        assert_int_equal(json_object_size(told), 5);
        assert_true(json_is_null(json_object_get(told, "PPMd o12")));
        assert_true(number(told, "the same") == 1);
        assert_true(number(told, "train bytes") == 1000);
        assert_true(number(told, "held bytes") == (i == 0 ? 650 : 600));
        double ratio = number(text, "learn_bytes_per_s") / 1000 / number(told, "tool kB/s");
        assert_true(fabs(number(text, "rival_speed_ratio") / ratio - 1) < 1e-9);
    }
    const json_t *mean = json_object_get(json_object_get(document, "mean"), "rival");
    assert_true(json_is_null(json_object_get(mean, "PPMd o12")));
    assert_true(fabs(number(mean, "held bytes") - 625) < 1e-9);
    json_decref(document);

    program p;
    reef(&p, "bench", "context", t->english, t->english_held, "--rival", rival, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "  PPMd o12  the same  tool kB/s  train bytes  held bytes  "
                                  "times tool's speed\n"));
    char *line = line_of(p.out, "corpus/english.txt");
    // It compares the first thousand bytes, and these are six.
    assert_non_null(strstr(line, "         -     0.000      2.000         6000         700  "));
    free(line);
    program_release(&p);
    free(rival);
}

static size_t entries(const char *path) {
    DIR *directory = opendir(path);
    assert_non_null(directory);
    size_t count = 0;
    for (struct dirent *one; (one = readdir(directory)) != NULL;) count += one->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void copies_for_a_rival_are_gone_afterwards(void **state) {
    const texts *t = *state;
    const char *before = getenv("TMPDIR");
    char *saved = before != NULL ? reef_cli_format("%s", before) : NULL;
    char *directory = test_directory_new(), *rival = honest_rival(t);
    assert_int_equal(setenv("TMPDIR", directory, 1), 0);
    program good, bad;
    // Twice the same text: each has copies of its own.
    reef(&good, "bench", "context", t->english, t->english_held, t->english, t->english_held,
         "--rival", rival, NULL);
    reef(&bad, "bench", "context", t->english, t->english_held, "--rival", "/bin/false", NULL);
    assert_int_equal(saved != NULL ? setenv("TMPDIR", saved, 1) : unsetenv("TMPDIR"), 0);
    assert_int_equal(good.code, 0);
    assert_int_equal(bad.code, 64);
    assert_int_equal(entries(directory), 0);
    program_release(&good);
    program_release(&bad);
    test_directory_remove(directory);
    free(rival);
    free(saved);
}

// ---- what goes wrong ----------------------------------------------------------------------------

static void expect_failure(const program *p, int code, const char *words) {
    if (p->code != code) fail_msg("exit %d: %s", p->code, p->err);
    if (strstr(p->err, words) == NULL) fail_msg("no '%s' in %s", words, p->err);
    assert_string_equal(p->out, "");
    assert_int_equal(line_count(p->err), 1);
}

static void files_that_are_missing_are_named(void **state) {
    const texts *t = *state;
    const struct {
        const char *train, *held, *words;
        int code;
    } wrong[] = {
        {t->english, t->missing, t->missing, 66},
        {t->missing, t->english_held, t->missing, 66},
        {t->english, t->empty, "is empty", 66},
        {t->empty, t->english_held, "is empty", 66},
        {t->directory, t->english_held, t->directory, 66},
        {t->english, NULL, "TRAIN HELD", 64},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        program p;
        reef(&p, "bench", "context", wrong[i].train, wrong[i].held, NULL);
        expect_failure(&p, wrong[i].code, wrong[i].words);
        program_release(&p);
    }
    program p;
    reef(&p, "bench", "context", t->english, t->english_held, t->code, NULL);
    expect_failure(&p, 64, "3 files are no pairs of TRAIN and HELD");
    assert_non_null(strstr(p.err, t->code));
    program_release(&p);
}

static void bounds_that_cannot_be_are_refused(void **state) {
    const texts *t = *state;
    static const char *const WRONG[][2] = {{"--memory", "1K"},    {"--memory", "1G"},
                                           {"--memory", "much"},  {"--train-bytes", "0"},
                                           {"--held-bytes", "0"}, {"--rounds", "0"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        program p;
        reef(&p, "bench", "context", t->english, t->english_held, WRONG[i][0], WRONG[i][1], NULL);
        if (p.code != 64) fail_msg("%s %s: exit %d", WRONG[i][0], WRONG[i][1], p.code);
        assert_int_equal(line_count(p.err), 1);
        program_release(&p);
    }
}

static void a_rival_that_fails_is_told_with_its_last_words(void **state) {
    const texts *t = *state;
    static const struct {
        const char *lines, *words;
    } wrong[] = {
        {"echo 'tool: too hot today' >&2\nexit 3\n", "ended with code 3: tool: too hot today"},
        {"kill -9 $$\n", "was ended by signal 9"},
        {"exit 0\n", "printed no table of names and figures; its last line: none"},
        {"echo text only\n", "its last line: text only"},
        {"echo 'text  bits'\necho 'one  many'\n", "its last line: one  many"},
        {"echo 'text  bits  kB/s'\necho 'one  1.5'\n", "its last line: one  1.5"},
        {"echo \"text  bits$(wc -c <\"$1\")\"\necho 'one  1.5'\n", "printed other columns"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *rival = write_rival(t, wrong[i].lines);
        program p;
        reef(&p, "bench", "context", t->english, t->english_held, t->code, t->code_held, "--rival",
             rival, NULL);
        expect_failure(&p, 64, wrong[i].words);
        program_release(&p);
        free(rival);
    }
    program p;
    reef(&p, "bench", "context", t->english, t->english_held, "--rival", t->missing, NULL);
    expect_failure(&p, 66, t->missing);
    program_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_its_figures),
        cmocka_unit_test(the_shares_of_all_inputs_are_one),
        cmocka_unit_test(the_mean_is_that_of_the_pairs),
        cmocka_unit_test(losses_are_those_of_the_library),
        cmocka_unit_test(a_text_is_cut_to_the_bytes_asked_for),
        cmocka_unit_test(rounds_change_nothing_but_times),
        cmocka_unit_test(the_tables_say_what_the_document_says),
        cmocka_unit_test(a_rival_gets_the_same_bytes_and_its_figures_stand_beside_ours),
        cmocka_unit_test(copies_for_a_rival_are_gone_afterwards),
        cmocka_unit_test(files_that_are_missing_are_named),
        cmocka_unit_test(bounds_that_cannot_be_are_refused),
        cmocka_unit_test(a_rival_that_fails_is_told_with_its_last_words),
    };
    return cmocka_run_group_tests(tests, texts_make, texts_remove);
}
