// A context memory and its sessions: the same bits however it is called, with any kernels, and
// nothing of a session in the memory.
#include "context_memory.h"
#include "memory_internal.h"
#include "reef_context.h"
#include "reef_kernels.h"

#include "bit_coder.h"
#include "draw.h"
#include "draw_text.h"
#include "test.h"

#include <math.h>
#include <pthread.h>

enum { LEARNED = 24000, READ = 6000, THREADS = 4 };

// A text that a memory learns, and another in the same words that a session reads.
typedef struct world {
    uint8_t learned[LEARNED], read[READ];
    reef_memory *memory; // has learned the first
} world;

static void read_text(reef_memory_session *session,
                      const uint8_t *bytes,
                      size_t count,
                      float *bits) {
    must(reef_memory_session_read(session, bytes, count, NULL, bits, &why));
}

static void read_once(const reef_memory *memory,
                      reef_memory_reading reading,
                      const uint8_t *bytes,
                      size_t count,
                      float *bits) {
    reef_memory_session *session = open_session(memory, reading);
    read_text(session, bytes, count, bits);
    reef_memory_session_close(session);
}

static double sum_of(const float *bits, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += bits[i];
    return sum;
}

static void assert_same_bits(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(*a)) != 0)
            fail_msg("byte %zu: %.9g and %.9g bits", i, (double)a[i], (double)b[i]);
}

static int set_up(void **state) {
    world *w = room(sizeof(*w));
    uint8_t text[LEARNED + READ];
    uint64_t seed = 101;
    draw_text(&seed, sizeof(text), text);
    memcpy(w->learned, text, LEARNED);
    memcpy(w->read, text + LEARNED, READ);
    w->memory = new_memory(0);
    learn(w->memory, w->learned, LEARNED, NULL, NULL);
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    reef_memory_free(w->memory);
    return 0;
}

// ---- everything that a memory is ----------------------------------------------------------------

static void assert_same_lines(const reef_lines *a, const reef_lines *b) {
    assert_int_equal(a->count, b->count);
    for (size_t at = 0; at < a->count; at++)
        if (memcmp(reef_lines_peek(a, at), reef_lines_peek(b, at), REEF_LINE_BYTES) != 0)
            fail_msg("line %zu of %zu", at, a->count);
}

static void assert_same_memory(const reef_memory *left, const reef_memory *right) {
    const reef_predictor *a = &left->predictor, *b = &right->predictor;
    assert_int_equal(a->learned_bytes, b->learned_bytes);
    assert_same_lines(&a->cells, &b->cells);
    assert_same_lines(&a->slots, &b->slots);
    for (size_t k = 0; k < REEF_MATCHES; k++) assert_same_lines(&a->index[k], &b->index[k]);
    assert_int_equal(a->text.end, b->text.end);
    assert_int_equal(a->text.begin, b->text.begin);
    for (uint64_t back = 1; back <= a->text.end - a->text.begin; back++) {
        int known_a = 0, known_b = 0;
        uint8_t byte = reef_text_at(&a->text, a->text.end - back, &known_a);
        assert_int_equal(byte, reef_text_at(&b->text, b->text.end - back, &known_b));
    }
    assert_memory_equal(a->state->chance, b->state->chance, sizeof(a->state->chance));
    assert_memory_equal(a->state->match, b->state->match, sizeof(a->state->match));
    assert_memory_equal(a->state->order_0, b->state->order_0, sizeof(a->state->order_0));
    assert_memory_equal(a->state->weights, b->state->weights, sizeof(a->state->weights));
    assert_memory_equal(a->state->last_weights, b->state->last_weights,
                        sizeof(a->state->last_weights));
    assert_memory_equal(a->state->sse, b->state->sse, sizeof(a->state->sse));
    assert_memory_equal(a->state->followers, b->state->followers, sizeof(a->state->followers));
}

// ---- learning -----------------------------------------------------------------------------------

#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, world *w)

WORLD_TEST(cutting_the_stream_into_calls_changes_no_bit) {
    static float whole[LEARNED], cut[LEARNED];
    uint64_t seed = 103;
    reef_memory *a = new_memory(0);
    learn(a, w->learned, LEARNED, NULL, whole);
    for (int most = 1; most <= 5000; most *= 70) {
        reef_memory *b = new_memory(0);
        for (size_t at = 0; at < LEARNED;) {
            size_t count = (size_t)draw_int(&seed, 0, most);
            if (count > LEARNED - at) count = LEARNED - at;
            // Whether bits are asked for changes nothing either.
            if (draw_int(&seed, 0, 9) == 0) {
                learn(b, w->learned + at, count, NULL, NULL);
                memcpy(cut + at, whole + at, count * sizeof(*cut));
            } else {
                learn(b, w->learned + at, count, NULL, cut + at);
            }
            at += count;
        }
        assert_same_bits(whole, cut, LEARNED);
        assert_same_memory(a, b);
        reef_memory_free(b);
    }
    reef_memory_free(a);
}

