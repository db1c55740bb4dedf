// One life after the other of a reefd on a source that never ends: started, killed, and at last
// ended when it has accepted all that was written.
#ifndef LIVE_RUN_H
#define LIVE_RUN_H

#include "reefd_run.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>

#define LIVE_PATIENCE_MS 120000

typedef struct live_run {
    sandbox box;
    char source[400];
    uint64_t written; // bytes of the stream
    pid_t reefd;      // 0: none runs
} live_run;

static inline void live_end(live_run *r, int signal) {
    if (r->reefd <= 0) return;
    kill(r->reefd, signal);
    waitpid(r->reefd, NULL, 0);
    r->reefd = 0;
}

static inline void live_start(live_run *r) {
    r->reefd = reefd_start(&r->box, -1,
                           (const char *const[]){"--pool", r->box.pool, "--source", r->source,
                                                 "--threads", "2", "--commit-steps", "20", NULL});
}

static inline uint64_t live_cursor(const live_run *r) {
    json_t *status = reefd_ask(&r->box, "{\"command\": \"status\"}");
    json_t *source = json_array_get(json_object_get(status, "sources"), 0);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(source, "cursor"));
    return bytes;
}

/**
 * Until all that was written is accepted; then the daemon ends, and leaves the commit that is
 * returned.
 */
static inline reef_commit live_finish(live_run *r) {
    reefd_await(&r->box, r->reefd);
    unsigned waited = 0;
    while (live_cursor(r) < r->written && waited < LIVE_PATIENCE_MS) {
        sleep_ms(50);
        waited += 50;
    }
    sleep_ms(200); // what must not come would come now
    assert_int_equal(live_cursor(r), r->written);
    kill(r->reefd, SIGTERM);
    pid_t pid = r->reefd;
    r->reefd = 0;
    assert_int_equal(reefd_wait(pid), 0);
    pool_check(&r->box);
    return pool_commit(&r->box);
}

static inline void live_assert_same(const reef_commit *a, const reef_commit *b) {
    assert_int_equal(a->stream_bytes, b->stream_bytes);
    assert_int_equal(a->step, b->step);
    assert_memory_equal(a->root, b->root, REEF_HASH_BYTES);
}

#endif
