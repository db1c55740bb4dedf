// How large a memory becomes: whatever its tables can grow to is read back, and it learns on the
// same wherever in the stream it is. Memories are made large here without learning.
#include "context_memory.h"
#include "memory_internal.h"

#include "draw_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK = 4096, PARTS_MAX = 16 };

static const uint64_t BOUNDS[] = {
    REEF_MEMORY_BYTES_MIN,
    5000000,
    64ull << 20,
    100000001,
    256ull << 20,
    300000007,
    REEF_MEMORY_BYTES_DEFAULT,
    REEF_MEMORY_BYTES_DEFAULT + 1,
    REEF_MEMORY_BYTES_MAX - 1,
    REEF_MEMORY_BYTES_MAX,
};
#define BOUND_COUNT (sizeof(BOUNDS) / sizeof(*BOUNDS))
#define LEARNED_MAX (1ull << 45)

// To where the stream has `learned` bytes; then every look comes behind a part of all so far.
static uint64_t next_look(uint64_t learned) {
    uint64_t step = learned / 64 / LOOK * LOOK;
    return learned + (step > LOOK ? step : LOOK);
}

static void assert_possible(const reef_memory_sizes *sizes, const reef_memory_sizes *before) {
    if (!reef_memory_sizes_are_possible(sizes))
        fail_msg("a memory of %llu bytes cannot have learned %llu",
                 (unsigned long long)sizes->bytes_max, (unsigned long long)sizes->learned_bytes);
    for (size_t t = 0; t < REEF_TABLES; t++)
        assert_true(sizes->lines_log2[t] >= before->lines_log2[t]);
}

// Calls `on_size` for the first sizes, and whenever a table has grown. Returns the last.
static reef_memory_sizes grow_all(uint64_t bytes_max, void (*on_size)(const reef_memory_sizes *)) {
    reef_memory_sizes sizes = reef_memory_sizes_first(bytes_max, reef_memory_text_max(bytes_max));
    if (on_size != NULL) on_size(&sizes);
    while (sizes.learned_bytes < LEARNED_MAX) {
        reef_memory_sizes before = sizes;
        reef_memory_table next;
        while ((next = reef_memory_sizes_grow(&sizes)) != REEF_TABLES) {
            sizes.lines_log2[next]++;
            assert_possible(&sizes, &before);
            if (on_size != NULL) on_size(&sizes);
        }
        sizes.learned_bytes = next_look(sizes.learned_bytes);
        assert_possible(&sizes, &before);
    }
    return sizes;
}

PLAIN_TEST(no_memory_grows_beyond_what_a_reader_accepts) {
    for (uint64_t bytes_max = REEF_MEMORY_BYTES_MIN; bytes_max <= REEF_MEMORY_BYTES_MAX;
         bytes_max += bytes_max / 41)
        grow_all(bytes_max, NULL);
    for (size_t i = 0; i < BOUND_COUNT; i++) {
        const reef_memory_sizes last = grow_all(BOUNDS[i], NULL);
        // At last tables have their shares, and all of it is within the bound.
        assert_true(reef_memory_text_bytes(&last) <= last.text_max);
        assert_true(reef_memory_text_bytes(&last) + REEF_TEXT_BLOCK_BYTES > last.text_max);
        assert_true(reef_memory_sizes_bytes(&last) <= BOUNDS[i]);
        for (size_t t = 0; t < REEF_TABLES; t++)
            assert_int_equal(last.lines_log2[t], reef_memory_table_max_log2(BOUNDS[i], t));
    }
    assert_true(reef_memory_text_max(REEF_MEMORY_BYTES_DEFAULT) == 4ull << 30);
    assert_true(reef_memory_text_max(REEF_MEMORY_BYTES_MAX) == REEF_MEMORY_TEXT_MAX);
}

// ---- every size is read back --------------------------------------------------------------------

// A line that a memory could have, so that it is seen where it comes from.
static void mark_line(reef_memory_table table, uint8_t *line, uint8_t number) {
    if (table == REEF_TABLE_CELLS)
        ((reef_cell_line *)(void *)line)->hand = number;
    else
        line[0] = number; // a tree's check, or a position
}

static reef_lines *table_of(reef_predictor *p, size_t table) {
    if (table == REEF_TABLE_CELLS) return &p->cells;
    return table == REEF_TABLE_TREES ? &p->slots : &p->index[table - REEF_TABLE_INDEX];
}

static void mark(reef_memory *memory) {
    reef_predictor *p = &memory->predictor;
    for (size_t t = 0; t < REEF_TABLES; t++) {
        reef_lines *lines = table_of(p, t);
        mark_line(t, reef_lines_at(lines, 0), (uint8_t)(1 + t));
        mark_line(t, reef_lines_at(lines, lines->count - 1), (uint8_t)(6 + t));
    }
    if (reef_text_last(&p->text) != NULL) reef_text_last(&p->text)[0] = 'a';
}

typedef struct stored {
    reef_memory_part parts[PARTS_MAX];
    bool whole;    // and not only the marked lines of tables
    size_t zeros;  // full blocks of text that are
    uint8_t *text; // all of them, where some are not
} stored;

