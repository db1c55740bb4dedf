// reefd on a log that is rotated, and on a folder that grows. However often the daemon is killed,
// the pool ends with the root hash of a run in which nothing happened.
#include "temp_dir.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "draw.h"
#include "live_run.h"
#include "reef_trainer.h"
#include "test.h"

#define KILLS_FEW 9 // in each way of rotation
#define KILLS_MANY 200
#define LINES_PER_KILL 40
#define ROTATE_LINES 97 // not a divisor of the above

typedef struct world {
    live_run run;
    char folder[200], log[220];
    size_t line;
    bool keeps_place; // the writer goes on where it was, also in a file that was cut
    off_t place;
} world;

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    snprintf(w->folder, sizeof(w->folder), "%s/logs", w->run.box.directory);
    snprintf(w->log, sizeof(w->log), "%s/app.log", w->folder);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    return 0;
}

static void command(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void command(const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

// ---- a log --------------------------------------------------------------------------------------

static void rotate(const world *w, const char *how) {
    char conf[260];
    snprintf(conf, sizeof(conf), "%s/rotate.conf", w->run.box.directory);
    char text[512];
    snprintf(text, sizeof(text), "%s {\n    rotate 400\n    missingok\n    %s\n}\n", w->log, how);
    write_mode(conf, text, 0644);
    command("logrotate --force --state '%s/rotate.state' '%s'", w->run.box.directory, conf);
}

static void append_line(world *w) {
    FILE *log = fopen(w->log, w->keeps_place && access(w->log, F_OK) == 0 ? "r+" : "a");
    assert_non_null(log);
    if (w->keeps_place) assert_int_equal(fseeko(log, w->place, SEEK_SET), 0);
    w->run.written += (uint64_t)fprintf(log, "%zu: request %zu took %zu ms\n", w->line,
                                        w->line * 7919 % 1000, w->line * 104729 % 97);
    w->place = ftello(log);
    fclose(log);
}

static void append_lines(world *w, size_t count) {
    for (size_t i = 0; i < count; i++) {
        w->line++;
        append_line(w);
    }
}

static void write_line(world *w, const char *how) {
    if (++w->line % ROTATE_LINES == 0) rotate(w, how);
    append_line(w);
}

static void write_lines(world *w, size_t count, const char *how) {
    for (size_t i = 0; i < count; i++) write_line(w, how);
}

static void clear(world *w) {
    temp_dir_remove(w->folder);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    sandbox_make_pool(&w->run.box);
    w->run.written = 0;
    w->line = 0;
    w->place = 0;
}

static void kill_while_following(world *w, const char *how) {
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    uint64_t seed = 3;
    snprintf(w->run.source, sizeof(w->run.source), "follow:%s", w->log);
    live_start(&w->run);
    write_lines(w, kills * LINES_PER_KILL, how);
    reef_commit whole = live_finish(&w->run);
    uint64_t bytes = w->run.written;

    clear(w);
    for (size_t i = 0; i < kills; i++) {
        live_start(&w->run);
        if (i % 2) reefd_await(&w->run.box, w->run.box.pid);
        size_t alive =
            draw_bits(&seed) % (LINES_PER_KILL + 1); // the others are written while nothing is read
        for (size_t k = 0; k < alive; k++) {
            write_line(w, how);
            if (draw_bits(&seed) % 8 == 0) sleep_ms((unsigned)(draw_bits(&seed) % 40));
        }
        if (i % 3 == 2) sleep_ms((unsigned)(draw_bits(&seed) % 1000));
        reefd_kill(&w->run.box);
        write_lines(w, LINES_PER_KILL - alive, how);
    }
    live_start(&w->run);
    reef_commit commit = live_finish(&w->run);
    assert_int_equal(w->run.written, bytes);
    assert_same(&commit, &whole);
}

TEST_WITH(kills_leave_no_trace_in_a_log_that_is_renamed, setup, sandbox_teardown, void *made) {
    kill_while_following(made, "create");
}

TEST_WITH(kills_leave_no_trace_in_a_log_that_is_packed, setup, sandbox_teardown, void *made) {
    kill_while_following(made, "create\n    compress\n    delaycompress");
}

TEST_WITH(kills_leave_no_trace_in_a_log_that_is_copied, setup, sandbox_teardown, void *made) {
    kill_while_following(made, "copytruncate");
}

// Each cut leaves a hole in front of what is written next.
TEST_WITH(kills_leave_no_trace_in_a_log_with_holes, setup, sandbox_teardown, void *made) {
    world *w = made;
    w->keeps_place = true;
    kill_while_following(w, "copytruncate");
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, sandbox_teardown, world *w)

FIXTURE_TEST(a_folder_that_grows_is_read) {
    snprintf(w->run.source, sizeof(w->run.source), "dir:%s/*.log", w->folder);
    live_start(&w->run);
    reefd_await(&w->run.box, w->run.box.pid);
    append_lines(w, 300);
    snprintf(w->log, sizeof(w->log), "%s/other.log", w->folder);
    append_lines(w, 200);
    snprintf(w->log, sizeof(w->log), "%s/other.txt", w->folder);
    uint64_t written = w->run.written;
    append_lines(w, 5); // the pattern does not fit
    w->run.written = written;
    reef_commit commit = live_finish(&w->run);
    assert_in_range(commit.stream_bytes, written - WAITING_BYTES, written);
}

FIXTURE_TEST(a_log_that_is_not_there_does_not_end_the_daemon) {
    snprintf(w->run.source, sizeof(w->run.source), "follow:%s", w->log);
    live_start(&w->run);
    reefd_await(&w->run.box, w->run.box.pid);
    await_said(&w->run.box, "waiting for it");
    write_lines(w, 60, "");
    (void)live_finish(&w->run);
    assert_true(reefd_said(&w->run.box, "exists now"));
}

static void restore_then(const world *w) {
    reef_store *store = NULL;
    reef_restoration done;
    reef_error err;
    assert_int_equal(
        reef_store_open(&store, w->run.box.pool, &(reef_store_options){.write = true}, &err),
        REEF_OK);
    assert_int_equal(reef_pool_restore_in_place(store, "then", false, &done, &err), REEF_OK);
    reef_store_close(store);
}

// A snapshot has the cursor of its time, and where in which file that was.
FIXTURE_TEST(a_restored_pool_reads_a_log_on_where_it_stood) {
    char older[240];
    snprintf(older, sizeof(older), "%s.1", w->log);
    snprintf(w->run.source, sizeof(w->run.source), "follow:%s", w->log);
    live_start(&w->run);
    write_lines(w, 30, "");
    live_await(&w->run);
    reefd_snapshot(&w->run.box, "then");
    write_lines(w, 30, "");
    live_await(&w->run);
    assert_int_equal(rename(w->log, older), 0);
    write_lines(w, 30, "");
    reef_commit whole = live_finish(&w->run);

    restore_then(w);
    live_start(&w->run);
    reef_commit again = live_finish(&w->run);
    assert_same(&again, &whole);
}

// ---- two logs -----------------------------------------------------------------------------------

static void start_two(world *w, const char *one, const char *other) {
    assert_int_equal(setenv("REEF_TEST_PATIENCE", "1", 1), 0);
    START(&w->run.box, "--source", one, "--source", other);
    assert_int_equal(unsetenv("REEF_TEST_PATIENCE"), 0);
}

static void await_both(const world *w, uint64_t bytes) {
    json_t *status = NULL;
    for (uint64_t accepted = 0; accepted < bytes; sleep_ms(10)) {
        status = reefd_status(&w->run.box);
        accepted =
            (uint64_t)(integer(status, "sources.0.cursor") + integer(status, "sources.1.cursor"));
    }
}

static reef_commit end_two(world *w) {
    await_both(w, w->run.written);
    reefd_end(&w->run.box);
    return pool_commit(&w->run.box);
}

// A snapshot has the state of the scheduler as well: the stream that followed it is made again.
FIXTURE_TEST(a_restored_pool_gives_the_same_slices) {
    char one[240], other[240];
    snprintf(one, sizeof(one), "follow:%s/one", w->folder);
    snprintf(other, sizeof(other), "follow:%s/other?weight=3", w->folder);
    for (int i = 0; i < 2; i++) {
        snprintf(w->log, sizeof(w->log), "%s/%s", w->folder, i == 0 ? "one" : "other");
        for (int k = 0; k < 300; k++, w->line++) append_line(w);
    }
    start_two(w, one, other);
    await_both(w, w->run.written / 5);
    reefd_snapshot(&w->run.box, "then");
    reef_commit whole = end_two(w);

    restore_then(w);
    start_two(w, one, other);
    reef_commit again = end_two(w);
    assert_same(&again, &whole);
}

RUN_TESTS
