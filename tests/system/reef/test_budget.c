// `reef train --flops`, as a user runs them.
#include "old_pool.h"
#include "tools_world.h"

#include <math.h>

#define STEP_BYTES 32 // two windows of 16

static void make_lm(const char *path) {
    program p;
    reef(&p, "init", path, TINY_OPTIONS, "--rehearse", "0", NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
    program_release(&p);
}

static json_t *train(const char *pool, const char *file, double flops) {
    char *budget = reef_cli_format("%.17g", flops);
    json_t *document = reef_json("train", pool, file, "--flops", budget, "--threads", "1", NULL);
    free(budget);
    return document;
}

// FLOPs of one step of the tiny model.
static double step_flops(void) {
    static const char *const SETTINGS[] = {TINY_OPTIONS, "--rehearse", "0"};
    reef_config config;
    reef_error err;
    reef_flops flops;
    reef_config_default(&config);
    for (size_t i = 0; i < sizeof(SETTINGS) / sizeof(SETTINGS[0]); i += 2) {
        char name[64];
        snprintf(name, sizeof(name), "%s", SETTINGS[i] + 2);
        for (char *at = name; *at; at++)
            if (*at == '-') *at = '_';
        if (reef_config_set(&config, name, SETTINGS[i + 1], &err) != REEF_OK)
            fail_msg("%s", err.message);
    }
    reef_flops_count(&config, &flops);
    return flops.step;
}

static const char *root_of(const json_t *document) {
    return json_string_value(json_object_get(document, "root"));
}

static void a_budget_buys_whole_steps(void **state) {
    const world *w = *state;
    char *pool = path_in(w->directory, "whole");
    double step = step_flops();
    make_lm(pool);
    json_t *document = train(pool, w->english, 20.9 * step);
    assert_true(json_is_true(json_object_get(document, "finished")));
    assert_int_equal(integer(document, "steps"), 20);
    assert_true(real(document, "spent") == 20 * step);
    assert_int_equal(integer(document, "stream_bytes"), 20 * STEP_BYTES);
    assert_int_equal(integer(document, "trained_tokens"), 20 * STEP_BYTES);
    assert_int_equal(integer(document, "data_bytes"), 400);
    assert_true(real(document, "epochs") == 1.6);
    assert_true(real(json_object_get(document, "flops"), "per_step") == step);
    json_decref(document);
    // It is spent: nothing is left to train.
    document = train(pool, w->english, 20.9 * step);
    assert_int_equal(integer(document, "steps"), 20);
    json_decref(document);
    free(pool);
}

// With a batch of one no window of the reservoir is longer than the context, so none is rehearsed.
static void only_what_is_rehearsed_is_counted(void **state) {
    const world *w = *state;
    char *pool = path_in(w->directory, "alone");
    json_decref(reef_json("init", pool, TINY_OPTIONS, "--batch", "1", "--rehearse", "0", NULL));
    json_t *none = train(pool, w->english, 1);
    old_pool_set(pool, "rehearse", "4");
    json_t *some = train(pool, w->english, 1);
    const json_t *flops = json_object_get(none, "flops");
    assert_true(real(flops, "per_step") == real(flops, "per_token") * 16);
    assert_int_equal(integer(none, "trained_tokens"), 16);
    assert_int_equal(integer(some, "trained_tokens"), 16);
    assert_true(json_equal(json_object_get(some, "flops"), flops));
    json_decref(none);
    json_decref(some);
    free(pool);
}

static void a_dry_run_says_the_steps_and_trains_nothing(void **state) {
    const world *w = *state;
    char *pool = path_in(w->directory, "dry"),
         *budget = reef_cli_format("%.17g", 20.9 * step_flops());
    make_lm(pool);
    json_decref(train(pool, w->english, 5 * step_flops()));
    json_t *before = reef_json("status", pool, NULL);
    json_t *plan = reef_json("train", pool, w->english, "--flops", budget, "--dry-run", NULL);
    assert_true(json_is_false(json_object_get(plan, "done")));
    assert_int_equal(integer(plan, "steps"), 5);
    assert_int_equal(integer(plan, "steps_planned"), 20);
    assert_int_equal(integer(plan, "data_bytes"), 400);
    program p;
    reef(&p, "train", pool, w->english, "--flops", budget, "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "would train 15 more steps, 20 in all, on data of 400 B"));
    program_release(&p);
    // It refuses what the real one refuses.
    reef(&p, "train", pool, w->empty, "--flops", budget, "--dry-run", NULL);
    assert_int_equal(p.code, 66);
    program_release(&p);
    json_t *after = reef_json("status", pool, NULL);
    json_t *same = json_object_get(before, "last_commit");
    assert_non_null(same);
    assert_true(json_equal(same, json_object_get(after, "last_commit")));
    json_t *document = train(pool, w->english, 20.9 * step_flops());
    assert_int_equal(integer(document, "steps"), 20);
    json_decref(document);
    json_decref(before);
    json_decref(plan);
    json_decref(after);
    free(pool);
    free(budget);
}

static void a_budget_in_parts_is_the_same_to_the_bit(void **state) {
    const world *w = *state;
    char *whole = path_in(w->directory, "at-once"), *parts = path_in(w->directory, "in-parts");
    double step = step_flops();
    make_lm(whole);
    make_lm(parts);
    json_decref(train(parts, w->english, 7.5 * step));  // within the first reading
    json_decref(train(parts, w->english, 12.5 * step)); // at the seam of the first and second
    json_t *one = train(whole, w->english, 31 * step), *last = train(parts, w->english, 31 * step);
    assert_int_equal(integer(last, "steps"), 31);
    assert_string_equal(root_of(last), root_of(one));
    json_decref(one);
    json_decref(last);
    free(whole);
    free(parts);
}

// The budget is of all that the pool is trained, but how often the data was read is of these files
// alone.
static void epochs_are_of_the_files_that_are_given(void **state) {
    const world *w = *state;
    char *pool = path_in(w->directory, "others"),
         *budget = reef_cli_format("%.17g", 33 * step_flops());
    double step = step_flops();
    make_lm(pool);
    json_decref(train(pool, w->english, 20 * step));
    json_t *code = train(pool, w->code, 32 * step);
    assert_int_equal(integer(code, "stream_bytes"), 32 * STEP_BYTES);
    // The first of its steps may have begun with bytes of the other file.
    double read = real(code, "epochs") * (double)integer(code, "data_bytes");
    assert_true(read > 11 * STEP_BYTES && read < 12 * STEP_BYTES + 1e-6);
    program p;
    reef(&p, "train", pool, w->code, "--flops", budget, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "that the pool read elsewhere"));
    program_release(&p);
    json_decref(code);
    free(budget);
    free(pool);
}

static double bits_of(const char *pool, const char *file) {
    json_t *document = reef_json("eval", pool, file, NULL);
    double bits = real(json_array_get(json_object_get(document, "files"), 0), "bits");
    json_decref(document);
    return bits;
}

// What is read again is the same bytes in the same order, files and all.
static void data_that_repeats_is_data_that_is_longer(void **state) {
    const world *w = *state;
    char *repeated = path_in(w->directory, "repeated"), *longer = path_in(w->directory, "longer");
    char *file = path_in(w->directory, "three-times"), *english = tiny_text("english", 400);
    char *code = tiny_text("c", 300);
    char *text = reef_cli_format("%s%s%s%s%s%s", english, code, english, code, english, code);
    write_file(file, text);
    make_lm(repeated);
    make_lm(longer);
    double flops = 60 * step_flops(); // 1,920 of 2,100 bytes
    char *budget = reef_cli_format("%.17g", flops);
    json_t *both = reef_json("train", repeated, w->english, w->code, "--flops", budget, NULL);
    json_t *one = train(longer, file, flops);
    assert_int_equal(integer(both, "steps"), integer(one, "steps"));
    assert_int_equal(integer(both, "data_bytes"), 700);
    assert_true(bits_of(repeated, w->code) == bits_of(longer, w->code));
    // In another order it is other data, and so refused.
    program p;
    reef(&p, "train", repeated, w->code, w->english, "--flops", "1e12", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "in the order in which they were trained"));
    program_release(&p);
    json_decref(both);
    json_decref(one);
    free(repeated);
    free(longer);
    free(file);
    free(english);
    free(code);
    free(text);
    free(budget);
}

