// Pools of every format that was written: this version opens them, finds them sound, computes what
// they computed, trains on, and expands the archives that were made of them.
#include "tools_world.h"

#include <math.h>
#include <unistd.h>
#include <zlib.h>

#define DATA REEF_TEST_DATA_DIR "/"
#define SAME 2e-4 // other kernels round otherwise

typedef struct golden {
    char *directory, *pool;
} golden;

// Unpack a data file into the directory of a pool.
static golden unpack(const char *name) {
    golden g = {.directory = test_directory_new()};
    g.pool = path_in(g.directory, "pool");
    assert_int_equal(mkdir(g.pool, 0700), 0);
    char *from = reef_cli_format(DATA "%s", name), *to = path_in(g.pool, "data.mdb");
    gzFile in = gzopen(from, "rb");
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
    free(from);
    free(to);
    return g;
}

static void remove_golden(golden *g) {
    test_directory_remove(g->directory);
    free(g->pool);
}

static void expect_sound(const golden *g, json_int_t records, const char *root) {
    json_t *report = reef_json("verify", g->pool, NULL);
    assert_true(json_is_true(json_object_get(report, "sound")));
    assert_int_equal(integer(report, "records"), records);
    assert_string_equal(json_string_value(json_object_get(report, "root")), root);
    json_decref(report);
}

static void expect_figure(
    const golden *g, const char *as_of, const char *file, const char *figure, double wanted) {
    json_t *document = reef_json("eval", g->pool, "--as-of", as_of, file, NULL);
    double found = number(json_array_get(json_object_get(document, "files"), 0), figure);
    if (!(fabs(found - wanted) <= SAME))
        fail_msg("%s as of %s: %.6f instead of %.6f", file, as_of, found, wanted);
    json_decref(document);
}

static void a_language_model_of_version_1_computes_what_it_computed(void **state) {
    (void)state;
    golden g = unpack("pool-v1-text.mdb.gz");
    expect_sound(&g, 144, "611336bb6fe691bf2cfb6b19139e6f9e");
    static const char *const BEFORE[] = {"0", "words"};
    for (size_t i = 0; i < 2; i++) {
        expect_figure(&g, BEFORE[i], DATA "words.txt", "bits_per_byte", 7.788206);
        expect_figure(&g, BEFORE[i], DATA "digits.txt", "bits_per_byte", 8.425853);
    }
    expect_figure(&g, "now", DATA "words.txt", "bits_per_byte", 7.788206);
    expect_figure(&g, "now", DATA "digits.txt", "bits_per_byte", 7.795772);

    json_t *document = reef_json("generations", g.pool, NULL);
    json_t *generations = json_object_get(document, "generations");
    assert_int_equal(json_array_size(generations), 2);
    assert_int_equal(integer(json_array_get(generations, 0), "side"), 4);
    assert_int_equal(integer(json_array_get(generations, 1), "side"), 5);
    json_decref(document);
    document = reef_json("timeline", g.pool, NULL);
    assert_true(json_array_size(json_object_get(document, "events")) >= 6);
    json_decref(document);
    remove_golden(&g);
}

