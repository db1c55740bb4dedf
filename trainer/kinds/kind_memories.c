// See kind_memories.h.
#include "kind_memories.h"
#include "divided.h"
#include "kind_heads.h"
#include "prequential.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LAST_STAY 2 // memories, however large: where a kind ends and another begins both are needed

bool reef_kinds_may_return(const reef_trainer *trainer) {
    return trainer->network.config.memory > 0 && trainer->store != NULL;
}

reef_kind_head *reef_kind_head_find(const reef_trainer *trainer, uint32_t kind) {
    for (size_t i = 0; i < trainer->kinds.head_count; i++)
        if (trainer->kinds.heads[i].visit.kind == kind) return &trainer->kinds.heads[i];
    return NULL;
}

// ---- in memory, and not -------------------------------------------------------------------------

static bool is_loaded(const reef_kind_head *head) {
    return head->visit.memory.memory != NULL;
}

// The memory that was used longest ago, if together with the open generation's they take more than
// the pool's budget. NULL: they do not, or it is one of the last `stay` that were used. What is not
// stored cannot be released: until it is, there may be more.
static reef_kind_head *find_spare(reef_trainer *trainer, size_t stay) {
    const reef_memory *open = reef_open_generation(trainer)->memory.memory;
    reef_kind_head *oldest = NULL;
    uint64_t bytes = open != NULL ? reef_memory_bytes(open) : 0;
    size_t later = 0;
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        reef_kind_head *head = &trainer->kinds.heads[i];
        if (!is_loaded(head)) continue;
        bytes += reef_memory_bytes(head->visit.memory.memory);
        if (head->stored && (oldest == NULL || head->used_at < oldest->used_at)) oldest = head;
    }
    if (oldest == NULL || bytes <= trainer->kinds.room) return NULL;
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        const reef_kind_head *head = &trainer->kinds.heads[i];
        later += is_loaded(head) && head->used_at > oldest->used_at;
    }
    return later >= stay ? oldest : NULL;
}

static void make_room(reef_trainer *trainer, size_t stay) {
    for (reef_kind_head *spare; (spare = find_spare(trainer, stay)) != NULL;)
        reef_generation_memory_release(&spare->visit.memory);
}

// Keep only the part of the tail that the open generation holds.
static void drop_older(reef_generation_memory *m, size_t bytes) {
    m->tail_bytes -= bytes;
    memmove(m->tail, m->tail + bytes, m->tail_bytes);
}

// As of the last commit, with all generations up to `last`.
static reef_status read_head(reef_generation_memory *out,
                             const reef_trainer *trainer,
                             uint32_t last,
                             uint32_t kind,
                             reef_error *err) {
    const reef_as_of state = {.last = last, .own = last};
    reef_txn *txn = NULL;
    reef_kind_heads heads = {0};
    reef_error reason;
    size_t older = 0;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, &reason);
    if (status == REEF_OK) status = reef_kind_heads_read(&heads, txn, &state, &reason);
    if (status == REEF_OK) status = reef_kind_heads_load(&heads, txn, kind, out, &older, &reason);
    reef_kind_heads_release(&heads);
    reef_txn_abort(txn);
    if (status == REEF_OK)
        status = reef_generation_memory_catch_up(out, trainer->network.config.memory,
                                                 trainer->workers, &reason);
    if (status == REEF_OK && out->tail_bytes > 0) drop_older(out, older);
    // What was pruned away is known to every rank before anything is read.
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) reef_divided_failed(trainer, &reason);
    return status == REEF_OK ? REEF_OK : reef_fail(err, status, "%s", reason.message);
}

// Sealed since the last commit: the next one stores it as it is, so a copy learns on.
static reef_status copy_sealed(reef_generation_memory *out,
                               const reef_generation *sealed,
                               reef_error *err) {
    reef_status status = reef_generation_memory_copy(out, &sealed->memory, err);
    if (status != REEF_OK) return status;
    out->adopted = false;
    out->checkpoint_bytes = reef_memory_learned_bytes(out->memory);
    // Its log begins here and continues the sealed one's slices: see reef_kinds_take_slices.
    return reef_generation_memory_is_large(out) ? reef_memory_log(out->memory, err) : REEF_OK;
}

