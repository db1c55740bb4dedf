// The threads of alarms; see alarms.h.
#define _GNU_SOURCE // basename without side effects
#include "alarms_internal.h"

#include "reef_process.h"
#include "reef_system.h"
#include "reef_timeline_json.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define NS_PER_SECOND 1000000000u
#define PAUSE_S_MAX 300 // between two attempts; the first is a second
#define END_SECONDS 5   // for what waits when the daemon ends
#define PAST_SECONDS 86400

typedef struct channel {
    reef_alarms *alarms;
    reef_alarm_way way;
    const char *to;
    alarm_place place; // the thread's own
    uv_thread_t thread;
    bool started;
    reef_alarm_view view; // under the lock
} channel;

struct reef_alarms {
    reef_store *store;
    reef_report *report;
    channel channels[REEF_ALARM_WAY_COUNT];
    uv_mutex_t lock; // protects what follows, and all views
    uv_cond_t changed;
    uint64_t pokes;
    bool stopping;
    uint64_t end_ns; // when it is given up
};

const char *reef_alarm_way_name(reef_alarm_way way) {
    return way == REEF_ALARM_EXEC ? "exec" : "hook";
}

// ---- what is next -------------------------------------------------------------------------------

static reef_status begin_read(const reef_alarms *alarms, reef_txn **txn, reef_error *err) {
    return reef_txn_begin(txn, alarms->store, REEF_TXN_READ, err);
}

static const char *number_of(const json_t *incident, char out[32]) {
    snprintf(out, 32, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(incident, "incident")));
    return out;
}

static bool begins(const json_t *incident) {
    const char *state = json_string_value(json_object_get(incident, "state"));
    return state != NULL && strcmp(state, "open") == 0;
}

static bool is_past(const json_t *incident) {
    const double judged = json_number_value(json_object_get(incident, "unix_ms")) / 1000.0;
    return judged - json_number_value(json_object_get(incident, "last_time")) > PAST_SECONDS;
}

// Whether the receiver is to hear of it: not of the end of what it never heard of.
static bool is_for_it(channel *c, const json_t *incident) {
    char number[32];
    if (!begins(incident))
        return json_object_get(c->place.told, number_of(incident, number)) != NULL;
    if (!is_past(incident)) return true;
    uv_mutex_lock(&c->alarms->lock);
    c->view.past++;
    uv_mutex_unlock(&c->alarms->lock);
    return false;
}

// The next change of state behind the place, which moves up to it; *out is NULL where none waits.
static reef_status next_incident(channel *c, json_t **out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = NULL;
    reef_status status = begin_read(c->alarms, &txn, err);
    if (status == REEF_OK) status = reef_incident_change(txn, &c->place.next, out, err);
    while (status == REEF_OK && *out != NULL && !is_for_it(c, *out)) {
        json_decref(*out);
        c->place.next++;
        status = reef_incident_change(txn, &c->place.next, out, err);
    }
    reef_txn_abort(txn);
    return status;
}

// ---- delivering ---------------------------------------------------------------------------------

static bool gives_up(void *context) {
    reef_alarms *alarms = context;
    uv_mutex_lock(&alarms->lock);
    bool given_up = alarms->stopping && uv_hrtime() > alarms->end_ns;
    uv_mutex_unlock(&alarms->lock);
    return given_up;
}

// The worst of its events so far.
static const char *severity_of(const json_t *incident) {
    static const char *const NAMES[] = {"info", "warning", "error", "critical"};
    size_t index, worst = 0;
    json_t *event;
    const json_t *events = json_object_get(incident, "events");
    json_array_foreach(events, index, event) {
        const char *name = json_string_value(json_object_get(event, "severity"));
        for (size_t i = worst + 1; name != NULL && i < sizeof(NAMES) / sizeof(*NAMES); i++)
            if (strcmp(name, NAMES[i]) == 0) worst = i;
    }
    return NAMES[worst];
}

static const char *pool_name(const reef_alarms *alarms) {
    return basename(reef_store_path(alarms->store));
}