static void a_language_model_of_version_1_learns_on_and_can_be_sealed(void **state) {
    (void)state;
    golden g = unpack("pool-v1-text.mdb.gz");
    program p;
    reef(&p, "train", g.pool, DATA "digits.txt", "--commit-steps", "1", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "seal", g.pool, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    expect_figure(&g, "words", DATA "words.txt", "bits_per_byte", 7.788206);
    json_t *report = reef_json("verify", g.pool, NULL);
    assert_true(json_is_true(json_object_get(report, "sound")));
    assert_int_equal(integer(report, "generations"), 3);
    json_decref(report);
    remove_golden(&g);
}

static void a_vector_model_of_version_1_computes_what_it_computed_and_learns_on(void **state) {
    (void)state;
    golden g = unpack("pool-v1-vectors.mdb.gz");
    expect_sound(&g, 68, "b79eb3df18abc7b928466b3ba0aad33a");
    expect_figure(&g, "0", "csv:" DATA "vectors.csv", "accuracy", 0.5);
    expect_figure(&g, "two", "csv:" DATA "vectors.csv", "accuracy", 0.5);
    expect_figure(&g, "now", "csv:" DATA "vectors.csv", "accuracy", 1);
    program p;
    reef(&p, "train", g.pool, "csv:" DATA "vectors.csv", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    expect_figure(&g, "0", "csv:" DATA "vectors.csv", "accuracy", 0.5);
    remove_golden(&g);
}

// ---- formats 2 and 3 ----------------------------------------------------------------------------

// A format with context memories: names of its files, and the state that its archives are of.
typedef struct format {
    const char *prefix, *pool, *as_of;
} format;

static const format SECOND = {"pool-v2", "pool-v2-text", "0"};
static const format THIRD = {"pool-v3", "pool-v3-kinds", "kept"};

static golden unpack_format(const format *f) {
    char *name = reef_cli_format("%s.mdb.gz", f->pool);
    golden g = unpack(name);
    free(name);
    return g;
}

static json_t *expected_of(const format *f) {
    json_error_t fault;
    char *path = reef_cli_format(DATA "%s.json", f->pool);
    json_t *expected = json_load_file(path, 0, &fault);
    if (expected == NULL) fail_msg("%s", fault.text);
    free(path);
    return expected;
}

static void expect_figures(const golden *g, const format *f, bool now) {
    json_t *expected = expected_of(f), *figures, *states;
    const char *state, *name;
    json_t *bits;
    states = json_object_get(expected, "bits_per_byte");
    size_t count = 0;
    json_object_foreach(states, state, figures) json_object_foreach(figures, name, bits) {
        if (!now && strcmp(state, "now") == 0) continue;
        char *path = reef_cli_format(DATA "%s", name);
        expect_figure(g, state, path, "bits_per_byte", json_number_value(bits));
        free(path);
        count++;
    }
    assert_int_equal(count, now ? 6 : 4);
    json_decref(expected);
}

static void run_shell(const golden *g, const char *isa, const char *line) {
    char *script = reef_cli_format("cd '%s' && export REEF='%s' REEF_ISA='%s' && %s", g->directory,
                                   REEF_BINARY, isa, line);
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("%s with %s: exit %d: %s%s", line, isa, p.code, p.out, p.err);
    program_release(&p);
    free(script);
}

// To the last bit: an archive is all that memories predict, bit for bit.
static void expect_archives(const golden *g, const format *f) {
    static const char *const ISAS[] = {"scalar", "avx2", "avx512"};
    char *line = reef_cli_format("for t in words.txt digits.txt; do "
                                 "$REEF expand pool " DATA "%s-$t.reef -o back --force && "
                                 "cmp back " DATA "$t && "
                                 "$REEF compress pool " DATA "$t --as-of %s -o again --force && "
                                 "cmp again " DATA "%s-$t.reef || exit 1; done",
                                 f->prefix, f->as_of, f->prefix);
    for (size_t i = 0; i < sizeof(ISAS) / sizeof(ISAS[0]); i++)
        if (isa_runs_here(ISAS[i])) run_shell(g, ISAS[i], line);
    free(line);
}

static golden expect_all(const format *f) {
    golden g = unpack_format(f);
    json_t *expected = expected_of(f);
    expect_sound(&g, integer(expected, "records"),
                 json_string_value(json_object_get(expected, "root")));
    json_decref(expected);
    expect_figures(&g, f, true);
    expect_archives(&g, f);
    return g;
}

static golden learn_on(const format *f) {
    golden g = unpack_format(f);
    program p;
    reef(&p, "train", g.pool, DATA "digits.txt", "--commit-steps", "1", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "seal", g.pool, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    expect_figures(&g, f, false);
    expect_archives(&g, f);
    json_t *report = reef_json("verify", g.pool, NULL);
    assert_true(json_is_true(json_object_get(report, "sound")));
    assert_int_equal(integer(report, "generations"), 3);
    json_decref(report);
    return g;
}

static void a_pool_of_version_2_computes_what_it_computed(void **state) {
    (void)state;
    golden g = expect_all(&SECOND);
    // Its generations are kinds of one visit, of which nobody wrote down what it cost.
    json_t *kind = reef_json("kind", "show", g.pool, "0", NULL);
    const json_t *visits = json_object_get(kind, "visit_list"), *visit = json_array_get(visits, 0);
    assert_int_equal(integer(kind, "visits"), 1);
    assert_int_equal(json_array_size(visits), 1);
    assert_int_equal(integer(visit, "from"), 0);
    assert_int_equal(integer(visit, "to"), integer(kind, "learned_at"));
    assert_int_equal(integer(visit, "learned_bytes"), integer(kind, "learned_bytes"));
    assert_true(json_is_null(json_object_get(visit, "bits_per_byte")));
    json_decref(kind);
    remove_golden(&g);
}

static void a_pool_of_version_2_learns_on_and_expands_its_archives(void **state) {
    (void)state;
    golden g = learn_on(&SECOND);
    json_t *kind = reef_json("kind", "show", g.pool, "1", NULL);
    assert_int_equal(integer(kind, "visits"), 1);
    json_decref(kind);
    remove_golden(&g);
}

static void a_pool_of_version_3_has_its_kinds_and_computes_what_it_computed(void **state) {
    (void)state;
    golden g = expect_all(&THIRD);
    json_t *expected = expected_of(&THIRD), *found = reef_json("kind", "list", g.pool, NULL);
    assert_true(json_equal(json_object_get(found, "kinds"), json_object_get(expected, "kinds")));
    json_decref(found);
    json_decref(expected);
    remove_golden(&g);
}

static void a_pool_of_version_3_learns_on_and_expands_its_archives(void **state) {
    (void)state;
    golden g = learn_on(&THIRD);
    json_t *kind = reef_json("kind", "show", g.pool, "digits", NULL);
    assert_int_equal(integer(kind, "kind"), 1);
    json_decref(kind);
    remove_golden(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_language_model_of_version_1_computes_what_it_computed),
        cmocka_unit_test(a_language_model_of_version_1_learns_on_and_can_be_sealed),
        cmocka_unit_test(a_vector_model_of_version_1_computes_what_it_computed_and_learns_on),
        cmocka_unit_test(a_pool_of_version_2_computes_what_it_computed),
        cmocka_unit_test(a_pool_of_version_2_learns_on_and_expands_its_archives),
        cmocka_unit_test(a_pool_of_version_3_has_its_kinds_and_computes_what_it_computed),
        cmocka_unit_test(a_pool_of_version_3_learns_on_and_expands_its_archives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
