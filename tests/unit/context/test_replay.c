// Tables that are stored slice by slice while the memory learns are brought up to date to the same
// bits; a log of another memory, or a damaged one, is refused or does no harm.
#include "context_memory.h"
#include "memory_internal.h"
#include "reef_kernels.h"
#include "reef_replay.h"

#include "draw.h"
#include "draw_text.h"
#include "test.h"

enum { PARTS = 9, TEXT = 400000, PIECE = 1500, SLICES_MAX = 256 };

// What is stored: the tables' slices of their own times, the log, and all else as it is last.
typedef struct stored {
    reef_memory_part tables[REEF_MEMORY_TABLES]; // copies
    uint64_t learned[REEF_MEMORY_TABLES][SLICES_MAX];
    size_t next_table, next_slice;
    reef_log_block *blocks;
    size_t block_count;
    reef_memory_part parts[PARTS]; // of the memory as it is
    uint8_t *text;                 // its full blocks
} stored;

static void store_slice(stored *s, const reef_memory_part *now, size_t t, size_t i, uint64_t at) {
    size_t from = i * REEF_SLICE_BYTES, bytes = now[t].bytes - from;
    if (bytes > REEF_SLICE_BYTES) bytes = REEF_SLICE_BYTES;
    memcpy((uint8_t *)(uintptr_t)s->tables[t].data + from, (const uint8_t *)now[t].data + from,
           bytes);
    s->learned[t][i] = at;
}

static size_t slices_of(const reef_memory_part *table) {
    return (table->bytes + REEF_SLICE_BYTES - 1) / REEF_SLICE_BYTES;
}

// Tables that have doubled whole, and of the others `count` slices in turns.
static void store_some(stored *s, const reef_memory *memory, size_t count) {
    reef_memory_part now[REEF_MEMORY_TABLES];
    uint64_t at = reef_memory_learned_bytes(memory);
    reef_memory_tables(memory, now);
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) {
        assert_true(slices_of(&now[t]) <= SLICES_MAX);
        if (s->tables[t].bytes == now[t].bytes) continue;
        free((void *)(uintptr_t)s->tables[t].data);
        s->tables[t] = (reef_memory_part){now[t].name, malloc(now[t].bytes), now[t].bytes};
        for (size_t i = 0; i < slices_of(&now[t]); i++) store_slice(s, now, t, i, at);
    }
    for (; count > 0; count--) {
        if (s->next_slice == slices_of(&now[s->next_table])) {
            s->next_slice = 0;
            s->next_table = (s->next_table + 1) % REEF_MEMORY_TABLES;
        }
        store_slice(s, now, s->next_table, s->next_slice++, at);
    }
}

static void store_blocks(stored *s, const reef_memory *memory) {
    size_t count;
    const reef_log_block *blocks = reef_memory_log_blocks(memory, &count);
    s->blocks = realloc(s->blocks, (s->block_count + count) * sizeof(*s->blocks));
    for (size_t i = 0; i < count; i++) {
        reef_log_block *to = &s->blocks[s->block_count++];
        *to = blocks[i];
        to->bytes = malloc(REEF_SLICE_BYTES);
        memcpy(to->bytes, blocks[i].bytes, blocks[i].count);
    }
}

static void stored_release(stored *s) {
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) free((void *)(uintptr_t)s->tables[t].data);
    for (size_t i = 0; i < s->block_count; i++) free(s->blocks[i].bytes);
    free(s->blocks);
    free(s->text);
}

static reef_status fetch(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const stored *s = context;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        if (strcmp(s->tables[t].name, name) == 0) {
            memcpy(into, s->tables[t].data, bytes);
            return REEF_OK;
        }
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(s->parts[i].name, name) == 0) {
            memcpy(into, s->parts[i].data, bytes);
            return REEF_OK;
        }
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no part %s", name);
}

static reef_status fetch_text(void *context,
                              size_t block,
                              const uint8_t *name,
                              const uint8_t **out,
                              bool *lent,
                              reef_error *err) {
    const stored *s = context;
    (void)name, (void)err;
    *lent = true;
    *out = s->text + block * REEF_TEXT_BLOCK_BYTES;
    return REEF_OK;
}

static uint64_t oldest(const stored *s) {
    uint64_t least = UINT64_MAX;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        for (size_t i = 0; i < slices_of(&s->tables[t]); i++)
            if (s->learned[t][i] < least) least = s->learned[t][i];
    return least;
}

