// The scrubber's thread; see scrubber.h.
//
// The rate is kept by pauses: after a piece as long as its bytes should have taken. A damaged
// record is reported once, however often it is met again.
#include "scrubber.h"

#include "reef_pool_check.h"
#include "reef_process.h"
#include "reef_system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define NS_PER_SECOND 1000000000.0
#define PIECES_PER_SECOND 8         // as the rate allows
#define PIECE_BYTES_MIN (64u << 10) // smaller ones cost more to begin than to read
#define PIECE_BYTES_MAX (1u << 20)  // larger ones would keep pages from reuse for long
#define PAUSE_IDLE_S 10.0           // after a pass, with nothing to read, after a failure
#define PAUSE_MIN_S 0.01
#define PAUSE_MAX_S 3600.0

struct reef_scrubber {
    reef_store *store;
    reef_report *report;
    void (*poke)(void *context);
    void *context;
    uv_thread_t thread;
    bool started;
    reef_scrub scrub; // the thread's own
    uv_mutex_t lock;  // protects everything below
    uv_cond_t changed;
    bool stopping;
    reef_scrubber_view view;
    char known[REEF_SCRUB_DAMAGE_MAX][256];
    size_t known_count, taken;
};

// ---- reports ------------------------------------------------------------------------------------

static bool is_known(const reef_scrubber *s, const char *what) {
    for (size_t i = 0; i < s->known_count; i++)
        if (strcmp(s->known[i], what) == 0) return true;
    return false;
}

// True when it is to be reported.
static bool is_new_damage(reef_scrubber *s, const char *what) {
    bool fresh = false;
    uv_mutex_lock(&s->lock);
    if (s->known_count < REEF_SCRUB_DAMAGE_MAX && !is_known(s, what)) {
        snprintf(s->known[s->known_count++], sizeof(s->known[0]), "%s", what);
        snprintf(s->view.damage, sizeof(s->view.damage), "%s", what);
        s->view.damage_count = s->known_count;
        fresh = true;
    }
    uv_mutex_unlock(&s->lock);
    return fresh;
}

static void on_damage(void *context, const reef_key *key, const char *what) {
    reef_scrubber *s = context;
    char line[512];
    (void)key; // `what` names it
    if (!is_new_damage(s, what)) return;
    snprintf(line, sizeof(line), "pool %.120s is damaged: %s; training continues, see reef verify",
             reef_store_path(s->store), what);
    reef_report_error(s->report, REEF_ERR_CORRUPT, line);
    s->poke(s->context);
}

// ---- the thread ---------------------------------------------------------------------------------

static uint64_t piece_bytes(uint64_t rate) {
    uint64_t bytes = rate / PIECES_PER_SECOND;
    return bytes < PIECE_BYTES_MIN   ? PIECE_BYTES_MIN
           : bytes > PIECE_BYTES_MAX ? PIECE_BYTES_MAX
                                     : bytes;
}

static void publish_view(reef_scrubber *s, const reef_error *failed) {
    uv_mutex_lock(&s->lock);
    s->view.scrub = s->scrub;
    snprintf(s->view.failing, sizeof(s->view.failing), "%s", failed != NULL ? failed->message : "");
    uv_mutex_unlock(&s->lock);
}

// Seconds to wait after it.
static double one_piece(reef_scrubber *s) {
    reef_error err;
    uint64_t bytes = 0, rate = s->view.rate; // which nobody changes
    reef_status status = reef_store_scrub(s->store, &s->scrub, piece_bytes(rate), reef_unix_ms(),
                                          on_damage, s, &bytes, &err);
    publish_view(s, status == REEF_OK ? NULL : &err);
    bool pass_ended = s->scrub.next_bytes == 0;
    double seconds = (double)bytes / (double)rate;
    if (status != REEF_OK || pass_ended) seconds += PAUSE_IDLE_S;
    return seconds < PAUSE_MIN_S ? PAUSE_MIN_S : seconds > PAUSE_MAX_S ? PAUSE_MAX_S : seconds;
}

// False when it is time to end.
static bool pause_for(reef_scrubber *s, double seconds) {
    uint64_t deadline = uv_hrtime() + (uint64_t)(seconds * NS_PER_SECOND);
    uv_mutex_lock(&s->lock);
    for (uint64_t now = uv_hrtime(); !s->stopping && now < deadline; now = uv_hrtime())
        (void)uv_cond_timedwait(&s->changed, &s->lock, deadline - now);
    bool go_on = !s->stopping;
    uv_mutex_unlock(&s->lock);
    return go_on;
}

static void scrub_main(void *argument) {
    reef_scrubber *s = argument;
    reef_thread_give_way(REEF_NICENESS_CHECK);
    while (pause_for(s, one_piece(s))) {
    }
}

// ---- life ---------------------------------------------------------------------------------------

static reef_status read_state(reef_scrubber *s, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, s->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    // If it is damaged only a date is lost: start again, and it is written again.
    if (reef_scrub_read(txn, &s->scrub, err) != REEF_OK) s->scrub = (reef_scrub){0};
    reef_txn_abort(txn);
    s->view.scrub = s->scrub;
    return REEF_OK;
}

reef_status reef_scrubber_new(
    reef_scrubber **out, reef_store *store, uint64_t rate, reef_report *report, reef_error *err) {
    *out = NULL;
    reef_scrubber *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for checks beside training");
    s->store = store;
    s->report = report;
    s->view.rate = rate;
    if (uv_mutex_init(&s->lock) || uv_cond_init(&s->changed)) abort(); // out of kernel memory
    reef_status status = read_state(s, err);
    if (status == REEF_OK)
        *out = s;
    else
        reef_scrubber_free(s);
    return status;
}

reef_status reef_scrubber_start(reef_scrubber *s,
                                void (*poke)(void *context),
                                void *context,
                                reef_error *err) {
    s->poke = poke;
    s->context = context;
    if (s->view.rate == 0) return REEF_OK;
    int code = uv_thread_create(&s->thread, scrub_main, s);
    if (code)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no thread for checks beside training: %s",
                         uv_strerror(code));
    s->started = true;
    return REEF_OK;
}

void reef_scrubber_stop(reef_scrubber *s) {
    if (s == NULL || !s->started) return;
    uv_mutex_lock(&s->lock);
    s->stopping = true;
    uv_cond_signal(&s->changed);
    uv_mutex_unlock(&s->lock);
    (void)uv_thread_join(&s->thread);
    s->started = false;
}

void reef_scrubber_free(reef_scrubber *s) {
    if (s == NULL) return;
    uv_cond_destroy(&s->changed);
    uv_mutex_destroy(&s->lock);
    free(s);
}

// ---- for others ---------------------------------------------------------------------------------

void reef_scrubber_view_read(reef_scrubber *s, reef_scrubber_view *view) {
    uv_mutex_lock(&s->lock);
    *view = s->view;
    uv_mutex_unlock(&s->lock);
}

bool reef_scrubber_waits(reef_scrubber *s) {
    uv_mutex_lock(&s->lock);
    bool waits = s->taken < s->known_count;
    uv_mutex_unlock(&s->lock);
    return waits;
}

bool reef_scrubber_take(reef_scrubber *s, char what[256]) {
    uv_mutex_lock(&s->lock);
    bool waits = s->taken < s->known_count;
    if (waits) memcpy(what, s->known[s->taken++], sizeof(s->known[0]));
    uv_mutex_unlock(&s->lock);
    return waits;
}
