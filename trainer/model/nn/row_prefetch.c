// See row_prefetch.h.
//
// A page is asked for with MADV_WILLNEED, which starts to read it and does not wait, so that many
// reads are under way at once; a disk that answers one at a time in 120 microseconds answers eight
// times as many that way. A bit per page remembers what was asked for already. The thread checks
// the size of the process about every millisecond while a pass runs, and drops the pages of the
// whole map from the process if it is too large: it cannot know which rows come again, and dropping
// a page that is still in the system's cache costs a soft fault.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // madvise

#include "row_prefetch.h"
#include "reef_system.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK_ROWS 256                 // between two checks of the size of the process
#define CHECK_NS 1000000               // when there is nothing left to ask for
#define MAPPED_BYTES_MIN (16ull << 20) // less is not worth dropping

// The whole pages that a span covers, one after the other with those of the other spans.
typedef struct pages {
    uint8_t *first;
    size_t count, before; // of all spans before
} pages;

struct reef_row_prefetch {
    uint64_t resident_bytes_max;
    size_t page_bytes;
    int statm; // /proc/self/statm; -1 if it is missing: then nothing is ever released

    pages *spans;
    size_t span_count, page_count;
    uint64_t *asked; // one bit per page of all

    pthread_t thread;
    pthread_mutex_t mutex; // protects all below
    pthread_cond_t changed;
    bool stop;
    bool running; // the thread works on `request`
    reef_row_prefetch_request request;

    atomic_bool finish; // the pass is over; watched without the mutex
    _Atomic uint64_t drops;
};

// ---- pages --------------------------------------------------------------------------------------

static void ask_in(reef_row_prefetch *prefetch, const pages *in, const uint8_t *row, size_t bytes) {
    if ((uintptr_t)row < (uintptr_t)in->first) return;
    size_t page = (size_t)((uintptr_t)row - (uintptr_t)in->first) / prefetch->page_bytes;
    size_t last =
        ((size_t)((uintptr_t)row - (uintptr_t)in->first) + bytes - 1) / prefetch->page_bytes;
    if (last >= in->count) return; // not a row of this map
    bool missing = false;
    for (size_t p = in->before + page; p <= in->before + last; p++) {
        uint64_t bit = (uint64_t)1 << p % 64;
        missing |= (prefetch->asked[p / 64] & bit) == 0;
        prefetch->asked[p / 64] |= bit;
    }
    // A hint: where it fails, the row is read when it is needed.
    if (missing)
        (void)madvise(in->first + page * prefetch->page_bytes,
                      (last - page + 1) * prefetch->page_bytes, MADV_WILLNEED);
}

static void ask_for(reef_row_prefetch *prefetch, const uint8_t *row, size_t bytes) {
    for (size_t s = 0; s < prefetch->span_count; s++)
        ask_in(prefetch, &prefetch->spans[s], row, bytes);
}

// Release the pages of the map when the process is too large.
static void keep_within(reef_row_prefetch *prefetch) {
    char text[128];
    ssize_t count = prefetch->statm < 0 ? -1 : pread(prefetch->statm, text, sizeof(text) - 1, 0);
    if (count <= 0 || prefetch->page_count == 0) return;
    text[count] = '\0';
    char *rest;
    (void)strtoull(text, &rest, 10); // address space
    uint64_t resident = strtoull(rest, &rest, 10) * prefetch->page_bytes;
    uint64_t mapped = strtoull(rest, &rest, 10) * prefetch->page_bytes;
    uint64_t enough = prefetch->resident_bytes_max / 4 * 3; // the others continue to map meanwhile
    if (resident <= enough || mapped < MAPPED_BYTES_MIN) return;
    for (size_t s = 0; s < prefetch->span_count; s++)
        (void)madvise(prefetch->spans[s].first, prefetch->spans[s].count * prefetch->page_bytes,
                      MADV_DONTNEED);
    memset(prefetch->asked, 0, (prefetch->page_count + 63) / 64 * sizeof(*prefetch->asked));
    atomic_fetch_add_explicit(&prefetch->drops, 1, memory_order_relaxed);
}

// ---- the thread ---------------------------------------------------------------------------------

static bool is_finished(const reef_row_prefetch *prefetch) {
    return atomic_load_explicit(&prefetch->finish, memory_order_relaxed);
}

static void fetch(reef_row_prefetch *prefetch, const reef_row_prefetch_request *request) {
    const reef_expert_rows *rows = request->rows;
    const uint64_t in_block = ((uint64_t)1 << rows->block_shift) - 1;
    size_t since_check = 0;
    for (size_t t = 0; t < request->tokens && !is_finished(prefetch); t++) {
        if (request->active != NULL && !request->active[t]) continue;
        for (size_t p = 0; p < request->P; p++) {
            uint64_t id = request->indices[t * request->P + p];
            const uint8_t *block = rows->blocks[id >> rows->block_shift];
            if (block == NULL) continue; // another rank's row, which was fetched already
            ask_for(prefetch, block + (id & in_block) * request->row_bytes, request->row_bytes);
        }
        since_check += request->P;
        if (since_check < CHECK_ROWS) continue;
        since_check = 0;
        keep_within(prefetch);
    }
}

