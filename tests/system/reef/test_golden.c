// The golden pool: this version opens it, finds it sound, computes what it computed, trains on, and
// expands the archives that were made of it.
#include "tools_world.h"

#include <math.h>
#include <unistd.h>
#include <zlib.h>

#define DATA REEF_TEST_DATA_DIR "/"
#define SAME 2e-4 // other kernels round otherwise

typedef struct golden {
    char *directory, *pool;
} golden;

// Unpack the data file into the directory of a pool.
static golden unpack(void) {
    golden g = {.directory = test_directory_new()};
    g.pool = path_in(g.directory, "pool");
    assert_int_equal(mkdir(g.pool, 0700), 0);
    char *to = path_in(g.pool, "data.mdb");
    gzFile in = gzopen(DATA "pool.mdb.gz", "rb");
    FILE *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    static char buffer[65536];
    for (int count; (count = gzread(in, buffer, sizeof(buffer))) != 0;) {
        assert_true(count > 0);
        assert_int_equal(fwrite(buffer, 1, (size_t)count, out), (size_t)count);
    }
    assert_int_equal(gzclose(in), Z_OK);
    assert_int_equal(fclose(out), 0);
    return g;
}

static void remove_golden(golden *g) {
    test_directory_remove(g->directory);
}

static void expect_sound(const golden *g, json_int_t records, const char *root) {
    json_t *report = reef_json("verify", g->pool, NULL);
    assert_true(is_true(report, "sound"));
    assert_int_equal(integer(report, "records"), records);
    assert_string_equal(string(report, "root"), root);
}

static void expect_figure(
    const golden *g, const char *as_of, const char *file, const char *figure, double wanted) {
    json_t *document = reef_json("eval", g->pool, "--as-of", as_of, file, NULL);
    double found = number(json_at(document, "files.0"), figure);
    if (!(fabs(found - wanted) <= SAME))
        fail_msg("%s as of %s: %.6f instead of %.6f", file, as_of, found, wanted);
}

static json_t *expected_document(void) {
    json_error_t fault;
    json_t *expected = json_load_file(DATA "pool.json", 0, &fault);
    if (expected == NULL) fail_msg("%s", fault.text);
    return keep(expected);
}

static void expect_figures(const golden *g, bool now) {
    json_t *expected = expected_document(), *figures, *states;
    const char *state, *name;
    json_t *bits;
    states = json_at(expected, "bits_per_byte");
    size_t count = 0;
    json_object_foreach(states, state, figures) json_object_foreach(figures, name, bits) {
        if (!now && strcmp(state, "now") == 0) continue;
        char *path = formatted(DATA "%s", name);
        expect_figure(g, state, path, "bits_per_byte", json_number_value(bits));
        count++;
    }
    assert_int_equal(count, now ? 6 : 4);
}

static void run_shell(const golden *g, const char *isa, const char *line) {
    char *script = formatted("cd '%s' && export REEF='%s' REEF_ISA='%s' && %s", g->directory,
                             REEF_BINARY, isa, line);
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("%s with %s: exit %d: %s%s", line, isa, p.code, p.out, p.err);
}

// To the last bit: an archive is all that memories predict, bit for bit.
static void expect_archives(const golden *g) {
    static const char *const ISAS[] = {"scalar", "avx2", "avx512"};
    static const char LINE[] = "for t in words.txt digits.txt; do "
                               "$REEF expand pool " DATA "$t.reef -o back --force && "
                               "cmp back " DATA "$t && "
                               "$REEF compress pool " DATA "$t --as-of kept -o again --force && "
                               "cmp again " DATA "$t.reef || exit 1; done";
    for (size_t i = 0; i < sizeof(ISAS) / sizeof(ISAS[0]); i++)
        if (isa_runs_here(ISAS[i])) run_shell(g, ISAS[i], LINE);
}

PLAIN_TEST(it_has_its_kinds_and_computes_what_it_computed) {
    golden g = unpack();
    json_t *expected = expected_document(), *found = reef_json("kind", "list", g.pool, NULL);
    expect_sound(&g, integer(expected, "records"), string(expected, "root"));
    assert_true(json_equal(json_at(found, "kinds"), json_at(expected, "kinds")));
    expect_figures(&g, true);
    expect_archives(&g);
    remove_golden(&g);
}

PLAIN_TEST(it_learns_on_and_expands_its_archives) {
    golden g = unpack();
    program p = reef("train", g.pool, DATA "digits.txt", "--commit-steps", "1", NULL);
    assert_int_equal(p.code, 0);
    p = reef("seal", g.pool, NULL);
    assert_int_equal(p.code, 0);
    expect_figures(&g, false);
    expect_archives(&g);
    json_t *report = reef_json("verify", g.pool, NULL);
    assert_true(is_true(report, "sound"));
    assert_int_equal(integer(report, "generations"), 3);
    json_t *list = reef_json("kind", "list", g.pool, "digits", NULL),
           *kind = json_at(list, "kinds.0");
    assert_int_equal(integer(kind, "kind"), 1);
    remove_golden(&g);
}

RUN_TESTS
