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
// Then the text itself is read (text_cost.h). A kind ends only if its memory, which learns on,
// saves few of the bits of learning the text from nothing. Odd files of one kind are strange to it,
// and are foretold by it all the same.
//
// The change is put where the sum that won began to rise for the last time (find_change: to the
// batch). The constants were chosen on 77 kinds of text of 84 kB in one stream, those of large
// kinds on C, Python, English and a package index (docs/LEARNING.md).
#include "recognition.h"
#include "candidates.h"
#include "kind_memories.h"
#include "reef_json_build.h"
#include "text_cost.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 2048        // or a batch where that is longer: of it the first 4 KiB are scored
#define DEFERRED_PIECES_MAX 136 // with so many it is decided
_Static_assert(PIECE_BYTES <= REEF_FAMILIARITY_BYTES_MAX,
               "a piece of short batches is scored as a whole");

// Units of familiarity: NAT of them are a factor of e in the part of a text's contexts that is
// known, in one order of contexts.
#define NAT 369.0 // 256 / ln 2, rounded
#define BIT REEF_FAMILIARITY_PER_BIT
#define SPREAD_MIN 55.0  // 0.15 nats; the spread of a level, since real text varies more
#define SPREAD_YOUNG NAT // uncertainty of a level after one piece; falls as 1/sqrt(pieces)
#define UNKNOWN_LEVEL (-6.0 * NAT) // level of a kind before its first piece is counted
#define UNKNOWN_SPREAD (2.0 * NAT) // and its spread
#define STRANGE_DROP_MIN NAT       // a strange piece is also so far below the level

// A level is taken over the last quarter of a kind's pieces, at most sixteen: a young kind's own
// text grows familiar quickly.
#define LEVEL_YOUNG 2.0
#define LEVEL_SHARE 4
#define LEVEL_RATE 16
#define LEVEL_WARMUP 4 // pieces that a kind learns before its text is doubted
#define LEVEL_CLIP 4.0 // mean deviations; a piece further off moves the level by no more than this

// Usual bits are the mean of the last half of what a kind learned, of so many bytes at most. How
// much they vary is seen in means of what is short against that.
#define BITS_SHARE 2
#define BITS_BYTES ((size_t)8 << 20)
#define BITS_SHORT ((size_t)96 << 10)

// Deviations of a piece from a kind's level, in units of the level's spread.
#define ASK_BELOW 1.5       // so far below the current kind's level candidates are scored
#define STRANGE 2.0         // so far below a kind's level its text is not known to that kind
#define EVIDENCE_MAX 8.0    // of one piece for a new kind, in units of STRANGE
#define FAMILIAR_AGAIN 2.0  // what a piece in range takes away from that evidence
#define SWITCH_LEAD 8.0     // sum over pieces of a candidate's lead that makes a switch
#define LEAD_PIECE_COST 0.5 // subtracted for each piece, in favour of the current kind
#define LEAD_MAX 6.0        // of one piece: less than SWITCH_LEAD, so no piece decides alone
#define LEAD_MIN (-3.0)     // of one piece: one of the current kind cancels half of such a lead

// A new kind takes evidence of NEW_MEAN a piece, over a share of the pieces that the current kind
// has learned: a foreign page in a long book is not a new book. Very strange pieces count as
// several, so there also have to be LEAST_SHARE of that kind's pieces: no chapter is a book either.
#define NEW_PIECES_MIN 2
#define NEW_PIECES_MAX 16
#define NEW_SHARE 0.2
#define NEW_MEAN 1.5 // in units of STRANGE, a piece
#define LEAST_SHARE 0.01
#define LEAST_PIECES_MAX 32
_Static_assert(LEAST_PIECES_MAX < DEFERRED_PIECES_MAX, "a new kind can begin");

// The text of a large kind is read once there is a quarter of what it has learned, at most this.
// What a much larger one does not know is read a second time where it goes on, and what costs no
// more than usual: a file of constants ends sooner.
#define SMALL_MAX ((uint64_t)256 << 10)
#define READ_SHARE 4
#define READ_MAX ((size_t)96 << 10)
#define READ_AGAIN ((size_t)256 << 10)
_Static_assert(READ_AGAIN < DEFERRED_PIECES_MAX * PIECE_BYTES, "so much can be deferred");

