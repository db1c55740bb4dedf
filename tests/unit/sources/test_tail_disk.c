// Followed files on a disk that fails, and names that change during a scan: nothing is taken for
// gone or new that is not.
//
// The calls that list, open and read are this program's own, and fail or wait where a test asks for
// it.
#define _DEFAULT_SOURCE      // syscall
#define _FILE_OFFSET_BITS 64 // pread is what the daemon calls

#include "tail_world.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <jansson.h>

// A disk that fails: a read of the byte at this offset of a file returns an error.
static off_t bad_offset = -1;
static off_t bad_packed = -1; // all bytes from here on, as zlib reads them
static int bad_errno = EIO;

static ssize_t read_now(int fd, void *bytes, size_t count) {
    return readv(fd, &(struct iovec){.iov_base = bytes, .iov_len = count}, 1);
}

REEF_API ssize_t read(int fd, void *bytes, size_t count) {
    if (bad_packed < 0 || lseek(fd, 0, SEEK_CUR) < bad_packed) return read_now(fd, bytes, count);
    errno = bad_errno;
    return -1;
}

ssize_t pread(int fd, void *bytes, size_t count, off_t from) {
    if (bad_offset >= from && bad_offset < from + (off_t)count) {
        errno = bad_errno;
        return -1;
    }
    off_t before = lseek(fd, 0, SEEK_CUR); // which a read of its own moves on
    ssize_t got = lseek(fd, from, SEEK_SET) < 0 ? -1 : read_now(fd, bytes, count);
    return lseek(fd, before, SEEK_SET) < 0 ? -1 : got;
}

// A rotation that begins as the follower stats this name, or opens it.
static const char *moment_of_look, *moment_of_open;
static void (*at_moment)(void);

static void moment(const char **of, const char *name) {
    if (*of == NULL || strcmp(*of, name) != 0) return;
    *of = NULL;
    at_moment();
}

int fstatat(int folder, const char *name, struct stat *state, int flags) {
    moment(&moment_of_look, name);
    return (int)syscall(SYS_newfstatat, folder, name, state, flags);
}

int openat(int folder, const char *name, int flags, ...) {
    moment(&moment_of_open, name);
    return (int)syscall(SYS_openat, folder, name, flags, 0);
}

static int teardown(void **state) {
    bad_offset = bad_packed = -1;
    bad_errno = EIO;
    moment_of_look = moment_of_open = NULL;
    return world_remove(state);
}

// ---- a disk that fails --------------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, world_new, teardown, world *w)

// Found where the last line is looked for, and where bytes are given; both are tried again, and
// said once.
FIXTURE_TEST(a_disk_that_fails_is_reported_once) {
    write_lines(w, "app.log", 10000);
    follow(w);
    for (int where = 0; where < 2; where++) {
        bad_offset = where ? 100000 : (off_t)w->expected.count - 1;
        for (int i = 0; i < 3; i++) {
            (void)pull(w);
            pause_ms(REEF_TAIL_SCAN_MS + 50);
        }
        assert_true(w->given.count <= (size_t)bad_offset);
        assert_string_equal(w->words, "source_denied ");
    }
    bad_offset = -1;
    pull_all(w);
    pause_ms(REEF_TAIL_SCAN_MS + 50);
    assert_int_equal(pull(w), 0);
    assert_string_equal(w->words, "source_denied source_back ");
    assert_same_from_anywhere(w, false, w->path);
}

// Whether the file is still the same cannot be seen then: it is not taken for another, which would
// be read again.
FIXTURE_TEST(a_beginning_that_cannot_be_read_is_no_new_file) {
    write_lines(w, "app.log", 1000);
    follow(w);
    pull_all(w);
    for (int restarted = 0; restarted < 2; restarted++) {
        size_t given = w->given.count;
        write_lines(w, "app.log", 100);
        bad_offset = 0;
        if (restarted) open_at(w, w->path, false, given);
        assert_nothing_for(w, 3 * REEF_TAIL_SCAN_MS);
        assert_string_equal(w->words, "source_denied ");
        bad_offset = -1;
        pull_all(w);
        pause_ms(REEF_TAIL_SCAN_MS + 50);
        assert_int_equal(pull(w), 0);
        assert_string_equal(w->words, "source_denied source_back ");
        w->words[0] = 0;
    }
    assert_same_from_anywhere(w, false, w->path);
}

