// reefd that is stopped: killed at random moments, also while it seals one generation and opens the
// next, it ends, after restarts, with the root hash of an uninterrupted run; told to stop it
// commits what it has.
#include "reefd_run.h"

#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 30001
#define PIPE_BYTES 20001
#define WORD_BYTES 12000 // a shorter stream, in which the domain changes once
#define FIGURE_BYTES 8000
#define KILLS_FEW 25 // of pools without context memories
#define KILLS_MANY 200
#define BOUNDARY_KILLS_FEW 12
#define BOUNDARY_KILLS_MANY 100
#define MEMORY_KILLS_FEW 4 // of each kind of pool with them, while it seals
#define MEMORY_KILLS_MANY 500
#define MEMORY_BYTES (4 << 20)
#define BOUNDARY_MS 20 // about what sealing, opening and committing take
#define LIVES 3        // a sender's life is drawn from up to a third of an uninterrupted run

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    return 0;
}

// The same with a stream in which the domain changes.
static int setup_boundary(void **state) {
    int code = setup(state);
    sandbox *box = *state;
    write_text(box->text, WORD_BYTES, 1);
    append_figures(box->text, FIGURE_BYTES, 2);
    return code;
}

static int setup_memory(void **state, float net_share) {
    int code = setup(state);
    sandbox *box = *state;
    write_text(box->text, WORD_BYTES, 1);
    append_noise(box->text, FIGURE_BYTES, 2);
    box->memory = MEMORY_BYTES;
    box->net_share = net_share;
    sandbox_make_pool(box);
    return code;
}

static int setup_memory_alone(void **state) {
    return setup_memory(state, 0.0f);
}

