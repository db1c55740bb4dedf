// Archives: the coder, the format, and round trips through a pool that keeps learning.
#include "archive_format.h"
#include "draw.h"
#include "lifelong.h"
#include "piece_coder.h"
#include "reef_archive.h"
#include "reef_byte_order.h"
#include "reef_snapshot.h"

#include <math.h>

enum { TURN = 160 * LIFELONG_BATCH, PIECE = REEF_ARCHIVE_PIECE_BYTES_MIN, TEXT = 3 * PIECE + 100 };

// ---- a pool that has learned three kinds of text ------------------------------------------------

// Generations 0 and 1 are sealed, 2 is open; "early" and "twin" are the same state of generation 1,
// "late" is one of generation 2.
static void learn_all(lifelong *f) {
    reef_snapshot snapshot;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, TURN, 1);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 1, TURN, 2);
    must(reef_trainer_snapshot(f->trainer, "early", &snapshot, &why));
    must(reef_trainer_snapshot(f->trainer, "twin", &snapshot, &why));
    feed_kind(f, 1, TURN, 3);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 2, TURN, 4);
    must(reef_trainer_snapshot(f->trainer, "late", &snapshot, &why));
}

static int setup(void **state) {
    lifelong_setup(state);
    learn_all(*state);
    return 0;
}

// Small: it is copied as a whole.
typedef struct coded {
    uint8_t *bytes;
    size_t count;
} coded;

static coded write_as(reef_store *store,
                      const char *as_of,
                      const uint8_t *text,
                      size_t count,
                      size_t threads,
                      uint32_t piece) {
    coded out;
    const reef_archive_options options = {.threads = threads, .piece_bytes = piece};
    must(reef_archive_write(store, as_of, text, count, &options, &out.bytes, &out.count, &why));
    keep(out.bytes);
    return out;
}

static reef_archive_info info_of(const coded *archive) {
    reef_archive_info info;
    must(reef_archive_read_info(&info, archive->bytes, archive->count, &why));
    keep(info.shares);
    return info;
}

static reef_status read_range(
    reef_store *store, const coded *archive, uint64_t begin, uint64_t end, uint8_t *text) {
    // Exactly as much as is there, so that a sanitizer sees every byte beyond.
    const uint8_t *own = copied(archive->bytes, archive->count);
    const reef_archive_options options = {.threads = 2};
    return reef_archive_read(store, own, archive->count, begin, end, &options, text, &why);
}

static void assert_expands(reef_store *store,
                           const coded *archive,
                           const uint8_t *text,
                           size_t count) {
    uint8_t *back = room(count + 1);
    must(read_range(store, archive, 0, count, back));
    assert_memory_equal(back, text, count);
}

static void assert_refused(
    reef_store *store, const coded *archive, size_t count, reef_status status, const char *words) {
    uint8_t *back = room(count + 1);
    must_fail(read_range(store, archive, 0, count, back), status, words);
}

static void assert_not_written(reef_store *store,
                               const char *as_of,
                               reef_status status,
                               const char *words) {
    coded none;
    must_fail(reef_archive_write(store, as_of, (const uint8_t *)"text", 4, NULL, &none.bytes,
                                 &none.count, &why),
              status, words);
    assert_null(none.bytes);
}

// Half of each of two kinds, and words that no generation knows at the end.
static void mixed_text(uint8_t *out, size_t count) {
    size_t half = count / 2;
    lifelong_text(out, half, 0, 70);
    lifelong_text(out + half, count - half, 1, 71);
}

// ---- the coder ----------------------------------------------------------------------------------

static uint32_t any_probability(uint64_t *draw) {
    switch (draw_int(draw, 0, 3)) {
    case 0:
        return 1;
    case 1:
        return 65535;
    default:
        return (uint32_t)draw_int(draw, 1, 65535);
    }
}

#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, lifelong *f)