static reef_status replay(reef_memory *memory, const stored *s, size_t threads) {
    const uint64_t *slices[REEF_MEMORY_TABLES];
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) slices[t] = s->learned[t];
    size_t first = 0;
    // Those before the oldest slice are not needed.
    while (first + 1 < s->block_count && s->blocks[first + 1].begin <= oldest(s)) first++;
    reef_thread_pool *workers = NULL;
    must(reef_thread_pool_new(&workers, threads, &why));
    reef_status status = reef_memory_replay(memory, slices, s->blocks + first,
                                            s->block_count - first, workers, &why);
    reef_thread_pool_free(workers);
    return status;
}

// Learns `text` from `first` bytes on with a log; what is stored of it then is `s`.
static reef_memory *learn_and_store(stored *s,
                                    const reef_memory_options *options,
                                    const uint8_t *text,
                                    size_t count,
                                    size_t first,
                                    size_t slices,
                                    bool with_net) {
    static reef_net_prediction net[PIECE];
    uint64_t seed = 5;
    reef_memory *memory = NULL;
    must(reef_memory_new(&memory, options, &why));
    learn(memory, text, first, NULL, NULL);
    must(reef_memory_log(memory, &why));
    store_some(s, memory, 0);
    for (size_t at = first; at < count; at += PIECE) {
        size_t some = count - at < PIECE ? count - at : PIECE;
        draw_useful_net(&seed, text + at, some, net);
        learn(memory, text + at, some, with_net && at % 2 == 0 ? net : NULL, NULL);
        store_some(s, memory, slices);
    }
    store_blocks(s, memory);
    reef_memory_parts(memory, s->parts);
    s->text = copy_text_blocks(memory);
    return memory;
}

static void check(const reef_memory_options *options,
                  size_t count,
                  size_t first,
                  size_t slices,
                  bool with_net,
                  uint64_t seed) {
    static uint8_t text[TEXT + PIECE];
    static float bits[2][PIECE];
    stored s = {0};
    draw_text(&seed, count + PIECE, text);
    reef_memory *a = learn_and_store(&s, options, text, count, first, slices, with_net), *b = NULL;
    for (size_t threads = 1; threads <= 3; threads += 2) {
        reef_memory_free(b);
        must(reef_memory_restore(&b, &(reef_memory_reader){fetch, fetch_text, &s}, &why));
        must(replay(b, &s, threads));
        assert_same_parts(a, b);
    }
    learn(a, text + count, PIECE, NULL, bits[0]);
    learn(b, text + count, PIECE, NULL, bits[1]);
    assert_memory_equal(bits[0], bits[1], sizeof(bits[0]));
    assert_same_parts(a, b);
    stored_release(&s);
    reef_memory_free(a);
    reef_memory_free(b);
}

PLAIN_TEST(slices_of_different_times_come_up_to_date) {
    const reef_memory_options small = {.bytes_max = REEF_MEMORY_BYTES_MIN},
                              roomy = {.bytes_max = 32 << 20};
    check(&small, TEXT, 100000, 1, false, 3); // full tables; slices many rounds old and new
    check(&small, TEXT, 100000, 0, true, 7);  // all of it is replayed
    check(&roomy, TEXT, 50000, 3, true, 11);  // tables double meanwhile
    check(&roomy, TEXT, 0, 1, false, 13);
}

// What a text forgets was read by nothing that is replayed.
PLAIN_TEST(a_text_that_forgets) {
    const reef_memory_options options = {.bytes_max = REEF_MEMORY_BYTES_MIN, .text_max = 256 << 10};
    check(&options, TEXT, TEXT - 100000, 1, false, 17);
}

PLAIN_TEST(a_log_that_is_not_one_is_refused) {
    static uint8_t text[TEXT];
    const reef_memory_options options = {.bytes_max = REEF_MEMORY_BYTES_MIN};
    uint64_t seed = 19;
    size_t refused = 0;
    stored s = {0};
    draw_text(&seed, 60000, text);
    reef_memory *a = learn_and_store(&s, &options, text, 60000, 20000, 0, false), *b = NULL;
    reef_log_block *block = &s.blocks[0];
    for (int i = 0; i < 60; i++) {
        size_t at = (size_t)draw_int(&seed, 0, (int)block->count - 1), count = block->count;
        uint8_t was = block->bytes[at];
        must(reef_memory_restore(&b, &(reef_memory_reader){fetch, fetch_text, &s}, &why));
        block->bytes[at] ^= (uint8_t)(1 << draw_int(&seed, 0, 7));
        if (i % 3 == 0) block->count = at;
        reef_status status = replay(b, &s, 1 + (size_t)i % 2);
        assert_true(status == REEF_OK || status == REEF_ERR_CORRUPT);
        refused += status == REEF_ERR_CORRUPT;
        learn(b, text, 500, NULL, NULL); // whatever was replayed
        block->bytes[at] = was;
        block->count = count;
        reef_memory_free(b);
    }
    assert_true(refused > 10);
    stored_release(&s);
    reef_memory_free(a);
}

RUN_TESTS
