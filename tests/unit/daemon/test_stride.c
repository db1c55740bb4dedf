// Stride scheduling: shares by weight, whole lines, and the same stream however the bytes arrive.
#include "stride.h"
#include "test.h"

#define LANES_MAX 4
#define STREAM_BYTES 400000

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// What queues hold, and the stream that is made of it.
typedef struct world {
    reef_stride_queue queues[LANES_MAX];
    reef_stride stride;
    char *text[LANES_MAX];
    size_t bytes[LANES_MAX], taken[LANES_MAX];
    char *stream; // (STREAM_BYTES) which queue each byte came from
    size_t count;
} world;

static const char *const NAMES[] = {"follow:a", "follow:b", "push:c", ""};

static char *lines(uint64_t seed, size_t bytes, size_t longest) {
    char *text = malloc(bytes);
    size_t at = 0;
    assert_non_null(text);
    while (at < bytes) {
        size_t length = 1 + (size_t)(draw(&seed) % longest);
        for (size_t i = 0; i + 1 < length && at + 1 < bytes; i++) text[at++] = 'x';
        text[at++] = '\n';
    }
    return text;
}

static void set_up(world *w, size_t count, const uint32_t *weights) {
    *w = (world){.stream = malloc(STREAM_BYTES)};
    assert_non_null(w->stream);
    for (size_t i = 0; i < count; i++) {
        w->queues[i] = (reef_stride_queue){.name = NAMES[i], .weight = weights[i]};
        w->bytes[i] = STREAM_BYTES;
        w->text[i] = lines(i + 1, w->bytes[i], 300);
    }
    reef_stride_init(&w->stride, w->queues, count);
}

static void tear_down(world *w) {
    for (size_t i = 0; i < LANES_MAX; i++) free(w->text[i]);
    free(w->stream);
}

// Train the next bytes, at most `most` of them.
static void step(world *w, size_t most) {
    size_t queue = reef_stride_next(&w->stride);
    assert_true(queue < w->stride.count);
    const uint8_t *at = (const uint8_t *)w->text[queue] + w->taken[queue];
    size_t there = w->bytes[queue] - w->taken[queue];
    if (there > most) there = most;
    if (there > STREAM_BYTES - w->count) there = STREAM_BYTES - w->count;
    size_t share = reef_stride_share(&w->stride, at, there);
    assert_true(share >= 1 && share <= there);
    memset(w->stream + w->count, 'A' + (int)queue, share);
    w->count += share;
    w->taken[queue] += share;
    reef_stride_took(&w->stride, at, share);
}

PLAIN_TEST(queue_share_by_weight) {
    world w;
    set_up(&w, 3, (uint32_t[]){1, 3, 2});
    while (w.count < STREAM_BYTES) step(&w, 65536);
    // Within a slice and its longest line of what the weights say.
    size_t slack = REEF_SLICE_BYTES + 300;
    assert_in_range(w.taken[0], STREAM_BYTES / 6 - slack, STREAM_BYTES / 6 + slack);
    assert_in_range(w.taken[1], STREAM_BYTES / 2 - slack, STREAM_BYTES / 2 + slack);
    assert_in_range(w.taken[2], STREAM_BYTES / 3 - slack, STREAM_BYTES / 3 + slack);
    tear_down(&w);
}

PLAIN_TEST(a_slice_ends_with_a_line) {
    world w;
    size_t stride = 0, last = REEF_STRIDE_NONE;
    set_up(&w, 2, (uint32_t[]){1, 1});
    while (w.count < STREAM_BYTES - 65536) {
        size_t queue = reef_stride_next(&w.stride);
        if (last != REEF_STRIDE_NONE && queue != last) {
            assert_int_equal(w.text[last][w.taken[last] - 1], '\n');
            stride++;
        }
        last = queue;
        step(&w, 1000);
    }
    assert_in_range(stride, 60, STREAM_BYTES / REEF_SLICE_BYTES);
    tear_down(&w);
}

PLAIN_TEST(a_line_without_an_end_is_cut) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    memset(w.text[0], 'x', w.bytes[0]);
    while (w.taken[1] == 0) step(&w, 10000);
    assert_int_equal(w.taken[0], REEF_SLICE_BYTES_MAX);
    tear_down(&w);
}

