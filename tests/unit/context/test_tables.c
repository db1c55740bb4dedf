// Tables of the context memory: lines and views, cells, slots, text and matches, each against plain
// arrays and plain loops.
#include "cell_table.h"
#include "lines.h"
#include "match_model.h"
#include "memory_internal.h"
#include "text.h"

#include "checked.h"
#include "draw.h"
#include "draw_text.h"

#include <inttypes.h>
#include <stdalign.h>

// ---- lines --------------------------------------------------------------------------------------

enum { LINES = 1 << 14, LINES_LARGE = 1 << 17 };

// A table with drawn contents, a view of it, and what each of them must hold.
typedef struct lines_fixture {
    reef_lines table, view;
    uint8_t *in_table, *in_view; // (count * 64)
    size_t bytes;
    uint64_t seed;
} lines_fixture;

static void open_lines(lines_fixture *f, size_t count) {
    *f = (lines_fixture){.bytes = count * REEF_LINE_BYTES, .seed = 29};
    must(reef_lines_init(&f->table, count, &why));
    f->in_table = malloc(f->bytes);
    f->in_view = malloc(f->bytes);
    assert_non_null(f->in_table);
    assert_non_null(f->in_view);
    for (size_t at = 0; at < count; at++)
        for (size_t i = 0; i < REEF_LINE_BYTES; i++)
            assert_int_equal(reef_lines_at(&f->table, at)[i], 0);
    for (size_t at = 0; at < count; at++) {
        uint64_t bits = draw_bits(&f->seed);
        for (size_t i = 0; i < REEF_LINE_BYTES; i++)
            f->in_table[at * REEF_LINE_BYTES + i] = (uint8_t)(bits >> i % 57);
        memcpy(reef_lines_at(&f->table, at), f->in_table + at * REEF_LINE_BYTES, REEF_LINE_BYTES);
    }
    memcpy(f->in_view, f->in_table, f->bytes);
    must(reef_lines_init_view(&f->view, &f->table, &why));
}

static void close_lines(lines_fixture *f) {
    reef_lines_release(&f->view);
    reef_lines_release(&f->table);
    reef_lines_release(&f->view); // accepts zeros
    free(f->in_table);
    free(f->in_view);
}

static void assert_lines(const reef_lines *lines, const uint8_t *expected) {
    for (size_t at = 0; at < lines->count; at++)
        if (memcmp(reef_lines_peek(lines, at), expected + at * REEF_LINE_BYTES, REEF_LINE_BYTES) !=
            0)
            fail_msg("line %zu of %zu", at, lines->count);
}

// Writes into `count` drawn lines, no more than were reserved; some of them were written before.
static void write_lines(lines_fixture *f, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t at = draw_bits(&f->seed) % f->view.count;
        for (int k = draw_int(&f->seed, 1, 3); k > 0; k--) {
            size_t byte = draw_bits(&f->seed) % REEF_LINE_BYTES;
            reef_lines_at(&f->view, at)[byte] = f->in_view[at * REEF_LINE_BYTES + byte] =
                (uint8_t)draw_bits(&f->seed);
        }
    }
}

PLAIN_TEST(a_view_reads_its_base_and_writes_to_itself_alone) {
    lines_fixture f;
    open_lines(&f, LINES);
    assert_lines(&f.view, f.in_view);
    for (int repeat = 0; repeat < 200; repeat++) {
        size_t count = (size_t)draw_int(&f.seed, 0, 60);
        must(reef_lines_reserve(&f.view, count, &why));
        write_lines(&f, count);
    }
    assert_lines(&f.view, f.in_view);
    assert_lines(&f.table, f.in_table);
    close_lines(&f);
}

PLAIN_TEST(a_reset_view_forgets_what_was_written) {
    lines_fixture f;
    open_lines(&f, LINES);
    for (int text = 0; text < 20; text++) {
        reef_lines_reset(&f.view);
        memcpy(f.in_view, f.in_table, f.bytes);
        assert_lines(&f.view, f.in_table);
        for (int repeat = draw_int(&f.seed, 0, 40); repeat > 0; repeat--) {
            must(reef_lines_reserve(&f.view, 50, &why));
            write_lines(&f, 50);
        }
        assert_lines(&f.view, f.in_view);
    }
    assert_lines(&f.table, f.in_table);
    close_lines(&f);
}