static reef_status load_head(reef_trainer *trainer, reef_kind_head *head, reef_error *err) {
    uint32_t kind = head->visit.kind;
    const reef_generation *sealed = trainer->network.generations[kind];
    reef_generation_memory *m = &head->visit.memory;
    make_room(trainer, 1);
    reef_status status = REEF_OK;
    if (!sealed->stored && sealed->memory.memory != NULL)
        status = copy_sealed(m, sealed, err);
    else if (sealed->stored)
        status = read_head(m, trainer, reef_open_generation(trainer)->info.generation, kind, err);
    if (status == REEF_OK && reef_kind_head_came_back(head) &&
        (m->memory == NULL || reef_memory_learned_bytes(m->memory) != head->visit.learned ||
         memcmp(m->chain, head->visit.chain, sizeof(m->chain)) != 0))
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "the memory of kind %" PRIu32 " is not that of the last commit", kind);
    if (status != REEF_OK) reef_generation_memory_release(m);
    make_room(trainer, LAST_STAY);
    return status;
}

reef_status reef_kind_head_add(reef_trainer *trainer,
                               uint32_t kind,
                               reef_kind_head **out,
                               reef_error *err) {
    size_t count = trainer->kinds.head_count;
    reef_kind_head *heads = realloc(trainer->kinds.heads, (count + 1) * sizeof(*heads));
    if (heads == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the heads of %zu kinds", count);
    trainer->kinds.heads = heads;
    *out = &heads[trainer->kinds.head_count++];
    **out = (reef_kind_head){.visit = {.kind = kind}, .stored = true};
    return REEF_OK;
}

static reef_status find_or_add(reef_trainer *trainer,
                               uint32_t kind,
                               reef_kind_head **out,
                               reef_error *err) {
    *out = reef_kind_head_find(trainer, kind);
    return *out == NULL ? reef_kind_head_add(trainer, kind, out, err) : REEF_OK;
}

// The head of a kind, read if it must be.
static reef_status loaded_head(reef_trainer *trainer,
                               uint32_t kind,
                               reef_kind_head **out,
                               reef_error *err) {
    reef_status status = find_or_add(trainer, kind, out, err);
    if (status != REEF_OK) return status;
    (*out)->used_at = ++trainer->kinds.head_uses;
    return is_loaded(*out) ? REEF_OK : load_head(trainer, *out, err);
}

reef_status reef_kind_load_memory(reef_trainer *trainer,
                                  uint32_t kind,
                                  const reef_memory **out,
                                  reef_error *err) {
    const reef_generation *open = reef_open_generation(trainer);
    reef_kind_head *head;
    *out = open->memory.memory;
    if (kind == open->info.generation) return REEF_OK;
    if (reef_kind_is_merged(trainer, kind, NULL)) {
        *out = NULL;
        return REEF_OK;
    }
    reef_status status = loaded_head(trainer, kind, &head, err);
    if (status == REEF_OK) *out = head->visit.memory.memory;
    return status;
}

uint64_t reef_kind_last_learned_at(const reef_trainer *trainer, uint32_t kind) {
    const reef_generation *open = reef_open_generation(trainer);
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    if (kind == open->info.generation) return open->memory.next;
    if (head != NULL && reef_kind_head_came_back(head)) return head->visit.next;
    return trainer->network.generations[kind]->info.sealed_at;
}

const reef_memory *reef_kind_view_loaded(const reef_trainer *trainer,
                                         uint32_t kind,
                                         reef_memory_stats *seen) {
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    *seen = head != NULL ? head->seen : (reef_memory_stats){0};
    if (head == NULL) return NULL;
    seen->learned_bytes = head->visit.learned;
    return head->visit.memory.memory;
}

void reef_kind_read_facts(reef_trainer *trainer, reef_txn *txn) {
    const uint32_t kinds[] = {trainer->kinds.current, reef_open_kind(trainer)};
    for (size_t i = 0; i < 2; i++) {
        reef_kind_head *head = reef_kind_head_find(trainer, kinds[i]);
        if (head == NULL) continue;
        // It is only shown: what is damaged is reported where it is needed.
        if (reef_kind_memory_stats_read(txn, kinds[i], &head->seen, NULL) != REEF_OK)
            head->seen = (reef_memory_stats){0};
    }
}

// ---- learning -----------------------------------------------------------------------------------

static void note_learned(reef_trainer *trainer, reef_kind_head *head) {
    const reef_generation_memory *m = &head->visit.memory;
    head->in_open_generation = true;
    head->stored = false;
    head->used_at = ++trainer->kinds.head_uses;
    head->visit.learned = reef_memory_learned_bytes(m->memory);
    head->visit.next = m->next;
    memcpy(head->visit.chain, m->chain, sizeof(m->chain));
}

// ---- the kind of the open generation ------------------------------------------------------------

uint32_t reef_open_kind(const reef_trainer *trainer) {
    return reef_generation_kind(&reef_open_generation(trainer)->info);
}

bool reef_open_kind_is_older(const reef_trainer *trainer) {
    return reef_open_generation(trainer)->info.continues > 0;
}

const reef_memory *reef_open_kind_memory(const reef_trainer *trainer) {
    if (!reef_open_kind_is_older(trainer)) return reef_open_generation(trainer)->memory.memory;
    const reef_kind_head *head = reef_kind_head_find(trainer, reef_open_kind(trainer));
    return head == NULL ? NULL : head->visit.memory.memory;
}

void reef_open_kind_refresh_stats(reef_trainer *trainer) {
    const reef_memory *memory = reef_open_kind_memory(trainer);
    if (memory != NULL)
        reef_memory_refresh_stats(memory, &trainer->memory.stats);
    else
        trainer->memory.stats = (reef_memory_stats){0};
}

reef_status reef_open_kind_load(reef_trainer *trainer,
                                reef_generation_memory **out,
                                reef_error *err) {
    reef_kind_head *head = NULL;
    *out = &reef_open_generation(trainer)->memory;
    if (!reef_open_kind_is_older(trainer)) return REEF_OK;
    reef_status status = loaded_head(trainer, reef_open_kind(trainer), &head, err);
    if (status == REEF_OK) *out = &head->visit.memory;
    return status;
}

void reef_open_kind_note_learned(reef_trainer *trainer) {
    if (!reef_open_kind_is_older(trainer)) return;
    note_learned(trainer, reef_kind_head_find(trainer, reef_open_kind(trainer)));
    trainer->kinds.visited_bytes += reef_batch_bytes(&trainer->network.config);
}

uint64_t reef_kind_bytes_without_net(const reef_trainer *trainer, uint32_t kind) {
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    return head == NULL ? 0 : head->without_net;
}

uint64_t reef_kind_bytes_learned(const reef_trainer *trainer, uint32_t kind) {
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    return head == NULL ? 0 : head->visit.learned;
}

void reef_kind_let_net_follow(reef_trainer *trainer, uint32_t kind) {
    reef_kind_head *head = reef_kind_head_find(trainer, kind);
    if (head != NULL) head->without_net = 0;
}

// ---- learning of older kinds --------------------------------------------------------------------

reef_status reef_kind_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err) {
    uint64_t end = trainer->stream_bytes, begin = end > count ? end - count : 0;
    reef_kind_head *head;
    reef_status status = loaded_head(trainer, kind, &head, err);
    if (status != REEF_OK) return status;
    status = reef_generation_memory_learn(&head->visit.memory, trainer->network.config.memory,
                                          begin, bytes, count, NULL, NULL, err);
    if (status != REEF_OK)
        reef_trainer_break(trainer, status);
    else
        note_learned(trainer, head);
    return status;
}

