// The schedule: who is waited for and how long, and that decisions survive a crash. Real pools, no
// threads; the clock is a number.
#include "scheduler.h"

#include "pool.h"
#include "test.h"

#define SECOND 1000000000u

static const reef_input_kind LIVE = {.scheme = "test", .live = true, .again = true};
static const reef_input_kind FILE_KIND = {.scheme = "file", .again = true};
static const reef_input_kind STREAM_KIND = {.scheme = "-"};

typedef struct world {
    reef_store *store; // the fixture's
    reef_input inputs[3];
    size_t count;
    bool by_time;
    reef_schedule schedule;
    reef_schedule_next next;
    uint64_t now;
} world;

static void open_schedule(world *w) {
    if (reef_schedule_init(&w->schedule, w->store, w->inputs, w->count, 5, w->by_time, &why) !=
        REEF_OK)
        fail_msg("%s", why.message);
}

static void set_up_of(
    world *w, pool_fixture *pool, size_t live, const reef_input_kind *other, bool by_time) {
    *w = (world){.now = 100 * (uint64_t)SECOND, .store = pool->store, .by_time = by_time};
    for (size_t i = 0; i < live; i++) {
        w->inputs[w->count] = (reef_input){.kind = &LIVE, .weight = 1};
        snprintf(w->inputs[w->count++].name, REEF_INPUT_NAME_BYTES_MAX, "test:%zu", i);
    }
    if (other != NULL) {
        w->inputs[w->count] = (reef_input){.kind = other, .weight = 1};
        snprintf(w->inputs[w->count++].name, REEF_INPUT_NAME_BYTES_MAX, "file");
    }
    open_schedule(w);
}

static void set_up(world *w, pool_fixture *pool, size_t live, const reef_input_kind *other) {
    set_up_of(w, pool, live, other, false);
}

static void tear_down(world *w) {
    reef_schedule_release(&w->schedule);
}

static void give(world *w, size_t source, const char *text) {
    uint8_t *at = NULL;
    size_t room = 0;
    assert_true(reef_queues_space(&w->schedule.queues, source, &at, &room));
    assert_true(strlen(text) <= room);
    memcpy(at, text, strlen(text));
    reef_queues_fill(&w->schedule.queues, source, strlen(text), 0, NULL);
}

static void give_slice(world *w, size_t source) {
    char text[REEF_SLICE_BYTES + 1];
    memset(text, 'x', sizeof(text) - 1);
    text[REEF_SLICE_BYTES - 1] = '\n';
    text[REEF_SLICE_BYTES] = 0;
    give(w, source, text);
}

static reef_schedule_kind find(world *w) {
    reef_schedule_find(&w->schedule, w->now, &w->next);
    return w->next.kind;
}

// Train the lent bytes, and note which queue they came from.
static void train(world *w, size_t queue) {
    assert_int_equal(find(w), REEF_SCHEDULE_BYTES);
    assert_int_equal(w->next.queue, queue);
    (void)reef_schedule_took(&w->schedule, &w->next, w->next.count);
}

static void write_in_pool(world *w, bool commit, const reef_schedule_choice *decision) {
    reef_txn *txn = pool_begin(w->store, REEF_TXN_WRITE);
    if (decision != NULL) must(reef_decision_write(txn, decision, &why));
    if (commit) must(reef_stride_write(txn, &w->schedule.stride, &why));
    (void)pool_commit(txn, 1);
}

static void decide(world *w, size_t queue, bool out) {
    assert_int_equal(find(w), REEF_SCHEDULE_DECIDE);
    assert_int_equal(w->next.queue, queue);
    assert_int_equal(w->next.idle, out);
    reef_schedule_choice decision = reef_schedule_decision(&w->schedule, &w->next);
    write_in_pool(w, false, &decision);
    reef_schedule_decided(&w->schedule, &w->next, w->now);
}

// 0 has three slices and gives one; 1 is empty for too long.
static void sit_out(world *w) {
    for (int i = 0; i < 3; i++) give_slice(w, 0);
    train(w, 0);
    assert_int_equal(find(w), REEF_SCHEDULE_NOTHING);
    w->now += 5 * (uint64_t)SECOND;
    decide(w, 1, true);
}

