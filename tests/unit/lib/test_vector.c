// Models of labelled vectors through the library as programs of others see it: only reef/reef.h is
// included here.
#include <reef/reef.h>

#include "lib_pool.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { D = 3, ROWS = 700, TEST = 90 }; // no whole batches: 32, 32, 64, 128, 256 and 188

static const char *const VECTORS[] = {"model=vector", "inputs=3",         "side=8",
                                      "memory=100",   "boundaries=given", NULL};

// Points of two classes, `first` and the next label, far from those of another `place`.
static void draw(
    size_t rows, uint32_t seed, int32_t first, float place, float *vectors, int32_t *labels) {
    for (size_t i = 0; i < rows; i++) {
        float sum = 0;
        for (size_t d = 0; d < D; d++) {
            seed = seed * 1664525u + 1013904223u;
            float value = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
            vectors[i * D + d] = place + value;
            sum += d == 0 ? value : 0.3f * value;
        }
        labels[i] = first + (sum > 0);
    }
}

typedef struct answers {
    int32_t labels[TEST];
    float scores[TEST * 4];
    uint32_t generations[TEST];
} answers;

// Share of right answers.
static double ask(reef_pool *pool, int32_t first, float place, size_t classes, answers *out) {
    reef_error err;
    float vectors[TEST * D];
    int32_t labels[TEST];
    size_t right = 0;
    draw(TEST, 99, first, place, vectors, labels);
    memset(out, 0, sizeof(*out));
    must(reef_pool_predict(pool, TEST, vectors, out->labels, out->scores, classes, out->generations,
                           &err),
         &err);
    for (size_t i = 0; i < TEST; i++) right += out->labels[i] == labels[i];
    return (double)right / TEST;
}

static void learn(reef_pool *pool, const char *source, int32_t first, float place) {
    reef_error err;
    static float vectors[ROWS * D];
    static int32_t labels[ROWS];
    draw(ROWS, 7, first, place, vectors, labels);
    // However the stream is cut.
    for (size_t at = 0, n = 1; at < ROWS; at += n, n = n % 97 + 13) {
        size_t left = ROWS - at;
        must(
            reef_pool_learn(pool, source, n < left ? n : left, vectors + at * D, labels + at, &err),
            &err);
    }
}

static void a_model_of_vectors_learns_classes_and_keeps_them(void **state) {
    char path[TEMP_DIR_BYTES];
    reef_error err;
    int32_t classes[4] = {-7, -7, -7, -7};
    size_t count = 9;
    uint64_t cursor = 0;
    answers before, after, now;
    temp_dir_join(path, *state, "pool");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_classes(pool, NULL, 0, &count, &err), &err);
    assert_int_equal(count, 0);
    assert_true(ask(pool, 3, 0, 0, &now) == 0); // it knows none
    assert_int_equal(now.labels[0], -1);

    learn(pool, "first", 3, 0);
    must(reef_pool_cursor(pool, "first", &cursor, &err), &err);
    assert_int_equal(cursor, ROWS);
    assert_true(ask(pool, 3, 0, 2, &now) > 0.9);
    must(reef_pool_seal(pool, 0, &err), &err);
    must(reef_pool_snapshot(pool, "two", &err), &err);
    reef_pool *then = lib_pool_open(path, 0, "0", 1);
    assert_true(ask(then, 3, 0, 2, &before) > 0.9);
    reef_pool_close(then);

    learn(pool, "second", 11, 20);
    must(reef_pool_classes(pool, classes, 3, &count, &err), &err);
    assert_int_equal(count, 4);
    assert_true(classes[0] == 3 || classes[0] == 4);
    assert_int_equal(classes[0] + classes[1], 3 + 4); // in the order of their first example
    assert_true(classes[2] == 11 || classes[2] == 12);
    assert_int_equal(classes[3], -7); // beyond the room
    assert_true(ask(pool, 11, 20, 4, &now) > 0.9);
    for (size_t i = 0; i < TEST; i++) assert_int_equal(now.generations[i], 1);
    assert_true(ask(pool, 3, 0, 4, &now) > 0.9);
    static const char *const STATES[] = {"0", "two"};
    for (size_t i = 0; i < 2; i++) {
        then = lib_pool_open(path, 0, STATES[i], 1);
        (void)ask(then, 3, 0, 2, &after);
        assert_memory_equal(&after, &before, sizeof(before));
        reef_pool_close(then);
    }
    reef_pool_close(pool);
}

