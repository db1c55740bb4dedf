// Two kinds whose memories predict each other become one, on command.
//
// Tables of two memories cannot be made one (consolidate/distil_memory.c). But a memory keeps the
// end of its stream as text, and that is all of it where a kind is small: the other one learns it
// again. What that costs is measured before, on the end of either text, by memories that are made
// for it: two that learned a text each, and answer as kinds do, and one that learned both.
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "posterior.h"
#include "recall.h"
#include "recognition.h"
#include "reef_kinds.h"

#include <inttypes.h>
#include <stdlib.h>

#define TEXT_MAX ((size_t)1 << 20) // bytes of each text that memories for measuring learn
#define ENDS_MAX ((size_t)1 << 16) // of these, at most a quarter, that are measured

typedef struct kind_text {
    uint8_t *bytes; // owned
    size_t count;
} kind_text;

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
    if (reef_kinds_is_merged(trainer, kind, &into))
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
                         "contexts; elsewhere generations are consolidated");
    if (from == into)
        return reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " is the same kind", from);
    reef_status status = check_kind(trainer, from, err);
    return status == REEF_OK ? check_kind(trainer, into, err) : status;
}

// ---- what it costs ------------------------------------------------------------------------------

static reef_status read_text(
    reef_trainer *trainer, uint32_t kind, kind_text *out, uint64_t *learned, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kinds_memory(trainer, kind, &memory, err);
    if (status != REEF_OK) return status;
    if (memory == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " has learned nothing", kind);
    *learned = reef_memory_learned_bytes(memory);
    out->count = reef_memory_text(memory, NULL, 0);
    out->bytes = malloc(out->count + 1);
    if (out->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of text", out->count);
    (void)reef_memory_text(memory, out->bytes, out->count);
    return REEF_OK;
}

static kind_text last_of(const kind_text *from, size_t max) {
    size_t count = from->count < max ? from->count : max;
    return (kind_text){from->bytes + from->count - count, count};
}

// Without its end, on which memories are measured.
static kind_text beginning_of(const kind_text *from, const kind_text *end) {
    return (kind_text){from->bytes, from->count - end->count};
}

// A memory that is made for measuring, and a session of it.
typedef struct trial_memory {
    reef_generation_memory memory;
    reef_memory_session *session;
} trial_memory;

// What reads the end of a text: memories of what precedes that end, of the other kind's text, and
// of both texts.
typedef struct trial {
    trial_memory own, other, both;
} trial;

// The two memories of one text each answer as kinds of a pool do: each by how well it predicted so
// far.
static reef_status read_apart(const trial *t, const kind_text *end, double *bits, reef_error *err) {
    reef_memory_session *const sessions[2] = {t->own.session, t->other.session};
    reef_posterior posterior = {0};
    reef_status status = REEF_OK;
    for (uint32_t k = 0; k < 2; k++) reef_posterior_join(&posterior, k, NULL, 0);
    reef_posterior_joined(&posterior);
    for (size_t i = 0; status == REEF_OK && i < end->count; i++) {
        float each[2];
        for (size_t k = 0; status == REEF_OK && k < 2; k++) {
            reef_memory_session_set_learning(sessions[k],
                                             posterior.weights[k] >= REEF_RECALL_ADAPT_WEIGHT);
            status = reef_memory_session_read(sessions[k], end->bytes + i, 1, NULL, &each[k], err);
        }
        if (status == REEF_OK) *bits += reef_posterior_read(&posterior, each);
    }
    return status;
}

// The memory of both texts answers alone.
static reef_status read_together(const trial *t,
                                 const kind_text *end,
                                 double *bits,
                                 reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < end->count; i++) {
        float surprise = 0.0f;
        status = reef_memory_session_read(t->both.session, end->bytes + i, 1, NULL, &surprise, err);
        *bits += (double)surprise;
    }
    return status;
}

// Let a new memory learn one or two texts, and open a session of it.
static reef_status learn_texts(trial_memory *out,
                               uint64_t bytes_max,
                               const kind_text *first,
                               const kind_text *second,
                               reef_error *err) {
    reef_generation_memory *memory = &out->memory;
    reef_status status = reef_generation_memory_learn(memory, bytes_max, 0, first->bytes,
                                                      first->count, NULL, NULL, err);
    if (status == REEF_OK && second != NULL)
        status = reef_generation_memory_learn(memory, bytes_max, memory->next, second->bytes,
                                              second->count, NULL, NULL, err);
    return status == REEF_OK ? reef_memory_session_open(&out->session, memory->memory, false, err)
                             : status;
}

static void release_trial_memory(trial_memory *m) {
    reef_memory_session_close(m->session);
    reef_generation_memory_release(&m->memory);
}

typedef struct end_cost {
    double apart, together; // bits per byte
} end_cost;

// What the end of `own` costs. The memory of both texts learns that of `own` up to the end before
// or after the other one: `from` stands last, as it is learned last when kinds are merged.
static reef_status measure_end_of(const kind_text *own,
                                  const kind_text *other,
                                  bool own_first,
                                  uint64_t bytes_max,
                                  end_cost *out,
                                  reef_error *err) {
    size_t quarter = own->count / 4 < ENDS_MAX ? own->count / 4 : ENDS_MAX;
    const kind_text end = last_of(own, quarter), begin = beginning_of(own, &end);
    double bytes = (double)(end.count > 0 ? end.count : 1), apart = 0.0, together = 0.0;
    trial t = {0};
    reef_status status = learn_texts(&t.own, bytes_max, &begin, NULL, err);
    if (status == REEF_OK) status = learn_texts(&t.other, bytes_max, other, NULL, err);
    if (status == REEF_OK)
        status = learn_texts(&t.both, bytes_max, own_first ? &begin : other,
                             own_first ? other : &begin, err);
    if (status == REEF_OK) status = read_apart(&t, &end, &apart, err);
    if (status == REEF_OK) status = read_together(&t, &end, &together, err);
    release_trial_memory(&t.own);
    release_trial_memory(&t.other);
    release_trial_memory(&t.both);
    *out = (end_cost){.apart = apart / bytes, .together = together / bytes};
    return status;
}

static reef_status measure_both(reef_kind_merging *m,
                                const kind_text *from,
                                const kind_text *into,
                                uint64_t bytes_max,
                                reef_error *err) {
    const kind_text a = last_of(from, TEXT_MAX), b = last_of(into, TEXT_MAX);
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
                                    const kind_text *from,
                                    reef_error *err) {
    reef_status status = reef_trainer_commit(trainer, NULL, err); // nothing depends on when
    if (status != REEF_OK) return status;
    status = reef_recognition_learn_text(trainer, m->into, from->bytes, from->count, err);
    if (status == REEF_OK) status = reef_kinds_mark_merged(trainer, m->from, m->into, err);
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
    if (trainer->current_kind == m->from) trainer->current_kind = m->into;
    trainer->levels[m->from] = (reef_familiarity_level){0};
    // Deferred pieces are tested again, with the kinds that are left.
    trainer->deferred_batches = 0;
    reef_recognition_forget(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}

reef_status reef_trainer_kind_merge(reef_trainer *trainer,
                                    uint32_t from,
                                    uint32_t into,
                                    bool dry_run,
                                    reef_kind_merging *out,
                                    reef_error *err) {
    kind_text texts[2] = {{0}, {0}};
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
