// reefd as a service; see service.h.
#include "service.h"

#include "reef_client.h"
#include "reef_process.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#define STATUS_NS 2000000000u // between two lines of status
#define TIMER_MS_MIN 50       // between two checks
#define TIMER_MS_MAX 1000
#define CHECKS_PER_WATCHDOG 4 // a late check does no harm

// ---- beginning ----------------------------------------------------------------------------------

void reef_service_prepare(void) {
    (void)umask(0077);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); // which some send to whoever writes a log
}

static void print_settings(const json_t *settings) {
    size_t i;
    json_t *one;
    json_array_foreach(settings, i, one) {
        char *value =
            json_dumps(json_object_get(one, "value"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        printf("%-15s %-28s %s\n", json_string_value(json_object_get(one, "name")), value,
               json_string_value(json_object_get(one, "origin")));
        free(value);
    }
}

// What a start would refuse, checked without opening the pool.
static reef_status check_addresses(const reef_options *options, reef_error *err) {
    struct sockaddr_un address;
    reef_status status = reef_address_init(&address, options->pool, options->socket, err);
    if (status != REEF_OK || options->http == NULL) return status;
    return reef_http_check(options->http, options->http_token, err);
}

reef_status reef_service_check(const reef_options *options, reef_error *err) {
    reef_status status = check_addresses(options, err);
    if (status != REEF_OK) return status;
    // The same JSON as the status shows, so that a check can be compared with a running daemon.
    json_t *settings = reef_settings_json(options);
    if (options->json_log) {
        json_t *document = json_pack(
            "{s:o*, s:O}", "config",
            options->config != NULL ? reef_json_text(options->config) : NULL, "settings", settings);
        (void)json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
        (void)putchar('\n');
        json_decref(document);
    } else {
        print_settings(settings);
    }
    json_decref(settings);
    // Printing may fail when the disk is full.
    return fflush(stdout) == 0 ? REEF_OK
                               : reef_fail(err, REEF_ERR_IO, "cannot write standard output");
}

// ---- the service manager ------------------------------------------------------------------------
//
// Messages to the service manager, by the protocol of sd_notify(3): ready, reloading, stopping,
// status, and the watchdog. Without NOTIFY_SOCKET in the environment nothing is sent.
//
// sd_notify waits for a manager that does not read its socket, and the loop with it; training does
// not.
//
// The watchdog is fed only when training has done something since the last time, or has nothing to
// do: it waits for bytes, or is paused. A step or a seal that hangs, and a commit that fails again
// and again, feed nothing. libsystemd knows
// the protocol.

static void report_status(reef_service *service) {
    reef_notify *notify = &service->notify;
    char line[sizeof(notify->status)], message[sizeof(line) + 16];
    uint64_t now = uv_hrtime();
    if (notify->reported_ns != 0 && now - notify->reported_ns < STATUS_NS) return;
    reef_status_view_line(service->monitor, line, sizeof(line));
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

void reef_service_stopping(reef_service *service) {
    if (!service->notify.started || service->notify.stopping) return;
    service->notify.stopping = true;
    (void)sd_notify(0, "STOPPING=1");
}

static void on_timer(uv_timer_t *timer) {
    reef_service *service = timer->data;
    reef_training_view view;
    reef_training_view_read(service->training, &view, NULL);
    feed_watchdog(&service->notify, &view);
    report_status(service);
    if (view.state >= REEF_STATE_DRAINING) reef_service_stopping(service);
}

// The pool is open and training runs. The first food comes with it.
static void notify_started(reef_service *service) {
    reef_notify *notify = &service->notify;
    uint64_t watchdog_us = 0, wait_ms = TIMER_MS_MAX;
    notify->watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
    // The watchdog is fed several times in its interval, so that a slow step does not look like a
    // hang.
    if (notify->watched) wait_ms = watchdog_us / 1000 / CHECKS_PER_WATCHDOG;
    if (wait_ms < TIMER_MS_MIN) wait_ms = TIMER_MS_MIN;
    if (wait_ms > TIMER_MS_MAX) wait_ms = TIMER_MS_MAX;
    // Nothing was fed yet; the first timer does it.
    notify->fed = UINT64_MAX;
    report_status(
        service); // before READY=1: "systemctl status" has a line as soon as start returns
    if (sd_notify(0, "READY=1") <= 0) return;           // nobody wants to know
    (void)uv_timer_init(service->loop, &notify->timer); // cannot fail
    notify->timer.data = service;
    notify->started = true;
    (void)uv_timer_start(&notify->timer, on_timer, 0, wait_ms);
}

static void notify_reloading(const reef_notify *notify) {
    struct timespec now = {0};
    char message[80];
    if (!notify->started) return;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    (void)sd_notify(0, message);
}

static void notify_reloaded(const reef_notify *notify) {
    if (notify->started) (void)sd_notify(0, "READY=1");
}

// ---- answering ----------------------------------------------------------------------------------

// Takes the request, and the reference of the result.
static void reply_request(reef_request *request, json_t *result, const reef_error *err) {
    if (request == NULL) {
        json_decref(result);
        return;
    }
    request->result = result;
    request->error = *err;
    if (request->owner != NULL) request->on_reply(request);
    reef_request_release(request);
    free(request);
}

// ---- reading the configuration again ------------------------------------------------------------

static void compare_settings(reef_reload *reload, const reef_options *now) {
    reload->changed = json_array();
    reload->restart = json_array();
    for (size_t i = 0; i < reef_setting_count(); i++) {
        json_t *was = reef_setting_value(now, i), *is = reef_setting_value(&reload->options, i);
        if (!json_equal(was, is))
            json_array_append_new(reef_setting_is_live(i) ? reload->changed : reload->restart,
                                  json_string(reef_setting_name(i)));
        json_decref(was);
        json_decref(is);
    }
}

// Everything that can be wrong, also with what needs a restart, which would fail. The token that
// counts now is of the file in force: another one needs a restart.
static reef_status read_again(reef_service *service, reef_reload *reload, reef_error *err) {
    reef_status status = reef_options_parse(&reload->options, service->argc, service->argv, err);
    if (status == REEF_OK) status = check_addresses(&reload->options, err);
    if (status == REEF_OK)
        status = reef_http_token_read(&reload->token, service->options->http_token, err);
    if (status == REEF_OK) compare_settings(reload, service->options);
    return status;
}

static char *names_text(const json_t *names) {
    char *text = json_dumps(names, JSON_COMPACT);
    char *to = text; // ["a","b"] is a, b
    for (const char *from = text; from != NULL && *from; from++) {
        if (strchr("[]\"", *from) != NULL) continue;
        *to++ = *from;
    }
    if (to != NULL) *to = '\0';
    return text;
}

static void report_reload(reef_service *service, const reef_reload *reload) {
    reef_report_event(service->report, json_pack("{s:s, s:O, s:O}", "event", "reloaded", "changed",
                                                 reload->changed, "restart", reload->restart));
    if (json_array_size(reload->restart) == 0) return;
    char *names = names_text(reload->restart);
    reef_report_warning(service->report, "restart_needed",
                        "the configuration differs in what needs a restart: %s",
                        names != NULL ? names : "");
    free(names);
}

static void apply_reload(reef_service *service, reef_reload *reload) {
    reef_options *now = service->options;
    reef_options_take_live(now, &reload->options);
    reef_report_set(service->report, now->json_log, now->quiet);
    reef_program_log(now->json_log, service->report->journal);
    if (service->http != NULL && reef_http_set_token(service->http, &reload->token))
        json_array_append_new(reload->changed, json_string("token"));
}

static void report_failure(reef_service *service, const reef_error *err) {
    char message[sizeof(err->message) + 64];
    snprintf(message, sizeof(message), "%s; the configuration stays as it was", err->message);
    reef_report_error(service->report, err->status, message);
}

// Takes the request that asked, as well.
static void end_reload(reef_service *service, reef_request *request, const reef_error *err) {
    reef_reload *reload = &service->reload;
    json_t *result = NULL;
    // The reply lists which settings took effect and which need a restart.
    if (err->status == REEF_OK)
        result =
            json_pack("{s:o, s:O, s:O}", "config",
                      service->options->config != NULL ? reef_json_text(service->options->config)
                                                       : json_null(),
                      "changed", reload->changed, "restart", reload->restart);
    else
        report_failure(service, err);
    reply_request(request, result, err);
    json_decref(reload->changed);
    json_decref(reload->restart);
    reef_options_release(&reload->options);
    *reload = (reef_reload){.running = false};
    // systemd wants to know when a reload is over, also one that failed.
    notify_reloaded(&service->notify);
}

static void on_policy_set(reef_request *change) {
    reef_service *service = change->owner;
    reef_request *request = service->reload.request;
    if (request != NULL) request->waited_ms = change->waited_ms;
    if (change->error.status == REEF_OK) {
        apply_reload(service, &service->reload);
        report_reload(service, &service->reload);
    }
    end_reload(service, request, &change->error);
}

reef_commit_policy reef_service_commit_policy(const reef_options *options) {
    reef_error unused;
    reef_commit_policy policy = {.steps = options->commit_steps,
                                 .seconds = options->commit_seconds,
                                 .retries = (uint32_t)options->commit_retries,
                                 .pool_bytes_max = options->pool_max,
                                 .state_every_ms = options->snapshot_every_ms};
    // It was checked when the options were read.
    (void)!reef_keep_parse(&policy.keep, options->keep, &unused);
    return policy;
}

static reef_status request_trainer(reef_service *service, reef_error *err) {
    reef_request *change = calloc(1, sizeof(*change));
    if (change == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the request");
    // The policy belongs to the training thread, so it is sent as a request and takes effect
    // between two steps.
    change->kind = REEF_REQUEST_COMMIT_POLICY;
    change->commits = reef_service_commit_policy(&service->reload.options);
    change->owner = service;
    change->on_reply = on_policy_set;
    reef_status status = reef_training_request(service->training, change, err);
    if (status != REEF_OK) free(change);
    return status;
}

// On failure the request is still the caller's.
static reef_status reload(reef_service *service, reef_request *request, reef_error *err) {
    if (service->reload.running)
        return reef_fail(err, REEF_ERR_BUSY, "the configuration is being read already");
    service->reload = (reef_reload){.running = true, .request = request};
    notify_reloading(&service->notify);
    reef_status status = read_again(service, &service->reload, err);
    if (status == REEF_OK) status = request_trainer(service, err);
    if (status != REEF_OK) end_reload(service, NULL, err);
    return status;
}

reef_status reef_service_request(void *service, reef_request *request, reef_error *err) {
    return reload(service, request, err);
}

// ---- life ---------------------------------------------------------------------------------------

static void on_hangup(uv_signal_t *handle, int number) {
    (void)number;
    reef_service *service = handle->data;
    reef_error err; // reload reports it, except for this one:
    if (service->reload.running)
        reef_report_warning(service->report, "reload_busy",
                            "the configuration is being read already; send the signal again");
    else
        (void)!reload(service, NULL, &err);
}

void reef_service_start(reef_service *service) {
    (void)uv_signal_init(service->loop, &service->hangup);
    service->hangup.data = service;
    if (uv_signal_start(&service->hangup, on_hangup, SIGHUP) != 0)
        reef_report_warning(service->report, "signal_failed", "signal %d is not heard", SIGHUP);
    uv_unref((uv_handle_t *)&service->hangup); // the loop does not stay alive for it
    notify_started(service);
}

void reef_service_close(reef_service *service) {
    reef_service_stopping(service);
    if (service->notify.started) uv_close((uv_handle_t *)&service->notify.timer, NULL);
    service->notify.started = false;
}
