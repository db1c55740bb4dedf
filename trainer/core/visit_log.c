// See visit_log.h. Records of `series`, name `visits`:
//
//   level 0, sequence n    visits RECORD_VISITS * n on, of which only the last RECORDS_MAX records
//                          are kept
//   level 1, sequence 0    the sums of all before them, by kind
//
// A visit has 40 bytes: kind u32, count u32, from u64, to u64, learned u64, bits f64.
#include "visit_log.h"

#include <stdlib.h>
#include <string.h>

#define SERIES_NAME "visits"
#define RECORD_VISITS 128
#define RECORDS_MAX (REEF_VISITS_MAX / RECORD_VISITS)
#define VISIT_BYTES 40
_Static_assert(sizeof(reef_kind_visit) == VISIT_BYTES, "as it is stored");

static reef_key key_of(uint32_t level, uint64_t sequence) {
    return (reef_key){
        .db = REEF_DB_SERIES, .name = SERIES_NAME, .level = level, .sequence = sequence};
}

// ---- lists --------------------------------------------------------------------------------------

static reef_status reserve(reef_visits *v, size_t count, reef_error *err) {
    if (count <= v->capacity) return REEF_OK;
    size_t capacity = 2 * count;
    reef_kind_visit *all = realloc(v->all, capacity * sizeof(*all));
    if (all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits", count);
    v->all = all;
    v->capacity = capacity;
    return REEF_OK;
}

static reef_status append(reef_visits *v,
                          const reef_kind_visit *more,
                          size_t count,
                          reef_error *err) {
    reef_status status = reserve(v, v->count + count, err);
    if (status != REEF_OK || count == 0) return status;
    memcpy(v->all + v->count, more, count * sizeof(*more));
    v->count += count;
    return REEF_OK;
}

static void join(reef_kind_visit *visit, const reef_kind_visit *next) {
    visit->to = next->to;
    visit->learned += next->learned;
    visit->bits += next->bits;
}

static bool goes_on(const reef_kind_visit *visit, const reef_kind_visit *next) {
    return visit->kind == next->kind && visit->to == next->from;
}

// Sums are in the order of kinds.
static reef_status add_to_sums(reef_visits *sums, const reef_kind_visit *visit, reef_error *err) {
    size_t at = 0;
    while (at < sums->count && sums->all[at].kind < visit->kind) at++;
    if (at < sums->count && sums->all[at].kind == visit->kind) {
        join(&sums->all[at], visit);
        sums->all[at].count += visit->count;
        return REEF_OK;
    }
    reef_status status = reserve(sums, sums->count + 1, err);
    if (status != REEF_OK) return status;
    memmove(sums->all + at + 1, sums->all + at, (sums->count - at) * sizeof(*sums->all));
    sums->all[at] = *visit;
    sums->count++;
    return REEF_OK;
}

// ---- learning -----------------------------------------------------------------------------------

reef_status reef_visit_log_add(
    reef_visit_log *log, uint32_t kind, uint64_t to, uint64_t bytes, double bits, reef_error *err) {
    const reef_kind_visit next = {
        .kind = kind, .count = 1, .from = to - bytes, .to = to, .learned = bytes, .bits = bits};
    reef_visits *v = &log->visits;
    if (v->count == 0 || !goes_on(&v->all[v->count - 1], &next)) return append(v, &next, 1, err);
    join(&v->all[v->count - 1], &next);
    return REEF_OK;
}

void reef_visit_log_release(reef_visit_log *log) {
    free(log->visits.all);
    *log = (reef_visit_log){0};
}

// ---- records ------------------------------------------------------------------------------------

static reef_status read_record(
    reef_txn *txn, uint32_t level, uint64_t sequence, reef_visits *out, reef_error *err) {
    const reef_key key = key_of(level, sequence);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status == REEF_OK && view.bytes % VISIT_BYTES != 0)
        status = reef_fail(err, REEF_ERR_CORRUPT, "series (name " SERIES_NAME ") is malformed");
    if (status != REEF_OK) return status;
    size_t count = view.bytes / VISIT_BYTES;
    status = reserve(out, out->count + count, err);
    if (status != REEF_OK) return status;
    memcpy(out->all + out->count, view.data, view.bytes);
    out->count += count;
    return REEF_OK;
}

static reef_status put_record(reef_txn *txn,
                              uint32_t level,
                              uint64_t sequence,
                              const reef_kind_visit *all,
                              size_t count,
                              reef_error *err) {
    const reef_key key = key_of(level, sequence);
    return reef_record_put(txn, &key, REEF_BYTES, all, count * sizeof(*all), err);
}

typedef struct range {
    bool found;
    uint64_t first, last;
} range;

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)view;
    (void)err;
    range *r = context;
    if (strcmp(key->name, SERIES_NAME) != 0 || key->level != 0) return REEF_OK;
    if (!r->found || key->sequence < r->first) r->first = key->sequence;
    if (!r->found || key->sequence > r->last) r->last = key->sequence;
    r->found = true;
    return REEF_OK;
}

static reef_status find_range(reef_txn *txn, range *out, reef_error *err) {
    *out = (range){0};
    return reef_record_scan(txn, REEF_DB_SERIES, UINT32_MAX, on_record, out, err);
}

