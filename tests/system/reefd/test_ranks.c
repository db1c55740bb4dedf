// reefd on several ranks, started by mpirun as people start it: the root is that of one process
// alone, after any kill too, and what does not fit together ends all ranks with one message.
#include "crew_internal.h"
#include "ranks_run.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// Ranks exchange messages at every step: as few steps as show something.
#define WORD_BYTES 4000
#define FIGURE_BYTES 5000
#define NOISE_BYTES 2500
#define MEMORY_BYTES (4 << 20)
#define KILLS_FEW 4
#define KILLS_MANY 200

// With a step of four windows; `net_share` above 0: beside a context memory.
static void make_pool(const sandbox *box, float net_share) {
    reef_config config = tiny_config();
    config.batch = 4;
    config.learning_rate = 5e-3f;
    config.context_memory = MEMORY_BYTES;
    config.net_share = net_share;
    if (net_share == 0.0f) without_memories(&config);
    sandbox_make_pool_of(box, &config);
}

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    sandbox_make_again(box);
    make_pool(box, 0.0f);
    // Two boundaries.
    write_text(box->text, WORD_BYTES, 1);
    append_mark(box->text);
    append_figures(box->text, FIGURE_BYTES, 2);
    append_mark(box->text);
    append_noise(box->text, NOISE_BYTES, 3);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

static void the_root_is_that_of_one_process(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone(box);
    sandbox one = *box;
    snprintf(one.pool, sizeof(one.pool), "%.100s/alone", box->directory);
    assert_int_equal(pool_generations(&one), 3);
    for (size_t count = 1; count <= 3; count++) {
        make_ranks(box, count);
        learn_by_ranks(box, count, count == 2 ? "--threads 2" : "--threads 1");
        same_roots(box, count, &expected);
    }
}

// ---- kills --------------------------------------------------------------------------------------

static void killed_ranks_go_on(void **state) {
    sandbox *box = *state;
    const size_t count = 3;
    reef_commit expected = alone_once(box);
    make_ranks(box, count);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 7;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t victim = (seed >> 8) % count;
        pid_t run = start_ranks(box, count, "");
        pid_t pid = await_rank(box, victim, run);
        sleep_ms((seed >> 16) % 800);
        if (pid > 0) (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(run, NULL, 0), run);
        for (size_t r = 0; r < count; r++) {
            sandbox shard = shard_of(box, r);
            pool_check(&shard);
        }
    }
    learn_by_ranks(box, count, "");
    same_roots(box, count, &expected);
}

// Rank 0 dies between the others' commits and its own: they are an epoch ahead, and go back.
static void ranks_that_are_ahead_step_back(void **state) {
#ifdef REEF_FAIL_POINTS
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_ranks(box, 2);
    assert_int_not_equal(run_two(box, "-x REEF_FAIL_POINT=commit.before_sync:4", ""), 0);
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0) + 1);
    // Rank 1 dies when it has gone back and not committed again: its pool is whole.
    uint64_t counts = epoch_of(box, 0);
    assert_int_not_equal(run_two(box, "", "-x REEF_FAIL_POINT=commit.before_sync:1"), 0);
    sandbox second = shard_of(box, 1);
    assert_int_equal(epoch_of(box, 1), counts);
    pool_check(&second);
    learn_by_ranks(box, 2, "");
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0));
    same_roots(box, 2, &expected);
#else
    (void)state;
    (void)epoch_of;
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