WORLD_TEST(every_kernel_gives_the_same_bits) {
    static float plain[LEARNED], plain_read[3][READ], bits[LEARNED], read[READ];
    const char *const names[] = {"scalar", "avx2", "avx512"}, *before = reef_kernels_name();
    reef_memory *first = NULL;
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        if (reef_kernels_choose(names[n], NULL) != REEF_OK) continue; // not on this CPU
        reef_memory *memory = new_memory(0);
        learn(memory, w->learned, LEARNED, NULL, n == 0 ? plain : bits);
        if (n > 0) assert_same_bits(plain, bits, LEARNED);
        for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
            read_once(memory, reading, w->read, READ, n == 0 ? plain_read[reading] : read);
            if (n > 0) assert_same_bits(plain_read[reading], read, READ);
        }
        if (n == 0) {
            first = memory;
            continue;
        }
        assert_same_memory(first, memory);
        reef_memory_free(memory);
    }
    reef_memory_free(first);
    assert_int_equal(reef_kernels_choose(before, NULL), REEF_OK);
}

WORLD_TEST(a_text_is_predicted_better_the_second_time) {
    static float bits[2][LEARNED];
    reef_memory *memory = new_memory(0);
    for (int time = 0; time < 2; time++) learn(memory, w->learned, LEARNED, NULL, bits[time]);
    double first = sum_of(bits[0], LEARNED), second = sum_of(bits[1], LEARNED);
    print_message("%.3f bits a byte, then %.3f\n", first / LEARNED, second / LEARNED);
    assert_true(first < 8.0 * LEARNED && second < 0.3 * first);
    reef_memory_free(memory);
}

WORLD_TEST(bytes_of_any_kind_are_learned) {
    enum { COUNT = 4000, KINDS = 6 };
    static uint8_t bytes[COUNT];
    static float bits[COUNT];
    uint64_t seed = 107;
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < COUNT; i++) {
            const uint8_t kinds[KINDS] = {0, 255, (uint8_t)draw_bits(&seed), '\n', ',', (uint8_t)i};
            bytes[i] = kinds[kind]; // more lines and more fields in one than any table of them has
        }
        reef_memory *memory = new_memory(0);
        learn(memory, bytes, COUNT, NULL, bits);
        for (size_t i = 0; i < COUNT; i++) assert_true(bits[i] > 0 && bits[i] <= 128);
        double mean = sum_of(bits, COUNT) / COUNT;
        // Bytes that repeat cost next to nothing; drawn ones cannot cost less than they hold.
        assert_true(kind == 2 ? mean > 7.9 && mean < 9.0 : mean < 0.3);
        reef_memory_free(memory);
    }
}

WORLD_TEST(a_memory_without_a_byte_predicts_evenly) {
    uint8_t byte = 'a';
    float bits = 0;
    reef_memory *memory = new_memory(0);
    read_once(memory, REEF_READ_ADAPTING, &byte, 1, &bits);
    assert_true(fabsf(bits - 8.0f) < 0.1f);
    reef_memory_free(memory);
}

// ---- sessions -----------------------------------------------------------------------------------

WORLD_TEST(the_same_session_twice_gives_the_same_bits) {
    static float first[READ], second[READ];
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, w->read, READ, first);
        read_once(w->memory, reading, w->read, READ, second);
        assert_same_bits(first, second, READ);
    }
}

WORLD_TEST(cutting_a_text_into_reads_changes_no_bit) {
    static float whole[READ], cut[READ];
    uint64_t seed = 109;
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, w->read, READ, whole);
        reef_memory_session *session = open_session(w->memory, reading);
        for (size_t at = 0, count; at < READ; at += count) {
            count = (size_t)draw_int(&seed, 0, 100);
            if (count > READ - at) count = READ - at;
            read_text(session, w->read + at, count, cut + at);
        }
        reef_memory_session_close(session);
        assert_same_bits(whole, cut, READ);
    }
}