WORLD_TEST(what_is_put_is_taken_with_any_probabilities) {
    enum { BITS = 4000 };
    uint32_t one[BITS];
    uint8_t bits[BITS], code[4 * BITS];
    for (uint64_t seed = 0; seed < 100; seed++) {
        uint64_t draw = seed;
        reef_encoder encoder;
        reef_decoder decoder;
        size_t count = (size_t)draw_int(&draw, 0, BITS);
        reef_encoder_init(&encoder, code, sizeof(code));
        for (size_t i = 0; i < count; i++) {
            one[i] = any_probability(&draw);
            // Mostly what is likely; always, never, or against all odds now and then.
            bits[i] = seed % 3 == 0 ? (uint8_t)draw_int(&draw, 0, 1) : one[i] > 32768;
            reef_encoder_put(&encoder, one[i], bits[i]);
        }
        reef_encoder_end(&encoder);
        assert_true(encoder.count <= encoder.room);
        uint8_t *exact = copied(code, encoder.count);
        reef_decoder_init(&decoder, exact, encoder.count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(reef_decoder_take(&decoder, one[i]), bits[i]);
        assert_true(decoder.at <= encoder.count);
    }
}

WORLD_TEST(a_code_without_room_is_counted) {
    uint64_t draw = 5;
    uint8_t code[4] = {0, 0, 0, 0xEE};
    reef_encoder whole, cut;
    reef_encoder_init(&whole, NULL, 0);
    reef_encoder_init(&cut, code, 3);
    for (int i = 0; i < 999; i++) {
        int bit = draw_int(&draw, 0, 1);
        reef_encoder_put(&whole, 20000, bit);
        reef_encoder_put(&cut, 20000, bit);
    }
    reef_encoder_end(&whole);
    reef_encoder_end(&cut);
    assert_true(whole.count > 100);
    assert_int_equal(whole.count, cut.count);
    assert_int_equal(code[3], 0xEE);
}

static reef_memory *memory_of_text(void) {
    enum { LEARNED = 20000 };
    reef_memory *memory = NULL;
    uint8_t text[LEARNED];
    must(reef_memory_new(&memory, &(reef_memory_options){.bytes_max = 4u << 20}, &why));
    lifelong_text(text, sizeof(text) / 2, 0, 1);
    lifelong_text(text + sizeof(text) / 2, sizeof(text) / 2, 1, 2);
    must(reef_memory_learn(memory, text, sizeof(text), NULL, NULL, &why));
    return memory;
}

WORLD_TEST(a_code_is_as_long_as_what_the_session_says) {
    enum { COUNT = 30000 };
    reef_memory *memory = memory_of_text();
    reef_memory_session *session = NULL;
    uint8_t text[COUNT];
    float bits[COUNT];
    uint64_t draw = 3;
    double sum = 0.0;
    reef_encoder encoder;
    lifelong_text(text, COUNT / 3, 0, 9);
    lifelong_text(text + COUNT / 3, COUNT / 3, 3, 9);
    for (size_t i = COUNT / 3 * 2; i < COUNT; i++) text[i] = (uint8_t)draw_bits(&draw);
    must(reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, &why));
    must(reef_memory_session_read(session, text, COUNT, NULL, bits, &why));
    for (size_t i = 0; i < COUNT; i++) sum += (double)bits[i];
    reef_memory_session_reset(session);
    reef_encoder_init(&encoder, NULL, 0);
    must(reef_piece_encode(session, text, COUNT, &encoder, NULL, &why));
    print_message("%.1f bytes foreseen, %zu coded\n", sum / 8.0, encoder.count);
    assert_true((double)encoder.count <= sum / 8.0 * 1.003 + 200.0);
    assert_true((double)encoder.count >= sum / 8.0 * 0.997 - 200.0);
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// If this fails, memories predict otherwise than before, and older archives could not be expanded:
// raise REEF_ARCHIVE_CODER, and put the new numbers here.
WORLD_TEST(a_text_has_this_code_for_ever) {
    enum { COUNT = 5000, CODER = 5 };
    reef_memory *memory = memory_of_text();
    reef_memory_session *session = NULL;
    uint8_t text[COUNT], code[COUNT];
    reef_encoder encoder;
    mixed_text(text, COUNT);
    must(reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, &why));
    reef_encoder_init(&encoder, code, sizeof(code));
    must(reef_piece_encode(session, text, COUNT, &encoder, NULL, &why));
    print_message("%zu bytes, sum %016llx\n", encoder.count,
                  (unsigned long long)reef_archive_sum(code, encoder.count));
    assert_int_equal(REEF_ARCHIVE_CODER, CODER);
    assert_int_equal(encoder.count, 475);
    assert_true(reef_archive_sum(code, encoder.count) == UINT64_C(0xb98879a9871747c0));
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// ---- texts --------------------------------------------------------------------------------------

WORLD_TEST(texts_of_every_length_come_back) {
    static const size_t COUNTS[] = {0,     1,         2,         100,  PIECE - 1,
                                    PIECE, PIECE + 1, 2 * PIECE, TEXT, 5 * PIECE - 1};
    uint8_t text[5 * PIECE];
    mixed_text(text, sizeof(text));
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        coded one = write_as(f->store, "1", text, COUNTS[i], 1, PIECE);
        for (size_t threads = 2; threads <= 3; threads++) {
            coded same = write_as(f->store, "1", text, COUNTS[i], threads, PIECE);
            assert_int_equal(same.count, one.count);
            assert_memory_equal(same.bytes, one.bytes, one.count);
        }
        assert_expands(f->store, &one, text, COUNTS[i]);
        reef_archive_info info = info_of(&one);
        assert_int_equal(info.text_bytes, COUNTS[i]);
        assert_int_equal(info.bytes, one.count);
        assert_int_equal(info.piece_count, (COUNTS[i] + PIECE - 1) / PIECE);
        assert_string_equal(info.state, "1");
        assert_false(info.of_snapshot);
        if (COUNTS[i] > PIECE) assert_true(one.count < COUNTS[i] / 4);
    }
}

