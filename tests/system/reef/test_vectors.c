// `reef` and `reefd` on a pool of vectors, run as a user runs them: made, trained from files,
// evaluated as of every generation, asked for predictions; and every command that makes no sense
// there says what does.
#include "cli.h"
#include "old_pool.h"
#include "program.h"
#include "tiny_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "vector_files.h"
#include "whole_file.h"

#define ARGUMENTS_MAX 40
#define TRAIN_EXAMPLES 2048 // whole batches
#define TEST_EXAMPLES 600
#define EXIT_USAGE 64

// Made once: classes 0 and 1, sealed; then 2 and 3.
typedef struct world {
    char *directory, *pool, *text_pool, *text;
    char *early, *late; // specs to train on
    char *test_early, *test_late, *test;
} world;

static void run_va(program *p, const char *binary, va_list arguments) {
    const char *argv[ARGUMENTS_MAX] = {binary};
    size_t count = 1;
    const char *argument;
    while ((argument = va_arg(arguments, const char *))) {
        assert_true(count + 1 < ARGUMENTS_MAX);
        argv[count++] = argument;
    }
    program_run(p, argv, NULL);
}

// Run a program, which must succeed.
static void must(const char *binary, ...) {
    program p;
    va_list arguments;
    va_start(arguments, binary);
    run_va(&p, binary, arguments);
    va_end(arguments);
    if (p.code != 0) fail_msg("%s: exit %d: %s", binary, p.code, p.err);
    program_release(&p);
}

static void reef(program *p, ...) {
    va_list arguments;
    va_start(arguments, p);
    run_va(p, REEF_BINARY, arguments);
    va_end(arguments);
}

// Run reef, which must succeed and answer with one JSON document; the arguments include --json.
static json_t *reef_json(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX] = {REEF_BINARY, first};
    size_t count = 2;
    va_list arguments;
    va_start(arguments, first);
    const char *argument;
    while ((argument = va_arg(arguments, const char *))) argv[count++] = argument;
    va_end(arguments);
    argv[count] = "--json";
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", first, p.code, p.err);
    json_error_t fault;
    json_t *document = json_loads(p.out, JSON_REJECT_DUPLICATES, &fault);
    if (document == NULL) fail_msg("reef %s: %s in %s", first, fault.text, p.out);
    program_release(&p);
    return document;
}

static double number(const json_t *document, const char *name) {
    const json_t *value = json_object_get(document, name);
    if (!json_is_number(value)) fail_msg("%s is no number", name);
    return json_number_value(value);
}

