// Sources that are pushed into, and going back to a snapshot: what waits is neither lost nor
// trained twice, and each state knows the ids of what it was trained on.
#include "lifelong_restore.h"
#include "reef_byte_order.h"
#include "reef_push_journal.h"
#include "reef_snapshot.h"
#include "store_internal.h"

#define STEP_BYTES ((size_t)LIFELONG_BATCH)
#define PUSHED "push:web"

// Whether it is a duplicate: nothing is journalled then.
static bool is_known(lifelong *f, const char *id, const uint8_t *bytes, size_t count) {
    reef_journal_batch batch = {
        .source = PUSHED, .bytes_max = 1 << 24, .bytes = bytes, .count = count, .id = id};
    must(reef_trainer_journal(f->trainer, &batch, 1, &why));
    why = batch.error;
    must(why.status);
    return batch.duplicate;
}

static void push(lifelong *f, const char *id, const uint8_t *bytes, size_t count) {
    assert_false(is_known(f, id, bytes, count));
}

// What waits, up to `count` bytes, is trained and committed, and its journal trimmed.
static size_t train_waiting(lifelong *f, size_t count) {
    size_t got, taken;
    uint8_t *bytes = room(count);
    uint64_t cursor = reef_trainer_cursor(f->trainer, PUSHED);
    must(reef_journal_read(f->store, PUSHED, cursor, bytes, count, &got, &why));
    must(reef_trainer_feed(f->trainer, PUSHED, bytes, got, &taken, NULL, &why));
    assert_int_equal(taken, got);
    reef_commit last = commit(f);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_journal_trim(txn, PUSHED, cursor + got, &why));
    must(reef_txn_commit(txn, &last, &why));
    return got;
}

// Trained: 20 steps of 25, then a snapshot, then the other 5 and 5 of the 20 that come after. Back
// at the snapshot these 20 come next: the restored state has none of them, and the journal all.
LIFELONG_TEST(what_was_pushed_and_waits_is_neither_lost_nor_trained_twice) {
    uint8_t text[45 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push(f, "a", text, 25 * STEP_BYTES);
    push(f, "b", text + 25 * STEP_BYTES, 20 * STEP_BYTES);
    train_waiting(f, 20 * STEP_BYTES);
    take(f, "kept");
    train_waiting(f, 10 * STEP_BYTES);
    go_back(f, "kept");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 20 * STEP_BYTES);
    assert_int_equal(train_waiting(f, sizeof(text)), 20 * STEP_BYTES);
    reef_commit reached = commit(f);
    assert_sound(f);
    // and forth again: nothing waits any more, so nothing comes
    go_back(f, "before-restore");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 30 * STEP_BYTES);
    assert_int_equal(train_waiting(f, sizeof(text)), 0);
    assert_sound(f);
    close_pool(f);

    temp_dir_join(f->pool, f->dir, "other");
    make_pool(f, 1);
    size_t taken;
    must(reef_trainer_feed(f->trainer, PUSHED, text, 20 * STEP_BYTES, &taken, NULL, &why));
    must(reef_trainer_feed(f->trainer, PUSHED, text + 25 * STEP_BYTES, 20 * STEP_BYTES, &taken,
                           NULL, &why));
    assert_memory_equal(commit(f).root, reached.root, REEF_HASH_BYTES);
}

LIFELONG_TEST(a_source_that_the_restored_state_never_read_continues_where_it_is) {
    uint8_t text[8 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    feed_kind(f, 1, 3 * STEP_BYTES, 1);
    take(f, "kept");
    push(f, "a", text, sizeof(text));
    train_waiting(f, 5 * STEP_BYTES + 3);
    go_back(f, "kept");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 0);
    assert_int_equal(train_waiting(f, sizeof(text)), sizeof(text));
    go_back(f, "before-restore");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 5 * STEP_BYTES + 3);
    push(f, "b", text, 7);
    assert_int_equal(train_waiting(f, sizeof(text)), 7);
    assert_sound(f);
}

