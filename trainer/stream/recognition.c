// See recognition.h.
//
// Two cumulative sums (CUSUM: Page 1954) run over the deferred pieces:
//
//   lead         one for each candidate: by how much it knows the pieces better than the current
//                kind. Where it has risen by more than SWITCH_LEAD above its minimum, the current
//                kind switches to the candidate.
//   strangeness  one: how far the pieces are below the current kind's level. Where it reaches a
//                bound, which grows with what that kind has learned, and no candidate knows the
//                last piece, a new kind may begin.
//
// Before a kind switches or begins the text itself is read (text_verdict.h).
//
// The change is put where the sum that won began to rise for the last time (find_change: to the
// batch).
#include "recognition.h"
#include "candidates.h"
#include "deferred_pieces.h"
#include "kind_memories.h"
#include "reef_json_build.h"
#include "text_verdict.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define STRANGE_DROP_MIN REEF_FAMILIARITY_PER_NAT // a strange piece is also so far below the level
#define LEVEL_WARMUP 4 // pieces that a kind learns before its text is doubted

// In units of a level's spread.
#define ASK_BELOW 1.5      // so far below the current kind's level candidates are scored
#define EVIDENCE_MAX 8.0   // of one piece for a new kind, in units of REEF_STRANGE
#define FAMILIAR_AGAIN 2.0 // what a piece in range takes away from that evidence
#define SWITCH_LEAD 8.0    // sum over pieces of a candidate's lead that makes a switch

// A new kind takes evidence of NEW_MEAN a piece, over a share of the pieces that the current kind
// has learned: a foreign page in a long book is not a new book. Very strange pieces count as
// several, so there also have to be LEAST_SHARE of that kind's pieces: no chapter is a book either.
#define NEW_PIECES_MIN 2
#define NEW_PIECES_MAX 16
#define NEW_SHARE 0.2
#define NEW_MEAN 1.5 // in units of REEF_STRANGE, a piece
#define LEAST_SHARE 0.01
#define LEAST_PIECES_MAX 32
_Static_assert(LEAST_PIECES_MAX < REEF_DEFERRED_MAX, "a new kind can begin");

// The last 96 kB of a large kind cost so many times its usual bits, and so many mean deviations
// more. Its own text did not cost more than 1.25 times, with 10 MB of C.
#define LATE_COSTLY 1.3
#define LATE_DEVIATIONS 1.5

bool reef_recognises_by_contexts(const reef_trainer *trainer) {
    return trainer->network.config.boundaries == REEF_BOUNDARIES_CONTEXTS &&
           reef_kinds_may_return(trainer);
}

size_t reef_piece_batches(const reef_config *config) {
    size_t batch = reef_batch_bytes(config);
    return (REEF_PIECE_BYTES + batch - 1) / batch;
}

// ---- one piece ----------------------------------------------------------------------------------

static reef_status count_learned(reef_trainer *trainer, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, trainer->kinds.current, &memory, err);
    trainer->kinds.recognition->learned = memory == NULL ? 0 : reef_memory_learned_bytes(memory);
    return status;
}

// Does the kind that the first piece's contexts name know it by a bit better than the current kind,
// and as its own? A kind that learned text of many others finds nothing strange: without this it
// would keep all of them.
static reef_status find_better_kind(reef_trainer *trainer, bool *out, reef_error *err) {
    reef_recognition *r = trainer->kinds.recognition;
    uint32_t kind = 0;
    double score = 0.0;
    reef_status status =
        reef_candidates_first(&r->candidates, trainer, reef_deferred_at(trainer, 0),
                              reef_piece_bytes(trainer), &kind, out, err);
    if (status == REEF_OK && *out)
        status = reef_deferred_familiarity(trainer, kind, 0, &score, err);
    *out = *out && score > r->current_score[0] + REEF_FAMILIARITY_PER_BIT &&
           reef_kind_level_deviation(&trainer->kinds.levels[kind], score) >= -REEF_STRANGE;
    return status;
}

