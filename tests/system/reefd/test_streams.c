// Ranks that each read sources of their own, which take turns in one training: the root is that of
// one process that reads the same bytes in that order, after any kill too.
#include "ranks_spawn.h"
#include "reef_trainer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3
#define TURN 4096 // bytes; lines of LINE make it full exactly
#define LINE 64
#define KILLS_FEW 4
#define KILLS_MANY 200
#define COMMAND_BYTES 8192
#define WAIT_MS 20
#define WAITS_MAX 3000 // a minute

// Nobody is passed over, however slow this machine is.
#define QUICK "--quiet --commit-steps 10 --scrub-rate 0 --threads 1 --streams each --patience 60"

static const size_t TURNS_OF[RANKS] = {4, 3, 1};

static void ok(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

static void append_lines(const char *path, size_t bytes, uint32_t seed) {
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        if (i % 4 == 0) seed = seed * 1664525u + 1013904223u;
        fputc(i % LINE == LINE - 1 ? '\n' : 'a' + (int)((seed >> (i % 4 * 4 + 8)) % 16), file);
    }
    assert_int_equal(fclose(file), 0);
}

static char *source_of(const sandbox *box, size_t rank, char out[256]) {
    snprintf(out, 256, "%s/text-%zu", box->directory, rank);
    return out;
}

// With steps of four windows, so that ranks have work; long ones, as ranks exchange messages at
// every step.
static void make_pool(const sandbox *box) {
    reef_config config = tiny_config();
    config.layers = 1;
    config.batch = 4;
    config.context = 32;
    config.heads = 1;
    config.drift_share = 0.0f;
    sandbox_make_pool_of(box, &config);
}

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    char path[256];
    sandbox_make(box);
    make_pool(box);
    for (size_t r = 0; r < RANKS; r++)
        append_lines(source_of(box, r, path), TURNS_OF[r] * TURN, (uint32_t)r + 1);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

// Each reads a file of its own, and `rank` something more.
static void command_of(
    const sandbox *box, size_t count, size_t rank, const char *more, char out[COMMAND_BYTES]) {
    char source[256];
    int used = snprintf(out, COMMAND_BYTES, "exec " MPIRUN);
    for (size_t r = 0; r < count; r++) {
        used +=
            snprintf(out + used, COMMAND_BYTES - (size_t)used,
                     "%s -n 1 %s --pool %s/many --source %s " QUICK " %s", r > 0 ? " :" : "",
                     REEFD_PATH, box->directory, source_of(box, r, source), r == rank ? more : "");
        assert_in_range(used, 1, COMMAND_BYTES - 1);
    }
    used += snprintf(out + used, COMMAND_BYTES - (size_t)used, " 2>%s", box->messages);
    assert_in_range(used, 1, COMMAND_BYTES - 1);
}

static pid_t start_ranks(const sandbox *box, size_t count, size_t rank, const char *more) {
    char command[COMMAND_BYTES];
    command_of(box, count, rank, more, command);
    return ranks_spawn(box, count, command);
}

static int end_of(pid_t run) {
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static int run_ranks(const sandbox *box, size_t count, size_t rank, const char *more) {
    return end_of(start_ranks(box, count, rank, more));
}

static void must_end_well(const sandbox *box, int code) {
    if (code == 0) return;
    fail_msg("exit code %d: %s", code, read_text(box->messages, NULL));
}

static void ends_with(const sandbox *box, int code, const char *words) {
    size_t count = 0;
    char *text = read_text(box->messages, NULL);
    if (strstr(text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, text);
    for (const char *at = text; (at = strstr(at, "reefd: ")) != NULL; at++) count++;
    if (count != 1) fail_msg("%zu messages: %s", count, text);
    free(text);
    assert_int_not_equal(code, 0);
}

static pid_t await_rank(const sandbox *box, size_t rank, pid_t run) {
    char path[256], text[32];
    snprintf(path, sizeof(path), "%s/many/rank-%zu/writer.lock", box->directory, rank);
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        memset(text, 0, sizeof(text));
        int fd = open(path, O_RDONLY);
        ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0) close(fd);
        if (got > 0) return (pid_t)strtol(text, NULL, 10);
        if (waitpid(run, NULL, WNOHANG | WNOWAIT) == run) break;
    }
    return 0;
}

