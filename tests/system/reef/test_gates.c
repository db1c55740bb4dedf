// reef eval --gates: where gates fire, from which byte on, and what another threshold would do.
#include "cli.h"
#include "cli_pool.h"
#include "program.h"
#include "tiny_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_BYTES 3000

typedef struct world {
    char *directory, *pool, *english, *code;
} world;

static char *write_text(const char *directory, const char *kind) {
    char *path = reef_cli_format("%s/%s.txt", directory, kind), *text = tiny_text(kind, TEXT_BYTES);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    free(text);
    return path;
}

// The daemon's default gate: trained on English, then C.
static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->directory = test_directory_new();
    w->pool = reef_cli_format("%s/pool", w->directory);
    w->english = write_text(w->directory, "english");
    w->code = write_text(w->directory, "c");
    const char *argv[] = {REEF_BINARY, "init", w->pool, TINY_OPTIONS, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef init: exit %d: %s", p.code, p.err);
    program_release(&p);
    tiny_pool_train(w->pool);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    test_directory_remove(w->directory);
    free(w->pool);
    free(w->english);
    free(w->code);
    free(w);
    return 0;
}

// reef eval POOL --gates a b c d, up to a NULL.
static program eval(const world *w, const char *a, const char *b, const char *c, const char *d) {
    const char *argv[] = {REEF_BINARY, "eval", w->pool, "--gates", a, b, c, d, NULL};
    program p;
    program_run(&p, argv, NULL);
    return p;
}

static json_t *eval_json(const world *w, const char *a, const char *b, const char *c) {
    program p = eval(w, "--json", a, b, c);
    if (p.code != 0) fail_msg("reef eval --gates: exit %d: %s", p.code, p.err);
    json_t *document = json_loads(p.out, 0, NULL);
    assert_non_null(document);
    program_release(&p);
    return document;
}

static double at(const json_t *array, size_t i) {
    const json_t *value = json_array_get(array, i);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void assert_refused(const world *w, const char *a, const char *b, const char *words) {
    program p = eval(w, a, b, NULL, NULL);
    assert_int_not_equal(p.code, 0);
    if (strstr(p.err, words) == NULL) fail_msg("expected '%s' in '%s'", words, p.err);
    program_release(&p);
}

// ---- figures ------------------------------------------------------------------------------------

static void a_gate_fires_on_its_own_text_and_not_on_older_text(void **state) {
    world *w = *state;
    char *english = reef_cli_format("english=%s", w->english),
         *code = reef_cli_format("code=%s", w->code);
    json_t *answer = eval_json(w, english, code, NULL);
    json_t *files = json_object_get(answer, "files"), *gates = json_object_get(answer, "gates");
    assert_int_equal(json_array_size(files), 2);
    assert_int_equal(json_array_size(gates), 1);
    const json_t *second = json_array_get(files, 1), *gate = json_array_get(gates, 0);
    assert_string_equal(json_string_value(json_object_get(second, "name")), "code");
    assert_string_equal(json_string_value(json_object_get(second, "file")), w->code);
    assert_int_equal(json_integer_value(json_object_get(second, "bytes")), TEXT_BYTES);
    assert_int_equal(json_integer_value(json_object_get(second, "learned")), 1);
    assert_int_equal(json_integer_value(json_object_get(gate, "generation")), 1);
    const json_t *fired = json_object_get(gate, "fired");
    assert_true(at(fired, 0) < 0.02);
    assert_true(at(fired, 1) > 0.95);
    assert_true(at(json_object_get(gate, "first_fired"), 1) < 60);
    // There is one gate, so it is what fires at once.
    double together = json_number_value(json_object_get(second, "firing_at_once"));
    assert_true(together == at(fired, 1));
    assert_true(json_number_value(json_object_get(second, "share_above_fire_max")) == 0);
    json_decref(answer);
    free(english);
    free(code);
}

static void a_curve_keeps_its_bounds_and_rises(void **state) {
    world *w = *state;
    json_t *answer = eval_json(w, w->english, w->code, NULL);
    const json_t *gate = json_array_get(json_object_get(answer, "gates"), 0);
    const json_t *curve = json_object_get(gate, "curve");
    assert_int_equal(json_array_size(curve), 8);
    const json_t *own = json_array_get(curve, 0);
    assert_true(json_is_null(json_object_get(own, "leak_max")));
    assert_true(json_number_value(json_object_get(own, "threshold_offset")) == 0);
    assert_true(at(json_object_get(own, "fired"), 1) == at(json_object_get(gate, "fired"), 1));
    double before_offset = 1e9, before_share = 0;
    for (size_t i = 1; i < 8; i++) {
        const json_t *level = json_array_get(curve, i);
        double bound = json_number_value(json_object_get(level, "leak_max"));
        double leak = json_number_value(json_object_get(level, "leak"));
        double offset = json_number_value(json_object_get(level, "threshold_offset"));
        const json_t *fired = json_object_get(level, "fired");
        assert_true(leak <= bound);
        assert_true(leak == at(fired, 0)); // English is the only older text
        assert_true(offset <= before_offset && at(fired, 1) >= before_share);
        before_offset = offset;
        before_share = at(fired, 1);
    }
    assert_true(before_share > 0.95);
    json_decref(answer);
}

static void without_knowing_what_is_old_there_are_no_curves(void **state) {
    world *w = *state;
    json_t *answer = eval_json(w, w->english, w->code, w->code); // three files, two generations
    const json_t *gate = json_array_get(json_object_get(answer, "gates"), 0);
    assert_int_equal(json_array_size(json_object_get(gate, "fired")), 3);
    assert_int_equal(json_array_size(json_object_get(gate, "curve")), 0);
    json_decref(answer);
    program p = eval(w, w->english, NULL, NULL, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "no curves: --learned must say"));
    program_release(&p);
    p = eval(w, "--learned=1,0", w->code, w->english, NULL);
    assert_int_equal(p.code, 0);
    assert_null(strstr(p.out, "no curves"));
    program_release(&p);
}