PLAIN_TEST(two_views_of_a_table_are_apart) {
    lines_fixture f;
    reef_lines other;
    open_lines(&f, LINES);
    must(reef_lines_init_view(&other, &f.table, &why));
    must(reef_lines_reserve(&other, 1, &why));
    memset(reef_lines_at(&other, 5), 0xEE, REEF_LINE_BYTES);
    must(reef_lines_reserve(&f.view, 100, &why));
    write_lines(&f, 100);
    assert_lines(&f.view, f.in_view);
    memcpy(f.in_view, f.in_table, f.bytes);
    memset(f.in_view + 5 * REEF_LINE_BYTES, 0xEE, REEF_LINE_BYTES);
    assert_lines(&other, f.in_view);
    reef_lines_release(&other);
    close_lines(&f);
}

// The assert in reef_lines_copy and the sanitizers look on: every line of a large view is
// copied, with as many reserved each time as are then written, in one text and in the next.
PLAIN_TEST(lines_never_run_out_within_what_was_reserved) {
    lines_fixture f;
    open_lines(&f, LINES_LARGE);
    const int most[] = {1, 7, 130, REEF_CHUNK_LINES};
    for (size_t text = 0; text < sizeof(most) / sizeof(*most); text++) {
        reef_lines_reset(&f.view);
        for (size_t at = 0; at < LINES_LARGE;) {
            size_t count = (size_t)draw_int(&f.seed, most[text] / 2 + 1, most[text]);
            must(reef_lines_reserve(&f.view, count, &why));
            for (; count > 0 && at < LINES_LARGE; count--, at++)
                reef_lines_at(&f.view, at)[at % 64] ^= 0xFF;
        }
        assert_int_equal(f.view.written_count, LINES_LARGE);
    }
    for (size_t at = 0; at < LINES_LARGE; at++) f.in_view[at * REEF_LINE_BYTES + at % 64] ^= 0xFF;
    assert_lines(&f.view, f.in_view);
    assert_lines(&f.table, f.in_table);
    close_lines(&f);
}

PLAIN_TEST(a_reset_view_takes_no_more_memory) {
    lines_fixture f;
    open_lines(&f, LINES_LARGE);
    size_t chunks = 0;
    for (int text = 0; text < 4; text++) {
        reef_lines_reset(&f.view);
        for (size_t at = 0; at < 24000; at++) {
            must(reef_lines_reserve(&f.view, 1, &why));
            reef_lines_at(&f.view, at)[0]++;
        }
        if (text == 0) chunks = f.view.chunk_count;
        assert_int_equal(f.view.chunk_count, chunks);
    }
    close_lines(&f);
}

// ---- cells --------------------------------------------------------------------------------------

// Few values, so that checks repeat; those that differ in few bits are told apart.
static void draw_cell_line(uint64_t *seed, reef_cell_line *line) {
    *line = (reef_cell_line){.hand = (uint8_t)draw_int(seed, 0, REEF_CELLS_A_LINE - 1)};
    uint16_t states = reef_histories_table()->count;
    int few = draw_int(seed, 0, 1);
    for (int i = 0; i < REEF_CELLS_A_LINE; i++) {
        int kind = draw_int(seed, 0, 5);
        line->check[i] = (uint32_t)draw_int(seed, 1, 16) * 0x10010001u;
        line->first[i] = (uint8_t)draw_bits(seed);
        line->second[i] = (uint8_t)draw_bits(seed);
        line->history[i] = (uint8_t)draw_int(seed, 1, few ? 8 : states - 1);
        if (kind == 0) line->history[i] = REEF_CELL_TREES;
        if (kind == 1 && few) line->history[i] = REEF_HISTORY_NONE, line->check[i] = 0;
    }
}

static int plain_find(const reef_cell_line *line, uint32_t check) {
    for (int i = 0; i < REEF_CELLS_A_LINE; i++)
        if (line->check[i] == check) return i;
    return -1;
}

PLAIN_TEST(a_cell_is_found_as_a_plain_loop_finds_it) {
    uint64_t seed = 31;
    alignas(REEF_LINE_BYTES) reef_cell_line line;
    for (int repeat = 0; repeat < 30000; repeat++) {
        draw_cell_line(&seed, &line);
        for (uint32_t k = 1; k <= 16; k++)
            assert_int_equal(reef_cell_find(&line, k * 0x10010001u),
                             plain_find(&line, k * 0x10010001u));
        // What stands behind the checks is none.
        for (size_t at = offsetof(reef_cell_line, first); at < REEF_LINE_BYTES; at += 4) {
            uint32_t other;
            memcpy(&other, (const uint8_t *)&line + at, sizeof(other));
            if (other % 0x10010001u != 0) assert_int_equal(reef_cell_find(&line, other), -1);
        }
    }
}

// What a cell is worth: nothing where it is empty, most where it leads to trees.
static int worth_of(const reef_cell_line *line, int cell) {
    if (line->check[cell] == 0) return -1;
    if (line->history[cell] == REEF_CELL_TREES) return 1 << 20;
    return reef_histories_table()->visits[line->history[cell]];
}

