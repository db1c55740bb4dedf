// reef export and reef import as a user runs them: two pools from one, a generation that goes from
// one to the other, what each mistake is called, and a daemon beside it.
#include "data_file.h"
#include "reefd_run.h"
#include "tools_world.h"

#include <math.h>
#include <unistd.h>

#define TEXT_BYTES 3000

// A pool that knows English, its copy, and the file of a model.
typedef struct copies {
    char *directory, *pool, *copy, *file, *english, *code;
} copies;

static void learn(const char *pool, const char *kind) {
    reef_error err;
    reef_store *store = NULL;
    char *text = tiny_text(kind, TEXT_BYTES);
    reef_trainer *trainer = pool_train(pool, &store);
    assert_int_equal(
        reef_trainer_feed(trainer, "test", (const uint8_t *)text, TEXT_BYTES, NULL, NULL, &err),
        REEF_OK);
    assert_int_equal(reef_trainer_seal(trainer, NULL, NULL, &err), REEF_OK);
    pool_train_end(store, trainer);
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    copies *c = keep(reef_cli_alloc(1, sizeof(*c)));
    c->directory = test_directory_new();
    c->pool = path_in(c->directory, "pool");
    c->copy = path_in(c->directory, "copy");
    c->file = path_in(c->directory, "c.safetensors");
    c->english = path_in(c->directory, "english.txt");
    c->code = path_in(c->directory, "code.c");
    write_file(c->english, tiny_text("english", 800));
    write_file(c->code, tiny_text("c", 800));
    // Each text has a generation of its own here, and ends it.
    (void)reef_json("init", c->pool, TINY_OPTIONS, "--boundaries", "given", NULL);
    learn(c->pool, "english");
    *state = c;
    return 0;
}

static int teardown(void **state) {
    const copies *c = *state;
    test_directory_remove(c->directory);
    return 0;
}

// Bits per byte of a text.
static double loss(const char *pool, const char *as_of, const char *text) {
    json_t *document = reef_json("eval", pool, text, "--as-of", as_of, "--threads", "1", NULL);
    return number(document, "files.0.bits_per_byte");
}

static void export_both(const copies *c) {
    (void)reef_json("export", "pool", c->pool, c->copy, NULL);
    learn(c->pool, "c");
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, copies *c)

FIXTURE_TEST(a_generation_goes_from_one_pool_to_another) {
    json_t *report = reef_json("export", "pool", c->pool, c->copy, NULL);
    assert_true(is_true(report, "verified"));
    assert_true(integer(report, "records") > 0);
    assert_true(integer(report, "bytes_after") <= integer(report, "bytes_before"));
    assert_string_equal(string(report, "copy"), c->copy);
    double english = loss(c->copy, "0", c->english), code = loss(c->copy, "now", c->code);

    learn(c->pool, "c");
    json_t *plan = reef_json("import", c->copy, c->pool, "--dry-run", NULL);
    assert_false(is_true(plan, "done"));
    const json_t *would = json_at(plan, "imported.0");
    assert_int_equal(integer(would, "from"), 1);
    assert_int_equal(integer(would, "experts"), TINY_SIDE * TINY_SIDE);
    assert_true(integer(would, "trained_bytes") > 0);
    assert_true(loss(c->copy, "now", c->code) == code);
    json_t *done = reef_json("import", c->copy, c->pool, "--generations", "1", NULL);
    assert_true(is_true(done, "done"));
    assert_true(json_equal(json_at(done, "imported"), json_at(plan, "imported")));
    const json_t *one = json_at(done, "imported.0");
    assert_int_equal(integer(one, "generation"), 1);
    assert_int_equal(integer(one, "first_id"), TINY_SIDE * TINY_SIDE);

    assert_true(loss(c->copy, "now", c->code) < code);
    assert_true(loss(c->copy, "now", c->code) == loss(c->pool, "now", c->code));
    assert_true(loss(c->copy, "now", c->english) == loss(c->pool, "now", c->english));
    assert_true(loss(c->copy, "0", c->english) == english);
    assert_true(is_sound(c->copy));
    answers(0, "imported=1 from=1", "timeline", c->copy, NULL);
    json_t *generations = reef_json("generations", c->copy, NULL);
    assert_int_equal(length(generations, "generations"), 3);
    learn(c->copy, "c"); // and it is trained like any other
    assert_true(is_sound(c->copy));
}

FIXTURE_TEST(people_can_read_what_was_done) {
    export_both(c);
    char *other = path_in(c->directory, "other");
    answers(0, "nothing is damaged", "export", "pool", c->pool, other, NULL);
    answers(0,
            "would join  as generation 1, ids 16 to 31 in each layer; generation 2 would be open",
            "import", c->copy, c->pool, "--dry-run", NULL);
    answers(0, "imported    as generation 1, ids 16 to 31 in each layer; generation 2 is open",
            "import", c->copy, c->pool, NULL);
    answers(0, "nothing to import", "import", c->copy, c->pool, NULL);
}