static void a_rank_that_hangs_is_named(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_ranks(box, 2);
    assert_int_equal(setenv("REEF_TEST_RANK_DEADLINE", "3", 1), 0);
    pid_t run = start_ranks(box, 2, "--threads 2");
    assert_int_equal(unsetenv("REEF_TEST_RANK_DEADLINE"), 0);
    pid_t pid = await_rank(box, 1, run);
    assert_true(pid > 0);
    sleep_ms(700);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    ends_with(box, code, "rank 1 has not answered for 3 seconds");
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

// All stand still for longer than the deadline, as on a machine that sleeps: nobody hangs.
static void a_pause_of_all_ranks_is_not_silence(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_ranks(box, 2);
    assert_int_equal(setenv("REEF_TEST_RANK_DEADLINE", "1", 1), 0);
    pid_t run = start_ranks(box, 2, "--threads 2");
    assert_int_equal(unsetenv("REEF_TEST_RANK_DEADLINE"), 0);
    pid_t pids[] = {await_rank(box, 0, run), await_rank(box, 1, run)};
    assert_true(pids[0] > 0 && pids[1] > 0);
    sleep_ms(700);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGSTOP), 0);
    sleep_ms(2500);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGCONT), 0);
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    assert_int_equal(code, 0);
    same_roots(box, 2, &expected);
}

// ---- what does not fit together -----------------------------------------------------------------

static void shards_that_do_not_fit_are_named(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    learn_by_ranks(box, 2, "");
    int code = run_ranks(box, 1, "");
    ends_with(box, code, "rank 0: its shard is one of 2, and 1 ranks were started");
    code = run_ranks(box, 3, "");
    ends_with(box, code, "rank 2: there is no pool at");
    // A copy of another rank's.
    assert_int_equal(
        shell_of("cd %s/many && mv rank-1 ../kept && cp -a rank-0 rank-1", box->directory), 0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool is the shard of rank 0");
    // An ordinary pool in its place.
    assert_int_equal(
        shell_of("cd %s/many && rm -r rank-1 && cp -a %s rank-1", box->directory, box->pool), 0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool is not a shard, but rank 0's is");
    // A backup, while the others went on.
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && cp -a ../kept rank-1", box->directory),
                     0);
    append_noise(box->text, NOISE_BYTES, 9);
    learn_by_ranks(box, 2, "");
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && mv ../kept rank-1", box->directory),
                     0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its shard is stale, of epoch");
    // Of another training.
    assert_int_equal(shell_of("mv %s/many/rank-1 %s/other", box->directory, box->directory), 0);
    make_ranks(box, 2);
    learn_by_ranks(box, 2, "");
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && mv ../other rank-1", box->directory),
                     0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its shard is of another pool than rank 0's");
}

// Another number of ranks: copies of one shard go on as a new training.
static void copies_of_a_shard_begin_anew(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    learn_by_ranks(box, 2, "");
    append_noise(box->text, NOISE_BYTES, 9);
    reef_commit expected = alone(box);
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && cp -a rank-0 rank-1 && "
                              "cp -a rank-0 rank-2",
                              box->directory),
                     0);
    int code = run_ranks(box, 3, "");
    ends_with(box, code, "rank 0: its shard is one of 2");
    learn_by_ranks(box, 3, "--new-shards");
    same_roots(box, 3, &expected);
    learn_by_ranks(box, 3, "");
    assert_int_equal(shell_of("cd %s/many && cp -a %s other && rm -r rank-2 && mv other rank-2",
                              box->directory, box->pool),
                     0);
    code = run_ranks(box, 3, "--new-shards");
    ends_with(box, code, "rank 2: its pool is at step 0");
}

static void pools_that_are_not_equal_are_named(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    sandbox second = shard_of(box, 1);
    assert_int_equal(
        shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, second.pool, box->text), 0);
    int code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool is at step");
    // Of another model.
    make_pool(box, 0.5f);
    assert_int_equal(
        shell_of("cd %s/many && rm -r rank-1 && cp -a %s rank-1", box->directory, box->pool), 0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool has another configuration");
}

static void programs_that_differ_are_named(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    int code = run_two(box, "", "-x REEF_ISA=scalar");
    ends_with(box, code, "rank 1: it computes with kernels scalar");
}

static void more_ranks_than_windows(void **state) {
    sandbox *box = *state;
    make_ranks(box, 5);
    int code = run_ranks(box, 5, "");
    ends_with(box, code, "rank 4 has no work: a step of this model has 4 windows");
}