PLAIN_TEST(a_new_cell_replaces_the_one_that_has_seen_least) {
    uint64_t seed = 37;
    alignas(REEF_LINE_BYTES) reef_cell_line line;
    for (int repeat = 0; repeat < 30000; repeat++) {
        draw_cell_line(&seed, &line);
        reef_cell_line before = line;
        int least = 0;
        for (int k = 0; k < REEF_CELLS_A_LINE; k++) {
            // The first of the least, from the hand on.
            int i = (line.hand + k) % REEF_CELLS_A_LINE;
            if (k == 0 || worth_of(&line, i) < worth_of(&line, least)) least = i;
        }
        int at = reef_cell_insert(&line, 0x77777777, reef_histories_table());
        assert_int_equal(at, least);
        assert_int_equal(line.check[at], 0x77777777);
        assert_true(line.hand < REEF_CELLS_A_LINE);
        for (int i = 0; i < REEF_CELLS_A_LINE; i++) { // the others are as they were
            if (i == at) continue;
            assert_int_equal(line.check[i], before.check[i]);
            assert_int_equal(line.history[i], before.history[i]);
            assert_int_equal(line.first[i], before.first[i]);
            assert_int_equal(line.second[i], before.second[i]);
        }
    }
}

PLAIN_TEST(among_equals_the_oldest_makes_room_and_trees_go_last) {
    const reef_histories *table = reef_histories_table();
    alignas(REEF_LINE_BYTES) reef_cell_line line = {.hand = 7};
    for (uint32_t n = 1; n < 100; n++) {
        int at = reef_cell_insert(&line, n, table);
        line.history[at] = table->run[1][0];
        for (uint32_t k = 1; k <= n; k++) // the last nine are there, and no other
            assert_int_equal(reef_cell_find(&line, k) >= 0, n - k < REEF_CELLS_A_LINE);
    }
    for (int i = 0; i < REEF_CELLS_A_LINE; i++)
        line.history[i] = i == 4 ? table->run[REEF_HISTORY_RUN_MAX][1] : REEF_CELL_TREES;
    assert_int_equal(reef_cell_insert(&line, 1000, table), 4);
}

static reef_cell_line *cell_line(reef_lines *cells, uint64_t hash) {
    uint32_t lines_log2 = (uint32_t)__builtin_ctzll(cells->count);
    return (reef_cell_line *)(void *)reef_lines_at(cells, reef_cell_line_of(hash, lines_log2));
}

// Drawn contents that belong to a hash.
static void fill_cell(reef_cell_line *line, int cell, uint64_t hash) {
    line->first[cell] = (uint8_t)(hash * 7);
    line->second[cell] = (uint8_t)(hash * 13 >> 5);
    line->history[cell] = (uint8_t)(1 + (hash ^ hash >> 11) % (reef_histories_table()->count - 1u));
    if (hash % 5 == 0) line->history[cell] = REEF_CELL_TREES;
}

PLAIN_TEST(doubling_keeps_every_cell_and_what_is_in_it) {
    const reef_histories *table = reef_histories_table();
    enum { HASHES = 100000, LINES_FIRST = 1 << REEF_CELL_LINES_MIN_LOG2 };
    uint64_t *hashes = room(HASHES * sizeof(*hashes));
    uint64_t seed = 41;
    reef_lines cells;
    must(reef_lines_init(&cells, LINES_FIRST, &why));
    for (int i = 0; i < HASHES; i++) {
        hashes[i] = draw_bits(&seed);
        reef_cell_line *line = cell_line(&cells, hashes[i]);
        int cell = reef_cell_find(line, reef_cell_check(hashes[i]));
        if (cell < 0) cell = reef_cell_insert(line, reef_cell_check(hashes[i]), table);
        fill_cell(line, cell, hashes[i]);
    }
    for (uint32_t log2 = REEF_CELL_LINES_MIN_LOG2; log2 < 17; log2++) {
        reef_lines larger;
        must(reef_lines_init(&larger, 2 * cells.count, &why));
        reef_cells_double(&larger, &cells, table);
        size_t before = 0, after = 0, kept = 0;
        for (size_t at = 0; at < larger.count; at++)
            for (int i = 0; i < REEF_CELLS_A_LINE; i++) {
                const reef_cell_line *new = (const void *)reef_lines_peek(&larger, at);
                const reef_cell_line *old = (const void *)reef_lines_peek(&cells, at / 2);
                after += new->check[i] != 0;
                before += at % 2 == 0 && old->check[i] != 0;
            }
        assert_int_equal(before, after);
        for (int i = 0; i < HASHES; i++) {
            const reef_cell_line *old = cell_line(&cells, hashes[i]);
            const reef_cell_line *new = cell_line(&larger, hashes[i]);
            int was = reef_cell_find(old, reef_cell_check(hashes[i]));
            int is = reef_cell_find(new, reef_cell_check(hashes[i]));
            assert_int_equal(was >= 0, is >= 0);
            if (was < 0) continue;
            kept++;
            assert_int_equal(old->first[was], new->first[is]);
            assert_int_equal(old->second[was], new->second[is]);
            assert_int_equal(old->history[was], new->history[is]);
        }
        assert_true(kept > LINES_FIRST * 7); // the table was nearly full
        reef_lines_release(&cells);
        cells = larger;
    }
    reef_lines_release(&cells);
}

