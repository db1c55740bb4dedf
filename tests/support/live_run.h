// One life after the other of a reefd on a source that never ends: started, killed, and at last
// ended when it has accepted all that was written.
#ifndef LIVE_RUN_H
#define LIVE_RUN_H

#include "reefd_run.h"
#include "test.h"

#include <signal.h>

typedef struct live_run {
    sandbox box; // first: sandbox_teardown takes it for one
    char source[400];
    uint64_t written; // bytes of the stream
} live_run;

// It may be killed before it answers.
static inline void live_start(live_run *r) {
    r->box.pid = reefd_start(&r->box, -1,
                             (const char *const[]){"--pool", r->box.pool, "--source", r->source,
                                                   "--threads", "2", "--commit-steps", "20", NULL});
}

/** Until all that was written is accepted. */
static inline void live_await(const live_run *r) {
    reefd_await(&r->box, r->box.pid);
    await_count(&r->box, "sources.0.cursor", (int64_t)r->written);
}

/** The same; then the daemon ends, and leaves the commit that is returned. */
static inline reef_commit live_finish(live_run *r) {
    live_await(r);
    sleep_ms(200); // what must not come would come now
    assert_int_equal(reefd_count(&r->box, "sources.0.cursor"), r->written);
    reefd_end(&r->box);
    return pool_commit(&r->box);
}

#endif
