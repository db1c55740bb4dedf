// See text_verdict.h. A kind ends only if its memory, which learns on, saves few of the bits of
// learning the text from nothing. Odd files of one kind are strange to it, and are foretold by it
// all the same.
//
// The constants were chosen on 77 kinds of text of 84 kB in one stream, those of large kinds on C,
// Python, English and a package index (docs/LEARNING.md).
#include "text_verdict.h"
#include "deferred_pieces.h"
#include "kind_memories.h"
#include "text_cost.h"

#include <math.h>

// The text of a kind that is not small is read once there is a quarter of what it has learned, at
// most this. What a much larger one does not know is read a second time where it goes on, and what
// costs no more than usual: a file of constants ends sooner.
#define READ_SHARE 4
#define READ_MAX ((size_t)96 << 10)
#define READ_AGAIN ((size_t)256 << 10)
_Static_assert(READ_AGAIN < REEF_DEFERRED_MAX * REEF_PIECE_BYTES, "so much can be deferred");

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

// ---- reading ------------------------------------------------------------------------------------

static reef_status open_text(const reef_trainer *trainer,
                             const reef_memory *mixer,
                             size_t from,
                             size_t pieces,
                             reef_deferred_text *out,
                             reef_error *err) {
    const size_t size = reef_piece_bytes(trainer);
    return reef_deferred_text_open(out, mixer, reef_deferred_at(trainer, from),
                                   (pieces - from) * size, err);
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

// ---- a switch -----------------------------------------------------------------------------------

// The candidate with the greatest lead over some pieces, of those not taken. -1: none.
static int next_leading(const reef_recognition *r, size_t from, size_t to, const bool *taken) {
    double best = 0.0;
    int found = -1;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double lead = 0.0;
        for (size_t n = from; n < to; n++) lead += reef_deferred_lead(r, i, n);
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
    const uint64_t learned = reef_kind_level_learned(trainer, kind);
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
            reef_deferred_refuse(r, (size_t)i);
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
reef_status reef_text_confirm_switch(reef_trainer *trainer,
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

// ---- a new kind ---------------------------------------------------------------------------------

// Throughout: a file that is odd and repeats itself, such as a table of constants, has an end.
static bool is_foreign(const reef_recognition *r,
                       const reef_text_cost *c,
                       const reef_kind_level *level) {
    if (r->learned < REEF_KIND_SMALL)
        return c->behind_first >= SMALL_FOREIGN || c->halves[1] >= SMALL_FOREIGN_AT_LAST;
    double bound = FOREIGN;
    if (r->learned >= REEF_KIND_LARGE && r->read_next < READ_AGAIN)
        bound = LARGE_DOUBTED;
    else if (r->learned >= REEF_KIND_LARGE)
        bound = times_usual(c, level) < 1.0 ? LARGE_CHEAP_FOREIGN : LARGE_FOREIGN;
    else if (r->learned >= COSTLY_MIN && is_costly(c, level))
        bound = COSTLY_FOREIGN;
    return fmin(c->halves[0], c->halves[1]) >= bound;
}

// Is what was found foreign to be read again, with more of it?
static bool is_read_again(const reef_recognition *r, size_t pieces, bool costly) {
    return r->learned >= (costly ? REEF_KIND_LARGE : COSTLY_MIN) && r->read_next < READ_AGAIN &&
           pieces < REEF_DEFERRED_MAX;
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

size_t reef_text_first_read(uint64_t learned) {
    if (learned < REEF_KIND_SMALL) return 0;
    return learned / READ_SHARE < READ_MAX ? (size_t)learned / READ_SHARE : READ_MAX;
}

// What is strange to the current kind begins a new one, or waits for more of it, or is known.
reef_status reef_text_judge_new(reef_trainer *trainer,
                                size_t pieces,
                                reef_kind_decision *decision,
                                reef_error *err) {
    const size_t size = reef_piece_bytes(trainer);
    const size_t count = (pieces - decision->from_piece) * size;
    reef_recognition *r = trainer->kinds.recognition;
    if (count < r->read_next && pieces < REEF_DEFERRED_MAX) {
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
    if (foreign && r->learned >= REEF_KIND_SMALL)
        status = find_owner(trainer, pieces, &text, cost.all, decision, err);
    reef_deferred_text_close(&text);
    if (decision->verdict == REEF_VERDICT_NEW &&
        is_read_again(r, pieces, is_costly(&cost, level))) {
        r->read_next = READ_AGAIN;
        decision->verdict = REEF_VERDICT_DEFER;
    }
    return status;
}

// ---- a kind that was none -----------------------------------------------------------------------

// Much larger than a kind that learned so many bytes, by what was counted of it.
static bool is_larger(const reef_trainer *trainer, uint32_t kind, uint64_t bytes) {
    const uint64_t learned = reef_kind_level_learned(trainer, kind);
    return learned >= REEF_KIND_SMALL && learned >= LARGER * bytes;
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

reef_status reef_text_find_larger(reef_trainer *trainer,
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
    reef_status status = reef_deferred_reserve(trainer, err);
    reef_candidates *c = status == REEF_OK ? &trainer->kinds.recognition->candidates : NULL;
    if (status == REEF_OK) status = reef_candidates_choose(c, trainer, text, named, err);
    if (status == REEF_OK) status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status == REEF_OK) status = reef_deferred_text_open(&read, memory, text, count, err);
    if (status == REEF_OK) status = read_candidates(trainer, kind, &read, into, found, err);
    reef_deferred_text_close(&read);
    if (c != NULL) c->count = 0;
    return status;
}
