// Another implementation of what is measured, as a Python script that the user names.
#include "cli_format.h"
#include "lab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define OUTPUT_BYTES_MAX 65536
#define ARGUMENTS_MAX 64

// In the child: the script with its output into the pipe, and no input.
static void become_script(const char *const *arguments, int output) {
    const char *argv[ARGUMENTS_MAX + 2] = {PYTHON};
    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i] != NULL; i++) argv[i + 1] = arguments[i];
    if (dup2(output, STDOUT_FILENO) >= 0 && close(STDIN_FILENO) == 0)
        execv(PYTHON, (char *const *)(void *)argv);
    _exit(127);
}

// All of it is read, what does not fit is dropped: a full pipe would stop the script.
static void collect(int input, char *text) {
    size_t count = 0;
    char chunk[4096];
    for (;;) {
        ssize_t got = read(input, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size_t room = OUTPUT_BYTES_MAX - 1 - count, kept = (size_t)got < room ? (size_t)got : room;
        memcpy(text + count, chunk, kept);
        count += kept;
    }
    text[count] = '\0';
}

reef_status reef_lab_python_run(char **text, const char *const *arguments, reef_error *err) {
    int ends[2], end = 0;
    *text = NULL;
    if (access(arguments[0], R_OK) != 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read %.160s: %s", arguments[0],
                         strerror(errno));
    if (pipe(ends) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become_script(arguments, ends[1]);
    close(ends[1]);
    char *output = reef_cli_alloc(OUTPUT_BYTES_MAX, 1);
    collect(ends[0], output);
    close(ends[0]);
    while (child > 0 && waitpid(child, &end, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && WIFEXITED(end) && WEXITSTATUS(end) == 0) {
        *text = output;
        return REEF_OK;
    }
    free(output);
    return reef_fail(err, REEF_ERR_IO, PYTHON " %.160s failed", arguments[0]);
}
