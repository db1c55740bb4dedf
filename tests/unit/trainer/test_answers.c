// Which kinds answer a text, where contexts decide: those that predict it, whatever came before.
#include "lifelong.h"
#include "model_internal.h"

#include "draw.h"
#include "test.h"

#include <math.h>

enum { KINDS = 18, LEARNED = 16000, TEXT = 1000 };

// Words of a kind's own, made of letters that all kinds have.
static void text_of(uint32_t kind, uint32_t seed, size_t count, uint8_t *out) {
    uint64_t words = 1 + kind, order = 1000 + seed;
    uint8_t word[48][5];
    for (int w = 0; w < 48; w++)
        for (int i = 0; i < 5; i++) word[w][i] = (uint8_t)('a' + draw_int(&words, 0, 25));
    for (size_t at = 0; at < count;) {
        int w = draw_int(&order, 0, 47);
        for (int i = 0; i < 6 && at < count; i++) out[at++] = i == 5 ? ' ' : word[w][i];
    }
}

static void feed_text(lifelong *f, uint32_t kind, uint32_t seed, size_t count) {
    uint8_t *text = room(count);
    text_of(kind, seed, count, text);
    feed(f, text, count);
}

enum { SOME = 11 }; // kinds: more than are asked

static lifelong_mould some; // a pool of SOME kinds and no net

static void learn_kinds(lifelong *f, uint32_t count) {
    make_pool(f, 1);
    for (uint32_t k = 0; k < count; k++) feed_text(f, k, 1, LEARNED);
    feed_text(f, count - 1, 2, LEARNED / 2); // until it is clear that it is one
    commit(f);
    assert_int_equal(status_of(f).generation, count - 1);
}

// Learned once.
static void learn_some(lifelong *f) {
    if (some.dir[0] != '\0') {
        lifelong_copy(f, &some, 1);
        return;
    }
    learn_kinds(f, SOME);
    lifelong_keep(f, &some);
}

static int discard_mould(void **state) {
    lifelong_discard(&some);
    return 0;
}

// Pieces of kinds in a random order.
static void snippets(uint32_t kinds, size_t piece, uint8_t out[TEXT]) {
    uint64_t seed = 9;
    for (size_t at = 0; at < TEXT; at += piece)
        text_of((uint32_t)draw_int(&seed, 0, (int)kinds - 1), (uint32_t)at + 2,
                TEXT - at < piece ? TEXT - at : piece, out + at);
}

static reef_model *open_model(const lifelong *f) {
    return model_of(f->store, NULL);
}

static double score(reef_model *model, const uint8_t *text, size_t count, float *bits) {
    reef_score out = {0};
    must(reef_model_score(model, text, count, bits, &out, NULL, NULL, &why));
    return out.bits;
}

KINDS_TEST(a_text_that_is_read_again_costs_the_same) {
    static const char *const POOLS[] = {"memory", "net"};
    for (size_t s = 0; s < 2; s++) {
        temp_dir_join(f->pool, f->dir, POOLS[s]);
        if (s == 0)
            learn_some(f);
        else {
            choose(&f->config, "net_share", "0.5");
            learn_kinds(f, 3);
        }
        reef_model *model = open_model(f);
        uint8_t text[TEXT];
        float first[TEXT], again[TEXT];
        snippets(SOME, 150, text);
        for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
            reef_model_set_reading(model, reading);
            (void)score(model, text, TEXT, first);
            (void)score(model, text, TEXT, again);
            assert_memory_equal(again, first, sizeof(first));
        }
        reef_model_close(model);
        close_pool(f);
    }
}

