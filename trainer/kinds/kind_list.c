// The kinds of a pool's last commit, read from its records: see reef_kinds.h.
#include "kind_names.h"
#include "stream_position.h"
#include "visit_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- one kind -----------------------------------------------------------------------------------

// Generations that were consolidated belong to the next one that is left.
static reef_status add_generations(reef_kind_list *list,
                                   reef_txn *txn,
                                   uint32_t count,
                                   reef_error *err) {
    reef_status status = REEF_OK;
    list->kinds = calloc((size_t)count + 1, sizeof(*list->kinds));
    if (list->kinds == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " kinds", count);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        reef_generation_record info;
        uint64_t learned = 0;
        status = reef_generation_read(txn, g, &info, err);
        if (status != REEF_OK || !reef_generation_begins_kind(&info)) continue;
        if (list->has_memories) status = reef_memory_learned_read(txn, g, &learned, err);
        bool is_damaged = status == REEF_ERR_CORRUPT;
        if (is_damaged) status = REEF_OK;
        list->kinds[list->count++] =
            (reef_kind_facts){.kind = g,
                              .is_open = !info.sealed,
                              .is_damaged = is_damaged,
                              .began_at = info.opened_at,
                              .learned_bytes = learned,
                              .merged_into = REEF_KIND_NONE,
                              .learned_at = info.sealed ? info.sealed_at : info.opened_at,
                              .first_loss = (double)NAN,
                              .last_loss = (double)NAN};
    }
    return status;
}

// The kind that a generation belongs to; NULL: there is none.
static reef_kind_facts *kind_of(const reef_kind_list *list, uint32_t generation) {
    for (size_t i = 0; i < list->count; i++)
        if (list->kinds[i].kind >= generation) return &list->kinds[i];
    return NULL;
}

// ---- the state ----------------------------------------------------------------------------------

static void set_learned(reef_kind_facts *kind, const json_t *item, size_t at) {
    kind->learned_bytes = (uint64_t)json_integer_value(json_array_get(item, at));
    kind->learned_at = (uint64_t)json_integer_value(json_array_get(item, at + 1));
}

static void take_state(reef_kind_list *list, const json_t *state, const reef_kind_names *names) {
    const json_t *memory = json_object_get(state, "memory");
    const json_t *learned = json_object_get(state, "kinds");
    const json_t *merged = json_object_get(state, "merged_kinds");
    const json_t *current = json_object_get(state, "current_kind");
    reef_kind_facts *open = &list->kinds[list->count - 1];
    // Records have what was sealed; the state has what the open generation and kinds that came back
    // learned since. Its numbers may be of generations that were consolidated: see kind_of.
    if (memory != NULL) set_learned(open, memory, 0);
    for (size_t i = 0; i < json_array_size(learned); i++) {
        const json_t *item = json_array_get(learned, i);
        reef_kind_facts *kind =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 0)));
        if (kind != NULL) set_learned(kind, item, 1);
    }
    for (size_t i = 0; i < json_array_size(merged); i++) {
        const json_t *item = json_array_get(merged, i);
        reef_kind_facts *kind =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 0)));
        const reef_kind_facts *into =
            kind_of(list, (uint32_t)json_integer_value(json_array_get(item, 1)));
        if (kind != NULL && into != NULL) kind->merged_into = into->kind;
    }
    for (size_t i = 0; i < list->count; i++)
        memcpy(list->kinds[i].name, reef_kind_names_of(names, list->kinds[i].kind),
               strlen(reef_kind_names_of(names, list->kinds[i].kind)) + 1);
    reef_kind_facts *at =
        current == NULL ? open : kind_of(list, (uint32_t)json_integer_value(current));
    if (at != NULL) at->is_current = true;
}

static reef_status read_state(reef_kind_list *list, reef_txn *txn, uint32_t open, reef_error *err) {
    const reef_key key = reef_state_key(open, "state");
    reef_view view;
    json_t *state = NULL;
    reef_kind_names names = {0};
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_OK) status = reef_state_parse(&state, &view, open, err);
    if (status == REEF_OK) status = reef_kind_names_load(&names, state, err);
    if (status == REEF_OK) take_state(list, state, &names);
    reef_kind_names_release(&names);
    json_decref(state);
    return status;
}

// ---- visits -------------------------------------------------------------------------------------

static reef_status read_visits(reef_kind_list *list, reef_txn *txn, reef_error *err) {
    reef_status status = reef_visit_log_read(txn, &list->visits, &list->visit_count, err);
    for (size_t i = 0; status == REEF_OK && i < list->visit_count; i++) {
        reef_kind_visit *visit = &list->visits[i];
        reef_kind_facts *kind = kind_of(list, visit->kind);
        if (kind == NULL)
            return reef_fail(err, REEF_ERR_CORRUPT, "a visit is of kind %" PRIu32 ", which is none",
                             visit->kind);
        visit->kind = kind->kind;
        if (kind->visit_count == 0) kind->first_loss = reef_kind_visit_loss(visit);
        kind->last_loss = reef_kind_visit_loss(visit);
        kind->visit_count += visit->count;
        kind->visited_bytes += visit->learned;
    }
    return status;
}

// ---- all ----------------------------------------------------------------------------------------

reef_status reef_kind_list_read(reef_txn *txn, reef_kind_list *out, reef_error *err) {
    reef_config config;
    uint32_t count = 0;
    *out = (reef_kind_list){0};
    reef_status status = reef_config_read(txn, &config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK) return status;
    out->has_memories = config.context_memory > 0;
    status = add_generations(out, txn, count, err);
    if (status == REEF_OK && out->count > 0) status = read_state(out, txn, count - 1, err);
    if (status == REEF_OK && out->has_memories) status = read_visits(out, txn, err);
    if (status != REEF_OK) reef_kind_list_release(out);
    return status;
}

void reef_kind_list_release(reef_kind_list *list) {
    free(list->kinds);
    free(list->visits);
    *list = (reef_kind_list){0};
}

const reef_kind_facts *reef_kind_list_find(const reef_kind_list *list, uint32_t kind) {
    for (size_t i = 0; i < list->count; i++)
        if (list->kinds[i].kind == kind) return &list->kinds[i];
    return NULL;
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
