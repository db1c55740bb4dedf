// Starting ranks under mpirun as a child of a test.
#ifndef RANKS_SPAWN_H
#define RANKS_SPAWN_H

#include "reefd_run.h"
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Ranks of one test share two cores with others.
#define MPIRUN MPIRUN_PATH " --oversubscribe --allow-run-as-root --bind-to none"

enum { SHELL_COMMAND_BYTES = 8192 };

static inline int shell_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int shell_of(const char *format, ...) {
    char command[SHELL_COMMAND_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_in_range(length, 1, sizeof(command) - 1);
    int code = system(command);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

// Where the program's first sandbox was: a root hash has the paths of sources, and is that of one
// process in another test only where these are equal.
static inline void sandbox_make_again(sandbox *box) {
    static sandbox first;
    if (first.directory[0] == '\0')
        sandbox_make(&first);
    else
        assert_int_equal(mkdir(first.directory, 0700), 0);
    *box = first;
}

// DIR/rank-0 .. of the sandbox's pool as it is now.
static inline void make_ranks(const sandbox *box, size_t count) {
    assert_int_equal(shell_of("rm -rf %s/many; mkdir %s/many", box->directory, box->directory), 0);
    for (size_t r = 0; r < count; r++)
        assert_int_equal(shell_of("cp -a %s %s/many/rank-%zu", box->pool, box->directory, r), 0);
}

static inline sandbox shard_of(const sandbox *box, size_t rank) {
    sandbox shard = *box;
    snprintf(shard.pool, sizeof(shard.pool), "%.100s/many/rank-%zu", box->directory, rank);
    return shard;
}

/** Runs a shell command that starts the ranks of the sandbox's pool `many`; the child's id. */
static inline pid_t ranks_spawn(const sandbox *box, size_t count, const char *command) {
    // Locks of the run before are read by nobody.
    for (size_t r = 0; r < count; r++)
        (void)shell_of(": > %s/many/rank-%zu/writer.lock", box->directory, r);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

#endif
