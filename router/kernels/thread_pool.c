// Worker threads that share out the fixed pieces of one job at a time.
//
// What always holds: pieces are claimed from one counter, so each runs exactly once; which thread
// runs a piece is left to chance and must not matter to the result. A job's fields change only
// while no worker is inside a job, which is what the `inside` count is for:
//
//   run:     lock, publish, wake, unlock  | claim pieces | lock, close job, unlock | inside == 0?
//   worker:  lock, open? inside++, unlock | claim pieces | inside-- (the last one signals)
//
// A worker that wakes after the job was closed finds nothing and goes back to waiting, so a run
// never waits for a thread that the scheduler has not let in yet.
#define _GNU_SOURCE // sched_getaffinity: the cores that we may run on, not the cores there are

#include "reef_kernels.h"
#include "reef_system.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

// Spins before a thread sleeps: 50 microseconds on Zen 5, up to 100 where a pause takes
// longer. That bridges the gap between two phases of a step; a run of empty pieces costs 0.4
// microseconds, a wake-up some tens.
enum { SPINS_MAX = 2000 };
// A bound against nonsense; memory for the stacks runs out first.
enum { THREADS_MAX = 4096 };

struct reef_thread_pool {
    size_t thread_count;
    size_t thread_started; // of thread_count - 1
    int spins_max; // 0 where threads outnumber cores: a spinning thread keeps a working one out
    pthread_t *threads;

    pthread_mutex_t
        mutex; // protects stop, open, work, context, piece_count; guards both conditions
    pthread_cond_t job_published;
    pthread_cond_t all_left;
    bool stop;
    bool open; // the job takes more workers in
    void (*work)(void *context, size_t piece);
    void *context;
    size_t piece_count;

    atomic_int niceness;  // that workers take on with their next job
    atomic_uint job;      // number of the newest job, changed under the mutex, watched without it
    atomic_size_t next;   // piece to claim next
    atomic_size_t inside; // workers that may be running pieces; raised under the mutex only
};

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static size_t usable_cores(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return (size_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); // more cores than a cpu_set_t holds
    return online > 0 ? (size_t)online : 1;
}

static void claim_pieces(reef_thread_pool *workers,
                         size_t piece_count,
                         void (*work)(void *context, size_t piece),
                         void *context) {
    for (;;) {
        // Relaxed: the number alone is shared; the mutex published what the piece reads.
        size_t piece = atomic_fetch_add_explicit(&workers->next, 1, memory_order_relaxed);
        if (piece >= piece_count) return;
        work(context, piece);
    }
}

// Wait for a job newer than `seen`, and enter it. Returns false when the workers end.
static bool enter_job(reef_thread_pool *workers, unsigned *seen) {
    // Without the mutex: only a hint that it is worth taking it.
    for (int i = 0; i < workers->spins_max; i++) {
        if (atomic_load_explicit(&workers->job, memory_order_relaxed) != *seen) break;
        pause_briefly();
    }
    pthread_mutex_lock(&workers->mutex);
    for (;;) {
        unsigned job = atomic_load_explicit(&workers->job, memory_order_relaxed);
        // A worker that comes too late skips the job: its pieces are all claimed.
        bool entered = job != *seen && workers->open;
        *seen = job;
        // Under the mutex, so that the caller cannot close the job in between.
        if (entered) atomic_fetch_add_explicit(&workers->inside, 1, memory_order_relaxed);
        if (entered || workers->stop) break;
        pthread_cond_wait(&workers->job_published, &workers->mutex);
    }
    bool stop = workers->stop;
    pthread_mutex_unlock(&workers->mutex);
    return !stop;
}

static void leave_job(reef_thread_pool *workers) {
    // Release: what this worker wrote is visible to the caller, who reads `inside` with acquire.
    if (atomic_fetch_sub_explicit(&workers->inside, 1, memory_order_release) > 1) return;
    // Taking the mutex makes sure that the caller is not between its check and its sleep.
    pthread_mutex_lock(&workers->mutex);
    pthread_cond_signal(&workers->all_left);
    pthread_mutex_unlock(&workers->mutex);
}

static void *run_worker(void *argument) {
    reef_thread_pool *workers = argument;
    unsigned seen = 0;
    int niceness = 0;

    while (enter_job(workers, &seen)) {
        // One system call when it changes, none for a job.
        int wanted = atomic_load_explicit(&workers->niceness, memory_order_relaxed);
        if (wanted != niceness) reef_thread_give_way(niceness = wanted);
        // Unchanged while this worker is inside.
        claim_pieces(workers, workers->piece_count, workers->work, workers->context);
        leave_job(workers);
    }
    return NULL;
}

