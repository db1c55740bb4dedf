// Kinds of text through the library: what each learned in which visit, which of them answer a text,
// as of every state; names, near kinds, and states that are given up.
#include <reef/reef.h>

#include "damage_kind.h"
#include "lib_pool.h"
#include "test.h"

#include <math.h>
#include <time.h>

enum { LONG = 16000, SHORT = 8000, PROBE = 600 };

// No net: what is asked here is what memories know.
#define SETTINGS                                                                                   \
    "layers=1", "d_model=16", "attention_heads=2", "context=16", "batch=4", "heads=2", "topk=2",   \
        "d_key=8", "side=4", "net_share=0"

static const char *const KINDS[] = {SETTINGS, "memory=4M", "boundaries=contexts", NULL};
static const char *const GATES[] = {SETTINGS, "memory=4M", "boundaries=given", NULL};
static const char *const NO_MEMORIES[] = {
    "layers=1", "d_model=16", "attention_heads=2", "context=16", "batch=4", "heads=2", "topk=2",
    "d_key=8",  "side=4",     "boundaries=given",  "memory=0",   NULL};

// Words of a kind's own letters in a random order.
static void make_text(char *out, size_t count, int kind, uint32_t seed) {
    static const char *const LETTERS[] = {"abcdefgh", "01234567", "QRSTUVWX"};
    uint32_t order = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) order = order * 1664525u + 1013904223u;
        size_t word = order >> 27;
        size_t letter = (word * 3 + i % 4 * (1 + word % 2)) % 8;
        out[i] = i % 4 == 3 ? ' ' : LETTERS[kind][letter];
    }
}

static void learn(reef_pool *pool, size_t count, int kind, uint32_t seed) {
    char text[LONG];
    make_text(text, count, kind, seed);
    must(reef_pool_train(pool, "text", text, count, &why));
}

