// Restoring a snapshot: training continues to the same bits.
#include "lifelong_restore.h"
#include "reef_byte_order.h"
#include "reef_snapshot.h"
#include "store_internal.h"

#include <math.h>

#define STEP_BYTES ((size_t)LIFELONG_BATCH)

// A path of the test's own.
static char *beside(const lifelong *f, const char *name) {
    static char path[TEMP_DIR_BYTES];
    temp_dir_join(path, f->dir, name);
    return path;
}

static void fails(reef_status status,
                  reef_status expected,
                  const reef_error *err,
                  const char *part) {
    assert_int_equal(status, expected);
    if (strstr(err->message, part) == NULL) fail_msg("\"%s\" is not in: %s", part, err->message);
}

static void seal(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
}

// What always comes after the snapshot; returns the commit it leads to.
static reef_commit go_on(lifelong *f) {
    feed_kind(f, 1, 30 * STEP_BYTES + 5, 3);
    return commit(f);
}

// Two generations, snapshot "kept" in the second, and the commit that follows from it; then a third
// one.
static reef_commit make_history(lifelong *f, reef_snapshot *snapshot) {
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, 40 * STEP_BYTES, 1);
    seal(f);
    feed_kind(f, 1, 20 * STEP_BYTES + 13, 2);
    *snapshot = take(f, "kept");
    reef_commit goal = go_on(f);
    seal(f);
    feed_kind(f, 2, 10 * STEP_BYTES, 4);
    commit(f);
    return goal;
}

static reef_status count_late_point(void *context, const reef_point *point, reef_error *err) {
    uint64_t *left = context; // bytes of the stream, then a count
    left[1] += point->stream_bytes > left[0];
    return REEF_OK;
}

static uint64_t points_after(reef_store *store, uint64_t stream_bytes) {
    uint64_t left[2] = {stream_bytes, 0};
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_series_scan(txn, count_late_point, left, &why));
    reef_txn_abort(txn);
    return left[1];
}

// ---- language models ----------------------------------------------------------------------------

LIFELONG_TEST(a_restored_pool_trains_to_the_same_bits) {
    reef_snapshot snapshot;
    reef_restoration done;
    reef_commit goal = make_history(f, &snapshot);
    char *to = beside(f, "restored");
    must(reef_pool_restore(f->store, "ke", NULL, &done, &why)); // a plan
    assert_int_equal(done.plan.sealed_gone, 1);
    assert_int_not_equal(access(to, F_OK), 0);
    must(reef_pool_restore(f->store, "ke", to, &done, &why)); // while the trainer has the pool
    assert_string_equal(done.plan.snapshot.name, "kept");
    assert_memory_equal(done.commit.root, snapshot.root, REEF_HASH_BYTES);
    close_pool(f);

    memcpy(f->pool, to, strlen(to) + 1);
    open_pool(f, 2);
    assert_int_equal(status_of(f).stream_bytes, snapshot.stream_bytes);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(points_after(f->store, snapshot.stream_bytes), 0);
    reef_commit reached = go_on(f);
    assert_memory_equal(reached.root, goal.root, REEF_HASH_BYTES);
    assert_true(points_after(f->store, snapshot.stream_bytes) > 0);
    assert_sound(f);
}

LIFELONG_TEST(in_place_too_and_the_state_before_can_still_be_evaluated) {
    reef_snapshot snapshot;
    reef_restoration done;
    size_t bytes = (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float);
    float *then = new_logits(), *before = new_logits(), *now = new_logits();
    reef_commit goal = make_history(f, &snapshot);
    logits_of(f->store, "kept", 1, then);
    logits_of(f->store, NULL, 2, before);
    close_trainer(f);
    must(reef_pool_restore_in_place(f->store, "kept", true, &done, &why)); // tried only
    logits_of(f->store, NULL, 2, now);
    assert_memory_equal(now, before, bytes);
    must(reef_pool_restore_in_place(f->store, "kept", false, &done, &why));
    logits_of(f->store, NULL, 1, now);
    assert_memory_equal(now, then, bytes);
    logits_of(f->store, done.kept_as, 2, now); // generation 1 as sealed lies in a copy by now
    assert_memory_equal(now, before, bytes);
    close_pool(f);

    open_pool(f, 1);
    reef_commit reached = go_on(f);
    assert_memory_equal(reached.root, goal.root, REEF_HASH_BYTES);
    logits_of(f->store, "before-restore", 2, now);
    assert_memory_equal(now, before, bytes);
    assert_sound(f);
}

// ---- history ------------------------------------------------------------------------------------

static reef_status set_place(void *context, const reef_point *point, reef_error *err) {
    bool *places = context;
    places[point->stream_bytes / STEP_BYTES - 1] = true;
    return REEF_OK;
}

static void append_number(char text[128], uint64_t number) {
    size_t used = strlen(text);
    snprintf(text + used, 128 - used, "%d ", (int)number);
}

