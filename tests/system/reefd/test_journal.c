// Pushed and untrained batches, when the pool is copied or restored, or damaged: they are
// kept once, and nothing is trained twice. Each pool is compared with one that read the same lines
// from a file.
#include "program.h"
#include "reefd_run.h"

#include "reef_client.h"
#include "test.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 14 // of "record 000001\n"
#define LINES 240     // of a batch: more than a piece of the stream, so it is trained
#define EXIT_DATA 65

typedef struct world {
    sandbox box;
    sandbox file; // its pool reads the same from a file
    char other[140];
} world;

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    sandbox_make(&w->file);
    sandbox_make_pool(&w->file);
    snprintf(w->other, sizeof(w->other), "%.120s/other", w->box.directory);
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    sandbox_remove(&w->file);
    return sandbox_teardown(state);
}

// ---- what is done -------------------------------------------------------------------------------

/** Lines of batch `batch`, on the heap. */
static char *lines_of(size_t batch) {
    char *text = malloc(LINES * LINE_BYTES + 1);
    assert_non_null(text);
    for (size_t i = 0; i < LINES; i++)
        snprintf(text + i * LINE_BYTES, LINE_BYTES + 1, "record %06zu\n",
                 (batch * LINES + i) % 1000000);
    return keep(text);
}

static void start(world *w) {
    START(&w->box, "--source", "push:web");
}

static void ask(const world *w, const char *command) {
    (void)reefd_tell(&w->box, command);
}

static void stop(world *w) {
    reefd_end(&w->box);
}

/** Push a batch under its number; whether it was there already. */
static bool push(const world *w, size_t batch) {
    char id[20], *text = lines_of(batch);
    snprintf(id, sizeof(id), "%zu", batch);
    return is_true(reefd_push_ok(&w->box, NULL, id, text), "duplicate");
}

/** Batch 0 is trained, and a snapshot taken; batch 1 is trained; batch 2 waits. */
static void make_waiting(world *w) {
    start(w);
    assert_false(push(w, 0));
    ask(w, "drain");
    reefd_snapshot(&w->box, "kept");
    assert_false(push(w, 1));
    ask(w, "drain");
    ask(w, "pause");
    assert_false(push(w, 2));
    stop(w);
}

/** Train what waits, and end. */
static reef_commit finish(world *w) {
    start(w);
    ask(w, "drain");
    stop(w);
    return pool_commit(&w->box);
}

static void reef_does(const char *const *arguments) {
    program p;
    program_run(&p, arguments, NULL);
    if (p.code != 0) fail_msg("%s %s: exit %d: %s", arguments[1], arguments[2], p.code, p.err);
}
#define REEF(...) reef_does((const char *const[]){REEF_BINARY, __VA_ARGS__, NULL})

/** The pool that reads from a file of the source's name reads these batches on. */
static reef_commit read_batches(world *w, const size_t *batches, size_t count) {
    assert_int_equal(chdir(w->file.directory), 0);
    FILE *file = fopen("push:web", "a");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        char *text = lines_of(batches[i]);
        assert_true(fputs(text, file) >= 0);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(RUN(&w->file, "--source", "file:push:web", "--quiet"), 0);
    assert_int_equal(chdir("/"), 0);
    return pool_commit(&w->file);
}

static void use_pool(world *w, const char *path) {
    assert_true(strlen(path) < sizeof(w->box.pool));
    strcpy(w->box.pool, path);
}

// ---- copies, snapshots --------------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

FIXTURE_TEST(a_copy_has_what_waits_and_so_has_the_pool) {
    make_waiting(w);
    REEF("export", "pool", w->box.pool, w->other);
    reef_commit expected = read_batches(w, (const size_t[]){0, 1, 2}, 3);
    reef_commit here = finish(w);
    assert_same(&here, &expected);
    use_pool(w, w->other);
    reef_commit there = finish(w);
    assert_same(&there, &expected);
    start(w);
    for (size_t i = 0; i < 3; i++) assert_true(push(w, i)); // known by their ids there, too
    stop(w);
}

FIXTURE_TEST(what_waits_goes_on_in_a_pool_that_is_restored) {
    make_waiting(w);
    char from[160];
    strcpy(from, w->box.pool);
    REEF("snapshot", "restore", w->box.pool, "kept", w->other);
    use_pool(w, w->other);
    reef_commit there = finish(w);
    reef_commit expected = read_batches(w, (const size_t[]){0, 2}, 2);
    assert_same(&there, &expected);
    start(w);
    assert_true(push(w, 0));
    assert_true(push(w, 2));
    assert_false(push(w, 1)); // trained after the snapshot: gone here, and may come again
    ask(w, "drain");
    stop(w);
    there = pool_commit(&w->box);
    expected = read_batches(w, (const size_t[]){1}, 1);
    assert_same(&there, &expected);
    // The pool that the snapshot is in has what it had.
    use_pool(w, from);
    start(w);
    for (size_t i = 0; i < 3; i++) assert_true(push(w, i));
    stop(w);
}

FIXTURE_TEST(what_waits_continues_where_the_pool_itself_is_restored) {
    make_waiting(w);
    REEF("snapshot", "restore", w->box.pool, "kept", "--in-place");
    start(w);
    assert_true(push(w, 0));
    assert_true(push(w, 2));
    stop(w);
    reef_commit here = finish(w);
    reef_commit expected = read_batches(w, (const size_t[]){0, 2}, 2);
    assert_same(&here, &expected);
}

// ---- damage -------------------------------------------------------------------------------------

/** Change one letter of these bytes wherever the file has them. */
static void damage(const char *path, const char *bytes) {
    size_t size = 0, length = strlen(bytes), hits = 0;
    char *all = read_text(path, &size);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(all + i, bytes, length) == 0) {
            all[i] ^= 1;
            hits++;
        }
    assert_true(hits > 0);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fwrite(all, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

FIXTURE_TEST(verify_says_what_was_pushed_and_is_lost) {
    make_waiting(w);
    char data[200];
    snprintf(data, sizeof(data), "%s/data.mdb", w->box.pool);
    damage(data, "record 000530\n"); // of batch 2
    program p;
    program_run(&p, (const char *const[]){REEF_BINARY, "verify", w->box.pool, NULL}, NULL);
    assert_int_equal(p.code, EXIT_DATA);
    assert_non_null(strstr(p.err, "push:web"));
    assert_non_null(strstr(p.out, "push again what waited in push:web, into a source of another"));

    // What it advises works: nothing of the damaged source, and the batch through another one.
    START(&w->box, "--source", "push:again");
    assert_false(push(w, 2));
    ask(w, "drain");
    assert_int_equal(reefd_count(&w->box, "stream_bytes") + reefd_count(&w->box, "carried_bytes"),
                     3 * LINES * LINE_BYTES);
}

RUN_TESTS