PLAIN_TEST(a_slice_that_ends_at_a_newline_takes_no_more) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    memset(w.text[0], 'x', w.bytes[0]);
    w.text[0][REEF_SLICE_BYTES - 1] = '\n';
    while (w.taken[1] == 0) step(&w, 100000);
    assert_int_equal(w.taken[0], REEF_SLICE_BYTES);
    tear_down(&w);
}

// The pieces in which bytes come, and saving and loading between any two of them, change nothing.
PLAIN_TEST(the_stream_does_not_depend_on_its_pieces) {
    world whole, cut;
    uint64_t seed = 5;
    const uint32_t weights[] = {2, 1, 7};
    set_up(&whole, 3, weights);
    set_up(&cut, 3, weights);
    while (whole.count < STREAM_BYTES) step(&whole, 65536);
    while (cut.count < STREAM_BYTES) {
        step(&cut, 1 + (size_t)(draw(&seed) % 3000));
        if (draw(&seed) % 4) continue;
        json_t *saved = reef_stride_save(&cut.stride);
        for (size_t i = 0; i < 3; i++)
            cut.queues[i] = (reef_stride_queue){.name = NAMES[i], .weight = weights[i]};
        reef_stride_init(&cut.stride, cut.queues, 3);
        reef_error err;
        assert_int_equal(reef_stride_load(&cut.stride, saved, &err), REEF_OK);
        json_decref(saved);
    }
    assert_memory_equal(whole.stream, cut.stream, STREAM_BYTES);
    tear_down(&whole);
    tear_down(&cut);
}

PLAIN_TEST(an_idle_queue_does_not_catch_up) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    reef_stride_set_idle(&w.stride, 0, true);
    while (w.count < 100000) step(&w, 65536);
    assert_int_equal(w.taken[0], 0);
    reef_stride_set_idle(&w.stride, 0, false);
    assert_true(w.queues[0].fresh);
    while (w.count < 200000) step(&w, 65536);
    assert_in_range(w.taken[0], 50000 - 2 * REEF_SLICE_BYTES, 50000 + 2 * REEF_SLICE_BYTES);
    assert_false(w.queues[0].fresh);
    tear_down(&w);
}

PLAIN_TEST(a_slice_that_ends_early_counts) {
    world w;
    set_up(&w, 2, (uint32_t[]){2, 1});
    step(&w, 1000);
    reef_stride_set_idle(&w.stride, 0, true);
    assert_int_equal(w.queues[0].pass, 1000 * 1000 / 2);
    tear_down(&w);
}

// Made again after a crash, a decision comes before anybody was found.
PLAIN_TEST(a_decision_comes_before_a_slice_that_has_not_begun) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    reef_stride_set_idle(&w.stride, 0, true);
    assert_int_equal(reef_stride_next(&w.stride), 1);
    reef_stride_set_idle(&w.stride, 0, false);
    assert_int_equal(reef_stride_next(&w.stride), 0);
    step(&w, 100); // has begun: it continues
    reef_stride_set_idle(&w.stride, 1, true);
    reef_stride_set_idle(&w.stride, 1, false);
    assert_int_equal(w.stride.given, 100);
    tear_down(&w);
}

PLAIN_TEST(no_queue_is_current_when_all_have_ended) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    step(&w, 100);
    reef_stride_done(&w.stride, 0);
    assert_int_equal(reef_stride_next(&w.stride), 1);
    reef_stride_set_idle(&w.stride, 1, true);
    assert_int_equal(reef_stride_next(&w.stride), REEF_STRIDE_NONE);
    tear_down(&w);
}

// A source that is new, and one that is gone.
PLAIN_TEST(queue_may_come_and_go_between_runs) {
    world before, after;
    reef_error err;
    set_up(&before, 2, (uint32_t[]){1, 1});
    while (before.count < 100000) step(&before, 65536);
    json_t *saved = reef_stride_save(&before.stride);
    set_up(&after, 2, (uint32_t[]){1, 1});
    after.queues[0].name = "redis:new";
    after.queues[1].name = NAMES[1];
    assert_int_equal(reef_stride_load(&after.stride, saved, &err), REEF_OK);
    assert_int_equal(after.queues[1].pass, before.queues[1].pass);
    assert_int_equal(after.queues[0].pass,
                     before.queues[1].pass); // where the lowest of the others stands
    assert_int_equal(after.stride.total, before.stride.total);
    json_decref(saved);
    tear_down(&before);
    tear_down(&after);
}