// Which commits led to the present state, and which batches lack a loss: these have no point,
// others one.
static void expect_lineage(lifelong *f, const char *commits, const char *missing) {
    reef_commit last;
    reef_lineage lineage;
    bool places[64] = {false};
    char led[128] = "", gone[128] = "";
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &last, &why));
    must(reef_lineage_read(&lineage, txn, &why));
    must(reef_series_scan(txn, set_place, places, &why));
    reef_txn_abort(txn);
    for (uint64_t i = 1; i <= last.number; i++)
        if (reef_lineage_has(&lineage, i)) append_number(led, i);
    for (uint64_t i = 0; i < last.stream_bytes / STEP_BYTES; i++) {
        bool known = reef_lineage_knows_losses(&lineage, i * STEP_BYTES, (i + 1) * STEP_BYTES);
        assert_int_equal(known, places[i]);
        if (!known) append_number(gone, i);
    }
    assert_string_equal(led, commits);
    assert_string_equal(gone, missing);
    reef_lineage_release(&lineage);
}

// Two commits. The last batch waits for what comes next, so each state has trained one less than
// was fed.
static void feed_steps(lifelong *f, size_t count, uint32_t seed) {
    feed_kind(f, 0, (count - 1) * STEP_BYTES, seed);
    commit(f);
    feed_kind(f, 0, STEP_BYTES, seed + 1);
    commit(f);
}

// Twice to a state whose losses went when the pool left its line, the second time on top of a line
// that has lost some.
LIFELONG_TEST(what_led_to_a_state_is_known_and_losses_of_other_lines_go) {
    give_boundaries(f); // nothing waits to be judged
    make_pool(f, 1);
    feed_steps(f, 4, 1);
    take(f, "three");
    feed_steps(f, 2, 2);
    take(f, "five");
    feed_steps(f, 2, 3);
    take(f, "seven");
    expect_lineage(f, "1 2 3 4 5 6 7 8 9 10 11 12 13 ", "");
    go_back(f, "three");
    expect_lineage(f, "1 2 3 4 14 ", "");
    feed_steps(f, 6, 4);
    go_back(f, "five");
    feed_steps(f, 3, 5);
    expect_lineage(f, "1 2 3 4 5 6 7 8 17 18 19 ", "3 4 ");
    go_back(f, "seven");
    expect_lineage(f, "1 2 3 4 5 6 7 8 9 10 11 12 20 ", "3 4 5 6 ");
    feed_steps(f, 2, 6);
    go_back(f, "three");
    expect_lineage(f, "1 2 3 4 23 ", "");
}

// Change a letter of the words wherever the pool's file has them.
static void damage_words(const lifelong *f, const char *words) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, f->pool, "data.mdb");
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    size_t hits = 0, length = strlen(words);
    char *window = room(length + 1);
    for (int letter; (letter = fgetc(file)) != EOF;) {
        memmove(window, window + 1, length);
        window[length - 1] = (char)letter;
        if (memcmp(window, words, length) != 0) continue;
        assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
        assert_int_equal(fputc(letter ^ 1, file), letter ^ 1);
        assert_int_equal(fseek(file, 0, SEEK_CUR), 0);
        hits++;
    }
    assert_int_equal(fclose(file), 0);
    assert_true(hits > 0);
}

LIFELONG_TEST(with_a_damaged_timeline_a_pool_goes_back_and_keeps_no_losses) {
    reef_lineage lineage;
    give_boundaries(f);
    make_pool(f, 1);
    feed_steps(f, 4, 1);
    take(f, "three");
    feed_steps(f, 2, 2);
    assert_int_equal(points_after(f->store, 0), 5);
    close_pool(f);
    damage_words(f, "{\"event\": \"init");
    open_pool(f, 1);
    go_back(f, "three");
    assert_int_equal(points_after(f->store, 0), 0);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    fails(reef_lineage_read(&lineage, txn, &why), REEF_ERR_CORRUPT, &why, "timeline");
    assert_null(lineage.restores);
    reef_txn_abort(txn);
    feed_steps(f, 2, 2); // it learns on
    assert_int_equal(points_after(f->store, 0), 2);
}

// ---- removing -----------------------------------------------------------------------------------

LIFELONG_TEST(snapshots_are_removed_together_or_not_at_all) {
    reef_snapshot snapshot;
    char names[3][REEF_NAME_BYTES_MAX + 1] = {"a", "c", "missing"};
    make_pool(f, 1);
    feed_kind(f, 0, 10 * STEP_BYTES, 1);
    take(f, "a");
    take(f, "b");
    take(f, "c");
    fails(reef_trainer_snapshots_remove(f->trainer, names, 3, &why), REEF_ERR_NOT_FOUND, &why,
          "missing");
    must(reef_trainer_snapshots_remove(f->trainer, names, 2, &why));
    assert_int_equal(times_said(f, "\"snapshot_remove\""), 2);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "b", &snapshot, &why));
    assert_int_equal(reef_snapshot_read(txn, "a", &snapshot, &why), REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_snapshot_read(txn, "c", &snapshot, &why), REEF_ERR_NOT_FOUND);
    reef_txn_abort(txn);
    feed_kind(f, 0, 5 * STEP_BYTES, 2); // and training continues
    commit(f);
    assert_sound(f);
}

RUN_TESTS
