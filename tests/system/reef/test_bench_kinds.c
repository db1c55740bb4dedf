// `reef bench kinds` of the real `reef`, on small texts: its figures, its two forms of answer, and
// what goes wrong. No speed is asserted.
#include "tools_world.h"

#include <math.h>

// Kinds of words of their own, in letters that all have.
typedef struct texts {
    char *directory;
    char *train[3], *held[3], *short_one;
} texts;

static char *write_kind(const char *directory, const char *name, uint32_t kind, size_t count) {
    char *path = path_in(directory, name), *text = reef_cli_alloc(count + 1, 1);
    uint32_t words = 77 * kind + 1, order = kind + (uint32_t)count;
    char word[40][6];
    for (size_t w = 0; w < 40; w++)
        for (size_t i = 0; i < 6; i++) {
            words = words * 1664525u + 1013904223u;
            word[w][i] = (char)('a' + (words >> 24) % 26);
        }
    for (size_t at = 0; at < count;) {
        order = order * 1664525u + 1013904223u;
        for (size_t i = 0; i < 7 && at < count; i++)
            text[at++] = i == 6 ? ' ' : word[(order >> 24) % 40][i];
    }
    write_file(path, text);
    free(text);
    return path;
}

static int texts_make(void **state) {
    texts *t = reef_cli_alloc(1, sizeof(*t));
    t->directory = test_directory_new();
    for (uint32_t k = 0; k < 3; k++) {
        char name[20];
        snprintf(name, sizeof(name), "train-%u", k);
        t->train[k] = write_kind(t->directory, name, k, 20000);
        snprintf(name, sizeof(name), "held-%u", k);
        t->held[k] = write_kind(t->directory, name, k, 12000);
    }
    t->short_one = write_kind(t->directory, "short", 0, 3);
    *state = t;
    return 0;
}

static int texts_remove(void **state) {
    texts *t = *state;
    test_directory_remove(t->directory);
    for (size_t k = 0; k < 3; k++) {
        free(t->train[k]);
        free(t->held[k]);
    }
    free(t->short_one);
    free(t);
    return 0;
}

static json_t *measure(const texts *t, const char *seed) {
    return reef_json("bench", "kinds", t->train[0], t->held[0], t->train[1], t->held[1],
                     t->train[2], t->held[2], "--memory", "4M", "--piece", "300", "--seed", seed,
                     NULL);
}

static void kinds_are_found_and_cost_what_they_cost_alone(void **state) {
    json_t *document = measure(*state, "1");
    assert_int_equal(integer(document, "stream_bytes"), 60000);
    assert_int_equal(integer(document, "changes"), 2);
    assert_int_equal(integer(document, "found"), 2);
    assert_int_equal(integer(document, "invented"), 0);
    assert_int_equal(integer(document, "back_bytes"), 27000);
    assert_int_equal(integer(document, "back_generations"), 0);
    assert_int_equal(integer(document, "strange_bytes"), 0);
    // All but parts of pieces in which one kind ends.
    assert_in_range(integer(document, "same_bytes"), 27000 - 3 * 2048, 27000);
    assert_true(integer(document, "pool_bytes") > 1000000);
    const json_t *kinds = json_object_get(document, "kinds"), *kind;
    size_t i;
    double own = 0.0, pool = 0.0;
    json_array_foreach(kinds, i, kind) {
        assert_int_equal(integer(kind, "begins_at"), 20000 * i);
        assert_in_range(integer(kind, "found_bytes_later") + 4096, 0, 4096 + 8192);
        assert_true(number(kind, "bits_per_byte") < number(kind, "own_bits_per_byte") + 0.05);
        assert_true(number(kind, "later_bits_per_byte") < number(kind, "bits_per_byte") + 0.05);
        own += number(kind, "own_bits_per_byte") / 3;
        pool += number(kind, "bits_per_byte") / 3;
    }
    assert_int_equal(i, 3);
    const json_t *means = json_object_get(document, "means");
    assert_true(fabs(number(means, "own_bits_per_byte") - own) < 1e-9);
    assert_true(fabs(number(means, "bits_per_byte") - pool) < 1e-9);
    const json_t *pieces = json_object_get(document, "pieces");
    assert_int_equal(integer(pieces, "piece_bytes"), 300);
    assert_int_equal(integer(pieces, "bytes") % 300, 0);
    double more = number(pieces, "bits_per_byte") - number(pieces, "own_bits_per_byte");
    assert_true(more > 0.0 && more < 0.15);
    json_decref(document);
}

static void the_seed_decides_about_orders_alone(void **state) {
    json_t *one = measure(*state, "1"), *again = measure(*state, "1"),
           *other = measure(*state, "2");
    json_object_del(one, "seconds");
    json_object_del(again, "seconds");
    assert_true(json_equal(one, again));
    assert_false(json_equal(json_object_get(one, "kinds"), json_object_get(other, "kinds")));
    json_decref(one);
    json_decref(again);
    json_decref(other);
}

static void people_get_a_table(void **state) {
    const texts *t = *state;
    program p;
    reef(&p, "bench", "kinds", t->train[0], t->held[0], t->train[1], t->held[1], "--memory", "4M",
         NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "own memory"));
    assert_non_null(strstr(p.out, "changes  1 of 1 found, 0 generations opened elsewhere"));
    assert_non_null(strstr(p.out, "bytes for each"));
    program_release(&p);
}

static void wrong_input_is_named(void **state) {
    const texts *t = *state;
    const struct {
        const char *last, *option, *value, *words;
        int code;
    } wrong[] = {
        {t->short_one, "--piece", "300", "too short to be divided", 64},
        {"missing.txt", "--piece", "300", "cannot open missing.txt", 66},
        {t->held[1], "--piece", "1", "piece", 64},
        {t->held[1], "--memory", "1M", "4194304", 64},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        program p;
        reef(&p, "bench", "kinds", t->train[0], t->held[0], t->train[1], wrong[i].last,
             wrong[i].option, wrong[i].value, NULL);
        assert_int_equal(p.code, wrong[i].code);
        if (strstr(p.err, wrong[i].words) == NULL) fail_msg("%s", p.err);
        assert_string_equal(p.out, "");
        program_release(&p);
    }
    program p;
    reef(&p, "bench", "kinds", t->train[0], t->held[0], t->train[1], t->held[1], t->train[2], NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "are no pairs of TRAIN and HELD"));
    program_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_found_and_cost_what_they_cost_alone),
        cmocka_unit_test(the_seed_decides_about_orders_alone),
        cmocka_unit_test(people_get_a_table),
        cmocka_unit_test(wrong_input_is_named),
    };
    return cmocka_run_group_tests_name("tools bench kinds", tests, texts_make, texts_remove);
}
