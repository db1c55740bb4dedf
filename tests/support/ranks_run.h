// reefd on several ranks, as people start it with mpirun: on the pools DIR/many/rank-0 and so on.
#ifndef RANKS_RUN_H
#define RANKS_RUN_H

#include "reef_shard.h"
#include "reefd_run.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Ranks of one test share two cores with others.
#define MPIRUN MPIRUN_PATH " --oversubscribe --allow-run-as-root --bind-to none"
// One thread where a test does not say more: a second one for so small a model only waits.
#define QUICK "--quiet --commit-steps 10 --threads 1"

enum { RANKS_COMMAND_BYTES = 8192, RANKS_WAIT_MS = 20, RANKS_WAITS_MAX = 3000 }; // a minute

/** The exit code of a shell's command line; -1: a signal. */
static inline int shell_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int shell_of(const char *format, ...) {
    char command[RANKS_COMMAND_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_in_range(length, 1, sizeof(command) - 1);
    int code = system(command);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/** It has to go well. */
#define shell(...) assert_int_equal(shell_of(__VA_ARGS__), 0)

// Where the program's first sandbox was: a root hash has the paths of sources, and is that of one
// process in another test only where these are equal. The test runs there, and its shell knows
// $REEF and $REEFD.
static inline void sandbox_make_again(sandbox *box) {
    static sandbox first;
    if (first.directory[0] == '\0')
        sandbox_make(&first);
    else
        assert_int_equal(mkdir(first.directory, 0700), 0);
    *box = first;
    assert_int_equal(chdir(box->directory), 0);
    assert_int_equal(setenv("REEFD", REEFD_PATH, 1), 0);
#ifdef REEF_BINARY
    assert_int_equal(setenv("REEF", REEF_BINARY, 1), 0);
#endif
}

/** Something like this is nowhere in the sandbox. */
static inline void is_not_there(const char *name) {
    if (access(name, F_OK) == 0) fail_msg("%s is there", name);
}

// ---- pools --------------------------------------------------------------------------------------

static inline sandbox pool_in(const sandbox *box, const char *name) {
    sandbox other = *box;
    snprintf(other.pool, sizeof(other.pool), "%.100s/%s", box->directory, name);
    return other;
}

static inline sandbox shard_of(const sandbox *box, size_t rank) {
    char name[32];
    snprintf(name, sizeof(name), "many/rank-%zu", rank);
    return pool_in(box, name);
}

/** One more directory, of pools as they are when it is first asked for. */
typedef struct mould {
    sandbox box; // "": there is none yet
} mould;

static inline bool mould_is_made(const mould *m) {
    return m->box.directory[0] != '\0';
}

static inline void mould_keep(mould *m, const char *name) {
    if (!mould_is_made(m)) sandbox_make(&m->box);
    shell("cp -a %s %s", name, m->box.directory);
}

static inline void mould_take(const mould *m, const char *name) {
    shell("rm -rf %s && cp -a %s/%s .", name, m->box.directory, name);
}

static inline void mould_discard(mould *m) {
    if (mould_is_made(m)) sandbox_remove(&m->box);
}

// ---- a run --------------------------------------------------------------------------------------

/** What one rank runs beyond the others: `before` reefd, and after its options. */
typedef struct special {
    size_t rank;
    const char *before, *more;
} special;

/** Does each rank read a file of its own, and not all the sandbox's text? */
static bool ranks_are_apart;

static inline char *source_of(const sandbox *box, size_t rank, char out[256]) {
    if (ranks_are_apart)
        snprintf(out, 256, "%s/text-%zu", box->directory, rank);
    else
        snprintf(out, 256, "%s", box->text);
    return out;
}

/** `more`: options of all ranks; `one` may be NULL. */
static inline void command_of(const sandbox *box,
                              size_t count,
                              const char *more,
                              const special *one,
                              char out[RANKS_COMMAND_BYTES]) {
    char source[256];
    size_t used = (size_t)snprintf(out, RANKS_COMMAND_BYTES, "exec " MPIRUN);
    for (size_t r = 0; r < count; r++) {
        special here = one != NULL && one->rank == r ? *one : (special){0};
        used += (size_t)snprintf(out + used, RANKS_COMMAND_BYTES - used,
                                 "%s -n 1 %s %s --pool %s/many --source %s " QUICK " %s %s",
                                 r > 0 ? " :" : "", here.before != NULL ? here.before : "",
                                 REEFD_PATH, box->directory, source_of(box, r, source), more,
                                 here.more != NULL ? here.more : "");
        assert_true(used < RANKS_COMMAND_BYTES);
    }
    used += (size_t)snprintf(out + used, RANKS_COMMAND_BYTES - used, " 2>%s", box->messages);
    assert_true(used < RANKS_COMMAND_BYTES);
}

/** Run to the end; what was said on standard error is in box->messages. */
static inline int run_special(const sandbox *box,
                              size_t count,
                              const char *more,
                              const special *one) {
    char command[RANKS_COMMAND_BYTES];
    command_of(box, count, more, one, command);
    return shell_of("%s", command);
}

static inline int run_ranks(const sandbox *box, size_t count, const char *more) {
    return run_special(box, count, more, NULL);
}

static inline void goes_well(const sandbox *box, int code) {
    if (code != 0) fail_msg("the ranks ended with %d: %s", code, read_text(box->messages, NULL));
}

static inline void learn_by_ranks(const sandbox *box, size_t count, const char *more) {
    goes_well(box, run_ranks(box, count, more));
}

/** One process alone on a pool of the sandbox. */
static inline reef_commit learn_alone(const sandbox *box, const char *name, const char *text) {
    sandbox one = pool_in(box, name);
    shell("$REEFD --pool %s --source %s " QUICK, one.pool, text);
    return pool_commit(&one);
}

/** One message, which names the rank, and the end of all ranks. */
static inline void ends_with(const sandbox *box, int code, const char *words) {
    char *text = read_text(box->messages, NULL);
    if (strstr(text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, text);
    if (times_in(text, "reefd: ") != 1) fail_msg("more than one message: %s", text);
    assert_int_not_equal(code, 0);
}

// ---- a run in the background --------------------------------------------------------------------

static inline pid_t start_ranks(const sandbox *box,
                                size_t count,
                                const char *more,
                                const special *one) {
    char command[RANKS_COMMAND_BYTES];
    command_of(box, count, more, one, command);
    // Locks of the run before are read by nobody.
    for (size_t r = 0; r < count; r++) (void)shell_of(": >many/rank-%zu/writer.lock", r);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
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

/** The id of its process; 0: the run ended before. */
static inline pid_t await_rank(const sandbox *box, size_t rank, pid_t run) {
    for (int i = 0; i < RANKS_WAITS_MAX; i++, sleep_ms(RANKS_WAIT_MS)) {
        pid_t pid = rank_pid(box, rank);
        if (pid > 0) return pid;
        if (waitpid(run, NULL, WNOHANG | WNOWAIT) == run) break;
    }
    return 0;
}

static inline void signal_rank(
    const sandbox *box, size_t rank, pid_t run, unsigned after_ms, int signal) {
    pid_t pid = await_rank(box, rank, run);
    sleep_ms(after_ms);
    if (pid > 0) (void)kill(pid, signal);
}

static inline int end_of(pid_t run) {
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/** Ranks of MPI leak and lock as MPI likes. */
static inline void leave_mpi_to_itself(void) {
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
}

#endif
