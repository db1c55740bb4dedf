// Which state a pool had at some moment: of commits and snapshots the time is stored, of sealed
// generations the timeline has it.
#include "reef_model.h"
#include "reef_snapshot.h"
#include "reef_states.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct state {
    char name[REEF_NAME_BYTES_MAX + 1];
    uint64_t unix_ms;
    bool found;
} state;

typedef struct search {
    reef_txn *txn;
    const reef_lineage *lineage;
    uint64_t unix_ms;
    const bool *kept; // states as of generations that can be asked
    uint32_t count;
    state newest; // not after unix_ms
    state oldest; // of all
} search;

static void consider(search *s, const char *name, uint64_t unix_ms) {
    state *newest = &s->newest, *oldest = &s->oldest, found = {.unix_ms = unix_ms, .found = true};
    snprintf(found.name, sizeof(found.name), "%s", name);
    if (unix_ms <= s->unix_ms && (!newest->found || unix_ms >= newest->unix_ms)) *newest = found;
    if (!oldest->found || unix_ms < oldest->unix_ms) *oldest = found;
}

// The generation whose number an event names is another one where a restore undid the event, or an
// import gave it another number.
static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    search *s = context;
    json_int_t sealed = -1, at = -1, step = -1, unix_ms = -1;
    const char *kind = NULL;
    reef_generation_record info;
    reef_status status = REEF_OK;
    json_t *event = json_loadb(view->data, view->bytes, JSON_ALLOW_NUL, NULL);
    if (event == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT, "event %" PRIu64 " of the timeline is not JSON",
                         key->sequence);
    bool read = reef_lineage_has(s->lineage, view->commit) &&
                json_unpack(event, "{s:s, s:I, s:I, s:I, s:I}", "event", &kind, "sealed", &sealed,
                            "stream_bytes", &at, "step", &step, "unix_ms", &unix_ms) == 0 &&
                strcmp(kind, "seal") == 0;
    if (read && sealed >= 0 && sealed < s->count && s->kept[sealed]) {
        status = reef_generation_read(s->txn, (uint32_t)sealed, &info, err);
        if (status == REEF_OK && info.sealed && info.sealed_at == (uint64_t)at &&
            info.sealed_step == (uint64_t)step) {
            char name[24];
            snprintf(name, sizeof(name), "%" JSON_INTEGER_FORMAT, sealed);
            consider(s, name, (uint64_t)unix_ms);
        }
    }
    json_decref(event);
    return status;
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    if (!snapshot->damaged) consider(context, snapshot->name, snapshot->unix_ms);
    return REEF_OK;
}

static reef_status fail_none(const search *s, reef_error *err) {
    char text[32] = "";
    time_t seconds = (time_t)(s->oldest.unix_ms / 1000u);
    struct tm tm;
    if (localtime_r(&seconds, &tm) != NULL)
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "no state is so old: the oldest is '%s', of %s; reefd --snapshot-every keeps "
                     "states by the clock",
                     s->oldest.name, text);
}

reef_status reef_state_at(reef_txn *txn,
                          uint64_t unix_ms,
                          char name[REEF_NAME_BYTES_MAX + 1],
                          reef_error *err) {
    reef_lineage lineage = {0};
    search s = {.txn = txn, .lineage = &lineage, .unix_ms = unix_ms};
    reef_commit commit;
    bool *kept = NULL;
    reef_status status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_lineage_read(&lineage, txn, err);
    if (status == REEF_OK) status = reef_states_kept(txn, &kept, &s.count, err);
    s.kept = kept;
    // The last one that is considered wins among those of the same time.
    if (status == REEF_OK)
        status = reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event, &s, err);
    if (status == REEF_OK) consider(&s, "now", commit.unix_ms);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, &s, err);
    free(kept);
    reef_lineage_release(&lineage);
    if (status != REEF_OK) return status;
    if (!s.newest.found) return fail_none(&s, err);
    snprintf(name, REEF_NAME_BYTES_MAX + 1, "%s", s.newest.name);
    return REEF_OK;
}