static void held_out_text_is_measured_at_the_end(void **state) {
    const world *w = *state;
    char *pool = path_in(w->directory, "measured"), *eval = reef_cli_format("code=%s", w->code);
    make_lm(pool);
    json_t *document = reef_json("train", pool, w->english, "--flops", "1", "--eval", eval, NULL);
    assert_int_equal(integer(document, "steps"), 1); // one at least
    const json_t *code = json_object_get(json_object_get(document, "eval"), "code");
    double bits = bits_of(pool, w->code);
    assert_true(fabs(real(code, "bits_per_byte") * 299 - bits) < 1e-9);
    json_decref(document);
    char *odd = reef_cli_format("\xff=%s", w->code); // JSON has no such name
    document = reef_json("train", pool, w->english, "--flops", "1", "--eval", odd, NULL);
    code = json_object_get(json_object_get(document, "eval"), "\\xff");
    assert_true(fabs(real(code, "bits_per_byte") * 299 - bits) < 1e-9);
    json_decref(document);
    free(odd);
    free(pool);
    free(eval);
}

static void refused(
    const char *pool, const char *file, const char *option, const char *value, const char *says) {
    program p;
    reef(&p, "train", pool, file, "--flops", "1e9", option, value, NULL);
    if (p.code != 64 || strstr(p.err, says) == NULL) fail_msg("exit %d: %s", p.code, p.err);
    program_release(&p);
}