// What a text costs, of what a kind knows over learning it from nothing: in either half, since what
// is odd and repeats itself ends soon. The more a kind has learned, the less its own text costs:
//
//   learned            its own text, the lower half              what another kind begins with
//   up to 1 MB         0.55 to 0.91                              0.91 to 1.00
//   up to 4 MB         up to 0.85, where it costs more           0.86 to 0.95, for 1.2 to 1.5 times
//                      than usual up to 0.84                     the bits that are usual
//   more, 96 kB        0.47 to 0.80, a file of constants 1.02    0.83 (Python behind C) to 0.95
//   and 256 kB of it   0.50 to 0.82; constants, at half the      0.855 to 0.94, at 1.1 to 2.2 times
//                      bits that are usual, up to 0.90           the bits that are usual
//
// A kind of less than 256 kB saves 4 % of another's text at most, in the last half or behind the
// first piece: what is before may be its own.
#define SMALL_FOREIGN 0.945
#define SMALL_FOREIGN_AT_LAST 1.03
#define FOREIGN 0.90
#define COSTLY_MIN ((uint64_t)1 << 20) // bytes that a kind has learned
#define COSTLY_FOREIGN 0.855
#define COSTLY 1.1            // times the kind's usual bits,
#define COSTLY_DEVIATIONS 1.5 // and so many mean deviations of them
#define LARGE_MIN ((uint64_t)4 << 20)
#define LARGE_DOUBTED 0.80
#define LARGE_FOREIGN 0.84       // once there are READ_AGAIN bytes
#define LARGE_CHEAP_FOREIGN 0.92 // of fewer bits than usual

// Of a kind that came back much is saved in one half at least, and it costs no more than it may.
#define OWN 0.86
#define OWN_COSTLY 1.6 // times its usual bits
#define READERS 3      // candidates that read what is foreign to the current kind

// Of what is known by contexts: so much, and it is not of that kind. See saves_enough.
#define SWITCH_FOREIGN 0.85
#define SWITCH_FOREIGN_YOUNG 0.90
#define SWITCH_YOUNG ((uint64_t)64 << 10)
#define SWITCH_REGULAR 1.0 // bits a byte
#define SWITCH_PIECES 4    // are read
#define OWN_DEVIATION 0.5  // mean, of what is like a kind's own text

#define LARGER 64 // times what a small kind learned: so much has one that takes its text

typedef struct reef_recognition {
    reef_candidates candidates;
    uint64_t learned; // bytes, by the current kind's memory
    size_t read_next; // so many deferred bytes are to be read
    // Of each deferred piece: its familiarity to the current kind and to each candidate, and how
    // far that is from the kind's level, in spreads.
    double current_score[DEFERRED_PIECES_MAX];
    double current_deviation[DEFERRED_PIECES_MAX];
    double scores[REEF_CANDIDATES_MAX][DEFERRED_PIECES_MAX];
    double deviations[REEF_CANDIDATES_MAX][DEFERRED_PIECES_MAX];
} reef_recognition;

bool reef_recognises_by_contexts(const reef_trainer *trainer) {
    return trainer->network.config.boundaries == REEF_BOUNDARIES_CONTEXTS &&
           reef_kinds_may_return(trainer);
}

size_t reef_piece_batches(const reef_config *config) {
    size_t batch = reef_batch_bytes(config);
    return (PIECE_BYTES + batch - 1) / batch;
}

// ---- levels -------------------------------------------------------------------------------------

reef_status reef_recognition_reserve(reef_trainer *trainer, reef_error *err) {
    size_t count = trainer->network.generation_count;
    if (trainer->kinds.recognition == NULL)
        trainer->kinds.recognition = calloc(1, sizeof(*trainer->kinds.recognition));
    if (count > trainer->kinds.level_count) {
        reef_kind_level *levels = realloc(trainer->kinds.levels, count * sizeof(*levels));
        if (levels != NULL) {
            memset(levels + trainer->kinds.level_count, 0,
                   (count - trainer->kinds.level_count) * sizeof(*levels));
            trainer->kinds.levels = levels;
            trainer->kinds.level_count = count;
        }
    }
    return trainer->kinds.recognition != NULL && trainer->kinds.level_count >= count
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the levels of %zu kinds", count);
}

reef_status reef_recognition_set_level(reef_trainer *trainer,
                                       uint32_t kind,
                                       const reef_kind_level *level,
                                       reef_error *err) {
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_recognition_reserve(trainer, err);
    if (status == REEF_OK) trainer->kinds.levels[kind] = *level;
    return status;
}

void reef_recognition_forget_level(reef_trainer *trainer, uint32_t kind) {
    if (kind < trainer->kinds.level_count) trainer->kinds.levels[kind] = (reef_kind_level){0};
}

// Deviation of a piece from the kind's level, in spreads; negative: less familiar than its own
// text.
static double deviation_of(const reef_kind_level *level, double familiarity) {
    if (level->pieces == 0) return (familiarity - UNKNOWN_LEVEL) / UNKNOWN_SPREAD;
    double spread = 1.25 * level->deviation; // of a normal distribution
    if (spread < SPREAD_MIN) spread = SPREAD_MIN;
    double young = SPREAD_YOUNG * SPREAD_YOUNG / (double)level->pieces;
    return (familiarity - level->mean) / sqrt(spread * spread + young);
}

