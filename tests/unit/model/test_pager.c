// The pager: chosen rows of a file's map come into memory, a process that is too large releases
// them, and the bytes read stay the same.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // madvise, mincore, MAP_ANONYMOUS

#include "row_prefetch.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <fcntl.h>

#include "pool.h"
#include "test.h"

enum { ROW_FLOATS = 96, ROWS_PER_BLOCK = 256, BLOCK_SHIFT = 8, BLOCKS = 512, TOKENS = 64, P = 8 };
#define ROW_BYTES (ROW_FLOATS * sizeof(float))
#define BLOCK_BYTES (ROWS_PER_BLOCK * ROW_BYTES)
#define FILE_BYTES (BLOCKS * BLOCK_BYTES) // 48 MiB
#define SECONDS_MAX 20

// Block b of the rows is block BLOCKS - 1 - b of the file: the order must not matter.
typedef struct fixture {
    int fd;
    float *map;
    const void *blocks[BLOCKS];
    reef_expert_rows rows;
    reef_expert_id indices[TOKENS * P];
    uint8_t active[TOKENS];
} fixture;

static float value_of_row(uint32_t id) {
    return (float)id * 0.5f;
}

static void write_file(int fd) {
    float *block = room(BLOCK_BYTES);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        for (uint32_t r = 0; r < ROWS_PER_BLOCK; r++)
            block[r * ROW_FLOATS] = value_of_row((BLOCKS - 1 - b) * ROWS_PER_BLOCK + r);
        assert_int_equal(write(fd, block, BLOCK_BYTES), BLOCK_BYTES);
    }
    assert_int_equal(fsync(fd), 0);
}

static int setup(void **state) {
    fixture *f = room(sizeof(*f));
    char directory[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    temp_dir_new(directory);
    temp_dir_join(path, directory, "rows");
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(f->fd >= 0);
    temp_dir_remove(directory); // the file lives on until it is closed
    write_file(f->fd);
    f->map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_true(f->map != MAP_FAILED);
    for (size_t b = 0; b < BLOCKS; b++)
        f->blocks[b] = (const uint8_t *)f->map + (BLOCKS - 1 - b) * BLOCK_BYTES;
    f->rows = (reef_expert_rows){REEF_F32, BLOCK_SHIFT, f->blocks, NULL};
    for (size_t i = 0; i < TOKENS * P; i++)
        f->indices[i] = (reef_expert_id)(i * 2654435761u % (BLOCKS * ROWS_PER_BLOCK));
    memset(f->active, 1, sizeof(f->active));
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    munmap(f->map, FILE_BYTES);
    close(f->fd);
    return 0;
}

static reef_map_span span_of(const fixture *f, size_t from, size_t to) {
    return (reef_map_span){(const uint8_t *)f->map + from, (const uint8_t *)f->map + to};
}

static const float *row_of(const fixture *f, reef_expert_id id) {
    return (const float *)f->blocks[id >> BLOCK_SHIFT] + id % ROWS_PER_BLOCK * ROW_FLOATS;
}

// Is the first page of the row in memory, as far as the system is concerned?
static bool is_in_memory(const fixture *f, reef_expert_id id) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)row_of(f, id) / page * page;
    unsigned char there = 0;
    assert_int_equal(mincore((void *)at, 1, &there), 0);
    return there & 1;
}