// Kind 0, kind 1, and kind 0 again, committed.
static reef_pool *make_pool(const char *path) {
    must(reef_pool_create_model(path, KINDS, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    learn(pool, LONG, 0, 1);
    learn(pool, LONG, 1, 2);
    learn(pool, SHORT, 0, 3);
    must(reef_pool_commit(pool, NULL, &why));
    return pool;
}

static reef_kind_info kind_of(reef_pool *pool, size_t index) {
    reef_kind_info info = {.size = sizeof(info)};
    must(reef_pool_read_kind(pool, index, &info, &why));
    return info;
}

static size_t kind_count(reef_pool *pool) {
    reef_kind_info info = {.size = sizeof(info)};
    size_t count = 0;
    while (reef_pool_read_kind(pool, count, &info, NULL) == REEF_OK) count++;
    return count;
}

static reef_visit_info visit_of(reef_pool *pool, uint32_t kind, size_t index) {
    reef_visit_info info = {.size = sizeof(info)};
    must(reef_pool_read_visit(pool, kind, index, &info, &why));
    return info;
}

static uint64_t now_ms(void) {
    return (uint64_t)time(NULL) * 1000 + 999;
}

// ---- what there is ------------------------------------------------------------------------------

static void assert_visit(const reef_visit_info *visit, uint64_t from, uint64_t to) {
    assert_int_equal(visit->visits, 1);
    assert_in_range(visit->begin + 2048, from, from + 4096);
    assert_in_range(visit->end + 2048, to, to + 4096);
    assert_int_equal(visit->learned_bytes, visit->end - visit->begin);
    assert_true(visit->loss > 0.5 && visit->loss < 8.0);
}

DIRECTORY_TEST(of_each_visit_the_loss_is_known) {
    WITHIN(directory, path);
    reef_visit_info none = {.size = sizeof(none)};
    reef_pool *pool = make_pool(path);
    reef_visit_info first = visit_of(pool, 0, 0), second = visit_of(pool, 1, 0),
                    again = visit_of(pool, 0, 1);
    assert_visit(&first, 0, LONG);
    assert_visit(&second, LONG, 2 * LONG);
    assert_visit(&again, 2 * LONG, 2 * LONG + SHORT);
    assert_true(first.end == second.begin && second.end == again.begin);
    assert_true(again.loss < first.loss);
    reef_kind_info kind = kind_of(pool, 0);
    assert_int_equal(kind.visits, 2);
    assert_true(kind.learning && !kind.open);
    assert_true(kind.first_loss == first.loss && kind.last_loss == again.loss);
    assert_in_range(kind.learned_bytes, first.learned_bytes + again.learned_bytes,
                    first.learned_bytes + again.learned_bytes + 3);
    assert_int_equal(kind_of(pool, 1).began_at, second.begin);
    assert_true(kind.began_ms > 0 && kind_of(pool, 1).began_ms >= kind.began_ms);
    assert_in_range(kind_of(pool, 1).began_ms, now_ms() - 600000, now_ms());
    assert_int_equal(reef_pool_read_visit(pool, 0, 2, &none, &why), REEF_ERR_NOT_FOUND);
    assert_string_equal(why.message, "no visit 2 of kind 0: 2 are known");
    assert_int_equal(reef_pool_read_visit(pool, 7, 0, &none, &why), REEF_ERR_NOT_FOUND);
    assert_string_equal(why.message, "there is no kind 7");
    none.size = 0;
    must_fail(reef_pool_read_visit(pool, 0, 0, &none, &why), REEF_ERR_INVALID,
              "sizeof(reef_visit_info)");
    // What is learned since is told after the next commit.
    learn(pool, SHORT, 0, 4);
    assert_int_equal(visit_of(pool, 0, 1).end, again.end);
    must(reef_pool_commit(pool, NULL, &why));
    assert_true(visit_of(pool, 0, 1).end > again.end);
    reef_pool_close(pool);
}

DIRECTORY_TEST(a_state_keeps_the_kinds_of_its_time) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    must(reef_pool_name_kind(pool, 0, "before", &why));
    must(reef_pool_snapshot(pool, "then-1", &why));
    reef_kind_info was = kind_of(pool, 0);
    reef_visit_info visit = visit_of(pool, 0, 1);
    learn(pool, LONG, 2, 5);
    learn(pool, SHORT, 1, 6);
    must(reef_pool_name_kind(pool, 0, "after", &why));
    must(reef_pool_name_kind(pool, 2, "new", &why));
    assert_int_equal(kind_count(pool), 3);

    reef_pool *then = lib_pool_open(path, 0, "then", 1); // the beginning of its name
    assert_int_equal(kind_count(then), 2);
    reef_kind_info is = kind_of(then, 0);
    assert_string_equal(is.name, "before");
    assert_int_equal(is.learned_bytes, was.learned_bytes);
    assert_int_equal(is.learned_at, was.learned_at);
    assert_int_equal(is.began_ms, was.began_ms);
    assert_int_equal(is.visits, 2);
    assert_true(is.learning);
    reef_visit_info same = visit_of(then, 0, 1);
    assert_true(same.begin == visit.begin && same.end == visit.end);
    assert_true(fabs(same.loss - visit.loss) < 0.2); // the mean of all of that visit
    must_fail(reef_pool_name_kind(then, 0, "other", &why), REEF_ERR_INVALID, "opened for reading");
    // Another one that begins so makes no other state of it.
    must(reef_pool_snapshot(pool, "then-2", &why));
    assert_int_equal(kind_count(then), 2);
    reef_pool_close(then);

    reef_pool *sealed = lib_pool_open(path, 0, "0", 1), *now = lib_pool_open(path, 0, NULL, 1);
    assert_int_equal(kind_count(sealed), 1);
    is = kind_of(sealed, 0);
    assert_string_equal(is.name, "after");
    assert_int_equal(is.visits, 1);
    assert_false(is.learning || is.open);
    assert_true(is.last_loss == was.first_loss && is.learned_bytes < was.learned_bytes);
    reef_visit_info none = {.size = sizeof(none)};
    assert_int_equal(reef_pool_read_visit(sealed, 1, 0, &none, &why), REEF_ERR_NOT_FOUND);
    assert_int_equal(kind_count(now), 3);
    assert_string_equal(kind_of(now, 2).name, "new");
    reef_pool_close(sealed);
    reef_pool_close(now);
    reef_pool_close(pool);
}

DIRECTORY_TEST(a_name_is_one_kinds) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    char longest[66];
    memset(longest, 'a', sizeof(longest));
    longest[65] = '\0';
    must(reef_pool_name_kind(pool, 1, "digits", &why));
    assert_int_equal(reef_pool_name_kind(pool, 0, "digits", &why), REEF_ERR_INVALID);
    assert_string_equal(why.message, "kind 1 is called digits already");
    assert_int_equal(reef_pool_name_kind(pool, 9, "more", &why), REEF_ERR_NOT_FOUND);
    const char *const bad[] = {"\xff\xfe", "\xc3\xa4", "a b", "7", ".a", longest};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(reef_pool_name_kind(pool, 0, bad[i], &why), REEF_ERR_INVALID);
    longest[64] = '\0';
    must(reef_pool_name_kind(pool, 0, longest, &why));
    assert_string_equal(kind_of(pool, 0).name, longest);
    must(reef_pool_name_kind(pool, 1, NULL, &why));
    assert_string_equal(kind_of(pool, 1).name, "");
    must(reef_pool_name_kind(pool, 0, "digits", &why)); // which is free now
    reef_pool_close(pool);
}

