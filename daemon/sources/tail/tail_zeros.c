// Runs of NUL in a followed file. A writer that goes on at its old offset after the file was cut
// leaves a hole that reads as NUL, and a crash leaves blocks that were never written.
//
// A run of REEF_ZEROS_MIN bytes or more ends the line before it and is passed over: it is no part
// of the stream. Shorter runs are text. Which bytes are passed over follows from the bytes of the
// file alone: a read pass ends where a run begins, and the next one begins behind the run, so the
// table of a checkpoint needs no word for it, and a process that was killed finds the same stream.
//
// A run up to the end of a file that may still grow waits: some writers reserve their space with
// NUL and write over it.
#define _GNU_SOURCE // SEEK_DATA

#include "tail_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 65536
// Looked at in one read pass; holes of a plain file cost nothing.
#define PASS_BYTES_MAX ((uint64_t)1 << 30)

// 1: a run begins here; 0: none; -1: it cannot be read.
static int is_run_at(reef_tail_file *entry, uint64_t at) {
    uint8_t bytes[REEF_ZEROS_MIN] = {1};
    ssize_t got = reef_tail_file_read(entry, bytes, sizeof(bytes), at);
    if (got < 0) return -1;
    if (got < REEF_ZEROS_MIN) return 0;
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, sizeof(bytes) - 1) == 0;
}

ssize_t reef_tail_zeros_cut(reef_tail_file *entry,
                            const uint8_t *bytes,
                            size_t count,
                            uint64_t offset) {
    for (size_t at = 0; at < count;) {
        const uint8_t *zero = memchr(bytes + at, 0, count - at);
        if (zero == NULL) break;
        size_t from = (size_t)(zero - bytes);
        for (at = from; at < count && at - from < REEF_ZEROS_MIN && !bytes[at];) at++;
        // A run may go on behind what was read.
        int run =
            at - from == REEF_ZEROS_MIN ? 1 : (at == count ? is_run_at(entry, offset + from) : 0);
        if (run) return run < 0 ? -1 : (ssize_t)from;
    }
    return (ssize_t)count;
}

// Where the hole ends in which `at` lies, or `at`.
static uint64_t after_hole(const reef_tail_file *entry, uint64_t at) {
    // A packed file has no holes, and its descriptor's position is the decompressor's.
    if (entry->is_gzip) return at;
    errno = 0;
    off_t data = lseek(entry->fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return entry->size; // a hole up to the end
    if (data < 0 || (uint64_t)data <= at) return at;
    return (uint64_t)data < entry->size ? (uint64_t)data : entry->size;
}

static size_t zeros_at_head(const uint8_t *bytes, size_t count) {
    size_t zeros = 0;
    while (zeros < count && !bytes[zeros]) zeros++;
    return zeros;
}

// Sets entry->zeros_from and zeros_end, which is the run's end if `whole`. False: it cannot be
// read.
static bool find_run_end(reef_tail_file *entry, bool *whole) {
    static const uint8_t NONE[BLOCK_BYTES];
    uint8_t block[BLOCK_BYTES];
    // What an earlier pass saw of the same run is not looked at again.
    bool known = entry->zeros_from == entry->offset && entry->zeros_end <= entry->size &&
                 entry->zeros_end > entry->offset;
    uint64_t at = known ? entry->zeros_end : entry->offset, left = PASS_BYTES_MAX;
    *whole = false;
    while (!*whole && at < entry->size && left >= sizeof(block)) {
        at = after_hole(entry, at);
        size_t wanted = entry->size - at < sizeof(block) ? entry->size - at : sizeof(block);
        ssize_t got = wanted ? reef_tail_file_read(entry, block, wanted, at) : 0;
        if (got != (ssize_t)wanted) return false;
        bool all = memcmp(block, NONE, wanted) == 0;
        at += all ? wanted : zeros_at_head(block, wanted);
        *whole = !all;
        left -= sizeof(block);
    }
    *whole |= at >= entry->size;
    entry->zeros_from = entry->offset;
    entry->zeros_end = at;
    return true;
}

// The first run from the offset on; entry->size if there is none, -1 if it cannot be read.
static int64_t find_run(reef_tail_file *entry) {
    uint8_t block[BLOCK_BYTES];
    for (uint64_t at = entry->offset; at < entry->size;) {
        size_t wanted = entry->size - at < sizeof(block) ? entry->size - at : sizeof(block);
        ssize_t got = reef_tail_file_read(entry, block, wanted, at);
        ssize_t text = got == (ssize_t)wanted ? reef_tail_zeros_cut(entry, block, wanted, at) : -1;
        if (text < 0) return -1;
        at += (size_t)text;
        if (text < got) return (int64_t)at;
    }
    return (int64_t)entry->size;
}

// Were bytes given that end within a line? -1: they cannot be read.
static int ends_within_line(reef_tail_file *entry) {
    uint8_t last = '\n';
    if (!entry->offset || entry->newline_added) return 0;
    if (reef_tail_file_read(entry, &last, 1, entry->offset - 1) != 1) return -1;
    return last != '\n';
}

static bool pass_run(reef_tail_file *entry, bool finished, uint64_t *end, uint64_t *passed) {
    bool whole = false;
    int within = ends_within_line(entry);
    if (within < 0 || !find_run_end(entry, &whole)) return false;
    *end = entry->offset;
    if (!whole || (entry->zeros_end == entry->size && !finished)) return true;
    entry->before_zeros = entry->add_newline = within;
    if (within) return true;
    *passed = entry->zeros_end - entry->offset;
    entry->offset = entry->pass_end = entry->zeros_end;
    entry->newline_added = true; // what is given next begins a line
    *end = entry->size;
    return true;
}

bool reef_tail_zeros_plan(reef_tail_file *entry, bool finished, uint64_t *end, uint64_t *passed) {
    *end = entry->size;
    *passed = 0;
    entry->before_zeros = false;
    int run = is_run_at(entry, entry->offset);
    if (run < 0 || (run && !pass_run(entry, finished, end, passed))) return false;
    if (finished || *end < entry->size || *end - entry->offset < REEF_ZEROS_MIN) return true;
    run = is_run_at(entry, entry->size - REEF_ZEROS_MIN);
    if (run <= 0) return run == 0;
    int64_t first = find_run(entry);
    if (first >= 0) *end = (uint64_t)first;
    return first >= 0;
}