FIXTURE_TEST(mistakes_are_named) {
    export_both(c);
    answers(64, "not empty", "export", "pool", c->pool, c->copy, NULL);
    char *inside = path_in(c->pool, "copy"), *missing = path_in(c->directory, "missing");
    answers(64, "lies inside it", "export", "pool", c->pool, inside, NULL);
    answers(66, "no pool", "export", "pool", missing, c->copy, NULL);
    answers(64, "export needs one of: pool, model", "export", c->pool, NULL);
    static const char *const NONE[] = {"", "x", "1-", "2-1", "1,", "1;2"};
    for (size_t i = 0; i < sizeof(NONE) / sizeof(*NONE); i++)
        answers(64, "no list of numbers", "import", c->copy, c->pool, "--generations", NONE[i],
                NULL);
    answers(64, "is open: seal it first", "import", c->copy, c->pool, "--generations", "2", NULL);
    answers(66, "no generation 9", "import", c->copy, c->pool, "--generations", "1,9", NULL);
    answers(64, "is the backbone of its pool: copy the whole pool instead", "import", c->copy,
            c->pool, "--generations", "0", NULL);
    answers(66, "no pool", "import", c->copy, missing, NULL);
    answers(64, "of this very pool", "import", c->pool, c->pool, "--generations", "1", NULL);
    learn(c->copy, "c");
    learn(c->copy, "english");
    assert_int_not_equal(access(missing, F_OK), 0);
    assert_int_not_equal(access(inside, F_OK), 0);
}

// Its own files, which are mapped, least of all.
FIXTURE_TEST(nothing_is_written_into_a_pool) {
    char *data = path_in(c->pool, "data.mdb"), *inner = path_in(c->pool, "inner");
    learn(c->pool, "c");
    answers(64, "its directory is a pool", "export", "model", c->pool, data, "--force", NULL);
    answers(64, "lies inside it", "export", "pool", c->pool, inner, "--dry-run", NULL);
    answers(64, "is a pool", "init", inner, NULL);
    answers(66, "No such file", "export", "pool", c->pool, "/no/such/place", "--dry-run", NULL);
    json_t *sound = reef_json("verify", c->pool, NULL);
    assert_true(is_true(sound, "sound"));
}

// A program that begins without standard output or error does not print into the files that it
// opens.
FIXTURE_TEST(no_message_lands_in_a_pool) {
    char *quiet = formatted(REEF_BINARY " snapshot create %s s <&- >&- 2>&-; " REEF_BINARY
                                        " seal %s --dry-run <&- >&- 2>&-; " REEF_BINARY
                                        " status %s <&- >&- 2>&-",
                            c->pool, c->pool, c->pool);
    program p;
    program_run(&p, (const char *const[]){"/bin/sh", "-c", quiet, NULL}, NULL);
    assert_int_equal(p.code, 74); // what was asked for could not be said
    assert_true(is_sound(c->pool));
}

FIXTURE_TEST(a_copy_need_not_be_verified) {
    json_t *report = reef_json("export", "pool", c->pool, c->copy, "--no-verify", NULL);
    assert_false(is_true(report, "verified"));
    assert_true(is_null(report, "records"));
    assert_true(is_sound(c->copy));
}

// One bit of each block of expert rows, in pages that are free as well.
FIXTURE_TEST(damaged_records_are_reported) {
    static const uint8_t head[] = {'R', 'E', 'E', 'F', 1, REEF_DB_EXPERTS};
    data_bytes file = data_file_load(c->pool);
    size_t found = 0;
    for (size_t at = 0; (at = data_file_find(&file, at, head, sizeof(head))) != SIZE_MAX; at++) {
        file.data[at + 48 + 5] ^= 1;
        found++;
    }
    assert_true(found > 0);
    data_file_save(c->pool, &file, file.bytes);
    free(file.data);
    answers(65, "records are damaged, as they are in the pool", "export", "pool", c->pool, c->copy,
            NULL);
}

// ---- beside a daemon ----------------------------------------------------------------------------

FIXTURE_TEST(beside_a_daemon_it_exports_and_does_not_import) {
    sandbox box;
    char *other = path_in(c->directory, "other"), *source = formatted("file:%s", c->code);
    export_both(c);
    sandbox_make(&box);
    snprintf(box.pool, sizeof(box.pool), "%s", c->copy);
    START(&box, "--source", source, "--stay", "--threads", "1");
    answers(75, "stop it first", "import", c->copy, c->pool, NULL);
    answers(0, "nothing is damaged", "export", "pool", c->copy, other, NULL);
    reefd_end(&box);
    sandbox_remove(&box);
    assert_true(is_sound(other));
}