PLAIN_TEST(doubling_keeps_the_order_of_age) {
    const reef_histories *table = reef_histories_table();
    for (int turn = 0; turn < 12; turn++) {
        reef_lines cells, larger;
        must(reef_lines_init(&cells, 1 << REEF_CELL_LINES_MIN_LOG2, &why));
        must(reef_lines_init(&larger, 2 << REEF_CELL_LINES_MIN_LOG2, &why));
        // All of one line, of its lower half and equally worthy; `turn` moves the hand.
        for (uint64_t n = 0; n < REEF_CELLS_A_LINE + (uint64_t)turn; n++) {
            reef_cell_line *line = cell_line(&cells, n << 23);
            line->history[reef_cell_insert(line, reef_cell_check(n << 23), table)] =
                table->run[2][0];
        }
        reef_cells_double(&larger, &cells, table);
        reef_cell_line *line = cell_line(&larger, 0);
        for (uint64_t n = (uint64_t)turn; n < (uint64_t)turn + REEF_CELLS_A_LINE; n++) {
            // They leave in the order they came.
            assert_true(reef_cell_find(line, reef_cell_check(n << 23)) >= 0);
            line->history[reef_cell_insert(line, 0xFF000000, table)] = table->run[3][0];
            assert_int_equal(reef_cell_find(line, reef_cell_check(n << 23)), -1);
        }
        reef_lines_release(&cells);
        reef_lines_release(&larger);
    }
}

// In a table of any size, the largest too, a cell's place and check give the name of its context.
PLAIN_TEST(a_context_is_named_by_where_its_cell_is) {
    uint64_t seed = 42;
    for (int repeat = 0; repeat < 20000; repeat++) {
        uint64_t hash = draw_bits(&seed);
        if (repeat < 100) hash &= ~(UINT64_C(0xFFFFFFFF) << 19); // its check would be 0
        assert_true(reef_cell_check(hash) != 0);
        for (uint32_t log2 = REEF_CELL_LINES_MIN_LOG2; log2 <= REEF_CELL_LINES_MAX_LOG2; log2++)
            assert_true(reef_cell_name_at(reef_cell_line_of(hash, log2), log2,
                                          reef_cell_check(hash)) == reef_cell_name(hash));
    }
}

// ---- slots --------------------------------------------------------------------------------------

PLAIN_TEST(a_slot_is_the_keys_own_or_the_one_that_has_seen_least) {
    const reef_histories *table = reef_histories_table();
    uint64_t seed = 43;
    alignas(REEF_LINE_BYTES) uint8_t line[REEF_LINE_BYTES];
    reef_slot *slots = (reef_slot *)(void *)line;
    for (int repeat = 0; repeat < 20000; repeat++) {
        int same = -1, least = 0, worth[REEF_SLOTS_A_LINE];
        uint64_t key = draw_bits(&seed) << 8 | (uint64_t)draw_int(&seed, 0, 12);
        uint8_t check = (key & 0xFF) == 0 ? 1 : (uint8_t)key;
        for (int i = 0; i < REEF_SLOTS_A_LINE; i++) {
            slots[i].check =
                (uint8_t)(4 * draw_int(&seed, 0, 2) + i); // no two are the same but empty
            if (draw_int(&seed, 0, 3) == 0) slots[i].check = 0;
            for (int n = 0; n < REEF_SLOT_NODES; n++)
                slots[i].history[n] = (uint8_t)draw_int(&seed, 1, table->count - 1);
            worth[i] = slots[i].check == 0 ? -1 : table->visits[slots[i].history[0]];
            if (slots[i].check == check) same = i;
            if (worth[i] < worth[least]) least = i;
        }
        uint8_t before[REEF_LINE_BYTES];
        memcpy(before, line, sizeof(line));
        assert_ptr_equal(reef_slot_find(line, key), same < 0 ? NULL : &slots[same]);
        reef_slot *slot = reef_slot_take(line, key, table);
        assert_int_equal(worth[slot - slots], same < 0 ? worth[least] : worth[same]);
        if (same >= 0) {
            assert_ptr_equal(slot, &slots[same]);
            assert_memory_equal(line, before, sizeof(line));
            continue;
        }
        assert_int_equal(slot->check, check);
        for (int n = 0; n < REEF_SLOT_NODES; n++) assert_int_equal(slot->history[n], 0);
        memcpy(slot, before + (size_t)(slot - slots) * sizeof(*slot), sizeof(*slot));
        assert_memory_equal(line, before, sizeof(line)); // the others are as they were
    }
}