static void add_to_level(reef_kind_level *level, double familiarity) {
    level->pieces++;
    if (level->pieces == 1) {
        level->mean = familiarity;
        level->deviation = SPREAD_YOUNG / 2;
        return;
    }
    double rate = 1.0 / fmin(LEVEL_YOUNG + (double)level->pieces / LEVEL_SHARE, LEVEL_RATE);
    double off = familiarity - level->mean;
    double most = LEVEL_CLIP * (level->deviation > SPREAD_MIN ? level->deviation : SPREAD_MIN);
    if (level->pieces > LEVEL_RATE / 2 && fabs(off) > most) off = off < 0.0 ? -most : most;
    level->mean += off * rate;
    level->deviation += (fabs(off) - level->deviation) * rate;
}

reef_status reef_recognition_count_bits(reef_trainer *trainer,
                                        uint32_t kind,
                                        double bits,
                                        reef_error *err) {
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_recognition_reserve(trainer, err);
    if (status != REEF_OK) return status;
    reef_kind_level *level = &trainer->kinds.levels[kind];
    const double batch = (double)reef_batch_bytes(&trainer->network.config);
    level->batches++;
    double last_half = fmax((double)level->batches / BITS_SHARE, 1.0);
    double rate = 1.0 / fmin(last_half, (double)BITS_BYTES / batch);
    level->recent_bits += (bits - level->recent_bits) / fmin(last_half, (double)BITS_SHORT / batch);
    level->bits += (bits - level->bits) * rate;
    level->bits_deviation +=
        (fabs(level->recent_bits - level->bits) - level->bits_deviation) * rate;
    return REEF_OK;
}

// ---- one piece ----------------------------------------------------------------------------------

static const uint8_t *piece_at(const reef_trainer *trainer, size_t number) {
    size_t batches = reef_piece_batches(&trainer->network.config);
    return trainer->stream.pending + number * batches * reef_batch_bytes(&trainer->network.config);
}

static reef_status count_learned(reef_trainer *trainer, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, trainer->kinds.current, &memory, err);
    trainer->kinds.recognition->learned = memory == NULL ? 0 : reef_memory_learned_bytes(memory);
    return status;
}

static reef_status familiarity_of(
    reef_trainer *trainer, uint32_t kind, size_t number, double *out, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status == REEF_OK)
        *out = reef_memory_familiarity(memory, piece_at(trainer, number),
                                       reef_piece_batches(config) * reef_batch_bytes(config));
    return status;
}

// Candidate i knows none of what is deferred, whatever its contexts say.
static void refuse(reef_recognition *r, size_t i) {
    for (size_t n = 0; n < DEFERRED_PIECES_MAX; n++) r->deviations[i][n] = -INFINITY;
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
    reef_status status = familiarity_of(trainer, kind, number, &score, err);
    r->scores[i][number] = score;
    if (number == 0 || !is_refused(r, i))
        r->deviations[i][number] = deviation_of(&trainer->kinds.levels[kind], score);
    return status;
}

static double min0(double x) {
    return x < 0.0 ? x : 0.0;
}

// Does candidate i know a piece as its own, and at least as well as the current kind?
static bool candidate_knows(const reef_recognition *r, size_t i, size_t number) {
    return r->deviations[i][number] >= -STRANGE && r->scores[i][number] >= r->current_score[number];
}

