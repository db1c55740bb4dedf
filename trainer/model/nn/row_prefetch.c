// See pager.h.
//
// A page is asked for with MADV_WILLNEED, which starts to read it and does not wait, so that many reads
// are under way at once; a disk that answers one at a time in 120 microseconds answers eight times as
// many that way. A bit per page remembers what was asked for already. The thread looks at the size of
// the process about every millisecond while a pass runs, and drops the pages of the whole map from the
// process when that is too much: which rows come again is not known, and dropping a page that is still
// in the system's cache costs a soft fault.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // madvise

#include "row_prefetch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK_ROWS 256                 // between two looks at the size of the process
#define CHECK_NS 1000000               // when there is nothing left to ask for
#define MAPPED_BYTES_MIN (16ull << 20) // less is not worth dropping

struct reef_pager {
    uint64_t resident_bytes_max;
    size_t page_bytes;
    int statm; // /proc/self/statm; -1 where there is none: then nothing is ever let go

    uint8_t *first; // of the covered range, at a page
    size_t page_count;
    uint64_t *asked; // one bit per page

    pthread_t thread;
    pthread_mutex_t mutex; // protects all below
    pthread_cond_t changed;
    bool stop;
    bool running; // the thread works on `request`
    reef_pager_request request;

    atomic_bool finish; // the pass is over; watched without the mutex
    _Atomic uint64_t drops;
};

// ---- pages ---------------------------------------------------------------------------------------

static void ask_for(reef_pager *pager, const uint8_t *row, size_t bytes) {
    if (row < pager->first) return;
    size_t page = (size_t)(row - pager->first) / pager->page_bytes;
    size_t last = ((size_t)(row - pager->first) + bytes - 1) / pager->page_bytes;
    if (last >= pager->page_count) return; // not a row of the map
    bool missing = false;
    for (size_t p = page; p <= last; p++) {
        uint64_t bit = (uint64_t)1 << p % 64;
        missing |= (pager->asked[p / 64] & bit) == 0;
        pager->asked[p / 64] |= bit;
    }
    // A hint: where it fails, the row is read when it is needed.
    if (missing)
        (void)madvise(pager->first + page * pager->page_bytes,
                      (last - page + 1) * pager->page_bytes, MADV_WILLNEED);
}

// Let go of the map when the process is too large.
static void keep_within(reef_pager *pager) {
    char text[128];
    ssize_t count = pager->statm < 0 ? -1 : pread(pager->statm, text, sizeof text - 1, 0);
    if (count <= 0 || pager->page_count == 0) return;
    text[count] = '\0';
    char *rest;
    (void)strtoull(text, &rest, 10); // address space
    uint64_t resident = strtoull(rest, &rest, 10) * pager->page_bytes;
    uint64_t mapped = strtoull(rest, &rest, 10) * pager->page_bytes;
    uint64_t enough = pager->resident_bytes_max / 4 * 3; // the others go on mapping meanwhile
    if (resident <= enough || mapped < MAPPED_BYTES_MIN) return;
    (void)madvise(pager->first, pager->page_count * pager->page_bytes, MADV_DONTNEED);
    memset(pager->asked, 0, (pager->page_count + 63) / 64 * sizeof *pager->asked);
    atomic_fetch_add_explicit(&pager->drops, 1, memory_order_relaxed);
}

// ---- the thread ----------------------------------------------------------------------------------

static bool is_finished(const reef_pager *pager) {
    return atomic_load_explicit(&pager->finish, memory_order_relaxed);
}

static void fetch(reef_pager *pager, const reef_pager_request *request) {
    const reef_expert_rows *rows = request->rows;
    const uint64_t in_block = ((uint64_t)1 << rows->block_shift) - 1;
    size_t since_check = 0;
    for (size_t t = 0; t < request->tokens && !is_finished(pager); t++) {
        if (request->active && !request->active[t]) continue;
        for (size_t p = 0; p < request->P; p++) {
            uint64_t id = request->indices[t * request->P + p];
            const uint8_t *block = rows->blocks[id >> rows->block_shift];
            ask_for(pager, block + (id & in_block) * request->row_bytes, request->row_bytes);
        }
        since_check += request->P;
        if (since_check < CHECK_ROWS) continue;
        since_check = 0;
        keep_within(pager);
    }
}

