// Which kinds are so much alike that they may better be one? What is found here is only near by its
// contexts; what merging costs is measured for two kinds at a time (merge_kind.c).
#include "kind_memories.h"
#include "recognition.h"
#include "reef_kind_vote.h"
#include "reef_kinds.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE_BYTES 2048 // the end of each kind's text: a piece, as levels are of pieces
#define VOTING_BYTES 256  // of them vote at a time
#define NAMED_MAX 4       // kinds by each vote, its own among them

typedef struct sample {
    uint8_t bytes[SAMPLE_BYTES];
    size_t count; // 0: the kind is open, was merged, or is too short
    uint64_t learned;
} sample;

typedef struct kind_pair {
    uint32_t kinds[2];
    int32_t known[2]; // of the other one's text, by each
} kind_pair;

typedef struct near_search {
    reef_trainer *trainer;
    size_t kind_count;
    sample *samples; // (kind_count)
    reef_kind_vote *vote;
    kind_pair *pairs; // none twice
    size_t pair_count;
} near_search;

// Merged kinds have no memory any more.
static bool has_level(const reef_trainer *trainer, uint32_t kind) {
    return kind < trainer->kinds.level_count && trainer->kinds.levels[kind].pieces > 0 &&
           reef_is_kind(trainer, kind);
}

static reef_status take_samples(near_search *s, reef_error *err) {
    reef_status status = REEF_OK;
    // The last generation is open.
    for (uint32_t kind = 0; status == REEF_OK && kind + 1 < s->kind_count; kind++) {
        const reef_memory *memory = NULL;
        if (!has_level(s->trainer, kind)) continue;
        status = reef_kind_load_memory(s->trainer, kind, &memory, err);
        if (status != REEF_OK || memory == NULL) continue;
        sample *own = &s->samples[kind];
        own->count = reef_memory_text(memory, own->bytes, SAMPLE_BYTES);
        own->learned = reef_memory_learned_bytes(memory);
        if (own->count < SAMPLE_BYTES) own->count = 0;
        if (own->count > 0) status = reef_kind_vote_set(s->vote, kind, memory, err);
    }
    return status;
}

static reef_status add_pair(near_search *s, uint32_t a, uint32_t b, reef_error *err) {
    const kind_pair added = {.kinds = {a < b ? a : b, a < b ? b : a}};
    for (size_t i = 0; i < s->pair_count; i++)
        if (memcmp(s->pairs[i].kinds, added.kinds, sizeof(added.kinds)) == 0) return REEF_OK;
    kind_pair *pairs = realloc(s->pairs, (s->pair_count + 1) * sizeof(*pairs));
    if (pairs == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu pairs of kinds",
                         s->pair_count);
    s->pairs = pairs;
    pairs[s->pair_count++] = added;
    return REEF_OK;
}

static reef_status find_pairs(near_search *s, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t kind = 0; kind < s->kind_count; kind++) {
        const sample *own = &s->samples[kind];
        for (size_t at = 0; status == REEF_OK && at < own->count; at += VOTING_BYTES) {
            uint32_t named[NAMED_MAX];
            size_t count =
                reef_kind_vote_count(s->vote, own->bytes + at, VOTING_BYTES, 0.0, named, NAMED_MAX);
            for (size_t i = 0; status == REEF_OK && i < count; i++)
                if (named[i] != kind) status = add_pair(s, kind, named[i], err);
        }
    }
    return status;
}

// Kind after kind, so that each memory is read once, however few fit at a time.
static reef_status score_pairs(near_search *s, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t kind = 0; status == REEF_OK && kind < s->kind_count; kind++) {
        const reef_memory *memory = NULL;
        if (s->samples[kind].count > 0)
            status = reef_kind_load_memory(s->trainer, kind, &memory, err);
        for (size_t i = 0; status == REEF_OK && i < s->pair_count; i++) {
            kind_pair *p = &s->pairs[i];
            for (size_t k = 0; k < 2; k++) {
                const sample *other = &s->samples[p->kinds[1 - k]];
                if (p->kinds[k] == kind)
                    p->known[k] = reef_memory_familiarity(memory, other->bytes, other->count);
            }
        }
    }
    return status;
}

static reef_near_kinds near_of_pair(const near_search *s, const kind_pair *p) {
    const reef_kind_level *levels = s->trainer->kinds.levels;
    uint32_t a = p->kinds[0], b = p->kinds[1];
    // How much less familiar the other one's text is to a kind than its own: the mean of both
    // directions, in bits.
    double less = levels[b].mean - (double)p->known[0] + levels[a].mean - (double)p->known[1];
    bool a_is_less = s->samples[a].learned < s->samples[b].learned;
    return (reef_near_kinds){.from = a_is_less ? a : b,
                             .into = a_is_less ? b : a,
                             .distance = less / (2.0 * REEF_FAMILIARITY_PER_BIT)};
}

static int nearest_first(const void *a, const void *b) {
    const reef_near_kinds *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->into > y->into) - (x->into < y->into);
}

static reef_status rank_pairs(
    const near_search *s, reef_near_kinds *out, size_t max, size_t *count, reef_error *err) {
    reef_near_kinds *all = calloc(s->pair_count + 1, sizeof(*all));
    if (all == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu pairs of kinds",
                         s->pair_count);
    for (size_t i = 0; i < s->pair_count; i++) all[i] = near_of_pair(s, &s->pairs[i]);
    qsort(all, s->pair_count, sizeof(*all), nearest_first);
    *count = s->pair_count < max ? s->pair_count : max;
    memcpy(out, all, *count * sizeof(*all));
    free(all);
    return REEF_OK;
}

reef_status reef_trainer_near_kinds(
    reef_trainer *trainer, reef_near_kinds *out, size_t max, size_t *count, reef_error *err) {
    near_search s = {.trainer = trainer, .kind_count = trainer->network.generation_count};
    *count = 0;
    if (!reef_recognises_by_contexts(trainer))
        return reef_fail(err, REEF_ERR_INVALID,
                         "kinds are near each other in pools with context memories and "
                         "--boundaries contexts");
    s.samples = calloc(s.kind_count, sizeof(*s.samples));
    if (s.samples == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for samples of %zu kinds",
                         s.kind_count);
    reef_status status = reef_kind_vote_new(&s.vote, REEF_KIND_SAMPLE, err);
    if (status == REEF_OK) status = take_samples(&s, err);
    if (status == REEF_OK) status = find_pairs(&s, err);
    if (status == REEF_OK) status = score_pairs(&s, err);
    if (status == REEF_OK) status = rank_pairs(&s, out, max, count, err);
    free(s.samples);
    free(s.pairs);
    reef_kind_vote_free(s.vote);
    return status;
}