reef_status reef_kind_mark_merged(reef_trainer *trainer,
                                  uint32_t kind,
                                  uint32_t into,
                                  reef_error *err) {
    reef_kind_head *head;
    reef_status status = find_or_add(trainer, kind, &head, err);
    if (status != REEF_OK) return status;
    reef_generation_memory_release(&head->visit.memory);
    head->visit.merged = head->in_open_generation = true;
    head->stored = false;
    head->merged_into = into;
    return REEF_OK;
}

bool reef_kind_is_merged(const reef_trainer *trainer, uint32_t kind, uint32_t *into) {
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    if (head == NULL || !head->visit.merged) return false;
    if (into != NULL) *into = head->merged_into;
    return true;
}

reef_status reef_kind_learn_pending_batch(reef_trainer *trainer,
                                          uint32_t kind,
                                          double *bits,
                                          reef_error *err) {
    reef_kind_head *head;
    reef_status status = loaded_head(trainer, kind, &head, err);
    if (status != REEF_OK) return status;
    reef_generation_memory *m = &head->visit.memory;
    status = reef_memory_learn_batch(&trainer->network.config, m, trainer->stream.pending,
                                     trainer->stream_bytes, NULL, trainer->memory.bits, err);
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status);
        return status;
    }
    note_learned(trainer, head);
    reef_memory_refresh_stats(m->memory, &head->seen);
    trainer->kinds.visited_bytes += reef_batch_bytes(&trainer->network.config);
    head->without_net += reef_batch_bytes(&trainer->network.config);
    *bits = reef_memory_count_losses(trainer, trainer->stream_bytes, trainer->memory.bits);
    return REEF_OK;
}