// What a byte costs is what its probability was, and all bytes together have probability 1.
KINDS_TEST(probabilities_are_those_of_all_bytes) {
    learn_some(f);
    reef_model *model = open_model(f);
    uint8_t text[TEXT];
    snippets(SOME, 60, text);
    must(reef_recall_begin(&model->recall, &model->network, &why));
    for (size_t i = 0; i < 400; i++) {
        float p[REEF_VOCAB];
        double sum = 0.0, loss = 0.0;
        for (int v = 0; v < REEF_VOCAB; v++) p[v] = 1.0f / REEF_VOCAB;
        must(reef_recall_distribution(&model->recall, &model->network, 0, p, &why));
        const reef_recall_piece piece = {.bytes = text + i, .count = 1};
        must(reef_recall_read(&model->recall, &model->network, &piece, &loss, &why));
        for (int v = 0; v < REEF_VOCAB; v++) sum += (double)p[v];
        assert_true(fabs(sum - 1.0) < 1e-4);
        assert_true(fabs(exp(-loss) / (double)p[text[i]] - 1.0) < 1e-3);
    }
    reef_model_close(model);
}

// Against the kind's own memory, for each piece of a text that changes its kind.
KINDS_TEST(a_kind_is_found_within_some_bytes) {
    enum { PIECE = 300 };
    learn_kinds(f, KINDS);
    reef_model *model = open_model(f);
    double shares[KINDS], all = 0.0;
    for (uint32_t k = 0; k < KINDS; k++) {
        uint8_t text[2 * PIECE];
        float bits[2 * PIECE], own[PIECE];
        double found = 0.0, known = 0.0;
        reef_memory_session *session;
        text_of((k + 7) % KINDS, 2, PIECE, text);
        text_of(k, 3, PIECE, text + PIECE);
        (void)score(model, text, sizeof(text), bits);
        const reef_memory *memory = model->network.generations[k]->memory.memory;
        must(reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, &why));
        must(reef_memory_session_skip(session, text, PIECE, &why));
        must(reef_memory_session_read(session, text + PIECE, PIECE, NULL, own, &why));
        reef_memory_session_close(session);
        for (size_t i = 0; i < PIECE; i++) {
            found += bits[PIECE + i];
            known += own[i];
        }
        assert_true(found < known + 40.0);
        reef_recall_shares(&model->recall, shares);
        // Some texts begin with words that say little.
        assert_true(shares[k] > 0.2 && shares[(k + 7) % KINDS] > 0.2);
        all += shares[k] + shares[(k + 7) % KINDS];
    }
    assert_true(all > 0.9 * KINDS);
    reef_model_close(model);
}

// A pool made before the field existed has 1, and so its answers; new ones ask others.
static size_t bytes_of(const uint32_t *kinds, size_t from, size_t to, uint32_t kind) {
    size_t count = 0;
    for (size_t i = from; i < to; i++) count += kinds[i * REEF_ANSWERS_MAX] == kind;
    return count;
}

// The candidates of one byte: the likeliest first, none twice, all that answered.
static void assert_candidates(const uint32_t *kinds, const float *weights, double *sums) {
    double all = 0.0;
    for (size_t c = 0; c < REEF_ANSWERS_MAX; c++) {
        all += (double)weights[c];
        if (kinds[c] == UINT32_MAX) {
            assert_true(weights[c] == 0.0f);
            continue;
        }
        assert_in_range(kinds[c], 0, SOME - 1);
        sums[kinds[c]] += (double)weights[c];
        if (c == 0) continue;
        assert_true(kinds[c - 1] != UINT32_MAX && weights[c] <= weights[c - 1]);
        for (size_t b = 0; b < c; b++) assert_true(kinds[b] != kinds[c]);
    }
    assert_true(fabs(all - 1.0) < 1e-5);
}