WORLD_TEST(a_piece_is_coded_by_the_generation_that_knows_it) {
    uint64_t coded_bytes = 0;
    uint8_t text[4 * PIECE];
    mixed_text(text, sizeof(text));
    coded archive = write_as(f->store, "1", text, sizeof(text), 2, PIECE);
    reef_archive_info info = info_of(&archive);
    assert_int_equal(info.share_count, 2);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(info.shares[g].generation, g);
        assert_int_equal(info.shares[g].piece_count, 2);
        assert_int_equal(info.shares[g].text_bytes, 2 * PIECE);
        coded_bytes += info.shares[g].bytes;
    }
    // As of generation 0 there is nothing else.
    coded older = write_as(f->store, "0", text, sizeof(text), 2, PIECE);
    info = info_of(&older);
    assert_int_equal(info.share_count, 1);
    assert_true(info.shares[0].bytes > coded_bytes);
    assert_expands(f->store, &archive, text, sizeof(text));
    assert_expands(f->store, &older, text, sizeof(text));
}

WORLD_TEST(noise_is_stored_as_it_is) {
    uint64_t draw = 8;
    uint8_t text[2 * PIECE + 5];
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (uint8_t)draw_bits(&draw);
    lifelong_text(text + PIECE, PIECE, 0, 6);
    coded archive = write_as(f->store, "0", text, sizeof(text), 1, PIECE);
    reef_archive_info info = info_of(&archive);
    assert_in_range(info.raw_count, 1, 2);
    assert_true(archive.count < sizeof(text));
    assert_expands(f->store, &archive, text, sizeof(text));
}

WORLD_TEST(a_range_is_that_of_the_text) {
    uint64_t draw = 4;
    uint8_t text[TEXT], back[TEXT];
    mixed_text(text, sizeof(text));
    coded archive = write_as(f->store, "1", text, sizeof(text), 1, PIECE);
    for (int i = 0; i < 40; i++) {
        uint64_t begin = (uint64_t)draw_int(&draw, 0, TEXT),
                 end = (uint64_t)draw_int(&draw, (int)begin, TEXT);
        if (i == 0) begin = end = TEXT;
        if (i == 1) begin = PIECE, end = 2 * PIECE;
        if (i == 2) begin = PIECE - 1, end = PIECE + 1;
        must(read_range(f->store, &archive, begin, end, back));
        assert_memory_equal(back, text + begin, end - begin);
    }
    assert_int_equal(read_range(f->store, &archive, 0, TEXT + 1, back), REEF_ERR_INVALID);
    assert_int_equal(read_range(f->store, &archive, 5, 4, back), REEF_ERR_INVALID);
}