// A large kind has met most contexts of many others, and behind odd text its level says little.
// What is foreign to it can then look as usual. But it costs more than usual.
static bool is_costly_of_late(const reef_recognition *r, const reef_kind_level *level) {
    return r->learned >= REEF_KIND_LARGE && level->bits > 0.0 &&
           level->recent_bits > LATE_COSTLY * level->bits + LATE_DEVIATIONS * level->bits_deviation;
}

// ---- decisions ----------------------------------------------------------------------------------

// Are the deferred pieces, from one of them on, of a candidate? The one with the greatest lead.
static bool find_switch(const reef_recognition *r, size_t pieces, reef_kind_decision *out) {
    double best = SWITCH_LEAD;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double lead = 0.0, least = 0.0, sum = 0.0;
        size_t from = 0;
        for (size_t n = 0; n < pieces; n++) {
            lead += reef_deferred_lead(r, i, n);
            if (lead >= least) continue;
            least = lead;
            from = n + 1;
        }
        for (size_t n = from; n < pieces; n++) sum += r->deviations[i][n];
        if (from == pieces || sum <= -REEF_STRANGE * (double)(pieces - from) ||
            lead - least <= best)
            continue;
        best = lead - least;
        *out = (reef_kind_decision){
            .verdict = REEF_VERDICT_SWITCH, .from_piece = from, .kind = r->candidates.kinds[i]};
    }
    return best > SWITCH_LEAD;
}

// None of a candidate: a new kind, the current one (with an odd passage perhaps), or not clear yet.
static reef_kind_decision judge_new_kind(const reef_trainer *trainer, size_t pieces) {
    const reef_recognition *r = trainer->kinds.recognition;
    const reef_kind_level *level = &trainer->kinds.levels[trainer->kinds.current];
    double strangeness = 0.0, share = NEW_SHARE * (double)level->pieces;
    double needed = fmin(fmax(share, NEW_PIECES_MIN), NEW_PIECES_MAX) * NEW_MEAN;
    double least =
        fmin(fmax(LEAST_SHARE * (double)level->pieces, NEW_PIECES_MIN), LEAST_PIECES_MAX);
    size_t from = 0, strange_pieces = 0, familiar_since = 0;
    const bool costly = is_costly_of_late(r, level);
    for (size_t n = 0; n < pieces; n++) {
        bool strange = costly || (r->current_deviation[n] < -REEF_STRANGE &&
                                  r->current_score[n] < level->mean - STRANGE_DROP_MIN);
        if (strange && strangeness <= 0.0) {
            from = n;
            strange_pieces = 0;
        }
        strange_pieces += strange;
        familiar_since = strange ? 0 : familiar_since + 1;
        strangeness +=
            strange ? fmin(-r->current_deviation[n] / REEF_STRANGE, EVIDENCE_MAX) : -FAMILIAR_AGAIN;
        // A passage that was too short has ended once as much familiar text follows it.
        bool ended = (double)strange_pieces < least && familiar_since >= strange_pieces;
        if (strangeness < 0.0 || ended) strangeness = 0.0;
    }
    // A candidate that knows the last piece may lead by enough some pieces later: no new kind then.
    bool known = false, better = false;
    for (size_t i = 0; i < r->candidates.count; i++) {
        known |= reef_deferred_is_known(r, i, pieces - 1);
        better |= reef_deferred_lead(r, i, pieces - 1) > 0.0;
    }
    if (level->pieces >= LEVEL_WARMUP && strangeness >= needed && (double)strange_pieces >= least &&
        !known)
        return (reef_kind_decision){.verdict = REEF_VERDICT_NEW, .from_piece = from};
    if (pieces == REEF_DEFERRED_MAX && r->learned >= REEF_KIND_SMALL && !known)
        return (reef_kind_decision){.verdict = REEF_VERDICT_NEW};
    // A young kind cannot be left for a new one: waiting for that would only hold the text back.
    if (level->pieces < LEVEL_WARMUP) strangeness = 0.0;
    bool clear = (strangeness <= 0.0 && !better) || pieces == REEF_DEFERRED_MAX;
    return (reef_kind_decision){.verdict = clear ? REEF_VERDICT_CURRENT : REEF_VERDICT_DEFER};
}