PLAIN_TEST(lower_trees_of_two_nibbles_that_differ_at_last_share_a_line) {
    uint64_t seed = 47;
    for (int repeat = 0; repeat < 5000; repeat++) {
        uint64_t name = draw_bits(&seed) >> 19;
        for (uint32_t upper = 0; upper < 16; upper += 2) {
            uint64_t a = reef_slot_key_lower(name, upper), b = reef_slot_key_lower(name, upper + 1);
            for (uint32_t log2 = REEF_SLOT_LINES_MIN_LOG2; log2 <= REEF_SLOT_LINES_MAX_LOG2; log2++)
                assert_int_equal(reef_slot_line_of(a, log2), reef_slot_line_of(b, log2));
            assert_int_not_equal(a & 0xFF, b & 0xFF);
        }
    }
}

static const reef_slot *slot_of(const reef_lines *slots, uint64_t key) {
    uint32_t log2 = (uint32_t)__builtin_ctzll(slots->count);
    return reef_slot_find(
        (uint8_t *)(uintptr_t)reef_lines_peek(slots, reef_slot_line_of(key, log2)), key);
}

typedef struct trees_count {
    size_t found, kept;
} trees_count;

static void count_tree(trees_count *n, const reef_lines *old, const reef_lines *new, uint64_t key) {
    const reef_slot *was = slot_of(old, key), *is = slot_of(new, key);
    if (was == NULL) {
        assert_null(is);
        return;
    }
    n->found++;
    n->kept += is != NULL && memcmp(was->history, is->history, REEF_SLOT_NODES) == 0;
}

// Every tree that a cell leads to, in the table as it is and in one of twice the lines.
static trees_count compare_doubled(const reef_predictor *p, const reef_lines *doubled) {
    trees_count n = {0};
    for (size_t at = 0; at < p->cells.count; at++) {
        const reef_cell_line *line = (const void *)reef_lines_peek(&p->cells, at);
        for (int i = 0; i < REEF_CELLS_A_LINE; i++) {
            if (line->history[i] != REEF_CELL_TREES) continue;
            uint64_t name = reef_cell_name_at(at, p->cell_lines_log2, line->check[i]);
            count_tree(&n, &p->slots, doubled, reef_slot_key(name));
            for (uint32_t upper = 0; upper < 16; upper++)
                count_tree(&n, &p->slots, doubled, reef_slot_key_lower(name, upper));
        }
    }
    return n;
}

PLAIN_TEST(trees_move_with_a_memory_that_grows) {
    enum { STEP = 4096, STEPS = 40 };
    uint8_t *text = room(STEP * STEPS);
    uint64_t seed = 53;
    draw_text(&seed, STEP * STEPS, text);
    reef_memory *memory = NULL;
    must(reef_memory_new(&memory, NULL, &why));
    reef_predictor *p = &memory->predictor;
    uint32_t cells_first = p->cell_lines_log2, slots_first = p->slot_lines_log2;
    for (size_t step = 0; step < STEPS; step++) {
        must(reef_memory_learn(memory, text + step * STEP, STEP, NULL, NULL, &why));
        assert_int_equal(p->cells.count, (size_t)1 << p->cell_lines_log2);
        assert_int_equal(p->slots.count, (size_t)1 << p->slot_lines_log2);
        if (step % 8 != 7) continue;
        reef_lines doubled;
        must(reef_lines_init(&doubled, 2 * p->slots.count, &why));
        reef_slots_double(&doubled, &p->slots, &p->cells, p->table);
        trees_count n = compare_doubled(p, &doubled);
        print_message("%zu bytes: %zu trees, %zu kept\n", (step + 1) * STEP, n.found, n.kept);
        assert_true(n.found > 1000);
        // A check has eight bits: some trees are taken for another context's, and make it no room.
        assert_true(n.kept * 100 >= n.found * 95);
        reef_lines_release(&doubled);
    }
    assert_true(p->cell_lines_log2 > cells_first && p->slot_lines_log2 > slots_first);
    reef_memory_free(memory);
}

// ---- text ---------------------------------------------------------------------------------------

