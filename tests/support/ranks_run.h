// reefd on several ranks, as people start it with mpirun: what its tests share.
#ifndef RANKS_RUN_H
#define RANKS_RUN_H

#include "ranks_spawn.h"
#include "reef_shard.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_COMMAND_BYTES 4096
#define RANKS_WAIT_MS 20
#define RANKS_WAITS_MAX 3000 // for a process to be there: a minute

// One thread where a test does not say more: a second one for so small a model only waits.
#define QUICK "--quiet --commit-steps 10 --threads 1"

#define MARK "=== another kind ===" // a line of the stream where a generation ends

/** A net alone, whose generations end at lines that are MARK. */
static inline void without_memories(reef_config *config) {
    reef_error err;
    config->context_memory = 0;
    config->net_share = 1.0f;
    config->boundaries = REEF_BOUNDARIES_GIVEN;
    assert_int_equal(reef_config_set(config, "boundary_mark", MARK, &err), REEF_OK);
}

static inline void append_mark(const char *path) {
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs("\n" MARK "\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Run to the end; what was said on standard error is in box->messages.
static inline int run_ranks(const sandbox *box, size_t count, const char *more) {
    return shell_of(MPIRUN " -n %zu %s --pool %s/many --source %s " QUICK " %s 2>%s", count,
                    REEFD_PATH, box->directory, box->text, more, box->messages);
}

/** As run_ranks, and nothing goes wrong. */
static inline void learn_by_ranks(const sandbox *box, size_t count, const char *more) {
    int code = run_ranks(box, count, more);
    if (code == 0) return;
    char *text = read_text(box->messages, NULL);
    fail_msg("%zu ranks ended with %d: %s", count, code, text);
}

// Two ranks, and what of its environment is each one's own: "-x NAME=VALUE", or nothing.
static inline int run_two(const sandbox *box, const char *first, const char *second) {
    return shell_of(MPIRUN " -n 1 %s %s --pool %s/many --source %s " QUICK
                           " : -n 1 %s %s --pool %s/many --source %s " QUICK " 2>%s",
                    first, REEFD_PATH, box->directory, box->text, second, REEFD_PATH,
                    box->directory, box->text, box->messages);
}

static inline size_t times_said(const sandbox *box, const char *words) {
    size_t count = 0;
    char *text = read_text(box->messages, NULL);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++) count++;
    return count;
}

// One message, which names the rank, and the end of all ranks.
static inline void ends_with(const sandbox *box, int code, const char *words) {
    char *text = read_text(box->messages, NULL);
    if (strstr(text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, text);
    assert_int_not_equal(code, 0);
    assert_int_equal(times_said(box, "reefd: "), 1);
}

// One process, which has learned what was in the text before, learns what has been added.
static inline reef_commit alone_goes_on(const sandbox *box) {
    sandbox one = *box;
    snprintf(one.pool, sizeof(one.pool), "%.100s/alone", box->directory);
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, one.pool, box->text),
                     0);
    return pool_commit(&one);
}

static inline reef_commit alone(const sandbox *box) {
    assert_int_equal(shell_of("cd %s && rm -rf alone && cp -a %s alone", box->directory, box->pool),
                     0);
    return alone_goes_on(box);
}

// Of the pool and text that every test of a program begins with: learned once.
static inline reef_commit alone_once(const sandbox *box) {
    static reef_commit commit;
    static bool learned;
    if (!learned) commit = alone(box);
    learned = true;
    return commit;
}

static inline void same_roots(const sandbox *box, size_t count, const reef_commit *expected) {
    for (size_t r = 0; r < count; r++) {
        sandbox shard = shard_of(box, r);
        reef_commit found = pool_commit(&shard);
        assert_int_equal(found.stream_bytes, expected->stream_bytes);
        assert_memory_equal(found.root, expected->root, sizeof(found.root));
        pool_check(&shard);
    }
}

// A rank writes its process id into the lock of its pool; 0: it has none yet.
static inline pid_t rank_pid(const sandbox *box, size_t rank) {
    char path[256], text[32] = {0};
    snprintf(path, sizeof(path), "%s/many/rank-%zu/writer.lock", box->directory, rank);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static inline pid_t start_ranks(const sandbox *box, size_t count, const char *more) {
    char command[RANKS_COMMAND_BYTES];
    snprintf(command, sizeof(command),
             "exec " MPIRUN " -n %zu %s --pool %s/many --source %s " QUICK " %s 2>%s", count,
             REEFD_PATH, box->directory, box->text, more, box->messages);
    return ranks_spawn(box, count, command);
}

static inline pid_t await_rank(const sandbox *box, size_t rank, pid_t run) {
    for (int i = 0; i < RANKS_WAITS_MAX; i++, sleep_ms(RANKS_WAIT_MS)) {
        pid_t pid = rank_pid(box, rank);
        if (pid > 0) return pid;
        if (waitpid(run, NULL, WNOHANG | WNOWAIT) == run) break; // it ended before
    }
    return 0;
}

static inline uint64_t epoch_of(const sandbox *box, size_t rank) {
    sandbox at = shard_of(box, rank);
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_shard shard;
    assert_int_equal(reef_store_open(&store, at.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    assert_int_equal(reef_shard_read(txn, &shard, &err), REEF_OK);
    reef_txn_abort(txn);
    reef_store_close(store);
    return shard.epoch;
}

#endif