// ---- who answers --------------------------------------------------------------------------------

DIRECTORY_TEST(the_kind_that_knows_a_text_answers_it) {
    WITHIN(directory, path);
    char text[2 * PROBE];
    uint32_t kinds[2 * PROBE * REEF_CANDIDATES], likeliest[2 * PROBE];
    float weights[2 * PROBE * REEF_CANDIDATES];
    reef_evaluation plain = {.size = sizeof(plain)}, with = {.size = sizeof(with)};
    reef_pool *pool = make_pool(path);
    make_text(text, PROBE, 1, 11);
    make_text(text + PROBE, PROBE, 0, 12);
    must(reef_pool_evaluate(pool, text, 2 * PROBE, NULL, &plain, &why));
    must(reef_pool_evaluate_kinds(pool, text, 2 * PROBE, REEF_CANDIDATES, kinds, weights, &with,
                                  &why));
    assert_true(plain.bits == with.bits && plain.bytes == with.bytes);
    must(reef_pool_evaluate_kinds(pool, text, 2 * PROBE, 1, likeliest, NULL, NULL, &why));
    size_t right = 0;
    for (size_t i = 0; i < 2 * PROBE; i++) {
        const uint32_t *k = kinds + i * REEF_CANDIDATES;
        const float *w = weights + i * REEF_CANDIDATES;
        float sum = 0.0f;
        for (size_t c = 0; c < REEF_CANDIDATES; c++) {
            sum += w[c];
            assert_true(c < 2 ? k[c] <= 1 || w[c] == 0.0f : k[c] == UINT32_MAX && w[c] == 0.0f);
        }
        assert_true(fabsf(sum - 1.0f) < 1e-5f && w[0] >= w[1]);
        assert_int_equal(likeliest[i], k[0]);
        right += k[0] == (i < PROBE ? 1u : 0u);
    }
    assert_true(right > 2 * PROBE - 60);
    // As of a state only its kinds answer.
    reef_pool *then = lib_pool_open(path, 0, "0", 1);
    must(reef_pool_evaluate_kinds(then, text, 2 * PROBE, 2, kinds, weights, NULL, &why));
    for (size_t i = 0; i < 2 * PROBE; i++) {
        assert_true(kinds[2 * i] == 0 && kinds[2 * i + 1] == UINT32_MAX);
        assert_true(weights[2 * i] == 1.0f && weights[2 * i + 1] == 0.0f);
    }
    reef_pool_close(then);
    for (uint32_t width = 0; width <= REEF_CANDIDATES + 1; width += REEF_CANDIDATES + 1) {
        must_fail(reef_pool_evaluate_kinds(pool, text, 9, width, kinds, NULL, NULL, &why),
                  REEF_ERR_INVALID, "give an array for 1 to 8");
    }
    assert_int_equal(reef_pool_evaluate_kinds(pool, text, 9, 1, NULL, NULL, NULL, &why),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_pool_evaluate_kinds(pool, text, 1, 1, kinds, NULL, NULL, &why),
                     REEF_ERR_INVALID); // nothing to predict
    reef_pool_close(pool);
}