// For programs: without what all events of the timeline have.
static void make_public(const reef_alarms *alarms, json_t *incident) {
    (void)json_object_del(incident, "event");
    (void)json_object_del(incident, "generation");
    (void)json_object_del(incident, "step");
    (void)json_object_set_new(incident, "pool", reef_json_text(pool_name(alarms)));
}

static void count_outcome(channel *c, reef_status status, const reef_error *err) {
    uv_mutex_lock(&c->alarms->lock);
    reef_alarm_view *v = &c->view;
    v->delivered += status == REEF_OK;
    v->refused += status == REEF_ERR_INVALID;
    v->failures += status != REEF_OK && status != REEF_ERR_BUSY;
    snprintf(v->error, sizeof(v->error), "%s",
             status == REEF_OK || status == REEF_ERR_INVALID ? "" : err->message);
    uv_mutex_unlock(&c->alarms->lock);
}

// It has been taken, or never will be.
static void move_on(channel *c, const json_t *incident, const char *severity) {
    char number[32];
    reef_error err;
    (void)number_of(incident, number);
    if (begins(incident))
        (void)json_object_set_new(c->place.told, number, json_string(severity));
    else
        (void)json_object_del(c->place.told, number);
    c->place.next++;
    if (alarm_place_save(&c->place, &err) != REEF_OK)
        reef_report_warning(c->alarms->report, "alarm_place",
                            "%s; after a restart its alarms come again", err.message);
}

static reef_status deliver(channel *c, json_t *incident, reef_error *err) {
    char number[32];
    // Labels must stay the same, also where the worst came later.
    const char *told =
        json_string_value(json_object_get(c->place.told, number_of(incident, number)));
    const char *severity = told != NULL && !begins(incident) ? told : severity_of(incident);
    make_public(c->alarms, incident);
    const alarm_delivery delivery = {.to = c->to,
                                     .incident = incident,
                                     .severity = severity,
                                     .sequence = c->place.next,
                                     .give_up = gives_up,
                                     .context = c->alarms};
    reef_status status =
        c->way == REEF_ALARM_EXEC ? alarm_exec(&delivery, err) : alarm_hook(&delivery, err);
    count_outcome(c, status, err);
    if (status == REEF_ERR_INVALID)
        reef_report_error(c->alarms->report, REEF_ERR_INVALID, err->message);
    if (status == REEF_OK || status == REEF_ERR_INVALID) move_on(c, incident, severity);
    return status == REEF_ERR_INVALID ? REEF_OK : status;
}

// ---- the thread ---------------------------------------------------------------------------------

// What was known before an attempt: what comes after it is seen by the next one.
typedef struct known {
    uint64_t pokes;
    bool stopping;
} known;

static known know(reef_alarms *alarms) {
    uv_mutex_lock(&alarms->lock);
    const known now = {.pokes = alarms->pokes, .stopping = alarms->stopping};
    uv_mutex_unlock(&alarms->lock);
    return now;
}

static void wait_for_more(reef_alarms *alarms, const known *before) {
    uv_mutex_lock(&alarms->lock);
    while (!alarms->stopping && alarms->pokes == before->pokes)
        uv_cond_wait(&alarms->changed, &alarms->lock);
    uv_mutex_unlock(&alarms->lock);
}

static void wait_to_try_again(reef_alarms *alarms, uint64_t seconds) {
    const uint64_t deadline = uv_hrtime() + seconds * NS_PER_SECOND;
    uv_mutex_lock(&alarms->lock);
    for (uint64_t now = uv_hrtime(); !alarms->stopping && now < deadline; now = uv_hrtime())
        (void)uv_cond_timedwait(&alarms->changed, &alarms->lock, deadline - now);
    uv_mutex_unlock(&alarms->lock);
}

