// Two kinds become one, on command. Tables of two memories cannot be made one. But a memory keeps
// the end of its stream as text, and that is all of it where a kind is small: the other one learns
// it again. What that costs is measured before, on the end of either text, by memories that are
// made for it: two that learned a text each, and answer as kinds do, and one that learned both.
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "merge_small.h"
#include "posterior.h"
#include "recall.h"
#include "recognition.h"
#include "reef_exchange.h"
#include "reef_kinds.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define TEXT_MAX ((size_t)1 << 20) // bytes of each text that memories for measuring learn
#define END_MAX ((size_t)1 << 16)  // of its end, which is measured

// ---- may they? ----------------------------------------------------------------------------------

static reef_status check_kind(const reef_trainer *trainer, uint32_t kind, reef_error *err) {
    uint32_t into;
    reef_status status = reef_check_kind(trainer, kind, err);
    if (status != REEF_OK) return status;
    if (kind == reef_open_generation(trainer)->info.generation)
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

// ---- texts that memories keep -------------------------------------------------------------------

// The end of what a memory learned.
typedef struct kept_text {
    uint8_t *bytes; // owned where it was read; elsewhere a view of one that was
    size_t count;
} kept_text;

// A view of its last bytes, `max` at most.
static kept_text last_of(const kept_text *text, size_t max) {
    size_t count = text->count < max ? text->count : max;
    return (kept_text){text->bytes + text->count - count, count};
}

// Views of what is measured, its last quarter but at most END_MAX, and of what precedes that.
static void split(const kept_text *text, kept_text *begin, kept_text *end) {
    *end = last_of(text, text->count / 4 < END_MAX ? text->count / 4 : END_MAX);
    *begin = (kept_text){text->bytes, text->count - end->count};
}

static reef_status learn(reef_generation_memory *memory,
                         uint64_t bytes_max,
                         const kept_text *text,
                         reef_error *err) {
    return reef_generation_memory_learn(memory, bytes_max, memory->next, text->bytes, text->count,
                                        NULL, NULL, err);
}

static reef_status read_apart(reef_memory_session *const *sessions,
                              size_t count,
                              const kept_text *text,
                              double *bits,
                              reef_error *err) {
    reef_posterior posterior = {0};
    reef_status status = REEF_OK;
    for (uint32_t k = 0; k < count; k++) reef_posterior_join(&posterior, k, NULL, 0);
    reef_posterior_joined(&posterior);
    for (size_t i = 0; status == REEF_OK && i < text->count; i++) {
        float each[REEF_RUNNING_MAX];
        for (size_t k = 0; status == REEF_OK && k < count; k++) {
            reef_memory_session_set_learning(sessions[k],
                                             posterior.weights[k] >= REEF_RECALL_ADAPT_WEIGHT);
            status = reef_memory_session_read(sessions[k], text->bytes + i, 1, NULL, &each[k], err);
        }
        if (status == REEF_OK) *bits += reef_posterior_read(&posterior, each);
    }
    return status;
}

// What a text costs by memories that answer as kinds of a pool do: each by how well it predicted so
// far.
static reef_status cost_apart(const reef_memory *const *memories,
                              size_t count,
                              const kept_text *text,
                              double *bits,
                              reef_error *err) {
    reef_memory_session *sessions[REEF_RUNNING_MAX] = {NULL};
    reef_status status = REEF_OK;
    assert(count <= REEF_RUNNING_MAX);
    *bits = 0.0;
    for (size_t k = 0; status == REEF_OK && k < count; k++)
        status = reef_memory_session_open(&sessions[k], memories[k], REEF_READ_ADAPTING, err);
    if (status == REEF_OK) status = read_apart(sessions, count, text, bits, err);
    for (size_t k = 0; k < count; k++) reef_memory_session_close(sessions[k]);
    return status;
}

// The same by one memory, which answers alone.
static reef_status cost_together(const reef_memory *memory,
                                 const kept_text *text,
                                 double *bits,
                                 reef_error *err) {
    reef_memory_session *session = NULL;
    reef_status status = reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, err);
    *bits = 0.0;
    for (size_t i = 0; status == REEF_OK && i < text->count; i++) {
        float surprise = 0.0f;
        status = reef_memory_session_read(session, text->bytes + i, 1, NULL, &surprise, err);
        *bits += (double)surprise;
    }
    reef_memory_session_close(session);
    return status;
}