POOL_TEST(an_empty_queue_is_waited_for) {
    world w;
    set_up(&w, f, 2, NULL);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    assert_int_equal(w.next.deadline_ns, UINT64_MAX); // no queue waits
    uint64_t empty = w.now;
    w.now += 1 * (uint64_t)SECOND;
    give_slice(&w, 0);
    give_slice(&w, 0);
    train(&w, 0);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    assert_int_equal(w.next.deadline_ns, empty + 5 * (uint64_t)SECOND);
    w.now = empty + 5 * (uint64_t)SECOND - 1;
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    give_slice(&w, 1); // just in time
    train(&w, 1);
    train(&w, 0);
    tear_down(&w);
}

POOL_TEST(a_queue_that_is_empty_for_long_is_idle_until_it_has_bytes) {
    world w;
    set_up(&w, f, 2, NULL);
    sit_out(&w);
    train(&w, 0);
    give(&w, 1, "a line\n");
    train(&w, 0); // less than a slice, and it sat out just now
    give_slice(&w, 0);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, false);
    train(&w, 0); // equals: the first of them
    give_slice(&w, 0);
    train(&w, 1);
    decide(&w, 1, true); // nothing again: it is not waited for a second time
    train(&w, 0);
    tear_down(&w);
}

// One after the other would make who has something wait for each of them.
POOL_TEST(an_empty_queue_is_waited_for_together) {
    world w;
    set_up(&w, f, 2, &FILE_KIND);
    give_slice(&w, 2);
    give_slice(&w, 2);
    (void)find(&w);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 0, true);
    decide(&w, 1, true);
    train(&w, 2);
    train(&w, 2);
    tear_down(&w);
}

POOL_TEST(a_slice_makes_a_queue_active_at_once) {
    world w;
    set_up(&w, f, 2, NULL);
    sit_out(&w);
    give_slice(&w, 1);
    decide(&w, 1, false);
    train(&w, 0);
    train(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_BYTES); // 0 has one left
    tear_down(&w);
}

POOL_TEST(a_line_that_has_begun_is_waited_for) {
    world w;
    set_up(&w, f, 2, NULL);
    sit_out(&w);
    train(&w, 0);
    give(&w, 1, "the beginning of a line");
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, false);
    train(&w, 0);
    give_slice(&w, 0);
    train(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    give(&w, 1, ", and its end\n");
    train(&w, 1);
    decide(&w, 1, true);
    tear_down(&w);
}

POOL_TEST(a_queue_with_bytes_is_active_when_all_others_are_idle) {
    world w;
    set_up(&w, f, 1, &FILE_KIND);
    give_slice(&w, 1);
    (void)find(&w);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 0, true);
    train(&w, 1);
    reef_queues_end(&w.schedule.queues, 1);
    give(&w, 0, "a line\n");
    decide(&w, 0, false); // at once
    train(&w, 0);
    tear_down(&w);
}

// The queue that would have become active is not given any more.
POOL_TEST(a_stream_that_cannot_continue_is_decided_again) {
    world w;
    set_up(&w, f, 2, NULL);
    give_slice(&w, 0);
    train(&w, 0);
    reef_stride_set_idle(&w.schedule.stride, 0, true);
    reef_stride_set_idle(&w.schedule.stride, 1, true);
    write_in_pool(&w, true,
                  &(reef_schedule_choice){
                      .number = 1, .at = 1000000, .idle = false, .queue = w.inputs[1].name});
    reef_schedule_release(&w.schedule);
    open_schedule(&w);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    give(&w, 0, "a line\n");
    assert_int_equal(find(&w), REEF_SCHEDULE_FORGET);
    reef_schedule_forgot(&w.schedule);
    decide(&w, 0, false);
    train(&w, 0);
    tear_down(&w);
}

