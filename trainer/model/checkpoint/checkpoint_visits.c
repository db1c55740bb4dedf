// Visits: what older kinds learned when they came back, as records of `visits` under the generation
// that was open meanwhile, the holder:
//
//   holder, 0, kinds             the list of them: reef_visit_entry each, in the order of kinds
//   holder, kind, PART, block    the kind's tables as a memory's, see checkpoint_memory.c, once the
//   holder, kind, mark           tail would take long to learn again
//   holder, kind, tail, block    what it learned since then, or since the holder was opened
//
// Where tables begin is decided by commits, so none of this is in a root. The chains of all kinds
// are in the trainer's state, which is.
#include "checkpoint_internal.h"
#include "kind_heads.h"
#include "reef_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static reef_key visit_key(uint32_t holder, uint32_t kind) {
    return (reef_key){.db = REEF_DB_VISITS, .generation = holder, .layer = kind};
}

static reef_key kinds_key(uint32_t holder) {
    return (reef_key){.db = REEF_DB_VISITS, .generation = holder, .name = REEF_VISIT_LIST};
}

static const uint8_t NONE[REEF_HASH_BYTES];

// Zeros: it learned nothing before it was sealed.
static reef_status sealed_chain(reef_txn *txn,
                                uint32_t records,
                                uint8_t chain[REEF_HASH_BYTES],
                                reef_error *err) {
    reef_status status = reef_checkpoint_read_chain(txn, records, chain, err);
    if (status != REEF_ERR_NOT_FOUND) return status;
    memset(chain, 0, REEF_HASH_BYTES);
    return REEF_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status clear(reef_txn *txn,
                         const reef_key *prefix,
                         const reef_generation_memory *m,
                         reef_error *err) {
    uint64_t gone;
    (void)m;
    return reef_visit_drop(txn, prefix->generation, prefix->layer, false, &gone, err);
}

static reef_status put_visit(reef_txn *txn, uint32_t holder, reef_visit *visit, reef_error *err) {
    reef_generation_memory *m = &visit->memory;
    const reef_key prefix = visit_key(holder, visit->kind);
    uint64_t gone;
    reef_checkpoint_begin_put(m);
    if (visit->merged) return reef_visit_drop(txn, holder, visit->kind, false, &gone, err);
    if (m->memory == NULL) return reef_checkpoint_put_tail(txn, &prefix, m, err);
    return reef_checkpoint_put_learning(txn, &prefix, m, clear, err);
}

static int by_kind(const void *a, const void *b) {
    const reef_visit_entry *x = a, *y = b;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

reef_status reef_checkpoint_put_visits(
    reef_txn *txn, uint32_t holder, reef_visit *const *visits, size_t count, reef_error *err) {
    const reef_key key = kinds_key(holder);
    reef_status status = REEF_OK;
    if (count == 0) return REEF_OK;
    reef_visit_entry *entries = calloc(count, sizeof(*entries));
    if (entries == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits", count);
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        reef_visit *visit = visits[i];
        entries[i] = (reef_visit_entry){.kind = visit->kind,
                                        .merged = visit->merged,
                                        .learned = visit->learned,
                                        .next = visit->next};
        memcpy(entries[i].chain, visit->chain, REEF_HASH_BYTES);
        status = sealed_chain(txn, visit->kind, entries[i].sealed_chain, err);
        // Of a kind that was recovered it may be damaged. Zeros say so: there would be none of it,
        // and not a damaged one.
        if (status == REEF_ERR_CORRUPT) {
            memset(entries[i].sealed_chain, 0, REEF_HASH_BYTES);
            status = REEF_OK;
        }
        if (status == REEF_OK) status = put_visit(txn, holder, visit, err);
    }
    qsort(entries, count, sizeof(*entries), by_kind);
    if (status == REEF_OK)
        status = reef_record_put(txn, &key, REEF_BYTES, entries, count * sizeof(*entries), err);
    free(entries);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status malformed(uint32_t holder, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "visits (generation %" PRIu32 ", name " REEF_VISIT_LIST ") is malformed",
                     holder);
}

// Is the kind there as it was? See reef_visit_entry. Where that cannot be told, it is doubtful.
static reef_status is_void(const reef_kind_heads *heads,
                           reef_txn *txn,
                           const reef_visit_entry *entry,
                           bool *out,
                           reef_error *err) {
    uint8_t chain[REEF_HASH_BYTES];
    reef_status status =
        sealed_chain(txn, reef_as_of_records(heads->state, entry->kind), chain, err);
    *out = status == REEF_OK && memcmp(chain, entry->sealed_chain, sizeof(chain)) != 0;
    if (status != REEF_ERR_CORRUPT) return status;
    // Written when it was damaged already: see reef_checkpoint_put_visits.
    heads->doubtful[entry->kind] = memcmp(entry->sealed_chain, NONE, sizeof(NONE)) != 0;
    return REEF_OK;
}

static reef_status read_list(const reef_kind_heads *heads,
                             reef_txn *txn,
                             uint32_t holder,
                             reef_visit_list *out,
                             reef_error *err) {
    uint32_t records = reef_as_of_records(heads->state, holder);
    const reef_key key = kinds_key(records);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    size_t count = view.bytes / REEF_VISIT_BYTES;
    if (view.bytes % REEF_VISIT_BYTES != 0 || count > holder) return malformed(records, err);
    out->entries = calloc(count + 1, sizeof(*out->entries));
    if (out->entries == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits", count);
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        reef_visit_entry entry;
        bool gone;
        memcpy(&entry, (const uint8_t *)view.data + i * sizeof(entry), sizeof(entry));
        // A holder is open after its kinds were sealed, so all of them have lower numbers.
        if (entry.kind >= holder || entry.merged > 1) return malformed(records, err);
        status = is_void(heads, txn, &entry, &gone, err);
        if (status == REEF_OK && !gone) out->entries[out->count++] = entry;
    }
    return status;
}

static reef_status find_list(const reef_kind_heads *heads,
                             reef_txn *txn,
                             uint32_t holder,
                             reef_error *err) {
    reef_visit_list *list = &heads->holders[holder];
    reef_status status = read_list(heads, txn, holder, list, err);
    if (status != REEF_ERR_CORRUPT) return status;
    heads->unlisted[holder] = true;
    list->count = 0;
    return REEF_OK;
}

reef_status reef_kind_heads_read(reef_kind_heads *out,
                                 reef_txn *txn,
                                 const reef_as_of *state,
                                 reef_error *err) {
    size_t count = (size_t)state->last + 1;
    *out = (reef_kind_heads){.state = state,
                             .holders = calloc(count, sizeof(*out->holders)),
                             .doubtful = calloc(count, sizeof(*out->doubtful)),
                             .unlisted = calloc(count, sizeof(*out->unlisted))};
    reef_status status = REEF_OK;
    if (out->holders == NULL || out->doubtful == NULL || out->unlisted == NULL)
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the kinds of %zu generations", count);
    for (uint32_t g = 1; status == REEF_OK && g < count; g++) status = find_list(out, txn, g, err);
    if (status != REEF_OK) reef_kind_heads_release(out);
    return status;
}

void reef_kind_heads_release(reef_kind_heads *heads) {
    for (size_t g = 0; heads->holders != NULL && g <= heads->state->last; g++)
        free(heads->holders[g].entries);
    free(heads->holders);
    free(heads->doubtful);
    free(heads->unlisted);
    *heads = (reef_kind_heads){0};
}

static const reef_visit_entry *find_in(const reef_visit_list *list, uint32_t kind) {
    for (size_t i = 0; i < list->count; i++)
        if (list->entries[i].kind == kind) return &list->entries[i];
    return NULL;
}

// As of generation `last` of the state.
static const reef_visit_entry *find_as_of(const reef_kind_heads *heads,
                                          uint32_t last,
                                          uint32_t kind) {
    for (uint32_t g = last; g > kind; g--) {
        const reef_visit_entry *found = find_in(&heads->holders[g], kind);
        if (found != NULL) return found;
    }
    return NULL;
}

const reef_visit_entry *reef_kind_heads_find(const reef_kind_heads *heads, uint32_t kind) {
    return find_as_of(heads, heads->state->last, kind);
}

bool reef_kind_heads_is_unlisted(const reef_kind_heads *heads, uint32_t kind) {
    for (uint32_t g = heads->state->last; g > kind; g--)
        if (heads->unlisted[g]) return true;
    return false;
}

reef_key reef_visit_key(const reef_kind_heads *heads, uint32_t holder, uint32_t kind) {
    return visit_key(reef_as_of_records(heads->state, holder), kind);
}

bool reef_kind_heads_span(
    const reef_kind_heads *heads, reef_txn *txn, uint32_t last, uint32_t kind, uint32_t *base) {
    bool is_whole = true;
    // The newest holder that has tables, or else the kind itself.
    for (*base = last; *base > kind; (*base)--) {
        const reef_visit_entry *visit = find_in(&heads->holders[*base], kind);
        if (visit == NULL) continue;
        if (visit->merged) return true;
        const reef_key prefix = reef_visit_key(heads, *base, kind);
        if (reef_checkpoint_has_tables(txn, &prefix)) break;
        if (!reef_checkpoint_has_tail(txn, &prefix)) is_whole = false;
    }
    return is_whole;
}

// Are the lists of holders first .. last whole?
static reef_status check_lists(
    const reef_kind_heads *heads, reef_txn *txn, uint32_t first, uint32_t last, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = last; status == REEF_OK && g >= first; g--) {
        reef_visit_list again = {0};
        // It fails, and says why.
        if (heads->unlisted[g]) status = read_list(heads, txn, g, &again, err);
        free(again.entries);
    }
    return status;
}

// The memory as of generation `last` of the state, as reef_kind_heads_load does it.
static reef_status load_as_of(const reef_kind_heads *heads,
                              reef_txn *txn,
                              uint32_t last,
                              uint32_t kind,
                              reef_generation_memory *out,
                              size_t *older_bytes,
                              reef_error *err) {
    const reef_visit_entry *newest = find_as_of(heads, last, kind);
    uint8_t chain[REEF_HASH_BYTES];
    uint32_t base;
    *older_bytes = 0;
    if (newest != NULL && newest->merged) return REEF_OK;
    // It fails, and says why.
    if (heads->doubtful[kind])
        return sealed_chain(txn, reef_as_of_records(heads->state, kind), chain, err);
    if (!reef_kind_heads_span(heads, txn, last, kind, &base))
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "no state as of generation %" PRIu32 ": what kind %" PRIu32
                         " had learned by then was given up when the pool was pruned; `reef "
                         "generations` says which states there are",
                         last, kind);
    reef_status status = check_lists(heads, txn, base > kind ? base : kind + 1, last, err);
    if (status != REEF_OK) return status;
    if (base == kind) {
        status = reef_checkpoint_read_memory(txn, reef_as_of_records(heads->state, kind), out, err);
        base++;
    } else {
        const reef_key prefix = reef_visit_key(heads, base, kind);
        status = reef_checkpoint_read_tables(txn, &prefix, out, err);
    }
    // Tables are in the newest holder that has some; it and every later one may add a tail.
    // `older_bytes` is set before each tail is read, so in the end it leaves out that of `last`
    // alone.
    *older_bytes = out->unlearned_bytes;
    for (uint32_t g = base; status == REEF_OK && g <= last; g++) {
        *older_bytes = out->unlearned_bytes;
        if (find_in(&heads->holders[g], kind) == NULL) continue;
        const reef_key prefix = reef_visit_key(heads, g, kind);
        status = reef_checkpoint_read_tail(txn, &prefix, out, err);
    }
    if (status != REEF_OK || newest == NULL) return status;
    out->chain_is_known = true;
    memcpy(out->known_chain, newest->chain, REEF_HASH_BYTES);
    return REEF_OK;
}