static void a_shard_is_not_trained_alone(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    learn_by_ranks(box, 2, "");
    int code = shell_of("%s --pool %s/many --source %s " QUICK " 2>%s", REEFD_PATH, box->directory,
                        box->text, box->messages);
    ends_with(box, code, "holds shards, rank-0 to rank-1: start mpirun -n 2 reefd --pool");
    code = shell_of("%s --pool %s/many/rank-1 --source %s " QUICK " 2>%s", REEFD_PATH,
                    box->directory, box->text, box->messages);
    ends_with(box, code, "is the shard of rank 1 of 2: train it with mpirun -n 2");
}

// A disk that is full, on one rank: its files may not grow.
static void a_full_disk_on_one_rank(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    int code = shell_of(MPIRUN " -n 1 %s --pool %s/many --source %s " QUICK
                               " : -n 1 sh -c 'ulimit -f 1500; trap \"\" XFSZ; exec %s --pool "
                               "%s/many --source %s " QUICK "' 2>%s",
                        REEFD_PATH, box->directory, box->text, REEFD_PATH, box->directory,
                        box->text, box->messages);
    ends_with(box, code, "rank 1: its commit failed");
    reef_commit expected = alone_once(box);
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

// ---- the judgement by itself: what two builds are needed for ------------------------------------

static void versions_that_differ_are_named(void **state) {
    (void)state;
    reef_error err;
    bool back[3];
    reef_crew_card cards[3] = {{.card_bytes = sizeof(reef_crew_card)}};
    for (size_t r = 0; r < 3; r++) {
        cards[r] = cards[0];
        strcpy(cards[r].version, r == 2 ? "9.9.9" : "1.0.0");
        cards[r].stream_bytes = r == 2 ? 5 : 0; // of a version that may mean something else
    }
    assert_int_equal(reef_crew_judge(cards, 3, back, &err), REEF_ERR_VERSION);
    assert_non_null(strstr(err.message, "rank 2: it runs reefd 9.9.9, rank 0 runs 1.0.0"));
    strcpy(cards[2].version, "1.0.0");
    cards[2].stream_bytes = 0;
    assert_int_equal(reef_crew_judge(cards, 3, back, &err), REEF_OK);
    // Two commits ahead cannot be: rank 0's was put back from a backup.
    for (size_t r = 0; r < 3; r++) {
        cards[r].is_shard = 1;
        cards[r].shard = (reef_shard){.rank = (uint32_t)r, .count = 3, .epoch = r == 1 ? 6 : 4};
    }
    assert_int_equal(reef_crew_judge(cards, 3, back, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "rank 1: its shard is of epoch 6, and rank 0's is stale"));
    cards[1].shard.epoch = 5;
    cards[1].root[0] = 1;
    assert_int_equal(reef_crew_judge(cards, 3, back, &err), REEF_OK);
    assert_false(back[0] || back[2]);
    assert_true(back[1]);
    cards[1].shard.epoch = 4;
    assert_int_equal(reef_crew_judge(cards, 3, back, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "rank 1: the root of its pool is"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(the_root_is_that_of_one_process),
        SET_UP(killed_ranks_go_on),
        SET_UP(ranks_that_are_ahead_step_back),
        SET_UP(a_rank_that_hangs_is_named),
        SET_UP(a_pause_of_all_ranks_is_not_silence),
        SET_UP(shards_that_do_not_fit_are_named),
        SET_UP(copies_of_a_shard_begin_anew),
        SET_UP(pools_that_are_not_equal_are_named),
        SET_UP(programs_that_differ_are_named),
        SET_UP(more_ranks_than_windows),
        SET_UP(a_shard_is_not_trained_alone),
        SET_UP(a_full_disk_on_one_rank),
        cmocka_unit_test(versions_that_differ_are_named),
    };
    // MPI's own leaks, and the order of its locks, are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
