// reefd on files of vectors: trained in order, refused where they do not fit, and after kill -9 and
// restarts the root hash of an uninterrupted run.
#include "reef_trainer.h"
#include "reefd_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "vector_files.h"

#define IDX_EXAMPLES 12000
#define CSV_EXAMPLES 3000
#define RECORD_BYTES (4 + 4 * BLOB_PIXELS)
#define KILLS_FEW 12
#define KILLS_MANY 100
#define PATH_BYTES 256
#define EXIT_USAGE 64
#define EXIT_DATA 65

typedef struct world {
    sandbox box;
    char images[PATH_BYTES], labels[PATH_BYTES], csv[PATH_BYTES];
    char idx_early[4 * PATH_BYTES], idx_late[4 * PATH_BYTES], csv_spec[4 * PATH_BYTES];
} world;

static void make_vector_pool(const world *w) {
    reef_config config;
    reef_config_default(&config);
    config.model = REEF_MODEL_VECTOR;
    config.inputs = BLOB_PIXELS;
    config.side = 6;
    config.memory = 40;
    sandbox_make_pool_of(&w->box, &config);
}

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    sandbox_make(&w->box);
    snprintf(w->images, PATH_BYTES, "%s/images", w->box.directory);
    snprintf(w->labels, PATH_BYTES, "%s/labels", w->box.directory);
    snprintf(w->csv, PATH_BYTES, "%s/csv", w->box.directory);
    blob_write_idx(w->images, w->labels, IDX_EXAMPLES, 0, 4, 1);
    blob_write_csv(w->csv, CSV_EXAMPLES, 0, 4, 2);
    snprintf(w->idx_early, sizeof(w->idx_early), "idx:%s,%s?classes=0,1", w->images, w->labels);
    snprintf(w->idx_late, sizeof(w->idx_late), "idx:%s,%s?classes=2,3&shuffle=1", w->images,
             w->labels);
    snprintf(w->csv_spec, sizeof(w->csv_spec), "csv:%s?label=class", w->csv);
    make_vector_pool(w);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    sandbox_remove(&w->box);
    free(w);
    return 0;
}

static pid_t start(const world *w, const char *threads) {
    return reefd_start(&w->box, -1,
                       (const char *const[]){"--pool", w->box.pool, "--source", w->idx_early,
                                             "--source", w->idx_late, "--source", w->csv_spec,
                                             "--threads", threads, "--commit-steps", "3", NULL});
}

static unsigned now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned)now.tv_sec * 1000 + (unsigned)(now.tv_nsec / 1000000);
}

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static uint64_t accepted(const world *w, const char *source) {
    reef_error err = {0};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    assert_int_equal(
        reef_store_open(&store, w->box.pool, &(reef_store_options){.write = true}, &err), REEF_OK);
    assert_int_equal(
        reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), REEF_OK);
    uint64_t cursor = reef_trainer_cursor(trainer, source);
    reef_trainer_close(trainer);
    reef_store_close(store);
    return cursor;
}

static void killed_at_any_moment_it_ends_with_the_same_root(void **state) {
    world *w = *state;
    static const char *const THREADS[] = {"1", "2"}; // alternately
    unsigned begin = now_ms();
    assert_int_equal(reefd_wait(start(w, "1")), 0);
    unsigned run_ms = now_ms() - begin;
    reef_commit whole = pool_commit(&w->box);
    assert_int_equal(accepted(w, w->idx_early), IDX_EXAMPLES / 2 * RECORD_BYTES);
    assert_int_equal(accepted(w, w->idx_late), IDX_EXAMPLES / 2 * RECORD_BYTES);
    assert_int_equal(accepted(w, w->csv_spec), CSV_EXAMPLES * RECORD_BYTES);
    make_vector_pool(w);
    uint64_t seed = 3;
    size_t kills = 0, midway = 0, most = test_effort(KILLS_FEW, KILLS_MANY);
    // On a busy machine it takes more of them until one falls between two commits.
    for (size_t turn = 0; kills < most || (midway == 0 && turn < 20 * most); turn++) {
        pid_t pid = start(w, THREADS[turn % 2]);
        sleep_ms((unsigned)(draw(&seed) % (run_ms + 1)));
        kill(pid, SIGKILL);
        int end = reefd_wait(pid);
        kills += end == REEFD_SIGNALLED + SIGKILL;
        pool_check(&w->box);
        reef_commit commit = pool_commit(&w->box);
        midway += commit.stream_bytes > 0 && commit.stream_bytes < whole.stream_bytes;
        if (end != 0) continue;
        assert_memory_equal(commit.root, whole.root, REEF_HASH_BYTES);
        make_vector_pool(w);
    }
    assert_true(midway > 0);
    assert_int_equal(reefd_wait(start(w, "2")), 0);
    reef_commit commit = pool_commit(&w->box);
    assert_int_equal(commit.step, whole.step);
    assert_int_equal(commit.stream_bytes, whole.stream_bytes);
    assert_memory_equal(commit.root, whole.root, REEF_HASH_BYTES);
}