static void positions_count_examples(void **state) {
    char path[TEMP_DIR_BYTES];
    reef_error err;
    temp_dir_join(path, *state, "pool");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    reef_training_info training = {.size = sizeof(training)};
    must(reef_pool_read_training(pool, &training, &err), &err);
    assert_true(isnan(training.bits_per_byte));
    learn(pool, "first", 0, 0);
    must(reef_pool_read_training(pool, &training, &err), &err);
    assert_true(training.position > 0 && training.position + training.waiting == ROWS);
    assert_true(training.last_bits_per_byte >= 0 && training.last_bits_per_byte <= 1);
    must(reef_pool_seal(pool, 0, &err), &err);
    must(reef_pool_snapshot(pool, "here", &err), &err);
    reef_pool_info info = {.size = sizeof(info)};
    must(reef_pool_read_info(pool, &info, &err), &err);
    assert_string_equal(info.model, "vector");
    assert_int_equal(info.inputs, D);
    assert_int_equal(info.generations, 2);
    reef_generation_info sealed = {.size = sizeof(sealed)};
    must(reef_pool_read_generation(pool, 0, &sealed, &err), &err);
    assert_true(sealed.sealed);
    assert_int_equal(sealed.sealed_at, info.position);
    assert_int_equal(info.position, ROWS); // what waited for a whole batch was learned before
    reef_snapshot_info snapshot = {.size = sizeof(snapshot)};
    must(reef_pool_read_snapshot(pool, 0, &snapshot, &err), &err);
    assert_int_equal(snapshot.position, info.position);
    reef_pool_close(pool);
}

static bool is_sealed(reef_pool *pool) {
    reef_error err;
    reef_generation_info first = {.size = sizeof(first)};
    must(reef_pool_read_generation(pool, 0, &first, &err), &err);
    return first.sealed;
}

static void a_state_keeps_its_generations_whatever_a_writer_does(void **state) {
    char path[TEMP_DIR_BYTES];
    reef_error err;
    temp_dir_join(path, *state, "pool");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    learn(pool, "first", 0, 0);
    must(reef_pool_snapshot(pool, "open", &err), &err);
    reef_pool *now = lib_pool_open(path, 0, NULL, 1);
    must(reef_pool_seal(pool, 0, &err), &err);
    reef_pool *then = lib_pool_open(path, 0, "open", 1), *later = lib_pool_open(path, 0, NULL, 1);
    assert_false(is_sealed(now));
    assert_false(is_sealed(then));
    assert_true(is_sealed(later));
    reef_pool_close(later);
    reef_pool_close(then);
    reef_pool_close(now);
    reef_pool_close(pool);
}

static void examples_without_a_label_teach_no_class(void **state) {
    char path[TEMP_DIR_BYTES];
    reef_error err;
    size_t count = 9;
    static float vectors[ROWS * D];
    static int32_t labels[ROWS];
    temp_dir_join(path, *state, "pool");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    draw(ROWS, 7, 0, 0, vectors, labels);
    must(reef_pool_learn(pool, "bare", ROWS, vectors, NULL, &err), &err);
    must(reef_pool_classes(pool, NULL, 0, &count, &err), &err);
    assert_int_equal(count, 0);
    reef_pool_close(pool);
}