WORLD_TEST(a_session_leaves_the_memory_as_it_was) {
    static float with[READ], without[READ];
    reef_memory *a = new_memory(0), *b = new_memory(0);
    learn(a, w->learned, LEARNED, NULL, NULL);
    learn(b, w->learned, LEARNED, NULL, NULL);
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(a, reading, w->read, READ, NULL);
        assert_same_memory(a, b);
    }
    learn(a, w->read, READ, NULL, with);
    learn(b, w->read, READ, NULL, without);
    assert_same_bits(with, without, READ);
    assert_same_memory(a, b);
    reef_memory_free(a);
    reef_memory_free(b);
}

WORLD_TEST(a_reset_session_is_a_new_one) {
    static float fresh[READ], after[READ];
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, w->read, READ, fresh);
        reef_memory_session *session = open_session(w->memory, reading);
        read_text(session, w->learned, READ, NULL);
        uint32_t one = 0;
        must(reef_memory_session_predict(session, &one, &why)); // in the middle of a byte
        reef_memory_session_update(session, 1);
        reef_memory_session_reset(session);
        read_text(session, w->read, READ, after);
        assert_same_bits(fresh, after, READ);
        reef_memory_session_reset(session);
        read_text(session, w->read, READ, after);
        assert_same_bits(fresh, after, READ);
        reef_memory_session_close(session);
    }
    reef_memory_session_close(NULL);
}

WORLD_TEST(sessions_at_once_do_not_disturb_each_other) {
    static float alone[THREADS][READ], beside[THREADS][READ];
    reef_memory_session *sessions[THREADS];
    uint64_t seed = 113;
    size_t at[THREADS] = {0};
    for (size_t k = 0; k < THREADS; k++) { // of every reading; texts of their own
        read_once(w->memory, k % 3, w->learned + k * 3000, READ, alone[k]);
        sessions[k] = open_session(w->memory, k % 3);
    }
    for (size_t done = 0; done < THREADS;) {
        size_t k = draw_bits(&seed) % THREADS, count = (size_t)draw_int(&seed, 1, 300);
        if (at[k] == READ) continue;
        if (count > READ - at[k]) count = READ - at[k];
        read_text(sessions[k], w->learned + k * 3000 + at[k], count, beside[k] + at[k]);
        at[k] += count;
        done += at[k] == READ;
    }
    for (size_t k = 0; k < THREADS; k++) {
        reef_memory_session_close(sessions[k]);
        assert_same_bits(alone[k], beside[k], READ);
    }
}

typedef struct reader {
    const reef_memory *memory;
    const uint8_t *bytes;
    reef_memory_reading reading;
    bool failed;
    float bits[READ];
} reader;

static void *run_reader(void *argument) {
    reader *r = argument;
    reef_memory_session *session = NULL;
    r->failed = reef_memory_session_open(&session, r->memory, r->reading, NULL) != REEF_OK ||
                reef_memory_session_read(session, r->bytes, READ, NULL, r->bits, NULL) != REEF_OK;
    reef_memory_session_close(session);
    return NULL;
}

WORLD_TEST(sessions_in_threads_equal_one_after_the_other) {
    static reader readers[THREADS];
    static float alone[READ];
    pthread_t threads[THREADS];
    for (size_t k = 0; k < THREADS; k++) {
        readers[k] =
            (reader){.memory = w->memory, .bytes = w->learned + k * 1777, .reading = k % 3};
        assert_int_equal(pthread_create(&threads[k], NULL, run_reader, &readers[k]), 0);
    }
    for (size_t k = 0; k < THREADS; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
    for (size_t k = 0; k < THREADS; k++) {
        assert_false(readers[k].failed);
        read_once(w->memory, k % 3, w->learned + k * 1777, READ, alone);
        assert_same_bits(alone, readers[k].bits, READ);
    }
}

// Frozen, matches alone know it: they help at once, as far as the memory has learned to trust them,
// and the bytes before a match cost as much as the first time.
WORLD_TEST(a_text_repeats_itself_and_what_of_it_a_session_takes_is_known_again) {
    static uint8_t text[4 * READ / 3];
    static float bits[4 * READ / 3];
    enum { PART = READ / 3, BEFORE_MATCH = 6 };
    uint64_t seed = 127;
    for (size_t i = 0; i < PART; i++) text[i] = (uint8_t)(128 + draw_int(&seed, 0, 99)); // all new
    memcpy(text + PART, text, PART);
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, text, 2 * PART, bits);
        double first = sum_of(bits, PART), again = sum_of(bits + PART, PART);
        print_message("reading %d: %.2f bits a byte, then %.2f\n", (int)reading, first / PART,
                      again / PART);
        if (reading == REEF_READ_ALONE)
            assert_true(again > 0.95 * first);
        else
            assert_true(again < (reading == REEF_READ_FROZEN ? 0.5 : 0.3) * first);
        if (reading == REEF_READ_FROZEN)
            assert_true(sum_of(bits + PART, BEFORE_MATCH) > 0.8 * sum_of(bits, BEFORE_MATCH));
    }
}