// How many of the piece's batches stand before the change: those that the current kind knows better
// than `other` does. A new kind knows nothing yet: then better than half way between the current
// kind's level and what it knows of the next piece.
static reef_status change_in_piece(reef_trainer *trainer,
                                   size_t number,
                                   size_t pieces,
                                   const reef_memory *other,
                                   size_t *out,
                                   reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_recognition *r = trainer->kinds.recognition;
    size_t size = reef_batch_bytes(config), batches = reef_piece_batches(config);
    size_t behind = number + 1 < pieces ? number + 1 : number;
    double middle =
        0.5 * (trainer->kinds.levels[trainer->kinds.current].mean + r->current_score[behind]);
    double sum = 0.0, most = 0.0;
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, trainer->kinds.current, &memory, err);
    *out = 0;
    for (size_t b = 0; status == REEF_OK && b < batches; b++) {
        const uint8_t *bytes = reef_deferred_at(trainer, number) + b * size;
        double known = reef_memory_familiarity(memory, bytes, size);
        sum += known - (other == NULL ? middle : reef_memory_familiarity(other, bytes, size));
        if (sum <= most) continue;
        most = sum;
        *out = b + 1;
    }
    return status;
}

// From the piece in which the change lies to the batch.
static reef_status find_change(reef_trainer *trainer,
                               size_t pieces,
                               reef_kind_decision *decision,
                               reef_error *err) {
    const reef_memory *other = NULL;
    reef_status status = REEF_OK;
    size_t piece = decision->from_piece, within = 0;
    if (decision->verdict == REEF_VERDICT_SWITCH)
        status = reef_kind_load_memory(trainer, decision->kind, &other, err);
    if (status == REEF_OK) status = change_in_piece(trainer, piece, pieces, other, &within, err);
    decision->from_batch = piece * reef_piece_batches(&trainer->network.config) + within;
    return status;
}

// A piece that the current kind knows costs one score and a vote. Candidates are scored only once a
// piece deviates by ASK_BELOW, or the vote names a kind that knows it better: each may have to be
// read from the pool. From then on they score every piece until a decision.
reef_status reef_recognise_piece(reef_trainer *trainer,
                                 size_t deferred,
                                 reef_kind_decision *out,
                                 reef_error *err) {
    assert(deferred < REEF_DEFERRED_MAX);
    *out = (reef_kind_decision){.verdict = REEF_VERDICT_CURRENT};
    reef_status status = reef_deferred_reserve(trainer, err);
    if (status != REEF_OK) return status;
    reef_recognition *r = trainer->kinds.recognition;
    const reef_kind_level *level = &trainer->kinds.levels[trainer->kinds.current];
    double *score = &r->current_score[deferred];
    status = count_learned(trainer, err);
    if (status == REEF_OK)
        status = reef_deferred_familiarity(trainer, trainer->kinds.current, deferred, score, err);
    if (status != REEF_OK) return status;
    r->current_deviation[deferred] = reef_kind_level_deviation(level, *score);
    if (deferred == 0) {
        r->candidates.count = 0;
        r->read_next = reef_text_first_read(r->learned);
    }
    bool asks_candidates = deferred > 0 || is_costly_of_late(r, level) ||
                           (r->current_deviation[0] < -ASK_BELOW && level->pieces >= LEVEL_WARMUP);
    if (!asks_candidates) status = find_better_kind(trainer, &asks_candidates, err);
    if (status != REEF_OK || !asks_candidates) return status;
    status = reef_deferred_score(trainer, deferred, err);
    if (status != REEF_OK) return status;
    bool confirmed = false;
    while (status == REEF_OK && !confirmed && find_switch(r, deferred + 1, out))
        status = reef_text_confirm_switch(trainer, deferred + 1, out, &confirmed, err);
    if (status != REEF_OK) return status;
    if (!confirmed) *out = judge_new_kind(trainer, deferred + 1);
    if (out->verdict == REEF_VERDICT_NEW)
        status = reef_text_judge_new(trainer, deferred + 1, out, err);
    if (status != REEF_OK) return status;
    bool changes = out->verdict == REEF_VERDICT_SWITCH || out->verdict == REEF_VERDICT_NEW;
    return changes ? find_change(trainer, deferred + 1, out, err) : REEF_OK;
}