enum { BLOCK = REEF_TEXT_BLOCK_BYTES, TEXT = 5 * BLOCK + 777 };

// Every position of the text, and some before and behind it: it has `count` bytes from `begin` on,
// those of `all`, of which the last ones are kept.
static void assert_text(const reef_text *text, uint64_t begin, const uint8_t *all, uint64_t kept) {
    uint64_t count = text->end - begin;
    for (uint64_t i = 0; i < count + 2000; i += 1 + i % 7) {
        int known = -1;
        uint8_t byte = reef_text_at(text, begin + i - 1000, &known);
        bool expected = i >= 1000 && i - 1000 < count && count - (i - 1000) <= kept;
        if (known != expected)
            fail_msg("byte %" PRIu64 " of %" PRIu64 " is known: %d", i - 1000, count, known);
        if (expected) assert_int_equal(byte, all[i - 1000]);
        reef_text_prefetch(text, begin + i - 1000);
    }
}

static void draw_bytes(uint64_t *seed, size_t count, uint8_t *bytes) {
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)draw_bits(seed);
}

// One that begins at a position, where a block begins.
static void begin_text(reef_text *text, uint64_t bound, uint64_t begin) {
    reef_text_init(text, bound);
    text->begin = text->end = begin;
}

static void push_bytes(reef_text *text, const uint8_t *bytes, uint64_t count) {
    for (uint64_t done = 0, some; done < count; done += some) {
        some = count - done < BLOCK ? count - done : BLOCK;
        must(reef_text_reserve(text, some, &why));
        for (uint64_t i = 0; i < some; i++) reef_text_push(text, bytes[done + i]);
    }
}

// Of a text that began at `begin`, which its own count does not know.
static uint64_t kept_of(uint64_t count, uint64_t bound) {
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    return blocks * BLOCK > bound ? count - (blocks * BLOCK - bound) : count;
}

PLAIN_TEST(a_text_keeps_its_bytes_and_forgets_the_oldest_block) {
    const uint64_t begins[] = {0, 1ull << 31, UINT32_MAX + 1ull - 2 * BLOCK, 1ull << 40};
    enum { BOUND = 3 * BLOCK };
    uint8_t *bytes = room(TEXT);
    uint64_t seed = 59;
    draw_bytes(&seed, TEXT, bytes);
    for (size_t b = 0; b < sizeof(begins) / sizeof(*begins); b++) {
        reef_text text;
        begin_text(&text, BOUND, begins[b]);
        for (uint32_t count = 0; count < TEXT;) {
            uint32_t more = (uint32_t)draw_int(&seed, 0, draw_int(&seed, 1, BLOCK));
            if (draw_int(&seed, 0, 3) == 0) more = BLOCK - count % BLOCK;
            if (more > TEXT - count) more = TEXT - count;
            push_bytes(&text, bytes + count, more);
            count += more;
            assert_true(text.end - text.begin == kept_of(count, BOUND));
            assert_true(text.end - text.begin <= BOUND);
        }
        assert_text(&text, begins[b], bytes, kept_of(TEXT, BOUND));
        assert_true(reef_text_bytes(&text) < BOUND + 4 * BLOCK);
        reef_text_release(&text);
        reef_text_release(&text); // accepts zeros
    }
    for (uint64_t count = 0; count < 10ull * BLOCK; count += BLOCK / 2)
        assert_true(count - reef_text_begin(count, BOUND) == kept_of(count, BOUND));
}

// A base of some bytes and a view that continues them: together one text, of which the base has
// its last bytes and the view its own.
static void assert_view_continues(uint64_t begin, uint32_t in_base) {
    enum { BOUND = 2 * BLOCK };
    uint8_t *bytes = room(TEXT);
    uint64_t seed = 67 + in_base;
    reef_text base, view;
    draw_bytes(&seed, TEXT, bytes);
    begin_text(&base, BOUND, begin);
    push_bytes(&base, bytes, in_base);
    reef_text_init_view(&view, &base);
    uint64_t kept = base.end - base.begin;
    for (int text = 0; text < 2; text++) {
        assert_text(&view, begin, bytes, kept);
        uint32_t more = TEXT - in_base;
        for (uint32_t i = 0; i < more; i++) {
            push_bytes(&view, bytes + in_base + i, 1);
            if (i < BLOCK && i % 50021 == 0) assert_text(&view, begin, bytes, kept + i + 1);
        }
        // Its own last bytes, whatever it has forgotten before them.
        for (uint32_t back = 1; back <= BLOCK; back++) {
            int known = 0;
            assert_int_equal(reef_text_at(&view, view.end - back, &known),
                             bytes[in_base + more - back]);
            assert_int_equal(known, 1);
        }
        reef_text_reset(&view);
    }
    assert_text(&view, begin, bytes, kept);
    assert_text(&base, begin, bytes, kept);
    reef_text_release(&view);
    reef_text_release(&base);
}

