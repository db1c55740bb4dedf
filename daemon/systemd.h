// Messages to the service manager, by the protocol of sd_notify(3): ready, reloading, stopping,
// status, and the watchdog. Without NOTIFY_SOCKET in the environment nothing is sent.
//
// sd_notify waits for a manager that does not read its socket, and the loop with it; training does
// not.
//
// The watchdog is fed only when training has done something since the last time, or has nothing to
// do: it waits for bytes, or is paused. A step or a seal that hangs, and a commit that fails again
// and again, feed nothing.
#ifndef REEF_SYSTEMD_H
#define REEF_SYSTEMD_H

#include "status.h"
#include "training_thread.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

typedef struct reef_notify {
    // set by the caller before reef_notify_start
    uv_loop_t *loop;
    reef_training *training;
    reef_status_view *monitor;
    // its own
    uv_timer_t timer;
    bool started, stopping;
    bool watched;         // there is a watchdog
    uint64_t fed;         // `advances` when it was fed last
    char status[512];     // reported last
    uint64_t reported_ns; // and when
} reef_notify;

/** The pool is open and training runs. The first food comes with it. */
void reef_notify_start(reef_notify *notify);
/** Around a reload. */
void reef_notify_reloading(const reef_notify *notify);
void reef_notify_reloaded(const reef_notify *notify);
/** The end has begun; once. The watchdog continues. */
void reef_notify_stopping(reef_notify *notify);
/** Before the loop ends. */
void reef_notify_close(reef_notify *notify);

#endif
