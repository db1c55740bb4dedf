// A damaged pool file: what `reef verify` does with it before it lets LMDB map it. Input: changes
// of its bytes, each page, place in the page, how many bytes and the bytes; a length of 0 cuts the
// file off there.
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

#define PAGE_BYTES 4096u
#define CHANGES_MAX 64

// A small pool, with values of their own pages, a long list of records, and free pages.
static struct {
    char *path; // of the pool's directory
    uint8_t *bytes, *now;
    size_t count;
    int fd;
} pool;

static void make_pool(void) {
    enum { COMMITS = 5, RECORDS = 40 };
    static const uint8_t payload[6000] = {1, 2, 3};
    reef_error err;
    reef_store *store = NULL;
    const reef_store_options options = {.create = true, .write = true, .no_sync = true};
    fuzz_must(reef_store_open(&store, pool.path, &options, &err), &err);
    for (uint32_t i = 0; i < COMMITS; i++) {
        reef_txn *txn = NULL;
        reef_commit commit = {.step = i};
        fuzz_must(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
        for (uint32_t block = 0; block < RECORDS; block++) {
            const reef_key key = {.db = REEF_DB_MOMENTS, .block = block};
            size_t bytes = block % 10 == 0 ? sizeof(payload) - i : 100 + i;
            fuzz_must(reef_record_put(txn, &key, REEF_BYTES, payload, bytes, &err), &err);
        }
        fuzz_must(reef_txn_commit(txn, &commit, &err), &err);
    }
    reef_store_close(store);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    char file[1024];
    pool.path = fuzz_path("pool");
    make_pool();
    snprintf(file, sizeof(file), "%s/" DATA_FILE, pool.path);
    pool.bytes = fuzz_unpack(file, &pool.count);
    pool.now = malloc(pool.count);
    pool.fd = open(file, O_RDWR | O_CLOEXEC);
    assert(pool.now && pool.fd >= 0);
    return 0;
}

// Returns how long the file is now.
static size_t change(fuzz_input *input) {
    size_t length = pool.count;
    memcpy(pool.now, pool.bytes, pool.count);
    for (int i = 0; i < CHANGES_MAX && input->left; i++) {
        size_t page = fuzz_u16(input) % (pool.count / PAGE_BYTES), taken;
        size_t place = page * PAGE_BYTES + fuzz_u16(input) % PAGE_BYTES;
        uint8_t count = fuzz_u8(input);
        const uint8_t *bytes = fuzz_take(input, count, &taken);
        if (!count) length = place;
        if (taken > pool.count - place) taken = pool.count - place;
        if (taken) memcpy(pool.now + place, bytes, taken);
    }
    return length;
}

static void put(const uint8_t *bytes, size_t count) {
    ssize_t written = pwrite(pool.fd, bytes, count, 0);
    int cut = ftruncate(pool.fd, (off_t)count);
    assert(written == (ssize_t)count && cut == 0);
}

static void on_damage(void *context, const char *what) {
    assert(what[0]);
    (*(uint64_t *)context)++;
}

// Opened and walked by LMDB: nothing but statuses may come of it.
static void map(void) {
    reef_store *store = NULL;
    reef_error err;
    uint64_t told = 0;
    reef_check_report report;
    const reef_check_options options = {.on_damage = on_damage, .context = &told};
    reef_status status =
        reef_store_open(&store, pool.path, &(reef_store_options){.damaged = true}, &err);
    if (status == REEF_OK) {
        status = reef_store_check(store, &options, &report, &err);
        if (status == REEF_OK) assert(report.damaged == told);
    }
    if (status != REEF_OK) fuzz_failure(status, &err);
    reef_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    put(pool.now, change(&input));

    reef_error err;
    uint64_t told = 0;
    reef_check_report report = {0};
    const reef_check_options options = {.on_damage = on_damage, .context = &told};
    reef_status file = reef_pool_file_check(pool.path, &err);
    if (file != REEF_OK) fuzz_failure(file, &err);
    reef_status pages = reef_check_pages_of(pool.path, &options, &report, &err);
    if (pages != REEF_OK) fuzz_failure(pages, &err);
    assert(report.damaged == told);
    assert(file != REEF_ERR_NO_MEMORY &&
           pages != REEF_ERR_NO_MEMORY); // no number in the file decides on that
    if (file == REEF_OK && pages == REEF_OK && !told) map();
    put(pool.bytes, pool.count);
    return 0;
}
