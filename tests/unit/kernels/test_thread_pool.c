// Workers: every piece exactly once, whatever the counts, and all writes visible afterwards.
#define _GNU_SOURCE // for gettid

#include "checked.h"
#include "reef_kernels.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PIECES_MAX = 300 };

typedef struct tally {
    int runs[PIECES_MAX]; // plain ints: a piece run twice, or read too early, is a race
    size_t out_of_range;
    size_t count;
} tally;

static void count_piece(void *context, size_t piece) {
    tally *t = context;
    if (piece < t->count)
        t->runs[piece]++;
    else
        t->out_of_range++;
}

static void check_run(reef_thread_pool *workers, size_t count) {
    tally t = {.count = count};
    reef_thread_pool_run(workers, count, count_piece, &t);
    assert_int_equal(t.out_of_range, 0);
    for (size_t piece = 0; piece < PIECES_MAX; piece++)
        assert_int_equal(t.runs[piece], piece < count ? 1 : 0);
}

PLAIN_TEST(every_piece_runs_exactly_once) {
    const size_t threads[] = {1, 2, 3, 8, 33};
    for (size_t n = 0; n < sizeof(threads) / sizeof(*threads); n++) {
        reef_thread_pool *workers;
        must(reef_thread_pool_new(&workers, threads[n], &why));
        assert_int_equal(reef_thread_pool_count(workers), threads[n]);
        for (size_t count = 0; count <= PIECES_MAX; count += 1 + count / 4)
            for (int repeat = 0; repeat < 20; repeat++) check_run(workers, count);
        reef_thread_pool_free(workers);
    }
}

// Jobs with nothing in them follow each other faster than threads wake up.
PLAIN_TEST(late_workers_never_see_an_old_job) {
    for (size_t threads = 2; threads <= 6; threads += 2) {
        reef_thread_pool *workers;
        assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
        for (int repeat = 0; repeat < 3000; repeat++) check_run(workers, (size_t)repeat % 5);
        reef_thread_pool_free(workers);
    }
}

typedef struct meeting {
    atomic_size_t arrived;
    size_t expected;
    atomic_size_t met;
    int niceness; // that workers are to have, and how many have it
    atomic_size_t nice;
} meeting;

// Comes back when all pieces have started, which takes as many threads; or after a long time.
static void wait_for_all(void *context, size_t piece) {
    meeting *m = context;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    atomic_fetch_add(&m->arrived, 1);
    do {
        if (atomic_load(&m->arrived) == m->expected) {
            atomic_fetch_add(&m->met, 1);
            return;
        }
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 100);
}

PLAIN_TEST(as_many_pieces_run_at_once_as_there_are_threads) {
    const size_t threads[] = {2, 3, 8, 33};
    for (size_t n = 0; n < sizeof(threads) / sizeof(*threads); n++) {
        reef_thread_pool *workers;
        assert_int_equal(reef_thread_pool_new(&workers, threads[n], NULL), REEF_OK);
        for (int repeat = 0; repeat < 30; repeat++) {
            meeting m = {.expected = threads[n]};
            reef_thread_pool_run(workers, threads[n], wait_for_all, &m);
            assert_int_equal(m.met, threads[n]);
        }
        reef_thread_pool_free(workers);
    }
}

typedef struct relay {
    uint64_t values[64];
    uint64_t round;
} relay;

static void step_value(void *context, size_t piece) {
    relay *r = context;
    // Reads what another thread may have written in the run before.
    r->values[piece] = r->values[piece] * 31 + r->round + piece;
}

PLAIN_TEST(writes_of_one_run_are_seen_by_the_next) {
    relay shared = {0}, alone = {0};
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, 4, NULL), REEF_OK);
    for (int repeat = 0; repeat < 1000; repeat++) {
        shared.round = alone.round = (uint64_t)repeat;
        reef_thread_pool_run(workers, 64, step_value, &shared);
        reef_thread_pool_run(NULL, 64, step_value, &alone);
    }
    assert_memory_equal(&shared, &alone, sizeof(shared));
    reef_thread_pool_free(workers);
}

PLAIN_TEST(without_workers_the_caller_runs_everything) {
    check_run(NULL, 0);
    check_run(NULL, 1);
    check_run(NULL, 17);
    assert_int_equal(reef_thread_pool_count(NULL), 1);
    reef_thread_pool_free(NULL);
}

PLAIN_TEST(zero_threads_means_one_per_core) {
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, 0, NULL), REEF_OK);
    assert_true(reef_thread_pool_count(workers) >= 1);
    check_run(workers, 40);
    reef_thread_pool_free(workers);
}

static void note_niceness(void *context, size_t piece) {
    meeting *m = context;
    const id_t thread = (id_t)gettid();
    // Pieces wait for each other, so each has a thread of its own. The caller's stays as it was.
    wait_for_all(m, piece);
    if (thread == (id_t)getpid()) return;
    atomic_fetch_add(&m->nice, getpriority(PRIO_PROCESS, thread) == m->niceness);
}

PLAIN_TEST(workers_give_way_and_never_come_back) {
    const int before = getpriority(PRIO_PROCESS, 0);
    const int asked[] = {before + 2, before + 3, before + 1}, had[] = {2, 3, 3};
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, 3, NULL), REEF_OK);
    for (int i = 0; i < 3; i++) {
        meeting m = {.expected = 3, .niceness = before + had[i]};
        reef_thread_pool_give_way(workers, asked[i]);
        reef_thread_pool_run(workers, 3, note_niceness, &m);
        assert_int_equal(m.met, 3);
        assert_int_equal(m.nice, 2);
    }
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
    reef_thread_pool_free(workers);
}

PLAIN_TEST(nonsense_is_refused) {
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, SIZE_MAX, &why), REEF_ERR_INVALID);
    assert_null(workers);
    assert_true(strlen(why.message) > 0);
}

RUN_TESTS
