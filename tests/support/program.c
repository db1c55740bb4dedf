// See program.h. Output goes through files, so no program can block on a full pipe.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // nftw

#include "program.h"
#include "test.h"

#include <ftw.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *read_back(FILE *file) {
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    assert_true(bytes >= 0);
    rewind(file);
    char *text = keep(calloc((size_t)bytes + 1, 1));
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), (size_t)bytes);
    fclose(file);
    return text;
}

// Not fork(): under sanitizers a copy of this process costs more than the program's start.
static pid_t start(const char *const *argv, FILE *in, FILE *out, FILE *err) {
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fileno(in), STDIN_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fileno(err), STDERR_FILENO), 0);
    assert_int_equal(posix_spawn(&child, argv[0], &actions, NULL, (char *const *)argv, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    return child;
}

void program_run(program *p, const char *const *argv, const char *input) {
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    assert_true(in && out && err);
    if (input != NULL) assert_true(fputs(input, in) >= 0);
    rewind(in);
    fflush(NULL);
    pid_t child = start(argv, in, out, err);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    fclose(in);
    p->out = read_back(out);
    p->err = read_back(err);
}

size_t line_count(const char *text) {
    size_t count = 0;
    for (const char *c = text; *c; c++) count += *c == '\n' || c[1] == '\0';
    return count;
}

char *test_directory_new(void) {
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || !parent[0]) parent = "/tmp";
    size_t bytes = strlen(parent) + sizeof("/reef-test-XXXXXX");
    char *path = keep(calloc(bytes, 1));
    assert_non_null(path);
    snprintf(path, bytes, "%s/reef-test-XXXXXX", parent);
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    return remove(path);
}

void test_directory_remove(char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
