// Which kind a text could be of: the vote of its contexts.
#include "reef_kind_vote.h"

#include "context_memory.h"
#include "draw.h"
#include "test.h"

enum { KINDS = 70, LEARNED = 6000, READ = 120, LONG = 300000 };

// Words of a kind's own, made of letters that all kinds have.
static void text_of(uint32_t kind, uint32_t seed, size_t count, uint8_t *out) {
    uint64_t words = 1 + kind, order = 1000 + seed;
    uint8_t word[32][5];
    for (int w = 0; w < 32; w++)
        for (int i = 0; i < 5; i++) word[w][i] = (uint8_t)('a' + draw_int(&words, 0, 25));
    for (size_t at = 0; at < count;) {
        int w = draw_int(&order, 0, 31);
        for (int i = 0; i < 6 && at < count; i++) out[at++] = i == 5 ? ' ' : word[w][i];
    }
}

static void set(reef_kind_vote *vote, uint32_t kind, const uint8_t *text, size_t count) {
    reef_memory *memory = text == NULL ? NULL : new_memory(REEF_MEMORY_BYTES_MIN);
    if (text != NULL) learn(memory, text, count, NULL, NULL);
    must(reef_kind_vote_set(vote, kind, memory, &why));
    reef_memory_free(memory);
}

static reef_memory *memories[KINDS + 1]; // of the first kinds; each learns when it is asked for

static void set_kind(reef_kind_vote *vote, uint32_t number, uint32_t kind) {
    uint8_t text[LEARNED];
    if (memories[kind] == NULL) {
        memories[kind] = new_memory(REEF_MEMORY_BYTES_MIN);
        text_of(kind, 1, LEARNED, text);
        learn(memories[kind], text, LEARNED, NULL, NULL);
    }
    must(reef_kind_vote_set(vote, number, memories[kind], &why));
}

static int free_memories(void **state) {
    for (size_t i = 0; i <= KINDS; i++) reef_memory_free(memories[i]);
    return 0;
}

static reef_kind_vote *new_vote_of(uint32_t sample) {
    reef_kind_vote *vote = NULL;
    must(reef_kind_vote_new(&vote, sample, &why));
    return vote;
}

static reef_kind_vote *new_vote(void) {
    return new_vote_of(REEF_KIND_SAMPLE);
}

static void assert_first(const reef_kind_vote *vote, uint32_t kind, uint32_t number) {
    uint8_t text[READ];
    uint32_t kinds[4];
    text_of(kind, 2, READ, text);
    assert_in_range(reef_kind_vote_count(vote, text, READ, 0.0, kinds, 4), 1, 4);
    assert_int_equal(kinds[0], number);
}

PLAIN_TEST(each_text_names_its_kind_among_many) {
    reef_kind_vote *vote = new_vote();
    // Backwards: the table is as wide as it gets at once.
    for (uint32_t k = KINDS; k-- > 0;) set_kind(vote, k, k);
    for (uint32_t k = 0; k < KINDS; k++) assert_first(vote, k, k);
    reef_kind_vote_free(vote);
}

PLAIN_TEST(the_order_in_which_kinds_came_leaves_no_trace) {
    reef_kind_vote *grown = new_vote(), *wide = new_vote();
    for (uint32_t k = 0; k < KINDS; k++) set_kind(grown, k, k + 1); // another one first
    for (uint32_t k = 0; k < KINDS; k++) set_kind(grown, k, k);
    for (uint32_t k = KINDS; k-- > 0;) set_kind(wide, k, k);
    for (uint32_t k = 0; k < 2 * KINDS; k++) {
        uint8_t text[READ];
        uint32_t a[8], b[8];
        text_of(k, 3, READ, text);
        size_t count = reef_kind_vote_count(grown, text, READ, 0.0, a, 8);
        assert_int_equal(reef_kind_vote_count(wide, text, READ, 0.0, b, 8), count);
        assert_memory_equal(a, b, count * sizeof(*a));
    }
    reef_kind_vote_free(grown);
    reef_kind_vote_free(wide);
}

