// reefd on logs that are rotated as real programs rotate them, while they are written: each line is
// learned once, or its bytes are counted as lost.
#include "live_run.h"
#include "reefd_run.h"
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define AWAIT_MS_MAX 120000
#define CONTAINERS 5

typedef struct world {
    live_run run;
    char folder[200], log[220];
    size_t line;
} world;

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    snprintf(w->folder, sizeof(w->folder), "%s/logs", w->run.box.directory);
    snprintf(w->log, sizeof(w->log), "%s/app.log", w->folder);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, sandbox_teardown, world *w)

static void command(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void command(const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

// One write of a whole line, as programs that append to a log make it.
static size_t write_line(const char *path, size_t number) {
    char line[160];
    int bytes = snprintf(line, sizeof(line), "%zu: request %zu took %zu ms, %0*zu\n", number,
                         number * 7919 % 1000, number * 104729 % 97, (int)(number % 60), number);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, line, (size_t)bytes), bytes);
    close(fd);
    return (size_t)bytes;
}

static void append(world *w, size_t count) {
    for (size_t i = 0; i < count; i++) w->run.written += write_line(w->log, w->line++);
}

static void begin(world *w, const char *source) {
    snprintf(w->run.source, sizeof(w->run.source), "%s", source);
    live_start(&w->run);
    reefd_await(&w->run.box, w->run.box.pid);
}

static void follow(world *w) {
    char source[300];
    snprintf(source, sizeof(source), "follow:%s", w->log);
    begin(w, source);
}

static void follow_folder(world *w) {
    char source[300];
    snprintf(source, sizeof(source), "dir:%s/*.log", w->folder);
    begin(w, source);
}

static uint64_t lost(const world *w) {
    return (uint64_t)reefd_count(&w->run.box, "sources.0.lost_bytes");
}

// ---- by rename ----------------------------------------------------------------------------------

// Two files change places, so the numbers of their inodes alternate.
FIXTURE_TEST(two_files_that_change_places_are_read_once) {
    follow(w);
    for (int i = 0; i < 12; i++) {
        append(w, 20);
        if (i % 3) live_await(&w->run);
        command("cd '%s' && rm -f app.log.1 && mv app.log app.log.1", w->folder);
        // What was not read of the file that went is read while it is held open.
    }
    append(w, 20);
    (void)live_finish(&w->run);
    assert_false(reefd_said(&w->run.box, "source_loss"));
}

// It is another file: what it has is read again, and nothing of it is left out.
FIXTURE_TEST(a_file_that_was_deleted_and_copied_back_is_read_whole) {
    follow_folder(w);
    append(w, 200);
    live_await(&w->run);
    uint64_t bytes = w->run.written;
    command("cd '%s' && cp app.log kept && rm app.log && sleep 3 && cp kept app.log", w->folder);
    w->run.written += bytes;
    append(w, 20);
    (void)live_finish(&w->run);
}

FIXTURE_TEST(renamed_and_packed_under_load_each_line_is_read_once) {
    follow(w);
    for (int i = 0; i < 6; i++) {
        append(w, 300);
        command("cd '%s' && for i in 5 4 3 2 1; do test -e app.log.$i.gz && "
                "mv app.log.$i.gz app.log.$((i+1)).gz; done; mv app.log app.log.1 && "
                "gzip app.log.1",
                w->folder);
    }
    append(w, 20);
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "lost"), 0);
}

// The names of a container's log: the file that is written, and older ones, of which two stay.
FIXTURE_TEST(containers_that_rotate_faster_than_they_are_read_lose_nothing) {
    follow_folder(w);
    for (int i = 0; i < 6; i++)
        for (int container = 0; container < CONTAINERS; container++) {
            snprintf(w->log, sizeof(w->log), "%s/%d.log", w->folder, container);
            append(w, 400);
            sleep_ms(60); // it is seen before it goes
            command("cd '%s' && mv %d.log %d.log.%d && rm -f %d.log.%d", w->folder, container,
                    container, i, container, i - 2);
        }
    append(w, 1);
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "lost"), 0);
}

// ---- in place -----------------------------------------------------------------------------------

static void overwrite(world *w, const char *kind) {
    char source[300];
    snprintf(source, sizeof(source), "%s:%s%s", kind, w->log, strcmp(kind, "dir") == 0 ? "*" : "");
    append(w, 1);
    begin(w, source);
    for (int i = 0; i < 30; i++) {
        live_await(&w->run);
        if (i % 3 == 0) assert_int_equal(truncate(w->log, 0), 0);
        append(w, 1 + (size_t)i % 4);
    }
    (void)live_finish(&w->run);
}

