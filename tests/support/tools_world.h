// A trained pool, texts, and `reef` run on them as a user runs it: what tests of the tool begin
// with.
#ifndef TOOLS_WORLD_H
#define TOOLS_WORLD_H

#include "cli.h"
#include "json_at.h"
#include "program.h"
#include "test.h"
#include "tiny_pool.h"

#include <sys/stat.h>

#define ARGUMENTS_MAX 48

// Made once: a directory with a trained pool and texts. Tests that change a pool make their own.
typedef struct world {
    char *directory;
    char *pool, *english, *code, *empty, *missing, *not_a_pool;
} world;

/** A test of a file whose last line makes the world. */
#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, world *w)

/** Kept, as all that these functions return. */
static inline char *formatted(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    text = keep(calloc((size_t)length + 1, 1));
    assert_true(text != NULL && vsnprintf(text, (size_t)length + 1, format, arguments) == length);
    va_end(arguments);
    return text;
}

static inline char *path_in(const char *directory, const char *name) {
    return formatted("%s/%s", directory, name);
}

static inline void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// The command line of reef with `first` and what follows it, up to a NULL; how many words.
static inline size_t words_of(const char **argv, const char *first, va_list rest) {
    size_t count = 0;
    argv[count++] = REEF_BINARY;
    for (const char *word = first; word != NULL; word = va_arg(rest, const char *)) {
        assert_true(count + 2 < ARGUMENTS_MAX);
        argv[count++] = word;
    }
    argv[count] = argv[count + 1] = NULL;
    return count;
}

// Run reef with the arguments up to a NULL.
static inline program reef(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX];
    program p;
    va_list arguments;
    va_start(arguments, first);
    words_of(argv, first, arguments);
    va_end(arguments);
    program_run(&p, argv, NULL);
    return p;
}

// The same, which must end with this code and print this, on whichever output.
static inline program answers(int code, const char *says, const char *first, ...) {
    const char *argv[ARGUMENTS_MAX];
    program p;
    va_list arguments;
    va_start(arguments, first);
    words_of(argv, first, arguments);
    va_end(arguments);
    program_run(&p, argv, NULL);
    if (p.code != code || (strstr(p.out, says) == NULL && strstr(p.err, says) == NULL))
        fail_msg("reef %s: exit %d, not %d with '%s': %s%s", first, p.code, code, says, p.out,
                 p.err);
    return p;
}

// Whether this CPU runs the kernels of that name; says so where it does not.
static inline bool isa_runs_here(const char *isa) {
    program p;
    char *name = formatted("REEF_ISA=%s", isa);
    const char *const argv[] = {"/usr/bin/env", name, REEF_BINARY, "version", NULL};
    program_run(&p, argv, NULL);
    bool runs = p.code == 0;
    if (!runs) print_message("left out: %s", p.err);
    return runs;
}

// Run reef, which must succeed, and parse what must be one JSON document.
static inline json_t *reef_json(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX];
    va_list arguments;
    va_start(arguments, first);
    size_t count = words_of(argv, first, arguments);
    va_end(arguments);
    argv[count] = "--json";
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", first, p.code, p.err);
    assert_string_equal(p.err, "");
    return json_of_text(p.out);
}

static inline void make_pool(const char *path) {
    (void)answers(0, "", "init", path, TINY_OPTIONS, NULL);
}

// A pool of this name, trained as the world's.
static inline char *trained_pool(const world *w, const char *name) {
    char *pool = path_in(w->directory, name);
    make_pool(pool);
    tiny_pool_train(pool);
    return pool;
}

static inline bool is_sound(const char *pool) {
    return is_true(reef_json("verify", pool, NULL), "sound");
}

static inline int world_make(void **state) {
    unsetenv("REEF_POOL");
    world *w = keep(reef_cli_alloc(1, sizeof(*w)));
    w->directory = test_directory_new();
    w->pool = path_in(w->directory, "pool");
    w->english = path_in(w->directory, "english.txt");
    w->code = path_in(w->directory, "code.c");
    w->empty = path_in(w->directory, "empty");
    w->missing = path_in(w->directory, "missing");
    w->not_a_pool = path_in(w->directory, "not-a-pool");
    (void)trained_pool(w, "pool");
    char *english = tiny_text("english", 400), *code = tiny_text("c", 300);
    write_file(w->english, english);
    write_file(w->code, code);
    write_file(w->empty, "");
    assert_int_equal(mkdir(w->not_a_pool, 0700), 0);
    *state = w;
    return 0;
}

static inline int world_remove(void **state) {
    const world *w = *state;
    test_directory_remove(w->directory);
    return 0;
}

static inline void expect_keys(const json_t *document, const char *keys) {
    char *rest = formatted("%s", keys);
    for (char *key; (key = strtok_r(rest, " ", &rest)) != NULL;)
        if (json_object_get(document, key) == NULL) fail_msg("%s is missing", key);
}

#endif