// Batches of a source whose n-th step is `text + n * STEP_BYTES`.
static void push_and_train(lifelong *f, const char *id, const uint8_t *text) {
    push(f, id, text, STEP_BYTES);
    assert_int_equal(train_waiting(f, STEP_BYTES), STEP_BYTES);
}

// x was trained after monday, y at monday's position: each state knows its own.
LIFELONG_TEST(each_state_knows_the_ids_of_what_it_was_trained_on) {
    uint8_t text[4 * STEP_BYTES];
    const uint8_t *m = text, *x = m + STEP_BYTES, *y = x + STEP_BYTES, *z = y + STEP_BYTES;
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push_and_train(f, "m", m);
    take(f, "monday");
    push_and_train(f, "x", x);
    take(f, "wednesday");
    go_back(f, "monday");
    push_and_train(f, "y", y);
    push(f, "z", z, STEP_BYTES); // waits
    go_back(f, "wednesday");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 2 * STEP_BYTES);
    assert_true(is_known(f, "m", m, STEP_BYTES));
    assert_true(is_known(f, "x", x, STEP_BYTES));
    assert_int_equal(train_waiting(f, sizeof(text)), STEP_BYTES); // z
    assert_true(is_known(f, "z", z, STEP_BYTES));
    push_and_train(f, "y", y);
    assert_sound(f);
}