FIXTURE_TEST(a_followed_file_that_is_overwritten_is_read_each_time) {
    overwrite(w, "follow");
}

FIXTURE_TEST(a_file_of_a_folder_that_is_overwritten_is_read_each_time) {
    overwrite(w, "dir");
}

// A writer that never waits: what it writes between the copy and the cut is in no file, and nobody
// can read it. What was seen of it is counted, and no line comes twice.
FIXTURE_TEST(of_a_log_that_is_copied_and_cut_under_load_no_line_comes_twice) {
    int lines[2];
    assert_int_equal(pipe(lines), 0);
    follow(w);
    pid_t writer = fork();
    if (writer == 0) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < 3000; i++) {
            bytes += write_line(w->log, i);
            if (i % 4 == 0) sleep_ms(1);
        }
        _exit(write(lines[1], &bytes, sizeof(bytes)) != sizeof(bytes));
    }
    for (int i = 0; i < 5; i++) {
        sleep_ms(150);
        command("cd '%s' && touch app.log && cp app.log app.log.1 && : > app.log && sleep 0.2 && "
                "mv app.log.1 app.log.$(date +%%s%%N)",
                w->folder);
    }
    int end = 1;
    uint64_t written = 0, cursor = 0, before = 1;
    assert_int_equal(read(lines[0], &written, sizeof(written)), sizeof(written));
    assert_int_equal(waitpid(writer, &end, 0), writer);
    assert_int_equal(end, 0);
    // Until nothing more comes for longer than a copy is waited for.
    for (int ms = 0; ms < AWAIT_MS_MAX && cursor != before; ms += 4000) {
        before = cursor;
        sleep_ms(4000);
        cursor = (uint64_t)reefd_count(&w->run.box, "sources.0.cursor");
    }
    print_message("  %" PRIu64 " bytes were written, %" PRIu64 " read, %" PRIu64 " seen and lost\n",
                  written, cursor, lost(w));
    assert_true(cursor + lost(w) <= written);
    assert_true(lost(w) == 0 || reefd_said(&w->run.box, "lost"));
    assert_true(cursor > written / 2);
    close(lines[0]);
    close(lines[1]);
    reefd_end(&w->run.box);
}

// ---- what the kernel and the operator do --------------------------------------------------------

// More changes than the kernel remembers, so it forgets some: the names are looked at anyway.
FIXTURE_TEST(changes_that_the_kernel_forgot_are_found) {
    char bound[32] = "";
    int fd = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, bound, sizeof(bound) - 1) <= 0) skip();
    close(fd);
    unsigned long events = strtoul(bound, NULL, 10);
    if (events > 100000) skip(); // it takes too long here
    follow(w);
    append(w, 10);
    live_await(&w->run);
    assert_int_equal(kill(w->run.box.pid, SIGSTOP), 0);
    char name[260];
    snprintf(name, sizeof(name), "%s/unrelated", w->folder);
    for (unsigned long i = 0; i < events / 2 + 100; i++) {
        fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(unlink(name), 0);
    }
    append(w, 10);
    command("cd '%s' && mv app.log app.log.1", w->folder);
    append(w, 10);
    command("cd '%s' && mv app.log.1 app.log.2 && mv app.log app.log.1", w->folder);
    append(w, 10);
    assert_int_equal(kill(w->run.box.pid, SIGCONT), 0);
    (void)live_finish(&w->run);
}

static void lose_with_a_stop(world *w, bool folder) {
    char said[64];
    if (folder)
        follow_folder(w);
    else
        follow(w);
    append(w, 100);
    live_await(&w->run);
    (void)reefd_tell(&w->run.box, "pause");
    append(w, 20000);
    int64_t lag = 0;
    while (lag == 0) lag = reefd_count(&w->run.box, "sources.0.lag_bytes"); // it is open now
    assert_int_equal(unlink(w->log), 0);
    uint64_t cursor = (uint64_t)reefd_count(&w->run.box, "sources.0.cursor");
    reefd_end(&w->run.box);
    snprintf(said, sizeof(said), "and %" PRIu64 " of its bytes were not learned",
             w->run.written - cursor);
    assert_int_equal(times_said(&w->run.box, said), 1);
}

FIXTURE_TEST(a_stop_says_what_goes_with_a_removed_log) {
    lose_with_a_stop(w, false);
}

FIXTURE_TEST(a_stop_says_what_goes_with_a_removed_file_of_a_folder) {
    lose_with_a_stop(w, true);
}

RUN_TESTS