// How much better candidate i knows a piece than the current kind. The larger of two measures:
// deviations from the levels in spreads, and familiarity in bits.
static double lead_of(const reef_recognition *r, size_t i, size_t number) {
    double lead =
        min0(r->deviations[i][number]) - min0(r->current_deviation[number]) - LEAD_PIECE_COST;
    double better = (r->scores[i][number] - r->current_score[number]) / BIT - LEAD_PIECE_COST;
    if (better > lead) lead = better;
    if (lead > 0.0 && !candidate_knows(r, i, number)) lead = 0.0;
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
            for (size_t n = 0; n < pieces; n++) lead = fmax(lead + lead_of(r, i, n), 0.0);
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

// All candidates score the new piece, and those that it adds score the pieces before it as well.
static reef_status score_candidates(reef_trainer *trainer, size_t number, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_candidates *c = &trainer->kinds.recognition->candidates;
    size_t bytes = reef_piece_batches(config) * reef_batch_bytes(config);
    const uint8_t *piece = piece_at(trainer, number);
    if (number > 0) make_room(trainer->kinds.recognition, number);
    size_t before = number == 0 ? 0 : c->count;
    reef_status status = number == 0 ? reef_candidates_choose(c, trainer, piece, bytes, err)
                                     : reef_candidates_add(c, trainer, piece, bytes, err);
    for (size_t i = 0; status == REEF_OK && i < c->count; i++)
        for (size_t n = i < before ? number : 0; status == REEF_OK && n <= number; n++)
            status = score_candidate(trainer, i, n, err);
    return status;
}

// Does the kind that the first piece's contexts name know it by a bit better than the current kind,
// and as its own? A kind that learned text of many others finds nothing strange: without this it
// would keep all of them.
static reef_status find_better_kind(reef_trainer *trainer, bool *out, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_recognition *r = trainer->kinds.recognition;
    size_t bytes = reef_piece_batches(config) * reef_batch_bytes(config);
    uint32_t kind = 0;
    double score = 0.0;
    reef_status status = reef_candidates_first(&r->candidates, trainer, piece_at(trainer, 0), bytes,
                                               &kind, out, err);
    if (status == REEF_OK && *out) status = familiarity_of(trainer, kind, 0, &score, err);
    *out = *out && score > r->current_score[0] + BIT &&
           deviation_of(&trainer->kinds.levels[kind], score) >= -STRANGE;
    return status;
}

// ---- decisions ----------------------------------------------------------------------------------

// Are the deferred pieces, from one of them on, of a candidate? The one with the greatest lead.
static bool find_switch(const reef_recognition *r, size_t pieces, reef_kind_decision *out) {
    double best = SWITCH_LEAD;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double lead = 0.0, least = 0.0, sum = 0.0;
        size_t from = 0;
        for (size_t n = 0; n < pieces; n++) {
            lead += lead_of(r, i, n);
            if (lead >= least) continue;
            least = lead;
            from = n + 1;
        }
        for (size_t n = from; n < pieces; n++) sum += r->deviations[i][n];
        if (from == pieces || sum <= -STRANGE * (double)(pieces - from) || lead - least <= best)
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
    for (size_t n = 0; n < pieces; n++) {
        bool strange = r->current_deviation[n] < -STRANGE &&
                       r->current_score[n] < level->mean - STRANGE_DROP_MIN;
        if (strange && strangeness <= 0.0) {
            from = n;
            strange_pieces = 0;
        }
        strange_pieces += strange;
        familiar_since = strange ? 0 : familiar_since + 1;
        strangeness +=
            strange ? fmin(-r->current_deviation[n] / STRANGE, EVIDENCE_MAX) : -FAMILIAR_AGAIN;
        // A passage that was too short has ended once as much familiar text follows it.
        bool ended = (double)strange_pieces < least && familiar_since >= strange_pieces;
        if (strangeness < 0.0 || ended) strangeness = 0.0;
    }
    // A candidate that knows the last piece may lead by enough some pieces later: no new kind then.
    bool known = false, better = false;
    for (size_t i = 0; i < r->candidates.count; i++) {
        known |= candidate_knows(r, i, pieces - 1);
        better |= lead_of(r, i, pieces - 1) > 0.0;
    }
    if (level->pieces >= LEVEL_WARMUP && strangeness >= needed && (double)strange_pieces >= least &&
        !known)
        return (reef_kind_decision){.verdict = REEF_VERDICT_NEW, .from_piece = from};
    if (pieces == DEFERRED_PIECES_MAX && r->learned >= SMALL_MAX && !known)
        return (reef_kind_decision){.verdict = REEF_VERDICT_NEW};
    // A young kind cannot be left for a new one: waiting for that would only hold the text back.
    if (level->pieces < LEVEL_WARMUP) strangeness = 0.0;
    bool clear = (strangeness <= 0.0 && !better) || pieces == DEFERRED_PIECES_MAX;
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
        const uint8_t *bytes = piece_at(trainer, number) + b * size;
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

// ---- by what the text costs ---------------------------------------------------------------------

static reef_status open_text(const reef_trainer *trainer,
                             const reef_memory *mixer,
                             size_t from,
                             size_t pieces,
                             reef_deferred_text *out,
                             reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const size_t size = reef_piece_batches(config) * reef_batch_bytes(config);
    return reef_deferred_text_open(out, mixer, piece_at(trainer, from), (pieces - from) * size,
                                   err);
}

static reef_status read_text(reef_trainer *trainer,
                             const reef_deferred_text *text,
                             uint32_t kind,
                             reef_text_cost *out,
                             reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    return status == REEF_OK ? reef_text_cost_read(text, memory, out, err) : status;
}

// Bits of a text over those that the kind's own usually takes; 0: these are not known.
static double times_usual(const reef_text_cost *c, const reef_kind_level *level) {
    return level->bits > 0.0 ? c->bits / level->bits : 0.0;
}

// Does it cost more than the kind's own text, as that varies?
static bool is_costly(const reef_text_cost *c, const reef_kind_level *level) {
    return level->bits > 0.0 &&
           c->bits > COSTLY * level->bits + COSTLY_DEVIATIONS * level->bits_deviation;
}

static int index_of(const reef_candidates *c, uint32_t kind) {
    for (size_t i = 0; i < c->count; i++)
        if (c->kinds[i] == kind) return (int)i;
    return -1;
}

// The candidate with the greatest lead over some pieces, of those not taken. -1: none.
static int next_leading(const reef_recognition *r, size_t from, size_t to, const bool *taken) {
    double best = 0.0;
    int found = -1;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double lead = 0.0;
        for (size_t n = from; n < to; n++) lead += lead_of(r, i, n);
        if (taken[i] || lead <= best) continue;
        best = lead;
        found = (int)i;
    }
    return found;
}

// Do its contexts know some pieces like the kind's own text?
static bool is_like_own(const reef_recognition *r, size_t i, size_t from, size_t to) {
    double sum = 0.0;
    for (size_t n = from; n < to; n++) sum += r->deviations[i][n];
    return sum >= -OWN_DEVIATION * (double)(to - from);
}

// A young kind, or one of regular text, which is soon learned anew, saves little of its own text
// either: then that costs no more than usual.
static bool saves_enough(const reef_trainer *trainer,
                         uint32_t kind,
                         bool is_like_own,
                         const reef_text_cost *cost) {
    const reef_kind_level *level = &trainer->kinds.levels[kind];
    const uint64_t learned = level->batches * reef_batch_bytes(&trainer->network.config);
    const bool young = learned < SWITCH_YOUNG, regular = cost->bits < SWITCH_REGULAR;
    return cost->all < (young ? SWITCH_FOREIGN_YOUNG : SWITCH_FOREIGN) ||
           ((is_like_own || young || regular) && times_usual(cost, level) < COSTLY);
}

// The decision's candidate and others that lead read the text. The one to which it costs least gets
// it. Those that save too little are refused. If all are, there is no switch.
static reef_status choose_leading(reef_trainer *trainer,
                                  size_t to,
                                  const reef_deferred_text *text,
                                  reef_kind_decision *decision,
                                  bool *confirmed,
                                  reef_error *err) {
    reef_recognition *r = trainer->kinds.recognition;
    bool taken[REEF_CANDIDATES_MAX] = {false};
    double least = INFINITY;
    reef_status status = REEF_OK;
    int i = index_of(&r->candidates, decision->kind);
    for (size_t k = 0; i >= 0 && k < READERS; k++) {
        reef_text_cost cost;
        taken[i] = true;
        status = read_text(trainer, text, r->candidates.kinds[i], &cost, err);
        if (status != REEF_OK) break;
        bool like_own = is_like_own(r, (size_t)i, decision->from_piece, to);
        if (!saves_enough(trainer, r->candidates.kinds[i], like_own, &cost)) {
            refuse(r, (size_t)i);
        } else if (cost.all < least) {
            least = cost.all;
            decision->kind = r->candidates.kinds[i];
            *confirmed = true;
        }
        i = next_leading(r, decision->from_piece, to, taken);
    }
    return status;
}

// A large kind knows contexts of many others. Text that costs it more than usual, and more so than
// the current kind, is the current one's.
static reef_status ask_current(reef_trainer *trainer,
                               const reef_deferred_text *text,
                               reef_kind_decision *decision,
                               reef_error *err) {
    const reef_kind_level *levels = trainer->kinds.levels;
    const uint32_t kind = trainer->kinds.current;
    const reef_memory *memory = NULL;
    reef_text_cost candidate = {0}, current = {0};
    reef_status status = reef_kind_load_memory(trainer, decision->kind, &memory, err);
    if (status != REEF_OK || memory == NULL || reef_memory_learned_bytes(memory) < COSTLY_MIN)
        return status;
    status = read_text(trainer, text, decision->kind, &candidate, err);
    if (status != REEF_OK || !is_costly(&candidate, &levels[decision->kind])) return status;
    status = read_text(trainer, text, kind, &current, err);
    if (status == REEF_OK && levels[kind].bits > 0.0 &&
        times_usual(&current, &levels[kind]) < times_usual(&candidate, &levels[decision->kind]))
        decision->verdict = REEF_VERDICT_CURRENT;
    return status;
}

// What contexts say is one thing, what is saved another: it is read, unless one candidate alone
// leads, and by its contexts it is its own.
static reef_status confirm_switch(reef_trainer *trainer,
                                  size_t pieces,
                                  reef_kind_decision *decision,
                                  bool *confirmed,
                                  reef_error *err) {
    const size_t from = decision->from_piece;
    const size_t to = pieces - from > SWITCH_PIECES ? from + SWITCH_PIECES : pieces;
    const reef_recognition *r = trainer->kinds.recognition;
    const int i = index_of(&r->candidates, decision->kind);
    const reef_memory *memory = NULL;
    reef_deferred_text text = {0};
    bool alone[REEF_CANDIDATES_MAX] = {false};
    alone[i] = true;
    reef_status status = reef_kind_load_memory(trainer, decision->kind, &memory, err);
    *confirmed = memory == NULL ||
                 (is_like_own(r, (size_t)i, from, to) && next_leading(r, from, to, alone) < 0);
    if (status != REEF_OK || memory == NULL ||
        (*confirmed && reef_memory_learned_bytes(memory) < COSTLY_MIN))
        return status;
    status = open_text(trainer, memory, from, to, &text, err);
    if (status == REEF_OK && !*confirmed)
        status = choose_leading(trainer, to, &text, decision, confirmed, err);
    if (status == REEF_OK && *confirmed) status = ask_current(trainer, &text, decision, err);
    reef_deferred_text_close(&text);
    return status;
}

// Throughout: a file that is odd and repeats itself, such as a table of constants, has an end.
static bool is_foreign(const reef_recognition *r,
                       const reef_text_cost *c,
                       const reef_kind_level *level) {
    if (r->learned < SMALL_MAX)
        return c->behind_first >= SMALL_FOREIGN || c->halves[1] >= SMALL_FOREIGN_AT_LAST;
    double bound = FOREIGN;
    if (r->learned >= LARGE_MIN && r->read_next < READ_AGAIN)
        bound = LARGE_DOUBTED;
    else if (r->learned >= LARGE_MIN)
        bound = times_usual(c, level) < 1.0 ? LARGE_CHEAP_FOREIGN : LARGE_FOREIGN;
    else if (r->learned >= COSTLY_MIN && is_costly(c, level))
        bound = COSTLY_FOREIGN;
    return fmin(c->halves[0], c->halves[1]) >= bound;
}

// Is what was found foreign to be read again, with more of it?
static bool is_read_again(const reef_recognition *r, size_t pieces, bool costly) {
    return r->learned >= (costly ? LARGE_MIN : COSTLY_MIN) && r->read_next < READ_AGAIN &&
           pieces < DEFERRED_PIECES_MAX;
}

// The candidate whose contexts know most of the deferred pieces from one of them on, behind those
// that were taken. NULL: there is none.
static const uint32_t *next_nearest(const reef_recognition *r,
                                    size_t from,
                                    size_t pieces,
                                    bool *taken) {
    double best = -INFINITY;
    size_t found = r->candidates.count;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double sum = 0.0;
        for (size_t n = from; n < pieces; n++) sum += r->scores[i][n];
        if (taken[i] || sum <= best) continue;
        best = sum;
        found = i;
    }
    if (found == r->candidates.count) return NULL;
    taken[found] = true;
    return &r->candidates.kinds[found];
}