static bool wait_for(bool (*is_so)(void *context), void *context) {
    for (int ms = 0; ms < SECONDS_MAX * 1000; ms++) {
        if (is_so(context)) return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static bool all_active_rows_are_in_memory(void *context) {
    const fixture *f = context;
    for (size_t i = 0; i < TOKENS * P; i++)
        if (f->active[i / P] && !is_in_memory(f, f->indices[i])) return false;
    return true;
}

static reef_row_prefetch_request request_of(const fixture *f) {
    return (reef_row_prefetch_request){.rows = &f->rows,
                                       .row_bytes = ROW_BYTES,
                                       .tokens = TOKENS,
                                       .P = P,
                                       .indices = f->indices,
                                       .active = f->active};
}

static void assert_rows_are_right(const fixture *f) {
    for (size_t i = 0; i < TOKENS * P; i++)
        if (f->active[i / P])
            assert_true(row_of(f, f->indices[i])[0] == value_of_row(f->indices[i]));
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, fixture *f)

FIXTURE_TEST(chosen_rows_come_into_memory) {
    reef_row_prefetch *prefetch;
    // What is chosen for a token that reads nothing is unspecified.
    f->active[5] = 0;
    for (size_t p = 0; p < P; p++) f->indices[5 * P + p] = UINT32_MAX;
    must(reef_row_prefetch_new(&prefetch, UINT64_MAX, &why));
    must(reef_row_prefetch_cover(prefetch, (reef_map_span[]){span_of(f, 0, FILE_BYTES)}, 1, &why));
    // Not in memory, where the file system allows that (one in memory itself does not).
    madvise(f->map, FILE_BYTES, MADV_DONTNEED);
    posix_fadvise(f->fd, 0, FILE_BYTES, POSIX_FADV_DONTNEED);
    bool was_out = !all_active_rows_are_in_memory(f);

    reef_row_prefetch_request request = request_of(f);
    reef_row_prefetch_start(prefetch, &request);
    assert_true(wait_for(all_active_rows_are_in_memory, f));
    reef_row_prefetch_finish(prefetch);
    if (was_out) { // the rest of the file stayed where it was
        size_t there = 0;
        for (uint32_t id = 0; id < BLOCKS * ROWS_PER_BLOCK; id += 16) there += is_in_memory(f, id);
        assert_true(there < BLOCKS * ROWS_PER_BLOCK / 16);
    }
    assert_rows_are_right(f);
    assert_int_equal(reef_row_prefetch_drops(prefetch), 0);
    reef_row_prefetch_free(prefetch);
}

static bool has_dropped(void *context) {
    return reef_row_prefetch_drops(context) > 0;
}

FIXTURE_TEST(a_process_that_is_too_large_lets_go) {
    reef_row_prefetch *prefetch;
    must(reef_row_prefetch_new(&prefetch, 1, &why));
    must(reef_row_prefetch_cover(prefetch, (reef_map_span[]){span_of(f, 0, FILE_BYTES)}, 1, &why));
    reef_row_prefetch_request request = request_of(f);
    reef_row_prefetch_start(prefetch, &request);
    float sum = 0;
    for (size_t i = 0; i < FILE_BYTES / sizeof(float); i += 1024) sum += f->map[i];
    assert_true(sum > 0);
    assert_true(wait_for(has_dropped, prefetch));
    assert_rows_are_right(f);
    reef_row_prefetch_finish(prefetch);
    reef_row_prefetch_free(prefetch);
}

// Between two files' maps lies what is nobody's: it has no file to come back from.
FIXTURE_TEST(what_lies_between_two_maps_stays) {
    reef_row_prefetch *prefetch;
    const size_t hole = BLOCKS / 2 * BLOCK_BYTES;
    uint8_t *at = (uint8_t *)f->map + hole, *copy = room(BLOCK_BYTES);
    memcpy(copy, at, BLOCK_BYTES);
    assert_true(mmap(at, BLOCK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    memcpy(at, copy, BLOCK_BYTES);
    const reef_map_span two[] = {span_of(f, hole + BLOCK_BYTES, FILE_BYTES), span_of(f, 0, hole)};
    must(reef_row_prefetch_new(&prefetch, 1, &why));
    must(reef_row_prefetch_cover(prefetch, two, 2, &why));
    reef_row_prefetch_request request = request_of(f);
    reef_row_prefetch_start(prefetch, &request);
    float sum = 0;
    for (size_t i = 0; i < FILE_BYTES / sizeof(float); i += 1024) sum += f->map[i];
    assert_true(sum > 0);
    assert_true(wait_for(has_dropped, prefetch));
    reef_row_prefetch_finish(prefetch);
    assert_rows_are_right(f);
    assert_memory_equal(at, copy, BLOCK_BYTES);
    reef_row_prefetch_free(prefetch);
    // Rows on both sides come in.
    must(reef_row_prefetch_new(&prefetch, UINT64_MAX, &why));
    must(reef_row_prefetch_cover(prefetch, two, 2, &why));
    reef_row_prefetch_start(prefetch, &request);
    assert_true(wait_for(all_active_rows_are_in_memory, f));
    reef_row_prefetch_finish(prefetch);
    reef_row_prefetch_free(prefetch);
}

FIXTURE_TEST(passes_follow_each_other_and_may_end_early) {
    reef_row_prefetch *prefetch;
    must(reef_row_prefetch_new(&prefetch, UINT64_MAX, &why));
    // Nothing covered, a part of the rows, all of them, and nothing again: rows outside are left
    // alone.
    const size_t covered[] = {0, FILE_BYTES / 3, FILE_BYTES, 0};
    for (size_t n = 0; n < sizeof(covered) / sizeof(*covered); n++) {
        const reef_map_span span = covered[n] > 0 ? span_of(f, 0, covered[n]) : (reef_map_span){0};
        must(reef_row_prefetch_cover(prefetch, &span, 1, &why));
        for (int pass = 0; pass < 20; pass++) {
            reef_row_prefetch_request request = request_of(f);
            reef_row_prefetch_start(prefetch, &request);
            if (pass % 2) assert_rows_are_right(f);
            reef_row_prefetch_finish(prefetch);
        }
    }
    reef_row_prefetch_free(prefetch);
    reef_row_prefetch_free(NULL);
}

RUN_TESTS