POOL_TEST(a_file_is_read_after_the_one_before_it) {
    world w;
    uint8_t *at = NULL;
    size_t room = 0;
    set_up(&w, f, 0, &FILE_KIND);
    reef_schedule_release(&w.schedule);
    w.inputs[w.count] = w.inputs[0];
    snprintf(w.inputs[w.count++].name, REEF_INPUT_NAME_BYTES_MAX, "second");
    open_schedule(&w);
    assert_false(reef_queues_space(&w.schedule.queues, 1, &at, &room));
    give(&w, 0, "first\n");
    reef_queues_end(&w.schedule.queues, 0);
    assert_false(reef_queues_space(&w.schedule.queues, 0, &at, &room));
    give(&w, 1, "second\n");
    train(&w, 0);
    assert_int_equal(w.next.count, 6); // never bytes of two sources
    train(&w, 0);
    assert_int_equal(w.next.count, 7);
    tear_down(&w);
}

// Killed after decisions and before a commit: at the same positions the same is decided, and
// nothing else.
POOL_TEST(decisions_survive_a_crash) {
    world w;
    set_up(&w, f, 2, NULL);
    give_slice(&w, 0);
    give_slice(&w, 1);
    train(&w, 0);
    write_in_pool(&w, true, NULL); // a commit; what follows is lost
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    train(&w, 1);
    train(&w, 0);
    (void)find(&w);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, true);
    train(&w, 0);
    give_slice(&w, 1);
    decide(&w, 1, false);
    reef_schedule_release(&w.schedule);

    open_schedule(&w);
    assert_int_equal(w.schedule.after.count, 2);
    give_slice(&w, 1);
    give_slice(&w, 1); // has it all at once now
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    train(&w, 1);
    train(&w, 0);
    train(&w, 0); // as before, although 1 has something
    train(&w, 0);
    train(&w, 1);
    assert_int_equal(w.schedule.stride.decided, 2);
    write_in_pool(&w, true, NULL);
    reef_txn *txn = pool_begin(w.store, REEF_TXN_READ);
    reef_key key = {.db = REEF_DB_JOURNAL, .name = REEF_STRIDE_NAME};
    for (key.sequence = 1; key.sequence < 3; key.sequence++) {
        reef_view view;
        assert_int_equal(reef_record_view(txn, &key, &view, &why), REEF_ERR_NOT_FOUND);
    }
    reef_txn_abort(txn);
    reef_schedule_release(&w.schedule);
    open_schedule(&w);
    assert_int_equal(w.schedule.after.count, 0); // part of the commit
    assert_int_equal(w.schedule.stride.decided, 2);
    tear_down(&w);
}

// A queue becomes active while another one is in the middle of its slice. After a crash that one
// may have more at once, and the same is still decided at the same position.
POOL_TEST(a_decision_within_a_slice_survives_a_crash) {
    world w;
    set_up(&w, f, 2, NULL);
    sit_out(&w);
    train(&w, 0);
    train(&w, 0);
    write_in_pool(&w, true, NULL); // a commit; what follows is lost
    give(&w, 0, "a line\n");
    train(&w, 0);
    give_slice(&w, 1);
    decide(&w, 1, false);
    reef_schedule_release(&w.schedule);

    open_schedule(&w);
    assert_int_equal(w.schedule.after.count, 1);
    give(&w, 0, "a line\n");
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    give_slice(&w, 1);
    train(&w, 0);
    assert_int_equal(w.next.count, strlen("a line\n"));
    train(&w, 0); // to the end of its slice
    assert_int_equal(w.schedule.stride.decided, w.schedule.after.items[0].number);
    train(&w, 1);
    tear_down(&w);
}

// It was skipped, as when bytes that cannot be read again were trained out of order at a stop: an
// idle queue does not wait for a position that never comes.
POOL_TEST(a_decision_that_was_passed_by_is_forgotten) {
    world w;
    set_up(&w, f, 2, NULL);
    sit_out(&w);
    train(&w, 0);
    write_in_pool(
        &w, true,
        &(reef_schedule_choice){
            .number = 2, .at = REEF_SLICE_BYTES, .idle = false, .queue = w.inputs[1].name});
    reef_schedule_release(&w.schedule);
    open_schedule(&w);
    assert_int_equal(w.schedule.after.count, 1);
    give_slice(&w, 0);
    give_slice(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_FORGET);
    reef_schedule_forgot(&w.schedule);
    decide(&w, 1, false);
    tear_down(&w);
}

