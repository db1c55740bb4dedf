// One delivery to a command; see alarms_internal.h. Its standard input and standard error are files
// in memory: a command that does not read, or leaves a child behind, keeps nobody waiting.
#define _GNU_SOURCE // memfd_create
#include "alarms_internal.h"

#include "reef_json_build.h"
#include "reef_log.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20
#define SAID_BYTES 160

extern char **environ;

static reef_status fail_system(const char *doing, int code, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot %s for the alarm command: %s", doing,
                     strerror(code));
}

static reef_status write_input(const alarm_delivery *delivery, int fd, reef_error *err) {
    char *text = json_dumps(delivery->incident, JSON_COMPACT | REEF_JSON_DIGITS);
    if (text == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an alarm");
    const size_t bytes = strlen(text);
    text[bytes] = '\n'; // over the final zero
    bool whole = write(fd, text, bytes + 1) == (ssize_t)bytes + 1 && lseek(fd, 0, SEEK_SET) == 0;
    free(text);
    return whole ? REEF_OK : fail_system("write an incident", errno, err);
}

// In a process group of its own, and with the signals that reefd ignores as usual again.
static int start(pid_t *pid, const char *command, int input, int errors) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t usual, none;
    char *const arguments[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    (void)sigfillset(&usual);
    (void)sigemptyset(&none);
    int code = posix_spawn_file_actions_init(&files);
    if (code != 0) return code;
    code = posix_spawnattr_init(&how);
    if (code == 0) {
        code = posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
        if (code == 0)
            code =
                posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        if (code == 0) code = posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
        if (code == 0) code = posix_spawnattr_setsigdefault(&how, &usual);
        if (code == 0) code = posix_spawnattr_setsigmask(&how, &none);
        if (code == 0)
            code = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                                      POSIX_SPAWN_SETSIGMASK);
        if (code == 0) code = posix_spawn(pid, "/bin/sh", &files, &how, arguments, environ);
        (void)posix_spawnattr_destroy(&how);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return code;
}

// The first line of what it said on standard error, as ": text".
static void read_said(int errors, char said[SAID_BYTES]) {
    char text[SAID_BYTES - 2];
    ssize_t count = pread(errors, text, sizeof(text) - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    snprintf(said, SAID_BYTES, "%s%s", text[0] != '\0' ? ": " : "", text);
}

static reef_status outcome(int how, int errors, reef_error *err) {
    char said[SAID_BYTES];
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return REEF_OK;
    read_said(errors, said);
    if (WIFSIGNALED(how))
        return reef_fail(err, REEF_ERR_IO, "the alarm command was ended by signal %d%s",
                         WTERMSIG(how), said);
    return reef_fail(err, REEF_ERR_IO, "the alarm command ended with %d%s", WEXITSTATUS(how), said);
}

static reef_status wait_for(const alarm_delivery *delivery,
                            pid_t pid,
                            int errors,
                            reef_error *err) {
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    int how = 0;
    for (unsigned waited_ms = 0;; waited_ms += LOOK_MS) {
        pid_t ended = waitpid(pid, &how, WNOHANG);
        if (ended == pid) return outcome(how, errors, err);
        if (ended < 0 && errno != EINTR) return fail_system("wait", errno, err);
        bool given_up = delivery->give_up != NULL && delivery->give_up(delivery->context);
        if (given_up || waited_ms > ALARM_ATTEMPT_SECONDS * 1000u) {
            (void)kill(-pid, SIGKILL); // and what it started
            while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
            }
            return given_up
                       ? reef_fail(err, REEF_ERR_BUSY, "the alarm command was stopped")
                       : reef_fail(err, REEF_ERR_IO, "the alarm command did not end within %d s",
                                   ALARM_ATTEMPT_SECONDS);
        }
        (void)nanosleep(&look, NULL);
    }
}

reef_status alarm_exec(const alarm_delivery *delivery, reef_error *err) {
    pid_t pid = 0;
    int input = memfd_create("incident", MFD_CLOEXEC);
    int errors = memfd_create("errors", MFD_CLOEXEC);
    reef_status status = REEF_OK;
    if (input < 0 || errors < 0) status = fail_system("make files in memory", errno, err);
    if (status == REEF_OK) status = write_input(delivery, input, err);
    if (status == REEF_OK) {
        int code = start(&pid, delivery->to, input, errors);
        status = code != 0 ? fail_system("start a shell", code, err)
                           : wait_for(delivery, pid, errors, err);
    }
    if (input >= 0) (void)close(input);
    if (errors >= 0) (void)close(errors);
    return status;
}
