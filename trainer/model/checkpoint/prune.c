// Giving up old states: what no state that is kept is read from is removed (reef_states.h).
//
//   holder      1     2     3     4 (open)
//   kind 0      T     t     T     t            T: tables, t: a tail
//
// As of generation 4 kind 0 is read from holder 3 on, so its visits of holders 1 and 2 go when the
// states as of 1, 2 and 3 do. Reading a state that lacks one of its visits is NOT_FOUND. Blocks of
// text go that nobody names any more.
#include "checkpoint_internal.h"
#include "kind_heads.h"
#include "reef_snapshot.h"
#include "reef_states.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct pruning {
    reef_txn *txn;
    uint32_t count;        // generations
    reef_as_of now;        // the state that all holders belong to
    reef_kind_heads heads; // of it
    bool *needed;          // (visits of all holders, one after the other) by a state that is kept
    size_t *first;         // (count) of each holder, in that order
} pruning;

static void release(pruning *p) {
    reef_kind_heads_release(&p->heads);
    free(p->needed);
    free(p->first);
}

static reef_status begin(pruning *p, reef_txn *txn, reef_error *err) {
    size_t visits = 0;
    *p = (pruning){.txn = txn};
    reef_status status = reef_generation_count(txn, &p->count, err);
    if (status != REEF_OK) return status;
    if (p->count == 0) return reef_fail(err, REEF_ERR_CORRUPT, "the pool has no generation");
    p->now = (reef_as_of){.last = p->count - 1, .own = p->count - 1};
    status = reef_kind_heads_read(&p->heads, txn, &p->now, err);
    if (status != REEF_OK) return status;
    p->first = calloc(p->count, sizeof(*p->first));
    for (uint32_t g = 0; p->first != NULL && g < p->count; g++) {
        p->first[g] = visits;
        visits += p->heads.holders[g].count;
    }
    p->needed = calloc(visits + 1, sizeof(*p->needed));
    if (p->needed == NULL || p->first == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " states", p->count);
    if (status != REEF_OK) release(p);
    return status;
}

// ---- which states can be asked ------------------------------------------------------------------

// Without visits that are not needed, where `pruned`.
static bool has_visit(const pruning *p, uint32_t holder, size_t i, bool pruned, bool *tables) {
    uint32_t kind = p->heads.holders[holder].entries[i].kind;
    const reef_key prefix = reef_visit_key(&p->heads, holder, kind);
    if (p->heads.holders[holder].entries[i].merged) return *tables = true;
    if (pruned && !p->needed[p->first[holder] + i]) return *tables = false;
    *tables = reef_checkpoint_has_tables(p->txn, &prefix);
    return *tables || reef_checkpoint_has_tail(p->txn, &prefix);
}

// State by state: which kinds lack a visit since the tables that they are read from?
static reef_status list_kept(const pruning *p, bool pruned, bool *kept, reef_error *err) {
    bool *lacking = calloc(p->count, sizeof(*lacking)); // kinds
    size_t lacking_count = 0;
    if (lacking == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " kinds", p->count);
    for (uint32_t g = 0; g < p->count; g++) {
        const reef_visit_list *list = &p->heads.holders[g];
        for (size_t i = 0; i < list->count; i++) {
            uint32_t kind = list->entries[i].kind;
            bool tables, was = lacking[kind];
            bool there = has_visit(p, g, i, pruned, &tables);
            lacking[kind] = !tables && (was || !there);
            lacking_count = lacking_count + lacking[kind] - was;
        }
        kept[g] = lacking_count == 0;
    }
    free(lacking);
    return REEF_OK;
}

reef_status reef_states_kept(reef_txn *txn, bool **kept, uint32_t *count, reef_error *err) {
    pruning p;
    reef_status status = begin(&p, txn, err);
    *kept = NULL;
    if (status != REEF_OK) return status;
    *count = p.count;
    *kept = calloc(p.count, sizeof(**kept));
    status = *kept != NULL
                 ? list_kept(&p, false, *kept, err)
                 : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " states", p.count);
    if (status != REEF_OK) {
        free(*kept);
        *kept = NULL;
    }
    release(&p);
    return status;
}

// ---- what kept states are read from -------------------------------------------------------------

