// Starting ranks under mpirun as a child of a test.
#ifndef RANKS_SPAWN_H
#define RANKS_SPAWN_H

#include "reefd_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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