static int world_make(void **state) {
    unsetenv("REEF_POOL");
    world *w = reef_cli_alloc(1, sizeof(*w));
    w->directory = test_directory_new();
    w->pool = reef_cli_format("%s/pool", w->directory);
    w->text_pool = reef_cli_format("%s/text-pool", w->directory);
    w->text = reef_cli_format("%s/text", w->directory);
    char *images = reef_cli_format("%s/images.gz", w->directory);
    char *labels = reef_cli_format("%s/labels.gz", w->directory);
    char *csv = reef_cli_format("%s/late.csv", w->directory);
    char *test_images = reef_cli_format("%s/test-images.gz", w->directory);
    char *test_labels = reef_cli_format("%s/test-labels.gz", w->directory);
    blob_write_idx(images, labels, TRAIN_EXAMPLES, 0, 2, 1);
    blob_write_csv(csv, TRAIN_EXAMPLES, 2, 2, 2);
    blob_write_idx(test_images, test_labels, TEST_EXAMPLES, 0, 4, 3);
    w->early = reef_cli_format("idx:%s,%s", images, labels);
    w->late = reef_cli_format("csv:%s?label=class", csv);
    w->test = reef_cli_format("idx:%s,%s", test_images, test_labels);
    w->test_early = reef_cli_format("%s?classes=0,1", w->test);
    w->test_late = reef_cli_format("%s?classes=2,3", w->test);
    FILE *file = fopen(w->text, "w");
    assert_non_null(file);
    assert_true(fputs("some text\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    free(images);
    free(labels);
    free(csv);
    free(test_images);
    free(test_labels);
    must(REEF_BINARY, "init", w->text_pool, TINY_OPTIONS, NULL);
    must(REEF_BINARY, "init", w->pool, "--model", "vector", "--inputs", "16", "--side", "8",
         "--memory", "100", "--boundaries", "given", NULL);
    must(REEFD_BINARY, "--pool", w->pool, "--source", w->early, "--quiet", NULL);
    must(REEF_BINARY, "seal", w->pool, NULL);
    must(REEFD_BINARY, "--pool", w->pool, "--source", w->late, "--quiet", NULL);
    *state = w;
    return 0;
}

static int world_remove(void **state) {
    world *w = *state;
    test_directory_remove(w->directory);
    free(w->pool);
    free(w->text_pool);
    free(w->text);
    free(w->early);
    free(w->late);
    free(w->test);
    free(w->test_early);
    free(w->test_late);
    free(w);
    return 0;
}

// ---- making -------------------------------------------------------------------------------------

static void init_says_what_was_made(void **state) {
    const world *w = *state;
    char *path = reef_cli_format("%s/made", w->directory);
    program p;
    reef(&p, "init", path, "--model", "vector", "--inputs", "784", "--side", "10", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "vector, of 784 inputs"));
    assert_non_null(strstr(p.out, "100 (10 x 10) a generation"));
    assert_non_null(strstr(p.out, "500 examples, 1.6 MB"));
    assert_non_null(strstr(p.out, "parameters"));
    assert_non_null(strstr(p.out, "idx:IMAGES,LABELS"));
    program_release(&p);
    free(path);
    path = reef_cli_format("%s/never", w->directory);
    json_t *made = reef_json("init", path, "--model", "vector", "--inputs", "5", "--side", "10",
                             "--dry-run", NULL);
    assert_int_equal(number(made, "experts"), 100);
    assert_int_equal(number(json_object_get(made, "config"), "inputs"), 5);
    assert_int_equal(access(path, F_OK), -1);
    json_decref(made);
    reef(&p, "init", path, "--model", "vector", NULL);
    assert_int_equal(p.code, EXIT_USAGE);
    assert_non_null(strstr(p.err, "inputs"));
    program_release(&p);
    free(path);
}

static void init_takes_the_shape_of_images(void **state) {
    const world *w = *state;
    char *path = reef_cli_format("%s/images", w->directory);
    char *images = reef_cli_format("%s/flat-images", w->directory);
    program p;
    reef(&p, "init", path, "--model", "vector", "--inputs", "28x", NULL);
    assert_int_equal(p.code, EXIT_USAGE);
    assert_non_null(strstr(p.err, "inputs is '28x', but must be an integer, or rows x columns"));
    program_release(&p);
    reef(&p, "init", path, "--model", "vector", "--inputs", "28x28", "--side", "10", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "vector, of images of 28 x 28 pixels"));
    assert_non_null(strstr(p.out, "100 (10 x 10) a generation, of 7 filters"));
    program_release(&p);
    json_t *made = reef_json("init", "none", "--model", "vector", "--inputs", "28x28",
                             "--draw-from", "0", "--dry-run", NULL);
    assert_int_equal(number(json_object_get(made, "config"), "image_columns"), 28);
    assert_true(number(json_object_get(made, "config"), "ridge") < 0.01);
    json_decref(made);
    made = reef_json("init", "none", "--model", "vector", "--inputs", "28x28", "--ridge", "0.5",
                     "--dry-run", NULL);
    assert_true(number(json_object_get(made, "config"), "ridge") > 0.4);
    json_decref(made);
    // Two images of 14 x 56 pixels are as many values, but lie otherwise.
    FILE *file = fopen(images, "wb");
    assert_non_null(file);
    static const uint8_t HEADER[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 14, 0, 0, 0, 56};
    assert_int_equal(fwrite(HEADER, 1, sizeof(HEADER), file), sizeof(HEADER));
    for (size_t i = 0; i < 2 * 784; i++) assert_int_not_equal(fputc((int)(i % 251), file), EOF);
    assert_int_equal(fclose(file), 0);
    char *source = reef_cli_format("idx:%s", images);
    program_run(&p, (const char *const[]){REEFD_BINARY, "--pool", path, "--source", source, NULL},
                NULL);
    assert_int_not_equal(p.code, 0);
    assert_non_null(strstr(p.err, "images of 14 x 56 values, but those of the pool are 28 x 28"));
    program_release(&p);
    free(source);
    free(images);
    free(path);
}