// One process that reads the same bytes: a turn of each rank in their order, while it has any.
static reef_commit in_turns_of(const sandbox *box, size_t count, size_t size) {
    reef_error err;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_commit out;
    char name[300], path[256];
    sandbox one = *box;
    snprintf(one.pool, sizeof(one.pool), "%.100s/alone", box->directory);
    assert_int_equal(shell_of("rm -rf %s; cp -a %s %s", one.pool, box->pool, one.pool), 0);
    ok(reef_store_open(&store, one.pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), &err);
    for (size_t turn = 0; turn * size < TURNS_OF[0] * TURN; turn++)
        for (size_t r = 0; r < count; r++) {
            size_t from = turn * size, all = TURNS_OF[r] * TURN;
            if (from >= all) continue;
            size_t bytes = all - from < size ? all - from : size;
            char *text = read_text(source_of(box, r, path), NULL);
            if (r == 0)
                snprintf(name, sizeof(name), "%s", path);
            else
                snprintf(name, sizeof(name), "rank-%zu:%s", r, path);
            ok(reef_trainer_feed(trainer, name, (const uint8_t *)text + from, bytes, NULL, NULL,
                                 &err),
               &err);
            free(text);
        }
    ok(reef_trainer_commit(trainer, &out, &err), &err);
    reef_trainer_close(trainer);
    reef_store_close(store);
    return out;
}

static reef_commit in_turns(const sandbox *box, size_t count) {
    return in_turns_of(box, count, TURN);
}

static void same_roots(const sandbox *box, size_t count, const reef_commit *expected) {
    for (size_t r = 0; r < count; r++) {
        sandbox one = shard_of(box, r);
        reef_commit found = pool_commit(&one);
        assert_int_equal(found.stream_bytes, expected->stream_bytes);
        assert_memory_equal(found.root, expected->root, sizeof(found.root));
        pool_check(&one);
    }
}

static void the_root_is_that_of_one_process_in_turns(void **state) {
    sandbox *box = *state;
    for (size_t count = 1; count <= RANKS; count++) {
        reef_commit expected = in_turns(box, count);
        make_ranks(box, count);
        must_end_well(box, run_ranks(box, count, 1, "--threads 2"));
        same_roots(box, count, &expected);
    }
    // With longer turns it is another order.
    make_ranks(box, RANKS);
    must_end_well(box, run_ranks(box, RANKS, 0, "--turn 8K"));
    reef_commit longer = in_turns_of(box, RANKS, 2 * TURN);
    same_roots(box, RANKS, &longer);
    make_ranks(box, RANKS);
    must_end_well(box, run_ranks(box, RANKS, 0, ""));
    // Nothing is left to read.
    reef_commit expected = in_turns(box, RANKS);
    must_end_well(box, run_ranks(box, RANKS, 0, "--commit-steps 1"));
    same_roots(box, RANKS, &expected);
}

static void killed_ranks_go_on_where_each_stream_was(void **state) {
    sandbox *box = *state;
    reef_commit expected = in_turns(box, RANKS);
    make_ranks(box, RANKS);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 5;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t victim = (seed >> 8) % RANKS;
        pid_t run = start_ranks(box, RANKS, 0, "--commit-steps 3");
        pid_t pid = await_rank(box, victim, run);
        sleep_ms((seed >> 16) % 1000);
        if (pid > 0) (void)kill(pid, SIGKILL);
        (void)end_of(run);
    }
    must_end_well(box, run_ranks(box, RANKS, 0, ""));
    same_roots(box, RANKS, &expected);
}

static int64_t cursors(const json_t *status, const char *part) {
    size_t i;
    json_t *source;
    int64_t bytes = 0;
    json_array_foreach(
        json_object_get(status, "sources"), i,
        source) if (strstr(json_string_value(json_object_get(source, "name")), part) != NULL)
        bytes += json_integer_value(json_object_get(source, "cursor"));
    return bytes;
}

static void await_cursors(const sandbox *box, const char *part, int64_t bytes) {
    sandbox first = shard_of(box, 0);
    int64_t found = -1;
    for (int i = 0; i < WAITS_MAX && found != bytes; i++, sleep_ms(WAIT_MS)) {
        json_t *status = reefd_ask(&first, "{\"command\": \"status\"}");
        found = cursors(status, part);
        json_decref(status);
    }
    assert_int_equal(found, bytes);
}

