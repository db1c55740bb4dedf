// Followed files: whatever becomes of them, each line is given once, in order, and a mark finds its place again.
//
// Files are real ones, and rotated by rename, by copying, and by logrotate.
#define _DEFAULT_SOURCE      // syscall
#define _FILE_OFFSET_BITS 64 // pread is what the daemon calls

#include "followed.h"
#include "followed_part.h"
#include "temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <zlib.h>

#define MARKS_MAX 4096
#define PATIENCE_MS 20000 // a test fails when bytes do not come for so long

// A disk that fails: whoever reads the byte at this offset of a file is told so.
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

// A rotation that begins as the follower comes to look at this name, or to open it.
static const char *moment_of_look, *moment_of_open;
static void (*at_moment)(void);

static void moment(const char **of, const char *name) {
    if (!*of || strcmp(*of, name) != 0) return;
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

typedef struct text {
    char *bytes;
    size_t count;
} text;

typedef struct kept_mark {
    uint64_t begin;
    char *json;
} kept_mark;

typedef struct world {
    char folder[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    reef_followed *set;
    text given, expected;
    kept_mark marks[MARKS_MAX];
    size_t mark_count;
    char words[4096]; // the events that were told, each followed by a space
    size_t room;      // bytes asked for at once
} world;

static void add(text *to, const char *bytes, size_t count) {
    to->bytes = realloc(to->bytes, to->count + count + 1);
    assert_non_null(to->bytes);
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    to->bytes[to->count] = 0;
}

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    temp_dir_new(w->folder);
    temp_dir_join(w->path, w->folder, "app.log");
    w->room = 1000;
    add(&w->given, "", 0);
    add(&w->expected, "", 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    bad_offset = bad_packed = -1;
    bad_errno = EIO;
    moment_of_look = moment_of_open = NULL;
    reef_followed_close(w->set);
    temp_dir_remove(w->folder);
    for (size_t i = 0; i < w->mark_count; i++) free(w->marks[i].json);
    free(w->given.bytes);
    free(w->expected.bytes);
    free(w);
    return 0;
}

static void open_at(world *w, const char *path, bool folder, uint64_t cursor) {
    reef_error err = {0};
    reef_input_place place = {.cursor = cursor};
    reef_followed_close(w->set);
    while (w->mark_count && w->marks[w->mark_count - 1].begin > cursor)
        free(w->marks[--w->mark_count].json);
    if (w->mark_count) {
        place.begin = w->marks[w->mark_count - 1].begin;
        place.mark = w->marks[w->mark_count - 1].json;
    }
    if (reef_followed_open(&w->set, path, folder, &err) != REEF_OK) fail_msg("%s", err.message);
    if (reef_followed_seek(w->set, &place, &err) != REEF_OK) fail_msg("%s", err.message);
    w->given.count = cursor;
    w->given.bytes[cursor] = 0;
}

static void follow(world *w) {
    open_at(w, w->path, false, w->given.count);
}

// What was given after the cursor is forgotten, as by a process that died.
static void follow_again_at(world *w, uint64_t cursor) {
    open_at(w, w->path, false, cursor);
}

static void stop(world *w) {
    reef_followed_close(w->set);
    w->set = NULL;
}

static size_t pull_once(world *w) {
    static uint8_t bytes[1 << 20];
    size_t count = 0;
    char *mark = NULL;
    reef_error err = {0};
    if (reef_followed_read(w->set, bytes, w->room, &count, &mark, &err) != REEF_OK)
        fail_msg("%s", err.message);
    if (mark) {
        assert_true(count > 0);
        assert_true(w->mark_count < MARKS_MAX);
        w->marks[w->mark_count].begin = w->given.count;
        w->marks[w->mark_count++].json = mark;
    }
    add(&w->given, (char *)bytes, count);
    return count;
}

// Until there is nothing more now. Returns how much came.
static size_t pull(world *w) {
    size_t before = w->given.count;
    while (pull_once(w)) continue;
    assert_true(w->mark_count > 0 || w->given.count == 0);
    reef_followed_word word;
    while (reef_followed_word_take(w->set, &word)) {
        print_message("  %s: %s\n", word.event, word.text);
        assert_true(strlen(w->words) + strlen(word.event) + 2 < sizeof(w->words));
        strcat(strcat(w->words, word.event), " ");
    }
    return w->given.count - before;
}

static void pause_ms(unsigned ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

static void assert_nothing_for(world *w, unsigned ms) {
    for (unsigned waited = 0; waited <= ms; waited += 100) {
        assert_int_equal(pull(w), 0);
        pause_ms(100);
    }
}

// Until as much came as is expected, and no more.
static void pull_all(world *w) {
    for (unsigned ms = 0; w->given.count < w->expected.count && ms < PATIENCE_MS; ms += 20)
        if (!pull(w)) pause_ms(20);
    pull(w);
    if (w->given.count != w->expected.count ||
        memcmp(w->given.bytes, w->expected.bytes, w->given.count) != 0) {
        size_t i = 0;
        while (i < w->given.count && w->given.bytes[i] == w->expected.bytes[i]) i++;
        fail_msg("given %zu of %zu bytes, equal up to %zu: '%.80s' instead of '%.80s'",
                 w->given.count, w->expected.count, i, w->given.bytes + i, w->expected.bytes + i);
    }
}

static void write_to(const char *path, const char *bytes, size_t count) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

static void write_name(const world *w, const char *name, const char *line) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    write_to(path, line, strlen(line));
}

// Numbered lines, so that one that comes twice or not at all is seen.
static void write_lines(world *w, const char *name, size_t count) {
    static size_t number;
    for (size_t i = 0; i < count; i++) {
        char line[64];
        int bytes = snprintf(line, sizeof(line), "line %zu of what is written\n", ++number);
        write_name(w, name, line);
        add(&w->expected, line, (size_t)bytes);
    }
}

static void move(const world *w, const char *from, const char *to) {
    char a[TEMP_DIR_BYTES], b[TEMP_DIR_BYTES];
    temp_dir_join(a, w->folder, from);
    temp_dir_join(b, w->folder, to);
    assert_int_equal(rename(a, b), 0);
}

static void delete (const world *w, const char *name) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    assert_int_equal(unlink(path), 0);
}

static void command(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void command(const char *format, ...) {
    char line[4 * TEMP_DIR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

static size_t count_words(const world *w, const char *event) {
    size_t count = 0;
    for (const char *at = w->words; (at = strstr(at, event)); at += strlen(event)) count++;
    return count;
}

// Wherever a process ended, the next one gives the same bytes from there on.
static void assert_same_from_anywhere(world *w, bool folder, const char *path) {
    uint64_t seed = 7;
    text whole = {0};
    add(&whole, w->given.bytes, w->given.count);
    for (size_t i = 0; i < 20 && whole.count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        open_at(w, path, folder, (seed >> 33) % whole.count);
        for (unsigned ms = 0; w->given.count < whole.count && ms < PATIENCE_MS; ms += 20)
            if (!pull(w)) pause_ms(20);
        pull(w);
        assert_int_equal(w->given.count, whole.count);
        assert_memory_equal(w->given.bytes, whole.bytes, whole.count);
    }
    free(whole.bytes);
}

// ---- one file ------------------------------------------------------------------------------------

static void whole_lines_are_given_and_parts_of_lines_wait(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    write_name(w, "app.log", "half of a");
    assert_int_equal(pull(w), 0);
    assert_int_equal(reef_followed_unread(w->set), 9);
    write_name(w, "app.log", " line\nand");
    add(&w->expected, "half of a line\n", 15);
    pull_all(w);
    follow_again_at(w, w->given.count);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

static void a_line_without_end_is_given_in_pieces(void **state) {
    world *w = *state;
    size_t count = REEF_LINE_BYTES_MAX + 5000;
    char *line = malloc(count);
    memset(line, 'x', count);
    w->room = 65536;
    write_lines(w, "app.log", 3);
    write_to(w->path, line, count);
    add(&w->expected, line, count);
    follow(w);
    pull_all(w);
    write_name(w, "app.log", "end\n");
    add(&w->expected, "end\n", 4);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    free(line);
}

static void a_file_that_is_not_there_is_waited_for(void **state) {
    world *w = *state;
    follow(w);
    for (int i = 0; i < 30; i++) { // longer than a rotation may take
        assert_int_equal(pull(w), 0);
        pause_ms(100);
    }
    assert_string_equal(w->words, "source_waits ");
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "source_waits source_back ");
}

static void a_file_that_is_removed_and_made_again_is_read_from_its_start(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 10);
    follow(w);
    pull_all(w);
    int fd = open(w->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    delete (w, "app.log");
    assert_int_equal(pull(w), 0);
    assert_int_equal(write(fd, "late line\n", 10), 10); // its writer does not know
    add(&w->expected, "late line\n", 10);
    pull_all(w);
    close(fd);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
}

static void what_is_removed_unread_is_told(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    follow_again_at(w, 500);
    stop(w);
    delete (w, "app.log");
    w->expected.count = 500;
    write_lines(w, "app.log", 10);
    follow(w);
    pull_all(w);
    assert_string_equal(w->words, "source_loss ");
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

// Nobody has it open after a restart, so a look that does not find it could take it for gone.
static void a_file_missed_for_a_moment_is_not_gone(void **state) {
    world *w = *state;
    char away[TEMP_DIR_BYTES];
    temp_dir_join(away, w->folder, "away");
    assert_int_equal(mkdir(away, 0755), 0);
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    stop(w);
    write_lines(w, "app.log", 5); // unread
    move(w, "app.log", "app.log.1");
    move(w, "app.log.1", "away/app.log.1");
    follow(w);
    uint64_t begin = now_ms();
    assert_int_equal(pull(w), 0);
    assert_int_equal(pull(w), 0);
    move(w, "away/app.log.1", "app.log.1");
    (void)pull(w);
    if (now_ms() - begin >= REEF_SETTLE_MS) {
        print_message("skipped: this machine was too busy to look again in time\n");
        skip();
    }
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
    assert_int_equal(reef_followed_count(w->set), 2);
}

static void permission_may_be_lost_and_regained(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 10);
    assert_int_equal(chmod(w->folder, 0777), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { // root may read everything: go on as somebody else
        if (geteuid() == 0 && setuid(65534) != 0) _exit(3);
        follow(w);
        pull_all(w);
        move(w, "app.log", "app.log.1");
        write_lines(w, "app.log", 5);
        if (chmod(w->path, 0) != 0) _exit(4);
        for (int i = 0; i < 5; i++)
            if (pull(w)) _exit(5);
        if (strcmp(w->words, "source_denied ") != 0) _exit(6);
        if (chmod(w->path, 0644) != 0) _exit(7);
        pull_all(w);
        _exit(strcmp(w->words, "source_denied source_back ") != 0 ? 8 : 0);
    }
    int end = 0;
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 0);
}

// Found where the last line is looked for, and where bytes are given; both are tried again, and said once.
static void a_disk_that_fails_is_told_once(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 10000);
    follow(w);
    for (int where = 0; where < 2; where++) {
        bad_offset = where ? 100000 : (off_t)w->expected.count - 1;
        for (int i = 0; i < 3; i++) {
            (void)pull(w);
            pause_ms(REEF_LOOK_MS + 50);
        }
        assert_true(w->given.count <= (size_t)bad_offset);
        assert_string_equal(w->words, "source_denied ");
    }
    bad_offset = -1;
    pull_all(w);
    pause_ms(REEF_LOOK_MS + 50);
    assert_int_equal(pull(w), 0);
    assert_string_equal(w->words, "source_denied source_back ");
    assert_same_from_anywhere(w, false, w->path);
}

// Whether the file is still the one it was cannot be seen then: it is not taken for another, which would be read anew.
static void a_beginning_that_cannot_be_read_is_no_new_file(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 1000);
    follow(w);
    pull_all(w);
    for (int restarted = 0; restarted < 2; restarted++) {
        size_t given = w->given.count;
        write_lines(w, "app.log", 100);
        bad_offset = 0;
        if (restarted) open_at(w, w->path, false, given);
        assert_nothing_for(w, 3 * REEF_LOOK_MS);
        assert_string_equal(w->words, "source_denied ");
        bad_offset = -1;
        pull_all(w);
        pause_ms(REEF_LOOK_MS + 50);
        assert_int_equal(pull(w), 0);
        assert_string_equal(w->words, "source_denied source_back ");
        w->words[0] = 0;
    }
    assert_same_from_anywhere(w, false, w->path);
}

// A log that is rotated while its disk fails: the file that has its bytes by then is no new one.
static void a_copy_that_cannot_be_read_is_no_new_file(void **state) {
    world *w = *state;
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

static void pull_some(world *w) {
    size_t before = w->given.count;
    for (unsigned ms = 0; w->given.count == before && ms < PATIENCE_MS; ms += 20) {
        (void)pull_once(w);
        pause_ms(20);
    }
    assert_true(w->given.count > before && w->given.count < w->expected.count);
}

static void assert_waits_for_packed(world *w) {
    bad_packed = 8192; // behind all that zlib reads at once
    open_at(w, w->path, false, w->given.count);
    assert_nothing_for(w, 2 * REEF_SETTLE_MS);
    bad_packed = -1;
    assert_string_equal(w->words, "source_denied ");
    w->words[0] = 0;
}

// The last mark, as if a round had ended within the packed file, which is the first.
static void end_round_here(world *w) {
    kept_mark *last = &w->marks[w->mark_count - 1];
    json_t *json = json_loads(last->json, 0, NULL);
    json_t *file = json_array_get(json_object_get(json, "files"), 0);
    assert_non_null(strstr(json_string_value(json_array_get(file, 7)), ".gz"));
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
static void a_packed_file_that_cannot_be_read_is_waited_for(void **state) {
    world *w = *state;
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

// ---- rotation by hand ----------------------------------------------------------------------------

static void a_renamed_file_is_read_to_its_end_before_the_new_one(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    write_lines(w, "app.log", 20);
    move(w, "app.log", "app.log.1");
    write_lines(w, "app.log.1", 5); // by a writer that has it open
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    write_lines(w, "app.log.1", 5); // not even lines that come very late are lost
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_string_equal(w->words, "");
}

static void a_last_line_without_end_gets_one_when_its_file_is_left(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 5);
    write_name(w, "app.log", "cut in the mid");
    follow(w);
    pull_all(w);
    move(w, "app.log", "app.log.1");
    add(&w->expected, "cut in the mid\n", 15);
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
}

static void many_rotations_at_once_are_read_in_their_order(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int live = 0; live < 2; live++) {
        if (!live) stop(w);
        for (int i = 12; i-- > 0;) {
            for (int k = 11 + 12 * live; k >= 1; k--) {
                char a[32], b[32], path[TEMP_DIR_BYTES];
                snprintf(a, sizeof(a), "app.log.%d", k);
                snprintf(b, sizeof(b), "app.log.%d", k + 1);
                temp_dir_join(path, w->folder, a);
                if (access(path, F_OK) == 0) move(w, a, b);
            }
            move(w, "app.log", "app.log.1");
            write_lines(w, "app.log", 7);
        }
        if (!live) follow(w);
        pull_all(w);
    }
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

static const world *rotating;

static void rotate_older(void) {
    move(rotating, "app.log.1", "app.log.2");
}

// Between two steps of a rotation the follower may do anything: here it reads all that it takes for being there.
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

static void a_file_renamed_before_it_is_looked_at_keeps_its_turn(void **state) {
    rotate_during(*state, &moment_of_look);
}

static void a_file_renamed_before_it_is_opened_keeps_its_turn(void **state) {
    rotate_during(*state, &moment_of_open);
}

static void a_cut_file_is_read_on_in_its_copy(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int stopped = 0; stopped < 2; stopped++) {
        write_lines(w, "app.log", 20); // not seen before the cut
        if (stopped) stop(w);
        command("cd '%s' && { [ ! -e app.log.1 ] || mv app.log.1 app.log.2; }", w->folder);
        command("cp '%s' '%s.1'", w->path, w->path);
        if (!stopped) assert_true(pull(w) > 0); // between copy and cut
        assert_int_equal(truncate(w->path, 0), 0);
        write_lines(w, "app.log", stopped ? 200 : 3); // larger than before, or not
        if (stopped) follow(w);
        pull_all(w);
    }
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

static void a_copy_that_stays_is_not_read_again(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    command("cp '%s' '%s.1'", w->path, w->path);
    for (int i = 0; i < 30; i++) {
        pull(w);
        pause_ms(100);
    }
    write_lines(w, "app.log", 50);
    pull_all(w);
    assert_string_equal(w->words, "");
}

static void a_cut_without_copy_is_told(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    assert_int_equal(truncate(w->path, 0), 0);
    write_lines(w, "app.log", 100); // past the place where reading stood
    pull_all(w);
    assert_string_equal(w->words, "source_loss ");
}

static void a_file_that_was_cut_in_its_middle_is_read_from_its_start(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    size_t kept = REEF_HEAD_BYTES_MAX + 200; // its first bytes are as before
    while (w->given.bytes[kept - 1] != '\n') kept++;
    assert_int_equal(truncate(w->path, (off_t)kept), 0);
    char *again = strndup(w->given.bytes, kept);
    add(&w->expected, again, kept);
    free(again);
    pull_all(w);
    assert_string_equal(w->words, "source_loss ");
}

static void packed_files_are_read_on(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int stopped = 0; stopped < 2; stopped++) {
        write_lines(w, "app.log", 20);
        if (stopped) stop(w);
        command("cd '%s' && { [ ! -e app.log.1.gz ] || mv app.log.1.gz app.log.2.gz; }", w->folder);
        move(w, "app.log", "app.log.1");
        write_lines(w, "app.log", 10);
        command("gzip '%s.1'", w->path);
        if (stopped) follow(w);
        if (stopped) pull_all(w);
    }
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

// ---- logrotate -----------------------------------------------------------------------------------

static bool have_logrotate(void) {
    if (system("logrotate --version >/dev/null 2>&1") == 0) return true;
    print_message("skipped: no logrotate; install the package of that name\n");
    return false;
}

static void logrotate(const world *w, const char *how) {
    if (strstr(how, "%s")) pause_ms(1001); // a name for each second
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, "rotate.conf");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s {\n    rotate 400\n    missingok\n    %s\n}\n", w->path, how);
    fclose(file);
    assert_int_equal(chmod(w->folder, 0755), 0);
    assert_int_equal(chmod(path, 0644), 0);
    command("logrotate --force --state '%s/rotate.state' '%s'", w->folder, path);
}

static void rotate_by(world *w, const char *how) {
    if (!have_logrotate()) skip();
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int i = 0; i < 3; i++) { // while it reads
        write_lines(w, "app.log", 30);
        logrotate(w, how);
        write_lines(w, "app.log", 5 + 40 * (i % 2));
        if (i != 1) pull_all(w);
    }
    pull_all(w);
    stop(w);
    for (int i = 0; i < 4; i++) { // and while it does not
        write_lines(w, "app.log", 30);
        logrotate(w, how);
        write_lines(w, "app.log", 40 * (i % 2));
    }
    follow(w);
    pull_all(w);
    write_lines(w, "app.log", 30);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

static void logrotate_creates(void **state) {
    rotate_by(*state, "create");
}

static void logrotate_copies_and_truncates(void **state) {
    rotate_by(*state, "copytruncate");
}

static void logrotate_compresses_later(void **state) {
    rotate_by(*state, "create\n    compress\n    delaycompress");
}

static void logrotate_compresses_at_once(void **state) {
    rotate_by(*state, "create\n    compress");
}

static void logrotate_compresses_copies(void **state) {
    rotate_by(*state, "copytruncate\n    compress\n    delaycompress");
}

static void logrotate_names_by_date(void **state) {
    rotate_by(*state, "create\n    dateext\n    dateformat -%Y%m%d-%s");
}

// ---- folders -------------------------------------------------------------------------------------

static void folder(world *w) {
    open_at(w, w->folder, true, w->given.count);
}

static void a_folder_is_read_file_by_file(void **state) {
    world *w = *state;
    write_lines(w, "b", 10);
    pause_ms(20);
    write_lines(w, "a", 10);
    write_name(w, ".hidden", "no\n");
    write_name(w, "packed.gz", "no\n");
    folder(w);
    pull_all(w);
    assert_same_from_anywhere(w, true, w->folder);
    write_lines(w, "b", 5); // the one seen first comes first
    write_lines(w, "a", 5);
    pull_all(w);
    move(w, "b", "b.1"); // the same file
    pull_all(w);
    write_lines(w, "b.1", 5);
    write_lines(w, "b", 5);
    pull_all(w);
    move(w, "a", ".a"); // also where it would not have been found
    write_lines(w, ".a", 5);
    pull_all(w);
    folder(w);
    pull_all(w);
    delete (w, ".a");
    delete (w, "b.1");
    for (int i = 0; i < 30; i++) {
        pull(w);
        pause_ms(100);
    }
    assert_int_equal(reef_followed_count(w->set), 1);
    assert_string_equal(w->words, "");
}

static void a_pattern_chooses_files_of_a_folder(void **state) {
    world *w = *state;
    char pattern[TEMP_DIR_BYTES];
    temp_dir_join(pattern, w->folder, "*.gz");
    open_at(w, pattern, true, 0);
    write_name(w, "other", "no\n");
    write_lines(w, "plain", 100);
    command("gzip '%s/plain'", w->folder);
    pull_all(w);
    assert_same_from_anywhere(w, true, pattern);
}

static void make_link(const world *w, const char *name, const char *target) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    assert_int_equal(symlink(target, path), 0);
}

// Where it leads cannot be looked at, and not because nothing is there: no name of a file is so long.
static void make_bad_link(const world *w, const char *name) {
    char target[301] = {0};
    memset(target, 'x', sizeof(target) - 1);
    make_link(w, name, target);
}

static void a_link_that_cannot_be_looked_at_hides_no_other_file(void **state) {
    world *w = *state;
    make_bad_link(w, "bad");
    write_lines(w, "a", 10);
    make_link(w, "through", "a/file"); // a link to nothing is passed over without a word
    folder(w);
    pull_all(w);
    write_lines(w, "b", 10);
    pull_all(w);
    assert_string_equal(w->words, "source_denied ");
    delete (w, "bad");
    pull(w);
    assert_string_equal(w->words, "source_denied source_back ");
}

static void a_link_that_no_pattern_fits_is_not_told(void **state) {
    world *w = *state;
    char pattern[TEMP_DIR_BYTES];
    temp_dir_join(pattern, w->folder, "*.log");
    make_bad_link(w, "bad");
    open_at(w, pattern, true, 0);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "");
}

static void a_file_whose_link_cannot_be_looked_at_is_not_gone(void **state) {
    world *w = *state;
    char away[TEMP_DIR_BYTES];
    temp_dir_join(away, w->folder, "away");
    assert_int_equal(mkdir(away, 0755), 0);
    write_lines(w, "away/file", 10);
    make_link(w, "link", "away/file");
    folder(w);
    pull_all(w);
    stop(w); // nobody has it open any more
    delete (w, "link");
    make_bad_link(w, "link");
    folder(w);
    for (int i = 0; i < 30; i++) { // longer than a rotation may take
        assert_int_equal(pull(w), 0);
        pause_ms(100);
    }
    assert_int_equal(reef_followed_count(w->set), 1);
    delete (w, "link");
    make_link(w, "link", "away/file");
    write_lines(w, "away/file", 10);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
}

static void a_cut_file_of_a_folder_is_read_on_in_its_copy(void **state) {
    world *w = *state;
    write_lines(w, "app.log", 50);
    folder(w);
    pull_all(w);
    write_lines(w, "app.log", 20);
    command("cp '%s' '%s.1'", w->path, w->path);
    assert_true(pull(w) > 0);
    assert_int_equal(truncate(w->path, 0), 0);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "");
}

