// What of kinds is in the trainer's state, as JSON; see kind_memories.h.
//
//   kinds          [[kind, bytes learned, learned up to, chain, bytes without its net], ...]
//   visited_bytes  of all of them
//   merged_kinds   [[kind, into], ...]
#include "kind_heads.h"
#include "kind_memories.h"
#include "reef_json_build.h"

#include <inttypes.h>
#include <string.h>

// ---- kinds that came back -----------------------------------------------------------------------

// Left out where there are none.
static void set_merged(const reef_trainer *trainer, json_t **state) {
    json_t *list = json_array();
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        const reef_kind_head *head = reef_kind_head_find(trainer, (uint32_t)g);
        if (head == NULL || !head->visit.merged) continue;
        reef_json_append(&list, json_pack("[I, I]", (json_int_t)g, (json_int_t)head->merged_into));
    }
    if (json_array_size(list) > 0)
        reef_json_set(state, "merged_kinds", list);
    else
        json_decref(list);
}

void reef_kinds_set_state(const reef_trainer *trainer, json_t **state) {
    set_merged(trainer, state);
    json_t *list = json_array();
    // By number: in which order they were read depends on restarts.
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        const reef_kind_head *head = reef_kind_head_find(trainer, (uint32_t)g);
        if (head == NULL || !reef_kind_head_came_back(head)) continue;
        const reef_visit *visit = &head->visit;
        char chain[2 * REEF_HASH_BYTES + 1];
        reef_hash_format(visit->chain, chain);
        reef_json_append(&list, json_pack("[I, I, I, s, I]", (json_int_t)visit->kind,
                                          (json_int_t)visit->learned, (json_int_t)visit->next,
                                          chain, (json_int_t)head->without_net));
    }
    if (json_array_size(list) == 0) {
        json_decref(list);
        return;
    }
    reef_json_set(state, "kinds", list);
    reef_json_set(state, "visited_bytes", json_integer((json_int_t)trainer->kinds.visited_bytes));
}

static reef_status load_one(reef_trainer *trainer, const json_t *item, reef_error *err) {
    json_int_t kind = json_integer_value(json_array_get(item, 0));
    json_int_t learned = json_integer_value(json_array_get(item, 1));
    json_int_t next = json_integer_value(json_array_get(item, 2));
    uint8_t chain[REEF_HASH_BYTES];
    if (kind < 0 || (size_t)kind + 1 >= trainer->network.generation_count || learned < 0 ||
        next < 1 || reef_kind_head_find(trainer, (uint32_t)kind) != NULL ||
        !reef_hash_parse(json_string_value(json_array_get(item, 3)), chain))
        return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state has a malformed kind");
    reef_kind_head *head = NULL;
    reef_status status = reef_kind_head_add(trainer, (uint32_t)kind, &head, err);
    if (status != REEF_OK) return status;
    head->visit.learned = (uint64_t)learned;
    head->visit.next = (uint64_t)next;
    head->without_net = (uint64_t)json_integer_value(json_array_get(item, 4));
    memcpy(head->visit.chain, chain, sizeof(chain));
    return REEF_OK;
}

static reef_status load_merged(reef_trainer *trainer, const json_t *item, reef_error *err) {
    json_int_t kind = json_integer_value(json_array_get(item, 0));
    json_int_t into = json_integer_value(json_array_get(item, 1));
    json_int_t count = (json_int_t)trainer->network.generation_count;
    if (json_array_size(item) != 2 || kind < 0 || into < 0 || kind >= count || into >= count ||
        kind == into)
        return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state has a malformed merged kind");
    reef_status status = reef_kind_mark_merged(trainer, (uint32_t)kind, (uint32_t)into, err);
    if (status != REEF_OK) return status;
    reef_kind_head *head = reef_kind_head_find(trainer, (uint32_t)kind);
    head->in_open_generation = false;
    head->stored = true;
    return REEF_OK;
}

// Following from kind to kind must end at one that was not merged, within as many as there are.
static reef_status check_mergings(const reef_trainer *trainer, reef_error *err) {
    uint32_t count = (uint32_t)trainer->network.generation_count;
    for (uint32_t kind = 0; kind < count; kind++) {
        uint32_t at = kind, steps = 0;
        while (steps < count && reef_kind_is_merged(trainer, at, &at)) steps++;
        if (steps == count)
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "kind %" PRIu32 " was merged by way of more kinds than there are: see "
                             "reef verify",
                             kind);
    }
    return REEF_OK;
}

// Mark the kinds whose visits the open generation holds: commits write those with it.
static reef_status find_in_open_generation(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t open = reef_open_generation(trainer)->info.generation;
    const reef_as_of state = {.last = open, .own = open};
    reef_kind_heads heads;
    reef_status status = reef_kind_heads_read(&heads, txn, &state, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < heads.holders[open].count; i++) {
        reef_kind_head *head = reef_kind_head_find(trainer, heads.holders[open].entries[i].kind);
        if (head != NULL) head->in_open_generation = true;
    }
    reef_kind_heads_release(&heads);
    return REEF_OK;
}

reef_status reef_kinds_load_state(reef_trainer *trainer,
                                  reef_txn *txn,
                                  const json_t *state,
                                  reef_error *err) {
    const json_t *list = json_object_get(state, "kinds");
    const json_t *merged = json_object_get(state, "merged_kinds");
    reef_status status = REEF_OK;
    trainer->kinds.visited_bytes =
        (uint64_t)json_integer_value(json_object_get(state, "visited_bytes"));
    for (size_t i = 0; status == REEF_OK && i < json_array_size(list); i++)
        status = load_one(trainer, json_array_get(list, i), err);
    for (size_t i = 0; status == REEF_OK && i < json_array_size(merged); i++)
        status = load_merged(trainer, json_array_get(merged, i), err);
    if (status == REEF_OK) status = check_mergings(trainer, err);
    return status == REEF_OK && trainer->kinds.head_count > 0
               ? find_in_open_generation(trainer, txn, err)
               : status;
}