double reef_memory_count_losses(reef_trainer *trainer, uint64_t begin, const float *bits) {
    size_t count = reef_batch_bytes(&trainer->network.config);
    double sum = 0.0, *losses = trainer->memory.losses;
    for (size_t i = 0; i < count; i++) sum += losses[i] = (double)bits[i];
    reef_prequential_count(trainer, begin + 1, 1, losses, 1.0, count);
    return trainer->memory.last_bits = sum / (double)count;
}

// ---- after damage -------------------------------------------------------------------------------

reef_status reef_kind_replace_memory(reef_trainer *trainer,
                                     uint32_t kind,
                                     reef_generation_memory *memory,
                                     reef_error *err) {
    reef_kind_head *head;
    reef_status status = find_or_add(trainer, kind, &head, err);
    if (status != REEF_OK) return status;
    reef_generation_memory_release(&head->visit.memory);
    reef_generation_memory_move(&head->visit.memory, memory);
    head->visit.memory.adopted = true; // written as tables, which stand by themselves
    head->visit.memory.tail_bytes = 0;
    note_learned(trainer, head);
    return REEF_OK;
}

bool reef_kind_is_committed_as(const reef_trainer *trainer,
                               uint32_t kind,
                               const uint8_t chain[REEF_HASH_BYTES]) {
    const reef_kind_head *head = reef_kind_head_find(trainer, kind);
    return head == NULL || !reef_kind_head_came_back(head) || head->visit.merged ||
           memcmp(head->visit.chain, chain, REEF_HASH_BYTES) == 0;
}

// ---- boundaries ---------------------------------------------------------------------------------

// The sealed visit holds the tail alone: learned again, it gives the memory as it is now.
static reef_status seal_visit(reef_visit *out, const reef_visit *head, reef_error *err) {
    *out = (reef_visit){
        .kind = head->kind, .learned = head->learned, .next = head->next, .merged = head->merged};
    memcpy(out->chain, head->chain, sizeof(out->chain));
    out->memory.tail = malloc(head->memory.tail_bytes + 1);
    if (out->memory.tail == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a visit of %zu bytes",
                         head->memory.tail_bytes);
    if (head->memory.tail_bytes > 0)
        memcpy(out->memory.tail, head->memory.tail, head->memory.tail_bytes);
    out->memory.tail_bytes = out->memory.tail_capacity = head->memory.tail_bytes;
    return REEF_OK;
}

