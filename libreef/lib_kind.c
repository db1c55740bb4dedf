// Kinds of text: what each has learned and when, and its name.
#include "lib.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what there is ------------------------------------------------------------------------------

// The list of all kinds is read at once and kept until there is another commit: callers ask for one
// kind or visit after the other.
static reef_status read_kinds(reef_pool *pool, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit last = {0};
    reef_kind_list list = {0};
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &last, err);
    if (status == REEF_OK && last.number != pool->kinds_commit) {
        status = reef_kind_list_read_as_of(txn, pool->as_of, &list, err);
        // A damaged timeline takes the dates, and nothing else.
        if (status == REEF_OK && reef_kind_list_date(&list, txn, NULL) != REEF_OK)
            for (size_t i = 0; i < list.count; i++) list.kinds[i].began_ms = 0;
        if (status == REEF_OK) {
            reef_kind_list_release(&pool->kinds);
            pool->kinds = list;
            pool->kinds_commit = last.number;
        }
    }
    reef_txn_abort(txn);
    return status;
}

static reef_kind_info info_of(const reef_kind_facts *kind) {
    reef_kind_info info = {
        .kind = kind->kind,
        .open = kind->is_open,
        .learning = kind->is_current,
        .began_at = kind->began_at,
        .learned_bytes = kind->learned_bytes,
        .learned_at = kind->learned_at,
        .visits = kind->visit_count,
        .first_loss = kind->first_loss,
        .last_loss = kind->last_loss,
        .began_ms = kind->began_ms,
        .merged_into = kind->merged_into == REEF_KIND_NONE ? -1 : (int64_t)kind->merged_into,
    };
    snprintf(info.name, sizeof(info.name), "%s", kind->name);
    return info;
}

reef_status reef_pool_read_kind(reef_pool *pool,
                                size_t index,
                                reef_kind_info *out,
                                reef_error *err) {
    reef_kind_info info = {0};
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = read_kinds(pool, err);
    if (status == REEF_OK && index < pool->kinds.count)
        info = info_of(&pool->kinds.kinds[index]);
    else if (status == REEF_OK)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "no kind %zu: the state has %zu", index,
                           pool->kinds.count);
    reef_lib_leave(pool);
    return status == REEF_OK ? reef_lib_give(out, &info, sizeof(info), "reef_kind_info", err)
                             : status;
}

// Visit number `index` of a kind.
static reef_status find_visit(const reef_kind_list *list,
                              uint32_t kind,
                              size_t index,
                              reef_visit_info *out,
                              reef_error *err) {
    size_t count = 0;
    if (reef_kind_list_find(list, kind) == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no kind %" PRIu32, kind);
    for (size_t i = 0; i < list->visit_count; i++) {
        const reef_kind_visit *visit = &list->visits[i];
        if (visit->kind != kind || count++ != index) continue;
        *out = (reef_visit_info){.visits = visit->count,
                                 .begin = visit->from,
                                 .end = visit->to,
                                 .learned_bytes = visit->learned,
                                 .loss = reef_kind_visit_loss(visit)};
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no visit %zu of kind %" PRIu32 ": %zu are known%s",
                     index, kind, count,
                     list->has_memories ? "" : ", since the pool has no context memories");
}

reef_status reef_pool_read_visit(
    reef_pool *pool, uint32_t kind, size_t index, reef_visit_info *out, reef_error *err) {
    reef_visit_info info = {0};
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = read_kinds(pool, err);
    if (status == REEF_OK) status = find_visit(&pool->kinds, kind, index, &info, err);
    reef_lib_leave(pool);
    return status == REEF_OK ? reef_lib_give(out, &info, sizeof(info), "reef_visit_info", err)
                             : status;
}

// ---- what is done to them -----------------------------------------------------------------------

reef_status reef_pool_name_kind(reef_pool *pool, uint32_t kind, const char *name, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "name a kind", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_kind_name(pool->trainer, kind, name == NULL ? "" : name, false, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_prune(
    reef_pool *pool, uint32_t keep_last, int32_t dry_run, reef_prune_info *out, reef_error *err) {
    reef_pruning pruned = {0};
    reef_status status = reef_lib_enter_writer(pool, "give up states", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_prune(pool->trainer, keep_last, dry_run != 0, &pruned, err);
    reef_lib_leave(pool);
    if (status != REEF_OK || out == NULL) return status;
    const reef_prune_info info = {
        .states = pruned.states, .visits = pruned.visits, .bytes = pruned.bytes};
    return reef_lib_give(out, &info, sizeof(info), "reef_prune_info", err);
}