// What is wrong is said, ends the program with `code`, and leaves the pool as it was.
static void refuses(const world *w, const char *source, int code, const char *word) {
    reef_commit before = pool_commit(&w->box);
    const char *const arguments[] = {"--pool",   w->box.pool, "--source", w->csv_spec,
                                     "--source", source,      NULL};
    assert_int_equal(reefd_run(&w->box, -1, arguments), code);
    if (!reefd_said(&w->box, word)) fail_msg("'%s' is not said", word);
    reef_commit after = pool_commit(&w->box);
    assert_int_equal(after.number, before.number);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
}

static void what_does_not_fit_the_pool_is_refused_before_anything_changes(void **state) {
    world *w = *state;
    char spec[4 * PATH_BYTES];
    write_text(w->box.text, 1000, 1);
    refuses(w, w->box.text, EXIT_USAGE, "is text, but the pool has a vector model");
    refuses(w, "-", EXIT_USAGE, "is text, but the pool has a vector model");
    snprintf(spec, sizeof(spec), "csv:%s?label=none", w->csv);
    refuses(w, spec, EXIT_USAGE, "vectors of 17 values, but the pool takes 16");
    snprintf(spec, sizeof(spec), "idx:%s,%s", w->images, w->csv);
    refuses(w, spec, EXIT_USAGE, "not an IDX file");
    FILE *file = fopen(w->csv, "a");
    assert_non_null(file);
    fprintf(file, "\n1,2,3\n");
    assert_int_equal(fclose(file), 0);
    refuses(w, w->idx_early, EXIT_USAGE, "line 3002 has 3 values");
    sandbox_make_pool(&w->box); // of text
    blob_write_csv(w->csv, 100, 0, 4, 2);
    refuses(w, w->idx_early, EXIT_USAGE, "holds vectors, but the pool has a language model");
}

// A value that is found to be none while it is read: what came before is kept.
static void a_bad_value_in_the_middle_ends_with_what_was_read(void **state) {
    world *w = *state;
    enum { COUNT = 2000, BAD = 1500 };
    static float values[COUNT][BLOB_PIXELS];
    uint64_t seed = 1;
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < BLOB_PIXELS; k++) values[i][k] = (float)(blob_draw(&seed) % 100);
    memset(&values[BAD][3], 0xff, sizeof(float)); // not a number
    char path[PATH_BYTES], spec[2 * PATH_BYTES], head[128] = "\x93NUMPY\x01";
    snprintf(path, sizeof(path), "%s/x.npy", w->box.directory);
    snprintf(spec, sizeof(spec), "npy:%s?label=none", path);
    int length = snprintf(head + 10, sizeof(head) - 10,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }\n", COUNT,
                          BLOB_PIXELS);
    head[8] = (char)length;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, (size_t)length + 10, file), length + 10);
    assert_int_equal(fwrite(values, sizeof(values), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(
        reefd_run(&w->box, -1,
                  (const char *const[]){"--pool", w->box.pool, "--source", spec, NULL}),
        EXIT_USAGE);
    assert_true(reefd_said(&w->box, "value 3 of example 1500"));
    uint64_t cursor = accepted(w, spec);
    assert_true(cursor <= BAD * RECORD_BYTES);
    pool_check(&w->box);
}

static void a_file_that_became_shorter_is_distinguished_from_a_new_one(void **state) {
    world *w = *state;
    const char *const arguments[] = {"--pool", w->box.pool, "--source", w->csv_spec, NULL};
    assert_int_equal(reefd_run(&w->box, -1, arguments), 0);
    assert_int_equal(reefd_run(&w->box, -1, arguments), 0); // nothing is left to read
    blob_write_csv(w->csv, CSV_EXAMPLES - 100, 0, 4, 2);
    assert_int_equal(reefd_run(&w->box, -1, arguments), EXIT_DATA);
    assert_true(reefd_said(&w->box, "the pool has already read"));
}

static void when_stopped_it_continues_where_it_was(void **state) {
    world *w = *state;
    assert_int_equal(reefd_wait(start(w, "1")), 0);
    reef_commit whole = pool_commit(&w->box);
    make_vector_pool(w);
    for (int i = 0; i < 3; i++) {
        pid_t pid = start(w, "2");
        reefd_await(&w->box, pid);
        kill(pid, SIGTERM);
        assert_int_equal(reefd_wait(pid), 0);
    }
    assert_int_equal(reefd_wait(start(w, "1")), 0);
    reef_commit commit = pool_commit(&w->box);
    assert_memory_equal(commit.root, whole.root, REEF_HASH_BYTES);
}

// A pool whose last commit has the first 12 bytes of a source, and no more.
static void make_cut_pool(const world *w, const char *source) {
    static const uint8_t BYTES[12] = {0}; // label 0 and two values
    reef_error err = {0};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_commit commit;
    make_vector_pool(w);
    assert_int_equal(
        reef_store_open(&store, w->box.pool, &(reef_store_options){.write = true}, &err), REEF_OK);
    assert_int_equal(
        reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), REEF_OK);
    assert_int_equal(reef_trainer_feed(trainer, source, BYTES, sizeof(BYTES), NULL, NULL, &err),
                     REEF_OK);
    assert_int_equal(reef_trainer_commit(trainer, &commit, &err), REEF_OK);
    reef_trainer_close(trainer);
    reef_store_close(store);
}