// ---- evaluating ---------------------------------------------------------------------------------

static void eval_counts_what_is_correct_now_and_as_of(void **state) {
    const world *w = *state;
    json_t *now = reef_json("eval", w->pool, w->test_early, w->test_late, NULL);
    json_t *files = json_object_get(now, "files");
    assert_int_equal(json_array_size(files), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *file = json_array_get(files, i), *share;
        assert_int_equal(number(file, "examples"), TEST_EXAMPLES / 2);
        assert_int_equal(number(file, "labelled"), TEST_EXAMPLES / 2);
        assert_true(number(file, "accuracy") > 0.95);
        assert_true(number(file, "accuracy") == number(file, "right") / (TEST_EXAMPLES / 2.0));
        double sum = 0;
        size_t index;
        assert_int_equal(json_array_size(json_object_get(file, "answered_share")), 2);
        json_array_foreach(json_object_get(file, "answered_share"), index, share) {
            sum += json_number_value(share);
        }
        assert_true(sum > 1 - 1e-9 && sum < 1 + 1e-9);
        // Each generation answers for what it learned.
        share = json_array_get(json_object_get(file, "answered_share"), i);
        assert_true(json_number_value(share) > 0.8);
    }
    json_decref(now);
    json_t *then = reef_json("eval", w->pool, "--as-of", "0", w->test_early, w->test_late, NULL);
    files = json_object_get(then, "files");
    assert_true(number(json_array_get(files, 0), "accuracy") > 0.95);
    assert_true(number(json_array_get(files, 1), "accuracy") == 0); // classes it did not know
    json_decref(then);
}