POOL_TEST(decisions_that_cannot_be_made_again_are_forgotten) {
    world w;
    set_up(&w, f, 2, NULL);
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    give_slice(&w, 1);
    train(&w, 0);
    train(&w, 1);
    train(&w, 0);
    (void)find(&w);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, true);
    reef_schedule_release(&w.schedule);

    open_schedule(&w); // nothing was committed, and 1 does not give again what it gave
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    train(&w, 0);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    w.now += 5 * (uint64_t)SECOND;
    assert_int_equal(find(&w), REEF_SCHEDULE_FORGET);
    reef_txn *txn = pool_begin(w.store, REEF_TXN_WRITE);
    must(reef_decisions_drop(txn, &w.schedule.after, &why));
    (void)pool_commit(txn, 1);
    reef_schedule_forgot(&w.schedule);
    decide(&w, 1, true);
    train(&w, 0);
    reef_schedule_release(&w.schedule);
    open_schedule(&w);
    assert_int_equal(w.schedule.after.count, 1); // the new one
    tear_down(&w);
}

POOL_TEST(files_are_a_queue_that_ends) {
    world w;
    set_up(&w, f, 1, &FILE_KIND);
    for (int i = 0; i < 3; i++) give_slice(&w, 0);
    give(&w, 1, "the file\n");
    reef_queues_end(&w.schedule.queues, 1);
    train(&w, 0);
    train(&w, 1);
    train(&w, 0); // the file is not waited for
    train(&w, 0);
    assert_true(reef_queues_has_ended(&w.schedule.queues, 1));
    assert_false(reef_schedule_is_done(&w.schedule)); // live sources have no end
    tear_down(&w);
}

POOL_TEST(at_the_end_only_what_cannot_be_read_again_is_trained) {
    world w;
    set_up(&w, f, 1, &STREAM_KIND);
    give_slice(&w, 0);
    give_slice(&w, 0);
    give(&w, 1, "typed\n");
    train(&w, 0);
    reef_schedule_stop(&w.schedule);
    train(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    tear_down(&w);
}

// A log's line and what was typed are never one line. More of the log than that line is left for
// the next run.
POOL_TEST(at_the_end_a_line_that_has_begun_is_finished_first) {
    world w;
    set_up(&w, f, 1, &STREAM_KIND);
    give(&w, 0, "half of a line ");
    give(&w, 1, "typed\n");
    train(&w, 0);
    give(&w, 0, "and the rest\nanother line\n");
    reef_schedule_stop(&w.schedule);
    train(&w, 0);
    assert_int_equal(w.next.count, strlen("and the rest\n"));
    train(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    tear_down(&w);
}

POOL_TEST(at_the_end_a_line_is_not_finished_where_nothing_comes_after_it) {
    world w;
    set_up(&w, f, 1, &STREAM_KIND);
    give(&w, 0, "half of a line ");
    train(&w, 0);
    give(&w, 0, "and the rest\n");
    reef_schedule_stop(&w.schedule);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    tear_down(&w);
}

POOL_TEST(places_are_kept) {
    world w;
    char *mark = NULL;
    uint64_t begin = 0;
    set_up(&w, f, 1, NULL);
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    assert_int_equal(reef_source_checkpoint_read(w.store, name, &begin, &mark, &why),
                     REEF_ERR_NOT_FOUND);
    assert_null(mark);
    reef_txn *txn = pool_begin(w.store, REEF_TXN_WRITE);
    must(reef_source_checkpoint_write(txn, name, 77, "{\"inode\":5}", &why));
    assert_int_equal(reef_source_checkpoint_write(txn, "x", 1, "no json", &why), REEF_ERR_INVALID);
    (void)pool_commit(txn, 1);
    must(reef_source_checkpoint_read(w.store, name, &begin, &mark, &why));
    assert_int_equal(begin, 77);
    assert_string_equal(mark, "{\"inode\":5}");
    free(mark);
    tear_down(&w);
}

POOL_TEST(a_mark_is_the_last_one_before_the_cursor) {
    world w;
    set_up(&w, f, 1, NULL);
    reef_queues *queues = &w.schedule.queues;
    for (uint64_t i = 0; i < 3; i++) {
        char text[8];
        snprintf(text, sizeof(text), "%d", (int)i);
        reef_queues_fill(queues, 0, 10, i * 10, strdup(text));
    }
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 9)->text, "0");
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 10)->text, "1");
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 19)->text, "1");
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 500)->text, "2");
    reef_queues_fill(queues, 0, 10, 600, strdup("3"));
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 599)->text, "2");
    assert_string_equal(reef_queue_checkpoint_at(&queues->queues[0], 600)->text, "3");
    tear_down(&w);
}