// ---- commits ------------------------------------------------------------------------------------

// What the pool's last record has, before what came since the trainer was opened.
static reef_status learn_last(reef_visit_log *log, reef_txn *txn, reef_error *err) {
    range r;
    reef_visits v = {0};
    const reef_visits *since = &log->visits;
    reef_status status = find_range(txn, &r, err);
    if (status == REEF_OK && r.found) status = read_record(txn, 0, r.last, &v, err);
    size_t joined = v.count > 0 && since->count > 0 && goes_on(&v.all[v.count - 1], since->all);
    if (joined) join(&v.all[v.count - 1], since->all);
    if (status == REEF_OK) status = append(&v, since->all + joined, since->count - joined, err);
    if (status != REEF_OK) {
        free(v.all);
        return status;
    }
    free(log->visits.all);
    *log = (reef_visit_log){v, true, r.found ? r.last : 0};
    return REEF_OK;
}

static reef_status fold(reef_txn *txn, uint64_t sequence, reef_error *err) {
    const reef_key key = key_of(0, sequence);
    reef_visits old = {0}, sums = {0};
    reef_status status = read_record(txn, 0, sequence, &old, err);
    if (status == REEF_OK && old.count > 0) status = read_record(txn, 1, 0, &sums, err);
    for (size_t i = 0; status == REEF_OK && i < old.count; i++)
        status = add_to_sums(&sums, &old.all[i], err);
    if (status == REEF_OK && old.count > 0) status = reef_record_delete(txn, &key, err);
    if (status == REEF_OK && old.count > 0)
        status = put_record(txn, 1, 0, sums.all, sums.count, err);
    free(old.all);
    free(sums.all);
    return status;
}

reef_status reef_visit_log_put(reef_visit_log *log, reef_txn *txn, reef_error *err) {
    const reef_visits *v = &log->visits;
    reef_status status = REEF_OK;
    if (v->count == 0) return REEF_OK;
    if (!log->is_known) status = learn_last(log, txn, err);
    for (size_t at = 0; status == REEF_OK && at < v->count; at += RECORD_VISITS) {
        size_t count = v->count - at < RECORD_VISITS ? v->count - at : RECORD_VISITS;
        uint64_t sequence = log->sequence + at / RECORD_VISITS;
        status = put_record(txn, 0, sequence, v->all + at, count, err);
        if (status == REEF_OK && sequence >= RECORDS_MAX)
            status = fold(txn, sequence - RECORDS_MAX, err);
    }
    return status;
}

void reef_visit_log_settle(reef_visit_log *log) {
    reef_visits *v = &log->visits;
    if (v->count <= RECORD_VISITS) return;
    // The last record stays: what comes next may belong to it.
    size_t full = (v->count - 1) / RECORD_VISITS;
    v->count -= full * RECORD_VISITS;
    log->sequence += full;
    memmove(v->all, v->all + full * RECORD_VISITS, v->count * sizeof(*v->all));
}

// ---- reading ------------------------------------------------------------------------------------

reef_status reef_visit_log_read(reef_txn *txn,
                                reef_kind_visit **out,
                                size_t *count,
                                reef_error *err) {
    range r;
    reef_visits v = {0};
    *out = NULL;
    *count = 0;
    reef_status status = find_range(txn, &r, err);
    if (status == REEF_OK) status = read_record(txn, 1, 0, &v, err);
    for (uint64_t s = r.first; status == REEF_OK && r.found && s <= r.last; s++)
        status = read_record(txn, 0, s, &v, err);
    if (status != REEF_OK) {
        free(v.all);
        return status;
    }
    *out = v.all;
    *count = v.count;
    return REEF_OK;
}

// ---- going back ---------------------------------------------------------------------------------

bool reef_visit_cut(reef_kind_visit *visit, uint64_t stream_bytes) {
    if (visit->from >= stream_bytes) return false;
    if (visit->to <= stream_bytes) return true;
    double share = (double)(stream_bytes - visit->from) / (double)(visit->to - visit->from);
    visit->to = stream_bytes;
    visit->learned = (uint64_t)(share * (double)visit->learned);
    visit->bits *= share;
    return true;
}

static reef_status cut_record(
    reef_txn *txn, uint32_t level, uint64_t sequence, uint64_t stream_bytes, reef_error *err) {
    const reef_key key = key_of(level, sequence);
    reef_visits v = {0};
    size_t kept = 0;
    reef_status status = read_record(txn, level, sequence, &v, err);
    for (size_t i = 0; i < v.count; i++)
        if (reef_visit_cut(&v.all[i], stream_bytes)) v.all[kept++] = v.all[i];
    if (status == REEF_OK && v.count > 0)
        status = kept > 0 ? put_record(txn, level, sequence, v.all, kept, err)
                          : reef_record_delete(txn, &key, err);
    free(v.all);
    return status;
}

reef_status reef_visit_log_forget_after(reef_txn *txn, uint64_t stream_bytes, reef_error *err) {
    range r;
    reef_status status = find_range(txn, &r, err);
    if (status == REEF_OK) status = cut_record(txn, 1, 0, stream_bytes, err);
    for (uint64_t s = r.first; status == REEF_OK && r.found && s <= r.last; s++)
        status = cut_record(txn, 0, s, stream_bytes, err);
    return status;
}