// A text that is not the current kind's: that of the candidate to which it costs least, or of none.
static reef_status find_owner(reef_trainer *trainer,
                              size_t pieces,
                              const reef_deferred_text *text,
                              double least,
                              reef_kind_decision *decision,
                              reef_error *err) {
    const reef_recognition *r = trainer->kinds.recognition;
    bool taken[REEF_CANDIDATES_MAX] = {false};
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < READERS; i++) {
        const uint32_t *kind = next_nearest(r, decision->from_piece, pieces, taken);
        reef_text_cost cost;
        if (kind == NULL) break;
        status = read_text(trainer, text, *kind, &cost, err);
        if (status != REEF_OK || fmin(cost.halves[0], cost.halves[1]) > OWN ||
            times_usual(&cost, &trainer->kinds.levels[*kind]) > OWN_COSTLY || cost.all >= least)
            continue;
        least = cost.all;
        decision->verdict = REEF_VERDICT_SWITCH;
        decision->kind = *kind;
    }
    return status;
}

static size_t first_read(uint64_t learned) {
    if (learned < SMALL_MAX) return 0;
    return learned / READ_SHARE < READ_MAX ? (size_t)learned / READ_SHARE : READ_MAX;
}

// What is strange to the current kind begins a new one, or waits for more of it, or is known.
static reef_status judge_text(reef_trainer *trainer,
                              size_t pieces,
                              reef_kind_decision *decision,
                              reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const size_t size = reef_piece_batches(config) * reef_batch_bytes(config);
    const size_t count = (pieces - decision->from_piece) * size;
    reef_recognition *r = trainer->kinds.recognition;
    if (count < r->read_next && pieces < DEFERRED_PIECES_MAX) {
        decision->verdict = REEF_VERDICT_DEFER;
        return REEF_OK;
    }
    reef_deferred_text text = {0};
    reef_text_cost cost = {0};
    const reef_memory *memory = NULL;
    reef_status status = reef_kind_load_memory(trainer, trainer->kinds.current, &memory, err);
    if (status == REEF_OK)
        status = open_text(trainer, memory, decision->from_piece, pieces, &text, err);
    if (status == REEF_OK) status = read_text(trainer, &text, trainer->kinds.current, &cost, err);
    const reef_kind_level *level = &trainer->kinds.levels[trainer->kinds.current];
    const bool foreign = status == REEF_OK && is_foreign(r, &cost, level);
    if (!foreign) decision->verdict = REEF_VERDICT_CURRENT;
    // Which of the others knows the text of a small kind contexts have said.
    if (foreign && r->learned >= SMALL_MAX)
        status = find_owner(trainer, pieces, &text, cost.all, decision, err);
    reef_deferred_text_close(&text);
    if (decision->verdict == REEF_VERDICT_NEW &&
        is_read_again(r, pieces, is_costly(&cost, level))) {
        r->read_next = READ_AGAIN;
        decision->verdict = REEF_VERDICT_DEFER;
    }
    return status;
}

