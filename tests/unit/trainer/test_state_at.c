// Which state a pool had at a moment, among snapshots, sealed generations and the present.
#include "lifelong_restore.h"
#include "reef_states.h"
#include "reef_system.h"
#include "test.h"

#include <time.h>

enum { LONG = 20000 };

// A moment that no commit has, nor any other moment.
static uint64_t moment(void) {
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t now;
    assert_int_equal(nanosleep(&pause, NULL), 0);
    now = reef_unix_ms();
    assert_int_equal(nanosleep(&pause, NULL), 0);
    return now;
}

static void state_at_is(lifelong *f, uint64_t unix_ms, const char *expected) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_state_at(txn, unix_ms, name, &why));
    reef_txn_abort(txn);
    assert_string_equal(name, expected);
}

static reef_status find_name(lifelong *f, const char *as_of, char *name, reef_error *err) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    reef_status status = reef_state_name(name, txn, as_of, err);
    reef_txn_abort(txn);
    return status;
}

static void name_is(lifelong *f, const char *as_of, const char *expected) {
    char name[REEF_NAME_BYTES_MAX + 1];
    must(find_name(f, as_of, name, &why));
    assert_string_equal(name, expected);
}

KINDS_TEST(the_newest_state_that_was_there) {
    char name[REEF_NAME_BYTES_MAX + 1];
    uint64_t at[5], before = moment();
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    take(f, "first");
    at[0] = moment();
    feed_kind(f, 1, LONG, 2);
    commit(f);
    at[1] = moment();
    take(f, "second");
    at[2] = moment();
    feed_kind(f, 1, LONG, 3);
    commit(f);
    at[3] = moment();
    state_at_is(f, at[0], "first");
    state_at_is(f, at[1], "0"); // sealed when the second kind began
    state_at_is(f, at[2], "second");
    state_at_is(f, at[3], "now");
    state_at_is(f, UINT64_MAX, "now");
    // What was sealed after a restore is another generation.
    char second[1][REEF_NAME_BYTES_MAX + 1] = {"second"};
    must(reef_trainer_snapshots_remove(f->trainer, second, 1, &why));
    go_back(f, "first");
    feed_kind(f, 2, LONG, 4);
    commit(f);
    at[4] = moment();
    take(f, "third");
    state_at_is(f, at[1], "first");
    state_at_is(f, at[3], "first");
    state_at_is(f, at[4], "0");
    must_fail(find_name(f, "999999999w ago", name, &why), REEF_ERR_NOT_FOUND,
              "no state is so old: the oldest is 'first', of ");
    assert_true(before > 0);
}

KINDS_TEST(people_name_states) {
    char name[REEF_NAME_BYTES_MAX + 1];
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    take(f, "before");
    take(f, "2020-01-01"); // a snapshot may be called as a moment is
    feed_kind(f, 0, LONG, 2);
    commit(f);
    double now = bits_as_of(f, "now", 0);
    name_is(f, "now", "now");
    name_is(f, "0", "0");
    name_is(f, "bef", "before");
    name_is(f, "2020-01-01", "2020-01-01");
    name_is(f, "0s ago", "now");
    name_is(f, "today", "now");
    assert_true(bits_as_of(f, "today", 0) == now);
    assert_true(bits_as_of(f, "2020-01-01", 0) != now);
    assert_int_equal(find_name(f, "2020-01-02", name, &why), REEF_ERR_NOT_FOUND);
    must_fail(find_name(f, "another", name, &why), REEF_ERR_NOT_FOUND,
              "no state 'another': a state is now");
}

RUN_TESTS