PLAIN_TEST(a_view_continues_its_base) {
    const uint64_t begins[] = {0, UINT32_MAX + 1ull - BLOCK, 1ull << 40};
    const uint32_t counts[] = {0, 1, 1000, BLOCK - 1, BLOCK, 2 * BLOCK + 3000};
    for (size_t b = 0; b < sizeof(begins) / sizeof(*begins); b++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
            assert_view_continues(begins[b], counts[c]);
}

// ---- matches ------------------------------------------------------------------------------------

// A text with its index and its match, a byte at a time.
typedef struct match_world {
    reef_lines index;
    reef_text text;
    reef_match match;
    uint32_t shortest;
    const uint8_t *bytes;
    size_t count;
} match_world;

static void open_match(match_world *w, uint32_t shortest, size_t lines, const uint8_t *bytes) {
    *w = (match_world){.shortest = shortest, .bytes = bytes};
    must(reef_lines_init(&w->index, lines, &why));
    reef_text_init(&w->text, 2 * BLOCK);
}

static void close_match(match_world *w) {
    reef_lines_release(&w->index);
    reef_text_release(&w->text);
}

static void match_byte(match_world *w, bool learns) {
    uint8_t byte = w->bytes[w->count++];
    push_bytes(&w->text, &byte, 1);
    reef_match_step(&w->match, &w->index, &w->text, w->shortest, byte, learns);
    reef_match_look_up(&w->match, &w->index, &w->text, w->shortest, learns);
    reef_match_take(&w->match, &w->text, w->shortest);
}

// How many bytes before `at` are the last bytes of the text.
static size_t agreement(const match_world *w, size_t at) {
    size_t length = 0;
    while (length < at && w->bytes[at - 1 - length] == w->bytes[w->count - 1 - length]) length++;
    return length;
}

static size_t longest_occurrence(const match_world *w) {
    size_t longest = 0;
    for (size_t at = 0; at < w->count; at++) {
        size_t length = agreement(w, at);
        if (length > longest) longest = length;
    }
    return longest;
}

// Words of a small alphabet that come again, some with one byte that is another.
static void draw_repetitive(uint64_t *seed, int symbols, size_t count, uint8_t *bytes) {
    for (size_t at = 0; at < count;) {
        size_t length = (size_t)draw_int(seed, 1, 60), from = at == 0 ? 0 : draw_bits(seed) % at;
        bool copies = at > 0 && draw_int(seed, 0, 2) > 0;
        for (size_t i = 0; i < length && at < count; i++, at++)
            bytes[at] = copies && draw_int(seed, 0, 49) > 0
                            ? bytes[from + i]
                            : (uint8_t)('a' + draw_int(seed, 0, symbols - 1));
    }
}

static void assert_matches(uint32_t shortest, int symbols, uint64_t seed) {
    enum { COUNT = 3000 };
    static uint8_t bytes[COUNT];
    match_world w;
    bool is_long = shortest >= REEF_MATCH_LONG;
    size_t there = 0, followed = 0;
    draw_repetitive(&seed, symbols, COUNT, bytes);
    open_match(&w, shortest, 1024, bytes);
    while (w.count < COUNT) {
        match_byte(&w, true);
        size_t longest = longest_occurrence(&w);
        int expected = reef_match_expected(&w.match, &w.text);
        // The hash may have up to two bytes more in it than `shortest`, and a long match is found
        // some bytes later.
        if (longest >= shortest + (is_long ? 24 : 2)) {
            there++;
            followed += w.match.follows && w.match.length >= shortest;
        }
        assert_true(reef_match_state(&w.match) < REEF_MATCH_STATES);
        if (!w.match.follows) {
            assert_int_equal(expected, -1);
            continue;
        }
        assert_true(w.match.at < w.count); // an earlier one, not the end itself
        assert_int_equal(expected, bytes[w.match.at]);
        assert_true(w.match.misses <= REEF_MATCH_MISSES);
        size_t agreed = agreement(&w, w.match.at);
        if (w.match.length > agreed)
            fail_msg("byte %zu: a match of %u bytes agrees in %zu", w.count, w.match.length,
                     agreed);
        assert_true(agreed <= longest);
        if (w.match.misses == 0) assert_true(w.match.length >= shortest);
    }
    // An entry is lost to other bytes with its hash, more often where there are few symbols.
    print_message("shortest %u, %d symbols: %zu of %zu followed\n", shortest, symbols, followed,
                  there);
    assert_true(there > (is_long ? 20 : COUNT / 10));
    assert_true(followed * 100 >= there * (is_long ? 70 : 97));
    close_match(&w);
}

PLAIN_TEST(a_followed_match_really_occurred_and_few_are_missed) {
    for (uint64_t seed = 71; seed < 73; seed++)
        for (int symbols = 2; symbols <= 8; symbols += 3) {
            assert_matches(6, symbols, seed);
            assert_matches(20, symbols, seed);
            assert_matches(4, symbols + 8, seed);
        }
}

// In a text of many times the bytes that its index has places for, a passage from the beginning is
// found before its end.
PLAIN_TEST(a_text_much_longer_than_its_index_is_reached_to_its_beginning) {
    enum { ENTRIES = 64 * REEF_MATCH_ENTRIES, COUNT = 64 * ENTRIES, PASSAGE = 600 };
    uint8_t *bytes = room(COUNT + PASSAGE);
    uint64_t seed = 73;
    size_t found = 0;
    draw_bytes(&seed, COUNT, bytes);
    for (size_t from = 0; from < COUNT; from += COUNT / 8) {
        match_world w;
        memcpy(bytes + COUNT, bytes + from, PASSAGE);
        open_match(&w, 20, 64, bytes);
        while (w.count < COUNT + PASSAGE) match_byte(&w, true);
        found += w.match.follows && w.match.at == from + PASSAGE;
        close_match(&w);
    }
    print_message("%zu of 8 passages\n", found);
    assert_true(found >= 7);
}

PLAIN_TEST(a_match_is_given_up_after_some_wrong_bytes) {
    static uint8_t bytes[400];
    match_world w;
    uint64_t seed = 79;
    for (size_t i = 0; i < 100; i++) bytes[i] = bytes[i + 100] = (uint8_t)draw_int(&seed, 0, 127);
    bytes[150] = 200; // one wrong byte in the middle of a repetition
    for (size_t i = 200; i < 400; i++) bytes[i] = (uint8_t)(128 + draw_int(&seed, 0, 127));
    open_match(&w, 6, 256, bytes);
    while (w.count < 150) match_byte(&w, true);
    assert_true(w.match.follows && w.match.at == 50 && w.match.length >= 40);
    match_byte(&w, true);
    assert_true(w.match.follows && w.match.at == 51 && w.match.length == 0 && w.match.misses == 1);
    match_byte(&w, true);
    assert_int_equal(w.match.length, 1);
    while (w.count < 200) match_byte(&w, true);
    assert_true(w.match.follows && w.match.at == 100);
    while (w.count < 300) match_byte(&w, true);
    assert_false(w.match.follows);
    close_match(&w);
}

PLAIN_TEST(what_is_not_learned_is_not_found) {
    static uint8_t bytes[300];
    uint64_t seed = 83;
    for (size_t i = 0; i < 100; i++)
        bytes[i] = bytes[i + 100] = bytes[i + 200] = (uint8_t)draw_bits(&seed);
    match_world w;
    open_match(&w, 6, 256, bytes);
    while (w.count < 200) {
        match_byte(&w, false);
        assert_false(w.match.follows);
    }
    for (size_t at = 0; at < w.index.count; at++)
        for (size_t i = 0; i < REEF_LINE_BYTES; i++)
            assert_int_equal(reef_lines_peek(&w.index, at)[i], 0);
    close_match(&w);
}

PLAIN_TEST(a_doubled_index_finds_what_it_found) {
    enum { COUNT = 6000, HALF = 3000 };
    static uint8_t bytes[COUNT];
    uint64_t seed = 89;
    draw_bytes(&seed, HALF, bytes);
    memcpy(bytes + HALF, bytes, HALF);
    match_world w;
    open_match(&w, 6, 1024, bytes);
    while (w.count < HALF) match_byte(&w, true);
    reef_lines larger;
    must(reef_lines_init(&larger, 2048, &why));
    reef_match_index_double(&larger, &w.index);
    reef_lines_release(&w.index);
    w.index = larger;
    size_t followed = 0;
    for (; w.count < COUNT; followed += w.match.follows && w.match.at + HALF == w.count)
        match_byte(&w, false);
    assert_true(followed > HALF - 20);
    close_match(&w);
}

PLAIN_TEST(classes_of_length_grow_with_it) {
    uint32_t last = 0;
    for (uint32_t length = 0; length <= REEF_MATCH_LENGTH_MAX; length++) {
        uint32_t class = reef_match_length_class(length);
        assert_true(class >= last && class <= last + 1 && class <= 31);
        last = class;
    }
    assert_int_equal(reef_match_length_class(0), 0);
    assert_int_equal(last, 31);
}

RUN_TESTS