reef_status reef_kind_heads_load(const reef_kind_heads *heads,
                                 reef_txn *txn,
                                 uint32_t kind,
                                 reef_generation_memory *out,
                                 size_t *older_bytes,
                                 reef_error *err) {
    reef_error reason;
    reef_status status =
        load_as_of(heads, txn, heads->state->last, kind, out, older_bytes, &reason);
    if (status == REEF_OK) return REEF_OK;
    if (status != REEF_ERR_CORRUPT) return reef_fail(err, status, "%s", reason.message);
    return reef_kind_fail_damaged(kind, reason.message, err);
}

reef_status reef_kind_fail_damaged(uint32_t kind, const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "kind %" PRIu32 " is damaged; reef verify says what helps: "
                     "%.150s",
                     kind, what);
}

// ---- what is left of damaged ones ---------------------------------------------------------------

static reef_status load_and_learn(const reef_kind_heads *heads,
                                  reef_txn *txn,
                                  uint32_t last,
                                  uint32_t kind,
                                  uint64_t bytes_max,
                                  reef_generation_memory *out,
                                  reef_error *err) {
    size_t unused;
    reef_status status = load_as_of(heads, txn, last, kind, out, &unused, err);
    return status == REEF_OK ? reef_generation_memory_catch_up(out, bytes_max, NULL, err) : status;
}