// Files were read to their end early on, and in a later run there are more: neither they nor a
// source that is new there make up for what the others gave meanwhile.
PLAIN_TEST(an_ended_queue_does_not_catch_up_in_the_next_run) {
    world before, after;
    reef_error err;
    set_up(&before, 2, (uint32_t[]){1, 1});
    while (before.count < 20000) step(&before, 65536);
    reef_stride_done(&before.stride, 0);
    while (before.count < 100000) step(&before, 65536);
    json_t *saved = reef_stride_save(&before.stride);
    set_up(&after, 3, (uint32_t[]){1, 1, 1});
    assert_int_equal(reef_stride_load(&after.stride, saved, &err), REEF_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(after.queues[i].pass, before.queues[1].pass);
        assert_false(after.queues[i].idle || after.queues[i].done);
    }
    while (after.count < 90000) step(&after, 65536);
    for (size_t i = 0; i < 3; i++)
        assert_in_range(after.taken[i], 30000 - 2 * REEF_SLICE_BYTES, 30000 + 2 * REEF_SLICE_BYTES);
    json_decref(saved);
    tear_down(&before);
    tear_down(&after);
}

// All that the run before knew sat out at its end: where they stand is where the stream is, all the
// same.
PLAIN_TEST(a_new_queue_does_not_hold_up_idle_ones) {
    world before, after;
    reef_error err;
    set_up(&before, 2, (uint32_t[]){1, 1});
    while (before.count < 20000) step(&before, 65536);
    reef_stride_set_idle(&before.stride, 0, true);
    while (before.count < 100000) step(&before, 65536);
    reef_stride_set_idle(&before.stride, 1, true);
    json_t *saved = reef_stride_save(&before.stride);
    set_up(&after, 3, (uint32_t[]){1, 1, 1});
    assert_int_equal(reef_stride_load(&after.stride, saved, &err), REEF_OK);
    assert_true(before.queues[0].pass < before.queues[1].pass);
    assert_int_equal(after.queues[2].pass, before.queues[1].pass); // the highest of them
    reef_stride_set_idle(&after.stride, 0, false);
    reef_stride_set_idle(&after.stride, 1, false);
    while (after.count < 90000) step(&after, 65536);
    for (size_t i = 0; i < 3; i++)
        assert_in_range(after.taken[i], 30000 - 2 * REEF_SLICE_BYTES, 30000 + 2 * REEF_SLICE_BYTES);
    json_decref(saved);
    tear_down(&before);
    tear_down(&after);
}

PLAIN_TEST(the_first_queue_back_does_not_catch_up_with_idle_ones) {
    world w;
    set_up(&w, 2, (uint32_t[]){1, 1});
    reef_stride_set_idle(&w.stride, 0, true);
    while (w.count < 100000) step(&w, 65536);
    reef_stride_set_idle(&w.stride, 1, true);
    reef_stride_set_idle(&w.stride, 0, false);
    reef_stride_set_idle(&w.stride, 1, false);
    size_t before = w.taken[1];
    while (w.count < 200000) step(&w, 65536);
    assert_in_range(w.taken[1] - before, 50000 - 2 * REEF_SLICE_BYTES,
                    50000 + 2 * REEF_SLICE_BYTES);
    tear_down(&w);
}

PLAIN_TEST(what_was_not_saved_is_refused) {
    static const char *const BAD[] = {
        "{}",
        "[]",
        "{\"total\":-1,\"decided\":0,\"given\":0,\"current\":null,\"lanes\":[]}",
        "{\"total\":1,\"decided\":0,\"given\":9999999,\"current\":null,\"lanes\":[]}",
        "{\"total\":1,\"decided\":0,\"given\":0,\"current\":null,\"lanes\":[{\"name\":\"follow:a\"}"
        "]}",
        "{\"total\":1,\"decided\":0,\"given\":0,\"current\":null,\"lanes\":[3]}"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
        world w;
        reef_error err;
        json_t *saved = json_loads(BAD[i], 0, NULL);
        assert_non_null(saved);
        set_up(&w, 2, (uint32_t[]){1, 1});
        assert_int_equal(reef_stride_load(&w.stride, saved, &err), REEF_ERR_CORRUPT);
        json_decref(saved);
        tear_down(&w);
    }
}

RUN_TESTS