KINDS_TEST(of_each_byte_the_candidates_are_told) {
    enum { WIDTH = REEF_ANSWERS_MAX };
    learn_some(f);
    reef_model *model = open_model(f);
    uint8_t text[TEXT];
    uint32_t kinds[TEXT * WIDTH], first[TEXT];
    float weights[TEXT * WIDTH], bits[TEXT], plain[TEXT];
    double sums[SOME] = {0}, shares[SOME];
    text_of(3, 5, TEXT / 2, text);
    text_of(7, 6, TEXT / 2, text + TEXT / 2);
    (void)score(model, text, TEXT, plain);
    reef_score wide = {.fire_share = shares,
                       .answers = {.width = WIDTH, .kinds = kinds, .weights = weights}};
    must(reef_model_score(model, text, TEXT, bits, &wide, NULL, NULL, &why));
    assert_memory_equal(bits, plain, sizeof(bits)); // nobody answers otherwise for being asked
    reef_score narrow = {.answers = {.width = 1, .kinds = first}};
    must(reef_model_score(model, text, TEXT, NULL, &narrow, NULL, NULL, &why));
    for (size_t i = 0; i < TEXT; i++) {
        assert_candidates(kinds + i * WIDTH, weights + i * WIDTH, sums);
        assert_int_equal(first[i], kinds[i * WIDTH]);
    }
    for (size_t k = 0; k < SOME; k++) assert_true(fabs(sums[k] / TEXT - shares[k]) < 1e-4);
    assert_true(bytes_of(kinds, 0, TEXT / 2, 3) > TEXT / 2 - 50);
    assert_true(bytes_of(kinds, TEXT / 2, TEXT, 7) > TEXT / 2 - 50);
    reef_model_close(model);
}

KINDS_TEST(before_anything_was_learned_there_is_one_kind) {
    make_pool(f, 1);
    commit(f);
    reef_model *model = open_model(f);
    uint32_t kinds[2 * 4];
    float weights[2 * 4];
    reef_score score = {.answers = {.width = 2, .kinds = kinds, .weights = weights}};
    must(reef_model_score(model, (const uint8_t *)"text", 4, NULL, &score, NULL, NULL, &why));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(kinds[2 * i], 0);
        assert_int_equal(kinds[2 * i + 1], UINT32_MAX);
        assert_true(weights[2 * i] == 1.0f && weights[2 * i + 1] == 0.0f);
    }
    reef_model_close(model);
}

// With so many kinds the vote decides which ones are asked, and takes a larger sample from the 17th
// on. After a restart it is rebuilt from the memories.
KINDS_TEST(a_kind_is_known_again_among_many) {
    static const size_t THREADS[] = {1, 3};
    reef_commit first = {0};
    for (size_t way = 0; way < 2; way++) {
        char name[16];
        snprintf(name, sizeof(name), "way-%zu", way);
        temp_dir_join(f->pool, f->dir, name);
        make_pool(f, THREADS[way]);
        for (uint32_t k = 0; k < KINDS + 4; k++) {
            feed_text(f, k < KINDS ? k : 3 * (k - KINDS), k, LEARNED);
            if (way == 0 || k % 3 != 2) continue;
            commit(f);
            open_again(f, THREADS[way]);
        }
        reef_commit end = commit(f);
        assert_int_equal(status_of(f).generation, KINDS - 1);
        assert_in_range(status_of(f).visited_bytes, 3 * LEARNED, 5 * LEARNED);
        if (way == 0) first = end;
        assert_memory_equal(end.root, first.root, sizeof(first.root));
        assert_sound(f);
        close_pool(f);
    }
}

// A kind that learned a little of many others finds nothing strange. Those that come back are
// recognised all the same.
KINDS_TEST(a_mixed_kind_does_not_keep_what_comes_back) {
    enum { RETURN = 8000 };
    learn_kinds(f, 6);
    for (uint32_t i = 0; i < 80; i++) feed_text(f, i % 4 < 3 ? 30 + i % 20 : i / 4 % 6, i, 700);
    assert_int_equal(status_of(f).generation, 6);
    for (uint32_t k = 0; k < 6; k++) feed_text(f, k, 2, RETURN);
    // Two thirds of it, where a mixed kind would keep two thirds.
    assert_in_range(status_of(f).visited_bytes, 6 * RETURN * 3 / 5, 7 * RETURN);
}

RUN_TESTS_IN(NULL, discard_mould)