// The same of a passage among text of the memory's kind, by a memory that has met repetitions.
WORLD_TEST(a_frozen_session_finds_a_passage_of_its_own_text) {
    enum { PASSAGE = 200, AT = 1000, AGAIN = 4000 };
    static uint8_t text[READ];
    static float frozen[READ], alone[READ];
    uint64_t seed = 149;
    reef_memory *memory = new_memory(0);
    learn(memory, w->learned, LEARNED, NULL, NULL);
    learn(memory, w->learned, LEARNED / 2, NULL, NULL);
    memcpy(text, w->read, READ);
    for (size_t i = 0; i < PASSAGE; i++)
        text[AT + i] = text[AGAIN + i] = (uint8_t)('a' + draw_int(&seed, 0, 25));
    read_once(memory, REEF_READ_FROZEN, text, READ, frozen);
    read_once(memory, REEF_READ_ALONE, text, READ, alone);
    reef_memory_free(memory);
    print_message("%.0f bits, then %.0f; alone %.0f\n", sum_of(frozen + AT, PASSAGE),
                  sum_of(frozen + AGAIN, PASSAGE), sum_of(alone + AGAIN, PASSAGE));
    assert_true(sum_of(alone + AGAIN, PASSAGE) > 0.9 * sum_of(alone + AT, PASSAGE));
    assert_true(sum_of(frozen + AGAIN, PASSAGE) < 0.3 * sum_of(alone + AGAIN, PASSAGE));
}

// What a session alone says depends on where it is (the last bytes, words, lines) and on the
// memory, not on what it has read: after two beginnings that have nothing but their last lines in
// common the rest of the text has the same bits.
WORLD_TEST(a_session_alone_does_not_depend_on_what_it_read_before) {
    enum { BEFORE = 2000, BETWEEN = 400, REST = READ - BETWEEN };
    static uint8_t text[BEFORE + BETWEEN + REST];
    static float bits[4][BEFORE + BETWEEN + REST];
    uint64_t seed = 131;
    // Common to both and unlike all that the memory knows, so no match leads across.
    for (size_t i = 0; i < BETWEEN; i++) {
        text[BEFORE + i] = (uint8_t)(200 + draw_int(&seed, 0, 55));
        if (i % 40 == 39) text[BEFORE + i] = '\n';
        if (i % 10 == 5) text[BEFORE + i] = ' ';
    }
    memcpy(text + BEFORE + BETWEEN, w->read, REST);
    for (int k = 0; k < 4; k++) {
        reef_memory_reading reading = k < 3 ? REEF_READ_ALONE : REEF_READ_ADAPTING;
        memcpy(text, k == 0 || k == 2 ? w->learned : w->read, BEFORE);
        if (k == 2) memcpy(text, w->read + 1000, BEFORE);
        read_once(w->memory, reading, text, sizeof(text), bits[k]);
    }
    const size_t rest = BEFORE + BETWEEN;
    assert_same_bits(bits[0] + rest, bits[1] + rest, REST);
    assert_same_bits(bits[0] + rest, bits[2] + rest, REST);
    assert_memory_not_equal(bits[0] + rest, bits[3] + rest, REST * sizeof(float));
}

// It has no copy of a cell, a tree or a weight; frozen, of the index it has those lines alone that
// the text wrote.
WORLD_TEST(a_frozen_session_changes_no_count_and_no_weight_of_its_own_either) {
    static float once[READ], twice[READ];
    const reef_predictor *memory = &w->memory->predictor;
    reef_mix_state *before = copied(memory->state, sizeof(*before));
    for (reef_memory_reading reading = REEF_READ_FROZEN; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *session = open_session(w->memory, reading);
        const reef_predictor *p = (const reef_predictor *)(const void *)session;
        read_text(session, w->read, READ, once);
        assert_ptr_equal(p->state, memory->state);
        assert_int_equal(p->cells.chunk_count + p->slots.chunk_count, 0);
        for (size_t k = 0; k < REEF_MATCHES; k++)
            assert_int_equal(p->index[k].written_count > 0, reading == REEF_READ_FROZEN);
        reef_memory_session_reset(session);
        read_text(session, w->read, READ / 2, twice);
        read_text(session, w->read + READ / 2, READ - READ / 2, twice + READ / 2);
        assert_same_bits(once, twice, READ);
        reef_memory_session_close(session);
        assert_memory_equal(memory->state, before, sizeof(*before));
    }
}

