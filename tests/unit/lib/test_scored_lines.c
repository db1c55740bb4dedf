// Figures of lines through the library: they are parts of the text's, for any bytes and as of any
// state, with the kind that answers.
#include <reef/reef.h>

#include "lib_pool.h"
#include "test.h"

#include <math.h>

enum { LONG = 16000, PROBE = 600 };

#define SETTINGS                                                                                   \
    "layers=1", "d_model=16", "attention_heads=2", "context=16", "batch=4", "heads=2", "topk=2",   \
        "d_key=8", "side=4"

static const char *const KINDS[] = {SETTINGS, "net_share=0", "memory=4M", "boundaries=contexts",
                                    NULL};
static const char *const NO_MEMORIES[] = {SETTINGS, "boundaries=given", "memory=0", NULL};

// Words of a kind's own letters in a random order, a line each 40 bytes.
static void make_text(char *out, size_t count, int kind, uint32_t seed) {
    static const char *const LETTERS[] = {"abcdefgh", "01234567"};
    uint32_t order = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) order = order * 1664525u + 1013904223u;
        size_t word = order >> 27;
        size_t letter = (word * 3 + i % 4 * (1 + word % 2)) % 8;
        out[i] = i % 40 == 39 ? '\n' : i % 4 == 3 ? ' ' : LETTERS[kind][letter];
    }
}