static void eval_prints_a_table(void **state) {
    const world *w = *state;
    program p;
    reef(&p, "eval", w->pool, w->test_early, w->test_late, NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(line_count(p.out), 3);
    assert_non_null(strstr(p.out, "accuracy %"));
    assert_non_null(strstr(p.out, w->test_late));
    program_release(&p);
    // Without labels there is nothing to count, but still who answers.
    char *images = reef_cli_format("%.*s", (int)strcspn(w->test, ","), w->test);
    json_t *blind = reef_json("eval", w->pool, images, NULL);
    const json_t *file = json_array_get(json_object_get(blind, "files"), 0);
    assert_int_equal(number(file, "examples"), TEST_EXAMPLES);
    assert_int_equal(number(file, "labelled"), 0);
    assert_true(json_is_null(json_object_get(file, "accuracy")));
    json_decref(blind);
    reef(&p, "eval", w->pool, images, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    reef(&p, "eval", w->pool, "--matrix", images, NULL);
    assert_int_equal(p.code, EXIT_USAGE);
    assert_non_null(strstr(p.err, "no labels"));
    program_release(&p);
    free(images);
}

static void the_matrix_has_the_accuracies_of_every_state(void **state) {
    const world *w = *state;
    json_t *matrix = reef_json("eval", w->pool, "--matrix", w->test_early, w->test_late, NULL);
    const json_t *rows = json_object_get(matrix, "matrix");
    static const char *const STATES[] = {"0", "1", "now"};
    assert_int_equal(json_array_size(rows), 3);
    for (size_t row = 0; row < 3; row++) {
        json_t *one =
            reef_json("eval", w->pool, "--as-of", STATES[row], w->test_early, w->test_late, NULL);
        for (size_t i = 0; i < 2; i++) {
            double value = json_number_value(json_array_get(json_array_get(rows, row), i));
            assert_true(value ==
                        number(json_array_get(json_object_get(one, "files"), i), "accuracy"));
        }
        json_decref(one);
    }
    // Forgetting of an accuracy is its fall: as of 0 early ones were classified at least as well as
    // now.
    const json_t *first = json_array_get(rows, 0), *last = json_array_get(rows, 2);
    double fell =
        json_number_value(json_array_get(first, 0)) - json_number_value(json_array_get(last, 0));
    double forgotten =
        json_number_value(json_array_get(json_object_get(matrix, "forgetting_learned"), 0));
    assert_true(forgotten == fell);
    json_decref(matrix);
}

static void predict_says_what_eval_counts(void **state) {
    const world *w = *state;
    json_t *said = reef_json("predict", w->pool, w->test, NULL);
    json_t *counted = reef_json("eval", w->pool, w->test, NULL);
    const json_t *predictions = json_object_get(said, "predictions"), *one;
    size_t index, right = 0;
    assert_int_equal(json_array_size(predictions), TEST_EXAMPLES);
    json_array_foreach(predictions, index, one) {
        assert_int_equal(number(one, "given"), index % 4);
        right += number(one, "label") == number(one, "given");
        assert_true(number(one, "generation") <= 1);
        assert_true(number(one, "score") > 0);
    }
    assert_int_equal(right, number(json_array_get(json_object_get(counted, "files"), 0), "right"));
    // The lines say the same.
    program p;
    reef(&p, "predict", w->pool, w->test, NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(line_count(p.out), TEST_EXAMPLES);
    const char *line = p.out;
    json_array_foreach(predictions, index, one) {
        char *end;
        assert_int_equal(strtol(line, &end, 10), number(one, "label"));
        double score = strtod(end, &end);
        assert_true(score > number(one, "score") - 1e-4 && score < number(one, "score") + 1e-4);
        assert_int_equal(strtol(end, &end, 10), number(one, "generation"));
        assert_int_equal(*end, '\n');
        line = end + 1;
    }
    program_release(&p);
    json_decref(said);
    json_decref(counted);
}

static void a_new_pool_knows_no_class(void **state) {
    const world *w = *state;
    char *path = reef_cli_format("%s/new", w->directory),
         *one = reef_cli_format("%s&first=1", w->test_early);
    must(REEF_BINARY, "init", path, "--model", "vector", "--inputs", "16", "--side", "8", NULL);
    program p;
    reef(&p, "predict", path, one, NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.out, "-1\t-\t0\n");
    program_release(&p);
    json_t *said = reef_json("predict", path, one, NULL);
    const json_t *first = json_array_get(json_object_get(said, "predictions"), 0);
    assert_true(json_is_null(json_object_get(first, "score")));
    json_decref(said);
    free(path);
    free(one);
}

// ---- the other commands -------------------------------------------------------------------------

static void commands_that_read_a_pool_work(void **state) {
    const world *w = *state;
    json_t *status = reef_json("status", w->pool, NULL);
    assert_int_equal(number(status, "generation"), 1);
    assert_int_equal(number(status, "experts"), 128);
    assert_int_equal(number(status, "stream_bytes"), 2 * TRAIN_EXAMPLES * (4 + 4 * BLOB_PIXELS));
    json_decref(status);
    program p;
    reef(&p, "status", w->pool, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "4,096 examples"));
    assert_null(strstr(p.out, "bits per byte"));
    program_release(&p);
    json_t *generations = reef_json("generations", w->pool, NULL);
    const json_t *last = json_array_get(json_object_get(generations, "generations"), 1);
    assert_int_equal(number(last, "opened_at"), TRAIN_EXAMPLES * (4 + 4 * BLOB_PIXELS));
    assert_true(json_is_null(json_object_get(last, "used_percent")));
    json_decref(generations);
    reef(&p, "generations", w->pool, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "opened at example"));
    assert_non_null(strstr(p.out, "2,048"));
    program_release(&p);
    json_decref(reef_json("timeline", w->pool, NULL));
    json_decref(reef_json("verify", w->pool, NULL));
    json_decref(reef_json("snapshot", "list", w->pool, NULL));
    json_decref(reef_json("plot", "loss", w->pool, NULL));
    char *svg = reef_cli_format("%s/loss.svg", w->directory);
    reef(&p, "plot", "loss", w->pool, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, " 4,096 examples\n"));
    program_release(&p);
    must(REEF_BINARY, "plot", "loss", w->pool, "--svg", svg, NULL);
    size_t bytes;
    char *picture = whole_file_read(svg, &bytes);
    picture[bytes - 1] = '\0'; // the last line end
    assert_non_null(strstr(picture, ">position in the stream (thousands of examples)<"));
    assert_non_null(strstr(picture, ">4</text>"));
    free(picture);
    free(svg);
    must(REEF_BINARY, "timeline", w->pool, NULL);
    must(REEF_BINARY, "verify", w->pool, NULL);
}

