// A reefd that keeps states by the clock: those that learned something, as many as its rules say.
#include "reefd_run.h"

#include "kept_states.h"
#include "reef_snapshot.h"
#include "reef_states.h"
#include "reef_system.h"
#include "test.h"

#include <signal.h>

#define A_PERIOD_LATER_MS 2500 // also where the machine has other work
#define AWAIT_MS_MAX 20000

typedef struct listing {
    size_t own;
    size_t kept;
    reef_snapshot newest;
} listing;

static void start(sandbox *box, const char *every, const char *keep) {
    START(box, "--source", "push:text", "--threads", "1", "--snapshot-every", every, "--keep",
          keep);
}

// Some batches of text, which are in the pool when this returns.
static reef_commit learn(sandbox *box, char letter) {
    char text[15001] = {0};
    for (size_t at = 0; at < sizeof(text) - 1; at++) text[at] = at % 7 ? letter : ' ';
    (void)reefd_push_ok(box, NULL, NULL, text);
    (void)reefd_tell(box, "drain");
    return pool_commit(box);
}

static reef_status count(void *context, const reef_snapshot *snapshot, reef_error *err) {
    listing *list = context;
    if (!reef_keep_has_name(snapshot->name)) {
        list->own++;
        return REEF_OK;
    }
    list->kept++;
    list->newest = *snapshot; // they come in the order of their names
    return REEF_OK;
}

static listing list_states(const sandbox *box) {
    reef_error err;
    reef_store *store;
    listing list = {0};
    reef_txn *txn = pool_view(box->pool, &store);
    assert_int_equal(reef_snapshot_scan(txn, count, &list, &err), REEF_OK);
    pool_close(store, txn);
    return list;
}

static void await_root(const sandbox *box, const reef_commit *commit) {
    for (int waited = 0; waited < AWAIT_MS_MAX; waited += 20) {
        listing list = list_states(box);
        if (list.kept > 0 && memcmp(list.newest.root, commit->root, sizeof(commit->root)) == 0)
            return;
        sleep_ms(20);
    }
    fail_msg("the state was not kept");
}

NEW_BOX_TEST(states_that_learned_something_are_kept) {
    start(box, "1s", "hourly=3");
    reefd_snapshot(box, "mine");
    sleep_ms(A_PERIOD_LATER_MS);
    assert_int_equal(list_states(box).kept, 0); // nothing was learned
    reef_commit first = learn(box, 'a');
    await_root(box, &first);
    sleep_ms(A_PERIOD_LATER_MS); // an older state of this hour is removed by a commit of its own
    // The clock writes nothing while nothing is learned.
    reef_commit kept = pool_commit(box);
    sleep_ms(A_PERIOD_LATER_MS);
    assert_int_equal(pool_commit(box).number, kept.number);
    for (char letter = 'b'; letter <= 'd'; letter++) {
        reef_commit later = learn(box, letter);
        await_root(box, &later);
    }
    sleep_ms(A_PERIOD_LATER_MS);
    // Of one hour the last one stays; an hour may have begun meanwhile.
    listing list = list_states(box);
    assert_in_range(list.kept, 1, 2);
    assert_int_equal(list.own, 1);
    assert_true(reefd_said(box, "auto-"));
    reefd_end(box);
}

// What was learned just before the end is kept when the daemon is there again.
NEW_BOX_TEST(a_start_keeps_what_the_end_left) {
    start(box, "52w", "weekly=1");
    reef_commit first = learn(box, 'a');
    assert_int_equal(list_states(box).kept, 0); // not due yet
    reefd_end(box);
    start(box, "52w", "weekly=1");
    await_root(box, &first);
    reefd_end(box);
    start(box, "0", "weekly=1");
    (void)learn(box, 'b');
    reefd_end(box);
    listing list = list_states(box);
    assert_int_equal(list.kept, 1);
    assert_memory_equal(list.newest.root, first.root, sizeof(first.root));
    pool_check(box);
}

NEW_BOX_TEST(a_moment_is_answered_by_what_was_kept) {
    reef_error err;
    reef_store *store;
    char name[REEF_NAME_BYTES_MAX + 1];
    start(box, "1s", "hourly=3");
    reef_commit first = learn(box, 'a');
    await_root(box, &first);
    listing then = list_states(box);
    reefd_end(box);
    start(box, "0", "hourly=3");
    (void)learn(box, 'b');
    reefd_end(box);
    reef_txn *txn = pool_view(box->pool, &store);
    assert_int_equal(reef_state_at(txn, then.newest.unix_ms, name, &err), REEF_OK);
    assert_string_equal(name, then.newest.name);
    assert_int_equal(reef_state_at(txn, reef_unix_ms(), name, &err), REEF_OK);
    assert_string_equal(name, "now");
    pool_close(store, txn);
}

RUN_TESTS
