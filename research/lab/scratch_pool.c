// See scratch_pool.h.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // nftw

#include "scratch_pool.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// Makes meaningless bytes that look like text.
uint8_t *reef_scratch_text(size_t count) {
    static const char LETTERS[] = "etaoinshrdlucmfwypvbgk";
    uint8_t *text = reef_cli_alloc(count, 1);
    uint64_t state = 1;
    size_t word = 0;
    for (size_t i = 0; i < count; i++) {
        // Knuth's MMIX generator: the same text on every machine.
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t draw = state >> 33;
        // Words of 2 to 10 letters, like English.
        bool end = word >= 2 && (draw % 5 == 0 || word == 9);
        text[i] = end ? ' ' : (uint8_t)LETTERS[draw / 5 % (sizeof(LETTERS) - 1)];
        word = end ? 0 : word + 1;
    }
    return text;
}

double reef_proc_bytes(const char *path, const char *field) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    char line[256];
    const size_t length = strlen(field);
    double kilobytes = 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, field, length) == 0 && sscanf(line + length, ": %lf kB", &kilobytes) == 1)
            break;
    fclose(file);
    return 1024 * kilobytes;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_all(const char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

// The guardian process: makes the directory, sends its name, and waits until the other end is
// closed, which the system does for a process that was killed. It has a group of its own, because a
// terminal signals whole groups.
static void guard_directory(int other, char *path) {
    (void)setpgid(0, 0);
    // pkill takes both processes for the same.
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    int why = mkdtemp(path) != NULL ? 0 : errno;
    bool sent = write(other, &why, sizeof(why)) == (ssize_t)sizeof(why) &&
                write(other, path, strlen(path)) == (ssize_t)strlen(path);
    // Nothing is ever sent: the read ends when the other end closes.
    char byte;
    while (sent && read(other, &byte, 1) < 0 && errno == EINTR) {
    }
    if (why == 0) remove_all(path);
    _exit(0);
}

static bool receive(int other, void *out, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t got = read(other, (char *)out + at, bytes - at);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) at += (size_t)got;
    }
    return true;
}

static void await(pid_t guardian) {
    while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR) {
    }
}

// `path` is a template of mkdtemp(), and afterwards the directory.
static reef_status start_guardian(char *path, reef_scratch_directory *out, reef_error *err) {
    int ends[2], why = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pair of sockets: %s", strerror(errno));
    // A baseline that is started must not keep it open.
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    // Otherwise the guardian would print what is buffered again.
    fflush(NULL);
    pid_t guardian = fork();
    if (guardian == 0) {
        close(ends[0]);
        guard_directory(ends[1], path);
    }
    if (guardian < 0) why = errno;
    close(ends[1]);
    // The error number first, then the name, so that a failure has its reason.
    bool made = guardian > 0 && receive(ends[0], &why, sizeof(why)) &&
                receive(ends[0], path, strlen(path)) && why == 0;
    if (made) {
        *out = (reef_scratch_directory){.path = path, .alive = ends[0], .guardian = guardian};
        return REEF_OK;
    }
    close(ends[0]);
    // It has sent its reason, so it ends.
    if (guardian > 0) await(guardian);
    return reef_fail(err, REEF_ERR_IO,
                     "cannot make %.160s: %s; set TMPDIR to a directory that can be written", path,
                     why ? strerror(why) : "the process that would remove it has ended");
}

reef_status reef_scratch_directory_new(reef_scratch_directory *out, reef_error *err) {
    const char *parent = getenv("TMPDIR");
    *out = (reef_scratch_directory){0};
    char *path =
        reef_cli_format("%s/reef-bench-XXXXXX", parent != NULL && parent[0] ? parent : "/tmp");
    reef_status status = start_guardian(path, out, err);
    if (status != REEF_OK) free(path);
    return status;
}

void reef_scratch_directory_remove(reef_scratch_directory *directory) {
    if (directory->path == NULL) return;
    remove_all(directory->path);
    (void)kill(directory->guardian, SIGKILL);
    await(directory->guardian);
    close(directory->alive);
    free(directory->path);
    *directory = (reef_scratch_directory){0};
}