// A piece that the current kind knows costs one score and a vote. Candidates are scored only once a
// piece deviates by ASK_BELOW, or the vote names a kind that knows it better: each may have to be
// read from the pool. From then on they score every piece until a decision.
reef_status reef_recognise_piece(reef_trainer *trainer,
                                 size_t deferred,
                                 reef_kind_decision *out,
                                 reef_error *err) {
    assert(deferred < DEFERRED_PIECES_MAX);
    *out = (reef_kind_decision){.verdict = REEF_VERDICT_CURRENT};
    reef_status status = reef_recognition_reserve(trainer, err);
    if (status != REEF_OK) return status;
    reef_recognition *r = trainer->kinds.recognition;
    const reef_kind_level *level = &trainer->kinds.levels[trainer->kinds.current];
    double *score = &r->current_score[deferred];
    status = count_learned(trainer, err);
    if (status == REEF_OK)
        status = familiarity_of(trainer, trainer->kinds.current, deferred, score, err);
    if (status != REEF_OK) return status;
    r->current_deviation[deferred] = deviation_of(level, *score);
    if (deferred == 0) {
        r->candidates.count = 0;
        r->read_next = first_read(r->learned);
    }
    bool asks_candidates =
        deferred > 0 || (r->current_deviation[0] < -ASK_BELOW && level->pieces >= LEVEL_WARMUP);
    if (!asks_candidates) status = find_better_kind(trainer, &asks_candidates, err);
    if (status != REEF_OK || !asks_candidates) return status;
    status = score_candidates(trainer, deferred, err);
    if (status != REEF_OK) return status;
    bool confirmed = false;
    while (status == REEF_OK && !confirmed && find_switch(r, deferred + 1, out))
        status = confirm_switch(trainer, deferred + 1, out, &confirmed, err);
    if (status != REEF_OK) return status;
    if (!confirmed) *out = judge_new_kind(trainer, deferred + 1);
    if (out->verdict == REEF_VERDICT_NEW) status = judge_text(trainer, deferred + 1, out, err);
    if (status != REEF_OK) return status;
    bool changes = out->verdict == REEF_VERDICT_SWITCH || out->verdict == REEF_VERDICT_NEW;
    return changes ? find_change(trainer, deferred + 1, out, err) : REEF_OK;
}

