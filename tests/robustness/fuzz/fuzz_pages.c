// A damaged pool file: what `reef verify` does with it before it lets LMDB map it. Input: which
// golden pool, then changes of its bytes, each page, place in the page, how many bytes and the
// bytes; a length of 0 cuts the file off there.
//
// Where the walk over all pages finds nothing, LMDB gets the file, in this very process: that is
// what the walk promises.
#include "check.h"
#include "fuzz.h"
#include "pool_file.h"
#include "reef_pool_check.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN_PAGE 4096u
#define CHANGES_MAX 64

typedef struct golden {
    const char *name; // of the packed file
    char *path;       // of the pool's directory
    uint8_t *bytes, *now;
    size_t count;
    int fd;
} golden;

static golden pools[] = {{.name = "pool-v1-vectors.mdb.gz"}, {.name = "pool-v1-text.mdb.gz"}};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    for (size_t i = 0; i < 2; i++) {
        golden *g = &pools[i];
        char from[1024], to[1024];
        snprintf(from, sizeof(from), REEF_TEST_DATA_DIR "/%s", g->name);
        g->bytes = fuzz_unpack(from, &g->count);
        g->now = malloc(g->count);
        g->path = fuzz_path(i ? "text" : "vectors");
        snprintf(to, sizeof(to), "%s/" DATA_FILE, g->path);
        int made = mkdir(g->path, 0700);
        assert(made == 0 && g->now);
        fuzz_write(to, g->bytes, g->count);
        g->fd = open(to, O_RDWR | O_CLOEXEC);
        assert(g->fd >= 0);
    }
    return 0;
}

// Returns how long the file is now.
static size_t change(golden *g, fuzz_input *input) {
    size_t length = g->count;
    memcpy(g->now, g->bytes, g->count);
    for (int i = 0; i < CHANGES_MAX && input->left; i++) {
        size_t page = fuzz_u16(input) % (g->count / GOLDEN_PAGE), taken;
        size_t place = page * GOLDEN_PAGE + fuzz_u16(input) % GOLDEN_PAGE;
        uint8_t count = fuzz_u8(input);
        const uint8_t *bytes = fuzz_take(input, count, &taken);
        if (!count) length = place;
        if (taken > g->count - place) taken = g->count - place;
        if (taken) memcpy(g->now + place, bytes, taken);
    }
    return length;
}

static void put(golden *g, const uint8_t *bytes, size_t count) {
    ssize_t written = pwrite(g->fd, bytes, count, 0);
    int cut = ftruncate(g->fd, (off_t)count);
    assert(written == (ssize_t)count && cut == 0);
}

static void on_damage(void *context, const char *what) {
    assert(what[0]);
    (*(uint64_t *)context)++;
}

// Opened and walked by LMDB: nothing but statuses may come of it.
static void map(const golden *g) {
    reef_store *store = NULL;
    reef_error err;
    uint64_t told = 0;
    reef_check_report report;
    const reef_check_options options = {.on_damage = on_damage, .context = &told};
    reef_status status =
        reef_store_open(&store, g->path, &(reef_store_options){.damaged = true}, &err);
    if (status == REEF_OK) {
        status = reef_store_check_with(store, &options, &report, &err);
        if (status == REEF_OK) assert(report.damaged == told);
    }
    if (status != REEF_OK) fuzz_failure(status, &err);
    reef_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    golden *g = &pools[fuzz_u8(&input) & 1];
    put(g, g->now, change(g, &input));

    reef_error err;
    uint64_t told = 0;
    reef_check_report report = {0};
    const reef_check_options options = {.on_damage = on_damage, .context = &told};
    reef_status file = reef_pool_file_check(g->path, &err);
    if (file != REEF_OK) fuzz_failure(file, &err);
    reef_status pages = reef_check_pages_of(g->path, &options, &report, &err);
    if (pages != REEF_OK) fuzz_failure(pages, &err);
    assert(report.damaged == told);
    assert(file != REEF_ERR_NO_MEMORY &&
           pages != REEF_ERR_NO_MEMORY); // no number in the file decides on that
    if (file == REEF_OK && pages == REEF_OK && !told) map(g);
    put(g, g->bytes, g->count);
    return 0;
}