static void what_cannot_be_counted_is_refused(void **state) {
    const world *w = *state;
    char *drift = path_in(w->directory, "drift"), *vector = path_in(w->directory, "vector");
    program p;
    reef(&p, "init", drift, TINY_OPTIONS, "--boundaries", "drift", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "init", vector, "--model", "vector", "--inputs", "2", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    refused(drift, w->english, "--threads", "1", "--boundaries given");
    refused(vector, w->english, "--threads", "1", "vector model");
    refused(w->pool, w->english, "--threads", "1", "generations"); // it has two
    refused(drift, w->english, "--eval-at", "1K", "--eval-at");
    char *shared = path_in(w->directory, "shared");
    json_decref(reef_json("init", shared, TINY_OPTIONS, "--context-memory", "4M", NULL));
    refused(shared, w->english, "--threads", "1", "net_share 0.5");
    free(shared);
    char *grown = path_in(w->directory, "grown");
    make_lm(grown);
    json_decref(reef_json("grow", grown, "--side", "9", NULL));
    refused(grown, w->english, "--threads", "1", "has grown from side");
    free(grown);
    reef(&p, "train", drift, w->english, "--flops", "0", NULL);
    assert_int_equal(p.code, 64);
    program_release(&p);
    free(drift);
    free(vector);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_buys_whole_steps),
        cmocka_unit_test(only_what_is_rehearsed_is_counted),
        cmocka_unit_test(a_dry_run_says_the_steps_and_trains_nothing),
        cmocka_unit_test(a_budget_in_parts_is_the_same_to_the_bit),
        cmocka_unit_test(epochs_are_of_the_files_that_are_given),
        cmocka_unit_test(data_that_repeats_is_data_that_is_longer),
        cmocka_unit_test(held_out_text_is_measured_at_the_end),
        cmocka_unit_test(what_cannot_be_counted_is_refused),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