static void fill_from(world *w, uint64_t begin, const char *file, uint64_t offset) {
    w->inputs[0].file = file;
    w->inputs[0].file_offset = offset;
    reef_queues_fill(&w->schedule.queues, 0, 10, begin, NULL);
}

static void expect_place(
    world *w, uint64_t cursor, const char *file, uint64_t offset, uint64_t count) {
    uint64_t is_count;
    const reef_queue_place *place =
        reef_queue_place_at(&w->schedule.queues.queues[0], cursor, &is_count);
    assert_true(is_count == count);
    assert_true((place != NULL) == (file != NULL));
    if (place == NULL) return;
    assert_string_equal(place->file, file);
    assert_true(place->offset + cursor - place->begin == offset);
}

POOL_TEST(bytes_have_the_file_and_the_offset_that_they_came_with) {
    world w;
    set_up(&w, f, 1, NULL);
    expect_place(&w, 7, NULL, 0, UINT64_MAX);
    fill_from(&w, 100, "a", 5000);
    fill_from(&w, 110, "a", 5010); // goes on
    fill_from(&w, 120, "b", 0);
    fill_from(&w, 130, "a", 5020);
    assert_int_equal(w.schedule.queues.queues[0].place_count, 3);
    expect_place(&w, 99, NULL, 0, 1);
    expect_place(&w, 100, "a", 5000, 20);
    expect_place(&w, 117, "a", 5017, 3);
    expect_place(&w, 120, "b", 0, 10);
    expect_place(&w, 131, "a", 5021, UINT64_MAX);
    assert_int_equal(w.schedule.queues.queues[0].place_count, 1);
    tear_down(&w);
}

POOL_TEST(places_that_wait_are_bounded) {
    world w;
    uint8_t *at = NULL;
    size_t room = 0, places = 0;
    set_up(&w, f, 1, NULL);
    for (; reef_queues_space(&w.schedule.queues, 0, &at, &room); places++)
        fill_from(&w, 10 * places, places % 2 == 0 ? "a" : "b", 0);
    assert_int_equal(places, REEF_QUEUE_PLACES_MAX);
    expect_place(&w, 10, "b", 0, 10);
    assert_true(reef_queues_space(&w.schedule.queues, 0, &at, &room));
    tear_down(&w);
}

static void fill_with_mark(reef_queues *queues, uint64_t begin, size_t bytes) {
    char *mark = calloc(1, bytes + 1);
    assert_non_null(mark);
    memset(mark, '1', bytes);
    reef_queues_fill(queues, 0, 10, begin, mark);
}

POOL_TEST(marks_that_wait_are_bounded) {
    world w;
    uint8_t *at = NULL;
    size_t room = 0, marks = 0;
    set_up(&w, f, 1, NULL);
    reef_queues *queues = &w.schedule.queues;
    while (reef_queues_space(queues, 0, &at, &room)) fill_with_mark(queues, 10 * marks++, 300000);
    assert_int_equal(marks, 4);
    (void)reef_queue_checkpoint_at(&queues->queues[0], 9);
    assert_false(reef_queues_space(queues, 0, &at, &room));
    (void)reef_queue_checkpoint_at(&queues->queues[0], 10); // the first one is not needed any more
    train(&w, 0);
    assert_true(reef_queues_space(queues, 0, &at, &room));
    tear_down(&w);
}