// What is stored of a memory, part by part.
WORLD_TEST(a_session_of_any_reading_leaves_every_part_as_it_was) {
    reef_memory_part parts[16], after[16];
    void *before[16];
    size_t count = reef_memory_part_count();
    assert_true(count <= 16);
    reef_memory_parts(w->memory, parts);
    for (size_t i = 0; i < count; i++)
        before[i] = parts[i].bytes > 0 ? copied(parts[i].data, parts[i].bytes) : NULL;
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, w->read, READ, NULL);
        reef_memory_parts(w->memory, after);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(after[i].bytes, parts[i].bytes);
            if (parts[i].bytes > 0) assert_memory_equal(after[i].data, before[i], parts[i].bytes);
        }
    }
}

// A session that only predicts reads its memory's mixer, and copies it once it learns.
WORLD_TEST(a_session_that_learns_later_leaves_the_memory_as_it_was) {
    static float fresh[READ], alone[READ], bits[READ];
    read_once(w->memory, REEF_READ_ADAPTING, w->read, READ, fresh);
    read_once(w->memory, REEF_READ_ALONE, w->read, READ, alone);
    reef_memory_session *session = open_session(w->memory, REEF_READ_ADAPTING);
    for (int round = 0; round < 2; round++) {
        reef_memory_session_set_learning(session, false);
        read_text(session, w->read, READ, bits);
        assert_same_bits(bits, alone, READ);
        reef_memory_session_set_learning(session, true);
        read_text(session, w->read, READ, NULL);
        read_text(session, w->read, READ, bits);
        assert_true(sum_of(bits, READ) < 0.8 * sum_of(alone, READ));
        read_once(w->memory, REEF_READ_ADAPTING, w->read, READ, bits);
        assert_same_bits(bits, fresh, READ);
        reef_memory_session_reset(session);
        read_text(session, w->read, READ, bits);
        assert_same_bits(bits, fresh, READ);
        reef_memory_session_reset(session);
    }
    reef_memory_session_close(session);
}

WORLD_TEST(a_session_of_an_empty_memory_learns_its_text) {
    static float bits[2][READ];
    reef_memory *memory = new_memory(0);
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    for (int time = 0; time < 2; time++) read_text(session, w->read, READ, bits[time]);
    assert_true(sum_of(bits[1], READ) < 0.5 * sum_of(bits[0], READ));
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// ---- probabilities ------------------------------------------------------------------------------

WORLD_TEST(probabilities_are_within_their_range_and_make_the_bits) {
    static float bits[READ];
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        read_once(w->memory, reading, w->read, READ, bits);
        reef_memory_session *session = open_session(w->memory, reading);
        for (size_t i = 0; i < READ; i++) {
            double surprise = 0.0;
            for (int b = 7; b >= 0; b--) {
                uint32_t one = 0;
                int bit = w->read[i] >> b & 1;
                must(reef_memory_session_predict(session, &one, &why));
                assert_true(one >= 1 && one <= 65535);
                surprise -= log2((bit ? one : 65536 - one) / 65536.0);
                reef_memory_session_update(session, bit);
            }
            assert_true(fabs(surprise - (double)bits[i]) < 1e-4);
        }
        reef_memory_session_close(session);
    }
}

// The two bits' probabilities sum to 65536 at every node, so those of the 256 bytes sum to one.
WORLD_TEST(the_chances_of_all_bytes_sum_to_one) {
    for (size_t at = 0; at < 12; at++) {
        double sum = 0.0;
        uint8_t text[64];
        float bits[64];
        size_t count = at * 5;
        memcpy(text, w->learned + 37 * at, count);
        reef_memory_session *session = open_session(w->memory, at % 3);
        for (int byte = 0; byte < 256; byte++) {
            text[count] = (uint8_t)byte;
            reef_memory_session_reset(session);
            read_text(session, text, count + 1, bits);
            sum += exp2(-(double)bits[count]);
        }
        reef_memory_session_close(session);
        assert_true(fabs(sum - 1.0) < 1e-5);
    }
}