static int setup_memory_and_net(void **state) {
    return setup_memory(state, 0.5f);
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

// The pool is new again afterwards.
static reef_commit uninterrupted(const sandbox *box, const char *threads) {
    assert_int_equal(reefd_wait(start(box, threads)), 0);
    reef_commit commit = pool_commit(box);
    sandbox_make_pool(box);
    return commit;
}

// How long a start and a whole run take, to know when to kill.
typedef struct pace {
    unsigned start_ms, run_ms;
} pace;

static pace measure_pace(const sandbox *box) {
    unsigned begin = now_ms();
    assert_int_equal(reefd_wait(start(box, "2")), 0);
    unsigned middle = now_ms();
    assert_int_equal(reefd_wait(start(box, "2")), 0); // nothing is left to do
    unsigned end = now_ms();
    pace p = {.start_ms = end - middle, .run_ms = middle - begin};
    if (p.run_ms < p.start_ms) p.run_ms = p.start_ms;
    sandbox_make_pool(box);
    return p;
}

// Kill it; false when it had ended by itself before.
static bool kill_now(pid_t pid) {
    kill(pid, SIGKILL);
    int end = reefd_wait(pid);
    if (end == REEFD_SIGNALLED + SIGKILL) return true;
    assert_int_equal(end, 0);
    return false;
}

static void finish(const sandbox *box, const reef_commit *whole, const char *threads) {
    assert_int_equal(reefd_wait(start(box, threads)), 0);
    reef_commit commit = pool_commit(box);
    assert_same(&commit, whole);
    assert_int_equal(pool_generations(box), 2); // the domain changed once
    pool_check(box);
}

// Two lives in three get somewhere: so far that all together are a run. The third ends while it
// starts.
static unsigned draw_life(const pace *p, size_t kill, uint64_t *seed) {
    if (kill % 3 == 2) return (unsigned)(draw(seed) % (p->start_ms + 1));
    unsigned share = 4 * (p->run_ms - p->start_ms) / KILLS_FEW;
    return p->start_ms + (unsigned)(draw(seed) % (share + 1));
}

// After each kill: the pool is sound, and nothing committed is lost.
static void check_survivor(const sandbox *box, uint64_t *last) {
    pool_check(box);
    uint64_t number = pool_commit(box).number;
    assert_true(number >= *last);
    *last = number;
}

BOX_TEST_OF(killed_at_any_moment_it_ends_with_the_same_root, setup_boundary) {
    static const char *const THREADS[] = {"1", "2"}; // alternately
    reef_commit whole = uninterrupted(box, "1"), parallel = uninterrupted(box, "2");
    assert_same(&parallel, &whole);
    pace p = measure_pace(box);
    uint64_t seed = 11, last = 0;
    size_t kills = 0, most = test_effort(KILLS_FEW, KILLS_MANY);
    while (kills < most) {
        pid_t pid = start(box, THREADS[kills % 2]);
        sleep_ms(draw_life(&p, kills, &seed));
        if (kill_now(pid)) {
            kills++;
            check_survivor(box, &last);
        } else { // it ended before the kill: compare, and start again
            finish(box, &whole, THREADS[kills % 2]);
            sandbox_make_pool(box);
            last = 0;
        }
    }
    finish(box, &whole, "1");
}

// Until it says that it seals; false when it ended without.
static bool await_seal(const sandbox *box, pid_t pid) {
    for (;;) {
        siginfo_t info = {0};
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        char *messages = read_text(box->messages, NULL);
        bool seals = strstr(messages, "seal") != NULL;
        if (seals || info.si_pid == pid) return seals;
        sleep_ms(1);
    }
}

static void kill_while_it_seals(sandbox *box) {
    static const char *const THREADS[] = {"1", "2"}; // alternately
    reef_commit whole = uninterrupted(box, "1");
    uint64_t seed = 12, last = 0;
    size_t kills = 0, most = box->memory > 0 ? test_effort(MEMORY_KILLS_FEW, MEMORY_KILLS_MANY)
                                             : test_effort(BOUNDARY_KILLS_FEW, BOUNDARY_KILLS_MANY);
    while (kills < most) {
        pid_t pid = start(box, THREADS[kills % 2]);
        bool seals = await_seal(box, pid);
        if (seals) sleep_ms((unsigned)(draw(&seed) % (BOUNDARY_MS + 1)));
        kills += seals; // also if it was too late: what is on disk is compared all the same
        (void)kill_now(pid);
        check_survivor(box, &last);
        if (pool_generations(box) < 2) continue;
        finish(box, &whole, THREADS[kills % 2]);
        sandbox_make_pool(box);
        last = 0;
    }
}

BOX_TEST_OF(killed_while_it_seals_it_seals_the_same_again, setup_boundary) {
    kill_while_it_seals(box);
}

// Kills at any moment: tests/stress/run kill.
BOX_TEST_OF(so_does_a_memory_alone, setup_memory_alone) {
    kill_while_it_seals(box);
}

BOX_TEST_OF(so_does_a_memory_with_a_net, setup_memory_and_net) {
    kill_while_it_seals(box);
}

// What the pool has accepted of standard input: the sender's next byte.
static uint64_t accepted(const sandbox *box) {
    reef_store *store = NULL;
    reef_trainer *trainer = pool_train(box->pool, &store);
    uint64_t cursor = reef_trainer_cursor(trainer, "-");
    pool_train_end(store, trainer);
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

BOX_TEST(a_sender_that_goes_on_at_the_cursor_loses_nothing) {
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

BOX_TEST(when_stopped_it_commits_and_a_restart_finishes) {
    reef_commit whole = uninterrupted(box, "1");
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
    assert_same(&commit, &whole);
}

// Standard input cannot be read again, so what was read of it is trained before the end.
BOX_TEST(when_stopped_it_finishes_what_it_read_from_a_pipe) {
    char *text = read_text(box->text, NULL);
    START_PIPED(box, "--commit-steps", "0");
    assert_int_equal(write(box->input, text, PIPE_BYTES), PIPE_BYTES);
    for (int64_t seen = 0; seen < PIPE_BYTES; sleep_ms(2)) {
        // Accepted and queued bytes are of one moment, because they are of one answer.
        json_t *status = reefd_status(box);
        seen = integer(status, "queue_bytes") + integer(status, "sources.0.cursor");
        assert_true(is_null(status, "sources.0.bytes"));
    }
    kill(box->pid, SIGTERM);
    assert_int_equal(reefd_wait(box->pid), 0);
    box->pid = 0;
    assert_int_equal(accepted(box), PIPE_BYTES);
}

BOX_TEST(a_second_signal_ends_at_once) {
    write_text(box->text, 8000000, 1);
    int file = open(box->text, O_RDONLY); // as standard input: draining what was read takes long
    pid_t pid =
        reefd_start(box, file, (const char *const[]){"--pool", box->pool, "--source", "-", NULL});
    close(file);
    reefd_await(box, pid);
    await_count(box, "queue_bytes", 4000000);
    kill(pid, SIGTERM);
    await_text(box, "state", "draining"); // the first signal has arrived
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 128 + SIGTERM);
    pool_check(box);
    // The socket it left behind does no harm.
    START(box, "--stay");
    reefd_end(box);
}

RUN_TESTS
