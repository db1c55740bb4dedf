// reef consolidate as a user runs it: plan, confirmation, answer, and what other commands say
// afterwards.
#include "cli.h"
#include "cli_pool.h"
#include "program.h"
#include "reef_trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 64
#define TEXT_BYTES 3000

typedef struct world {
    char *directory, *pool, *text;
} world;

static void fill(char *out, size_t count, int kind) {
    static const char *const WORDS[4][4] = {{"the sea ", "a reef ", "grows ", "slowly "},
                                            {"x = 1; ", "if (y) ", "{ } ", "return; "},
                                            {"17 42 ", "99 03 ", "88 12 ", "55 61 "},
                                            {"E4 E5 ", "NF3 ", "BB5 ", "O-O "}};
    unsigned draw = 7;
    out[0] = '\0';
    for (size_t at = 0; at + 16 < count; at = strlen(out)) {
        draw = draw * 1103515245u + 12345u;
        strcpy(out + at, WORDS[kind][draw / 65536 % 4]);
    }
}

static void check(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

// Generations 0 to 2 sealed, 3 open.
static void train(const char *path, bool net) {
    reef_error err = {0};
    reef_config config;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    static const char *const SETTINGS[][2] = {{"layers", "2"},          {"d_model", "16"},
                                              {"attention_heads", "2"}, {"context", "16"},
                                              {"batch", "4"},           {"rehearse", "2"},
                                              {"heads", "1"},           {"topk", "2"},
                                              {"d_key", "8"},           {"side", "4"},
                                              {"side_new", "3"},        {"reservoir_bytes", "8192"},
                                              {"d_ffw", "16"},          {"reservoir_window", "64"},
                                              {"boundaries", "given"},  {"gate_decay", "0.9"}};
    reef_config_default(&config);
    for (size_t i = 0; i < sizeof(SETTINGS) / sizeof(*SETTINGS); i++)
        check(reef_config_set(&config, SETTINGS[i][0], SETTINGS[i][1], &err), &err);
    if (!net) {
        check(reef_config_set(&config, "context_memory", "4194304", &err), &err);
        check(reef_config_set(&config, "net_share", "0", &err), &err);
        check(reef_config_set(&config, "rehearse", "0", &err), &err);
    }
    check(reef_pool_init(path, &config, &err), &err);
    check(reef_store_open(&store, path, &(reef_store_options){.write = true}, &err), &err);
    check(reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), &err);
    char text[TEXT_BYTES];
    for (int kind = 0; kind < 4; kind++) {
        fill(text, sizeof(text), kind);
        check(reef_trainer_feed(trainer, "test", (const uint8_t *)text, strlen(text), NULL, NULL,
                                &err),
              &err);
        if (kind < 3) check(reef_trainer_seal(trainer, NULL, NULL, &err), &err);
    }
    check(reef_trainer_commit(trainer, NULL, &err), &err);
    reef_trainer_close(trainer);
    reef_store_close(store);
}

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->directory = test_directory_new();
    w->pool = reef_cli_format("%s/pool", w->directory);
    w->text = reef_cli_format("%s/text", w->directory);
    train(w->pool, true);
    char text[TEXT_BYTES];
    FILE *file = fopen(w->text, "w");
    assert_non_null(file);
    fill(text, sizeof(text), 1);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    test_directory_remove(w->directory);
    free(w->pool);
    free(w->text);
    free(w);
    return 0;
}

// Run reef with the arguments up to a NULL.
static void reef(program *p, ...) {
    const char *argv[ARGUMENTS_MAX] = {REEF_BINARY};
    size_t count = 1;
    va_list arguments;
    va_start(arguments, p);
    for (const char *argument; (argument = va_arg(arguments, const char *));) {
        assert_true(count + 1 < ARGUMENTS_MAX);
        argv[count++] = argument;
    }
    va_end(arguments);
    program_run(p, argv, NULL);
}

static json_t *parse(program *p) {
    if (p->code != 0) fail_msg("exit %d: %s", p->code, p->err);
    json_t *document = json_loads(p->out, 0, NULL);
    assert_non_null(document);
    program_release(p);
    return document;
}

static char *root_of(const world *w) {
    program p;
    reef(&p, "verify", w->pool, "--json", NULL);
    json_t *document = parse(&p);
    char *root = reef_cli_format("%s", json_string_value(json_object_get(document, "root")));
    json_decref(document);
    assert_int_equal(strlen(root), 32);
    return root;
}

static json_int_t integer(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) fail_msg("no whole number %s", name);
    return json_integer_value(value);
}

