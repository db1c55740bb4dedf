// Running a program as a user would, with everything it says captured.
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stddef.h>

/** What a program did; its texts stay. */
typedef struct program {
    int code; // exit code, or 128 + the signal that ended it
    char *out, *err;
} program;

/**
 * Run `argv` (argv[0] is a path, a NULL ends it) to its end, with `input` on standard input (NULL
 * for nothing). Fails the running test when the program cannot be started.
 */
void program_run(program *p, const char *const *argv, const char *input);

/** Lines of a text; a last line without an end counts. */
size_t line_count(const char *text);

/** A directory of the test's own below TMPDIR; the path stays. */
char *test_directory_new(void);
/** Remove it with everything inside. */
void test_directory_remove(char *path);

#endif
