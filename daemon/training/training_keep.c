// States that are kept by the clock; see training_thread.h.
//
// A state is due at every full period of UTC, and when the daemon starts. The pool then has the
// state of that moment, also where nothing is trained: whoever asks for the state of noon gets what
// was learned by noon, and not what came after a pause.
#include "reef_system.h"
#include "training_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PREFIX "auto-"
#define KEEP_MAX 100000
#define HOUR_MS 3600000u

// ---- which stay ---------------------------------------------------------------------------------
//
// Pure functions; see kept_states.h.

static uint32_t *find_rule(reef_keep_policy *policy, const char *word, size_t length) {
    const struct {
        const char *name;
        uint32_t *count;
    } rules[] = {
        {"hourly", &policy->hourly}, {"daily", &policy->daily}, {"weekly", &policy->weekly}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (strlen(rules[i].name) == length && memcmp(rules[i].name, word, length) == 0)
            return rules[i].count;
    return NULL;
}

reef_status reef_keep_parse(reef_keep_policy *out, const char *text, reef_error *err) {
    *out = (reef_keep_policy){0};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "=,");
        uint32_t *count = find_rule(out, at, length);
        char *end = NULL;
        errno = 0;
        bool number = at[length] == '=' && at[length + 1] >= '0' && at[length + 1] <= '9';
        unsigned long value = number ? strtoul(at + length + 1, &end, 10) : 0;
        if (count == NULL || !number || errno || value > KEEP_MAX || (*end && *end != ','))
            return reef_fail(err, REEF_ERR_INVALID,
                             "'%.60s' is not what to keep: rules such as " REEF_KEEP_DEFAULT
                             ", each a number up to %d",
                             text, KEEP_MAX);
        *count = (uint32_t)value;
        if (!*end) break;
        at = end;
    }
    if (out->hourly || out->daily || out->weekly) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "'%.60s' keeps nothing", text);
}

// Days since 1970-01-01 of a local date.
static int64_t local_day(uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000u);
    struct tm tm;
    if (localtime_r(&seconds, &tm) == NULL) return (int64_t)(unix_ms / (24 * HOUR_MS));
    int64_t years = tm.tm_year - 70; // leap days up to the end of the year before
    int64_t leap = (years + 1) / 4 - (years + 69) / 100 + (years + 369) / 400;
    return years * 365 + leap + tm.tm_yday;
}

static int64_t hour_of(uint64_t unix_ms) {
    return (int64_t)(unix_ms / HOUR_MS);
}

static int64_t week_of(uint64_t unix_ms) {
    return (local_day(unix_ms) + 3) / 7; // 1970-01-01 was a Thursday
}

// The newest state of each of the last `most` periods.
static void keep_last_of(
    int64_t (*period)(uint64_t), uint32_t most, const uint64_t *unix_ms, size_t count, bool *kept) {
    int64_t last = INT64_MIN;
    for (size_t i = count; most > 0 && i-- > 0;) {
        int64_t now = period(unix_ms[i]);
        if (now == last) continue;
        kept[i] = true;
        last = now;
        most--;
    }
}

void reef_keep_choose(const reef_keep_policy *policy,
                      const uint64_t *unix_ms,
                      size_t count,
                      bool *kept) {
    memset(kept, 0, count * sizeof(*kept));
    keep_last_of(hour_of, policy->hourly, unix_ms, count, kept);
    keep_last_of(local_day, policy->daily, unix_ms, count, kept);
    keep_last_of(week_of, policy->weekly, unix_ms, count, kept);
    if (count > 0) kept[count - 1] = true;
}

void reef_keep_name(char out[REEF_NAME_BYTES_MAX + 1], uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000u);
    struct tm tm = {0};
    (void)gmtime_r(&seconds, &tm);
    (void)strftime(out, REEF_NAME_BYTES_MAX + 1, PREFIX "%Y%m%dT%H%M%SZ", &tm);
}

bool reef_keep_has_name(const char *name) {
    const char *pattern = PREFIX "00000000T000000Z";
    if (strlen(name) != strlen(pattern)) return false;
    for (; *name; name++, pattern++)
        if (*pattern == '0' ? *name < '0' || *name > '9' : *name != *pattern) return false;
    return true;
}

bool reef_keep_is_due(uint64_t due_ms, uint64_t now_ms, uint64_t every_ms) {
    return now_ms >= due_ms || due_ms - now_ms > every_ms;
}

// ---- when one is due ----------------------------------------------------------------------------

bool reef_training_state_is_due(const reef_training *training) {
    uint64_t every_ms = training->options.commits.state_every_ms;
    return every_ms > 0 && reef_keep_is_due(training->state_due_ms, reef_unix_ms(), every_ms);
}

