// See deferred_pieces.h.
#include "deferred_pieces.h"
#include "kind_memories.h"
#include "recognition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BIT REEF_FAMILIARITY_PER_BIT
#define LEAD_PIECE_COST 0.5 // subtracted for each piece, in favour of the current kind
#define LEAD_MAX 6.0        // of one piece: less than SWITCH_LEAD, so no piece decides alone
#define LEAD_MIN (-3.0)     // of one piece: one of the current kind cancels half of such a lead

reef_status reef_deferred_reserve(reef_trainer *trainer, reef_error *err) {
    if (trainer->kinds.recognition == NULL)
        trainer->kinds.recognition = calloc(1, sizeof(*trainer->kinds.recognition));
    return trainer->kinds.recognition != NULL
               ? reef_kind_levels_reserve(trainer, err)
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to recognise kinds of text");
}

size_t reef_piece_bytes(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    return reef_piece_batches(config) * reef_batch_bytes(config);
}

const uint8_t *reef_deferred_at(const reef_trainer *trainer, size_t number) {
    return trainer->stream.pending + number * reef_piece_bytes(trainer);
}

reef_status reef_deferred_familiarity(
    reef_trainer *trainer, uint32_t kind, size_t number, double *out, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status == REEF_OK)
        *out = reef_memory_familiarity(memory, reef_deferred_at(trainer, number),
                                       reef_piece_bytes(trainer));
    return status;
}

void reef_deferred_refuse(reef_recognition *r, size_t i) {
    for (size_t n = 0; n < REEF_DEFERRED_MAX; n++) r->deviations[i][n] = -INFINITY;
}

static bool is_refused(const reef_recognition *r, size_t i) {
    return r->deviations[i][0] == -INFINITY;
}

// Candidate i reads one piece.
static reef_status score_candidate(reef_trainer *trainer,
                                   size_t i,
                                   size_t number,
                                   reef_error *err) {
    reef_recognition *r = trainer->kinds.recognition;
    uint32_t kind = r->candidates.kinds[i];
    double score = 0.0;
    reef_status status = reef_deferred_familiarity(trainer, kind, number, &score, err);
    r->scores[i][number] = score;
    if (number == 0 || !is_refused(r, i))
        r->deviations[i][number] = reef_kind_level_deviation(&trainer->kinds.levels[kind], score);
    return status;
}

static double min0(double x) {
    return x < 0.0 ? x : 0.0;
}

bool reef_deferred_is_known(const reef_recognition *r, size_t i, size_t number) {
    return r->deviations[i][number] >= -REEF_STRANGE &&
           r->scores[i][number] >= r->current_score[number];
}

// The larger of two measures:
// deviations from the levels in spreads, and familiarity in bits.
double reef_deferred_lead(const reef_recognition *r, size_t i, size_t number) {
    double lead =
        min0(r->deviations[i][number]) - min0(r->current_deviation[number]) - LEAD_PIECE_COST;
    double better = (r->scores[i][number] - r->current_score[number]) / BIT - LEAD_PIECE_COST;
    if (better > lead) lead = better;
    if (lead > 0.0 && !reef_deferred_is_known(r, i, number)) lead = 0.0;
    return lead < LEAD_MIN ? LEAD_MIN : lead > LEAD_MAX ? LEAD_MAX : lead;
}

// Make room for those that the new piece names: candidates that lead least give way, since what
// comes may be of one kind after another while it is deferred.
static void make_room(reef_recognition *r, size_t pieces) {
    reef_candidates *c = &r->candidates;
    while (c->count + REEF_CANDIDATES_MORE > REEF_CANDIDATES_MAX) {
        size_t worst = 0;
        double least = INFINITY;
        for (size_t i = 0; i < c->count; i++) {
            double lead = 0.0;
            for (size_t n = 0; n < pieces; n++)
                lead = fmax(lead + reef_deferred_lead(r, i, n), 0.0);
            // Most lead by nothing: of those, the one that knows the last piece least.
            lead += 1e-3 * r->scores[i][pieces - 1] / BIT;
            if (lead >= least) continue;
            least = lead;
            worst = i;
        }
        c->count--;
        size_t behind = c->count - worst;
        memmove(c->kinds + worst, c->kinds + worst + 1, behind * sizeof(*c->kinds));
        memmove(r->scores + worst, r->scores + worst + 1, behind * sizeof(*r->scores));
        memmove(r->deviations + worst, r->deviations + worst + 1, behind * sizeof(*r->deviations));
    }
}

reef_status reef_deferred_score(reef_trainer *trainer, size_t number, reef_error *err) {
    reef_candidates *c = &trainer->kinds.recognition->candidates;
    const size_t bytes = reef_piece_bytes(trainer);
    const uint8_t *piece = reef_deferred_at(trainer, number);
    if (number > 0) make_room(trainer->kinds.recognition, number);
    size_t before = number == 0 ? 0 : c->count;
    reef_status status = number == 0 ? reef_candidates_choose(c, trainer, piece, bytes, err)
                                     : reef_candidates_add(c, trainer, piece, bytes, err);
    for (size_t i = 0; status == REEF_OK && i < c->count; i++)
        for (size_t n = i < before ? number : 0; status == REEF_OK && n <= number; n++)
            status = score_candidate(trainer, i, n, err);
    return status;
}