// Without the tail, which an open generation has alone.
static reef_status load_own_tables(const reef_kind_heads *heads,
                                   reef_txn *txn,
                                   uint32_t kind,
                                   uint64_t bytes_max,
                                   reef_generation_memory *out,
                                   reef_error *err) {
    const reef_key prefix = {.db = REEF_DB_MEMORY,
                             .generation = reef_as_of_records(heads->state, kind)};
    reef_status status = reef_checkpoint_read_tables(txn, &prefix, out, err);
    return status == REEF_OK ? reef_generation_memory_catch_up(out, bytes_max, NULL, err) : status;
}

// States that were pruned away have lost it as well.
static bool is_lost(reef_status status) {
    return status == REEF_ERR_CORRUPT || status == REEF_ERR_NOT_FOUND;
}

static reef_status load_newest_whole(const reef_kind_heads *heads,
                                     reef_txn *txn,
                                     uint32_t kind,
                                     uint64_t bytes_max,
                                     reef_generation_memory *out,
                                     reef_error *err) {
    reef_status status = REEF_ERR_CORRUPT;
    for (uint32_t last = heads->state->last + 1; is_lost(status) && last-- > kind;) {
        if (last > kind && find_in(&heads->holders[last], kind) == NULL) continue;
        out->spares_text = true;
        status = load_and_learn(heads, txn, last, kind, bytes_max, out, err);
        if (status != REEF_OK) reef_generation_memory_release(out);
    }
    out->spares_text = true;
    if (is_lost(status) && !heads->doubtful[kind])
        status = load_own_tables(heads, txn, kind, bytes_max, out, err);
    if (status != REEF_OK) reef_generation_memory_release(out);
    return is_lost(status) ? REEF_OK : status;
}