uint64_t reef_training_state_deadline(const reef_training *training) {
    uint64_t every_ms = training->options.commits.state_every_ms, now_ms = reef_unix_ms();
    if (every_ms == 0) return UINT64_MAX;
    bool due = reef_keep_is_due(training->state_due_ms, now_ms, every_ms);
    uint64_t left_ms = due ? 0 : training->state_due_ms - now_ms;
    return uv_hrtime() + left_ms * (NS_PER_SECOND / 1000u);
}

// ---- the states that there are ------------------------------------------------------------------

typedef struct kept_states {
    reef_snapshot *all; // owned; oldest first
    size_t count;
} kept_states;

static reef_status add(void *context, const reef_snapshot *snapshot, reef_error *err) {
    kept_states *kept = context;
    if (snapshot->damaged || !reef_keep_has_name(snapshot->name)) return REEF_OK;
    reef_snapshot *all = realloc(kept->all, (kept->count + 1) * sizeof(*all));
    if (all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the kept states");
    kept->all = all;
    kept->all[kept->count++] = *snapshot;
    return REEF_OK;
}

// Names are times, so their order is that of time.
static reef_status list_kept(const reef_training *training,
                             kept_states *out,
                             reef_commit *commit,
                             reef_error *err) {
    reef_txn *txn = NULL;
    *out = (kept_states){0};
    reef_status status = reef_txn_begin(&txn, training->options.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, commit, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, add, out, err);
    reef_txn_abort(txn);
    return status;
}

// Has nothing been learned since one of them, or nothing at all? The one that was made last need
// not be the newest by its name: the clock may have been set back.
static bool is_kept(const kept_states *kept, const reef_commit *commit) {
    bool found = commit->stream_bytes == 0;
    for (size_t i = 0; !found && i < kept->count; i++)
        found = memcmp(kept->all[i].root, commit->root, sizeof(commit->root)) == 0;
    return found;
}

// ---- keeping one more ---------------------------------------------------------------------------

static reef_status remove_old(reef_training *training, const kept_states *kept, reef_error *err) {
    uint64_t *made = calloc(kept->count + 1, sizeof(*made));
    bool *stays = calloc(kept->count + 1, sizeof(*stays));
    char(*names)[REEF_NAME_BYTES_MAX + 1] = calloc(kept->count + 1, sizeof(*names));
    reef_crew_result unused;
    reef_status status = REEF_OK;
    size_t count = 0;
    if (made == NULL || stays == NULL || names == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the kept states");
    for (size_t i = 0; status == REEF_OK && i < kept->count; i++) made[i] = kept->all[i].unix_ms;
    if (status == REEF_OK)
        reef_keep_choose(&training->options.commits.keep, made, kept->count, stays);
    for (size_t i = 0; status == REEF_OK && i < kept->count; i++)
        if (!stays[i]) memcpy(names[count++], kept->all[i].name, sizeof(*names));
    if (status == REEF_OK && count > 0)
        status = reef_crew_do(training->options.crew, training->options.trainer,
                              &(reef_crew_order){.kind = REEF_CREW_SNAPSHOT_REMOVE}, names,
                              count * sizeof(*names), &unused, err);
    free(made);
    free(stays);
    free(names);
    return status;
}

// The pool has the present state first: what was accepted since the last commit belongs to it.
static reef_status keep_state(reef_training *training, reef_error *err) {
    kept_states kept;
    reef_commit commit;
    reef_crew_order order = {.kind = REEF_CREW_SNAPSHOT};
    reef_crew_result unused;
    reef_status status = training->dirty ? reef_training_commit_once(training, err) : REEF_OK;
    if (status != REEF_OK) return status;
    status = list_kept(training, &kept, &commit, err);
    bool is_new = status == REEF_OK && !is_kept(&kept, &commit);
    if (is_new) {
        reef_keep_name(order.name, reef_unix_ms());
        status = reef_crew_do(training->options.crew, training->options.trainer, &order, NULL, 0,
                              &unused, err);
        free(kept.all);
        kept = (kept_states){0};
        if (status == REEF_OK) status = list_kept(training, &kept, &commit, err);
    }
    if (status == REEF_OK) status = remove_old(training, &kept, err);
    free(kept.all);
    return status;
}

void reef_training_keep_state(reef_training *training) {
    reef_error err = {.status = REEF_OK};
    uint64_t every = training->options.commits.state_every_ms, begin = uv_hrtime();
    training->state_due_ms = (reef_unix_ms() / every + 1) * every;
    reef_status status = keep_state(training, &err);
    if (status == REEF_OK)
        status = reef_training_note_own_commit(training, (double)(uv_hrtime() - begin) / 1e6, &err);
    if (status != REEF_OK)
        reef_report_warning(training->options.report, "state_not_kept",
                            "the state of now could not be kept: %s; the next one is tried when it "
                            "is due",
                            err.message);
    if (reef_training_worth_retrying(status)) training->dirty = true;
    reef_training_refresh(training);
}
