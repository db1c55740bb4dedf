// Two kinds whose memories predict each other become one, on command.
//
// Tables of two memories cannot be made one. But a memory keeps the
// end of its stream as text, and that is all of it where a kind is small: the other one learns it
// again. What that costs is measured before, on the end of either text, by memories that are made
// for it: two that learned a text each, and answer as kinds do, and one that learned both.
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "memory_texts.h"
#include "recognition.h"
#include "reef_kinds.h"

#include <inttypes.h>
#include <stdlib.h>

#define TEXT_MAX ((size_t)1 << 20) // bytes of each text that memories for measuring learn

// ---- may they? ----------------------------------------------------------------------------------

static reef_status check_kind(const reef_trainer *trainer, uint32_t kind, reef_error *err) {
    const reef_network *network = &trainer->network;
    uint32_t into;
    if (kind >= network->generation_count ||
        !reef_generation_begins_kind(&network->generations[kind]->info))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no kind %" PRIu32, kind);
    if ((size_t)kind + 1 == network->generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the generation of kind %" PRIu32 " is open: seal it first", kind);
    if (reef_kind_is_merged(trainer, kind, &into))
        return reef_fail(err, REEF_ERR_INVALID,
                         "kind %" PRIu32 " was merged into kind %" PRIu32 " already", kind, into);
    return REEF_OK;
}

static reef_status check_mergeable(const reef_trainer *trainer,
                                   uint32_t from,
                                   uint32_t into,
                                   reef_error *err) {
    if (!reef_recognises_by_contexts(trainer))
        return reef_fail(err, REEF_ERR_INVALID,
                         "kinds are merged in pools with context memories and --boundaries "
                         "contexts");
    if (from == into)
        return reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " is the same kind", from);
    reef_status status = check_kind(trainer, from, err);
    return status == REEF_OK ? check_kind(trainer, into, err) : status;
}

// ---- what it costs ------------------------------------------------------------------------------

static reef_status read_text(
    reef_trainer *trainer, uint32_t kind, reef_kept_text *out, uint64_t *learned, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status != REEF_OK) return status;
    if (memory == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " has learned nothing", kind);
    *learned = reef_memory_learned_bytes(memory);
    return reef_kept_text_read(out, memory, err);
}

// What reads the end of a text: memories of what precedes that end, of the other kind's text, and
// of both texts.
typedef struct trial {
    reef_generation_memory own, other, both;
} trial;

typedef struct end_cost {
    double apart, together; // bits per byte
} end_cost;

// What the end of `own` costs. The memory of both texts learns that of `own` up to the end before
// or after the other one: `from` stands last, as it is learned last when kinds are merged.
static reef_status measure_end_of(const reef_kept_text *own,
                                  const reef_kept_text *other,
                                  bool own_first,
                                  uint64_t bytes_max,
                                  end_cost *out,
                                  reef_error *err) {
    reef_kept_text begin, end;
    reef_kept_text_split(own, &begin, &end);
    double bytes = (double)(end.count > 0 ? end.count : 1), apart = 0.0, together = 0.0;
    trial t = {0};
    const reef_kept_text *first = own_first ? &begin : other, *second = own_first ? other : &begin;
    reef_status status = reef_kept_text_learn(&t.own, bytes_max, &begin, err);
    if (status == REEF_OK) status = reef_kept_text_learn(&t.other, bytes_max, other, err);
    if (status == REEF_OK) status = reef_kept_text_learn(&t.both, bytes_max, first, err);
    if (status == REEF_OK) status = reef_kept_text_learn(&t.both, bytes_max, second, err);
    const reef_memory *const memories[2] = {t.own.memory, t.other.memory};
    if (status == REEF_OK) status = reef_kept_text_apart(memories, 2, &end, &apart, err);
    if (status == REEF_OK) status = reef_kept_text_together(t.both.memory, &end, &together, err);
    reef_generation_memory_release(&t.own);
    reef_generation_memory_release(&t.other);
    reef_generation_memory_release(&t.both);
    *out = (end_cost){.apart = apart / bytes, .together = together / bytes};
    return status;
}

static reef_status measure_both(reef_kind_merging *m,
                                const reef_kept_text *from,
                                const reef_kept_text *into,
                                uint64_t bytes_max,
                                reef_error *err) {
    const reef_kept_text a = reef_kept_text_last(from, TEXT_MAX),
                         b = reef_kept_text_last(into, TEXT_MAX);
    end_cost of_from, of_into;
    reef_status status = measure_end_of(&a, &b, false, bytes_max, &of_from, err);
    if (status == REEF_OK) status = measure_end_of(&b, &a, true, bytes_max, &of_into, err);
    if (status != REEF_OK) return status;
    m->from_apart = of_from.apart;
    m->from_together = of_from.together;
    m->into_apart = of_into.apart;
    m->into_together = of_into.together;
    return REEF_OK;
}

// ---- the merge itself
// ----------------------------------------------------------------------------

static reef_status merge_and_commit(reef_trainer *trainer,
                                    const reef_kind_merging *m,
                                    const reef_kept_text *from,
                                    reef_error *err) {
    reef_status status = reef_trainer_commit(trainer, NULL, err); // nothing depends on when
    if (status != REEF_OK) return status;
    status = reef_recognition_learn_text(trainer, m->into, from->bytes, from->count, err);
    if (status == REEF_OK) status = reef_kind_mark_merged(trainer, m->from, m->into, err);
    if (status == REEF_OK)
        status = reef_state_event(
            trainer, err, "kind_merge",
            "\"from\": %" PRIu32 ", \"into\": %" PRIu32 ", \"text_bytes\": %" PRIu64
            ", \"from_apart\": %.4f, \"from_together\": %.4f, \"into_apart\": %.4f, "
            "\"into_together\": %.4f",
            m->from, m->into, m->text_bytes, m->from_apart, m->from_together, m->into_apart,
            m->into_together);
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status); // half of it must not be committed
        return status;
    }
    if (trainer->kinds.current == m->from) trainer->kinds.current = m->into;
    trainer->kinds.levels[m->from] = (reef_kind_level){0};
    // Deferred pieces are tested again, with the kinds that are left.
    trainer->stream.deferred_batches = 0;
    reef_recognition_forget(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}

reef_status reef_trainer_kind_merge(reef_trainer *trainer,
                                    uint32_t from,
                                    uint32_t into,
                                    bool dry_run,
                                    reef_kind_merging *out,
                                    reef_error *err) {
    reef_kept_text texts[2] = {{0}, {0}};
    *out = (reef_kind_merging){.from = from, .into = into};
    reef_status status = check_mergeable(trainer, from, into, err);
    if (status == REEF_OK) status = read_text(trainer, from, &texts[0], &out->from_bytes, err);
    if (status == REEF_OK) status = read_text(trainer, into, &texts[1], &out->into_bytes, err);
    out->text_bytes = texts[0].count;
    if (status == REEF_OK)
        status =
            measure_both(out, &texts[0], &texts[1], trainer->network.config.context_memory, err);
    if (status == REEF_OK && !dry_run) status = merge_and_commit(trainer, out, &texts[0], err);
    free(texts[0].bytes);
    free(texts[1].bytes);
    return status;
}