// Until the pass is over: the others continue to read. Called and left with the mutex held.
static void watch_resident_size(reef_row_prefetch *prefetch) {
    while (!is_finished(prefetch)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CHECK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&prefetch->changed, &prefetch->mutex, &until);
        keep_within(prefetch);
    }
}

static void *prefetch_main(void *argument) {
    reef_row_prefetch *prefetch = argument;
    pthread_mutex_lock(&prefetch->mutex);
    while (!prefetch->stop) {
        if (!prefetch->running) {
            pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
            continue;
        }
        reef_row_prefetch_request request = prefetch->request;
        pthread_mutex_unlock(&prefetch->mutex);
        fetch(prefetch, &request);
        keep_within(prefetch);
        pthread_mutex_lock(&prefetch->mutex);
        watch_resident_size(prefetch);
        prefetch->running = false;
        pthread_cond_broadcast(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

// ---- life ---------------------------------------------------------------------------------------

reef_status reef_row_prefetch_new(reef_row_prefetch **out,
                                  uint64_t resident_bytes_max,
                                  reef_error *err) {
    *out = NULL;
    reef_row_prefetch *prefetch = calloc(1, sizeof(*prefetch));
    if (prefetch == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pager");
    prefetch->resident_bytes_max = resident_bytes_max;
    prefetch->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    prefetch->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    pthread_mutex_init(&prefetch->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&prefetch->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    int error = reef_thread_start(&prefetch->thread, prefetch_main, prefetch);
    if (error == 0) {
        *out = prefetch;
        return REEF_OK;
    }
    if (prefetch->statm >= 0) close(prefetch->statm);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    free(prefetch);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a thread that reads ahead: error %d",
                     error);
}

void reef_row_prefetch_free(reef_row_prefetch *prefetch) {
    if (prefetch == NULL) return;
    reef_row_prefetch_finish(prefetch);
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->stop = true;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    if (prefetch->statm >= 0) close(prefetch->statm);
    free(prefetch->asked);
    free(prefetch->spans);
    free(prefetch);
}

static pages pages_of(const reef_row_prefetch *prefetch, const reef_map_span *span, size_t before) {
    size_t page = prefetch->page_bytes, ahead = (uintptr_t)span->first % page;
    size_t bytes = (size_t)((uintptr_t)span->end - (uintptr_t)span->first);
    return (pages){.first = (uint8_t *)(uintptr_t)span->first - ahead, // advice changes no byte
                   .count = (ahead + bytes + page - 1) / page,
                   .before = before};
}

reef_status reef_row_prefetch_cover(reef_row_prefetch *prefetch,
                                    const reef_map_span *spans,
                                    size_t count,
                                    reef_error *err) {
    pages *all = calloc(count + 1, sizeof(*all)); // never of no bytes
    size_t page_count = 0;
    for (size_t s = 0; all != NULL && s < count; s++) {
        all[s] = pages_of(prefetch, &spans[s], page_count);
        page_count += all[s].count;
    }
    uint64_t *asked = calloc(page_count / 64 + 1, sizeof(*asked));
    if (all == NULL || asked == NULL) {
        free(all);
        free(asked);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu pages", page_count);
    }
    free(prefetch->asked);
    free(prefetch->spans);
    prefetch->asked = asked;
    prefetch->spans = all;
    prefetch->span_count = count;
    prefetch->page_count = page_count;
    // Rows lie far apart: what the system would read around each is of no use.
    for (size_t s = 0; s < count; s++)
        if (all[s].count > 0)
            (void)madvise(all[s].first, all[s].count * prefetch->page_bytes, MADV_RANDOM);
    return REEF_OK;
}

void reef_row_prefetch_start(reef_row_prefetch *prefetch,
                             const reef_row_prefetch_request *request) {
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->request = *request;
    prefetch->running = true;
    atomic_store_explicit(&prefetch->finish, false, memory_order_relaxed);
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
}

void reef_row_prefetch_finish(reef_row_prefetch *prefetch) {
    atomic_store_explicit(&prefetch->finish, true, memory_order_relaxed);
    pthread_mutex_lock(&prefetch->mutex);
    pthread_cond_broadcast(&prefetch->changed);
    while (prefetch->running) pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    pthread_mutex_unlock(&prefetch->mutex);
}

uint64_t reef_row_prefetch_drops(const reef_row_prefetch *prefetch) {
    return atomic_load_explicit(&prefetch->drops, memory_order_relaxed);
}