// ---- a kind that was none -----------------------------------------------------------------------

// Much larger than a kind that learned so many bytes, by what was counted of it.
static bool is_larger(const reef_trainer *trainer, uint32_t kind, uint64_t bytes) {
    const uint64_t batch = reef_batch_bytes(&trainer->network.config);
    const uint64_t learned = trainer->kinds.levels[kind].batches * batch;
    return learned >= SMALL_MAX && learned >= LARGER * bytes;
}

static reef_status read_candidates(reef_trainer *trainer,
                                   uint32_t kind,
                                   const reef_deferred_text *text,
                                   uint32_t *into,
                                   bool *found,
                                   reef_error *err) {
    const reef_candidates *c = &trainer->kinds.recognition->candidates;
    const reef_kind_level *levels = trainer->kinds.levels;
    double least = INFINITY;
    size_t readers = 0;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < c->count && readers < READERS; i++) {
        reef_text_cost cost;
        if (c->kinds[i] == kind || !is_larger(trainer, c->kinds[i], text->count)) continue;
        readers++;
        status = read_text(trainer, text, c->kinds[i], &cost, err);
        if (status != REEF_OK || cost.bits >= least ||
            times_usual(&cost, &levels[c->kinds[i]]) > OWN_COSTLY)
            continue;
        least = cost.bits;
        *into = c->kinds[i];
        *found = true;
    }
    return status;
}