static void a_plan_changes_no_byte(void **state) {
    const world *w = *state;
    program p;
    char *before = root_of(w);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--dry-run", "--json", NULL);
    json_t *plan = parse(&p);
    assert_true(json_is_false(json_object_get(plan, "done")));
    assert_int_equal(integer(plan, "merged"), 2);
    assert_int_equal(integer(plan, "experts_before"), 2 * 2 * 9);
    assert_int_equal(integer(plan, "experts_after"), 2 * 9);
    assert_true(integer(plan, "steps") > 0);
    assert_int_equal(json_array_size(json_object_get(plan, "losses")), 3);
    json_decref(plan);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "would consolidate 2 generations, 1 to 2"));
    assert_non_null(strstr(p.out, "would give up"));
    program_release(&p);
    char *after = root_of(w);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void without_a_net_a_plan_tells_what_memories_lose(void **state) {
    const world *w = *state;
    char *pool = reef_cli_format("%s/alone", w->directory);
    program p;
    train(pool, false);
    reef(&p, "consolidate", pool, "--generations", "1-2", "--dry-run", "--json", NULL);
    json_t *plan = parse(&p);
    const json_t *memories = json_object_get(plan, "memories");
    assert_int_equal(json_array_size(memories), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *memory = json_array_get(memories, i);
        assert_int_equal(integer(memory, "generation"), i + 1);
        assert_in_range(integer(memory, "bytes"), TEXT_BYTES / 4 - 64, TEXT_BYTES / 4 + 64);
        assert_true(json_is_real(json_object_get(memory, "apart")));
        assert_true(json_is_real(json_object_get(memory, "together")));
    }
    json_decref(plan);
    reef(&p, "consolidate", pool, "--generations", "1-2", "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "of the end of each memory's text"));
    assert_non_null(strstr(p.out, "together"));
    assert_null(strstr(p.out, "nothing is taught from"));
    program_release(&p);
    free(pool);
}

static void it_wants_a_yes(void **state) {
    const world *w = *state;
    program p;
    char *before = root_of(w);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "gives up for good"));
    assert_non_null(strstr(p.err, "--yes"));
    program_release(&p);
    char *after = root_of(w);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void with_a_yes_it_is_done_and_other_commands_know(void **state) {
    const world *w = *state;
    program p;
    char *before = root_of(w);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--steps", "50", "--yes", "--json",
         NULL);
    json_t *report = parse(&p);
    assert_true(json_is_true(json_object_get(report, "done")));
    assert_int_equal(integer(report, "steps"), 50);
    assert_true(integer(report, "bytes_after") < integer(report, "bytes_before"));
    const json_t *loss = json_array_get(json_object_get(report, "losses"), 0);
    assert_true(json_is_real(json_object_get(loss, "after")));
    json_decref(report);
    char *after = root_of(w); // which also says that the pool is sound
    assert_string_not_equal(before, after);
    free(before);
    free(after);

    reef(&p, "generations", w->pool, "--json", NULL);
    json_t *generations = parse(&p);
    const json_t *list = json_object_get(generations, "generations");
    assert_int_equal(integer(json_array_get(list, 1), "consolidated_into"), 2);
    assert_int_equal(integer(json_array_get(list, 1), "experts"), 0);
    assert_true(json_is_null(json_object_get(json_array_get(list, 2), "consolidated_into")));
    json_decref(generations);
    reef(&p, "eval", w->pool, "--matrix", w->text, "--json", NULL);
    json_t *matrix = parse(&p);
    json_decref(matrix);
    reef(&p, "eval", w->pool, "--as-of", "1", w->text, NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "consolidated into generation 2"));
    program_release(&p);
    reef(&p, "usage", w->pool, "--generation", "1", NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "consolidated into generation 2"));
    program_release(&p);
    reef(&p, "usage", w->pool, "--generation", "2", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "timeline", w->pool, NULL);
    assert_non_null(strstr(p.out, "consolidate"));
    program_release(&p);
}

// A measurement as of a consolidated generation can be compared with nothing, and is left out of
// the picture.
static void a_report_knows_what_was_given_up(void **state) {
    const world *w = *state;
    program p;
    char *out = reef_cli_format("%s/report", w->directory),
         *domain = reef_cli_format("one=%s", w->text);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--steps", "5", "--yes", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "report", w->pool, "--out", out, "--domain", domain, "--sealed-bits", "one@0=1.5",
         "--json", NULL);
    json_t *report = parse(&p);
    assert_true(json_number_value(json_object_get(report, "asof_forgetting_bits")) > 0);
    json_decref(report);
    char *path = reef_cli_format("%s/report.svg", out);
    reef_cli_file picture = {0};
    reef_error err = {0};
    check(reef_cli_file_read(&picture, path, &err), &err);
    char *svg = reef_cli_format("%.*s", (int)picture.count, (const char *)picture.bytes);
    assert_null(strstr(svg, "nan<"));
    assert_null(strstr(svg, "#000000"));
    assert_non_null(strstr(svg, ">-<"));
    reef(&p, "report", w->pool, "--out", out, "--domain", domain, "--sealed-bits", "one@0=1.5",
         "--sealed-bits", "one@1=1.5", NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "generation 1, which was consolidated into generation 2"));
    program_release(&p);
    reef_cli_file_release(&picture);
    free(svg);
    free(path);
    free(domain);
    free(out);
}