void reef_thread_pool_give_way(reef_thread_pool *workers, int niceness) {
    if (workers == NULL) return;
    atomic_store_explicit(&workers->niceness, niceness, memory_order_relaxed);
}

static int start_threads(reef_thread_pool *workers) {
    int error = 0;
    while (error == 0 && workers->thread_started + 1 < workers->thread_count) {
        error = reef_thread_start(&workers->threads[workers->thread_started], run_worker, workers);
        if (error == 0) workers->thread_started++;
    }
    return error;
}

reef_status reef_thread_pool_new(reef_thread_pool **out, size_t thread_count, reef_error *err) {
    *out = NULL;
    // Cores that this process may use, as set by taskset or a container.
    size_t cores = usable_cores();
    if (thread_count == 0) thread_count = cores;
    if (thread_count > THREADS_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "%zu threads are more than %d", thread_count,
                         THREADS_MAX);

    reef_thread_pool *workers = calloc(1, sizeof(*workers));
    pthread_t *threads = calloc(thread_count, sizeof(*threads));
    if (workers == NULL || threads == NULL) {
        free(workers);
        free(threads);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu workers", thread_count);
    }
    workers->thread_count = thread_count;
    workers->threads = threads;
    // With more threads than cores, spinning would take the time of those that work.
    workers->spins_max = thread_count <= cores ? SPINS_MAX : 0;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->job_published, NULL);
    pthread_cond_init(&workers->all_left, NULL);

    int error = start_threads(workers);
    if (error != 0) {
        // Free joins the threads that were started.
        size_t started = workers->thread_started;
        reef_thread_pool_free(workers);
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory for worker thread %zu of %zu: error %d", started + 1,
                         thread_count - 1, error);
    }
    *out = workers;
    return REEF_OK;
}

void reef_thread_pool_free(reef_thread_pool *workers) {
    if (workers == NULL) return;
    pthread_mutex_lock(&workers->mutex);
    workers->stop = true;
    // Workers that sleep between two jobs must wake to see `stop`.
    pthread_cond_broadcast(&workers->job_published);
    pthread_mutex_unlock(&workers->mutex);
    for (size_t i = 0; i < workers->thread_started; i++) pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->all_left);
    pthread_cond_destroy(&workers->job_published);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->threads);
    free(workers);
}

size_t reef_thread_pool_count(const reef_thread_pool *workers) {
    return workers == NULL ? 1 : workers->thread_count;
}

static void wait_until_all_left(reef_thread_pool *workers) {
    for (int i = 0; i < workers->spins_max; i++) {
        if (atomic_load_explicit(&workers->inside, memory_order_acquire) == 0) return;
        pause_briefly();
    }
    pthread_mutex_lock(&workers->mutex);
    while (atomic_load_explicit(&workers->inside, memory_order_acquire) > 0)
        pthread_cond_wait(&workers->all_left, &workers->mutex);
    pthread_mutex_unlock(&workers->mutex);
}

void reef_thread_pool_run(reef_thread_pool *workers,
                          size_t piece_count,
                          void (*work)(void *context, size_t piece),
                          void *context) {
    // One piece is not worth waking anybody for.
    if (workers == NULL || workers->thread_count == 1 || piece_count <= 1) {
        for (size_t piece = 0; piece < piece_count; piece++) work(context, piece);
        return;
    }

    pthread_mutex_lock(&workers->mutex);
    assert(!workers->open); // one call at a time, and none from inside a piece
    workers->work = work;
    workers->context = context;
    workers->piece_count = piece_count;
    workers->open = true;
    // All under the mutex: whoever enters the job has seen every field of it.
    atomic_store_explicit(&workers->next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&workers->job, 1, memory_order_relaxed);
    pthread_cond_broadcast(&workers->job_published);
    pthread_mutex_unlock(&workers->mutex);

    // The caller works too: with a pool of n threads, n - 1 are started.
    claim_pieces(workers, piece_count, work, context);

    pthread_mutex_lock(&workers->mutex);
    workers->open = false; // every piece is claimed; nobody needs to come in any more
    pthread_mutex_unlock(&workers->mutex);
    wait_until_all_left(workers);
}