// Wherever it is killed: the pool is whole, and nothing lies about where temporary files are made.
FIXTURE_TEST(a_killed_import_leaves_nothing) {
#ifdef REEF_FAIL_POINTS
    static const char *const points[] = {"import.read", "import.joined", "import.cleared",
                                         "commit.before_sync"};
    char *temporary = path_in(c->directory, "temporary");
    assert_int_equal(mkdir(temporary, 0700), 0);
    export_both(c);
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
        char *command = formatted("TMPDIR=%s REEF_FAIL_POINT=%s %s import %s %s >/dev/null 2>&1",
                                  temporary, points[i], REEF_BINARY, c->copy, c->pool);
        assert_int_not_equal(system(command), 0);
        assert_true(is_sound(c->copy));
        assert_int_equal(rmdir(temporary), 0);
        assert_int_equal(mkdir(temporary, 0700), 0);
    }
    (void)reef_json("import", c->copy, c->pool, NULL);
    assert_true(is_sound(c->copy));
#else
    (void)c;
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

// ---- whole models -------------------------------------------------------------------------------

FIXTURE_TEST(a_model_is_written_as_it_was_planned) {
    learn(c->pool, "c");
    json_t *plan = reef_json("export", "model", c->pool, c->file, "--dry-run", NULL);
    assert_false(is_true(plan, "done"));
    assert_int_not_equal(access(c->file, F_OK), 0);
    json_t *file = reef_json("export", "model", c->pool, c->file, NULL);
    assert_int_equal(integer(file, "generations"), 3);
    assert_int_equal(integer(file, "tensors"), integer(plan, "tensors"));
    assert_true(is_true(file, "open"));
    assert_true(integer(file, "bytes") > 0);
}

FIXTURE_TEST(mistakes_with_models_are_named) {
    char *missing = path_in(c->directory, "missing");
    answers(0, "the last one sealed", "export", "model", c->pool, c->file, "--as-of", "0", NULL);
    answers(64, "--force", "export", "model", c->pool, c->file, NULL);
    answers(64, "exists", "export", "model", c->pool, c->file, "--dry-run", NULL);
    answers(66, "no generation 9", "export", "model", c->pool, missing, "--as-of", "9", NULL);
    assert_int_not_equal(access(missing, F_OK), 0);
}

// ---- arrays for NumPy ---------------------------------------------------------------------------

// The data of an .npy file, whose header has to begin so.
static char *read_npy(const char *path, const char *header, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *all = reef_cli_alloc(1 << 20, 1);
    size_t count = fread(all, 1, 1 << 20, file);
    assert_int_equal(fclose(file), 0);
    assert_memory_equal(all, "\x93NUMPY\x01\0", 8);
    size_t at = 10 + (size_t)(uint8_t)all[8] + 256 * (size_t)(uint8_t)all[9];
    assert_int_equal(at % 64, 0);
    if (strncmp(all + 10, header, strlen(header)) != 0) fail_msg("%.100s", all + 10);
    assert_true(all[at - 1] == '\n');
    *bytes = count - at;
    memmove(all, all + at, *bytes);
    return all;
}

FIXTURE_TEST(logits_are_those_that_the_loss_is_made_of) {
    size_t bytes, count = 800;
    double bits = 0.0;
    char *path = path_in(c->directory, "logits.npy"), *text = tiny_text("english", count);
    // Logits are the net's: where memories answer beside it, the loss is made of more.
    char *net = path_in(c->directory, "net");
    (void)reef_json("init", net, TINY_OPTIONS, "--memory", "0", NULL);
    learn(net, "english");
    answers(0, "english.txt", "eval", net, c->english, "--logits", path, "--threads", "1", NULL);
    char *data =
        read_npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (800, 256,), }", &bytes);
    assert_int_equal(bytes, count * 256 * sizeof(float));
    for (size_t i = 0; i + 1 < count; i++) {
        float row[256];
        double sum = 0.0;
        memcpy(row, data + i * sizeof(row), sizeof(row));
        for (size_t v = 0; v < 256; v++) sum += exp((double)row[v]);
        bits += (log(sum) - (double)row[(uint8_t)text[i + 1]]) / log(2.0);
    }
    assert_true(fabs(bits / (double)(count - 1) - loss(net, "now", c->english)) < 1e-5);
    answers(64, "it exists", "eval", c->pool, c->english, "--logits", path, NULL);
    answers(64, "of one text, and 2 were given", "eval", c->pool, c->english, c->code, "--logits",
            path, NULL);
    answers(64, "takes no --logits", "eval", c->pool, c->english, "--matrix", "--logits", path,
            NULL);
    free(data);
}

RUN_TESTS
