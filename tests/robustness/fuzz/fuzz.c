// See fuzz.h.
#include "fuzz.h"

#include "temp_dir.h"

#include <fcntl.h>
#include <zlib.h>

#define PATHS_MAX 16

// What asks for more than a gigabyte does not get it, as on a machine that has no more, and has to
// say so. NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
__attribute__((visibility("default"))) const char *__asan_default_options(void);
// NOLINTNEXTLINE(bugprone-reserved-identifier)
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}

static char directory[TEMP_DIR_BYTES];
static pid_t owner;
static char *paths[PATHS_MAX]; // handed out
static size_t path_count;

static void remove_directory(void) {
    if (getpid() == owner) temp_dir_remove(directory);
}

char *fuzz_path(const char *name) {
    char path[TEMP_DIR_BYTES];
    if (!directory[0]) {
        temp_dir_new(directory);
        owner = getpid();
        (void)atexit(remove_directory);
    }
    temp_dir_join(path, directory, name);
    assert(path_count < PATHS_MAX);
    paths[path_count] = strdup(path);
    assert(paths[path_count] != NULL);
    return paths[path_count++];
}

void fuzz_write(const char *path, const void *bytes, size_t count) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert(fd >= 0);
    ssize_t written = count ? write(fd, bytes, count) : 0;
    assert(written == (ssize_t)count);
    close(fd);
}

uint8_t *fuzz_unpack(const char *path, size_t *count) {
    gzFile file = gzopen(path, "rb");
    if (file == NULL) fprintf(stderr, "fuzz: cannot open %s\n", path);
    assert(file != NULL);
    size_t room = 1 << 16;
    uint8_t *bytes = malloc(room);
    *count = 0;
    for (int got = 1; got > 0; *count += (size_t)got) {
        if (room - *count < 1 << 15) bytes = realloc(bytes, room *= 2);
        assert(bytes != NULL);
        got = gzread(file, bytes + *count, 1 << 15);
        assert(got >= 0);
    }
    gzclose(file);
    return bytes;
}

void fuzz_must(reef_status status, const reef_error *err) {
    if (status == REEF_OK) return;
    fprintf(stderr, "fuzz: cannot set up: %s\n", err->message);
    abort();
}

void fuzz_failure(reef_status status, const reef_error *err) {
    assert(status != REEF_OK && err->status == status);
    assert(memchr(err->message, 0, sizeof(err->message)) && err->message[0]);
}

uint8_t fuzz_u8(fuzz_input *input) {
    if (!input->left) return 0;
    input->left--;
    return *input->at++;
}

uint16_t fuzz_u16(fuzz_input *input) {
    uint16_t low = fuzz_u8(input);
    return (uint16_t)(low | fuzz_u8(input) << 8);
}

const uint8_t *fuzz_take(fuzz_input *input, size_t count, size_t *taken) {
    const uint8_t *at = input->at;
    *taken = count < input->left ? count : input->left;
    input->at += *taken;
    input->left -= *taken;
    return at;
}