static void mistakes_are_reported_and_nothing_is_taken(void **state) {
    char path[TEMP_DIR_BYTES], text[TEMP_DIR_BYTES];
    reef_error err;
    float vectors[2 * D] = {0};
    int32_t labels[2] = {0, -2};
    uint64_t cursor = 9, changed = 9;
    temp_dir_join(path, *state, "pool");
    temp_dir_join(text, *state, "text");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    must(reef_pool_create_model(text, NULL, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1), *other = lib_pool_open(text, 1, NULL, 1);
    assert_int_equal(reef_pool_learn(pool, "s", 2, vectors, labels, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "example 1 has the label -2"));
    labels[1] = 1;
    vectors[2 * D - 1] = INFINITY;
    assert_int_equal(reef_pool_learn(pool, "s", 2, vectors, labels, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "column 2"));
    must(reef_pool_cursor(pool, "s", &cursor, &err), &err);
    assert_int_equal(cursor, 0);
    vectors[2 * D - 1] = 0;
    float scores[2];
    assert_int_equal(reef_pool_predict(pool, 1, vectors, labels, scores, 2, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "room for 2 classes, but the state knows 0"));
    assert_int_equal(reef_pool_train(pool, "s", "abc", 3, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "reef_pool_learn"));
    assert_int_equal(reef_pool_freeze(pool, NULL, &changed, &err), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_generate(pool, "a", 1, NULL, text, 1, &err), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_learn(other, "s", 2, vectors, labels, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "model=vector"));
    assert_int_equal(reef_pool_predict(other, 2, vectors, labels, NULL, 0, NULL, &err),
                     REEF_ERR_INVALID);
    reef_pool_close(pool);
    pool = lib_pool_open(path, 0, NULL, 1);
    assert_int_equal(reef_pool_learn(pool, "s", 2, vectors, labels, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "opened for reading"));
    reef_pool_close(pool);
    reef_pool_close(other);
}

// One label more than a pool can meet, at the end of rows that are many batches.
static void a_label_too_many_is_reported_before_the_first_row(void **state) {
    enum { LABELS = 1024 };
    char path[TEMP_DIR_BYTES];
    reef_error err;
    static float vectors[(LABELS + 1) * D];
    static int32_t labels[LABELS + 1];
    uint64_t cursor = 9;
    size_t count = 0;
    temp_dir_join(path, *state, "pool");
    must(reef_pool_create_model(path, VECTORS, &err), &err);
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    draw(LABELS + 1, 7, 0, 0, vectors, labels);
    for (int32_t i = 0; i <= LABELS; i++) labels[i] = 3 * i;
    assert_int_equal(reef_pool_learn(pool, "s", LABELS + 1, vectors, labels, &err), REEF_ERR_FULL);
    assert_non_null(strstr(err.message, "label 3072 would be the pool's class number 1025"));
    must(reef_pool_cursor(pool, "s", &cursor, &err), &err);
    assert_int_equal(cursor, 0);
    // Also with some that wait for a batch, some that are known, and some without one.
    must(reef_pool_learn(pool, "s", 11, vectors, labels, &err), &err);
    assert_int_equal(reef_pool_learn(pool, "s", LABELS + 1, vectors, labels, &err), REEF_ERR_FULL);
    assert_int_equal(reef_pool_learn(pool, "s", LABELS - 10, vectors, labels + 11, &err),
                     REEF_ERR_FULL);
    must(reef_pool_learn(pool, "s", 700, vectors, labels, &err), &err);
    assert_int_equal(reef_pool_learn(pool, "s", LABELS - 10, vectors, labels + 11, &err),
                     REEF_ERR_FULL);
    must(reef_pool_cursor(pool, "s", &cursor, &err), &err);
    assert_int_equal(cursor, 711);
    labels[LABELS] = -1;
    for (int again = 0; again < 2; again++)
        must(reef_pool_learn(pool, "s", LABELS + 1, vectors, labels, &err), &err);
    must(reef_pool_classes(pool, NULL, 0, &count, &err), &err);
    assert_int_equal(count, LABELS);
    reef_pool_close(pool);
}

#define TEST_IN_DIRECTORY(name)                                                                    \
    cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_DIRECTORY(a_model_of_vectors_learns_classes_and_keeps_them),
        TEST_IN_DIRECTORY(positions_count_examples),
        TEST_IN_DIRECTORY(a_state_keeps_its_generations_whatever_a_writer_does),
        TEST_IN_DIRECTORY(examples_without_a_label_teach_no_class),
        TEST_IN_DIRECTORY(mistakes_are_reported_and_nothing_is_taken),
        TEST_IN_DIRECTORY(a_label_too_many_is_reported_before_the_first_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