DIRECTORY_TEST(gates_let_one_kind_answer) {
    WITHIN(directory, path);
    char text[PROBE];
    uint32_t kinds[2 * PROBE];
    float weights[2 * PROBE];
    must(reef_pool_create_model(path, GATES, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    make_text(text, PROBE, 0, 9);
    for (uint32_t kind = 0; kind < 2; kind++) {
        must(reef_pool_evaluate_kinds(pool, text, PROBE, 2, kinds, weights, NULL, &why));
        for (size_t i = 0; i < PROBE; i++) {
            assert_true(kinds[2 * i] <= kind && kinds[2 * i + 1] == UINT32_MAX);
            assert_true(weights[2 * i] == 1.0f && weights[2 * i + 1] == 0.0f);
        }
        learn(pool, LONG, (int)kind, kind);
        must(reef_pool_seal(pool, 0, &why));
    }
    reef_pool_close(pool);
}

// ---- states that go -----------------------------------------------------------------------------

DIRECTORY_TEST(old_states_are_given_up) {
    WITHIN(directory, path);
    reef_pool *then;
    reef_prune_info would = {.size = sizeof(would)}, done = {.size = sizeof(done)};
    reef_pool *pool = make_pool(path);
    learn(pool, LONG, 2, 5);
    learn(pool, SHORT, 0, 6); // tables of kind 0 beside those that it had before
    must(reef_pool_seal(pool, 0, &why));
    assert_int_equal(reef_pool_prune(pool, 0, 0, &done, &why), REEF_ERR_INVALID);
    must(reef_pool_prune(pool, 1, 1, &would, &why));
    reef_pool_close(lib_pool_open(path, 0, "1", 1)); // which was not done
    must(reef_pool_prune(pool, 1, 0, &done, &why));
    assert_true(would.states == done.states && would.visits == done.visits &&
                would.bytes == done.bytes);
    must(reef_pool_prune(pool, 1, 0, NULL, &why)); // and nothing more
    const reef_pool_options old = {.size = sizeof(old), .as_of = "1"};
    reef_status status = reef_pool_open(&then, path, &old, &why);
    assert_int_equal(status, done.states > 0 ? REEF_ERR_NOT_FOUND : REEF_OK);
    reef_pool_close(then);
    assert_int_equal(kind_count(pool), 4);
    reef_pool *reader = lib_pool_open(path, 0, NULL, 1);
    must_fail(reef_pool_prune(reader, 1, 0, &done, &why), REEF_ERR_INVALID, "opened for reading");
    reef_pool_close(reader);
    reef_pool_close(pool);
}

// ---- damage -------------------------------------------------------------------------------------

static reef_status try_to_open(const char *path, int write, const char *as_of, reef_error *err) {
    reef_pool *pool = NULL;
    const reef_pool_options options = {.size = sizeof(options), .write = write, .as_of = as_of};
    reef_status status = reef_pool_open(&pool, path, &options, err);
    reef_pool_close(pool);
    return status;
}

DIRECTORY_TEST(a_pool_with_a_damaged_kind_is_not_opened) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    // With something that is not committed it is closed as it is, and the kind needs its first
    // memory still.
    learn(pool, 1, 0, 4);
    reef_pool_close(pool);
    must(try_to_open(path, 0, "0", &why));
    damage_kind(path, 0);
    for (int write = 0; write < 2; write++) {
        must_fail(try_to_open(path, write, NULL, &why), REEF_ERR_CORRUPT, "kind 0 is damaged");
        assert_non_null(strstr(why.message, "reef verify"));
        assert_non_null(strstr(why.message, "memory (generation 0, name mixer"));
    }
    assert_int_equal(try_to_open(path, 0, "0", &why), REEF_ERR_CORRUPT);
}

// ---- pools of other kinds -----------------------------------------------------------------------

DIRECTORY_TEST(without_memories_there_are_no_visits) {
    WITHIN(directory, path);
    WITHIN(directory, layer);
    uint32_t kinds[8];
    reef_visit_info visit = {.size = sizeof(visit)};
    must(reef_pool_create_model(path, NO_MEMORIES, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    learn(pool, SHORT, 0, 1);
    must(reef_pool_commit(pool, NULL, &why));
    assert_int_equal(kind_count(pool), 1);
    assert_int_equal(kind_of(pool, 0).learned_bytes, 0);
    must_fail(reef_pool_read_visit(pool, 0, 0, &visit, &why), REEF_ERR_NOT_FOUND,
              "no context memories");
    must_fail(reef_pool_evaluate_kinds(pool, "text", 4, 1, kinds, NULL, NULL, &why),
              REEF_ERR_INVALID, "no context memories");
    reef_pool_close(pool);
    const reef_layer_options sizes = {.size = sizeof(sizes), .d_model = 16, .side = 16};
    must(reef_pool_create_layer(layer, &sizes, &why));
    pool = lib_pool_open(layer, 1, NULL, 1);
    assert_int_equal(reef_pool_evaluate_kinds(pool, "text", 4, 1, kinds, NULL, NULL, &why),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_pool_read_visit(pool, 0, 0, &visit, &why), REEF_ERR_NOT_FOUND);
    reef_pool_close(pool);
}

RUN_TESTS