// Mark what the states as of generations `last` .. `end` - 1 are read from: what the first of them
// needs, and every later visit up to the last of them.
static void need_states(pruning *p, const reef_kind_heads *heads, uint32_t last, uint32_t end) {
    for (uint32_t kind = 0; kind + 1 < p->count; kind++) {
        uint32_t base = kind;
        if (kind < last) (void)reef_kind_heads_span(heads, p->txn, last, kind, &base);
        for (uint32_t holder = base; holder < end; holder++) {
            const reef_visit_list *list = &p->heads.holders[holder];
            for (size_t i = 0; i < list->count; i++)
                p->needed[p->first[holder] + i] |= list->entries[i].kind == kind;
        }
    }
}

static reef_status need_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    pruning *p = context;
    const reef_as_of state = reef_as_of_snapshot(snapshot);
    reef_kind_heads heads;
    if (snapshot->damaged)
        return reef_fail(err, REEF_ERR_INVALID,
                         "snapshot %s is damaged and may need any state: remove it first",
                         snapshot->name);
    reef_status status = reef_kind_heads_read(&heads, p->txn, &state, err);
    if (status != REEF_OK) return status;
    // The first `own` generations of its state are the pool's; the rest are copies of its own.
    need_states(p, &heads, state.last, state.own);
    reef_kind_heads_release(&heads);
    return REEF_OK;
}

// The oldest of the newest `keep_last` states.
static uint32_t first_kept(const pruning *p, uint32_t keep_last) {
    return keep_last < p->count ? p->count - keep_last : 0;
}

// ---- the rest goes ------------------------------------------------------------------------------

static reef_status count_given_up(const pruning *p, uint32_t *out, reef_error *err) {
    bool *before = calloc(p->count, sizeof(*before)), *after = calloc(p->count, sizeof(*after));
    reef_status status = REEF_OK;
    if (before == NULL || after == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " states", p->count);
    if (status == REEF_OK) status = list_kept(p, false, before, err);
    if (status == REEF_OK) status = list_kept(p, true, after, err);
    for (uint32_t g = 0; status == REEF_OK && g < p->count; g++) *out += before[g] && !after[g];
    free(before);
    free(after);
    return status;
}

static reef_status drop(pruning *p, bool dry_run, reef_pruning *out, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t holder = 0; holder < p->count; holder++) {
        const reef_visit_list *list = &p->heads.holders[holder];
        for (size_t i = 0; status == REEF_OK && i < list->count; i++) {
            uint32_t kind = list->entries[i].kind;
            uint64_t bytes = 0;
            if (p->needed[p->first[holder] + i]) continue;
            status = reef_visit_drop(p->txn, holder, kind, dry_run, &bytes, err);
            out->visits += bytes > 0;
            out->bytes += bytes;
        }
    }
    return status;
}

// A list of names that goes with its visit.
static bool is_given_up(const void *context, const reef_key *list) {
    const pruning *p = context;
    if (list->db != REEF_DB_VISITS || list->generation >= p->count) return false;
    const reef_visit_list *visits = &p->heads.holders[list->generation];
    for (size_t i = 0; i < visits->count; i++)
        if (visits->entries[i].kind == list->layer)
            return !p->needed[p->first[list->generation] + i];
    return false;
}

reef_status reef_states_prune(
    reef_txn *txn, uint32_t keep_last, bool dry_run, reef_pruning *out, reef_error *err) {
    pruning p;
    *out = (reef_pruning){0};
    if (keep_last == 0)
        return reef_fail(err, REEF_ERR_INVALID, "the present state cannot be given up: keep 1");
    reef_status status = begin(&p, txn, err);
    if (status != REEF_OK) return status;
    need_states(&p, &p.heads, first_kept(&p, keep_last), p.count);
    status = reef_snapshot_scan(txn, need_snapshot, &p, err);
    if (status == REEF_OK) status = count_given_up(&p, &out->states, err);
    if (status == REEF_OK) status = drop(&p, dry_run, out, err);
    uint64_t text = 0;
    if (status == REEF_OK)
        status = reef_blocks_drop_unnamed(txn, is_given_up, &p, dry_run, &text, err);
    out->bytes += text;
    release(&p);
    return status;
}