reef_status reef_kinds_seal_visits(reef_trainer *trainer,
                                   reef_generation *sealed,
                                   reef_error *err) {
    sealed->visits = calloc(trainer->kinds.head_count + 1, sizeof(*sealed->visits));
    if (sealed->visits == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits",
                         trainer->kinds.head_count);
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        reef_kind_head *head = &trainer->kinds.heads[i];
        if (!head->in_open_generation) continue;
        reef_status status = seal_visit(&sealed->visits[sealed->visit_count++], &head->visit, err);
        if (status != REEF_OK) return status;
        head->in_open_generation = false;
        head->visit.memory.tail_bytes = 0;
    }
    return REEF_OK;
}

// ---- commits ------------------------------------------------------------------------------------

reef_status reef_kinds_write_all_next(reef_trainer *trainer, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < trainer->kinds.head_count; i++) {
        reef_kind_head *head = &trainer->kinds.heads[i];
        if (!head->in_open_generation || head->visit.merged) continue;
        status = loaded_head(trainer, head->visit.kind, &head, err);
        // As tables, which stand by themselves. Not released before they are written.
        if (status == REEF_OK) head->visit.memory.adopted = true;
        head->stored = false;
    }
    return status;
}

reef_status reef_kinds_put_visits(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    size_t count = 0;
    if (trainer->kinds.head_count == 0) return REEF_OK;
    reef_visit **visits = calloc(trainer->kinds.head_count, sizeof(*visits));
    if (visits == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits",
                         trainer->kinds.head_count);
    for (size_t i = 0; i < trainer->kinds.head_count; i++)
        if (trainer->kinds.heads[i].in_open_generation)
            visits[count++] = &trainer->kinds.heads[i].visit;
    reef_status status = reef_checkpoint_put_visits(
        txn, reef_open_generation(trainer)->info.generation, visits, count, err);
    free(visits);
    return status;
}

bool reef_kinds_rest(reef_trainer *trainer) {
    reef_generation_memory *open = &reef_open_generation(trainer)->memory;
    reef_generation_memory_rest(open);
    bool due = reef_generation_memory_is_due(open);
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        reef_kind_head *head = &trainer->kinds.heads[i];
        if (!head->in_open_generation) continue;
        reef_generation_memory_rest(&head->visit.memory);
        due |= reef_generation_memory_is_due(&head->visit.memory);
    }
    return due;
}

void reef_kinds_take_slices(reef_trainer *trainer) {
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        reef_visit *visit = &trainer->kinds.heads[i].visit;
        reef_generation *sealed = trainer->network.generations[visit->kind];
        reef_generation_memory *m = &visit->memory;
        if (sealed->stored || m->memory == NULL || m->slices != NULL || m->slices_put != NULL ||
            !reef_memory_slices_in_turns(sealed->memory.slices_put))
            continue;
        m->slices = sealed->memory.slices_put;
        m->slices->open = m->slices->log_count;
        sealed->memory.slices_put = NULL;
    }
}

void reef_kinds_note_commit(reef_trainer *trainer) {
    for (size_t i = 0; i < trainer->kinds.head_count; i++) {
        reef_kind_head *head = &trainer->kinds.heads[i];
        head->stored = true;
        if (head->in_open_generation) reef_generation_memory_settle(&head->visit.memory);
    }
    make_room(trainer, LAST_STAY);
}

void reef_kinds_release(reef_trainer *trainer) {
    for (size_t i = 0; i < trainer->kinds.head_count; i++)
        reef_generation_memory_release(&trainer->kinds.heads[i].visit.memory);
    free(trainer->kinds.heads);
    trainer->kinds.heads = NULL;
    trainer->kinds.head_count = 0;
}