// ---- what it costs ------------------------------------------------------------------------------

static reef_status read_text(
    reef_trainer *trainer, uint32_t kind, kept_text *out, uint64_t *learned, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status != REEF_OK) return status;
    if (memory == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " has learned nothing", kind);
    *learned = reef_memory_learned_bytes(memory);
    return reef_trainer_kind_text(trainer, kind, UINT64_MAX, &out->bytes, &out->count, err);
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
static reef_status measure_end_of(const kept_text *own,
                                  const kept_text *other,
                                  bool own_first,
                                  uint64_t bytes_max,
                                  end_cost *out,
                                  reef_error *err) {
    kept_text begin, end;
    split(own, &begin, &end);
    double bytes = (double)(end.count > 0 ? end.count : 1), apart = 0.0, together = 0.0;
    trial t = {0};
    const kept_text *first = own_first ? &begin : other, *second = own_first ? other : &begin;
    reef_status status = learn(&t.own, bytes_max, &begin, err);
    if (status == REEF_OK) status = learn(&t.other, bytes_max, other, err);
    if (status == REEF_OK) status = learn(&t.both, bytes_max, first, err);
    if (status == REEF_OK) status = learn(&t.both, bytes_max, second, err);
    const reef_memory *const memories[2] = {t.own.memory, t.other.memory};
    if (status == REEF_OK) status = cost_apart(memories, 2, &end, &apart, err);
    if (status == REEF_OK) status = cost_together(t.both.memory, &end, &together, err);
    reef_generation_memory_release(&t.own);
    reef_generation_memory_release(&t.other);
    reef_generation_memory_release(&t.both);
    *out = (end_cost){.apart = apart / bytes, .together = together / bytes};
    return status;
}

static reef_status measure_both(reef_kind_merging *m,
                                const kept_text *from,
                                const kept_text *into,
                                uint64_t bytes_max,
                                reef_error *err) {
    const kept_text a = last_of(from, TEXT_MAX), b = last_of(into, TEXT_MAX);
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

// ---- the merge itself ---------------------------------------------------------------------------

static reef_status merge_and_commit(reef_trainer *trainer,
                                    const reef_kind_merging *m,
                                    const kept_text *from,
                                    reef_error *err) {
    reef_status status = reef_trainer_commit(trainer, NULL, err); // nothing depends on when
    if (status == REEF_OK)
        status = reef_kind_merge_text(trainer, m->from, m->into, from->bytes, from->count, err);
    if (status != REEF_OK) return status;
    status = reef_state_event(trainer, err, "kind_merge",
                              "\"reason\": \"command\", \"from\": %" PRIu32 ", \"into\": %" PRIu32
                              ", \"text_bytes\": %" PRIu64
                              ", \"from_apart\": %.4f, \"from_together\": %.4f, "
                              "\"into_apart\": %.4f, \"into_together\": %.4f",
                              m->from, m->into, m->text_bytes, m->from_apart, m->from_together,
                              m->into_apart, m->into_together);
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status);
        return status;
    }
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
    kept_text texts[2] = {{0}, {0}};
    *out = (reef_kind_merging){.from = from, .into = into};
    reef_status status = check_mergeable(trainer, from, into, err);
    if (status == REEF_OK) status = read_text(trainer, from, &texts[0], &out->from_bytes, err);
    if (status == REEF_OK) status = read_text(trainer, into, &texts[1], &out->into_bytes, err);
    out->text_bytes = texts[0].count;
    if (status == REEF_OK)
        status = measure_both(out, &texts[0], &texts[1], trainer->network.config.memory, err);
    if (status == REEF_OK && !dry_run) status = merge_and_commit(trainer, out, &texts[0], err);
    free(texts[0].bytes);
    free(texts[1].bytes);
    return status;
}