reef_status reef_kind_heads_load_whole(const reef_kind_heads *heads,
                                       reef_txn *txn,
                                       uint32_t kind,
                                       uint64_t bytes_max,
                                       bool learns,
                                       reef_generation_memory *out,
                                       reef_lost_kind *lost,
                                       reef_error *err) {
    reef_error reason;
    size_t unused;
    uint32_t last = heads->state->last;
    *lost = (reef_lost_kind){.kind = kind};
    reef_status status = learns ? load_and_learn(heads, txn, last, kind, bytes_max, out, &reason)
                                : load_as_of(heads, txn, last, kind, out, &unused, &reason);
    if (status == REEF_OK) return REEF_OK;
    if (status != REEF_ERR_CORRUPT) return reef_fail(err, status, "%s", reason.message);
    reef_generation_memory_release(out);
    memcpy(lost->what, reason.message, sizeof(lost->what));
    status = load_newest_whole(heads, txn, kind, bytes_max, out, err);
    lost->whole_to = out->next;
    return status;
}

// Tables as they are stored; what was learned since is only counted.
static reef_status read_head_stats(reef_txn *txn,
                                   const reef_kind_heads *heads,
                                   uint32_t kind,
                                   reef_memory_stats *out,
                                   reef_error *err) {
    const reef_visit_entry *newest = reef_kind_heads_find(heads, kind);
    uint32_t base;
    *out = (reef_memory_stats){0};
    if (newest == NULL) return reef_memory_stats_read(txn, kind, out, err);
    if (newest->merged) return REEF_OK;
    (void)reef_kind_heads_span(heads, txn, heads->state->last, kind, &base);
    const reef_key visit = reef_visit_key(heads, base, kind);
    reef_status status = base == kind ? reef_memory_stats_read(txn, kind, out, err)
                                      : reef_checkpoint_read_stats(txn, &visit, out, err);
    out->learned_bytes = newest->learned;
    return status;
}

reef_status reef_kind_memory_stats_read(reef_txn *txn,
                                        uint32_t kind,
                                        reef_memory_stats *out,
                                        reef_error *err) {
    reef_kind_heads heads;
    uint32_t count = 0;
    *out = (reef_memory_stats){0};
    reef_status status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK || count == 0) return status;
    const reef_as_of state = {.last = count - 1, .own = count - 1};
    status = reef_kind_heads_read(&heads, txn, &state, err);
    if (status != REEF_OK) return status;
    status = read_head_stats(txn, &heads, kind, out, err);
    reef_kind_heads_release(&heads);
    return status;
}