// Until the pass is over: the others go on reading. Called and left with the mutex held.
static void watch(reef_pager *pager) {
    while (!is_finished(pager)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CHECK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&pager->changed, &pager->mutex, &until);
        keep_within(pager);
    }
}

static void *run(void *argument) {
    reef_pager *pager = argument;
    pthread_mutex_lock(&pager->mutex);
    while (!pager->stop) {
        if (!pager->running) {
            pthread_cond_wait(&pager->changed, &pager->mutex);
            continue;
        }
        reef_pager_request request = pager->request;
        pthread_mutex_unlock(&pager->mutex);
        fetch(pager, &request);
        keep_within(pager);
        pthread_mutex_lock(&pager->mutex);
        watch(pager);
        pager->running = false;
        pthread_cond_broadcast(&pager->changed);
    }
    pthread_mutex_unlock(&pager->mutex);
    return NULL;
}

// ---- life ----------------------------------------------------------------------------------------

reef_status reef_pager_new(reef_pager **out, uint64_t resident_bytes_max, reef_error *err) {
    *out = NULL;
    reef_pager *pager = calloc(1, sizeof *pager);
    if (pager == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pager");
    pager->resident_bytes_max = resident_bytes_max;
    pager->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    pager->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    pthread_mutex_init(&pager->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pager->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    sigset_t all, before; // signals belong to the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pager->thread, NULL, run, pager);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        *out = pager;
        return REEF_OK;
    }
    if (pager->statm >= 0) close(pager->statm);
    pthread_cond_destroy(&pager->changed);
    pthread_mutex_destroy(&pager->mutex);
    free(pager);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a thread that reads ahead: error %d",
                     error);
}

void reef_pager_free(reef_pager *pager) {
    if (pager == NULL) return;
    reef_pager_finish(pager);
    pthread_mutex_lock(&pager->mutex);
    pager->stop = true;
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->mutex);
    pthread_join(pager->thread, NULL);
    pthread_cond_destroy(&pager->changed);
    pthread_mutex_destroy(&pager->mutex);
    if (pager->statm >= 0) close(pager->statm);
    free(pager->asked);
    free(pager);
}

reef_status reef_pager_cover(reef_pager *pager, const void *first, size_t bytes, reef_error *err) {
    size_t page = pager->page_bytes, before = (uintptr_t)first % page;
    size_t count = (before + bytes + page - 1) / page;
    uint64_t *asked = calloc(count / 64 + 1, sizeof *asked);
    if (asked == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu pages", count);
    free(pager->asked);
    pager->asked = asked;
    pager->page_count = count;
    pager->first = (uint8_t *)first - before; // advice changes no byte of it
    // Rows lie far apart: what the system would read around each is of no use.
    if (count > 0) (void)madvise(pager->first, count * page, MADV_RANDOM);
    return REEF_OK;
}

void reef_pager_start(reef_pager *pager, const reef_pager_request *request) {
    pthread_mutex_lock(&pager->mutex);
    pager->request = *request;
    pager->running = true;
    atomic_store_explicit(&pager->finish, false, memory_order_relaxed);
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->mutex);
}

void reef_pager_finish(reef_pager *pager) {
    atomic_store_explicit(&pager->finish, true, memory_order_relaxed);
    pthread_mutex_lock(&pager->mutex);
    pthread_cond_broadcast(&pager->changed);
    while (pager->running) pthread_cond_wait(&pager->changed, &pager->mutex);
    pthread_mutex_unlock(&pager->mutex);
}

uint64_t reef_pager_drops(const reef_pager *pager) {
    return atomic_load_explicit(&pager->drops, memory_order_relaxed);
}