static size_t encode(const reef_memory *memory,
                     reef_memory_reading reading,
                     const uint8_t *text,
                     size_t count,
                     uint8_t *code,
                     size_t room) {
    bit_coder coder = bit_encoder(code, room);
    reef_memory_session *session = open_session(memory, reading);
    for (size_t i = 0; i < 8 * count; i++) {
        uint32_t one = 0;
        int bit = text[i / 8] >> (7 - i % 8) & 1;
        must(reef_memory_session_predict(session, &one, &why));
        bit_encode(&coder, one, bit);
        reef_memory_session_update(session, bit);
    }
    reef_memory_session_close(session);
    return bit_encode_end(&coder);
}

static void decode(const reef_memory *memory,
                   reef_memory_reading reading,
                   uint8_t *code,
                   size_t bytes,
                   uint8_t *text,
                   size_t count) {
    bit_coder coder = bit_decoder(code, bytes);
    reef_memory_session *session = open_session(memory, reading);
    memset(text, 0, count);
    for (size_t i = 0; i < 8 * count; i++) {
        uint32_t one = 0;
        must(reef_memory_session_predict(session, &one, &why));
        int bit = bit_decode(&coder, one);
        text[i / 8] = (uint8_t)(text[i / 8] << 1 | bit);
        reef_memory_session_update(session, bit);
    }
    reef_memory_session_close(session);
}

WORLD_TEST(a_coder_gets_back_what_it_wrote_and_takes_the_bits_that_were_promised) {
    static uint8_t text[READ], code[2 * READ + 8], decoded[READ];
    static float bits[READ];
    uint64_t seed = 137;
    const size_t counts[] = {0, 1, 2, 100, READ};
    for (int kind = 0; kind < 5; kind++)
        for (size_t n = 0; n < sizeof(counts) / sizeof(*counts); n++) {
            size_t count = counts[n];
            reef_memory_reading reading = kind < 4 ? REEF_READ_ADAPTING : REEF_READ_FROZEN;
            // In known words, learned word for word, of one byte, of any bytes; frozen, and twice
            // the same.
            memcpy(text, kind == 0 || kind == 4 ? w->read : w->learned, READ);
            if (kind == 4) memcpy(text + READ / 2, text, READ / 2);
            if (kind == 2) memset(text, 'x', READ);
            if (kind == 3)
                for (size_t i = 0; i < READ; i++) text[i] = (uint8_t)draw_bits(&seed);
            read_once(w->memory, reading, text, count, bits);
            size_t bytes = encode(w->memory, reading, text, count, code, sizeof(code));
            decode(w->memory, reading, code, bytes, decoded, count);
            assert_memory_equal(decoded, text, count);
            double promised = sum_of(bits, count) / 8.0;
            if ((double)bytes > 1.003 * promised + 8.0)
                fail_msg("%zu bytes for %.1f", bytes, promised);
            assert_true((double)bytes + 4.0 > promised);
        }
}

// ---- growth -------------------------------------------------------------------------------------

static void a_memory_grows_with_its_stream_and_keeps_its_bound(void **state) {
    enum { STEP = 1 << 15, STEPS = 24 }; // 768 KiB: a fifth of it reaches the bound
    static uint8_t text[STEP];
    static float bits[STEP], seen[STEP];
    reef_memory_stats first, stats = {0};
    uint64_t seed = 139;
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    reef_memory_read_stats(memory, &first);
    assert_int_equal(first.learned_bytes, 0);
    assert_true(first.bytes > 0 && first.bytes <= REEF_MEMORY_BYTES_MIN);
    const uint64_t beside = sizeof(reef_mix_state);
    uint64_t bytes = first.bytes;
    for (uint64_t step = 1; step <= STEPS; step++) {
        draw_text(&seed, STEP, text); // in new words, so that contexts never end
        learn(memory, text, STEP, NULL, bits);
        reef_memory_read_stats(memory, &stats);
        assert_int_equal(stats.learned_bytes, step * STEP);
        assert_int_equal(stats.bytes_max, REEF_MEMORY_BYTES_MIN);
        assert_true(stats.bytes >= bytes);
        assert_true(stats.bytes <= stats.bytes_max + beside);
        assert_true(stats.bytes <= first.bytes + 40 * stats.learned_bytes);
        assert_true(stats.cells_used <= stats.cells && stats.trees_used <= stats.trees);
        assert_true(stats.text_bytes <= stats.learned_bytes);
        bytes = stats.bytes;
    }
    print_message("%.2f MiB, %.0f %% of the cells, %.0f %% of the trees\n",
                  (double)stats.bytes / (1 << 20),
                  100.0 * (double)stats.cells_used / (double)stats.cells,
                  100.0 * (double)stats.trees_used / (double)stats.trees);
    assert_true(2 * stats.bytes > stats.bytes_max); // one more doubling would pass the bound
    assert_true(stats.cells_used * 10 > stats.cells * 9);
    // There new contexts still take the place of old ones: a text is learned as before.
    learn(memory, text, STEP, NULL, seen);
    assert_true(sum_of(seen, STEP) < 0.5 * sum_of(bits, STEP));
    reef_memory_free(memory);
}

