// reefd that is stopped: killed at random moments it ends, after restarts, with the root hash of an
// uninterrupted run; told to stop it commits what it has.
#include "reefd_run.h"

#include "reef_trainer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES 60001
#define KILLS_FEW 6
#define KILLS_MANY 25
#define LIVES 3 // a life is drawn from up to a third of what an uninterrupted run takes

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    sandbox_make(box);
    sandbox_make_pool(box);
    write_text(box->text, TEXT_BYTES, 1);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static pid_t start(const sandbox *box, const char *threads) {
    return reefd_start(box, -1,
                       (const char *const[]){"--pool", box->pool, "--source", box->text,
                                             "--threads", threads, "--commit-steps", "20", NULL});
}

static unsigned now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned)now.tv_sec * 1000 + (unsigned)(now.tv_nsec / 1000000);
}

// The pool is new again afterwards. `ms` (may be NULL): how long it took, to know when to kill.
static reef_commit uninterrupted(const sandbox *box, unsigned *ms) {
    unsigned begin = now_ms();
    assert_int_equal(reefd_wait(start(box, "1")), 0);
    if (ms) *ms = now_ms() - begin;
    reef_commit commit = pool_commit(box);
    sandbox_make_pool(box);
    return commit;
}

// Kill it after a while; false when it had ended by itself before.
static bool kill_after(pid_t pid, unsigned ms) {
    sleep_ms(ms);
    kill(pid, SIGKILL);
    int end = reefd_wait(pid);
    if (end == REEFD_SIGNALLED + SIGKILL) return true;
    assert_int_equal(end, 0);
    return false;
}

static void finish(const sandbox *box, const reef_commit *whole, const char *threads) {
    assert_int_equal(reefd_wait(start(box, threads)), 0);
    reef_commit commit = pool_commit(box);
    assert_int_equal(commit.stream_bytes, whole->stream_bytes);
    assert_int_equal(commit.step, whole->step);
    assert_memory_equal(commit.root, whole->root, REEF_HASH_BYTES);
    pool_check(box);
}

static void kill_and_finish(
    const sandbox *box, const reef_commit *whole, const char *threads, unsigned ms, uint64_t seed) {
    size_t kills = 0, most = test_effort(KILLS_FEW, KILLS_MANY);
    uint64_t last = pool_commit(box).number;
    while (kills < most) {
        if (!kill_after(start(box, threads), (unsigned)(draw(&seed) % (ms / LIVES + 1)))) {
            // It was through before its time came: compare, and begin again.
            finish(box, whole, threads);
            sandbox_make_pool(box);
            last = 0;
            continue;
        }
        kills++;
        pool_check(box);
        uint64_t number = pool_commit(box).number;
        assert_true(number >= last); // nothing committed is ever lost
        last = number;
    }
    finish(box, whole, threads);
}

static void killed_at_any_moment_it_ends_with_the_same_root(void **state) {
    const sandbox *box = *state;
    unsigned ms = 0;
    reef_commit whole = uninterrupted(box, &ms);
    kill_and_finish(box, &whole, "1", ms, 11);
    sandbox_make_pool(box);
    kill_and_finish(box, &whole, "2", ms, 12);
}

// What the pool has accepted of standard input: the sender's next byte.
static uint64_t accepted(const sandbox *box) {
    reef_error err = {0};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    assert_int_equal(reef_store_open(&store, box->pool, &(reef_store_options){.write = true}, &err),
                     REEF_OK);
    assert_int_equal(
        reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), REEF_OK);
    uint64_t cursor = reef_trainer_cursor(trainer, "-");
    reef_trainer_close(trainer);
    reef_store_close(store);
    return cursor;
}

