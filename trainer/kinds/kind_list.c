// The kinds of a state of a pool, read from its records: see reef_kinds.h.
#include "kind_heads.h"
#include "kind_names.h"
#include "visit_log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/** The state whose kinds are read. */
typedef struct listed {
    reef_txn *txn;
    reef_as_of as_of;
    bool is_now;
    uint64_t stream_bytes; // where it stands; what is now, the end of all
} listed;

// ---- one kind -----------------------------------------------------------------------------------

// A snapshot's copy of the generation that was open is open in the snapshot's state.
static bool is_open(const listed *of, uint32_t g, const reef_generation_record *info) {
    return of->as_of.of_snapshot ? g >= of->as_of.snapshot.sealed_count : !info->sealed;
}

static reef_status add_generations(reef_kind_list *list, const listed *of, reef_error *err) {
    uint32_t count = of->as_of.last + 1;
    reef_status status = REEF_OK;
    list->kinds = calloc((size_t)count + 1, sizeof(*list->kinds));
    if (list->kinds == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " kinds", count);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        uint32_t records = reef_as_of_records(&of->as_of, g);
        reef_generation_record info;
        uint64_t learned = 0;
        status = reef_generation_read(of->txn, records, &info, err);
        if (status != REEF_OK || !reef_generation_begins_kind(&info)) continue;
        if (list->has_memories) status = reef_memory_learned_read(of->txn, records, &learned, err);
        bool is_damaged = status == REEF_ERR_CORRUPT;
        if (is_damaged) status = REEF_OK;
        bool open = is_open(of, g, &info);
        list->kinds[list->count++] =
            (reef_kind_facts){.kind = g,
                              .is_open = open,
                              .is_damaged = is_damaged,
                              .began_at = info.opened_at,
                              .learned_bytes = learned,
                              .merged_into = REEF_KIND_NONE,
                              .learned_at = open ? info.opened_at : info.sealed_at,
                              .first_loss = (double)NAN,
                              .last_loss = (double)NAN};
    }
    return status;
}

// NULL: there is none.
static reef_kind_facts *kind_of(const reef_kind_list *list, uint32_t kind) {
    for (size_t i = 0; i < list->count; i++)
        if (list->kinds[i].kind == kind) return &list->kinds[i];
    return NULL;
}

// ---- the trainer's state ------------------------------------------------------------------------

static void set_learned(reef_kind_facts *kind, const json_t *item, size_t at) {
    kind->learned_bytes = (uint64_t)json_integer_value(json_array_get(item, at));
    kind->learned_at = (uint64_t)json_integer_value(json_array_get(item, at + 1));
}

static void take_learned(reef_kind_list *list, const json_t *state) {
    const json_t *memory = json_object_get(state, "memory");
    const json_t *learned = json_object_get(state, "kinds");
    const json_t *current = json_object_get(state, "current_kind");
    reef_kind_facts *open = &list->kinds[list->count - 1];
    // Records have what was sealed; the state has what the open generation and kinds that came back
    // learned since.
    if (memory != NULL) set_learned(open, memory, 0);
    for (size_t i = 0; i < json_array_size(learned); i++) {
        const json_t *item = json_array_get(learned, i);
        reef_kind_facts *kind =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 0)));
        if (kind != NULL) set_learned(kind, item, 1);
    }
    reef_kind_facts *at =
        current == NULL ? open : kind_of(list, (uint32_t)json_integer_value(current));
    if (at != NULL) at->is_current = true;
}

static void take_merged(reef_kind_list *list, const json_t *state) {
    const json_t *merged = json_object_get(state, "merged_kinds");
    for (size_t i = 0; i < json_array_size(merged); i++) {
        const json_t *item = json_array_get(merged, i);
        reef_kind_facts *kind =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 0)));
        const reef_kind_facts *into =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 1)));
        if (kind != NULL && into != NULL) kind->merged_into = into->kind;
    }
}

static void take_names(reef_kind_list *list, const reef_kind_names *names) {
    for (size_t i = 0; i < list->count; i++) {
        const char *name = reef_kind_names_of(names, list->kinds[i].kind);
        memcpy(list->kinds[i].name, name, strlen(name) + 1);
    }
}

// That of the open generation whose records lie under a number. `is_own`: it is the state's, and
// not of a later one.
static reef_status read_state(
    reef_kind_list *list, reef_txn *txn, uint32_t records, bool is_own, reef_error *err) {
    json_t *state;
    reef_kind_names names = {0};
    reef_status status = reef_state_read(&state, txn, records, err);
    if (status == REEF_OK) status = reef_kind_names_load(&names, state, err);
    if (status == REEF_OK) {
        if (is_own) take_learned(list, state);
        take_merged(list, state);
        take_names(list, &names);
    }
    reef_kind_names_release(&names);
    json_decref(state);
    return status;
}

// ---- as of a sealed generation ------------------------------------------------------------------