// Once it is to end, what waits is delivered up to the first failure.
static void channel_main(void *argument) {
    channel *c = argument;
    reef_alarms *alarms = c->alarms;
    reef_error err;
    for (uint64_t pause_s = 1;;) {
        json_t *incident = NULL;
        const known before = know(alarms);
        reef_status status = next_incident(c, &incident, &err);
        const bool nothing = status == REEF_OK && incident == NULL;
        if (incident != NULL) status = deliver(c, incident, &err);
        json_decref(incident);
        if (status == REEF_OK) pause_s = 1;
        if (before.stopping && (nothing || status != REEF_OK)) return;
        if (nothing) wait_for_more(alarms, &before);
        if (status == REEF_OK) continue;
        if (pause_s == 1 && status != REEF_ERR_BUSY) // told once, not at every attempt
            reef_report_warning(alarms->report, "alarm_failed", "%s; it is tried again",
                                err.message);
        wait_to_try_again(alarms, pause_s);
        pause_s = 2 * pause_s < PAUSE_S_MAX ? 2 * pause_s : PAUSE_S_MAX;
    }
}

// ---- life ---------------------------------------------------------------------------------------

static reef_status channel_start(channel *c, uint64_t end, reef_error *err) {
    reef_status status = alarm_place_open(&c->place, reef_store_path(c->alarms->store),
                                          reef_alarm_way_name(c->way), end, err);
    if (status != REEF_OK) return status;
    int code = uv_thread_create(&c->thread, channel_main, c);
    if (code)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no thread for alarms: %s", uv_strerror(code));
    c->started = c->view.used = true;
    return REEF_OK;
}

static reef_status read_end(const reef_alarms *alarms, uint64_t *end, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = begin_read(alarms, &txn, err);
    if (status == REEF_OK) status = reef_timeline_next(txn, end, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_alarms_start(reef_alarms **out,
                              const reef_alarms_options *options,
                              reef_error *err) {
    const char *const to[] = {options->exec, options->hook};
    uint64_t end = 1;
    *out = NULL;
    if (options->exec == NULL && options->hook == NULL) return REEF_OK;
    reef_alarms *alarms = calloc(1, sizeof(*alarms));
    if (alarms == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(alarms);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for alarms");
    }
    alarms->store = options->store;
    alarms->report = options->report;
    if (uv_mutex_init(&alarms->lock) || uv_cond_init(&alarms->changed)) abort();
    reef_status status = read_end(alarms, &end, err);
    for (reef_alarm_way way = 0; status == REEF_OK && way < REEF_ALARM_WAY_COUNT; way++) {
        channel *c = &alarms->channels[way];
        *c = (channel){.alarms = alarms, .way = way, .to = to[way]};
        if (c->to != NULL) status = channel_start(c, end, err);
    }
    if (status == REEF_OK)
        *out = alarms;
    else
        reef_alarms_stop(alarms);
    return status;
}

void reef_alarms_poke(reef_alarms *alarms) {
    if (alarms == NULL) return;
    uv_mutex_lock(&alarms->lock);
    alarms->pokes++;
    uv_cond_broadcast(&alarms->changed);
    uv_mutex_unlock(&alarms->lock);
}

void reef_alarms_stop(reef_alarms *alarms) {
    if (alarms == NULL) return;
    uv_mutex_lock(&alarms->lock);
    alarms->stopping = true;
    alarms->end_ns = uv_hrtime() + (uint64_t)END_SECONDS * NS_PER_SECOND;
    uv_cond_broadcast(&alarms->changed);
    uv_mutex_unlock(&alarms->lock);
    for (reef_alarm_way way = 0; way < REEF_ALARM_WAY_COUNT; way++) {
        channel *c = &alarms->channels[way];
        if (c->started) (void)uv_thread_join(&c->thread);
        alarm_place_release(&c->place);
    }
    uv_cond_destroy(&alarms->changed);
    uv_mutex_destroy(&alarms->lock);
    curl_global_cleanup();
    free(alarms);
}

void reef_alarms_view_read(reef_alarms *alarms, reef_alarm_way way, reef_alarm_view *out) {
    *out = (reef_alarm_view){.used = false};
    if (alarms == NULL) return;
    uv_mutex_lock(&alarms->lock);
    *out = alarms->channels[way].view;
    uv_mutex_unlock(&alarms->lock);
}