static int run_two(const world *w, const char *first, const char *second) {
    const char *const arguments[] = {"--pool",   w->box.pool, "--source", first,
                                     "--source", second,      NULL};
    return reefd_run(&w->box, -1, arguments);
}

static void a_record_that_was_cut_is_gone_on_with_first(void **state) {
    world *w = *state;
    make_cut_pool(w, w->csv_spec);
    reef_commit before = pool_commit(&w->box);
    assert_int_equal(
        reefd_run(&w->box, -1,
                  (const char *const[]){"--pool", w->box.pool, "--source", w->idx_early, NULL}),
        EXIT_USAGE);
    assert_true(reefd_said(&w->box, "the pool stopped inside a record, 12 bytes after its"));
    assert_int_equal(run_two(w, w->idx_early, w->csv_spec), EXIT_USAGE);
    assert_int_equal(pool_commit(&w->box).number, before.number);
    assert_int_equal(run_two(w, w->csv_spec, w->idx_early), 0);
    assert_int_equal(accepted(w, w->csv_spec), CSV_EXAMPLES * RECORD_BYTES);
    pool_check(&w->box);
}

static void status_counts_errors_where_text_has_bits(void **state) {
    world *w = *state;
    pid_t pid = reefd_start(
        &w->box, -1,
        (const char *const[]){"--pool", w->box.pool, "--source", w->csv_spec, "--stay", NULL});
    reefd_await(&w->box, pid);
    while (reefd_count(&w->box, "stream_bytes") == 0) sleep_ms(5);
    json_t *status = reefd_ask(&w->box, "{\"command\": \"status\"}");
    const json_t *source = json_array_get(json_object_get(status, "sources"), 0);
    double last = json_number_value(json_object_get(status, "last_error_share"));
    assert_int_equal(json_integer_value(json_object_get(status, "record_bytes")), RECORD_BYTES);
    assert_true(json_is_number(json_object_get(status, "last_error_share")));
    assert_true(last >= 0 && last <= 1);
    assert_true(json_is_null(json_object_get(status, "last_bits_per_byte")));
    assert_string_equal(json_string_value(json_object_get(source, "name")), w->csv_spec);
    assert_int_equal(json_integer_value(json_object_get(source, "bytes")),
                     CSV_EXAMPLES * RECORD_BYTES);
    json_decref(status);
    assert_int_equal(reefd_refuses(&w->box, "{\"command\": \"freeze\"}"), REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(&w->box, "{\"command\": \"grow\", \"side\": 9}"),
                     REEF_ERR_INVALID);
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 0);
}

// As of text: 0 would be the best share that there is.
static void before_a_label_there_is_no_share_of_errors(void **state) {
    world *w = *state;
    pid_t pid = reefd_start(
        &w->box, -1,
        (const char *const[]){"--pool", w->box.pool, "--source", "push:web", "--stay", NULL});
    reefd_await(&w->box, pid);
    json_t *status = reefd_ask(&w->box, "{\"command\": \"status\"}");
    assert_true(json_is_null(json_object_get(status, "error_share")));
    assert_true(json_is_null(json_object_get(status, "last_error_share")));
    json_decref(status);
    kill(pid, SIGTERM);
    assert_int_equal(reefd_wait(pid), 0);
}

#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(killed_at_any_moment_it_ends_with_the_same_root),
        IN_WORLD(what_does_not_fit_the_pool_is_refused_before_anything_changes),
        IN_WORLD(a_bad_value_in_the_middle_ends_with_what_was_read),
        IN_WORLD(a_file_that_became_shorter_is_distinguished_from_a_new_one),
        IN_WORLD(a_record_that_was_cut_is_gone_on_with_first),
        IN_WORLD(status_counts_errors_where_text_has_bits),
        IN_WORLD(before_a_label_there_is_no_share_of_errors),
        IN_WORLD(when_stopped_it_continues_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