// It has no state of the trainer any more: records say what each kind had learned by then, and
// which were merged.
static void take_heads(reef_kind_list *list, const reef_kind_heads *heads) {
    for (size_t i = 0; i < list->count; i++) {
        reef_kind_facts *kind = &list->kinds[i];
        const reef_visit_entry *newest = reef_kind_heads_find(heads, kind->kind);
        if (newest == NULL || !newest->merged) kind->merged_into = REEF_KIND_NONE;
        if (newest == NULL || newest->merged) continue;
        kind->learned_bytes = newest->learned;
        kind->learned_at = newest->next;
    }
}

static reef_status read_sealed(reef_kind_list *list, const listed *of, reef_error *err) {
    reef_kind_heads heads;
    uint32_t count = 0;
    reef_status status = reef_generation_count(of->txn, &count, err);
    // Names, and into what kinds were merged, are only known of now.
    if (status == REEF_OK) status = read_state(list, of->txn, count - 1, false, err);
    if (status != REEF_OK || !list->has_memories) return status;
    status = reef_kind_heads_read(&heads, of->txn, &of->as_of, err);
    if (status != REEF_OK) return status;
    take_heads(list, &heads);
    reef_kind_heads_release(&heads);
    return REEF_OK;
}

// ---- visits -------------------------------------------------------------------------------------

static void count_visit(reef_kind_facts *kind, const reef_kind_visit *visit) {
    if (kind->visit_count == 0) kind->first_loss = reef_kind_visit_loss(visit);
    kind->last_loss = reef_kind_visit_loss(visit);
    kind->visit_count += visit->count;
    kind->visited_bytes += visit->learned;
}

static uint64_t history_begins(const reef_kind_visit *visits, size_t count) {
    uint64_t begin = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (visits[i].from < begin) begin = visits[i].from;
    return begin;
}

// Before pools had a history, and where kinds do not learn on, each generation is a kind that never
// came back: one visit, of which it is not known what it cost. Who has learned more has come back.
static bool is_old_visit(const reef_kind_facts *kind,
                         const reef_generation_record *info,
                         uint64_t history,
                         reef_kind_visit *out) {
    uint64_t to = info->sealed ? info->sealed_at : kind->learned_at;
    *out = (reef_kind_visit){.kind = kind->kind,
                             .count = 1,
                             .from = info->opened_at,
                             .to = to,
                             .learned = kind->learned_bytes,
                             .bits = (double)NAN};
    // A memory learns the byte before its first one, too.
    return kind->visit_count == 0 && kind->learned_bytes > 0 && to > info->opened_at &&
           to <= history && kind->learned_bytes <= to - info->opened_at + 1;
}

static reef_status add_old_visits(reef_kind_list *list,
                                  const listed *of,
                                  uint64_t history,
                                  reef_error *err) {
    size_t sums = 0, old = 0;
    reef_status status = REEF_OK;
    reef_kind_visit *all = calloc(list->visit_count + list->count + 1, sizeof(*all));
    if (all == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits", list->visit_count);
    while (sums < list->visit_count && list->visits[sums].count > 1) sums++;
    if (sums > 0) memcpy(all, list->visits, sums * sizeof(*all));
    for (size_t i = 0; status == REEF_OK && i < list->count; i++) {
        reef_generation_record info;
        uint32_t records = reef_as_of_records(&of->as_of, list->kinds[i].kind);
        status = reef_generation_read(of->txn, records, &info, err);
        if (status == REEF_OK && is_old_visit(&list->kinds[i], &info, history, &all[sums + old]))
            count_visit(&list->kinds[i], &all[sums + old++]);
    }
    size_t single = list->visit_count - sums;
    if (single > 0) memcpy(all + sums + old, list->visits + sums, single * sizeof(*all));
    free(list->visits);
    list->visits = all;
    list->visit_count += old;
    return status;
}

static reef_status read_visits(reef_kind_list *list, const listed *of, reef_error *err) {
    size_t count = 0;
    reef_status status = reef_visit_log_read(of->txn, &list->visits, &count, err);
    uint64_t history = status == REEF_OK ? history_begins(list->visits, count) : 0;
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        reef_kind_visit visit = list->visits[i];
        if (!of->is_now && !reef_visit_cut(&visit, of->stream_bytes)) continue;
        reef_kind_facts *kind = kind_of(list, visit.kind);
        // The generation that is open gets another number where one is imported before it.
        if (kind == NULL && !of->is_now) kind = &list->kinds[list->count - 1];
        if (kind == NULL)
            return reef_fail(err, REEF_ERR_CORRUPT, "a visit is of kind %" PRIu32 ", which is none",
                             visit.kind);
        visit.kind = kind->kind;
        list->visits[list->visit_count++] = visit;
        count_visit(kind, &visit);
    }
    return status == REEF_OK ? add_old_visits(list, of, history, err) : status;
}

// ---- all ----------------------------------------------------------------------------------------