LIFELONG_TEST(undoing_a_restore_brings_the_ids_back) {
    uint8_t text[2 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    feed_kind(f, 1, STEP_BYTES, 1);
    take(f, "empty"); // of a time before anything was pushed
    push_and_train(f, "m", text);
    take(f, "monday");
    push_and_train(f, "x", text + STEP_BYTES);
    go_back(f, "monday");
    assert_sound(f);
    go_back(f, "before-restore");
    assert_true(is_known(f, "m", text, STEP_BYTES));
    assert_true(is_known(f, "x", text + STEP_BYTES, STEP_BYTES));
    assert_int_equal(train_waiting(f, sizeof(text)), 0);
    assert_sound(f);
    go_back(f, "empty");
    push_and_train(f, "x", text + STEP_BYTES);
    push_and_train(f, "m", text);
    assert_sound(f);
}

LIFELONG_TEST(a_new_pool_of_a_snapshot_knows_its_ids) {
    reef_restoration done;
    char copy[sizeof(f->pool)];
    uint8_t text[3 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push_and_train(f, "m", text);
    take(f, "monday");
    push_and_train(f, "x", text + STEP_BYTES);
    push(f, "z", text + 2 * STEP_BYTES, STEP_BYTES);
    temp_dir_join(copy, f->dir, "other");
    must(reef_pool_restore(f->store, "monday", copy, &done, &why));
    assert_true(is_known(f, "x", text + STEP_BYTES, STEP_BYTES)); // here
    close_pool(f);
    memcpy(f->pool, copy, sizeof(copy));
    open_pool(f, 1);
    assert_true(is_known(f, "m", text, STEP_BYTES));
    assert_int_equal(train_waiting(f, sizeof(text)), STEP_BYTES); // z
    assert_true(is_known(f, "z", text + 2 * STEP_BYTES, STEP_BYTES));
    push_and_train(f, "x", text + STEP_BYTES);
    assert_sound(f);
}

LIFELONG_TEST(a_snapshot_keeps_the_last_1024_ids) {
    static const uint8_t bytes[] = "one\n";
    enum { COUNT = REEF_JOURNAL_IDS_MAX + 6 };
    static reef_journal_batch batches[COUNT];
    static char ids[COUNT][12];
    make_pool(f, 1);
    for (int i = 0; i < COUNT; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%d", i);
        batches[i] = (reef_journal_batch){
            .source = PUSHED, .bytes_max = 1 << 24, .bytes = bytes, .count = 4, .id = ids[i]};
    }
    must(reef_trainer_journal(f->trainer, batches, COUNT, &why));
    train_waiting(f, 4 * COUNT);
    take(f, "kept");
    push(f, "late", bytes, 4);
    train_waiting(f, 4);
    go_back(f, "kept");
    assert_sound(f);
    assert_true(is_known(f, ids[COUNT - 1], bytes, 4));
    assert_true(is_known(f, ids[6], bytes, 4));
    push(f, "late", bytes, 4);
    push(f, ids[5], bytes, 4);
    assert_int_equal(train_waiting(f, 100), 8);
    assert_sound(f);
}

// The snapshot is of the middle of a batch.
LIFELONG_TEST(the_rest_of_a_batch_comes_where_the_journal_has_it) {
    size_t taken;
    uint8_t text[8 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push(f, "a", text, sizeof(text));
    train_waiting(f, 3 * STEP_BYTES);
    take(f, "kept");
    train_waiting(f, 2 * STEP_BYTES);
    go_back(f, "kept");
    go_back(f, "before-restore");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 5 * STEP_BYTES);
    go_back(f, "kept");
    assert_int_equal(train_waiting(f, sizeof(text)), 5 * STEP_BYTES);
    assert_true(is_known(f, "a", text, sizeof(text)));
    reef_commit reached = commit(f);
    assert_sound(f);
    close_pool(f);

    temp_dir_join(f->pool, f->dir, "other");
    make_pool(f, 1);
    must(reef_trainer_feed(f->trainer, PUSHED, text, sizeof(text), &taken, NULL, &why));
    assert_memory_equal(commit(f).root, reached.root, REEF_HASH_BYTES);
}

LIFELONG_TEST(a_batch_whose_rest_is_gone_can_be_pushed_again) {
    uint8_t text[8 * STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push(f, "a", text, sizeof(text));
    train_waiting(f, 3 * STEP_BYTES);
    take(f, "kept");
    train_waiting(f, sizeof(text));
    go_back(f, "kept");
    assert_int_equal(reef_trainer_cursor(f->trainer, PUSHED), 3 * STEP_BYTES);
    push(f, "a", text, sizeof(text));
    assert_int_equal(train_waiting(f, sizeof(text)), sizeof(text));
    assert_sound(f);
}

// ---- a walk through snapshots -------------------------------------------------------------------

enum { WALK_BATCHES = 60, WALK_BYTES = 100, WALK_SNAPSHOTS = 40 };

typedef struct walked {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t has[WALK_BATCHES]; // bytes of each batch, whose bytes are all its number
    bool whole[WALK_BATCHES]; // it had all of them, whatever came again
} walked;

static size_t walk_length(size_t b) {
    return 1 + b * 37 % WALK_BYTES;
}

// What waits of each batch: all that the state does not have of it, or nothing, and in one piece.
// Batches that were pushed again at another state's position and wait are trained again where they
// were trained.
static void look_at_waiting(lifelong *f, walked *now, bool restored, size_t waits[WALK_BATCHES]) {
    static uint8_t bytes[WALK_BATCHES * WALK_BYTES];
    size_t count;
    uint64_t cursor = reef_trainer_cursor(f->trainer, PUSHED);
    must(reef_journal_read(f->store, PUSHED, cursor, bytes, sizeof(bytes), &count, &why));
    memset(waits, 0, WALK_BATCHES * sizeof(*waits));
    for (size_t i = 0; i < count; i++) {
        assert_true(bytes[i] < WALK_BATCHES);
        if (i > 0 && bytes[i] != bytes[i - 1]) assert_int_equal(waits[bytes[i]], 0);
        waits[bytes[i]]++;
    }
    for (size_t b = 0; b < WALK_BATCHES; b++)
        if (restored && waits[b] == walk_length(b)) now->has[b] = 0;
    for (size_t b = 0; b < WALK_BATCHES; b++)
        if (waits[b] > 0) assert_int_equal(now->has[b] + waits[b], walk_length(b));
}

// A batch that is a duplicate is trained or comes; one that is taken again does neither.
static void walk_push(lifelong *f, walked *now, size_t b) {
    uint8_t bytes[WALK_BYTES];
    char id[8];
    size_t waits[WALK_BATCHES];
    look_at_waiting(f, now, false, waits);
    memset(bytes, (int)b, sizeof(bytes));
    snprintf(id, sizeof(id), "%zu", b);
    bool all = now->whole[b] || now->has[b] + waits[b] == walk_length(b);
    assert_int_equal(is_known(f, id, bytes, walk_length(b)), all);
    if (!all) now->has[b] = 0;
}

static void walk_train(lifelong *f, walked *now, size_t most) {
    uint8_t bytes[4 * WALK_BYTES];
    size_t count;
    uint64_t cursor = reef_trainer_cursor(f->trainer, PUSHED);
    must(reef_journal_read(f->store, PUSHED, cursor, bytes, most, &count, &why));
    for (size_t i = 0; i < count; i++)
        if (++now->has[bytes[i]] == walk_length(bytes[i])) now->whole[bytes[i]] = true;
    assert_int_equal(train_waiting(f, most), count);
}

static void walk_restore(lifelong *f, const char *name, walked *before) {
    reef_restoration done;
    close_trainer(f);
    must(reef_pool_restore_in_place(f->store, name, false, &done, &why));
    memcpy(before->name, done.kept_as, sizeof(before->name));
    open_again(f, 1);
}

LIFELONG_TEST(a_long_walk_through_snapshots_neither_loses_nor_repeats_a_batch) {
    static walked snapshots[WALK_SNAPSHOTS];
    size_t count = 0, waits[WALK_BATCHES];
    walked now = {.name = "now"};
    uint32_t random = 1;
    make_pool(f, 1);
    for (int i = 0; i < 400; i++) {
        random = random * 1664525u + 1013904223u;
        bool restored = false;
        size_t choice = (random >> 24) % 16, which = random >> 8 & 0xffff;
        if (choice < 8) {
            walk_push(f, &now, which % WALK_BATCHES);
        } else if (choice < 13) {
            walk_train(f, &now, 1 + which % (4 * WALK_BYTES));
        } else if (count < WALK_SNAPSHOTS) {
            walked *taken = &snapshots[count++];
            *taken = now;
            snprintf(taken->name, sizeof(taken->name), "walk-%d", i);
            if (choice < 15 || count == 1) {
                take(f, taken->name);
            } else {
                size_t back = which % (count - 1);
                walk_restore(f, snapshots[back].name, taken);
                now = snapshots[back];
                restored = true;
            }
        }
        look_at_waiting(f, &now, restored, waits);
    }
    assert_int_equal(count, WALK_SNAPSHOTS);
    for (size_t b = 0; b < WALK_BATCHES; b++) walk_push(f, &now, b);
    assert_sound(f);
}

static size_t journal_records(lifelong *f) {
    reef_cursor cursor;
    size_t count = 0;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_cursor_open(&cursor, txn, REEF_DB_JOURNAL, NULL, 0, &why));
    for (; !cursor.done; count++) must(reef_cursor_next(&cursor, txn, &why));
    reef_cursor_close(&cursor);
    reef_txn_abort(txn);
    return count;
}

LIFELONG_TEST(ids_go_with_their_snapshot) {
    char names[2][REEF_NAME_BYTES_MAX + 1] = {"kept", "too"};
    uint8_t text[STEP_BYTES];
    lifelong_text(text, sizeof(text), 0, 5);
    make_pool(f, 1);
    push_and_train(f, "m", text);
    size_t before = journal_records(f);
    take(f, "kept");
    take(f, "too");
    assert_int_equal(journal_records(f), before + 2);
    must(reef_trainer_snapshots_remove(f->trainer, names, 2, &why));
    assert_int_equal(journal_records(f), before);
    assert_sound(f);
}

RUN_TESTS