// ---- states -------------------------------------------------------------------------------------

PLAIN_TEST(an_archive_outlives_what_the_pool_learns_later) {
    static const char *const STATES[] = {"0", "1", "early", "late", NULL};
    enum { COUNT = sizeof(STATES) / sizeof(STATES[0]) };
    lifelong *f;
    coded archives[COUNT];
    uint8_t text[PIECE + 100]; // two pieces, one of them short
    mixed_text(text, sizeof(text));
    setup((void **)&f);
    for (size_t i = 0; i < COUNT; i++)
        archives[i] = write_as(f->store, STATES[i], text, sizeof(text), 2, PIECE);
    for (int turn = 0; turn < 2; turn++) {
        feed_kind(f, turn, TURN, 9);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        feed_kind(f, 3, TURN / 2, 9);
        commit(f);
        for (size_t i = 0; i < COUNT; i++) {
            assert_expands(f->store, &archives[i], text, sizeof(text));
            if (STATES[i] == NULL) continue; // the newest is another one now
            coded again = write_as(f->store, STATES[i], text, sizeof(text), 1, PIECE);
            assert_int_equal(again.count, archives[i].count);
            assert_memory_equal(again.bytes, archives[i].bytes, again.count);
        }
    }
    char copy[TEMP_DIR_BYTES];
    temp_dir_join(copy, f->dir, "copy");
    must(reef_store_copy(f->store, copy, NULL, &why));
    reef_store *other = pool_open(copy, false, false);
    for (size_t i = 0; i < COUNT; i++) assert_expands(other, &archives[i], text, sizeof(text));
    reef_store_close(other);
    lifelong_teardown((void **)&f);
}

PLAIN_TEST(without_a_state_the_newest_that_is_kept_is_meant) {
    lifelong *f;
    reef_snapshot snapshot;
    static const char *const EXPECTED[] = {"0", "early", "1", "late"};
    lifelong_setup((void **)&f);
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    assert_not_written(f->store, NULL, REEF_ERR_INVALID, "reef snapshot create");
    for (int i = 0; i < 4; i++) {
        feed_kind(f, i / 2, TURN / 2, (uint32_t)i);
        commit(f);
        if (i == 0) assert_not_written(f->store, NULL, REEF_ERR_INVALID, "no state for ever");
        if (i % 2 == 0)
            must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        else
            must(reef_trainer_snapshot(f->trainer, EXPECTED[i], &snapshot, &why));
        coded archive = write_as(f->store, NULL, (const uint8_t *)"abc", 3, 1, 0);
        reef_archive_info info = info_of(&archive);
        assert_string_equal(info.state, EXPECTED[i]);
        assert_int_equal(info.of_snapshot, i % 2);
    }
    lifelong_teardown((void **)&f);
}

PLAIN_TEST(a_state_that_changes_is_refused) {
    lifelong *f;
    reef_archive_info info;
    setup((void **)&f);
    commit(f);
    assert_not_written(f->store, "now", REEF_ERR_INVALID, "reef snapshot create");
    assert_not_written(f->store, "2", REEF_ERR_INVALID, "generation 2 is open");
    assert_not_written(f->store, "7", REEF_ERR_NOT_FOUND, "no generation 7");
    assert_not_written(f->store, "nowhere", REEF_ERR_NOT_FOUND, "nowhere");
    // Just after sealing nothing is open that has learned.
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    coded archive = write_as(f->store, "now", (const uint8_t *)"abc", 3, 1, 0);
    info = info_of(&archive);
    assert_string_equal(info.state, "2");
    lifelong_teardown((void **)&f);
}

static void remove_snapshot(lifelong *f, const char *name) {
    reef_commit last;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_commit_read(txn, &last, &why));
    must(reef_snapshot_remove(txn, name, &why));
    must(reef_txn_commit(txn, &last, &why));
}

