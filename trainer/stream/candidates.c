// See candidates.h.
#include "candidates.h"
#include "kind_memories.h"

#include <stdlib.h>
#include <string.h>

#define LATEST 8 // that learned last
#define NAMED 8  // that the first text names

void reef_candidates_release(reef_candidates *c) {
    reef_kind_vote_free(c->vote);
    free(c->voted_at);
    *c = (reef_candidates){0};
}

static bool is_other_kind(const reef_trainer *trainer, uint32_t kind) {
    return kind != trainer->kinds.current && !reef_kind_is_merged(trainer, kind, NULL) &&
           reef_is_kind(trainer, kind);
}

static void add(reef_candidates *c, uint32_t kind) {
    for (size_t i = 0; i < c->count; i++)
        if (c->kinds[i] == kind) return;
    if (c->count < REEF_CANDIDATES_MAX) c->kinds[c->count++] = kind;
}

// ---- those that learned last --------------------------------------------------------------------

static int latest_first(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (x[0] < y[0]) - (x[0] > y[0]);
}

static reef_status add_latest(reef_candidates *c,
                              const reef_trainer *trainer,
                              size_t *others,
                              reef_error *err) {
    size_t count = trainer->network.generation_count;
    uint64_t(*all)[2] = calloc(count, sizeof(*all));
    *others = 0;
    if (all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu kinds", count);
    for (size_t g = 0; g < count; g++) {
        if (!is_other_kind(trainer, (uint32_t)g)) continue;
        all[*others][0] = reef_kind_last_learned_at(trainer, (uint32_t)g);
        all[(*others)++][1] = g;
    }
    qsort(all, *others, sizeof(*all), latest_first);
    size_t taken = *others <= LATEST + NAMED ? *others : LATEST;
    for (size_t i = 0; i < taken; i++) add(c, (uint32_t)all[i][1]);
    free(all);
    return REEF_OK;
}

// ---- those that the text names ------------------------------------------------------------------

// A vote of as large a sample as the number of generations asks for. While all kinds are candidates
// it only says which one is asked first; a small sample does that, and takes less time where kinds
// take turns.
static reef_status prepare_vote(reef_candidates *c, const reef_trainer *trainer, reef_error *err) {
    bool few = trainer->network.generation_count <= LATEST + NAMED;
    uint32_t sample = few ? REEF_KIND_SAMPLE_SMALL : REEF_KIND_SAMPLE;
    if (c->vote != NULL && c->sample == sample) return REEF_OK;
    reef_kind_vote *vote;
    reef_status status = reef_kind_vote_new(&vote, sample, err);
    if (status != REEF_OK) return status;
    reef_kind_vote_free(c->vote);
    c->vote = vote;
    c->sample = sample;
    for (size_t g = 0; g < c->voter_count; g++) c->voted_at[g] = 0;
    return REEF_OK;
}

static reef_status reserve(reef_candidates *c, const reef_trainer *trainer, reef_error *err) {
    size_t count = trainer->network.generation_count;
    reef_status status = prepare_vote(c, trainer, err);
    if (status != REEF_OK || count <= c->voter_count) return status;
    uint64_t *voted_at = realloc(c->voted_at, count * sizeof(*voted_at));
    if (voted_at == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu kinds", count);
    memset(voted_at + c->voter_count, 0, (count - c->voter_count) * sizeof(*voted_at));
    c->voted_at = voted_at;
    c->voter_count = count;
    return REEF_OK;
}

// The text of each other kind as it rests, and none of the current one, which is learning.
static reef_status refresh(reef_candidates *c, reef_trainer *trainer, reef_error *err) {
    reef_status status = reserve(c, trainer, err);
    for (uint32_t g = 0; status == REEF_OK && g < trainer->network.generation_count; g++) {
        uint64_t now = is_other_kind(trainer, g) ? reef_kind_last_learned_at(trainer, g) : 0;
        if (now == c->voted_at[g]) continue;
        const reef_memory *memory = NULL;
        if (now > 0) status = reef_kind_load_memory(trainer, g, &memory, err);
        if (status == REEF_OK) status = reef_kind_vote_set(c->vote, g, memory, err);
        if (status == REEF_OK) c->voted_at[g] = now;
    }
    return status;
}

static reef_status add_named(reef_candidates *c,
                             reef_trainer *trainer,
                             const uint8_t *text,
                             size_t count,
                             size_t max,
                             reef_error *err) {
    uint32_t named[NAMED];
    reef_status status = refresh(c, trainer, err);
    if (status != REEF_OK) return status;
    size_t found = reef_kind_vote_count(c->vote, text, count, 0.0, named, max);
    for (size_t i = 0; i < found; i++) add(c, named[i]);
    return REEF_OK;
}

reef_status reef_candidates_first(reef_candidates *c,
                                  reef_trainer *trainer,
                                  const uint8_t *text,
                                  size_t count,
                                  uint32_t *kind,
                                  bool *any,
                                  reef_error *err) {
    *any = false;
    reef_status status = refresh(c, trainer, err);
    if (status == REEF_OK) *any = reef_kind_vote_count(c->vote, text, count, 0.0, kind, 1) == 1;
    return status;
}

reef_status reef_candidates_choose(
    reef_candidates *c, reef_trainer *trainer, const uint8_t *text, size_t count, reef_error *err) {
    size_t others;
    c->count = 0;
    reef_status status = add_latest(c, trainer, &others, err);
    c->are_all = status == REEF_OK && c->count == others;
    return status != REEF_OK || c->are_all ? status
                                           : add_named(c, trainer, text, count, NAMED, err);
}

reef_status reef_candidates_add(
    reef_candidates *c, reef_trainer *trainer, const uint8_t *text, size_t count, reef_error *err) {
    return c->are_all || c->count == REEF_CANDIDATES_MAX
               ? REEF_OK
               : add_named(c, trainer, text, count, REEF_CANDIDATES_MORE, err);
}