static void gates_that_are_off_are_the_reason_for_no_curves(void **state) {
    const world *w = *state;
    world off = *w;
    off.pool = reef_cli_format("%s/off", w->directory);
    const char *argv[] = {REEF_BINARY, "init", off.pool, TINY_OPTIONS, "--gate", "off", NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    tiny_pool_train(off.pool);
    p = eval(&off, "--learned=0,1", w->english, w->code, NULL);
    assert_int_equal(p.code, 0);
    if (strstr(p.out, "no curves: no gate has a threshold") == NULL) fail_msg("%s", p.out);
    program_release(&p);
    free(off.pool);
}

// ---- for people ---------------------------------------------------------------------------------

static void tables_and_pictures_are_drawn(void **state) {
    world *w = *state;
    char *svg = reef_cli_format("%s/gates.svg", w->directory),
         *option = reef_cli_format("--svg=%s", svg);
    char *code = reef_cli_format("code=%s", w->code);
    program p = eval(w, option, w->english, code, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "bytes on which each gate fires"));
    assert_non_null(strstr(p.out, "bytes from a cold start"));
    assert_non_null(strstr(p.out, "its own"));
    assert_non_null(strstr(p.out, "A")); // the gate's own threshold in the plot
    assert_non_null(strstr(p.out, "gates.svg"));
    program_release(&p);
    reef_cli_file picture = {0};
    assert_int_equal(reef_cli_file_read(&picture, svg, NULL), REEF_OK);
    assert_memory_equal(picture.bytes, "<svg", 4);
    char *text = reef_cli_format("%.*s", (int)picture.count, (const char *)picture.bytes);
    assert_non_null(strstr(text, "<circle"));
    assert_non_null(strstr(text, "generation 1"));
    assert_non_null(strstr(text, "</svg>"));
    free(text);
    reef_cli_file_release(&picture);
    free(svg);
    free(option);
    free(code);
}

static void what_makes_no_sense_is_refused(void **state) {
    world *w = *state;
    assert_refused(w, "--matrix", w->english, "ask for one");
    assert_refused(w, "--last-word", w->english, "takes no --last-word");
    assert_refused(w, "--logits=x.npy", w->english, "takes no --logits");
    assert_refused(w, "--as-of=0", w->english, "has no gate");
    assert_refused(w, "--learned=7", w->english, "--learned is '7'");
    assert_refused(w, "name=/nowhere/at/all", NULL, "/nowhere/at/all");
    assert_refused(w, "--svg=/nowhere/at/all", w->english, "nothing to draw");
    const char *argv[] = {REEF_BINARY, "eval", w->pool, "--svg=x.svg", w->english, NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_not_equal(p.code, 0);
    assert_non_null(strstr(p.err, "it needs --kinds or --gates"));
    program_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gate_fires_on_its_own_text_and_not_on_older_text),
        cmocka_unit_test(a_curve_keeps_its_bounds_and_rises),
        cmocka_unit_test(without_knowing_what_is_old_there_are_no_curves),
        cmocka_unit_test(gates_that_are_off_are_the_reason_for_no_curves),
        cmocka_unit_test(tables_and_pictures_are_drawn),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
