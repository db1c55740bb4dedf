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

typedef struct running {
    sandbox box;
    pid_t pid;
} running;

typedef struct listing {
    size_t own;
    size_t kept;
    reef_snapshot newest;
} listing;

static int setup(void **state) {
    running *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    *state = run;
    return 0;
}

static int teardown(void **state) {
    running *run = *state;
    if (run->pid) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
    }
    sandbox_remove(&run->box);
    free(run);
    return 0;
}

static void start(running *run, const char *every, const char *keep) {
    run->pid = reefd_start(&run->box, -1,
                           (const char *const[]){"--pool", run->box.pool, "--source", "push:text",
                                                 "--threads", "1", "--snapshot-every", every,
                                                 "--keep", keep, NULL});
    reefd_await(&run->box, run->pid);
}

static void stop(running *run) {
    (void)reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

// Some batches of text, which are in the pool when this returns.
static reef_commit learn(running *run, char letter) {
    char text[15001] = {0};
    for (size_t at = 0; at < sizeof(text) - 1; at++) text[at] = at % 7 ? letter : ' ';
    (void)reefd_push_ok(&run->box, NULL, NULL, text);
    (void)reefd_ask(&run->box, "{\"command\": \"drain\"}");
    return pool_commit(&run->box);
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

static listing list_states(const running *run) {
    reef_store *store;
    reef_txn *txn = NULL;
    reef_error err;
    listing list = {0};
    assert_int_equal(reef_store_open(&store, run->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    assert_int_equal(reef_snapshot_scan(txn, count, &list, &err), REEF_OK);
    reef_txn_abort(txn);
    reef_store_close(store);
    return list;
}

static void await_root(const running *run, const reef_commit *commit) {
    for (int waited = 0; waited < AWAIT_MS_MAX; waited += 20) {
        listing list = list_states(run);
        if (list.kept > 0 && memcmp(list.newest.root, commit->root, sizeof(commit->root)) == 0)
            return;
        sleep_ms(20);
    }
    fail_msg("the state was not kept");
}

static void states_that_learned_something_are_kept(void **state) {
    running *run = *state;
    start(run, "1s", "hourly=3");
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"mine\"}");
    sleep_ms(A_PERIOD_LATER_MS);
    assert_int_equal(list_states(run).kept, 0); // nothing was learned
    reef_commit first = learn(run, 'a');
    await_root(run, &first);
    sleep_ms(A_PERIOD_LATER_MS); // an older state of this hour is removed by a commit of its own
    // The clock writes nothing while nothing is learned.
    reef_commit kept = pool_commit(&run->box);
    sleep_ms(A_PERIOD_LATER_MS);
    assert_int_equal(pool_commit(&run->box).number, kept.number);
    for (char letter = 'b'; letter <= 'd'; letter++) {
        reef_commit later = learn(run, letter);
        await_root(run, &later);
    }
    sleep_ms(A_PERIOD_LATER_MS);
    // Of one hour the last one stays; an hour may have begun meanwhile.
    listing list = list_states(run);
    assert_in_range(list.kept, 1, 2);
    assert_int_equal(list.own, 1);
    assert_true(reefd_said(&run->box, "auto-"));
    stop(run);
    pool_check(&run->box);
}

// What was learned just before the end is kept when the daemon is there again.
static void a_start_keeps_what_the_end_left(void **state) {
    running *run = *state;
    start(run, "52w", "weekly=1");
    reef_commit first = learn(run, 'a');
    assert_int_equal(list_states(run).kept, 0); // not due yet
    stop(run);
    start(run, "52w", "weekly=1");
    await_root(run, &first);
    stop(run);
    start(run, "0", "weekly=1");
    (void)learn(run, 'b');
    stop(run);
    listing list = list_states(run);
    assert_int_equal(list.kept, 1);
    assert_memory_equal(list.newest.root, first.root, sizeof(first.root));
    pool_check(&run->box);
}

static void a_moment_is_answered_by_what_was_kept(void **state) {
    running *run = *state;
    reef_store *store;
    reef_txn *txn = NULL;
    reef_error err;
    char name[REEF_NAME_BYTES_MAX + 1];
    start(run, "1s", "hourly=3");
    reef_commit first = learn(run, 'a');
    await_root(run, &first);
    listing then = list_states(run);
    stop(run);
    start(run, "0", "hourly=3");
    (void)learn(run, 'b');
    stop(run);
    assert_int_equal(reef_store_open(&store, run->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    assert_int_equal(reef_state_at(txn, then.newest.unix_ms, name, &err), REEF_OK);
    assert_string_equal(name, then.newest.name);
    assert_int_equal(reef_state_at(txn, reef_unix_ms(), name, &err), REEF_OK);
    assert_string_equal(name, "now");
    reef_txn_abort(txn);
    reef_store_close(store);
}

TESTS(SET_UP(states_that_learned_something_are_kept),
      SET_UP(a_start_keeps_what_the_end_left),
      SET_UP(a_moment_is_answered_by_what_was_kept))