// A log of rank 1 that has nothing to say does not stop the others, and what it says later is
// learned once, whatever is killed.
static void a_quiet_log_stalls_nobody(void **state) {
    sandbox *box = *state;
    char path[200], more[400];
    int64_t files = 0;
    for (size_t r = 0; r < RANKS; r++) files += (int64_t)(TURNS_OF[r] * TURN);
    snprintf(path, sizeof(path), "%s/quiet.log", box->directory);
    append_lines(path, LINE, 9);
    snprintf(more, sizeof(more), "--patience 0.2 --source follow:%s", path);
    make_ranks(box, RANKS);
    // Patience is rank 0's: the others' does not count.
    char command[COMMAND_BYTES], first[256];
    command_of(box, RANKS, 1, more, command);
    snprintf(first, sizeof(first), "--patience 60");
    for (int round = 0; round < 3; round++) {
        for (char *at = command; (at = strstr(at, first)) != NULL;) memcpy(at, "--patience .2", 13);
        for (size_t r = 0; r < RANKS; r++)
            (void)shell_of(": > %s/many/rank-%zu/writer.lock", box->directory, r);
        pid_t run = fork();
        assert_true(run >= 0);
        if (run == 0) {
            (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
            _exit(127);
        }
        sandbox zero = shard_of(box, 0);
        reefd_await(&zero, run);
        await_cursors(box, "text-", files);
        await_cursors(box, "quiet.log", (int64_t)LINE * (1 + 100 * round));
        append_lines(path, 100 * LINE, 10 + (uint32_t)round);
        await_cursors(box, "quiet.log", (int64_t)LINE * (1 + 100 * (round + 1)));
        json_decref(reefd_ask(&zero, "{\"command\": \"commit\"}"));
        pid_t pid = await_rank(box, (size_t)round, run);
        (void)kill(pid, round < 2 ? SIGKILL : SIGTERM);
        if (round < 2) {
            (void)end_of(run);
            continue;
        }
        // A signal to a rank above 0 is none of its own; rank 0 stops all.
        json_decref(reefd_ask(&zero, "{\"command\": \"stop\"}"));
        must_end_well(box, end_of(run));
    }
    sandbox zero = shard_of(box, 0);
    reef_commit one = pool_commit(&zero);
    same_roots(box, RANKS, &one);
}

static void what_does_not_fit_is_named(void **state) {
    sandbox *box = *state;
    make_ranks(box, 2);
    ends_with(box, run_ranks(box, 2, 1, "--source none/such"), "rank 1: ");
    ends_with(box, run_ranks(box, 2, 1, "--source push:web"),
              "rank 1: the source 'push:web' belongs on rank 0");
    ends_with(box, run_ranks(box, 2, 1, "--source -"), "belongs on rank 0");
    ends_with(box, run_ranks(box, 2, 1, "--streams first"),
              "rank 1: it was started without --streams each");
    ends_with(box, run_ranks(box, 2, 0, "--turn 65K"), "--turn is 66560 bytes; choose 1 to 64K");
    int code = shell_of("%s --pool %s --source %s --streams all 2>%s", REEFD_PATH, box->pool,
                        box->text, box->messages);
    ends_with(box, code, "--streams all: choose first or each");
    code = shell_of("%s --pool %s --source %s --streams each --join-every 1M 2>%s", REEFD_PATH,
                    box->pool, box->text, box->messages);
    ends_with(box, code, "choose one of them");
    // A file that shrank since.
    char path[256];
    reef_commit expected = in_turns(box, 2);
    must_end_well(box, run_ranks(box, 2, 0, ""));
    same_roots(box, 2, &expected);
    assert_int_equal(truncate(source_of(box, 1, path), LINE), 0);
    ends_with(box, run_ranks(box, 2, 0, ""), "rank 1: ");
    same_roots(box, 2, &expected);
}

int main(void) {
    // MPI's own leaks are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_root_is_that_of_one_process_in_turns),
        TEST(killed_ranks_go_on_where_each_stream_was),
        TEST(a_quiet_log_stalls_nobody),
        TEST(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests_name("reefd streams", tests, NULL, NULL);
}