// Marks in a stream, and two of the generations between them consolidated before the same command
// comes again.
static void training_keeps_what_was_measured_of_generations_that_are_no_more(void **state) {
    const world *w = *state;
    char *pool = reef_cli_format("%s/marked", w->directory),
         *marked = reef_cli_format("%s/text4", w->directory);
    char *results = reef_cli_format("%s/results", w->directory),
         *eval = reef_cli_format("one=%s", w->text);
    char text[TEXT_BYTES];
    FILE *file = fopen(marked, "w");
    assert_non_null(file);
    for (int kind = 0; kind < 4; kind++) {
        fill(text, sizeof(text), kind);
        assert_true(fprintf(file, "%s\n%s", text, kind < 3 ? "===\n" : "") > 0);
    }
    assert_int_equal(fclose(file), 0);
    program p;
    reef(&p, "init", pool, "--layers", "1", "--d-model", "8", "--attention-heads", "1", "--context",
         "16", "--batch", "4", "--rehearse", "0", "--heads", "1", "--topk", "1", "--d-key", "4",
         "--side", "3", "--side-new", "3", "--reservoir-bytes", "8192", "--reservoir-window", "64",
         "--boundaries", "given", "--boundary-mark", "===", "--context-memory", "0", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    json_t *said[3];
    for (int i = 0; i < 3; i++) {
        reef(&p, "train", pool, marked, "--eval", eval, "--results", results, "--cost-repeats", "1",
             "--json", NULL);
        said[i] = parse(&p);
        assert_true(json_is_true(json_object_get(said[i], "finished")));
        if (i > 0) continue;
        reef(&p, "consolidate", pool, "--generations", "1-2", "--steps", "5", "--yes", NULL);
        assert_int_equal(p.code, 0);
        program_release(&p);
    }
    for (int i = 1; i < 3; i++) {
        const json_t *before = json_object_get(json_object_get(said[0], "measured"), "sealed");
        const json_t *now = json_object_get(json_object_get(said[i], "measured"), "sealed");
        assert_int_equal(json_array_size(now), 3);
        for (size_t g = 0; g < 2; g++)
            assert_true(json_equal(json_array_get(now, g), json_array_get(before, g)));
        assert_false(json_equal(json_array_get(now, 2), json_array_get(before, 2)));
        assert_true(
            json_equal(json_object_get(said[i], "matrix"), json_object_get(said[0], "matrix")));
    }
    for (int i = 0; i < 3; i++) json_decref(said[i]);
    free(eval);
    free(results);
    free(marked);
    free(pool);
}

static void refused(const world *w, const char *range, int code, const char *words) {
    program p;
    reef(&p, "consolidate", w->pool, "--generations", range, "--yes", NULL);
    if (p.code != code || strstr(p.err, words) == NULL)
        fail_msg("%s: exit %d: %s", range, p.code, p.err);
    program_release(&p);
}

static void mistakes_are_named(void **state) {
    const world *w = *state;
    program p;
    refused(w, "1", 64, "not a range of two numbers");
    refused(w, "1-2x", 64, "not a range of two numbers");
    refused(w, "-1-2", 64, "not a range of two numbers");
    refused(w, "1--2", 64, "not a range of two numbers");
    refused(w, "99999999999-2", 64, "not a range of two numbers");
    refused(w, "0-2", 64, "backbone");
    refused(w, "2-1", 64, "not a range");
    refused(w, "1-3", 64, "generation 3 is open");
    refused(w, "2-2", 64, "it takes two");
    reef(&p, "consolidate", w->pool, "--yes", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "--generations A-B is missing"));
    program_release(&p);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--side", "0", "--yes", NULL);
    assert_int_equal(p.code, 64);
    program_release(&p);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--side", "9", "--yes", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "side 4 at most"));
    program_release(&p);
}

static void a_snapshot_is_in_the_way(void **state) {
    const world *w = *state;
    program p;
    reef(&p, "snapshot", "create", w->pool, "kept", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    refused(w, "1-2", 64, "--drop-snapshots");
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--steps", "5", "--yes",
         "--drop-snapshots", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "snapshots kept"));
    program_release(&p);
    reef(&p, "snapshot", "remove", w->pool, "kept", NULL);
    assert_int_equal(p.code, 66);
    program_release(&p);
    free(root_of(w));
}

// A program that writes to the pool, such as a daemon, has to end first; a plan can be had beside
// it.
static void a_writer_is_in_the_way(void **state) {
    const world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    program p;
    check(reef_store_open(&store, w->pool, &(reef_store_options){.write = true}, &err), &err);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--yes", NULL);
    assert_int_equal(p.code, 75);
    assert_non_null(strstr(p.err, "stop it first"));
    program_release(&p);
    reef(&p, "consolidate", w->pool, "--generations", "1-2", "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef_store_close(store);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_plan_changes_no_byte),
        TEST(without_a_net_a_plan_tells_what_memories_lose),
        TEST(it_wants_a_yes),
        TEST(with_a_yes_it_is_done_and_other_commands_know),
        TEST(a_report_knows_what_was_given_up),
        TEST(training_keeps_what_was_measured_of_generations_that_are_no_more),
        TEST(mistakes_are_named),
        TEST(a_snapshot_is_in_the_way),
        TEST(a_writer_is_in_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