PLAIN_TEST(a_state_that_is_gone_is_named) {
    lifelong *f;
    uint8_t text[TEXT];
    lifelong_text(text, TEXT, 1, 5);
    setup((void **)&f);
    coded archive = write_as(f->store, "early", text, TEXT, 1, PIECE);
    remove_snapshot(f, "early");
    assert_expands(f->store, &archive, text, TEXT); // another one has the same
    remove_snapshot(f, "twin");
    assert_refused(f->store, &archive, TEXT, REEF_ERR_NOT_FOUND,
                   "needs generation 1 as snapshot 'early' had it");
    lifelong_teardown((void **)&f);
}

WORLD_TEST(another_pool_is_told_apart) {
    lifelong *other;
    uint8_t text[TEXT];
    lifelong_text(text, TEXT, 0, 5);
    coded archive = write_as(f->store, "0", text, TEXT, 1, PIECE);
    lifelong_setup((void **)&other);
    choose(&other->config, "boundaries", "given");
    make_pool(other, 1);
    feed_kind(other, 0, TURN, 100);
    commit(other);
    assert_refused(other->store, &archive, TEXT, REEF_ERR_INVALID, "is of another pool");
    lifelong_teardown((void **)&other);
}

// What was learned counts, not where.
WORLD_TEST(a_pool_that_learned_the_same_expands_too) {
    lifelong *other;
    uint8_t text[TEXT];
    lifelong_text(text, TEXT, 0, 5);
    coded archive = write_as(f->store, "0", text, TEXT, 1, PIECE);
    lifelong_setup((void **)&other);
    learn_all(other);
    assert_expands(other->store, &archive, text, TEXT);
    lifelong_teardown((void **)&other);
}

PLAIN_TEST(a_pool_without_memories_says_how_to_get_one) {
    static const struct {
        const char *name, *value, *words;
    } CASES[] = {
        {"model", "layer", "a layer by itself"},
        {"seed", "1", "unless it is made with --memory 0"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        lifelong *f;
        lifelong_setup((void **)&f);
        reef_config_default(&f->config);
        choose(&f->config, CASES[i].name, CASES[i].value);
        reef_config_fit(&f->config);
        if (strcmp(CASES[i].name, "seed") == 0) forget_memories(f);
        must(reef_pool_init(f->pool, &f->config, &why));
        f->store = pool_open(f->pool, false, false);
        assert_not_written(f->store, NULL, REEF_ERR_INVALID, CASES[i].words);
        lifelong_teardown((void **)&f);
    }
}

PLAIN_TEST(a_state_without_a_memory_is_refused) {
    lifelong *f;
    reef_snapshot snapshot;
    lifelong_setup((void **)&f);
    make_pool(f, 1);
    must(reef_trainer_snapshot(f->trainer, "empty", &snapshot, &why));
    assert_not_written(f->store, "empty", REEF_ERR_INVALID, "nothing was learned yet");
    lifelong_teardown((void **)&f);
}

// ---- sizes, and an end before time --------------------------------------------------------------

static bool always(void) {
    return true;
}

typedef struct heard {
    uint64_t done, total;
    uint64_t most; // 0: all
} heard;

static bool on_progress(void *context, uint64_t done, uint64_t total) {
    heard *h = context;
    assert_true(done >= h->done && done <= total);
    h->done = done;
    h->total = total;
    return h->most == 0 || done < h->most;
}

WORLD_TEST(work_can_be_watched_and_stopped) {
    coded out;
    heard h = {0};
    uint8_t text[TEXT], back[TEXT];
    mixed_text(text, TEXT);
    reef_archive_options options = {
        .threads = 1, .piece_bytes = PIECE, .progress = on_progress, .context = &h};
    must(reef_archive_write(f->store, "1", text, TEXT, &options, &out.bytes, &out.count, &why));
    assert_true(h.total > TEXT && h.done == h.total);
    h = (heard){0};
    must(reef_archive_read(f->store, out.bytes, out.count, 0, TEXT, &options, back, &why));
    assert_true(h.total == TEXT && h.done == h.total);
    // Who is told may end it, too.
    h = (heard){.most = PIECE};
    assert_int_equal(
        reef_archive_read(f->store, out.bytes, out.count, 0, TEXT, &options, back, &why),
        REEF_ERR_BUSY);
    assert_true(h.done >= PIECE && h.done < TEXT);
    options.stopped = always;
    options.progress = NULL;
    options.threads = 2;
    assert_int_equal(
        reef_archive_read(f->store, out.bytes, out.count, 0, TEXT, &options, back, &why),
        REEF_ERR_BUSY);
    free(out.bytes);
    assert_int_equal(
        reef_archive_write(f->store, "1", text, TEXT, &options, &out.bytes, &out.count, &why),
        REEF_ERR_BUSY);
    assert_null(out.bytes);
}

WORLD_TEST(pieces_have_bounds) {
    static const uint32_t WRONG[] = {1, PIECE - 1, REEF_ARCHIVE_PIECE_BYTES_MAX + 1};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        coded out;
        const reef_archive_options options = {.piece_bytes = WRONG[i]};
        must_fail(reef_archive_write(f->store, "0", (const uint8_t *)"a", 1, &options, &out.bytes,
                                     &out.count, &why),
                  REEF_ERR_INVALID, "pieces of");
    }
}