static void seal_speaks_of_examples(void **state) {
    const world *w = *state;
    program p;
    reef(&p, "seal", w->pool, "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "would seal generation 1 (64 experts, open since example 2048)"));
    assert_non_null(strstr(p.out, "would open generation 2 (8 x 8 experts)"));
    program_release(&p);
}

static void a_boundary_is_reported_in_examples(void **state) {
    const world *w = *state;
    program p;
    char *pool = reef_cli_format("%s/drifts", w->directory);
    must(REEF_BINARY, "init", pool, "--model", "vector", "--inputs", "16", "--side", "8",
         "--boundaries", "given", NULL);
    must(REEF_BINARY, "train", pool, w->late, NULL);
    must(REEF_BINARY, "seal", pool, NULL);
    reef(&p, "train", pool, w->late, w->early, NULL);
    assert_int_equal(p.code, 0);
    if (strstr(p.out, "boundary (command) 0 examples after the beginning of") == NULL)
        fail_msg("%s", p.out);
    program_release(&p);
    free(pool);
}

// Rows stay f32; a pool that was made with bf16 is sealed without naming a type.
static void a_type_of_rows_is_refused_and_in_the_way_of_no_older_pool(void **state) {
    const world *w = *state;
    program p;
    char *pool = reef_cli_format("%s/rounded", w->directory);
    reef(&p, "init", pool, "--model", "vector", "--inputs", "16", "--side", "4", "--seal-dtype",
         "bf16", NULL);
    assert_int_equal(p.code, EXIT_USAGE);
    assert_non_null(strstr(p.err, "seal_dtype is for language models"));
    program_release(&p);
    must(REEF_BINARY, "init", pool, "--model", "vector", "--inputs", "16", "--side", "4",
         "--boundaries", "given", NULL);
    must(REEFD_BINARY, "--pool", pool, "--source", w->early, "--quiet", NULL);
    old_pool_set(pool, "seal_dtype", "bf16");
    reef(&p, "seal", pool, "--seal-dtype", "bf16", NULL);
    assert_int_equal(p.code, EXIT_USAGE);
    assert_non_null(strstr(p.err, "stay f32"));
    program_release(&p);
    must(REEF_BINARY, "seal", pool, "--dry-run", NULL);
    json_t *sealed = reef_json("seal", pool, NULL);
    assert_string_equal(json_string_value(json_object_get(sealed, "seal_dtype")), "f32");
    json_decref(sealed);
    free(pool);
}

static void a_snapshot_is_a_state_to_evaluate(void **state) {
    const world *w = *state;
    must(REEF_BINARY, "snapshot", "create", w->pool, "kept", NULL);
    json_t *now = reef_json("predict", w->pool, w->test, NULL);
    json_t *kept = reef_json("predict", w->pool, "--as-of", "kept", w->test, NULL);
    assert_true(
        json_equal(json_object_get(now, "predictions"), json_object_get(kept, "predictions")));
    json_decref(now);
    json_decref(kept);
}

// Exit 64, and words that help; nothing on standard output.
#define REFUSES(word, ...)                                                                         \
    do {                                                                                           \
        program p;                                                                                 \
        reef(&p, __VA_ARGS__, NULL);                                                               \
        if (p.code != EXIT_USAGE || !strstr(p.err, word) || p.out[0])                              \
            fail_msg("exit %d, '%s' lacks '%s'; out '%s'", p.code, p.err, word, p.out);            \
        program_release(&p);                                                                       \
    } while (0)

static void commands_for_text_say_what_to_use_instead(void **state) {
    const world *w = *state;
    char *domain = reef_cli_format("a=%s", w->text);
    REFUSES("reef predict", "score", w->pool, w->text);
    REFUSES("reef predict", "generate", w->pool);
    REFUSES("reef eval", "usage", w->pool);
    REFUSES("reef eval --matrix", "report", w->pool, "--domain", domain);
    REFUSES("a vector model", "grow", w->pool, "--side", "9");
    REFUSES("a vector model", "grow", w->pool, "--side", "9", "--dry-run");
    REFUSES("vector model", "freeze", w->pool);
    REFUSES("vector model", "freeze", w->pool, "--dry-run");
    REFUSES("vector model", "thaw", w->pool);
    free(domain);
}

static void text_and_vectors_are_not_mixed_up(void **state) {
    const world *w = *state;
    char *other =
        reef_cli_format("%.*s?label=none", (int)strcspn(w->late, "?"), w->late); // 17 values
    REFUSES("pool has a vector model", "eval", w->pool, w->text);
    REFUSES("pool has a vector model", "predict", w->pool, w->text);
    REFUSES("pool has a language model", "eval", w->text_pool, w->test);
    REFUSES("has a language model", "predict", w->text_pool, w->test);
    REFUSES("vectors of 17 values, but the pool takes 16", "eval", w->pool, other);
    REFUSES("needs a value", "eval", w->pool, "csv:x?label=");
    free(other);
}

static void a_layer_by_itself_is_called_so(void **state) {
    const world *w = *state;
    char *layer = reef_cli_format("%s/layer", w->directory);
    must(REEF_BINARY, "init", layer, "--model", "layer", "--d-model", "8", "--d-key", "4", "--topk",
         "2", "--side", "3", NULL);
    program p;
    for (int i = 0; i < 2; i++) {
        reef(&p, i ? "eval" : "predict", layer, w->test, NULL);
        if (p.code != 64 || strstr(p.err, "holds a layer by itself") == NULL ||
            strstr(p.err, "language") != NULL)
            fail_msg("exit %d: %s", p.code, p.err);
        program_release(&p);
    }
    free(layer);
}

// ---- real images --------------------------------------------------------------------------------

// Two digits after two others, single pass: told apart in all of them.
static void digits_of_mnist_are_learned_one_pair_after_the_other(void **state) {
    const world *w = *state;
    const char *data = getenv("REEF_DATA_DIR");
    char *probe = reef_cli_format("%s/mnist/train-labels-idx1-ubyte.gz", data != NULL ? data : "");
    bool there = data != NULL && access(probe, R_OK) == 0;
    free(probe);
    if (!there) {
        print_message("skipped: REEF_DATA_DIR names no directory with mnist\n");
        skip();
    }
    char *train = reef_cli_format("idx:%s/mnist/train-images-idx3-ubyte.gz,"
                                  "%s/mnist/train-labels-idx1-ubyte.gz",
                                  data, data);
    char *test = reef_cli_format("idx:%s/mnist/t10k-images-idx3-ubyte.gz,"
                                 "%s/mnist/t10k-labels-idx1-ubyte.gz?classes=0,1,2,3&first=2000",
                                 data, data);
    char *first = reef_cli_format("%s?classes=0,1&first=2000", train);
    char *second = reef_cli_format("%s?classes=2,3&first=2000", train);
    char *path = reef_cli_format("%s/mnist", w->directory);
    must(REEF_BINARY, "init", path, "--model", "vector", "--inputs", "784", "--side", "24", NULL);
    must(REEFD_BINARY, "--pool", path, "--source", first, "--source", second, "--quiet", NULL);
    json_t *found = reef_json("eval", path, test, NULL);
    const json_t *file = json_array_get(json_object_get(found, "files"), 0);
    assert_int_equal(number(file, "labelled"), 2000);
    print_message("accuracy on 0 to 3: %.4f\n", number(file, "accuracy"));
    assert_true(number(file, "accuracy") > 0.93);
    json_decref(found);
    free(train);
    free(test);
    free(first);
    free(second);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_says_what_was_made),
        cmocka_unit_test(init_takes_the_shape_of_images),
        cmocka_unit_test(eval_counts_what_is_correct_now_and_as_of),
        cmocka_unit_test(eval_prints_a_table),
        cmocka_unit_test(the_matrix_has_the_accuracies_of_every_state),
        cmocka_unit_test(predict_says_what_eval_counts),
        cmocka_unit_test(a_layer_by_itself_is_called_so),
        cmocka_unit_test(a_new_pool_knows_no_class),
        cmocka_unit_test(commands_that_read_a_pool_work),
        cmocka_unit_test(seal_speaks_of_examples),
        cmocka_unit_test(a_boundary_is_reported_in_examples),
        cmocka_unit_test(a_type_of_rows_is_refused_and_in_the_way_of_no_older_pool),
        cmocka_unit_test(a_snapshot_is_a_state_to_evaluate),
        cmocka_unit_test(commands_for_text_say_what_to_use_instead),
        cmocka_unit_test(text_and_vectors_are_not_mixed_up),
        cmocka_unit_test(digits_of_mnist_are_learned_one_pair_after_the_other),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