// That of a directory with thousands of files may be as long as all that are kept usually.
POOL_TEST(one_mark_may_be_of_any_length) {
    world w;
    uint8_t *at = NULL;
    size_t room = 0;
    set_up(&w, f, 1, NULL);
    reef_queues *queues = &w.schedule.queues;
    fill_with_mark(queues, 0, 2 * REEF_CHECKPOINT_BYTES_HIGH);
    assert_true(reef_queues_space(queues, 0, &at, &room));
    fill_with_mark(queues, 10, 2 * REEF_CHECKPOINT_BYTES_HIGH);
    assert_false(reef_queues_space(queues, 0, &at, &room));
    assert_false(reef_queues_take(queues, 0, 5)); // the first one is needed still
    (void)reef_queue_checkpoint_at(&queues->queues[0], 10);
    assert_true(reef_queues_take(queues, 0, 5));
    assert_true(reef_queues_space(queues, 0, &at, &room));
    tear_down(&w);
}

// ---- by time ------------------------------------------------------------------------------------

#define AT(second) "2026-11-01T10:00:" second "Z "

// Lines are trained in this order; each names its queue.
static void expect_lines(world *w, const char *const *lines) {
    for (size_t i = 0; lines[i] != NULL; i++) {
        assert_int_equal(find(w), REEF_SCHEDULE_BYTES);
        assert_int_equal(w->next.count, strlen(lines[i]));
        assert_memory_equal(w->next.bytes, lines[i], w->next.count);
        (void)reef_schedule_took(&w->schedule, &w->next, w->next.count);
    }
}

POOL_TEST(by_time_the_earliest_line_of_all_queues_is_next) {
    world w;
    set_up_of(&w, f, 3, NULL, true);
    give(&w, 0, AT("05") "c\n  of c\n" AT("09") "f\n");
    give(&w, 1, AT("01") "a\n" AT("05") "d\n" AT("40") "g\n");
    give(&w, 2, AT("02") "b\n" AT("06") "e\n" AT("50") "h\n");
    expect_lines(&w,
                 (const char *const[]){AT("01") "a\n", AT("02") "b\n", AT("05") "c\n", "  of c\n",
                                       AT("05") "d\n", AT("06") "e\n", AT("09") "f\n", NULL});
    // 0 may have what is earlier, so it is waited for.
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    give(&w, 0, AT("39") "late\n" AT("59") "i\n");
    expect_lines(&w, (const char *const[]){AT("39") "late\n", AT("40") "g\n", NULL});
    tear_down(&w);
}

POOL_TEST(by_time_goes_on_after_a_crash_where_it_was) {
    world w;
    set_up_of(&w, f, 2, NULL, true);
    give(&w, 0, AT("05") "b\n no time\n");
    give(&w, 1, AT("01") "a\n" AT("06") "c\n");
    expect_lines(&w, (const char *const[]){AT("01") "a\n", AT("05") "b\n", NULL});
    write_in_pool(&w, true, NULL);
    tear_down(&w);
    open_schedule(&w);
    // The line without a time is of the one that was trained before.
    give(&w, 0, " no time\n");
    give(&w, 1, AT("06") "c\n");
    expect_lines(&w, (const char *const[]){" no time\n", NULL});
    tear_down(&w);
}

POOL_TEST(by_time_a_trickle_keeps_the_others_waiting_once) {
    world w;
    set_up_of(&w, f, 2, NULL, true);
    for (int i = 0; i < 9; i++) give(&w, 0, AT("01") "x\n");
    give(&w, 1, AT("00") "y\n");
    train(&w, 1);
    assert_int_equal(find(&w), REEF_SCHEDULE_NOTHING);
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, true);
    train(&w, 0);
    give(&w, 1, AT("00") "y\n");
    train(&w, 0); // it is no slice: it comes back in a while
    w.now += 5 * (uint64_t)SECOND;
    decide(&w, 1, false);
    train(&w, 1);
    decide(&w, 1, true);
    train(&w, 0);
    tear_down(&w);
}

RUN_TESTS