static reef_pool *make_pool(const char *path) {
    char text[LONG];
    must(reef_pool_create_model(path, KINDS, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    for (int kind = 0; kind < 2; kind++) {
        make_text(text, LONG, kind, (uint32_t)kind + 1);
        must(reef_pool_train(pool, "text", text, LONG, &why));
    }
    must(reef_pool_commit(pool, NULL, &why));
    return pool;
}

static reef_line_info line_of(const reef_lines *lines, size_t index) {
    reef_line_info info = {.size = sizeof(info)};
    must(reef_lines_read(lines, index, &info, &why));
    return info;
}

static size_t count_of(const reef_lines *lines) {
    reef_line_info info = {.size = sizeof(info)};
    size_t count = 0;
    while (reef_lines_read(lines, count, &info, &why) == REEF_OK) count++;
    assert_int_equal(why.status, REEF_ERR_NOT_FOUND);
    return count;
}

// Sums over the bytes of each line, and the kind that is likeliest most often where one is known.
static void assert_lines_of(reef_pool *pool, const char *text, size_t count, bool is_known) {
    float *bits = room(count * sizeof(*bits));
    uint32_t *kinds = room(count * sizeof(*kinds));
    reef_evaluation all = {.size = sizeof(all)}, total = {.size = sizeof(total)};
    reef_lines *lines;
    must(reef_pool_evaluate(pool, text, count, bits, &all, &why));
    must(reef_pool_evaluate_kinds(pool, text, count, 1, kinds, NULL, NULL, &why));
    must(reef_pool_score_lines(pool, text, count, &lines, &total, &why));
    assert_true(total.bits == all.bits && total.bytes == all.bytes);
    size_t at = 0, index = 0;
    for (; at < count; index++) {
        const reef_line_info line = line_of(lines, index);
        size_t votes[2] = {0};
        double sum = 0;
        assert_int_equal(line.line, index + 1);
        assert_int_equal(line.offset, at);
        for (size_t i = 0; i < line.bytes; i++) assert_true(text[at + i] != '\n');
        const size_t with_end = line.bytes + (at + line.bytes < count);
        for (size_t i = at; i < at + with_end; i++) {
            sum += (double)bits[i];
            assert_true(kinds[i] < 2);
            votes[kinds[i]]++;
        }
        assert_true(line.bits == sum);
        assert_true(line.bits_per_byte == sum / (double)with_end);
        assert_true(line.score >= line.bits_per_byte);
        assert_int_equal(line.kind, !is_known ? -1 : votes[1] > votes[0]);
        at += with_end;
    }
    assert_int_equal(count_of(lines), index);
    reef_lines_free(lines);
}

DIRECTORY_TEST(figures_of_lines_are_sums_over_their_bytes) {
    WITHIN(directory, path);
    char text[2 * PROBE];
    reef_pool *pool = make_pool(path);
    make_text(text, PROBE, 0, 7);
    make_text(text + PROBE, PROBE, 1, 8);
    assert_lines_of(pool, text, sizeof(text), true);
    reef_lines *lines;
    must(reef_pool_score_lines(pool, text, sizeof(text), &lines, NULL, &why));
    assert_int_equal(line_of(lines, 2).kind, 0);
    assert_int_equal(line_of(lines, PROBE / 40 + 2).kind, 1);
    reef_lines_free(lines);
    reef_pool_close(pool);
}

DIRECTORY_TEST(lines_are_any_bytes) {
    WITHIN(directory, path);
    static const char ODD[] = "\0\0a\0b\n\n\xff\xfe\xc3 no UTF-8 \x80\n\r\nno end";
    reef_pool *pool = make_pool(path);
    assert_lines_of(pool, ODD, sizeof(ODD) - 1, false);
    assert_lines_of(pool, "\n\n", 2, false);
    assert_lines_of(pool, "\0\0", 2, false);
    reef_pool_close(pool);
}

DIRECTORY_TEST(lines_are_scored_as_of_the_state) {
    WITHIN(directory, path);
    char text[PROBE];
    make_text(text, PROBE, 1, 9);
    reef_pool *pool = make_pool(path), *then = lib_pool_open(path, 0, "0", 1);
    reef_lines *now, *old;
    must(reef_pool_score_lines(pool, text, PROBE, &now, NULL, &why));
    must(reef_pool_score_lines(then, text, PROBE, &old, NULL, &why));
    assert_int_equal(line_of(now, 3).kind, 1);
    assert_int_equal(line_of(old, 3).kind, -1); // nobody knew it
    assert_true(line_of(now, 0).bits < line_of(old, 0).bits);
    reef_pool_close(pool);
    reef_pool_close(then);
    // They are the caller's, whatever becomes of the pool.
    assert_int_equal(line_of(old, 3).bytes, 39);
    reef_lines_free(now);
    reef_lines_free(old);
}

DIRECTORY_TEST(no_kind_answers_where_none_has_learned) {
    WITHIN(directory, path);
    WITHIN(directory, plain);
    reef_lines *lines;
    must(reef_pool_create_model(path, KINDS, &why));
    must(reef_pool_create_model(plain, NO_MEMORIES, &why));
    const char *const paths[] = {path, plain};
    for (size_t i = 0; i < 2; i++) {
        reef_pool *pool = lib_pool_open(paths[i], 0, NULL, 1);
        must(reef_pool_score_lines(pool, "ab\ncd", 5, &lines, NULL, &why));
        assert_int_equal(count_of(lines), 2);
        assert_int_equal(line_of(lines, 1).kind, -1);
        assert_true(isfinite(line_of(lines, 1).bits) && line_of(lines, 0).bits > 8.0);
        reef_lines_free(lines);
        reef_pool_close(pool);
    }
}

DIRECTORY_TEST(what_has_no_lines_is_refused) {
    WITHIN(directory, path);
    WITHIN(directory, layer);
    reef_lines *lines = (reef_lines *)(void *)path;
    reef_line_info info = {0};
    reef_evaluation total = {0};
    reef_pool *pool = make_pool(path);
    must_fail(reef_pool_score_lines(pool, "", 0, &lines, NULL, &why), REEF_ERR_INVALID,
              "0 bytes has nothing to predict");
    assert_null(lines);
    must_fail(reef_pool_score_lines(pool, "a", 1, &lines, NULL, &why), REEF_ERR_INVALID, "1 bytes");
    must_fail(reef_pool_score_lines(pool, "ab", 2, &lines, &total, &why), REEF_ERR_INVALID,
              "sizeof(reef_evaluation)");
    assert_null(lines);
    must(reef_pool_score_lines(pool, "ab", 2, &lines, NULL, &why));
    must_fail(reef_lines_read(lines, 0, &info, &why), REEF_ERR_INVALID, "sizeof(reef_line_info)");
    info.size = sizeof(info);
    must_fail(reef_lines_read(lines, 1, &info, &why), REEF_ERR_NOT_FOUND,
              "no line 1: the text has 1");
    reef_lines_free(lines);
    reef_lines_free(NULL);
    reef_pool_close(pool);

    const reef_layer_options options = {.size = sizeof(options), .d_model = 8, .side = 16};
    must(reef_pool_create_layer(layer, &options, &why));
    pool = lib_pool_open(layer, 0, NULL, 1);
    must_fail(reef_pool_score_lines(pool, "ab", 2, &lines, NULL, &why), REEF_ERR_INVALID, "layer");
    reef_pool_close(pool);
}

RUN_TESTS