PLAIN_TEST(a_kind_without_text_has_no_vote) {
    uint8_t text[READ];
    uint32_t kinds[4];
    reef_kind_vote *vote = new_vote();
    text_of(1, 2, READ, text);
    assert_int_equal(reef_kind_vote_count(vote, text, READ, 0.0, kinds, 4), 0);
    for (uint32_t k = 0; k < 3; k++) set_kind(vote, k, k);
    assert_first(vote, 1, 1);
    set(vote, 1, NULL, 0);
    size_t count = reef_kind_vote_count(vote, text, READ, 0.0, kinds, 4);
    for (size_t i = 0; i < count; i++) assert_int_not_equal(kinds[i], 1);
    reef_kind_vote_free(vote);
}

PLAIN_TEST(texts_shorter_than_a_context_name_nobody) {
    uint8_t text[READ];
    uint32_t kinds[4];
    reef_kind_vote *vote = new_vote();
    for (uint32_t k = 0; k < 3; k++) set_kind(vote, k, k);
    text_of(1, 2, READ, text);
    for (size_t count = 0; count < 3; count++)
        assert_int_equal(reef_kind_vote_count(vote, text, count, 0.0, kinds, 4), 0);
    assert_int_equal(reef_kind_vote_count(vote, text, READ, 0.0, kinds, 0), 0);
    reef_kind_vote_free(vote);
}

PLAIN_TEST(kinds_with_too_few_votes_are_left_out) {
    uint8_t text[READ];
    uint32_t all[8], some[8];
    reef_kind_vote *vote = new_vote();
    for (uint32_t k = 0; k < KINDS; k++) set_kind(vote, k, k);
    set_kind(vote, KINDS, 5); // the same again
    text_of(5, 2, READ, text);
    size_t count = reef_kind_vote_count(vote, text, READ, 0.0, all, 8);
    assert_in_range(count, 3, 8);
    // The two that are alike have equal votes, and the others fewer.
    assert_int_equal(reef_kind_vote_count(vote, text, READ, 1.0, some, 8), 2);
    assert_memory_equal(some, all, 2 * sizeof(*all));
    size_t last = count;
    for (double least = 0.0; least < 1.0; least += 0.05) {
        size_t left = reef_kind_vote_count(vote, text, READ, least, some, 8);
        assert_in_range(left, 2, last);
        assert_memory_equal(some, all, left * sizeof(*all));
        last = left;
    }
    assert_int_equal(last, 2);
    reef_kind_vote_free(vote);
}

// A memory that learned two kinds one after the other is named by texts of both.
PLAIN_TEST(all_of_a_long_text_counts) {
    reef_kind_vote *vote = new_vote();
    uint8_t *text = room(LONG);
    text_of(5, 1, LONG / 2, text);
    text_of(6, 1, LONG / 2, text + LONG / 2);
    for (uint32_t k = 0; k < 3; k++) set_kind(vote, k, k);
    set(vote, 3, text, LONG);
    assert_first(vote, 5, 3);
    assert_first(vote, 6, 3);
    reef_kind_vote_free(vote);
}

// In 300 kB the small sample has a piece of 4 kB in every 20 kB.
PLAIN_TEST(a_large_sample_has_short_passages_of_a_long_text) {
    enum { PASSAGE = 8000, BACK = 151000 };
    uint8_t *text = room(LONG), read[READ];
    uint32_t kinds[4];
    text_of(5, 1, LONG, text);
    text_of(6, 1, PASSAGE, text + LONG - BACK);
    text_of(6, 2, READ, read);
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    learn(memory, text, LONG, NULL, NULL);
    for (int large = 0; large < 2; large++) {
        reef_kind_vote *vote = new_vote_of(large ? REEF_KIND_SAMPLE : REEF_KIND_SAMPLE_SMALL);
        for (uint32_t k = 0; k < 3; k++) set_kind(vote, k, k);
        must(reef_kind_vote_set(vote, 3, memory, &why));
        assert_first(vote, 5, 3);
        size_t count = reef_kind_vote_count(vote, read, READ, 0.0, kinds, 4);
        assert_int_equal(count > 0 && kinds[0] == 3, large);
        reef_kind_vote_free(vote);
    }
    reef_memory_free(memory);
}

RUN_TESTS_IN(NULL, free_memories)
