// A trained pool, texts, and `reef` run on them as a user runs it: what tests of the tool begin
// with.
#ifndef TOOLS_WORLD_H
#define TOOLS_WORLD_H

#include "cli.h"
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

// Run reef, which must succeed, and parse what must be one JSON document. The caller's.
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
    json_error_t fault;
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, &fault);
    if (document == NULL) fail_msg("reef %s: %s in %s", first, fault.text, p.out);
    return keep(document);
}

static inline double number(const json_t *document, const char *name) {
    const json_t *value = json_object_get(document, name);
    if (!json_is_number(value)) fail_msg("%s is no number", name);
    return json_number_value(value);
}

static inline json_int_t integer(const json_t *document, const char *name) {
    const json_t *value = json_object_get(document, name);
    if (!json_is_integer(value)) fail_msg("%s is not an integer", name);
    return json_integer_value(value);
}

static inline double real(const json_t *document, const char *name) {
    return json_real_value(json_object_get(document, name));
}

static inline void make_pool(const char *path) {
    program p = reef("init", path, TINY_OPTIONS, NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
}

static inline int world_make(void **state) {
    unsetenv("REEF_POOL");
    world *w = reef_cli_alloc(1, sizeof(*w));
    w->directory = test_directory_new();
    w->pool = path_in(w->directory, "pool");
    w->english = path_in(w->directory, "english.txt");
    w->code = path_in(w->directory, "code.c");
    w->empty = path_in(w->directory, "empty");
    w->missing = path_in(w->directory, "missing");
    w->not_a_pool = path_in(w->directory, "not-a-pool");
    make_pool(w->pool);
    tiny_pool_train(w->pool);
    char *english = tiny_text("english", 400), *code = tiny_text("c", 300);
    write_file(w->english, english);
    write_file(w->code, code);
    write_file(w->empty, "");
    assert_int_equal(mkdir(w->not_a_pool, 0700), 0);
    *state = w;
    return 0;
}

static inline int world_remove(void **state) {
    world *w = *state;
    test_directory_remove(w->directory);
    free(w);
    return 0;
}

static inline void expect_keys(json_t *document, const char *keys) {
    char *copy = formatted("%s", keys), *rest = NULL;
    for (char *key = strtok_r(copy, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest))
        if (json_object_get(document, key) == NULL) fail_msg("%s is missing", key);
    json_decref(document);
}

#endif