static bool is_table(const char *name) {
    return strcmp(name, "cells") == 0 || strcmp(name, "trees") == 0 ||
           strstr(name, "index") != NULL;
}

// Of tables, which are zeros where they are read into, only the lines that are marked.
static reef_status fetch(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    stored *s = context;
    for (size_t i = 0; i < reef_memory_part_count(); i++) {
        if (strcmp(s->parts[i].name, name) != 0) continue;
        const uint8_t *data = s->parts[i].data;
        uint8_t *out = into;
        assert_true(s->parts[i].bytes == bytes);
        if (is_table(name) && !s->whole) {
            memcpy(out, data, REEF_LINE_BYTES);
            memcpy(out + bytes - REEF_LINE_BYTES, data + bytes - REEF_LINE_BYTES, REEF_LINE_BYTES);
        } else {
            memcpy(out, data, bytes);
        }
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no part %s", name);
}

static const uint8_t ZEROS[REEF_TEXT_BLOCK_BYTES];

static reef_status fetch_text(void *context,
                              size_t block,
                              const uint8_t *name,
                              const uint8_t **out,
                              bool *lent,
                              reef_error *err) {
    const stored *s = context;
    (void)name, (void)err;
    *lent = block < s->zeros;
    *out = *lent ? ZEROS : s->text + block * REEF_TEXT_BLOCK_BYTES;
    return REEF_OK;
}

// Its text is zeros.
static reef_memory *make(const reef_memory_sizes *sizes) {
    reef_memory *memory = NULL;
    must(reef_memory_make(&memory, sizes, &why));
    reef_text *text = &memory->predictor.text;
    for (size_t i = 0; i < reef_text_full(text); i++) reef_text_lend(text, i, ZEROS);
    if (reef_text_last(text) != NULL) memset(reef_text_last(text), 0, REEF_TEXT_BLOCK_BYTES);
    reef_mix_state_init(memory->predictor.state);
    reef_predictor_begin(&memory->predictor);
    return memory;
}

static size_t sizes_seen;

static void assert_same_tables(const reef_memory *memory, const reef_memory *copy) {
    const reef_memory_sizes a = reef_memory_sizes_of(memory), b = reef_memory_sizes_of(copy);
    assert_memory_equal(&a, &b, sizeof(a));
    for (size_t t = 0; t < REEF_TABLES; t++) {
        const reef_lines *from = table_of((reef_predictor *)(uintptr_t)&memory->predictor, t),
                         *to = table_of((reef_predictor *)(uintptr_t)&copy->predictor, t);
        size_t last = (from->count - 1) * REEF_LINE_BYTES;
        assert_memory_equal(from->own, to->own, REEF_LINE_BYTES);
        assert_memory_equal(from->own + last, to->own + last, REEF_LINE_BYTES);
    }
    assert_true(memory->predictor.text.begin == copy->predictor.text.begin);
    assert_true(memory->predictor.text.count == copy->predictor.text.count);
}

// Its header announces what there is.
static void assert_announced(const stored *s) {
    reef_memory_part announced[PARTS_MAX];
    must(reef_memory_stored_parts(s->parts[0].data, s->parts[0].bytes, announced, &why));
    for (size_t i = 0; i < reef_memory_part_count(); i++) {
        assert_string_equal(announced[i].name, s->parts[i].name);
        assert_true(announced[i].bytes == s->parts[i].bytes);
    }
}

// Tables that are larger than this machine are there in their sizes alone.
static void announce(const reef_memory_sizes *sizes) {
    stored s = {.whole = false};
    reef_memory_sizes none = reef_memory_sizes_first(sizes->bytes_max, sizes->text_max);
    reef_memory *memory = make(&none);
    reef_predictor *p = &memory->predictor;
    for (size_t t = 0; t < REEF_TABLES; t++)
        table_of(p, t)->count = (size_t)1 << sizes->lines_log2[t];
    p->cell_lines_log2 = sizes->lines_log2[REEF_TABLE_CELLS];
    p->slot_lines_log2 = sizes->lines_log2[REEF_TABLE_TREES];
    p->learned_bytes = p->text.end = sizes->learned_bytes;
    p->text.begin = reef_text_begin(p->text.end, sizes->text_max);
    p->text.blocks = calloc(reef_text_full(&p->text) + 1, sizeof(*p->text.blocks));
    assert_non_null(p->text.blocks);
    reef_memory_parts(memory, s.parts);
    assert_announced(&s);
    for (size_t t = 0; t < REEF_TABLES; t++)
        table_of(p, t)->count = (size_t)1 << none.lines_log2[t];
    sizes_seen++;
    reef_memory_free(memory);
}

// And read back, which takes a walk over all tables, it is what was stored.
static void read_back(const reef_memory_sizes *sizes, bool restores) {
    if (reef_memory_sizes_bytes(sizes) > REEF_MEMORY_BYTES_DEFAULT) {
        announce(sizes);
        return;
    }
    stored s = {.zeros = SIZE_MAX};
    reef_memory *memory = make(sizes), *copy = NULL;
    mark(memory);
    reef_memory_parts(memory, s.parts);
    assert_announced(&s);
    if (restores) {
        must(reef_memory_restore(&copy, &(reef_memory_reader){fetch, fetch_text, &s}, &why));
        assert_same_tables(memory, copy);
    }
    sizes_seen++;
    reef_memory_free(copy);
    reef_memory_free(memory);
}

static void read_back_each(const reef_memory_sizes *sizes) {
    read_back(sizes, reef_memory_sizes_bytes(sizes) <= 16 << 20);
}

PLAIN_TEST(every_size_that_tables_can_reach_is_read_back) {
    for (size_t i = 0; i < BOUND_COUNT; i++) {
        sizes_seen = 0;
        const reef_memory_sizes last = grow_all(BOUNDS[i], read_back_each);
        read_back(&last, true);
        print_message("%llu bytes: %zu sizes\n", (unsigned long long)BOUNDS[i], sizes_seen);
        assert_true(sizes_seen > 10);
    }
}

// ---- every position -----------------------------------------------------------------------------

enum { TEXT = 60000, READ = 6000 };

// A full-grown memory of the smallest bound that stands some bytes before a position.
static reef_memory *make_before(uint64_t position, uint64_t bytes) {
    reef_memory_sizes sizes = grow_all(REEF_MEMORY_BYTES_MIN, NULL);
    sizes.learned_bytes = position - bytes;
    return make(&sizes);
}

static reef_memory *stored_and_restored(reef_memory *memory) {
    reef_memory *copy = NULL;
    stored s = {.whole = true, .text = copy_text_blocks(memory)};
    reef_memory_parts(memory, s.parts);
    must(reef_memory_restore(&copy, &(reef_memory_reader){fetch, fetch_text, &s}, &why));
    free(s.text);
    reef_memory_free(memory);
    return copy;
}

static double sum_of(const float *bits, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += (double)bits[i];
    return sum;
}

// Learned and read over a position, in pieces between which the memory is stored and restored.
static void pass(uint64_t position, const uint8_t *text, float *learned, float *read) {
    reef_memory *memory = make_before(position, TEXT / 2);
    for (size_t at = 0; at < TEXT; at += TEXT / 4) {
        learn(memory, text + at, TEXT / 4, NULL, learned + at);
        memory = stored_and_restored(memory);
    }
    assert_true(reef_memory_learned_bytes(memory) == position + TEXT / 2);
    reef_memory_free(memory);
    // A view begins before it and ends behind it.
    memory = make_before(position, TEXT / 2);
    learn(memory, text, TEXT / 2 - READ / 2, NULL, NULL);
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    must(reef_memory_session_read(session, text + TEXT / 2 - READ / 2, READ, NULL, read, &why));
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// An entry has the lower half of a position: one that is 2^32 bytes old is not the end of the text.
PLAIN_TEST(an_entry_as_old_as_entries_tell_apart_is_no_match) {
    reef_memory *memory = make_before(1ull << 33, 0);
    reef_predictor *p = &memory->predictor;
    must(reef_text_reserve(&p->text, 7, &why));
    for (int i = 0; i < 7; i++) reef_text_push(&p->text, 'x');
    uint32_t *entries = (uint32_t *)(void *)p->index[0].own, end = (uint32_t)p->text.end;
    for (size_t i = 0; i < p->index[0].count * REEF_MATCH_ENTRIES; i++) entries[i] = end;
    reef_match match = {.hash = 1};
    reef_match_look_up(&match, &p->index[0], &p->text, REEF_MATCH_SHORTEST[0], false);
    assert_int_equal(match.found, 0);
    for (size_t i = 0; i < p->index[0].count * REEF_MATCH_ENTRIES; i++) entries[i] = end - 5;
    reef_match_look_up(&match, &p->index[0], &p->text, REEF_MATCH_SHORTEST[0], false);
    assert_true(match.found == p->text.end - 5);
    reef_memory_free(memory);
}

PLAIN_TEST(a_memory_learns_the_same_wherever_in_the_stream_it_is) {
    static uint8_t text[TEXT];
    static float first[TEXT], learned[TEXT], first_read[READ], read[READ];
    // Nothing special is at the first; then where a word's bits end, signed and not, and far
    // behind.
    const uint64_t positions[] = {
        (1ull << 32) + 123456789, 1ull << 31, 1ull << 32, 1ull << 33, 1ull << 40,
        (1ull << 56) - TEXT};
    uint64_t seed = 97;
    draw_text(&seed, TEXT / 2, text);
    memcpy(text + TEXT / 2, text, TEXT / 2); // matches reach back over the position
    for (size_t i = 0; i < sizeof(positions) / sizeof(*positions); i++) {
        pass(positions[i], text, learned, read);
        if (i == 0) {
            memcpy(first, learned, sizeof(first));
            memcpy(first_read, read, sizeof(read));
        }
        assert_memory_equal(learned, first, sizeof(first));
        assert_memory_equal(read, first_read, sizeof(read));
    }
    // They have matches: what came before costs a part of what it cost at first.
    assert_true(sum_of(first + TEXT / 2, TEXT / 2) < 0.1 * sum_of(first, TEXT / 2));
}

RUN_TESTS