static reef_status find_state(listed *out, const char *as_of, reef_error *err) {
    reef_generation_record last;
    uint32_t count = 0;
    reef_status status = reef_as_of_find(&out->as_of, out->txn, as_of, err);
    if (status == REEF_OK) status = reef_generation_count(out->txn, &count, err);
    if (status == REEF_OK)
        status = reef_generation_read(out->txn, reef_as_of_records(&out->as_of, out->as_of.last),
                                      &last, err);
    if (status != REEF_OK) return status;
    out->is_now = !out->as_of.of_snapshot && out->as_of.last + 1 == count;
    out->stream_bytes = out->as_of.of_snapshot ? out->as_of.snapshot.stream_bytes : last.sealed_at;
    return REEF_OK;
}

static reef_status read_list(reef_kind_list *list, const listed *of, reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(of->txn, &config, err);
    if (status != REEF_OK) return status;
    list->has_memories = config.memory > 0;
    status = add_generations(list, of, err);
    if (status != REEF_OK || list->count == 0) return status;
    uint32_t records = reef_as_of_records(&of->as_of, of->as_of.last);
    status = of->is_now || of->as_of.of_snapshot ? read_state(list, of->txn, records, true, err)
                                                 : read_sealed(list, of, err);
    return status == REEF_OK && list->has_memories ? read_visits(list, of, err) : status;
}

reef_status reef_kind_list_read_as_of(reef_txn *txn,
                                      const char *as_of,
                                      reef_kind_list *out,
                                      reef_error *err) {
    listed of = {.txn = txn};
    *out = (reef_kind_list){0};
    reef_status status = find_state(&of, as_of, err);
    if (status == REEF_OK) status = read_list(out, &of, err);
    if (status != REEF_OK) reef_kind_list_release(out);
    return status;
}

reef_status reef_kind_list_read(reef_txn *txn, reef_kind_list *out, reef_error *err) {
    return reef_kind_list_read_as_of(txn, NULL, out, err);
}

void reef_kind_list_release(reef_kind_list *list) {
    free(list->kinds);
    free(list->visits);
    *list = (reef_kind_list){0};
}

const reef_kind_facts *reef_kind_list_find(const reef_kind_list *list, uint32_t kind) {
    return kind_of(list, kind);
}

const char *reef_kind_list_name(const reef_kind_list *list, uint32_t kind) {
    const reef_kind_facts *found = reef_kind_list_find(list, kind);
    return found != NULL ? found->name : "";
}

reef_status reef_kind_find(const reef_kind_list *list,
                           const char *word,
                           uint32_t *out,
                           reef_error *err) {
    char *end;
    unsigned long number = strtoul(word, &end, 10);
    bool is_number = word[0] >= '0' && word[0] <= '9' && *end == '\0';
    for (size_t i = 0; i < list->count; i++) {
        const reef_kind_facts *kind = &list->kinds[i];
        *out = kind->kind;
        if (is_number ? kind->kind == number : strcmp(kind->name, word) == 0) return REEF_OK;
    }
    if (is_number)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no kind %.20s; see reef kind list",
                         word);
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no kind is called %.64s; see reef kind list", word);
}

// ---- when kinds began, by the timeline ----------------------------------------------------------

// Positions in the stream are exact, and this is for people.
typedef struct dating {
    reef_kind_list *list;
    const reef_lineage *lineage;
} dating;

// The pool was made, or the next generation was opened. A number alone says nothing: an import
// gives the open generation another one, and a restore undoes what came after it.
static void date(const dating *d, const char *event, uint64_t at, json_int_t g, uint64_t unix_ms) {
    if (strcmp(event, "init") != 0 && strcmp(event, "open") != 0) return;
    for (size_t i = 0; i < d->list->count; i++) {
        reef_kind_facts *kind = &d->list->kinds[i];
        if (kind->kind == g && kind->began_at == at) kind->began_ms = unix_ms;
    }
}

static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    const dating *d = context;
    const char *name = NULL;
    json_int_t g = -1, at = -1, unix_ms = -1;
    json_t *event = json_loadb(view->data, view->bytes, JSON_ALLOW_NUL, NULL);
    if (event == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT, "event %" PRIu64 " of the timeline is not JSON",
                         key->sequence);
    if (reef_lineage_has(d->lineage, view->commit) &&
        json_unpack(event, "{s:s, s:I, s:I, s:I}", "event", &name, "generation", &g, "stream_bytes",
                    &at, "unix_ms", &unix_ms) == 0)
        date(d, name, (uint64_t)at, g, (uint64_t)unix_ms);
    json_decref(event);
    return REEF_OK;
}

reef_status reef_kind_list_date(reef_kind_list *list, reef_txn *txn, reef_error *err) {
    reef_lineage lineage = {0};
    reef_status status = reef_lineage_read(&lineage, txn, err);
    if (status == REEF_OK)
        status = reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event,
                                  &(dating){list, &lineage}, err);
    reef_lineage_release(&lineage);
    return status;
}
