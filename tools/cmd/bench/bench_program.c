// See bench_program.h.
#include "bench_program.h"

#include "cli_alloc.h"
#include "cli_format.h"
#include "reef_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_BYTES_MAX 65536
#define SECONDS_MAX 1800.0 // then it is stopped
#define POLL_MS 1000

extern char **environ;

// ---- the process --------------------------------------------------------------------------------

// Standard output and error go into the pipe.
static int spawn_program(pid_t *child, char **arguments, int pipe_fds[2]) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    // The child gets no input: a program that waits for some ends at once.
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    // Both outputs go into one pipe, so that an error message is read in the order it was printed.
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
    // Without closing its own copies the child would keep the pipe open, and the end of file would
    // never come.
    if (!error) error = posix_spawn_file_actions_addclose(&actions, pipe_fds[0]);
    if (!error) error = posix_spawn_file_actions_addclose(&actions, pipe_fds[1]);
    if (!error) error = posix_spawnp(child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// Everything until the other end is closed, cut to the buffer. False when time is up.
static bool collect_output(int fd, char out[OUTPUT_BYTES_MAX]) {
    double deadline = reef_seconds() + SECONDS_MAX;
    size_t count = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (reef_seconds() < deadline) {
        // Wait in short steps, so that the deadline is seen even while the program prints nothing.
        if (poll(&ready, 1, POLL_MS) <= 0) continue;
        char chunk[4096];
        ssize_t got = read(fd, chunk, sizeof(chunk));
        // A signal to this process is not the end of the program.
        if (got < 0 && errno == EINTR) continue;
        // The other end is closed: the program has ended, or closed its output.
        if (got <= 0) {
            out[count] = '\0';
            return true;
        }
        // What does not fit is read and dropped, as a full pipe would stop the program.
        size_t room = OUTPUT_BYTES_MAX - 1 - count;
        size_t kept = (size_t)got < room ? (size_t)got : room;
        memcpy(out + count, chunk, kept);
        count += kept;
    }
    out[count] = '\0';
    return false;
}

static int wait_for_program(pid_t child) {
    int end = 0;
    while (waitpid(child, &end, 0) < 0 && errno == EINTR) {
    }
    return end;
}

// ---- its end ------------------------------------------------------------------------------------

char *reef_bench_last_words(const char *text) {
    size_t end = strlen(text);
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r')) end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    return reef_cli_printable((const uint8_t *)text + begin, end - begin, false);
}

// What a reefd below it said, which ended as well: its message, on the heap, or NULL.
static char *daemon_error(const char *text) {
    static const char START[] = "{\"event\":\"error\"";
    const char *at = strstr(text, START);
    json_t *event = at == NULL ? NULL : json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    const char *message = json_string_value(json_object_get(event, "message"));
    char *line = message == NULL
                     ? NULL
                     : reef_cli_printable((const uint8_t *)message, strlen(message), false);
    json_decref(event);
    return line;
}

static reef_status failure(const char *name, int end, const char *text, reef_error *err) {
    if (WIFSIGNALED(end))
        return reef_fail(err, REEF_ERR_IO, "%.100s was ended by signal %d", name, WTERMSIG(end));
    // The last line of most programs that fail names the cause.
    char *line = daemon_error(text);
    if (line == NULL) line = reef_bench_last_words(text);
    reef_fail(err, REEF_ERR_IO, "%.80s ended with code %d: %.120s", name, WEXITSTATUS(end), line);
    free(line);
    return REEF_ERR_IO;
}

reef_status reef_bench_program_run(char **text,
                                   const char *name,
                                   char **arguments,
                                   reef_error *err) {
    *text = NULL;
    int fds[2];
    if (pipe(fds) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child;
    int error = spawn_program(&child, arguments, fds);
    // Before anything else: an open write end here would keep the reader from seeing the end of
    // file.
    close(fds[1]);
    if (error) {
        close(fds[0]);
        return reef_fail(err, error == ENOENT ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                         "cannot run %.160s: %s", arguments[0], strerror(error));
    }
    // A fixed limit: a program that prints without end costs no more memory than this.
    char *output = reef_cli_alloc(OUTPUT_BYTES_MAX, 1);
    bool in_time = collect_output(fds[0], output);
    close(fds[0]);
    // A program that hangs is ended, so that the benchmark always comes to an end.
    if (!in_time) kill(child, SIGKILL);
    // The child is waited for in every case, so that no zombie is left behind.
    int end = wait_for_program(child);
    reef_status status = REEF_OK;
    if (!in_time)
        status = reef_fail(err, REEF_ERR_IO, "%.120s took more than %.0f s and was stopped", name,
                           SECONDS_MAX);
    // A program that failed may have printed figures before; they are not taken.
    else if (!WIFEXITED(end) || WEXITSTATUS(end) != 0)
        status = failure(name, end, output, err);
    if (status == REEF_OK)
        *text = output;
    else
        free(output);
    return status;
}