// ---- pieces that were learned -------------------------------------------------------------------

void reef_recognition_count(reef_trainer *trainer, size_t number, uint32_t kind) {
    const reef_recognition *r = trainer->kinds.recognition;
    if (kind == trainer->kinds.current) {
        bool odd = r->candidates.count > 0 && r->current_deviation[number] < -REEF_STRANGE;
        // Nothing is familiar to an empty memory, whatever the kind.
        if (!odd && r->learned >= REEF_PIECE_BYTES)
            reef_kind_level_count(&trainer->kinds.levels[kind], r->current_score[number]);
        return;
    }
    for (size_t i = 0; i < r->candidates.count; i++)
        if (r->candidates.kinds[i] == kind)
            reef_kind_level_count(&trainer->kinds.levels[kind], r->scores[i][number]);
}

reef_status reef_recognition_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = reef_deferred_reserve(trainer, err);
    for (size_t at = 0; status == REEF_OK && at < count; at += REEF_PIECE_BYTES) {
        size_t size = count - at < REEF_PIECE_BYTES ? count - at : REEF_PIECE_BYTES;
        const reef_memory *memory = NULL;
        status = reef_kind_load_memory(trainer, kind, &memory, err);
        if (status == REEF_OK && at >= count / 2 && size == REEF_PIECE_BYTES)
            reef_kind_level_count(&trainer->kinds.levels[kind],
                                  reef_memory_familiarity(memory, bytes + at, size));
        if (status == REEF_OK) status = reef_kind_learn_text(trainer, kind, bytes + at, size, err);
    }
    return status;
}

// ---- the trainer's state, as JSON ---------------------------------------------------------------

void reef_recognition_set_state(const reef_trainer *trainer, json_t **state) {
    if (!reef_recognises_by_contexts(trainer)) return;
    reef_json_set(state, "current_kind", json_integer(trainer->kinds.current));
    reef_json_set(state, "levels", reef_kind_levels_to_json(trainer));
}

reef_status reef_recognition_load(reef_trainer *trainer, const json_t *state, reef_error *err) {
    const json_t *current = json_object_get(state, "current_kind");
    trainer->kinds.current = reef_open_kind(trainer);
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_kind_levels_from_json(trainer, json_object_get(state, "levels"), err);
    if (status != REEF_OK) return status;
    json_int_t kind = current != NULL ? json_integer_value(current) : trainer->kinds.current;
    if (kind < 0 || kind > UINT32_MAX || !reef_is_kind(trainer, (uint32_t)kind))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the trainer's state is at kind %lld, which is none", (long long)kind);
    trainer->kinds.current = (uint32_t)kind;
    return REEF_OK;
}

// ---- the end ------------------------------------------------------------------------------------

void reef_recognition_forget(reef_trainer *trainer) {
    if (trainer->kinds.recognition != NULL)
        reef_candidates_release(&trainer->kinds.recognition->candidates);
}

void reef_recognition_release(reef_trainer *trainer) {
    reef_recognition_forget(trainer);
    reef_kind_levels_release(trainer);
    free(trainer->kinds.recognition);
    trainer->kinds.recognition = NULL;
}