static void a_short_stream_takes_little_memory(void **state) {
    world *w = *state;
    reef_memory_stats empty, stats;
    const uint64_t bounds[] = {REEF_MEMORY_BYTES_MIN, REEF_MEMORY_BYTES_DEFAULT,
                               REEF_MEMORY_BYTES_MAX};
    for (size_t k = 0; k < sizeof(bounds) / sizeof(*bounds); k++) {
        reef_memory *memory = new_memory(bounds[k]);
        reef_memory_read_stats(memory, &empty);
        learn(memory, w->learned, LEARNED, NULL, NULL);
        reef_memory_read_stats(memory, &stats);
        assert_true(empty.bytes < REEF_MEMORY_BYTES_MIN);
        assert_true(stats.bytes <= empty.bytes + 40ull * LEARNED);
        reef_memory_free(memory);
    }
}

// Passages of letters without any order, from the beginning of a text: only a long match knows
// them. Until it is found they cost what drawn letters cost. The text has other passages twice, so
// that matches are trusted.
static void a_passage_far_back_is_found_again(void **state) {
    enum { ALL = 300000, BLOCK = 1000, COPIED = 300, BACK = 20000 };
    enum { PASSAGE = 400, PASSAGES = 20, FIRST = 200 };
    uint8_t *text = room(ALL);
    static float bits[PASSAGE];
    uint64_t seed = 141;
    double sum = 0.0;
    for (size_t i = 0; i < ALL; i++)
        text[i] = i % BLOCK < COPIED && i >= BACK ? text[i - BACK]
                                                  : (uint8_t)('a' + draw_int(&seed, 0, 25));
    reef_memory *memory = new_memory(0);
    learn(memory, text, ALL, NULL, NULL);
    for (size_t k = 0; k < PASSAGES; k++) {
        read_once(memory, REEF_READ_ALONE, text + k * 5 * BLOCK + 500, PASSAGE, bits);
        sum += sum_of(bits, PASSAGE) / PASSAGES;
    }
    print_message("a passage costs as much as %.0f letters\n", sum / log2(26));
    assert_true(sum < FIRST * log2(26));
    reef_memory_free(memory);
}

// ---- options, statistics and names --------------------------------------------------------------

static void bounds_that_no_memory_has_are_refused(void **state) {
    const uint64_t wrong[] = {1, REEF_MEMORY_BYTES_MIN - 1, REEF_MEMORY_BYTES_MAX + 1, UINT64_MAX};
    const uint64_t wrong_text[] = {1, 32 << 10, 100000, REEF_MEMORY_TEXT_MAX * 2, UINT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        reef_memory *memory = (reef_memory *)&why; // is set to NULL whatever happens
        reef_memory_options options = {.bytes_max = wrong[i]};
        assert_int_equal(reef_memory_new(&memory, &options, &why), REEF_ERR_INVALID);
        assert_null(memory);
        assert_int_equal(why.status, REEF_ERR_INVALID);
        assert_non_null(strstr(why.message, "context memory"));
        assert_int_equal(reef_memory_new(&memory, &options, NULL), REEF_ERR_INVALID);
    }
    for (size_t i = 0; i < sizeof(wrong_text) / sizeof(*wrong_text); i++) {
        reef_memory *memory = NULL;
        reef_memory_options options = {.text_max = wrong_text[i]};
        assert_int_equal(reef_memory_new(&memory, &options, &why), REEF_ERR_INVALID);
        assert_non_null(strstr(why.message, "blocks of"));
    }
    reef_memory_free(NULL);
}