reef_status reef_recognition_find_larger(reef_trainer *trainer,
                                         uint32_t kind,
                                         const uint8_t *text,
                                         size_t count,
                                         uint32_t *into,
                                         bool *found,
                                         reef_error *err) {
    const size_t named = count < REEF_FAMILIARITY_BYTES_MAX ? count : REEF_FAMILIARITY_BYTES_MAX;
    const reef_memory *memory = NULL;
    reef_deferred_text read = {0};
    *found = false;
    reef_status status = reef_recognition_reserve(trainer, err);
    reef_candidates *c = status == REEF_OK ? &trainer->kinds.recognition->candidates : NULL;
    if (status == REEF_OK) status = reef_candidates_choose(c, trainer, text, named, err);
    if (status == REEF_OK) status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status == REEF_OK) status = reef_deferred_text_open(&read, memory, text, count, err);
    if (status == REEF_OK) status = read_candidates(trainer, kind, &read, into, found, err);
    reef_deferred_text_close(&read);
    if (c != NULL) c->count = 0;
    return status;
}

// ---- pieces that were learned -------------------------------------------------------------------

void reef_recognition_count(reef_trainer *trainer, size_t number, uint32_t kind) {
    const reef_recognition *r = trainer->kinds.recognition;
    if (kind == trainer->kinds.current) {
        bool odd = r->candidates.count > 0 && r->current_deviation[number] < -STRANGE;
        // Nothing is familiar to an empty memory, whatever the kind.
        if (!odd && r->learned >= PIECE_BYTES)
            add_to_level(&trainer->kinds.levels[kind], r->current_score[number]);
        return;
    }
    for (size_t i = 0; i < r->candidates.count; i++)
        if (r->candidates.kinds[i] == kind)
            add_to_level(&trainer->kinds.levels[kind], r->scores[i][number]);
}

reef_status reef_recognition_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = reef_recognition_reserve(trainer, err);
    for (size_t at = 0; status == REEF_OK && at < count; at += PIECE_BYTES) {
        size_t size = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        const reef_memory *memory = NULL;
        status = reef_kind_load_memory(trainer, kind, &memory, err);
        if (status == REEF_OK && at >= count / 2 && size == PIECE_BYTES)
            add_to_level(&trainer->kinds.levels[kind],
                         reef_memory_familiarity(memory, bytes + at, size));
        if (status == REEF_OK) status = reef_kind_learn_text(trainer, kind, bytes + at, size, err);
    }
    return status;
}

// ---- the trainer's state, as JSON ---------------------------------------------------------------

void reef_recognition_set_state(const reef_trainer *trainer, json_t **state) {
    if (!reef_recognises_by_contexts(trainer)) return;
    json_t *list = json_array();
    for (size_t g = 0; g < trainer->kinds.level_count; g++) {
        const reef_kind_level *level = &trainer->kinds.levels[g];
        if (level->pieces == 0 && level->batches == 0) continue;
        reef_json_append(&list, json_pack("[I, I, f, f, I, f, f, f]", (json_int_t)g,
                                          (json_int_t)level->pieces, level->mean, level->deviation,
                                          (json_int_t)level->batches, level->bits,
                                          level->bits_deviation, level->recent_bits));
    }
    reef_json_set(state, "current_kind", json_integer(trainer->kinds.current));
    reef_json_set(state, "levels", list);
}

reef_status reef_recognition_load(reef_trainer *trainer, const json_t *state, reef_error *err) {
    const json_t *list = json_object_get(state, "levels");
    const json_t *current = json_object_get(state, "current_kind");
    trainer->kinds.current = reef_open_kind(trainer);
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_recognition_reserve(trainer, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t kind = json_integer_value(json_array_get(item, 0));
        if (kind < 0 || (size_t)kind >= trainer->kinds.level_count)
            return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state has a malformed level");
        trainer->kinds.levels[kind] =
            (reef_kind_level){.pieces = (uint64_t)json_integer_value(json_array_get(item, 1)),
                              .mean = json_real_value(json_array_get(item, 2)),
                              .deviation = json_real_value(json_array_get(item, 3)),
                              .batches = (uint64_t)json_integer_value(json_array_get(item, 4)),
                              .bits = json_real_value(json_array_get(item, 5)),
                              .bits_deviation = json_real_value(json_array_get(item, 6)),
                              .recent_bits = json_real_value(json_array_get(item, 7))};
    }
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
    free(trainer->kinds.levels);
    free(trainer->kinds.recognition);
    trainer->kinds.levels = NULL;
    trainer->kinds.recognition = NULL;
    trainer->kinds.level_count = 0;
}