// Nothing is read while the trainer is behind: what is rotated away meanwhile must not be gone when it is not.
static void files_that_are_deleted_while_nothing_is_read_are_kept(void **state) {
    world *w = *state;
    reef_error err = {0};
    follow(w);
    for (int i = 0; i < 10; i++) {
        write_lines(w, "app.log", 30);
        assert_int_equal(reef_followed_glance(w->set, &err), REEF_OK);
        command("rm -f '%s.1' && mv '%s' '%s.1'", w->path, w->path, w->path);
    }
    pull_all(w);
    assert_string_equal(w->words, "");
}

// A round is what was there when it began; the trainer may take hours for it, and asks again and again.
static void files_that_are_deleted_during_a_long_round_are_kept(void **state) {
    world *w = *state;
    w->room = 10;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_once(w);
    for (int i = 0; i < 3; i++) {
        write_lines(w, "app.log", 30);
        pause_ms(REEF_LOOK_MS + 50);
        assert_int_equal(pull_once(w), w->room);
        assert_int_equal(reef_followed_unread(w->set), w->expected.count - w->given.count);
        command("rm -f '%s.1' && mv '%s' '%s.1'", w->path, w->path, w->path);
    }
    pull_all(w);
    assert_string_equal(w->words, "");
}

static void files_that_are_alike_are_all_read(void **state) {
    world *w = *state;
    folder(w);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "job.%d", i);
        write_name(w, name, "done\n");
        add(&w->expected, "done\n", 5);
        pull_all(w);
        delete (w, name);
        for (int k = 0; k < 2 * i; k++) pull(w);
    }
    assert_string_equal(w->words, "");
}

