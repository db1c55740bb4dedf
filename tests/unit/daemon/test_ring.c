// The bounded queue of bytes, against a plain counter: what comes out is what went in.
#include "scheduler.h"
#include "test.h"

#define HIGH (1u << 20)

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint8_t byte_at(uint64_t position) {
    return (uint8_t)((position * 2654435761u) >> 13);
}

static void fill_some(reef_ring *ring, uint64_t *state) {
    uint8_t *at = NULL;
    size_t room = 0;
    if (!reef_ring_space(ring, &at, &room)) return;
    assert_true(room >= 1 && room <= REEF_READ_BYTES_MAX);
    size_t count = 1 + (size_t)(draw(state) % room);
    for (size_t i = 0; i < count; i++) at[i] = byte_at(ring->tail + i);
    reef_ring_fill(ring, count);
}

static void take_some(reef_ring *ring, uint64_t *state) {
    const uint8_t *at = NULL;
    size_t count = reef_ring_view(ring, ring->tail, &at);
    for (size_t i = 0; i < count; i++)
        if (at[i] != byte_at(ring->head + i))
            fail_msg("byte %zu after %zu differs", i, (size_t)ring->head);
    if (count) reef_ring_take(ring, 1 + (size_t)(draw(state) % count));
}

PLAIN_TEST(bytes_come_out_as_they_went_in) {
    reef_ring ring;
    uint64_t seed = 7;
    assert_int_equal(reef_ring_init(&ring, HIGH, NULL), REEF_OK);
    for (size_t round = 0; round < 2000; round++) {
        fill_some(&ring, &seed);
        if (draw(&seed) % 3 == 0) take_some(&ring, &seed);
        assert_true(reef_ring_count(&ring) < HIGH + REEF_READ_BYTES_MAX);
    }
    while (reef_ring_count(&ring)) take_some(&ring, &seed);
    assert_true(ring.head > 2 * (uint64_t)HIGH); // went round more than once
    assert_int_equal(ring.head, ring.tail);
    reef_ring_release(&ring);
}

PLAIN_TEST(space_ends_at_the_high_water_mark) {
    reef_ring ring;
    uint8_t *at = NULL;
    size_t room = 0;
    assert_int_equal(reef_ring_init(&ring, HIGH, NULL), REEF_OK);
    while (reef_ring_space(&ring, &at, &room)) {
        assert_true(reef_ring_count(&ring) < HIGH);
        reef_ring_fill(&ring, room);
    }
    assert_true(reef_ring_count(&ring) >= HIGH);
    reef_ring_take(&ring, (size_t)(reef_ring_count(&ring) - HIGH) + 1);
    assert_true(reef_ring_space(&ring, &at, &room));
    reef_ring_release(&ring);
}

PLAIN_TEST(a_view_stops_at_the_position_asked_for) {
    reef_ring ring;
    uint8_t *at = NULL;
    const uint8_t *view = NULL;
    size_t room = 0;
    assert_int_equal(reef_ring_init(&ring, HIGH, NULL), REEF_OK);
    assert_true(reef_ring_space(&ring, &at, &room));
    memcpy(at, "abcdef", 6);
    reef_ring_fill(&ring, 6);
    assert_int_equal(reef_ring_view(&ring, 4, &view), 4);
    assert_memory_equal(view, "abcd", 4);
    reef_ring_take(&ring, 3);
    assert_int_equal(reef_ring_view(&ring, 4, &view), 1);
    assert_memory_equal(view, "d", 1);
    assert_int_equal(reef_ring_view(&ring, 3, &view), 0);
    assert_int_equal(reef_ring_view(&ring, 99, &view), 3);
    reef_ring_release(&ring);
}

RUN_TESTS