// ---- damage -------------------------------------------------------------------------------------

static void sum_header(coded *archive) {
    uint32_t all = reef_get_le32(archive->bytes + 12);
    reef_put_le64(archive->bytes + all - 8, reef_archive_sum(archive->bytes, all - 8));
}

static coded copy_of(const coded *archive) {
    coded copy = {room(archive->count + 1), archive->count};
    memcpy(copy.bytes, archive->bytes, copy.count);
    return copy;
}

WORLD_TEST(what_is_wrong_with_an_archive_is_said) {
    // offset, value of four bytes there, whether the checksum is then made right
    static const struct {
        size_t at;
        uint32_t value;
        bool sum;
        reef_status status;
        const char *words;
    } CASES[] = {
        {0, 0x12345678, false, REEF_ERR_INVALID, "no archive"},
        {8, 2, false, REEF_ERR_VERSION, "format version 2"},
        {8, 0, false, REEF_ERR_CORRUPT, "version 0"},
        {12, 5, false, REEF_ERR_CORRUPT, "length of its header"},
        {12, UINT32_MAX, false, REEF_ERR_CORRUPT, "length of its header"},
        {12, 1u << 20, false, REEF_ERR_CORRUPT, "cut off"},
        {16, 2, true, REEF_ERR_VERSION, "mode 2"},
        {20, REEF_ARCHIVE_CODER + 1, true, REEF_ERR_VERSION, "context memories of version"},
        {48, 5, true, REEF_ERR_NOT_FOUND, "no state of the pool has any more"},
        {60, 0, true, REEF_ERR_CORRUPT, "name of its state"},
        {60, 65, true, REEF_ERR_CORRUPT, "name of its state"},
        {88, 7, false, REEF_ERR_CORRUPT, "checksum of its header"},
        {92, 1, true, REEF_ERR_CORRUPT, "more bytes than fit"},
        {96, 7, true, REEF_ERR_CORRUPT, "hash that it had"},
        {112, 1, true, REEF_ERR_CORRUPT, "no length that pieces have"},
        {112, UINT32_MAX, true, REEF_ERR_CORRUPT, "no length that pieces have"},
        {116, 1u << 30, true, REEF_ERR_CORRUPT, "number of its pieces"},
        {120, 1u << 30, true, REEF_ERR_CORRUPT, "more memories than pieces"},
        {120, 2, true, REEF_ERR_CORRUPT, "length of its header"},
        {129 + 48, UINT32_MAX, true, REEF_ERR_CORRUPT, "longer than its text"},
        {129 + 48, 1, true, REEF_ERR_CORRUPT, "follow behind its end"},
        {129 + 48 + 4, 1, true, REEF_ERR_CORRUPT, "does not list"},
        {129 + 48 + 4, UINT32_MAX, true, REEF_ERR_CORRUPT, "has another length"},
        {129 + 48 + 8, 1, true, REEF_ERR_CORRUPT, "piece 0, bytes"},
        {129 + 48 + 16, 1, true, REEF_ERR_CORRUPT, "piece 0 expands to another text"},
    };
    uint8_t text[TEXT];
    lifelong_text(text, TEXT, 0, 5);
    coded good = write_as(f->store, "0", text, TEXT, 1, PIECE);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        coded bad = copy_of(&good);
        uint32_t all = reef_get_le32(bad.bytes + 12);
        reef_put_le32(bad.bytes + CASES[i].at, CASES[i].value);
        if (CASES[i].sum) reef_put_le64(bad.bytes + all - 8, reef_archive_sum(bad.bytes, all - 8));
        assert_refused(f->store, &bad, TEXT, CASES[i].status, CASES[i].words);
    }
    coded longer = copy_of(&good);
    longer.bytes[longer.count++] = 0;
    assert_refused(f->store, &longer, TEXT, REEF_ERR_CORRUPT, "1 bytes follow behind its end");
}

