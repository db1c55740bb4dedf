// Telling the service manager; see service.h. libsystemd knows the protocol.
#include "service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#define STATUS_NS 2000000000u // between two lines of status
#define TIMER_MS_MIN 50       // between two checks
#define TIMER_MS_MAX 1000
#define CHECKS_PER_WATCHDOG 4 // a late check does no harm

static void report_status(reef_notify *notify) {
    char line[sizeof(notify->status)], message[sizeof(line) + 16];
    uint64_t now = uv_hrtime();
    if (notify->reported_ns != 0 && now - notify->reported_ns < STATUS_NS) return;
    reef_status_view_line(notify->monitor, line, sizeof(line));
    if (strcmp(line, notify->status) == 0) return;
    notify->reported_ns = now;
    memcpy(notify->status, line, sizeof(line));
    snprintf(message, sizeof(message), "STATUS=%s", line);
    (void)sd_notify(0, message);
}

static void feed_watchdog(reef_notify *notify, const reef_training_view *view) {
    if (!notify->watched || (!view->idle && view->advances == notify->fed)) return;
    notify->fed = view->advances;
    (void)sd_notify(0, "WATCHDOG=1");
}

static void on_timer(uv_timer_t *timer) {
    reef_notify *notify = timer->data;
    reef_training_view view;
    reef_training_view_read(notify->training, &view, NULL);
    feed_watchdog(notify, &view);
    report_status(notify);
    if (view.state >= REEF_STATE_DRAINING) reef_notify_stopping(notify);
}

void reef_notify_start(reef_notify *notify) {
    uint64_t watchdog_us = 0, wait_ms = TIMER_MS_MAX;
    notify->watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
    // The watchdog is fed several times in its interval, so that a slow step does not look like a
    // hang.
    if (notify->watched) wait_ms = watchdog_us / 1000 / CHECKS_PER_WATCHDOG;
    if (wait_ms < TIMER_MS_MIN) wait_ms = TIMER_MS_MIN;
    if (wait_ms > TIMER_MS_MAX) wait_ms = TIMER_MS_MAX;
    // Nothing was fed yet; the first timer does it.
    notify->fed = UINT64_MAX;
    report_status(notify); // before READY=1: "systemctl status" has a line as soon as start returns
    if (sd_notify(0, "READY=1") <= 0) return;          // nobody wants to know
    (void)uv_timer_init(notify->loop, &notify->timer); // cannot fail
    notify->timer.data = notify;
    notify->started = true;
    (void)uv_timer_start(&notify->timer, on_timer, 0, wait_ms);
}

void reef_notify_reloading(const reef_notify *notify) {
    struct timespec now = {0};
    char message[80];
    if (!notify->started) return;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    (void)sd_notify(0, message);
}

void reef_notify_reloaded(const reef_notify *notify) {
    if (notify->started) (void)sd_notify(0, "READY=1");
}

void reef_notify_stopping(reef_notify *notify) {
    if (!notify->started || notify->stopping) return;
    notify->stopping = true;
    (void)sd_notify(0, "STOPPING=1");
}

void reef_notify_close(reef_notify *notify) {
    if (!notify->started) return;
    reef_notify_stopping(notify);
    notify->started = false;
    uv_close((uv_handle_t *)&notify->timer, NULL);
}