// A sender: a process that pushes the text from `offset` on into the pipe it returns the end of.
static int start_sender(const char *path, uint64_t offset, pid_t *sender) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    *sender = fork();
    assert_true(*sender >= 0);
    if (*sender == 0) {
        char piece[777];
        close(ends[0]);
        int file = open(path, O_RDONLY);
        if (lseek(file, (off_t)offset, SEEK_SET) < 0) _exit(1);
        for (ssize_t count; (count = read(file, piece, sizeof(piece))) > 0;)
            if (write(ends[1], piece, (size_t)count) != count) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

static int run_from_cursor(const sandbox *box, int kill_ms) {
    pid_t sender = 0;
    int input = start_sender(box->text, accepted(box), &sender);
    pid_t pid = reefd_start(
        box, input,
        (const char *const[]){"--pool", box->pool, "--source", "-", "--commit-steps", "10", NULL});
    close(input);
    int end = 0;
    if (kill_ms >= 0) {
        sleep_ms((unsigned)kill_ms);
        kill(pid, SIGKILL);
    }
    end = reefd_wait(pid);
    kill(sender, SIGKILL);
    (void)reefd_wait(sender);
    return end;
}

static void a_sender_that_goes_on_at_the_cursor_loses_nothing(void **state) {
    const sandbox *box = *state;
    unsigned begin = now_ms();
    assert_int_equal(run_from_cursor(box, -1), 0);
    unsigned ms = now_ms() - begin;
    reef_commit whole = pool_commit(box);
    sandbox_make_pool(box);
    uint64_t seed = 5;
    for (size_t i = 0; i < test_effort(3, 12); i++)
        (void)run_from_cursor(box, (int)(draw(&seed) % (ms / LIVES + 1)));
    assert_int_equal(run_from_cursor(box, -1), 0);
    reef_commit commit = pool_commit(box);
    assert_memory_equal(commit.root, whole.root, REEF_HASH_BYTES);
    assert_int_equal(accepted(box), TEXT_BYTES);
}

static void told_to_stop_it_commits_and_a_restart_finishes(void **state) {
    const sandbox *box = *state;
    reef_commit whole = uninterrupted(box, NULL);
    static const int SIGNALS[] = {SIGTERM, SIGINT, SIGTERM};
    size_t interrupted = 0;
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(*SIGNALS); i++) {
        pid_t pid = start(box, "2");
        reefd_await(box, pid);
        kill(pid, SIGNALS[i]);
        assert_int_equal(reefd_wait(pid), 0);
        reef_commit commit = pool_commit(box);
        interrupted += commit.stream_bytes < whole.stream_bytes;
    }
    assert_true(interrupted > 0);
    assert_int_equal(reefd_wait(start(box, "1")), 0);
    reef_commit commit = pool_commit(box);
    assert_memory_equal(commit.root, whole.root, REEF_HASH_BYTES);
    assert_int_equal(commit.step, whole.step);
}

// Standard input cannot be read again, so what was read of it is trained before the end.
static void told_to_stop_it_finishes_what_it_read_from_a_pipe(void **state) {
    const sandbox *box = *state;
    size_t bytes = 0;
    char *text = read_text(box->text, &bytes);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = reefd_start(
        box, ends[0],
        (const char *const[]){"--pool", box->pool, "--source", "-", "--commit-steps", "0", NULL});
    close(ends[0]);
    assert_int_equal(write(ends[1], text, 50001), 50001);
    reefd_await(box, pid);
    for (int64_t seen = 0; seen < 50001; sleep_ms(2)) {
        // Accepted and queued bytes are of one moment, because they are of one answer.
        json_t *status = reefd_ask(box, "{\"command\": \"status\"}");
        json_t *source = json_array_get(json_object_get(status, "sources"), 0);
        seen = json_integer_value(json_object_get(status, "queue_bytes")) +
               json_integer_value(json_object_get(source, "cursor"));
        assert_true(json_is_null(json_object_get(source, "bytes")));
        json_decref(status);
    }
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 0);
    close(ends[1]);
    assert_int_equal(accepted(box), 50001);
    free(text);
}

static void a_second_signal_ends_at_once(void **state) {
    const sandbox *box = *state;
    write_text(box->text, 8000000, 1);
    int file = open(box->text, O_RDONLY); // as standard input: draining what was read takes long
    pid_t pid =
        reefd_start(box, file, (const char *const[]){"--pool", box->pool, "--source", "-", NULL});
    close(file);
    reefd_await(box, pid);
    while (reefd_count(box, "queue_bytes") < 4000000) sleep_ms(2);
    kill(pid, SIGTERM);
    json_t *status = NULL;
    for (;;) { // the first signal has arrived once the state says so
        status = reefd_ask(box, "{\"command\": \"status\"}");
        bool draining = !strcmp(json_string_value(json_object_get(status, "state")), "draining");
        json_decref(status);
        if (draining) break;
        sleep_ms(2);
    }
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 128 + SIGTERM);
    pool_check(box);
    // The socket it left behind is no obstacle.
    pid = reefd_start(box, -1, (const char *const[]){"--pool", box->pool, "--stay", NULL});
    reefd_await(box, pid);
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_at_any_moment_it_ends_with_the_same_root, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_sender_that_goes_on_at_the_cursor_loses_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(told_to_stop_it_commits_and_a_restart_finishes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(told_to_stop_it_finishes_what_it_read_from_a_pipe, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_second_signal_ends_at_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