static void a_folder_may_hold_more_files_than_are_kept_open(void **state) {
    world *w = *state;
    for (int i = 0; i < REEF_DIR_FILES_MAX + 10; i++) {
        char name[16], line[32];
        snprintf(name, sizeof(name), "f%05d", i);
        snprintf(line, sizeof(line), "file number %05d\n", i);
        write_name(w, name, line);
        if (i < REEF_DIR_FILES_MAX) add(&w->expected, line, strlen(line));
    }
    folder(w);
    pull(w);
    assert_int_equal(w->given.count, w->expected.count);
    assert_string_equal(w->words, "source_full ");
    assert_int_equal(reef_followed_count(w->set), REEF_DIR_FILES_MAX);
    w->words[0] = 0;
    folder(w); // a new process
    assert_int_equal(pull(w), 0);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%05d", 40 * i);
        delete (w, name);
    }
    folder(w);
    size_t count = 0, left = 10 * strlen("file number 00000\n");
    // There is room once those deleted count as gone, which need not be all at once.
    for (int i = 0; i < 100 && count < left; i++) {
        count += pull(w);
        pause_ms(100);
    }
    assert_int_equal(count, left);
}

// ---- what is refused -----------------------------------------------------------------------------

static void what_cannot_be_followed_is_refused(void **state) {
    world *w = *state;
    reef_error err = {0};
    assert_int_equal(reef_followed_open(&w->set, w->folder, false, &err), REEF_INVALID);
    assert_non_null(strstr(err.message, "dir:"));
    assert_int_equal(reef_followed_open(&w->set, "", false, &err), REEF_INVALID);
    assert_int_equal(reef_followed_open(&w->set, w->path, true, &err), REEF_NOT_FOUND);
    assert_int_equal(reef_followed_open(&w->set, "/no/such/*.log", true, &err), REEF_NOT_FOUND);
}

