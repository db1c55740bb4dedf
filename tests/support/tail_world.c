#include "tail_world.h"
#include "test.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 20000 // a test fails when bytes do not come for so long

void add(text *to, const char *bytes, size_t count) {
    if (to->count + count + 1 > to->size) { // doubled: a test adds 40,000 lines one by one
        to->size = 2 * (to->count + count + 1);
        to->bytes = realloc(to->bytes, to->size);
        assert_non_null(to->bytes);
    }
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    to->bytes[to->count] = 0;
}

int world_new(void **state) {
    world *w = calloc(1, sizeof(*w));
    temp_dir_new(w->folder);
    temp_dir_join(w->path, w->folder, "app.log");
    w->room = 1000;
    add(&w->given, "", 0);
    add(&w->expected, "", 0);
    *state = w;
    return 0;
}

int world_remove(void **state) {
    world *w = *state;
    reef_tail_close(w->set);
    temp_dir_remove(w->folder);
    for (size_t i = 0; i < w->mark_count; i++) free(w->marks[i].json);
    free(w->given.bytes);
    free(w->expected.bytes);
    free(w);
    return 0;
}

// ---- reading ------------------------------------------------------------------------------------

void open_at(world *w, const char *path, bool folder, uint64_t cursor) {
    reef_error err = {0};
    reef_input_offset offset = {.cursor = cursor};
    reef_tail_close(w->set);
    while (w->mark_count && w->marks[w->mark_count - 1].begin > cursor)
        free(w->marks[--w->mark_count].json);
    if (w->mark_count) {
        offset.begin = w->marks[w->mark_count - 1].begin;
        offset.checkpoint = w->marks[w->mark_count - 1].json;
    }
    if (reef_tail_open(&w->set, path, folder, &err) != REEF_OK) fail_msg("%s", err.message);
    if (reef_tail_seek(w->set, &offset, &err) != REEF_OK) fail_msg("%s", err.message);
    w->given.count = cursor;
    w->given.bytes[cursor] = 0;
}

void follow(world *w) {
    open_at(w, w->path, false, w->given.count);
}

void follow_folder(world *w) {
    open_at(w, w->folder, true, w->given.count);
}

void stop(world *w) {
    reef_tail_close(w->set);
    w->set = NULL;
}

size_t pull_once(world *w) {
    static uint8_t bytes[1 << 20];
    size_t count = 0;
    char *checkpoint = NULL;
    reef_error err = {0};
    if (reef_tail_read(w->set, bytes, w->room, &count, &checkpoint, &err) != REEF_OK)
        fail_msg("%s", err.message);
    if (checkpoint != NULL) {
        assert_true(count > 0);
        assert_true(w->mark_count < MARKS_MAX);
        w->marks[w->mark_count].begin = w->given.count;
        w->marks[w->mark_count++].json = checkpoint;
    }
    add(&w->given, (char *)bytes, count);
    return count;
}

size_t pull(world *w) {
    size_t before = w->given.count;
    while (pull_once(w)) continue;
    assert_true(w->mark_count > 0 || w->given.count == 0);
    reef_tail_event word;
    while (reef_tail_event_take(w->set, &word)) {
        print_message("  %s: %s\n", word.event, word.text);
        assert_true(strlen(w->words) + strlen(word.event) + 2 < sizeof(w->words));
        strcat(strcat(w->words, word.event), " ");
    }
    return w->given.count - before;
}

void pull_all(world *w) {
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

void pull_some(world *w) {
    size_t before = w->given.count;
    for (unsigned ms = 0; w->given.count == before && ms < PATIENCE_MS; ms += 20) {
        (void)pull_once(w);
        pause_ms(20);
    }
    assert_true(w->given.count > before && w->given.count < w->expected.count);
}

void assert_nothing_for(world *w, unsigned ms) {
    for (unsigned waited = 0; waited <= ms; waited += 100) {
        assert_int_equal(pull(w), 0);
        pause_ms(100);
    }
}

size_t count_words(const world *w, const char *event) {
    size_t count = 0;
    for (const char *at = w->words; (at = strstr(at, event)); at += strlen(event)) count++;
    return count;
}

void assert_same_from_anywhere(world *w, bool folder, const char *path) {
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

// ---- writing ------------------------------------------------------------------------------------

void write_to(const char *path, const char *bytes, size_t count) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

void write_name(const world *w, const char *name, const char *line) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    write_to(path, line, strlen(line));
}

void write_lines(world *w, const char *name, size_t count) {
    static size_t number;
    for (size_t i = 0; i < count; i++) {
        char line[64];
        int bytes = snprintf(line, sizeof(line), "line %zu of what is written\n", ++number);
        write_name(w, name, line);
        add(&w->expected, line, (size_t)bytes);
    }
}

void move(const world *w, const char *from, const char *to) {
    char a[TEMP_DIR_BYTES], b[TEMP_DIR_BYTES];
    temp_dir_join(a, w->folder, from);
    temp_dir_join(b, w->folder, to);
    assert_int_equal(rename(a, b), 0);
}

void delete (const world *w, const char *name) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    assert_int_equal(unlink(path), 0);
}

void command(const char *format, ...) {
    char line[4 * TEMP_DIR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

// ---- time ---------------------------------------------------------------------------------------

static unsigned paused_ms;

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's.
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int code = __real_clock_gettime(clock, now);
    if (clock != CLOCK_MONOTONIC) return code;
    int64_t ns = now->tv_nsec + (int64_t)paused_ms * 1000000;
    now->tv_sec += ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return code;
}
// NOLINTEND(bugprone-reserved-identifier)

void pause_ms(unsigned ms) {
    paused_ms += ms;
}

void await_other_time(unsigned ms) {
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
                    NULL);
}