WORLD_TEST(an_archive_that_is_cut_off_is_told) {
    uint8_t text[TEXT];
    lifelong_text(text, TEXT, 0, 5);
    coded good = write_as(f->store, "0", text, TEXT, 1, PIECE);
    for (size_t count = 0; count < good.count; count += count < 400 ? 1 : 97) {
        coded cut = {good.bytes, count};
        assert_refused(f->store, &cut, TEXT, count == 0 ? REEF_ERR_INVALID : REEF_ERR_CORRUPT,
                       count == 0 ? "no archive" : "cut off");
    }
}

// Changes some bytes; every tenth time the checksums are made to fit, so that nonsense is decoded.
static void damage(coded *archive, uint64_t *draw, bool sums) {
    size_t header = reef_get_le32(archive->bytes + 12);
    int changes = draw_int(draw, 1, 4);
    size_t from = sums ? header : 0; // of a header with a right checksum there are cases above
    for (int i = 0; i < changes; i++) {
        size_t at = from + (size_t)draw_int(draw, 0, (int)(archive->count - from) - 1);
        archive->bytes[at] ^= (uint8_t)(1 << draw_int(draw, 0, 7));
    }
    if (!sums) {
        if (draw_int(draw, 0, 9) == 0)
            archive->count = (size_t)draw_int(draw, 0, (int)archive->count);
        return;
    }
    reef_archive_header parsed;
    must(reef_archive_header_parse(&parsed, archive->bytes, archive->count, &why));
    for (uint32_t p = 0; p < parsed.piece_count; p++)
        parsed.pieces[p].sum =
            reef_archive_sum(archive->bytes + parsed.pieces[p].at, parsed.pieces[p].bytes);
    reef_archive_header_write(&parsed, archive->bytes);
    reef_archive_header_release(&parsed);
    sum_header(archive);
}

WORLD_TEST(damage_never_goes_unnoticed) {
    const char *wish = getenv("REEF_ARCHIVE_DAMAGES");
    int count = wish != NULL ? atoi(wish) : 250, right = 0;
    uint64_t draw = 77;
    uint8_t text[2 * PIECE + 50], back[sizeof(text)];
    mixed_text(text, sizeof(text));
    coded good = write_as(f->store, "1", text, sizeof(text), 1, PIECE);
    for (int i = 0; i < count; i++) {
        coded bad = copy_of(&good);
        damage(&bad, &draw, i % 10 == 0);
        memset(back, 0, sizeof(back));
        reef_status status = read_range(f->store, &bad, 0, sizeof(text), back);
        if (status == REEF_OK) {
            assert_memory_equal(back, text, sizeof(text)); // the same bit twice
            right++;
        } else if (status != REEF_ERR_CORRUPT && status != REEF_ERR_INVALID &&
                   status != REEF_ERR_VERSION) {
            fail_msg("damage %d: %s", i, why.message);
        }
    }
    print_message("%d damaged archives, %d of them whole after all\n", count, right);
}

WORLD_TEST(a_state_whose_chain_is_no_hash_is_damaged) {
    char open[16];
    feed_kind(f, 0, TURN, 90);
    (void)commit(f);
    uint32_t generation = status_of(f).generation;
    damage_hash_in_state(f->store, generation, "\"memory\"");
    snprintf(open, sizeof(open), "%u", generation);
    assert_not_written(f->store, open, REEF_ERR_CORRUPT, "has a malformed chain");
}

RUN_TESTS_IN(setup, lifelong_teardown)