// A log that is rotated while its disk fails: the file that has its bytes by then is not a new one.
FIXTURE_TEST(a_copy_that_cannot_be_read_is_no_new_file) {
    write_lines(w, "app.log", 1000);
    follow(w);
    pull_all(w);
    static const int ERRORS[] = {EIO, ETIMEDOUT}; // of a network file system
    for (size_t i = 0; i < sizeof(ERRORS) / sizeof(*ERRORS); i++) {
        command("[ ! -e '%s.1' ] || mv '%s.1' '%s.2'; cp '%s' '%s.1'", w->path, w->path, w->path,
                w->path, w->path);
        assert_int_equal(truncate(w->path, 0), 0);
        bad_errno = ERRORS[i];
        bad_offset = 0;
        assert_nothing_for(w, 2 * REEF_SETTLE_MS);
        bad_offset = -1;
        write_lines(w, "app.log", 1000);
        pull_all(w);
    }
    assert_same_from_anywhere(w, false, w->path);
}

static void assert_waits_for_packed(world *w) {
    bad_packed = 8192; // behind all that zlib reads at once
    open_at(w, w->path, false, w->given.count);
    assert_nothing_for(w, 2 * REEF_SETTLE_MS);
    bad_packed = -1;
    assert_string_equal(w->words, "source_denied ");
    w->words[0] = 0;
}

// The last checkpoint, as if a read pass had ended within the packed file, which is the first.
static void end_round_here(world *w) {
    kept_mark *last = &w->marks[w->mark_count - 1];
    json_t *json = json_loads(last->json, 0, NULL);
    json_t *file = json_array_get(json_object_get(json, "files"), 0);
    assert_non_null(strstr(json_string_value(json_array_get(file, 10)), ".gz"));
    json_int_t at = json_integer_value(json_array_get(file, 2)) +
                    (json_int_t)(w->given.count - (size_t)last->begin);
    json_array_set_new(file, 2, json_integer(at));
    json_array_set_new(file, 3, json_integer(at));
    free(last->json);
    last->json = json_dumps(json, JSON_COMPACT);
    last->begin = w->given.count;
    json_decref(json);
}

// Nothing says that it is broken, or another one, before all of it was seen.
FIXTURE_TEST(a_packed_file_that_cannot_be_read_is_waited_for) {
    write_lines(w, "app.log", 20000);
    command("mv '%s' '%s.1' && gzip '%s.1'", w->path, w->path, w->path);
    write_lines(w, "app.log", 10);
    assert_waits_for_packed(w); // new
    pull_some(w);
    stop(w);
    assert_waits_for_packed(w); // read in part
    end_round_here(w);
    assert_waits_for_packed(w); // how much it has is not known
    pull_all(w);
    write_lines(w, "app.log", 20000);
    pull_some(w);
    stop(w);
    command("cd '%s' && mv app.log.1.gz app.log.2.gz && mv app.log app.log.1 && gzip app.log.1",
            w->folder);
    write_lines(w, "app.log", 10);
    w->words[0] = 0;
    assert_waits_for_packed(w); // has the bytes of one that is gone
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
}

// ---- names that change during a look ------------------------------------------------------------

static const world *rotating;

static void rotate_older(void) {
    move(rotating, "app.log.1", "app.log.2");
}

// Between two steps of a rotation the follower may do anything: here it reads all that it takes for
// being there.
static void rotate_during(world *w, const char **moment_of) {
    rotating = w;
    at_moment = rotate_older;
    write_lines(w, "app.log.1", 20);
    write_lines(w, "app.log", 20);
    *moment_of = "app.log.1";
    follow(w);
    pull(w);
    assert_null(*moment_of);
    move(w, "app.log", "app.log.1");
    write_lines(w, "app.log", 20);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

TEST_WITH(a_file_renamed_before_its_stat_keeps_its_position, world_new, teardown, void *made) {
    rotate_during(made, &moment_of_look);
}

TEST_WITH(a_file_renamed_before_it_is_opened_keeps_its_position, world_new, teardown, void *made) {
    rotate_during(made, &moment_of_open);
}

RUN_TESTS