static void marks_of_others_are_refused(void **state) {
    world *w = *state;
    const char *const marks[] = {
        "",
        "{}",
        "[]",
        "{\"files\": []}",
        "{\"files\": [[1, 2, 3]]}",
        "{\"files\": [[1, 2, 3, 2, 0, \"0000000000000000\", \"\", \"a\"]]}",
        "{\"files\": [[1, 2, 3, 4, 9999, \"0000000000000000\", \"\", \"\"]]}",
        "{\"files\": [[1, 2, 3, 4, 5, \"zz\", \"\", \"\"]]}"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        reef_error err = {0};
        reef_followed_close(w->set);
        assert_int_equal(reef_followed_open(&w->set, w->path, false, &err), REEF_OK);
        reef_input_place place = {.cursor = 5, .mark = marks[i]};
        assert_int_equal(reef_followed_seek(w->set, &place, &err), REEF_CORRUPT);
    }
    reef_error err = {0};
    assert_int_equal(reef_followed_seek(w->set, &(reef_input_place){.cursor = 5}, &err),
                     REEF_CORRUPT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(whole_lines_are_given_and_parts_of_lines_wait),
        TEST(a_line_without_end_is_given_in_pieces),
        TEST(a_file_that_is_not_there_is_waited_for),
        TEST(a_file_that_is_removed_and_made_again_is_read_from_its_start),
        TEST(what_is_removed_unread_is_told),
        TEST(a_file_missed_for_a_moment_is_not_gone),
        TEST(permission_may_be_lost_and_regained),
        TEST(a_disk_that_fails_is_told_once),
        TEST(a_beginning_that_cannot_be_read_is_no_new_file),
        TEST(a_copy_that_cannot_be_read_is_no_new_file),
        TEST(a_packed_file_that_cannot_be_read_is_waited_for),
        TEST(a_renamed_file_is_read_to_its_end_before_the_new_one),
        TEST(a_last_line_without_end_gets_one_when_its_file_is_left),
        TEST(many_rotations_at_once_are_read_in_their_order),
        TEST(a_file_renamed_before_it_is_looked_at_keeps_its_turn),
        TEST(a_file_renamed_before_it_is_opened_keeps_its_turn),
        TEST(a_cut_file_is_read_on_in_its_copy),
        TEST(a_copy_that_stays_is_not_read_again),
        TEST(a_cut_without_copy_is_told),
        TEST(a_file_that_was_cut_in_its_middle_is_read_from_its_start),
        TEST(packed_files_are_read_on),
        TEST(logrotate_creates),
        TEST(logrotate_copies_and_truncates),
        TEST(logrotate_compresses_later),
        TEST(logrotate_compresses_at_once),
        TEST(logrotate_compresses_copies),
        TEST(logrotate_names_by_date),
        TEST(a_folder_is_read_file_by_file),
        TEST(a_pattern_chooses_files_of_a_folder),
        TEST(a_link_that_cannot_be_looked_at_hides_no_other_file),
        TEST(a_link_that_no_pattern_fits_is_not_told),
        TEST(a_file_whose_link_cannot_be_looked_at_is_not_gone),
        TEST(a_cut_file_of_a_folder_is_read_on_in_its_copy),
        TEST(files_that_are_deleted_while_nothing_is_read_are_kept),
        TEST(files_that_are_deleted_during_a_long_round_are_kept),
        TEST(files_that_are_alike_are_all_read),
        TEST(a_folder_may_hold_more_files_than_are_kept_open),
        TEST(what_cannot_be_followed_is_refused),
        TEST(marks_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
