// Kinds of which a record is damaged: what is left of them, and how a pool goes on.
//
// A kind is damaged where a record is that its memory is read from now. What is whole of it is its
// memory as of an older generation. To recover is to write that one again, as tables with the
// visits of the open generation: the next reader begins there, and what was damaged is read only as
// of states that had it.
#include "commit.h"
#include "events.h"
#include "kind_heads.h"
#include "kind_level.h"
#include "kind_memories.h"
#include "recognition.h"
#include "reef_kinds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// ---- what is damaged ----------------------------------------------------------------------------

// memory  written: what is whole of it; lost->what is empty where that is all
static reef_status look(const reef_trainer *trainer,
                        const reef_kind_heads *heads,
                        reef_txn *txn,
                        uint32_t kind,
                        bool learns,
                        reef_generation_memory *memory,
                        reef_lost_kind *lost,
                        reef_error *err) {
    uint64_t bytes_max = trainer->network.config.memory;
    reef_status status =
        reef_kind_heads_load_whole(heads, txn, kind, bytes_max, learns, memory, lost, err);
    const reef_visit_entry *newest = reef_kind_heads_find(heads, kind);
    const uint8_t none[REEF_HASH_BYTES] = {0};
    if (status != REEF_OK || lost->what[0] != '\0') return status;
    if (kind == heads->state->last || (newest != NULL && newest->merged) ||
        reef_kind_is_committed_as(trainer, kind, newest != NULL ? newest->chain : none))
        return REEF_OK;
    snprintf(lost->what, sizeof(lost->what),
             "what it went on to learn is not that of the last commit");
    lost->whole_to = memory->next;
    return REEF_OK;
}

static reef_status fail_damaged(const reef_trainer *trainer,
                                const reef_lost_kind *lost,
                                reef_error *err) {
    const char *name = reef_kind_names_of(&trainer->kinds.names, lost->kind);
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "kind %" PRIu32 "%s%.64s%s is damaged, and must not learn on: see reef "
                     "verify; %.110s",
                     lost->kind, name[0] != '\0' ? " (" : "", name, name[0] != '\0' ? ")" : "",
                     lost->what);
}

reef_status reef_kinds_check(const reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t open = reef_open_generation(trainer)->info.generation;
    const reef_as_of state = {.last = open, .own = open};
    reef_kind_heads heads;
    if (!reef_recognises_by_contexts(trainer) || trainer->options.shard.count > 0) return REEF_OK;
    reef_status status = reef_kind_heads_read(&heads, txn, &state, err);
    if (status != REEF_OK) return status;
    for (uint32_t kind = 0; status == REEF_OK && kind < open; kind++) {
        reef_generation_memory memory = {0};
        reef_lost_kind lost;
        if (!reef_is_kind(trainer, kind)) continue;
        status = look(trainer, &heads, txn, kind, false, &memory, &lost, err);
        reef_generation_memory_release(&memory);
        if (status == REEF_OK && lost.what[0] != '\0') status = fail_damaged(trainer, &lost, err);
    }
    reef_kind_heads_release(&heads);
    return status;
}

// ---- how it goes on -----------------------------------------------------------------------------

// One of which nothing is left begins at the present position.
static reef_status begin_anew(reef_trainer *trainer,
                              uint32_t kind,
                              reef_generation_memory *memory,
                              reef_error *err) {
    reef_kind_level_forget(trainer, kind);
    memory->next = trainer->stream_bytes;
    const reef_memory_options options = {.bytes_max = trainer->network.config.memory};
    return reef_memory_new(&memory->memory, &options, err);
}

static reef_status go_on(reef_trainer *trainer,
                         uint32_t kind,
                         reef_generation_memory *memory,
                         reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    reef_status status = REEF_OK;
    uint32_t into;
    if (reef_kind_is_merged(trainer, kind, &into))
        return reef_kind_mark_merged(trainer, kind, into, err);
    if (memory->memory == NULL) status = begin_anew(trainer, kind, memory, err);
    if (status != REEF_OK || kind != open->info.generation)
        return status == REEF_OK ? reef_kind_replace_memory(trainer, kind, memory, err) : status;
    reef_generation_memory_release(&open->memory);
    reef_generation_memory_move(&open->memory, memory);
    open->memory.adopted = true;
    open->memory.tail_bytes = 0;
    return REEF_OK;
}

// One kind, noted in *found where it is damaged. The open one was not read yet: see load_memory.
static reef_status recover_one(reef_trainer *trainer,
                               const reef_kind_heads *heads,
                               reef_txn *txn,
                               uint32_t kind,
                               bool dry_run,
                               reef_kind_recovery *found,
                               reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    reef_generation_memory memory = {0};
    reef_status status = look(trainer, heads, txn, kind, true, &memory, &found->lost, err);
    bool is_damaged = status == REEF_OK && found->lost.what[0] != '\0';
    if (memory.memory != NULL) found->learned = reef_memory_learned_bytes(memory.memory);
    if (is_damaged && !dry_run)
        status = go_on(trainer, kind, &memory, err);
    else if (status == REEF_OK && kind == open->info.generation)
        reef_generation_memory_move(&open->memory, &memory);
    if (is_damaged && !dry_run && status == REEF_OK)
        status = reef_state_event(trainer, err, "kind_recover",
                                  "\"kind\": %" PRIu32 ", \"whole_to\": %" PRIu64
                                  ", \"learned\": %" PRIu64,
                                  kind, found->lost.whole_to, found->learned);
    reef_generation_memory_release(&memory);
    return status;
}

static reef_status recover_all(reef_trainer *trainer,
                               reef_txn *txn,
                               bool dry_run,
                               reef_kind_recovery *found,
                               size_t *count,
                               reef_error *err) {
    uint32_t open = reef_open_generation(trainer)->info.generation;
    const reef_as_of state = {.last = open, .own = open};
    reef_kind_heads heads;
    reef_status status = reef_kind_heads_read(&heads, txn, &state, err);
    if (status != REEF_OK) return status;
    for (uint32_t kind = 0; status == REEF_OK && kind <= open; kind++) {
        if (!reef_is_kind(trainer, kind)) continue;
        found[*count] = (reef_kind_recovery){0};
        status = recover_one(trainer, &heads, txn, kind, dry_run, &found[*count], err);
        *count += status == REEF_OK && found[*count].lost.what[0] != '\0';
    }
    reef_kind_heads_release(&heads);
    return status;
}

reef_status reef_trainer_kinds_recover(
    reef_trainer *trainer, bool dry_run, reef_kind_recovery **out, size_t *count, reef_error *err) {
    reef_txn *txn = NULL;
    *out = NULL;
    *count = 0;
    if (!reef_kinds_may_return(trainer) || trainer->options.shard.count > 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "kinds are recovered in whole pools with context memories");
    *out = calloc(trainer->network.generation_count + 1, sizeof(**out));
    if (*out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of %zu kinds",
                         trainer->network.generation_count);
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = recover_all(trainer, txn, dry_run, *out, count, err);
    reef_txn_abort(txn);
    return status == REEF_OK && *count > 0 && !dry_run ? reef_trainer_commit(trainer, NULL, err)
                                                       : status;
}