static void a_memory_without_options_has_the_default_bound(void **state) {
    reef_memory *memory = NULL;
    reef_memory_stats stats;
    must(reef_memory_new(&memory, NULL, &why));
    reef_memory_read_stats(memory, &stats);
    assert_int_equal(stats.bytes_max, REEF_MEMORY_BYTES_DEFAULT);
    assert_int_equal(stats.cells_used, 0);
    assert_int_equal(stats.trees_used, 0);
    assert_int_equal(stats.text_bytes, 0);
    reef_memory_free(memory);
}

WORLD_TEST(statistics_count_what_was_learned) {
    reef_memory_stats stats;
    reef_memory_read_stats(w->memory, &stats);
    assert_int_equal(stats.learned_bytes, LEARNED);
    assert_int_equal(stats.text_bytes, LEARNED); // fits
    assert_true(stats.cells_used > LEARNED / 4 && stats.cells_used <= stats.cells);
    assert_true(stats.trees_used > 100 && stats.trees_used <= stats.trees);
    assert_true(stats.bytes <= stats.bytes_max);
}

WORLD_TEST(inputs_have_names_of_their_own) {
    size_t count = reef_memory_input_count();
    assert_true(count > 10);
    for (size_t i = 0; i < count; i++) {
        const char *name = reef_memory_input_name(i);
        assert_non_null(name);
        assert_true(strlen(name) > 0);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(name, reef_memory_input_name(k));
    }
}

WORLD_TEST(shares_sum_to_one_and_hits_are_parts_of_the_bytes) {
    enum { INPUTS_MAX = 64 };
    double shares[INPUTS_MAX], hits[INPUTS_MAX], again[INPUTS_MAX], hits_again[INPUTS_MAX];
    size_t count = reef_memory_input_count();
    assert_true(count <= INPUTS_MAX);
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *session = open_session(w->memory, reading);
        reef_memory_session_inputs(session, shares, hits); // nothing was read
        for (size_t i = 0; i < count; i++) assert_true(shares[i] == 0.0 && hits[i] == 0.0);
        read_text(session, w->read, READ, NULL);
        reef_memory_session_inputs(session, shares, hits);
        double sum = 0.0, hit_max = 0.0;
        for (size_t i = 0; i < count; i++) {
            assert_true(shares[i] >= 0.0 && hits[i] >= 0.0 && hits[i] <= 1.0);
            sum += shares[i];
            if (hits[i] > hit_max) hit_max = hits[i];
        }
        assert_true(sum > 0.5 && sum <= 1.001 && hit_max > 0.9);
        reef_memory_session_reset(session);
        read_text(session, w->read, READ, NULL);
        reef_memory_session_inputs(session, again, hits_again);
        assert_memory_equal(shares, again, count * sizeof(*shares));
        assert_memory_equal(hits, hits_again, count * sizeof(*hits));
        reef_memory_session_close(session);
    }
}

WORLD_TEST(bytes_read_at_once_count_as_their_bits_do) {
    enum { INPUTS_MAX = 64 };
    double shares[INPUTS_MAX], hits[INPUTS_MAX], by_bits[INPUTS_MAX], hits_by_bits[INPUTS_MAX];
    size_t count = reef_memory_input_count();
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *session = open_session(w->memory, reading);
        read_text(session, w->read, READ, NULL);
        reef_memory_session_inputs(session, shares, hits);
        reef_memory_session_reset(session);
        for (size_t i = 0; i < READ; i++)
            for (int bit = 7; bit >= 0; bit--) {
                uint32_t one = 0;
                must(reef_memory_session_predict(session, &one, &why));
                reef_memory_session_update(session, w->read[i] >> bit & 1);
            }
        reef_memory_session_inputs(session, by_bits, hits_by_bits);
        assert_memory_equal(hits, hits_by_bits, count * sizeof(*hits));
        for (size_t i = 0; i < count; i++) assert_true(fabs(shares[i] - by_bits[i]) < 1e-9);
        reef_memory_session_close(session);
    }
}

int main(void) {
    // They choose their bounds.
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_memory_grows_with_its_stream_and_keeps_its_bound),
        cmocka_unit_test(a_short_stream_takes_little_memory),
        cmocka_unit_test(a_passage_far_back_is_found_again),
        cmocka_unit_test(bounds_that_no_memory_has_are_refused),
        cmocka_unit_test(a_memory_without_options_has_the_default_bound),
    };
    int failed = cmocka_run_group_tests_name("bounds", own, set_up, tear_down);
    return failed + test_run(set_up, tear_down);
}
